"""The emulated channels on the chat page."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from mimetypes import guess_type

from adapters.discord.emulator.gateway import GatewayServer
from adapters.discord.emulator.interactions import EPHEMERAL_FLAG, InteractionServer
from adapters.discord.emulator.people import People
from adapters.discord.emulator.rest import RestServer
from adapters.discord.emulator.state import DM, THREAD, THREADS, Json, PlatformState
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

CHANNEL_HINT = "In a channel a character always answers if you mention it or reply to it."
DIRECT_HINT = "In a direct message every message is answered. Say hello."


DIRECT_GROUP = "Direct messages"
CHANNEL_KIND, THREAD_KIND = "channel", "thread"


class DiscordView(EmulatorActions):
    """The channels and direct messages of all emulated users.

    A text that starts with the name of a command runs it; the page shows the response to everybody.
    """

    platform = "Discord"
    max_length = 2000
    dialect = "discord"
    abilities = frozenset(Ability)
    room_kinds = ((CHANNEL_KIND, "Channel"), (THREAD_KIND, "Thread of this channel"))

    def __init__(
        self,
        state: PlatformState,
        people: People,
        interactions: InteractionServer,
        gateway: GatewayServer,
        rest: RestServer,
    ) -> None:
        self._state, self._people, self._interactions = state, people, interactions
        self._gateway, self._rest, self._recorder = gateway, rest, rest.recorder
        self._reactions: defaultdict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)  # by message, then by emoji

    def rooms(self) -> Sequence[EmulatorRoom]:
        """List the direct messages, then the channels, each with its threads."""
        channels = self._state.channels.values()
        return [self._to_place(channel) for channel in sorted(channels, key=self._place_order)]

    def bots(self) -> Sequence[EmulatorUser]:
        """List the characters with the text that mentions them."""
        names = [user["global_name"] for user in self._state.users.values() if user["bot"]]
        return [EmulatorUser(f"@{name}", name) for name in names]

    def messages(self, room_id: str) -> Sequence[EmulatorMessage]:
        """List the messages of a channel."""
        messages = {**self._state.messages[room_id], **self._interactions.visible_messages(room_id)}
        return [self._build_page_message(messages[message_id]) for message_id in sorted(messages, key=int)]

    def typing(self, room_id: str) -> Sequence[str]:
        """Return the names of the bots that type in a channel."""
        return self._rest.typing.names(room_id)

    def read_file(self, file_id: str) -> FileContent | None:
        """Return an attachment, by channel, message and its own id."""
        channel, _, rest = file_id.partition("/")
        message_id, _, attachment_id = rest.partition("/")
        message = self._state.messages[channel].get(message_id) if channel in self._state.messages else None
        file = next((item for item in message["attachments"] if item["id"] == attachment_id), None) if message else None
        data = self._rest.uploads.get(attachment_id)
        return None if file is None or data is None else FileContent(file["filename"], _type_of(file), data)

    async def send_message(self, room_id: str, user_id: str, text: str, reply_to: str) -> str:
        """Send a message once all bots are connected; a name after an @ becomes a mention."""
        if offline_names := self._offline_names():
            return f"{offline_names} is not connected yet: try again in a moment"
        if await self._try_command(room_id, user_id, text):
            return ""
        await self._people.say(room_id, user_id, self._with_mentions(text), reply_to=reply_to or None)
        return ""

    async def send_files(
        self, room_id: str, user_id: str, text: str, reply_to: str, files: Sequence[FileContent]
    ) -> None:
        """Send a message with attachments."""
        if offline_names := self._offline_names():
            raise ActionRefused(f"{offline_names} is not connected yet: try again in a moment")
        sent = tuple((file.name, file.data, file.content_type) for file in files)
        await self._people.say(room_id, user_id, self._with_mentions(text), reply_to=reply_to or None, files=sent)

    async def edit_message(self, room_id: str, message_id: str, text: str) -> None:
        """Edit a message."""
        await self._people.edit(room_id, message_id, self._with_mentions(text))

    async def delete_message(self, room_id: str, message_id: str) -> None:
        """Delete a message."""
        await self._people.delete(room_id, message_id)

    async def toggle_reaction(self, room_id: str, user_id: str, message_id: str, emoji: str) -> None:
        """Add a reaction, or remove it."""
        reactions = self._reactions[message_id]
        users = reactions.get(emoji, ())
        if user_id in users:
            reactions[emoji] = tuple(user for user in users if user != user_id)
            await self._people.unreact(room_id, message_id, user_id, emoji)
        else:
            reactions[emoji] = (*users, user_id)
            await self._people.react(room_id, message_id, user_id, emoji)

    async def add_person(self, name: str) -> None:
        """Add a person to every guild, with a direct channel with each bot."""
        person = self._state.add_user(name)
        for guild in self._state.guilds:
            await self._people.join(guild, person)
        for bot in self._state.tokens.values():
            self._state.open_direct_channel(bot, person)

    async def add_room(self, kind: str, name: str, near: str) -> str:
        """Add a channel, or a thread of the channel `near`."""
        channel = self._state.channels[near]
        guild = channel.get("guild_id") or next(iter(self._state.guilds))
        if kind == CHANNEL_KIND:
            return await self._people.open_channel(guild, name.lower().replace(" ", "-"))
        if channel["type"] == DM:
            raise ActionRefused("direct messages have no threads: open a channel first")
        parent = channel["parent_id"] if channel["type"] in THREADS else channel["id"]
        return await self._people.open_channel(guild, name, THREAD, parent)

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
        names = [item["name"] for item in command.get("options") or ()]
        words = arguments.split(None, max(len(names) - 1, 0))  # the last option takes the rest
        options = dict(zip(names, words, strict=False))
        bot = self._state.direct_bots.get(place) or next(iter(self._state.tokens.values()))
        await self._interactions.run_command(bot, person, place, name, **options)
        return True

    def _offline_names(self) -> str:
        connected_bots = {item.bot for item in self._gateway.sessions.values()}
        offline_bots = [item for item in self._state.tokens.values() if item not in connected_bots]
        return ", ".join(self._state.users[item]["global_name"] for item in offline_bots)

    def _place_order(self, channel: Json) -> tuple[bool, int, int]:
        parent = channel["parent_id"] if channel["type"] in THREADS else channel["id"]
        return channel["type"] != DM, int(parent), int(channel["id"])

    def _to_place(self, channel: Json) -> EmulatorRoom:
        newest = channel["last_message_id"] or ""
        if channel["type"] == DM:
            people = tuple(EmulatorUser(user["id"], user["global_name"]) for user in channel["recipients"])
            return EmulatorRoom(channel["id"], channel["name"], people, DIRECT_HINT, DIRECT_GROUP, newest)
        people = tuple(
            EmulatorUser(user["id"], user["global_name"]) for user in self._state.users.values() if not user["bot"]
        )
        name, guild = f"#{channel['name']}", self._state.guilds[channel["guild_id"]]["name"]
        if channel["type"] in THREADS:
            name = f"#{self._state.channels[channel['parent_id']]['name']}, thread: {channel['name']}"
        return EmulatorRoom(channel["id"], name, people, CHANNEL_HINT, guild, newest)

    def _build_page_message(self, message: Json) -> EmulatorMessage:
        author, place = message["author"], f"{message['channel_id']}/{message['id']}"
        referenced = message.get("referenced_message") or {}
        notes = [f"in answer to {referenced['author']['global_name']}"] if referenced else []
        notes += ["shown only to who asked"] if message["flags"] & EPHEMERAL_FLAG else []
        return EmulatorMessage(
            message["id"],
            author["global_name"],
            self._with_names(message["content"]),
            is_bot=author["bot"],
            note=", ".join(notes),
            buttons=tuple(_buttons(message)),
            user_id=author["id"],
            at=message["timestamp"],
            reply_to=referenced.get("id", ""),
            is_edited=message["edited_timestamp"] is not None,
            files=tuple(
                EmulatorFile(f"{place}/{file['id']}", file["filename"], _type_of(file), file["size"])
                for file in message["attachments"]
            ),
            reactions=tuple((emoji, users) for emoji, users in self._reactions[message["id"]].items() if users),
        )

    def _with_mentions(self, text: str) -> str:
        for user in sorted(self._state.users.values(), key=lambda item: -len(item["global_name"])):
            text = text.replace(f"@{user['global_name']}", f"<@{user['id']}>")
        return text

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


def _type_of(attachment: Json) -> str:
    """Return the type of an attachment; bots upload files without one."""
    stated = str(attachment["content_type"])
    return (guess_type(attachment["filename"])[0] or stated) if stated == "application/octet-stream" else stated
