"""What emulated users do, by a test or on the page, and the events this sends to bots."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from adapters.discord.emulator.gateway import GatewayServer
from adapters.discord.emulator.rest import InteractionServer, RestServer
from adapters.discord.emulator.state import DM, THREAD, THREADS, Json, PlatformState
from bot import testing

CHANNEL_HINT = "In a channel a character always answers if you mention it or reply to it."
DIRECT_HINT = "In a direct message every message is answered. Say hello."
DIRECT_GROUP = "Direct messages"
CHANNEL_KIND, THREAD_KIND = "channel", "thread"
EPHEMERAL_FLAG = 64
CUSTOM_EMOJI = re.compile(r"<(a?):(\w+):(\d+)>")


class People:
    """Actions of emulated users; each sends its event to every bot at once."""

    def __init__(self, state: PlatformState, gateway: GatewayServer, rest: RestServer) -> None:
        self.state, self.gateway, self.rest = state, gateway, rest

    async def say(
        self,
        channel: str,
        author: str,
        text: str = "",
        *,
        reply_to: str | None = None,
        files: tuple[tuple[str, bytes, str], ...] = (),
        timestamp: datetime | None = None,
        is_announced: bool = True,
        **fields: Any,
    ) -> str:
        """Send a message, with files as (name, data, type); with `is_announced=False` no event is sent."""
        if files:
            fields["attachments"] = [self.rest.store_file(channel, *file) for file in files]
        message = self.state.add_message(channel, author, text, reply_to=reply_to, timestamp=timestamp, **fields)
        if is_announced:
            await self.gateway.dispatch_event("MESSAGE_CREATE", message)
        return str(message["id"])

    async def type(self, channel: str, user: str) -> None:
        """Begin to type in a channel."""
        payload = {**self._location(channel), "user_id": user, "timestamp": int(self.state.clock().timestamp())}
        await self.gateway.dispatch_event("TYPING_START", payload)

    async def edit(self, channel: str, message_id: str, text: str) -> None:
        """Edit a message."""
        message = self.state.messages[channel][message_id]
        message.update(content=text, edited_timestamp=self.state.clock().isoformat())
        message["mentions"] = self.state.mentioned_in(text)
        await self.gateway.dispatch_event("MESSAGE_UPDATE", message)

    async def delete(self, channel: str, *message_ids: str) -> None:
        """Delete messages; several at once as a moderator does."""
        for message_id in message_ids:
            self.state.messages[channel].pop(message_id, None)
        location = self._location(channel)
        if len(message_ids) == 1:
            await self.gateway.dispatch_event("MESSAGE_DELETE", {**location, "id": message_ids[0]})
        else:
            await self.gateway.dispatch_event("MESSAGE_DELETE_BULK", {**location, "ids": list(message_ids)})

    async def unreact(self, channel: str, message_id: str, user: str = "", emoji: str = "") -> None:
        """Remove a reaction: that of one user, those with one emoji, or all."""
        reactions = self.state.reactions[message_id]
        for shown in [emoji] if emoji else list(reactions):
            reactions[shown] = tuple(item for item in reactions.get(shown, ()) if user and item != user)
        payload: Json = {**self._location(channel), "message_id": message_id}
        payload |= {"emoji": _emoji_object(emoji, is_removal=True)} if emoji else {}
        payload |= {"user_id": user, "burst": False, "type": 0} if user else {}
        kind = "" if user else "_EMOJI" if emoji else "_ALL"
        await self.gateway.dispatch_event(f"MESSAGE_REACTION_REMOVE{kind}", payload)

    async def react(self, channel: str, message_id: str, user: str, emoji: str) -> None:
        """Add a reaction to a message."""
        reactions = self.state.reactions[message_id]
        reactions[emoji] = tuple(dict.fromkeys((*reactions.get(emoji, ()), user)))
        payload: Json = {
            **self._location(channel),
            "user_id": user,
            "message_id": message_id,
            "emoji": _emoji_object(emoji),
            "burst": False,
            "type": 0,
        }
        member = self.state.find_member(payload.get("guild_id", ""), user)
        if member is not None:
            payload["member"] = member
        await self.gateway.dispatch_event("MESSAGE_REACTION_ADD", payload)

    async def join(self, guild: str, user: str) -> None:
        """Join a guild."""
        member = self.state.add_member(guild, user)
        await self.gateway.dispatch_event("GUILD_MEMBER_ADD", {**member, "guild_id": guild})

    async def leave(self, guild: str, user: str) -> None:
        """Leave a guild."""
        self.state.remove_member(guild, user)
        payload = {"guild_id": guild, "user": self.state.users[user]}
        await self.gateway.dispatch_event("GUILD_MEMBER_REMOVE", payload)

    async def open_channel(
        self, guild: str, name: str, kind: int = 0, parent: str | None = None, *, message_id: str = ""
    ) -> str:
        """Create a channel, or a thread in one, perhaps of a message; return its id."""
        channel = self.state.add_channel(guild, name, kind, parent, message_id=message_id)
        event = "THREAD_CREATE" if kind in THREADS else "CHANNEL_CREATE"
        await self.gateway.dispatch_event(event, {**self.state.channels[channel], "newly_created": True})
        return channel

    async def close_channel(self, channel: str) -> None:
        """Delete a channel or a thread."""
        removed = self.state.channels.pop(channel)
        event = "THREAD_DELETE" if removed["type"] in THREADS else "CHANNEL_DELETE"
        await self.gateway.dispatch_event(event, removed)

    async def invite(self, guild: str, bot: str) -> None:
        """Add a bot to a guild."""
        self.state.add_member(guild, bot)
        payload = self.state.to_guild_create(guild, bot)
        del payload["unavailable"]
        await self.gateway.dispatch_event("GUILD_CREATE", payload, {bot})

    async def expel(self, guild: str, bot: str) -> None:
        """Remove a bot from a guild."""
        self.state.remove_member(guild, bot)
        await self.gateway.dispatch_event("GUILD_DELETE", {"id": guild}, {bot})

    def _location(self, channel: str) -> Json:
        guild = self.state.channels[channel].get("guild_id")
        return {"channel_id": channel, **({"guild_id": guild} if guild else {})}


def _emoji_object(emoji: str, *, is_removal: bool = False) -> Json:
    """Return an emoji as Discord sends it: that of a removal does not tell whether it is animated."""
    custom = CUSTOM_EMOJI.fullmatch(emoji)
    if custom is None:
        return {"id": None, "name": emoji}
    return {"id": custom[3], "name": custom[2], **({"animated": True} if custom[1] and not is_removal else {})}


class DiscordView(testing.EmulatorActions):
    """The channels and direct messages of all emulated users on the page.

    A text that starts with the name of a command runs it; the page shows the response to everybody.
    """

    platform = "Discord"
    max_length = 2000
    dialect = "discord"
    abilities = frozenset(testing.Ability)
    room_kinds = ((CHANNEL_KIND, "Channel"), (THREAD_KIND, "Thread of this channel"))

    def __init__(self, people: People, interactions: InteractionServer) -> None:
        self._people, self._interactions = people, interactions
        self._state, self._gateway, self._rest = people.state, people.gateway, people.rest

    def rooms(self) -> Sequence[testing.EmulatorRoom]:
        """List the direct messages, then the channels, each with its threads."""
        return list(map(self._to_room, sorted(self._state.channels.values(), key=_room_order)))

    def bots(self) -> Sequence[testing.EmulatorUser]:
        names = [user["global_name"] for user in self._state.users.values() if user["bot"]]
        return [testing.EmulatorUser(f"@{name}", name) for name in names]

    def messages(self, room_id: str) -> Sequence[testing.EmulatorMessage]:
        messages = {**self._state.messages[room_id], **self._interactions.visible_messages(room_id)}
        return [self._to_page_message(messages[message_id]) for message_id in sorted(messages, key=int)]

    def typing(self, room_id: str) -> Sequence[str]:
        return self._rest.typing.names(room_id)

    def read_file(self, file_id: str) -> testing.FileContent | None:
        """Return an attachment, by channel, message and its own id."""
        channel, _, rest = file_id.partition("/")
        message_id, _, attachment_id = rest.partition("/")
        message = self._state.messages[channel].get(message_id) if channel in self._state.messages else None
        file = next((item for item in message["attachments"] if item["id"] == attachment_id), None) if message else None
        data = self._rest.uploads.get(attachment_id)
        return (
            None if file is None or data is None else testing.FileContent(file["filename"], file["content_type"], data)
        )

    async def send_files(
        self, room_id: str, user_id: str, text: str, reply_to: str, files: Sequence[testing.FileContent]
    ) -> None:
        """Send a message, or run a command, once all bots are connected; a name after an @ becomes a mention."""
        connected = {session.bot for session in self._gateway.sessions.values()}
        offline = [self._state.users[bot]["global_name"] for bot in self._state.tokens.values() if bot not in connected]
        if offline:
            raise testing.ActionRefused(f"{', '.join(offline)} is not connected yet: try again in a moment")
        if not files and await self._try_command(room_id, user_id, text):
            return
        sent = tuple((file.name, file.data, file.content_type) for file in files)
        await self._people.say(room_id, user_id, self._with_mentions(text), reply_to=reply_to or None, files=sent)

    async def edit_message(self, room_id: str, message_id: str, text: str) -> None:
        await self._people.edit(room_id, message_id, self._with_mentions(text))

    async def delete_message(self, room_id: str, message_id: str) -> None:
        await self._people.delete(room_id, message_id)

    async def toggle_reaction(self, room_id: str, user_id: str, message_id: str, emoji: str) -> None:
        is_set = user_id in self._state.reactions[message_id].get(emoji, ())
        change = self._people.unreact if is_set else self._people.react
        await change(room_id, message_id, user_id, emoji)

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
            raise testing.ActionRefused("direct messages have no threads: open a channel first")
        return await self._people.open_channel(guild, name, THREAD, _channel_of(channel))

    async def press_button(self, room_id: str, user_id: str, message_id: str, button_id: str) -> None:
        """Press a button, or choose from a list."""
        messages = {**self._state.messages[room_id], **self._interactions.visible_messages(room_id)}
        message = messages[message_id]
        custom_id, _, value = button_id.partition("\n")
        values = [value] if value else []
        bot = message.get("application_id") or message["author"]["id"]
        await self._interactions.press_component(bot, user_id, message, custom_id, *values)

    async def _try_command(self, room_id: str, user_id: str, text: str) -> bool:
        """Run a text as a command of the first bot; return whether it was one."""
        name, _, arguments = text.removeprefix("/").partition(" ")
        command = next((item for item in self._rest.recorder.commands if item["name"] == name), None)
        if command is None or not text.startswith("/"):
            return False
        names = [item["name"] for item in command.get("options") or ()]
        words = arguments.split(None, max(len(names) - 1, 0))  # the last option takes the rest
        options = dict(zip(names, words, strict=False))
        bot = self._state.direct_bots.get(room_id) or next(iter(self._state.tokens.values()))
        await self._interactions.run_command(bot, user_id, room_id, name, **options)
        return True

    def _to_room(self, channel: Json) -> testing.EmulatorRoom:
        newest, is_direct = channel["last_message_id"] or "", channel["type"] == DM
        users = channel["recipients"] if is_direct else [user for user in self._state.users.values() if not user["bot"]]
        people = tuple(testing.EmulatorUser(user["id"], user["global_name"]) for user in users)
        if is_direct:
            return testing.EmulatorRoom(channel["id"], channel["name"], people, DIRECT_HINT, DIRECT_GROUP, newest)
        name = f"#{self._state.channels[_channel_of(channel)]['name']}"
        name += f", thread: {channel['name']}" if channel["type"] in THREADS else ""
        guild = self._state.guilds[channel["guild_id"]]["name"]
        return testing.EmulatorRoom(channel["id"], name, people, CHANNEL_HINT, guild, newest)

    def _to_page_message(self, message: Json) -> testing.EmulatorMessage:
        author, prefix = message["author"], f"{message['channel_id']}/{message['id']}"
        referenced = message.get("referenced_message") or {}
        notes = [f"in answer to {_name_of(referenced['author'])}"] if referenced else []
        notes += ["shown only to who asked"] if message["flags"] & EPHEMERAL_FLAG else []
        text = message["content"]
        for user in self._state.users.values():
            text = text.replace(f"<@{user['id']}>", f"@{user['global_name']}")
        return testing.EmulatorMessage(
            message["id"],
            _name_of(author),
            text,
            is_bot=author["bot"],
            note=", ".join(notes),
            buttons=tuple(_buttons(message)),
            user_id=author["id"],
            at=message["timestamp"],
            reply_to=referenced.get("id", ""),
            is_edited=message["edited_timestamp"] is not None,
            files=tuple(
                testing.EmulatorFile(f"{prefix}/{file['id']}", file["filename"], file["content_type"], file["size"])
                for file in message["attachments"]
            ),
            reactions=tuple((emoji, users) for emoji, users in self._state.reactions[message["id"]].items() if users),
        )

    def _with_mentions(self, text: str) -> str:
        for user in sorted(self._state.users.values(), key=lambda item: -len(item["global_name"])):
            text = text.replace(f"@{user['global_name']}", f"<@{user['id']}>")
        return text


def _name_of(user: Json) -> str:
    return str(user["global_name"] or user["username"])


def _channel_of(channel: Json) -> str:
    """Return the id of a channel, or of the channel of a thread."""
    return str(channel["parent_id"] if channel["type"] in THREADS else channel["id"])


def _room_order(channel: Json) -> tuple[bool, int, int]:
    return channel["type"] != DM, int(_channel_of(channel)), int(channel["id"])


def _buttons(message: Json) -> Iterator[tuple[str, str]]:
    for component in (item for row in message["components"] for item in row["components"]):
        for option in component.get("options", ()):
            yield f"{component['custom_id']}\n{option['value']}", option["label"]
        if "options" not in component and "custom_id" in component:
            yield component["custom_id"], component["label"]
