"""Chat page of the emulator: what it shows and what a user does there."""

from collections.abc import Sequence

from adapters.telegram.emulator.people import Chat, People, User
from adapters.telegram.emulator.recorder import Recorder
from adapters.telegram.emulator.state import Message, PlatformState
from bot.testing import EmulatorMessage, EmulatorRoom, EmulatorUser

GROUP_HINT = "In the group a character always answers when you mention it or reply to it."
PRIVATE_HINT = "In a private chat every message is answered. Say hello."


class TelegramView:
    """A private chat with each bot, and a group with all bots and two users."""

    platform = "Telegram"
    max_length = 4096

    def __init__(self, state: PlatformState, people: People, recorder: Recorder) -> None:
        self._state, self._people, self._recorder = state, people, recorder
        self._chats: dict[str, tuple[Chat, str, list[User]]] = {}

    def rooms(self) -> Sequence[EmulatorRoom]:
        """Return the chats, private ones first, where every message is answered."""
        return [
            EmulatorRoom(
                place,
                name,
                tuple(EmulatorUser(str(user["id"]), user["first_name"]) for user in people),
                PRIVATE_HINT if chat["type"] == "private" else GROUP_HINT,
            )
            for place, (chat, name, people) in self._open_chats().items()
        ]

    def bots(self) -> Sequence[EmulatorUser]:
        """Return the bots with the names by which they are mentioned."""
        users = [bot.user for bot in self._state.bots.values()]
        return [EmulatorUser(f"@{user['username']}", user["first_name"]) for user in users]

    def messages(self, room_id: str) -> Sequence[EmulatorMessage]:
        """Return the visible messages of a chat."""
        chat_id = self._chats[room_id][0]["id"]
        removed_ids = {
            message.id for message in self._recorder.messages if message.is_gone and message.chat_id == chat_id
        }
        return [
            _build_page_message(message)
            for (chat, _), message in self._state.messages.items()
            if chat == chat_id and message["message_id"] not in removed_ids
        ]

    async def send_message(self, room_id: str, user_id: str, text: str, reply_to: str) -> str:
        """Send a message as a user."""
        chat, _, people = self._chats[room_id]
        replied_to = self._state.messages.get((chat["id"], int(reply_to))) if reply_to.isdecimal() else None
        self._people.say(chat, _find_user(people, user_id), text, reply_to=replied_to)
        return ""

    async def press_button(self, room_id: str, user_id: str, message_id: str, button_id: str) -> None:
        """Press a button of a message."""
        chat, _, people = self._chats[room_id]
        self._people.press(self._state.messages[chat["id"], int(message_id)], _find_user(people, user_id), button_id)

    def _open_chats(self) -> dict[str, tuple[Chat, str, list[User]]]:
        """Return the chats, created at the first call, when the bots are known."""
        if not self._chats:
            kim, robin = (self._people.add_user(name, username=name.lower()) for name in ("Kim", "Robin"))
            for index, bot in enumerate(self._state.bots.values()):
                user = self._people.add_user("Kim", username="kim") if index else kim
                chat = self._people.open_private_chat(user)
                self._state.members[chat["id"]] = {user["id"]: "member", bot.id: "member"}
                self._chats[str(chat["id"])] = (chat, f"{bot.user['first_name']} and Kim", [user])
            group = self._people.add_group("Harbour", kim, robin, owner=kim)
            self._chats[str(group["id"])] = (group, "Harbour, a group", [kim, robin])
        return self._chats


def _find_user(people: Sequence[User], person: str) -> User:
    return next(user for user in people if str(user["id"]) == person)


def _build_page_message(message: Message) -> EmulatorMessage:
    rows = message.get("reply_markup", {}).get("inline_keyboard", [])
    replied_name = message.get("reply_to_message", {}).get("from", {}).get("first_name")
    author = message.get("from", {})
    return EmulatorMessage(
        str(message["message_id"]),
        author.get("first_name", ""),
        message.get("text") or message.get("caption") or "(a file)",
        is_bot=bool(author.get("is_bot")),
        note=f"in answer to {replied_name}" if replied_name else "",
        buttons=tuple(
            (button["callback_data"], button["text"]) for row in rows for button in row if "callback_data" in button
        ),
    )
