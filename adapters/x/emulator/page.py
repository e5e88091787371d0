"""The emulated posts on the chat page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from mimetypes import guess_extension

from adapters.x.emulator.state import PlatformState, PostForbidden, PostRecord, to_username
from bot.testing import (
    Ability,
    ActionRefused,
    EmulatorActions,
    EmulatorFile,
    EmulatorMessage,
    EmulatorRoom,
    EmulatorUser,
    FileContent,
)

TIMELINE = "timeline"
HINT = "Mention a character, or reply to it. It polls its mentions every few seconds."
CONVERSATION_HINT = "What you write here replies to the newest post."
CONVERSATIONS = "Conversations"
HEART = "♥"
MAX_TITLE_LENGTH = 40
PICTURE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
MAX_PICTURES = 4


class XView(EmulatorActions):
    """One timeline of all posts, and the conversations among them, for every user that is no character."""

    platform = "X"
    max_length = 1000
    abilities = frozenset({Ability.DELETE, Ability.REACT, Ability.FILES, Ability.ADD_PERSON})
    emojis = (HEART,)

    def __init__(self, state: PlatformState, bots: Mapping[str, str]) -> None:
        self._state, self._bots = state, bots

    def rooms(self) -> Sequence[EmulatorRoom]:
        """List the timeline, then the conversations, those with the newest post first."""
        people = tuple(
            EmulatorUser(number, f"@{name}")
            for number, name in self._state.usernames.items()
            if number not in self._bots
        )
        posts = self._visible_posts()
        newest = {post.conversation_id: post.id for post in posts}
        sizes = Counter(post.conversation_id for post in posts)
        conversations = [key for key in sorted(newest, key=lambda key: -int(newest[key])) if sizes[key] > 1]
        return [
            EmulatorRoom(TIMELINE, "all posts", people, HINT, newest=posts[-1].id if posts else ""),
            *(
                EmulatorRoom(key, self._title_of(key), people, CONVERSATION_HINT, CONVERSATIONS, newest[key])
                for key in conversations
            ),
        ]

    def bots(self) -> Sequence[EmulatorUser]:
        mentions = [f"@{name}" for name in self._bots.values()]
        return [EmulatorUser(mention, mention) for mention in mentions]

    def messages(self, room_id: str) -> Sequence[EmulatorMessage]:
        return [
            self._to_page_message(post) for post in self._visible_posts() if room_id in (TIMELINE, post.conversation_id)
        ]

    def read_file(self, file_id: str) -> FileContent | None:
        picture = self._state.pictures.get(file_id)
        if picture is None:
            return None
        content_type = str(picture["type"] or "image/png")
        return FileContent(f"picture{guess_extension(content_type) or ''}", content_type, picture["data"])

    async def send_files(
        self, room_id: str, user_id: str, text: str, reply_to: str, files: Sequence[FileContent]
    ) -> None:
        """Create a post; in a conversation it replies to the newest one.

        The characters see pictures by their names only, for they have no address.
        """
        if len(files) > MAX_PICTURES or any(file.content_type not in PICTURE_TYPES for file in files):
            raise ActionRefused(f"a post has at most {MAX_PICTURES} pictures, and no other files")
        keys = []
        for file in files:
            keys.append(key := self._state.new_id())
            self._state.pictures[key] = {"data": file.data, "type": file.content_type, "alt": file.name, "url": ""}
        posts = [post.id for post in self._visible_posts() if post.conversation_id == room_id]
        reply_to_id = reply_to or next(reversed(posts), "")
        try:
            self._state.create_post(user_id, text, reply_to_id=reply_to_id, pictures=tuple(keys))
        except PostForbidden as error:
            raise ActionRefused(str(error)) from error

    async def delete_message(self, room_id: str, message_id: str) -> None:
        self._state.posts[message_id].is_deleted = True

    async def toggle_reaction(self, room_id: str, user_id: str, message_id: str, emoji: str) -> None:
        """Like a post, or take that back; X does not tell its author's program."""
        self._state.posts[message_id].likes ^= {user_id}

    async def add_person(self, name: str) -> None:
        username = to_username(name)
        if not username:
            raise ActionRefused("a name on X consists of Latin letters, digits and _")
        self._state.user_id_of(username)

    def _visible_posts(self) -> list[PostRecord]:
        return [post for post in self._state.posts.values() if not post.is_deleted]

    def _title_of(self, conversation_id: str) -> str:
        text = " ".join(self._state.posts[conversation_id].text.split())
        return text if len(text) <= MAX_TITLE_LENGTH else f"{text[: MAX_TITLE_LENGTH - 1]}…"

    def _to_page_message(self, post: PostRecord) -> EmulatorMessage:
        replied_post = self._state.posts.get(post.reply_to_id)
        notes = [f"in answer to @{self._state.usernames[replied_post.author_id]}"] if replied_post else []
        counts = {"like": post.likes, "repost": post.reposts, "picture": post.pictures}
        notes += [f"{len(items)} {name}{'s' * (len(items) > 1)}" for name, items in counts.items() if items]
        notes += ["quotes a post"] if post.quoted_id else []
        return EmulatorMessage(
            post.id,
            f"@{self._state.usernames[post.author_id]}",
            post.text,
            is_bot=post.author_id in self._bots,
            note=", ".join(notes),
            user_id=post.author_id,
            at=post.created_at.isoformat(),
            reply_to=post.reply_to_id,
            files=tuple(map(self._to_file, post.pictures)),
            reactions=((HEART, tuple(sorted(post.likes))),) if post.likes else (),
            thread=post.conversation_id,
        )

    def _to_file(self, key: str) -> EmulatorFile:
        picture = self._state.pictures[key]
        content_type = str(picture["type"] or "image/png")
        return EmulatorFile(key, str(picture["alt"] or "picture"), content_type, len(picture["data"]))
