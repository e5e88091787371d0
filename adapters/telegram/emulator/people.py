"""What emulated users do, by a test or on the page: messages, edits, files, buttons, reactions, membership."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from mimetypes import guess_type
from typing import Any

from adapters.telegram.emulator.state import (
    ENTITY_FIELDS,
    BotRecord,
    Message,
    PlatformState,
    Recorder,
    find_entities,
    place_of,
    without_reply,
)
from bot.testing import (
    Ability,
    ActionRefused,
    EmulatorActions,
    EmulatorFile,
    EmulatorMessage,
    EmulatorRoom,
    EmulatorUser,
    FileContent,
    TypingIndicators,
)
from bot.testing.emulator import ShownMessage

GROUP_HINT = "In the group a character always answers when you mention it or reply to it."
PRIVATE_HINT = "In a private chat every message is answered. Say hello."
PRIVATE_CHATS, GROUPS = "Private chats", "Groups"
GROUP_KIND, TOPIC_KIND, TOPIC_COLOR = "group", "topic", 7322096
FILE_NAMES = {"photo": "photo.jpg", "voice": "voice.ogg", "audio": "audio.mp3", "video": "video.mp4"}
FILE_KINDS = (*FILE_NAMES, "document")
PHOTO_TYPES = ("image/png", "image/jpeg", "image/webp")

User = Mapping[str, Any]
Chat = Mapping[str, Any]


class People:
    """Acts for emulated users; each action becomes an update for the bots that may see it."""

    def __init__(self, state: PlatformState) -> None:
        self._state = state

    def add_user(self, name: str, *, username: str = "", is_bot: bool = False) -> dict[str, Any]:
        """Create a user."""
        user: dict[str, Any] = {"id": self._state.new_number(), "is_bot": is_bot, "first_name": name}
        if username:
            user["username"] = username
        self._state.users[user["id"]] = user
        return user

    def open_private_chat(self, user: User, *bots: BotRecord) -> dict[str, Any]:
        """Create the private chat of a user with these bots, by default with all."""
        chat = {"id": user["id"], "type": "private", "first_name": user["first_name"]}
        return self._add_chat(chat, {user["id"]: "member"}, bots)

    def add_group(
        self,
        title: str,
        *members: User,
        owner: User | None = None,
        kind: str = "supergroup",
        is_forum: bool = False,
        username: str = "",
    ) -> dict[str, Any]:
        """Create a group with every bot in it, with an id in Telegram's format."""
        number = self._state.new_number()
        chat_id = -1_000_000_000_000 - number if kind != "group" else -number
        chat: dict[str, Any] = {"id": chat_id, "type": kind, "title": title}
        chat |= {"is_forum": True} if is_forum else {}
        chat |= {"username": username} if username else {}
        statuses = {member["id"]: "member" for member in members}
        return self._add_chat(chat, statuses | ({owner["id"]: "creator"} if owner else {}))

    def add_topic(self, chat: Chat, user: User, name: str) -> int:
        """Create a forum topic and return its id."""
        message_id = self._state.new_message_id(chat["id"])
        message = self._build_message(chat, user, message_id)
        message |= {"message_thread_id": message_id, "is_topic_message": True}
        self._state.topics[chat["id"], message_id] = name
        message["forum_topic_created"] = {"name": name, "icon_color": TOPIC_COLOR}
        self._state.deliver_message("message", self._state.store_message(message))
        return message_id

    def close_topic(self, chat: Chat, topic: int | None) -> None:
        """Close a topic, or General without one: only administrators who manage topics can write there."""
        self._state.closed_topics.add((chat["id"], topic))

    def delete_topic(self, chat: Chat, topic: int) -> None:
        """Delete a topic, of which bots receive no update."""
        self._state.deleted_topics.add((chat["id"], topic))

    def say(
        self,
        chat: Chat,
        user: User,
        text: str = "",
        *,
        thread: int | None = None,
        reply_to: Message | None = None,
        **fields: Any,
    ) -> Message:
        """Send a message with a text or other `fields`."""
        message = self._build_message(chat, user, self._state.new_message_id(chat["id"]))
        message |= _text_fields("text", text)
        if thread is not None:
            message |= {"message_thread_id": thread, "is_topic_message": True}
            reply_to = reply_to or self._state.messages.get((chat["id"], thread))
        if reply_to is not None:
            message["reply_to_message"] = without_reply(reply_to)
        message |= fields
        kind = "channel_post" if chat["type"] == "channel" else "message"
        self._state.deliver_message(kind, self._state.store_message(message))
        return message

    def ask_guest(self, chat: Chat, user: User, text: str) -> Message:
        """Ask a bot by its @name in a chat of which it is no member."""
        message = self._build_message(chat, user, self._state.new_message_id(chat["id"]))
        message |= {"text": text, "entities": find_entities(text), "guest_query_id": str(self._state.new_number())}
        self._state.guest_queries[message["guest_query_id"]] = self._state.store_message(message)
        for bot in self._state.bots.values():
            if f"@{bot.user['username']}".lower() in text.lower():
                self._state.notify(bot, "guest_message", message)
        return message

    def type_inline(self, user: User, text: str) -> str:
        """Type a question after the @name of the bots in some chat, and pause; return the id of the query."""
        query_id = str(self._state.new_number())
        self._state.inline_queries[query_id] = self._state.clock()
        query = {"id": query_id, "from": user, "query": text, "offset": "", "chat_type": "group"}
        for bot in self._state.bots.values():
            self._state.notify(bot, "inline_query", query)
        return query_id

    def send_inline(self, user: User, text: str, result_id: str) -> None:
        """Send an answer to an inline question, of which only the bots with inline feedback hear."""
        for bot in self._state.bots.values():
            self._state.notify(bot, "chosen_inline_result", {"result_id": result_id, "from": user, "query": text})

    def edit(self, message: Message, text: str) -> Message:
        """Edit a message, or the caption of a file."""
        name = "text" if "text" in message else "caption"
        message = {**message, name: text, ENTITY_FIELDS[name]: find_entities(text)}
        message["edit_date"] = self._state.unix_time()
        kind = "edited_channel_post" if message["chat"]["type"] == "channel" else "edited_message"
        self._state.deliver_message(kind, self._state.store_message(message))
        return message

    def store_file(self, content: bytes, *, name: str = "file", **fields: Any) -> dict[str, Any]:
        """Store a file and return its description as part of a message."""
        file_number = self._state.new_number()
        file_id = f"file-{file_number}"
        self._state.files[file_id] = (f"documents/{file_number}/{name}", content)
        return {"file_id": file_id, "file_unique_id": f"unique-{file_number}", "file_size": len(content), **fields}

    def store_photo(self, content: bytes) -> list[dict[str, Any]]:
        """Store a picture in one size."""
        return [self.store_file(content, name="photo.jpg", width=640, height=480)]

    def send_album(self, chat: Chat, user: User, contents: Sequence[bytes], caption: str = "") -> list[Message]:
        """Send pictures as one album."""
        album = str(self._state.new_number())
        return [
            self.say(
                chat,
                user,
                photo=self.store_photo(content),
                media_group_id=album,
                **(_text_fields("caption", caption) if not index else {}),
            )
            for index, content in enumerate(contents)
        ]

    def press(self, message: Message, user: User, data: str) -> str:
        """Press a button and return the id of the query."""
        query_id = str(self._state.new_number())
        query = {
            "id": query_id,
            "from": dict(user),
            "message": message,
            "chat_instance": str(message["chat"]["id"]),
            "data": data,
        }
        for bot in self._state.bots_in(message["chat"]["id"]):
            if message.get("from", {}).get("id") == bot.id:
                self._state.notify(bot, "callback_query", query)
        return query_id

    def react(self, message: Message, user: User, *emojis: str, old_emojis: Sequence[str] = ()) -> None:
        """Replace a user's reactions `old_emojis` to a message by `emojis`."""
        update = {
            "chat": message["chat"],
            "message_id": message["message_id"],
            "user": dict(user),
            "date": self._state.unix_time(),
            "old_reaction": [{"type": "emoji", "emoji": emoji} for emoji in old_emojis],
            "new_reaction": [{"type": "emoji", "emoji": emoji} for emoji in emojis],
        }
        for bot in self._state.bots_in(message["chat"]["id"]):
            self._state.notify(bot, "message_reaction", update)

    def change_member(self, chat: Chat, user: User, status: str, actor: User | None = None) -> None:
        """Change the membership status of a user or of a bot."""
        old_status = self._state.members[chat["id"]].get(user["id"], "left")
        update = {
            "chat": dict(chat),
            "from": dict(actor or user),
            "date": self._state.unix_time(),
            "old_chat_member": build_member(user, old_status),
            "new_chat_member": build_member(user, status),
        }
        notified = {bot.id: bot for bot in self._state.bots_in(chat["id"])}
        self._state.members[chat["id"]][user["id"]] = status
        notified |= {bot.id: bot for bot in self._state.bots_in(chat["id"])}
        for bot in notified.values():
            self._state.notify(bot, "my_chat_member" if bot.id == user["id"] else "chat_member", update)

    def migrate(self, chat: Chat, user: User, *, is_announced: bool = True) -> dict[str, Any]:
        """Turn a group into a supergroup; without `is_announced` the bots receive no update about it."""
        supergroup = self.add_group(chat["title"], kind="supergroup")
        self._state.members[supergroup["id"]] = dict(self._state.members[chat["id"]])
        self._state.migrated_chats[chat["id"]] = supergroup["id"]
        if is_announced:
            self.say(chat, user, migrate_to_chat_id=supergroup["id"])
            self.say(supergroup, user, migrate_from_chat_id=chat["id"])
        return supergroup

    def _add_chat(
        self, chat: dict[str, Any], statuses: Mapping[int, str], bots: Iterable[BotRecord] = ()
    ) -> dict[str, Any]:
        members = dict.fromkeys((bot.id for bot in bots or self._state.bots.values()), "member")
        self._state.members.setdefault(chat["id"], {}).update({**members, **statuses})
        return self._state.chats.setdefault(chat["id"], chat)

    def _build_message(self, chat: Chat, user: User, message_id: int) -> Message:
        message: Message = {"message_id": message_id, "date": self._state.unix_time(), "chat": dict(chat)}
        if chat["type"] == "channel":
            return {**message, "sender_chat": dict(chat)}
        return {**message, "from": dict(user)}


