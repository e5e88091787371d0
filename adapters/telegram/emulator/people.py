"""Actions of emulated users: messages, edits, files, buttons, reactions, membership."""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.telegram.emulator.state import Message, PlatformState, find_entities

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

    def open_private_chat(self, user: User) -> dict[str, Any]:
        """Create the private chat of a user with every bot."""
        chat = {"id": user["id"], "type": "private", "first_name": user["first_name"]}
        return self._add_chat(chat, {user["id"]: "member"})

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
        message["forum_topic_created"] = {"name": name, "icon_color": 7322096}
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
        if text:
            message |= {"text": text}
        if text and (entities := find_entities(text)):
            message |= {"entities": entities}
        if thread is not None:
            message |= {"message_thread_id": thread, "is_topic_message": True}
            reply_to = reply_to or self._state.messages.get((chat["id"], thread))
        if reply_to is not None:
            message["reply_to_message"] = {k: v for k, v in reply_to.items() if k != "reply_to_message"}
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

    def edit(self, message: Message, text: str) -> Message:
        """Edit a message, or the caption of a file."""
        names = ("text", "entities") if "text" in message else ("caption", "caption_entities")
        message = {**message, **dict(zip(names, (text, find_entities(text)), strict=True))}
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
        fields: dict[str, Any] = {"media_group_id": str(self._state.new_number())}
        messages = []
        for index, content in enumerate(contents):
            has_caption = bool(caption) and not index
            caption_fields: dict[str, Any] = (
                {"caption": caption, "caption_entities": find_entities(caption)} if has_caption else {}
            )
            messages.append(self.say(chat, user, photo=self.store_photo(content), **fields, **caption_fields))
        return messages

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
        notified = list(self._state.bots_in(chat["id"]))
        self._state.members[chat["id"]][user["id"]] = status
        notified = list({record.id: record for record in (*notified, *self._state.bots_in(chat["id"]))}.values())
        for bot in notified:
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

    def _add_chat(self, chat: dict[str, Any], statuses: dict[int, str]) -> dict[str, Any]:
        stored = self._state.chats.setdefault(chat["id"], chat)
        bots = {bot.id: "member" for bot in self._state.bots.values()}
        self._state.members.setdefault(chat["id"], {}).update({**bots, **statuses})
        return stored

    def _build_message(self, chat: Chat, user: User, message_id: int) -> Message:
        message: Message = {"message_id": message_id, "date": self._state.unix_time(), "chat": dict(chat)}
        if chat["type"] == "channel":
            return {**message, "sender_chat": dict(chat)}
        return {**message, "from": dict(user)}


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
