"""`Cast`: which of the characters that share an account of a platform speak in a room; the commands /talk and /cast."""

from asyncio import Lock
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from bot.concurrency.clock import Clock, system_clock
from bot.concurrency.tasks import BoundedDict
from bot.domain.character import CommandSpec
from bot.domain.content import MentionContext
from bot.domain.environment import Entity, Role, Room, World
from bot.domain.ids import derived_id
from bot.domain.inbound import CommandResponse
from bot.errors import ConfigError, SettingError
from bot.inbound.agent_handle import AgentHandle
from bot.operate.rooms import CastBody, CastMemberBody
from bot.pipeline.should_respond import addresses_name, contains_name
from bot.plugin_system.components import Command, CommandContext, command
from bot.settings import room_setting
from bot.user_texts import english_text, user_text

CAST = "CAST"  # the setting of a room in the world of the first character: agent ids, separated by commas
MAX_MEMBERS, MAX_WORLDS = 15, 500
CACHE_TIME = timedelta(seconds=10)  # for which a change by another process may be unknown
# What an admin or a person decides by one of these commands holds for all characters of the account.
SHARED_COMMANDS = frozenset(
    [
        "stop",
        "mute",
        "unmute",
        "take-over",
        "give-back",
        "responsiveness",
        "room",
        "minors",
        "filter-words",
        "forget-me",
        "ignore-me",
    ]
)
OF_ANOTHER = "cast (another of its characters wrote it)"  # the rule of what the characters of an account write
Locate = Callable[[AgentHandle, World, Room], Awaitable[tuple[World, Room]]]


