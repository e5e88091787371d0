"""Chat page of the emulator: what it shows and what a user does there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from mimetypes import guess_type
from typing import Any

from adapters.telegram.emulator.people import Chat, People, User
from adapters.telegram.emulator.recorder import Recorder, ShownMessage
from adapters.telegram.emulator.rest import BotApi
from adapters.telegram.emulator.state import Message, PlatformState, place_of
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

GROUP_HINT = "In the group a character always answers when you mention it or reply to it."
PRIVATE_HINT = "In a private chat every message is answered. Say hello."
PRIVATE_CHATS, GROUPS = "Private chats", "Groups"
GROUP_KIND, TOPIC_KIND = "group", "topic"
FILE_FIELDS = ("photo", "voice", "audio", "video", "document")
FILE_NAMES = {"photo": "photo.jpg", "voice": "voice.ogg", "audio": "audio.mp3", "video": "video.mp4"}


@dataclass(frozen=True, slots=True)
class OpenChat:
    """A chat of the page, or a topic of one, with those who write in it."""

    chat: Chat
    name: str
    people: list[User]
    thread: int | None = None


class TelegramView(EmulatorActions):
    """A private chat with each bot, and groups with all bots and all users."""

    platform = "Telegram"
    max_length = 4096
    dialect = "spans"
    abilities = frozenset(Ability)
    room_kinds = ((GROUP_KIND, "Group"), (TOPIC_KIND, "Topic of this group"))

    def __init__(self, state: PlatformState, people: People, recorder: Recorder, api: BotApi) -> None:
        self._state, self._people, self._recorder, self._api = state, people, recorder, api
        self._chats: dict[str, OpenChat] = {}
        self._members: list[User] = []
        self._reactions: dict[tuple[int, int], dict[int, str]] = {}  # one emoji of each user, as without Premium

    def rooms(self) -> Sequence[EmulatorRoom]:
        """Return the chats, private ones first, where every message is answered."""
        return [
            EmulatorRoom(
                place,
                opened.name,
                tuple(EmulatorUser(str(user["id"]), user["first_name"]) for user in opened.people),
                PRIVATE_HINT if opened.chat["type"] == "private" else GROUP_HINT,
                PRIVATE_CHATS if opened.chat["type"] == "private" else GROUPS,
                str(self._state.newest.get(place, "")),
            )
            for place, opened in sorted(self._open_chats().items(), key=lambda item: _room_order(item[1]))
        ]

    def bots(self) -> Sequence[EmulatorUser]:
        """Return the bots with the names by which they are mentioned."""
        users = [bot.user for bot in self._state.bots.values()]
        return [EmulatorUser(f"@{user['username']}", user["first_name"]) for user in users]

    def messages(self, room_id: str) -> Sequence[EmulatorMessage]:
        """Return the visible messages of a chat."""
        shown = {(message.chat_id, message.id): message for message in self._recorder.messages}
        return [
            self._build_page_message(message, shown.get(key))
            for key, message in self._state.messages.items()
            if place_of(message) == room_id and not (key in shown and shown[key].is_gone)
        ]

    def typing(self, room_id: str) -> Sequence[str]:
        """Return the names of the bots that type in a chat."""
        return self._api.typing.names(room_id)

    def read_file(self, file_id: str) -> FileContent | None:
        """Return a file that a person or a bot has sent."""
        chat_id, _, rest = file_id.partition(":")
        message_id, _, name = rest.partition(":")
        if not (chat_id.removeprefix("-").isdecimal() and message_id.isdecimal()):
            return None
        message = self._state.messages.get((int(chat_id), int(message_id)))
        shown = self._recorder.find(int(chat_id), int(message_id))
        if message is None:
            return None
        if shown is not None:
            data = shown.files.get(name)
            return None if data is None else FileContent(name, _type_of(name, message), data)
        stored = self._state.files.get(name)
        return None if stored is None else FileContent(_stored_name(message), _type_of("", message), stored[1])

    async def send_message(self, room_id: str, user_id: str, text: str, reply_to: str) -> str:
        """Send a message as a user."""
        opened = self._chats[room_id]
        replied_to = self._find_replied(opened, reply_to)
        self._people.say(
            opened.chat, _find_user(opened.people, user_id), text, thread=opened.thread, reply_to=replied_to
        )
        return ""

    async def send_files(
        self, room_id: str, user_id: str, text: str, reply_to: str, files: Sequence[FileContent]
    ) -> None:
        """Send each file as a message; the first has the text, and several pictures are an album."""
        opened = self._chats[room_id]
        album = (
            {"media_group_id": str(self._state.new_number())} if len(files) > 1 and all(map(_is_photo, files)) else {}
        )
        for number, file in enumerate(files):
            caption = {"caption": text} if text and not number else {}
            self._people.say(
                opened.chat,
                _find_user(opened.people, user_id),
                thread=opened.thread,
                reply_to=self._find_replied(opened, reply_to),
                **album,
                **caption,
                **self._store(file),
            )

    async def press_button(self, room_id: str, user_id: str, message_id: str, button_id: str) -> None:
        """Press a button of a message."""
        opened = self._chats[room_id]
        message = self._state.messages[opened.chat["id"], int(message_id)]
        self._people.press(message, _find_user(opened.people, user_id), button_id)

    async def edit_message(self, room_id: str, message_id: str, text: str) -> None:
        """Edit a message or the caption of a file."""
        self._people.edit(self._state.messages[self._chats[room_id].chat["id"], int(message_id)], text)

    async def delete_message(self, room_id: str, message_id: str) -> None:
        """Delete a message; Telegram does not tell bots of it."""
        del self._state.messages[self._chats[room_id].chat["id"], int(message_id)]

    async def toggle_reaction(self, room_id: str, user_id: str, message_id: str, emoji: str) -> None:
        """Set the reaction of a user, or remove it."""
        opened = self._chats[room_id]
        key = (opened.chat["id"], int(message_id))
        reactions = self._reactions.setdefault(key, {})
        old_emoji = reactions.pop(int(user_id), "")
        new_emojis = [emoji] if emoji != old_emoji else []
        if new_emojis:
            reactions[int(user_id)] = emoji
        user, old_emojis = _find_user(opened.people, user_id), [old_emoji] if old_emoji else []
        self._people.react(self._state.messages[key], user, *new_emojis, old_emojis=old_emojis)

    async def add_person(self, name: str) -> None:
        """Add a user to all groups, with a private chat with each bot."""
        self._add_member(name)

    async def add_room(self, kind: str, name: str, near: str) -> str:
        """Add a group, or a topic of the group `near`."""
        if kind == GROUP_KIND:
            return self._add_group(name)
        parent = self._chats[near]
        if parent.chat["type"] == "private":
            raise ActionRefused("private chats have no topics: open a group first")
        self._state.chats[parent.chat["id"]]["is_forum"] = True
        thread = self._people.add_topic(parent.chat, parent.people[0], name)
        place = f"{parent.chat['id']}/{thread}"
        self._chats[place] = OpenChat(parent.chat, f"{parent.chat['title']}, topic: {name}", parent.people, thread)
        return place

    def _open_chats(self) -> dict[str, OpenChat]:
        """Return the chats, created at the first call, when the bots are known."""
        if not self._chats:
            for name in ("Kim", "Robin"):
                self._add_member(name, has_private_chats=name == "Kim")
            self._add_group("Harbour")
        return self._chats

    def _add_member(self, name: str, *, has_private_chats: bool = True) -> None:
        """Add a user. A private chat has its user's id, so with several bots each has a user of this name."""
        username = "".join(sign for sign in name.lower() if sign.isalnum())
        member = self._people.add_user(name, username=username)
        for index, bot in enumerate(self._state.bots.values() if has_private_chats else ()):
            user = self._people.add_user(name, username=username) if index else member
            chat = self._people.open_private_chat(user)
            self._state.members[chat["id"]] = {user["id"]: "member", bot.id: "member"}
            self._chats[str(chat["id"])] = OpenChat(chat, f"{bot.user['first_name']} and {name}", [user])
        self._members.append(member)
        for opened in self._chats.values():
            if opened.chat["type"] != "private" and member not in opened.people:
                opened.people.append(member)
                self._people.change_member(opened.chat, member, "member")

    def _add_group(self, title: str) -> str:
        chat = self._people.add_group(title, *self._members, owner=self._members[0])
        self._chats[str(chat["id"])] = OpenChat(chat, title, list(self._members))
        return str(chat["id"])

    def _find_replied(self, opened: OpenChat, message_id: str) -> Message | None:
        return self._state.messages.get((opened.chat["id"], int(message_id))) if message_id.isdecimal() else None

    def _store(self, file: FileContent) -> dict[str, Any]:
        """Store a file; return the fields of a message that has it."""
        kind = file.content_type.partition("/")[0]
        if _is_photo(file):
            return {"photo": self._people.store_photo(file.data)}
        fields: dict[str, Any] = {"mime_type": file.content_type}
        if kind == "audio":
            is_voice = file.content_type in ("audio/ogg", "audio/webm")
            return {
                "voice" if is_voice else "audio": self._people.store_file(
                    file.data, name=file.name, duration=1, **fields
                )
            }
        if kind == "video":
            fields |= {"duration": 1, "width": 640, "height": 480}
            return {"video": self._people.store_file(file.data, name=file.name, **fields)}
        return {"document": self._people.store_file(file.data, name=file.name, file_name=file.name, **fields)}

    def _build_page_message(self, message: Message, shown: ShownMessage | None) -> EmulatorMessage:
        rows = message.get("reply_markup", {}).get("inline_keyboard", [])
        replied = message.get("reply_to_message", {}) if "text" in message or "caption" in message else {}
        replied = {} if "forum_topic_created" in replied else replied
        replied_name = replied.get("from", {}).get("first_name")
        author = message.get("from", {})
        notes = [f"in answer to {replied_name}"] if replied_name else []
        notes += ["opened this topic"] if "forum_topic_created" in message else []
        reactions = self._reactions.get((message["chat"]["id"], message["message_id"]), {})
        return EmulatorMessage(
            str(message["message_id"]),
            author.get("first_name", ""),
            message.get("text") or message.get("caption") or "",
            is_bot=bool(author.get("is_bot")),
            note=", ".join(notes),
            buttons=tuple(
                (button["callback_data"], button["text"]) for row in rows for button in row if "callback_data" in button
            ),
            user_id=str(author.get("id", "")),
            at=datetime.fromtimestamp(message["date"], UTC).isoformat(),
            reply_to=str(replied.get("message_id", "")),
            is_edited="edit_date" in message,
            files=tuple(_files(message, shown)),
            reactions=tuple(
                (emoji, tuple(str(user) for user, chosen in reactions.items() if chosen == emoji))
                for emoji in dict.fromkeys(reactions.values())
            ),
            spans=tuple(
                (entity["type"], entity["offset"], entity["length"], entity.get("url") or entity.get("language") or "")
                for entity in message.get("entities") or message.get("caption_entities") or ()
            ),
        )


