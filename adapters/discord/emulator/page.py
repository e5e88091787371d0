"""What the page shows of the emulated channels, and what a person does there."""

from collections.abc import Iterator, Sequence

from adapters.discord.emulator.gateway import GatewayServer
from adapters.discord.emulator.interactions import Desk
from adapters.discord.emulator.people import People
from adapters.discord.emulator.recorder import Ledger
from adapters.discord.emulator.state import DM, Json, Town
from bot.testing import Person, Place, Said

IN_CHANNEL = "In a channel a character answers for certain when you mention it or reply to it."
ALONE = "In a direct message every word is answered. Say hello."


class DiscordScene:
    """Channels and direct messages; one is any person of the town.

    What begins with a command's name is that command, and what comes of it can be seen by everybody here.
    """

    platform = "Discord"
    longest = 2000

    def __init__(
        self, town: Town, people: People, desk: Desk, gateway: GatewayServer, ledger: Ledger
    ) -> None:
        self._town, self._people, self._desk, self._gateway = town, people, desk, gateway
        self._ledger = ledger

    def places(self) -> Sequence[Place]:
        """List direct messages first: there every message is answered."""
        channels = sorted(self._town.channels.values(), key=lambda one: bool(one["type"] != DM))
        return [self._place(one) for one in channels]

    def bots(self) -> Sequence[Person]:
        """List the characters, as one mentions them."""
        names = [one["global_name"] for one in self._town.users.values() if one["bot"]]
        return [Person(f"@{name}", name) for name in names]

    def said(self, place: str) -> Sequence[Said]:
        """List what was said in a channel."""
        seen = {**self._town.messages[place], **self._desk.seen(place)}
        return [self._said(seen[one]) for one in sorted(seen, key=int)]

    async def say(self, place: str, person: str, text: str, answers: str) -> str:
        """Say something, once every bot can hear it; the name of somebody after an @ is a mention."""
        there = {one.bot for one in self._gateway.sessions.values()}
        away = [
            self._town.users[one]["global_name"] for one in self._town.tokens.values() if one not in there
        ]
        if away:
            return f"{', '.join(away)} is not connected yet: try again in a moment"
        if await self._commanded(place, person, text):
            return ""
        for user in sorted(self._town.users.values(), key=lambda one: -len(one["global_name"])):
            text = text.replace(f"@{user['global_name']}", f"<@{user['id']}>")
        await self._people.say(place, person, text, reply_to=answers or None)
        return ""

    async def press(self, place: str, person: str, message: str, button: str) -> None:
        """Press a button, or choose from a list."""
        found = self._desk.seen(place).get(message) or self._town.messages[place][message]
        custom_id, _, value = button.partition("\n")
        await self._desk.press(found["author"]["id"], person, found, custom_id, *([value] if value else []))

    async def _commanded(self, place: str, person: str, text: str) -> bool:
        """Give a text as a command, to the first of several bots; tells whether it was one."""
        name, _, rest = text.removeprefix("/").partition(" ")
        found = next((one for one in self._ledger.commands if one["name"] == name), None)
        if found is None or not text.startswith("/"):
            return False
        first = next((one["name"] for one in found.get("options") or ()), "")
        options = {first: rest.strip()} if first and rest.strip() else {}
        bot = self._town.alone.get(place) or next(iter(self._town.tokens.values()))
        await self._desk.command(bot, person, place, name, **options)
        return True

    def _place(self, channel: Json) -> Place:
        if channel["type"] == DM:
            people = tuple(Person(one["id"], one["global_name"]) for one in channel["recipients"])
            return Place(channel["id"], channel["name"], people, ALONE)
        people = tuple(
            Person(one["id"], one["global_name"]) for one in self._town.users.values() if not one["bot"]
        )
        return Place(channel["id"], f"#{channel['name']}", people, IN_CHANNEL)

    def _said(self, message: Json) -> Said:
        author = message["author"]
        above = (message.get("referenced_message") or {}).get("author")
        notes = [f"in answer to {above['global_name']}"] if above else []
        notes += [f"file: {one['filename']}" for one in message["attachments"]]
        return Said(
            message["id"],
            author["global_name"],
            self._read(message["content"]),
            is_bot=author["bot"],
            note=", ".join(notes),
            buttons=tuple(_buttons(message)),
        )

    def _read(self, text: str) -> str:
        for user in self._town.users.values():
            text = text.replace(f"<@{user['id']}>", f"@{user['global_name']}")
        return text


def _buttons(message: Json) -> Iterator[tuple[str, str]]:
    for row in message["components"]:
        for one in row["components"]:
            if "options" in one:
                yield from ((f"{one['custom_id']}\n{it['value']}", it["label"]) for it in one["options"])
            elif "custom_id" in one:
                yield one["custom_id"], one["label"]