class Cast:
    """The characters of one account, and which of them speak in which room; where that is not set, the first.

    `locate` returns a world and a room as another character of the account knows them. Raises
    ConfigError where two characters have the same name.
    """

    def __init__(
        self, platform: str, handles: Sequence[AgentHandle], locate: Locate, clock: Clock = system_clock
    ) -> None:
        self.platform, self.handles, self.first = platform, tuple(handles), handles[0]
        self._locate, self._clock = locate, clock
        self._changing = Lock()
        self._settings = BoundedDict[UUID, tuple[datetime, Mapping[str, str]]](MAX_WORLDS)  # by world of the first
        names = [handle.character.name.casefold() for handle in handles]
        if len(set(names)) < len(names):
            raise ConfigError(f"two characters of one {platform} account have the same name: rename one of them")
        self.first.add_commands(platform, self.commands())
        for handle in handles:
            handle.casts[platform] = self

    def commands(self) -> tuple[Command[Any], ...]:
        """Return the commands of the account."""
        return (
            command("talk", english_text("commands.talk.description"))(self.talk),
            command("cast", english_text("commands.cast.description"), role=Role.ADMIN, open_in_direct=True)(self.cast),
        )

    @property
    def specs(self) -> tuple[CommandSpec, ...]:
        """The descriptions of the commands of the account."""
        return tuple(entry.spec for entry in self.commands())

    def find(self, name: str) -> AgentHandle | None:
        """Return the character with this name, in any capitalisation; None where there is none."""
        key = name.strip().casefold()
        return next((handle for handle in self.handles if handle.character.name.casefold() == key), None)

    def entity_of(self, face: AgentHandle, reader: UUID) -> Entity:
        """Return a character of the account as an author of messages, as the agent `reader` knows it."""
        own_id, name = str(face.agent_id), face.character.name
        entity_id = reader if face.agent_id == reader else derived_id(self.platform, "face", own_id)
        return Entity(entity_id, self.platform, own_id, (name,), is_bot=True)

    async def is_alone(self, handle: AgentHandle, room: Room) -> bool:
        """Return whether a character, and no other, speaks in a room of the first. Raises StoreUnavailable."""
        return await self.members(room) == (handle,)

    async def members(self, room: Room) -> tuple[AgentHandle, ...]:
        """Return who speaks in a room of the first character; a thread without a cast has that of its channel.

        Raises StoreUnavailable.
        """
        expires_at, settings = self._settings.get(room.world_id, (self._clock(), {}))
        if expires_at <= self._clock():
            world = await self.first.conversations.world(room.world_id)
            settings = world.settings if world is not None else {}
            self._settings[room.world_id] = (self._clock() + CACHE_TIME, settings)
        return self._read(settings, room) or (self.first,)

    def address(
        self,
        members: Sequence[AgentHandle],
        me: AgentHandle,
        text: str,
        mention: MentionContext,
        *,
        replied: UUID | None = None,
        is_direct: bool = False,
    ) -> MentionContext:
        """Return how a message addresses one of the members, where `mention` says how it addresses their account.

        Those who are named answer, else the one whose message is replied to, `replied`. Where only the account is
        mentioned, and in a private chat, the first of the members answers.
        """
        named = [handle for handle in members if addresses_name(text, handle.character.name)]
        named = named or [handle for handle in members if contains_name(text, handle.character.name)]
        called = named or [handle for handle in members if handle.agent_id == replied]
        if not called and (mention.is_mention or is_direct):
            called = [members[0]]
        is_named = me in named and addresses_name(text, me.character.name)
        mention = replace(
            mention, is_mention=is_named or (mention.is_mention and me in called), is_reply=replied == me.agent_id
        )
        if not called or me in called or mention.denied_by:
            return mention
        names = ", ".join(handle.character.name for handle in called)
        return replace(mention, denied_by=f"cast (it is for {names})")

    async def talk(
        self,
        context: CommandContext,
        name: Annotated[str, "Whom you talk to"],
        text: Annotated[str, "What you say"] = "",
    ) -> CommandResponse:
        """Ask one of the characters something; in a private chat, that one answers from then on."""
        invocation = context.invocation
        called, text = self._split_name(name, text)
        if called is None:
            return CommandResponse(user_text("commands.cast.unknown", name=name, names=self._join(self.handles)))
        is_direct = invocation.room.type.is_direct
        if is_direct:
            await self._save(invocation.world, invocation.room, [called], source="/talk", by_id=invocation.author.id)
        elif called not in (members := await self.members(invocation.room)):
            refusal = user_text("commands.talk.absent", name=called.character.name, names=self._join(members))
            return CommandResponse(refusal)
        if is_direct and not text:
            return CommandResponse(user_text("commands.talk.chosen", name=called.character.name))
        world, room = await self._locate(called, invocation.world, invocation.room)
        question = {"question": text or f"{called.character.name}?"}
        return await called.run_command(
            replace(invocation, name="ask", world=world, room=room, arguments=question, text="")
        )

    async def cast(
        self,
        context: CommandContext,
        action: Annotated[Literal["list", "add", "remove"], "What to do"] = "list",
        name: Annotated[str, "Which character"] = "",
    ) -> str:
        """List who speaks in the room, add a character or remove one."""
        room = context.invocation.room
        if action == "list":
            members = await self.members(room)
            others = self._join([handle for handle in self.handles if handle not in members])
            return user_text("commands.cast.list", names=self._join(members), others=others or "-")
        handle, _ = self._split_name(name, "")
        if handle is None:
            return user_text("commands.cast.unknown", name=name, names=self._join(self.handles))
        invocation, author_id = context.invocation, context.invocation.author.id
        try:
            members = await self._change(
                invocation.world, room, handle, is_member=action == "add", source="/cast", by_id=author_id
            )
        except SettingError as error:
            return str(error)
        return user_text("commands.cast.done", names=self._join(members))

    async def describe(self, handle: AgentHandle, room: Room) -> CastBody:
        """Return who speaks in a room of any of the characters. Raises StoreUnavailable."""
        _, room_of_first = await self._find_place(handle, room)
        return self._build_body(room, await self.members(room_of_first))

    async def change(
        self, handle: AgentHandle, room: Room, agent_id: UUID, *, is_member: bool, source: str
    ) -> CastBody:
        """Add a character to a room of any of the characters, or remove it; return who speaks there then.

        Raises LookupError where it is none of the account's, SettingError where too many would speak, StoreUnavailable.
        """
        changed = next((item for item in self.handles if item.agent_id == agent_id), None)
        if changed is None:
            raise LookupError(f"there is no character {agent_id} on this account")
        world, room_of_first = await self._find_place(handle, room)
        return self._build_body(
            room, await self._change(world, room_of_first, changed, is_member=is_member, source=source)
        )

    def _build_body(self, room: Room, members: Sequence[AgentHandle]) -> CastBody:
        others = [handle for handle in self.handles if handle not in members]
        lists = [
            [CastMemberBody(agent_id=handle.agent_id, name=handle.character.name) for handle in handles]
            for handles in (members, others)
        ]
        return CastBody(room_id=room.id, members=lists[0], others=lists[1])

    async def _find_place(self, handle: AgentHandle, room: Room) -> tuple[World, Room]:
        """Return the world and the room of the first character for a room of any of them."""
        world = await handle.conversations.world(room.world_id) or World(room.world_id, room.platform, "")
        if handle is self.first:
            return world, room
        found, own = await self._locate(self.first, world, room)
        parent = await handle.conversations.room(room.parent_id) if room.parent_id is not None else None
        if parent is not None:
            _, own_parent = await self._locate(self.first, world, parent)
            own = replace(own, parent_id=own_parent.id)
        return found, own

    async def _change(
        self, world: World, room: Room, handle: AgentHandle, *, is_member: bool, source: str, by_id: UUID | None = None
    ) -> tuple[AgentHandle, ...]:
        async with self._changing:
            members = [item for item in await self.members(room) if is_member or item is not handle]
            if is_member and handle not in members:
                members.append(handle)
            if len(members) > MAX_MEMBERS:
                raise SettingError(user_text("commands.cast.full", limit=MAX_MEMBERS))
            await self._save(world, room, members, source=source, by_id=by_id)
            return tuple(members) or (self.first,)

    async def _save(
        self, world: World, room: Room, members: Sequence[AgentHandle], *, source: str, by_id: UUID | None = None
    ) -> None:
        ids = ",".join(str(handle.agent_id) for handle in members)
        await self.first.operations.set_room_setting(world, room, CAST, ids, source=source, by_id=by_id)
        self._settings.pop(world.id, None)

    def _read(self, settings: Mapping[str, str], room: Room) -> tuple[AgentHandle, ...]:
        stored = settings.get(room_setting(CAST, room.id))
        if not stored and room.parent_id is not None:
            stored = settings.get(room_setting(CAST, room.parent_id))
        by_id = {str(handle.agent_id): handle for handle in self.handles}
        return tuple(by_id[item] for item in (stored or "").split(",") if item in by_id)

    def _split_name(self, name: str, text: str) -> tuple[AgentHandle | None, str]:
        """Return the character that the words of a command begin with, by its name or the first part of it."""
        words = f"{name} {text}".strip()
        for handle in sorted(self.handles, key=lambda item: -len(item.character.name)):
            full = handle.character.name
            if f"{words} ".casefold().startswith(f"{full} ".casefold()):
                return handle, words[len(full) :].strip()
        begun = [handle for handle in self.handles if handle.character.name.casefold().startswith(name.casefold())]
        return (begun[0] if name and len(begun) == 1 else None), text

    def _join(self, handles: Sequence[AgentHandle]) -> str:
        return ", ".join(handle.character.name for handle in handles)