def _room_order(opened: OpenChat) -> tuple[bool, int, int]:
    return opened.chat["type"] != "private", abs(opened.chat["id"]), opened.thread or 0


def _find_user(people: Sequence[User], person: str) -> User:
    return next(user for user in people if str(user["id"]) == person)


def _is_photo(file: FileContent) -> bool:
    return file.content_type in ("image/png", "image/jpeg", "image/webp")


def _files(message: Message, shown: ShownMessage | None) -> Iterator[EmulatorFile]:
    """Yield the files of a message: a person's are stored by id, a bot's by name."""
    prefix = f"{message['chat']['id']}:{message['message_id']}"
    if shown is not None:
        for name, data in shown.files.items():
            yield EmulatorFile(f"{prefix}:{name}", name, _type_of(name, message), len(data))
        return
    for kind in FILE_FIELDS:
        value = message.get(kind)
        if value:
            file = value[-1] if kind == "photo" else value
            name = _stored_name(message)
            yield EmulatorFile(f"{prefix}:{file['file_id']}", name, _type_of("", message), file.get("file_size", 0))


def _stored_name(message: Message) -> str:
    kind = next((field for field in FILE_FIELDS if field in message), "")
    return str(message.get("document", {}).get("file_name") or FILE_NAMES.get(kind, "file"))


def _type_of(name: str, message: Message) -> str:
    """Return the type of a file, by its name or by the kind of the message."""
    kind = next((field for field in FILE_FIELDS if field in message), "")
    value = message.get(kind) or {}
    stated = value.get("mime_type") if isinstance(value, dict) else "image/jpeg"
    guessed = guess_type(name or FILE_NAMES.get(kind, ""))[0]
    return str(guessed or stated or "application/octet-stream") if name else str(stated or guessed or "")