def _text_fields(name: str, text: str) -> dict[str, Any]:
    """Return a text or caption with the entities in it; nothing for no text."""
    entities = find_entities(text)
    return ({name: text} if text else {}) | ({ENTITY_FIELDS[name]: entities} if entities else {})


def build_member(user: User, status: str) -> dict[str, Any]:
    """Return a chat member in Telegram's format."""
    member: dict[str, Any] = {"status": status, "user": dict(user)}
    match status:
        case "creator":
            member |= {"is_anonymous": False}
        case "administrator":
            rights = (
                "can_be_edited is_anonymous can_manage_chat can_delete_messages can_manage_video_chats "
                "can_restrict_members can_promote_members can_change_info can_invite_users can_post_stories "
                "can_edit_stories can_delete_stories can_manage_topics"
            )
            member |= dict.fromkeys(rights.split(), False)
        case "kicked":
            member |= {"until_date": 0}
    return member


class TelegramView(EmulatorActions):
    """All chats and topics, at first a private chat with each bot and a group with all bots and two users."""

    platform = "Telegram"
    max_length = 4096
    dialect = "spans"
    abilities = frozenset(Ability)
    room_kinds = ((GROUP_KIND, "Group"), (TOPIC_KIND, "Topic of this group"))

    def __init__(
        self, state: PlatformState, people: People, recorder: Recorder, typing_indicators: TypingIndicators
    ) -> None:
        self._state, self._people, self._recorder, self._typing = state, people, recorder, typing_indicators
        self._members: list[User] = []  # of groups that are added

    def rooms(self) -> Sequence[EmulatorRoom]:
        """Return the chats, private ones first, where every message is answered, each with its topics."""
        if not self._members:  # the bots are known now
            for name in ("Kim", "Robin"):
                self._add_member(name, has_private_chats=name == "Kim")
            self._people.add_group("Harbour", *self._members, owner=self._members[0])
        places = [(chat, 0, "") for chat in self._state.chats.values()]
        places += [(self._state.chats[chat], topic, name) for (chat, topic), name in self._state.topics.items()]
        places.sort(key=lambda place: (place[0]["type"] != "private", abs(place[0]["id"]), place[1]))
        return [self._to_room(chat, topic, name) for chat, topic, name in places]

    def bots(self) -> Sequence[EmulatorUser]:
        users = [bot.user for bot in self._state.bots.values()]
        return [EmulatorUser(f"@{user['username']}", user["first_name"]) for user in users]

    def messages(self, room_id: str) -> Sequence[EmulatorMessage]:
        shown = {(message.room, message.id): message for message in self._recorder.messages}
        return [
            self._to_page_message(message, shown.get(key))
            for key, message in self._state.messages.items()
            if place_of(message) == room_id and not (key in shown and shown[key].is_gone)
        ]

    def typing(self, room_id: str) -> Sequence[str]:
        return self._typing.names(room_id)

    def read_file(self, file_id: str) -> FileContent | None:
        parts = file_id.split(":", 2)
        if len(parts) < 3 or not all(part.removeprefix("-").isdecimal() for part in parts[:2]):
            return None
        key = (int(parts[0]), int(parts[1]))
        message = self._state.messages.get(key)
        stored = self._stored_files(message, self._recorder.find(*key)) if message else ()
        return next(
            (FileContent(file.name, file.content_type, data) for file, data in stored if file.id == file_id), None
        )

    async def send_files(
        self, room_id: str, user_id: str, text: str, reply_to: str, files: Sequence[FileContent]
    ) -> None:
        """Send a text, or each file as a message; the first has the text, and several pictures are an album."""
        chat, topic = self._locate(room_id)
        user = self._state.users[int(user_id)]
        replied = self._state.messages.get((chat["id"], int(reply_to))) if reply_to.isdecimal() else None
        if not files:
            self._people.say(chat, user, text, thread=topic, reply_to=replied)
        is_album = len(files) > 1 and all(file.content_type in PHOTO_TYPES for file in files)
        album = {"media_group_id": str(self._state.new_number())} if is_album else {}
        for number, file in enumerate(files):
            fields = {**album, **({"caption": text} if text and not number else {}), **self._store(file)}
            self._people.say(chat, user, thread=topic, reply_to=replied, **fields)

    async def press_button(self, room_id: str, user_id: str, message_id: str, button_id: str) -> None:
        self._people.press(self._find_message(room_id, message_id), self._state.users[int(user_id)], button_id)

    async def edit_message(self, room_id: str, message_id: str, text: str) -> None:
        self._people.edit(self._find_message(room_id, message_id), text)

    async def delete_message(self, room_id: str, message_id: str) -> None:
        """Delete a message; Telegram does not tell bots of it."""
        chat, _ = self._locate(room_id)
        del self._state.messages[chat["id"], int(message_id)]

    async def toggle_reaction(self, room_id: str, user_id: str, message_id: str, emoji: str) -> None:
        """Set the reaction of a user, or remove it."""
        message, user = self._find_message(room_id, message_id), self._state.users[int(user_id)]
        reactions = self._state.reactions.setdefault((message["chat"]["id"], message["message_id"]), {})
        old_emoji = reactions.pop(user["id"], "")
        new_emojis = [emoji] if emoji != old_emoji else []
        if new_emojis:
            reactions[user["id"]] = emoji
        self._people.react(message, user, *new_emojis, old_emojis=[old_emoji] if old_emoji else [])

    async def add_person(self, name: str) -> None:
        """Add a user to all groups, with a private chat with each bot."""
        self._add_member(name)

    async def add_room(self, kind: str, name: str, near: str) -> str:
        """Add a group, or a topic of the group `near`."""
        if kind == GROUP_KIND:
            return str(self._people.add_group(name, *self._members, owner=self._members[0])["id"])
        chat, _ = self._locate(near)
        if chat["type"] == "private":
            raise ActionRefused("private chats have no topics: open a group first")
        chat["is_forum"] = True
        return f"{chat['id']}/{self._people.add_topic(chat, self._members[0], name)}"

    def _add_member(self, name: str, *, has_private_chats: bool = True) -> None:
        """Add a user. A private chat has its user's id, so with several bots each has a user of this name."""
        username = "".join(sign for sign in name.lower() if sign.isalnum())
        member = self._people.add_user(name, username=username)
        groups = [chat for chat in self._state.chats.values() if chat["type"] != "private"]
        for index, bot in enumerate(self._state.bots.values() if has_private_chats else ()):
            user = self._people.add_user(name, username=username) if index else member
            self._people.open_private_chat(user, bot)
        self._members.append(member)
        for chat in groups:
            self._people.change_member(chat, member, "member")

    def _locate(self, room_id: str) -> tuple[dict[str, Any], int | None]:
        """Return the chat of a room and its topic, if it is one."""
        chat_id, _, topic = room_id.partition("/")
        return self._state.chats[int(chat_id)], int(topic) if topic else None

    def _find_message(self, room_id: str, message_id: str) -> Message:
        chat, _ = self._locate(room_id)
        return self._state.messages[chat["id"], int(message_id)]

    def _to_room(self, chat: Chat, topic: int, topic_name: str) -> EmulatorRoom:
        room_id, is_private = f"{chat['id']}/{topic}" if topic else str(chat["id"]), chat["type"] == "private"
        name = f"{chat['title']}, topic: {topic_name}" if topic else chat.get("title", "")
        if is_private:
            bots = [bot.user["first_name"] for bot in self._state.bots_in(chat["id"])]
            name = " and ".join([*bots, chat["first_name"]])
        people = tuple(
            EmulatorUser(str(user_id), self._state.users[user_id]["first_name"])
            for user_id, status in self._state.members[chat["id"]].items()
            if user_id in self._state.users and status not in ("left", "kicked")
        )
        hint, group = (PRIVATE_HINT, PRIVATE_CHATS) if is_private else (GROUP_HINT, GROUPS)
        return EmulatorRoom(room_id, name, people, hint, group, str(self._state.newest.get(room_id, "")))

    def _store(self, file: FileContent) -> dict[str, Any]:
        """Store a file; return the fields of a message that has it."""
        if file.content_type in PHOTO_TYPES:
            return {"photo": self._people.store_photo(file.data)}
        kind, fields = file.content_type.partition("/")[0], {"duration": 1}
        if kind == "audio" and file.content_type in ("audio/ogg", "audio/webm"):
            kind = "voice"
        elif kind == "video":
            fields |= {"width": 640, "height": 480}
        elif kind != "audio":
            kind, fields = "document", {}
        name = {"file_name": file.name} if kind == "document" else {}
        stored = self._people.store_file(file.data, name=file.name, mime_type=file.content_type, **fields, **name)
        return {kind: stored}

    def _to_page_message(self, message: Message, shown: ShownMessage | None) -> EmulatorMessage:
        rows = message.get("reply_markup", {}).get("inline_keyboard", [])
        replied = message.get("reply_to_message", {}) if "text" in message or "caption" in message else {}
        replied = {} if "forum_topic_created" in replied else replied
        replied_name = replied.get("from", {}).get("first_name")
        author = message.get("from", {})
        notes = [f"in answer to {replied_name}"] if replied_name else []
        notes += ["opened this topic"] if "forum_topic_created" in message else []
        reactions = self._state.reactions.get((message["chat"]["id"], message["message_id"]), {})
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
            files=tuple(file for file, _ in self._stored_files(message, shown)),
            reactions=tuple(
                (emoji, tuple(str(user) for user, chosen in reactions.items() if chosen == emoji))
                for emoji in dict.fromkeys(reactions.values())
            ),
            spans=tuple(
                (entity["type"], entity["offset"], entity["length"], entity.get("url") or entity.get("language") or "")
                for entity in message.get("entities") or message.get("caption_entities") or ()
            ),
        )

    def _stored_files(self, message: Message, shown: ShownMessage | None) -> Iterator[tuple[EmulatorFile, bytes]]:
        """Yield the files of a message with their content: a person's are stored by id, a bot's by name."""
        prefix = f"{message['chat']['id']}:{message['message_id']}"
        kind = next((field for field in FILE_KINDS if message.get(field)), "")
        if shown is not None:
            other = "image/jpeg" if kind == "photo" else "application/octet-stream"
            for name, data in shown.files.items():
                yield EmulatorFile(f"{prefix}:{name}", name, guess_type(name)[0] or other, len(data)), data
        elif kind:
            file = message[kind][-1] if kind == "photo" else message[kind]
            default = FILE_NAMES.get(kind, "file")
            name, content_type = file.get("file_name") or default, file.get("mime_type") or guess_type(default)[0] or ""
            _, data = self._state.files.get(file["file_id"], ("", b""))
            yield EmulatorFile(f"{prefix}:{file['file_id']}", name, content_type, file.get("file_size", 0)), data
