"""What people do: they write, edit, send pictures, press buttons, react, come and go."""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.telegram.emulator.state import Message, Town, entities_of

User = Mapping[str, Any]
Chat = Mapping[str, Any]


class People:
    """Acts for people, chat by chat; each deed becomes updates for the bots that see it."""

    def __init__(self, town: Town) -> None:
        self._town = town

    def person(self, name: str, *, username: str = "", is_bot: bool = False) -> dict[str, Any]:
        """Let somebody have an account."""
        user: dict[str, Any] = {"id": self._town.number(), "is_bot": is_bot, "first_name": name}
        if username:
            user["username"] = username
        self._town.users[user["id"]] = user
        return user

    def private(self, user: User) -> dict[str, Any]:
        """Have somebody open the private chat with every bot."""
        chat = {"id": user["id"], "type": "private", "first_name": user["first_name"]}
        return self._chat(chat, {user["id"]: "member"})

    def group(
        self,
        title: str,
        *members: User,
        owner: User | None = None,
        kind: str = "supergroup",
        is_forum: bool = False,
        username: str = "",
    ) -> dict[str, Any]:
        """Make a group with every bot in it; its ids look like Telegram's."""
        number = self._town.number()
        chat_id = -1_000_000_000_000 - number if kind != "group" else -number
        chat: dict[str, Any] = {"id": chat_id, "type": kind, "title": title}
        chat |= {"is_forum": True} if is_forum else {}
        chat |= {"username": username} if username else {}
        statuses = {one["id"]: "member" for one in members}
        return self._chat(chat, statuses | ({owner["id"]: "creator"} if owner else {}))

    def topic(self, chat: Chat, user: User, name: str) -> int:
        """Begin a topic in a forum, and give its number."""
        number = self._town.next_message(chat["id"])
        message = self._message(chat, user, number)
        message |= {"message_thread_id": number, "is_topic_message": True}
        message["forum_topic_created"] = {"name": name, "icon_color": 7322096}
        self._town.deliver("message", self._town.keep(message))
        return number

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
        """Write something, or send what `fields` hold."""
        message = self._message(chat, user, self._town.next_message(chat["id"]))
        if text:
            message |= {"text": text}
        if text and (entities := entities_of(text)):
            message |= {"entities": entities}
        if thread is not None:
            message |= {"message_thread_id": thread, "is_topic_message": True}
            reply_to = reply_to or self._town.messages.get((chat["id"], thread))
        if reply_to is not None:
            message["reply_to_message"] = {k: v for k, v in reply_to.items() if k != "reply_to_message"}
        message |= fields
        kind = "channel_post" if chat["type"] == "channel" else "message"
        self._town.deliver(kind, self._town.keep(message))
        return message

    def edit(self, message: Message, text: str) -> Message:
        """Change what was said."""
        message = {**message, "text": text, "entities": entities_of(text)}
        message["edit_date"] = self._town.seconds()
        kind = "edited_channel_post" if message["chat"]["type"] == "channel" else "edited_message"
        self._town.deliver(kind, self._town.keep(message))
        return message

    def file(self, content: bytes, *, name: str = "file", **fields: Any) -> dict[str, Any]:
        """Have Telegram keep a file, and give what a message holds of it."""
        number = self._town.number()
        file_id = f"file-{number}"
        self._town.files[file_id] = (f"documents/{number}/{name}", content)
        return {"file_id": file_id, "file_unique_id": f"unique-{number}", "file_size": len(content), **fields}

    def picture(self, content: bytes) -> list[dict[str, Any]]:
        """Have Telegram keep a picture, in one size."""
        return [self.file(content, name="photo.jpg", width=640, height=480)]

    def album(self, chat: Chat, user: User, contents: Sequence[bytes], caption: str = "") -> list[Message]:
        """Send pictures that belong together."""
        fields: dict[str, Any] = {"media_group_id": str(self._town.number())}
        found = []
        for place, content in enumerate(contents):
            words: dict[str, Any] = {"caption": caption} if caption and not place else {}
            found.append(self.say(chat, user, photo=self.picture(content), **fields, **words))
        return found

    def press(self, message: Message, user: User, data: str) -> str:
        """Press a button, and give the query's number."""
        number = str(self._town.number())
        query = {
            "id": number,
            "from": dict(user),
            "message": message,
            "chat_instance": str(message["chat"]["id"]),
            "data": data,
        }
        for bot in self._town.in_chat(message["chat"]["id"]):
            if message.get("from", {}).get("id") == bot.id:
                self._town.tell(bot, "callback_query", query)
        return number

    def react(self, message: Message, user: User, *signs: str, before: Sequence[str] = ()) -> None:
        """Put signs on a message."""
        update = {
            "chat": message["chat"],
            "message_id": message["message_id"],
            "user": dict(user),
            "date": self._town.seconds(),
            "old_reaction": [{"type": "emoji", "emoji": one} for one in before],
            "new_reaction": [{"type": "emoji", "emoji": one} for one in signs],
        }
        for bot in self._town.in_chat(message["chat"]["id"]):
            self._town.tell(bot, "message_reaction", update)

    def change_member(self, chat: Chat, user: User, status: str, by: User | None = None) -> None:
        """Let somebody in, put them out, make them an administrator; a bot is told of itself."""
        before = self._town.members[chat["id"]].get(user["id"], "left")
        update = {
            "chat": dict(chat),
            "from": dict(by or user),
            "date": self._town.seconds(),
            "old_chat_member": member_of(user, before),
            "new_chat_member": member_of(user, status),
        }
        told = list(self._town.in_chat(chat["id"]))
        self._town.members[chat["id"]][user["id"]] = status
        told = list({one.id: one for one in (*told, *self._town.in_chat(chat["id"]))}.values())
        for bot in told:
            self._town.tell(bot, "my_chat_member" if bot.id == user["id"] else "chat_member", update)

    def migrate(self, chat: Chat, user: User, *, tells: bool = True) -> dict[str, Any]:
        """Make a supergroup of a group; nothing that `tells` of it may reach the bots."""
        new = self.group(chat["title"], kind="supergroup")
        self._town.members[new["id"]] = dict(self._town.members[chat["id"]])
        self._town.moved[chat["id"]] = new["id"]
        if tells:
            self.say(chat, user, migrate_to_chat_id=new["id"])
            self.say(new, user, migrate_from_chat_id=chat["id"])
        return new

    def _chat(self, chat: dict[str, Any], statuses: dict[int, str]) -> dict[str, Any]:
        known = self._town.chats.setdefault(chat["id"], chat)
        bots = {bot.id: "member" for bot in self._town.bots.values()}
        self._town.members.setdefault(chat["id"], {}).update({**bots, **statuses})
        return known

    def _message(self, chat: Chat, user: User, number: int) -> Message:
        message: Message = {"message_id": number, "date": self._town.seconds(), "chat": dict(chat)}
        if chat["type"] == "channel":
            return {**message, "sender_chat": dict(chat)}
        return {**message, "from": dict(user)}


def member_of(user: User, status: str) -> dict[str, Any]:
    """Make a chat's member as Telegram describes one."""
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
