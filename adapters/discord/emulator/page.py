"""The emulated channels on the chat page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from adapters.discord.emulator.gateway import GatewayServer
from adapters.discord.emulator.interactions import InteractionServer
from adapters.discord.emulator.people import People
from adapters.discord.emulator.recorder import Recorder
from adapters.discord.emulator.state import DM, Json, PlatformState
from bot.testing import EmulatorMessage, EmulatorRoom, EmulatorUser

CHANNEL_HINT = "In a channel a character always answers if you mention it or reply to it."
DIRECT_HINT = "In a direct message every message is answered. Say hello."


@dataclass(slots=True)
class DiscordView:
    """The channels and direct messages of all emulated users.

    A text that starts with the name of a command runs it; the page shows the response to everybody.
    """

    _state: PlatformState
    _people: People
    _interactions: InteractionServer
    _gateway: GatewayServer
    _recorder: Recorder
    platform: str = "Discord"
    max_length: int = 2000

    def rooms(self) -> Sequence[EmulatorRoom]:
        """List the channels, direct messages first."""
        channels = sorted(self._state.channels.values(), key=lambda channel: bool(channel["type"] != DM))
        return [self._to_place(channel) for channel in channels]

    def bots(self) -> Sequence[EmulatorUser]:
        """List the characters with the text that mentions them."""
        names = [user["global_name"] for user in self._state.users.values() if user["bot"]]
        return [EmulatorUser(f"@{name}", name) for name in names]

    def messages(self, room_id: str) -> Sequence[EmulatorMessage]:
        """List the messages of a channel."""
        messages = {**self._state.messages[room_id], **self._interactions.visible_messages(room_id)}
        return [self._build_page_message(messages[message_id]) for message_id in sorted(messages, key=int)]

    async def send_message(self, room_id: str, user_id: str, text: str, reply_to: str) -> str:
        """Send a message once all bots are connected; a name after an @ becomes a mention."""
        connected_bots = {item.bot for item in self._gateway.sessions.values()}
        offline_names = [
            self._state.users[item]["global_name"] for item in self._state.tokens.values() if item not in connected_bots
        ]
        if offline_names:
            return f"{', '.join(offline_names)} is not connected yet: try again in a moment"
        if await self._try_command(room_id, user_id, text):
            return ""
        for user in sorted(self._state.users.values(), key=lambda item: -len(item["global_name"])):
            text = text.replace(f"@{user['global_name']}", f"<@{user['id']}>")
        await self._people.say(room_id, user_id, text, reply_to=reply_to or None)
        return ""

    async def press_button(self, room_id: str, user_id: str, message_id: str, button_id: str) -> None:
        """Press a button, or choose from a list."""
        shown_message = (
            self._interactions.visible_messages(room_id).get(message_id) or self._state.messages[room_id][message_id]
        )
        custom_id, _, value = button_id.partition("\n")
        await self._interactions.press_component(
            shown_message["author"]["id"], user_id, shown_message, custom_id, *([value] if value else [])
        )

    async def _try_command(self, place: str, person: str, text: str) -> bool:
        """Run a text as a command of the first bot; return whether it was one."""
        name, _, arguments = text.removeprefix("/").partition(" ")
        command = next((item for item in self._recorder.commands if item["name"] == name), None)
        if command is None or not text.startswith("/"):
            return False
        first_option = next((item["name"] for item in command.get("options") or ()), "")
        options = {first_option: arguments.strip()} if first_option and arguments.strip() else {}
        bot = self._state.direct_bots.get(place) or next(iter(self._state.tokens.values()))
        await self._interactions.run_command(bot, person, place, name, **options)
        return True

    def _to_place(self, channel: Json) -> EmulatorRoom:
        if channel["type"] == DM:
            people = tuple(EmulatorUser(user["id"], user["global_name"]) for user in channel["recipients"])
            return EmulatorRoom(channel["id"], channel["name"], people, DIRECT_HINT)
        people = tuple(
            EmulatorUser(user["id"], user["global_name"]) for user in self._state.users.values() if not user["bot"]
        )
        return EmulatorRoom(channel["id"], f"#{channel['name']}", people, CHANNEL_HINT)

    def _build_page_message(self, message: Json) -> EmulatorMessage:
        author = message["author"]
        referenced_author = (message.get("referenced_message") or {}).get("author")
        notes = [f"in answer to {referenced_author['global_name']}"] if referenced_author else []
        notes += [f"file: {attachment['filename']}" for attachment in message["attachments"]]
        return EmulatorMessage(
            message["id"],
            author["global_name"],
            self._with_names(message["content"]),
            is_bot=author["bot"],
            note=", ".join(notes),
            buttons=tuple(_buttons(message)),
        )

    def _with_names(self, text: str) -> str:
        for user in self._state.users.values():
            text = text.replace(f"<@{user['id']}>", f"@{user['global_name']}")
        return text


def _buttons(message: Json) -> Iterator[tuple[str, str]]:
    for row in message["components"]:
        for component in row["components"]:
            if "options" in component:
                yield from (
                    (f"{component['custom_id']}\n{option['value']}", option["label"]) for option in component["options"]
                )
            elif "custom_id" in component:
                yield component["custom_id"], component["label"]
