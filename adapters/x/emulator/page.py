"""The emulated posts on the chat page."""

from collections.abc import Mapping, Sequence

from adapters.x.emulator.state import PlatformState, PostForbidden, PostRecord
from bot.testing import EmulatorMessage, EmulatorRoom, EmulatorUser

TIMELINE = "timeline"
HINT = "Mention a character, or reply to it. It polls its mentions every few seconds."


class XView:
    """One timeline of all posts, for every user that is no character."""

    platform = "X"
    max_length = 1000

    def __init__(self, state: PlatformState, bots: Mapping[str, str]) -> None:
        self._state, self._bots = state, bots

    def rooms(self) -> Sequence[EmulatorRoom]:
        """List the timeline, the only room."""
        people = tuple(
            EmulatorUser(number, f"@{name}")
            for number, name in self._state.usernames.items()
            if number not in self._bots
        )
        return [EmulatorRoom(TIMELINE, "all posts", people, HINT)]

    def bots(self) -> Sequence[EmulatorUser]:
        """List the characters with the text that mentions them."""
        mentions = [f"@{name}" for name in self._bots.values()]
        return [EmulatorUser(mention, mention) for mention in mentions]

    def messages(self, room_id: str) -> Sequence[EmulatorMessage]:
        """List the posts."""
        return [self._build_page_message(post) for post in self._state.posts.values() if not post.is_deleted]

    async def send_message(self, room_id: str, user_id: str, text: str, reply_to: str) -> str:
        """Create a post."""
        try:
            self._state.create_post(user_id, text, reply_to_id=reply_to)
        except PostForbidden as error:
            return str(error)
        return ""

    async def press_button(self, room_id: str, user_id: str, message_id: str, button_id: str) -> None:
        """Do nothing: posts have no buttons."""

    def _build_page_message(self, post: PostRecord) -> EmulatorMessage:
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
        )
