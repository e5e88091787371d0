"""What the page shows of the emulated chats, and what a person does there."""

from collections.abc import Sequence

from adapters.telegram.emulator.people import Chat, People, User
from adapters.telegram.emulator.recorder import Ledger
from adapters.telegram.emulator.state import Message, Town
from bot.testing import Person, Place, Said

IN_GROUP = "In the group a character answers for certain when you mention it or reply to it."
ALONE = "In a private chat every word is answered. Say hello."


class TelegramScene:
    """A private chat with each bot, and a group with all of them and two people."""

    platform = "Telegram"
    longest = 4096

    def __init__(self, town: Town, people: People, ledger: Ledger) -> None:
        self._town, self._people, self._ledger = town, people, ledger
        self._chats: dict[str, tuple[Chat, str, list[User]]] = {}

    def places(self) -> Sequence[Place]:
        """List private chats first: there every message is answered."""
        return [
            Place(
                place,
                name,
                tuple(Person(str(one["id"]), one["first_name"]) for one in people),
                ALONE if chat["type"] == "private" else IN_GROUP,
            )
            for place, (chat, name, people) in self._opened().items()
        ]

    def bots(self) -> Sequence[Person]:
        """List the bots, as one mentions them."""
        users = [bot.user for bot in self._town.bots.values()]
        return [Person(f"@{one['username']}", one["first_name"]) for one in users]

    def said(self, place: str) -> Sequence[Said]:
        """List what is to be seen in a chat."""
        number = self._chats[place][0]["id"]
        gone = {one.id for one in self._ledger.shown if one.is_gone and one.chat == number}
        return [
            _said(one)
            for (chat, _), one in self._town.messages.items()
            if chat == number and one["message_id"] not in gone
        ]

    async def say(self, place: str, person: str, text: str, answers: str) -> str:
        """Write something."""
        chat, _, people = self._chats[place]
        above = self._town.messages.get((chat["id"], int(answers))) if answers.isdecimal() else None
        self._people.say(chat, _one(people, person), text, reply_to=above)
        return ""

    async def press(self, place: str, person: str, message: str, button: str) -> None:
        """Press a button below a message."""
        chat, _, people = self._chats[place]
        self._people.press(self._town.messages[chat["id"], int(message)], _one(people, person), button)

    def _opened(self) -> dict[str, tuple[Chat, str, list[User]]]:
        """Open the chats when somebody first looks: then the bots are known."""
        if not self._chats:
            kim, robin = (self._people.person(name, username=name.lower()) for name in ("Kim", "Robin"))
            for place, bot in enumerate(self._town.bots.values()):
                user = self._people.person("Kim", username="kim") if place else kim
                chat = self._people.private(user)
                self._town.members[chat["id"]] = {user["id"]: "member", bot.id: "member"}
                self._chats[str(chat["id"])] = (chat, f"{bot.user['first_name']} and Kim", [user])
            group = self._people.group("Harbour", kim, robin, owner=kim)
            self._chats[str(group["id"])] = (group, "Harbour, a group", [kim, robin])
        return self._chats


def _one(people: Sequence[User], person: str) -> User:
    return next(one for one in people if str(one["id"]) == person)


def _said(message: Message) -> Said:
    rows = message.get("reply_markup", {}).get("inline_keyboard", [])
    above = message.get("reply_to_message", {}).get("from", {}).get("first_name")
    author = message.get("from", {})
    return Said(
        str(message["message_id"]),
        author.get("first_name", ""),
        message.get("text") or message.get("caption") or "(a file)",
        is_bot=bool(author.get("is_bot")),
        note=f"in answer to {above}" if above else "",
        buttons=tuple(
            (one["callback_data"], one["text"]) for row in rows for one in row if "callback_data" in one
        ),
    )
