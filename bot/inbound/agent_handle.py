"""`AgentHandle`: all that an adapter may call; `AdapterSpec`.

`MembershipReporter`: joins, leaves and renames, stored before the platform is told.

`EmulatedPlatform`: a platform that runs on this machine, and what its page is told by `bot run --emulate`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar
from uuid import UUID

from bot.adapter.adapter import Adapter, ConnectionStatus, RoomRules
from bot.concurrency.clock import Clock, system_clock
from bot.concurrency.process_health import ProcessMonitor
from bot.costs.budget import CostLimits
from bot.domain.character import Catalog, Character, CommandSpec
from bot.domain.environment import Entity, Room, World
from bot.domain.events import EntityJoined, EntityLeft, EntityUpdated, Event, RoomJoined, WorldConnected, WorldJoined
from bot.domain.hiding import hide_members
from bot.domain.inbound import (
    ChoiceSelection,
    CommandInvocation,
    CommandResponse,
    InlineAnswer,
    MembershipChange,
    MembershipUpdate,
    ResponseTarget,
    roles_after_leaving,
)
from bot.domain.ledger import Outcome, Receipt
from bot.event_bus import EventBus
from bot.fetch.response import FetchedBody
from bot.http import BoundRoute
from bot.inbound.edits import EditReporter
from bot.inbound.inbox import Inbox, sanitize_membership
from bot.operate.activity import AgentActivity
from bot.operate.operations import Operations
from bot.operate.rooms import CastBody
from bot.operate.tools import OperatorTools, TaskControl
from bot.settings import Settings, SettingsModel
from bot.store.ledger import LeaseSharing, StoreProblem
from bot.store.lists import ListStore
from bot.store.protocols import CacheStore, Store
from bot.store.storage import CheckReport
from bot.turn import AgentDefinition, WorldSettings

BATCH_SIZE = 500  # in some twenty milliseconds


class MembershipReporter:
    """Stores which worlds, rooms and members exist, and who joins and leaves.

    However many rows a call is about, it takes a few statements and lets others write in between. It is
    stored when its method returns; repeating it changes nothing more. `event_id` is the platform's id of the
    event. All methods raise InboxClosed while the bot is stopping and StoreUnavailable while nothing can be
    stored: the platform must not acknowledge the event then. Left, cleared and migrated rooms are reported to
    `EditReporter`.
    """

    def __init__(
        self, agent_id: UUID, *, store: Store, inbox: Inbox, events: EventBus, clock: Clock = system_clock
    ) -> None:
        self._agent_id = agent_id
        self._store, self._inbox, self._events = store, inbox, events
        self._clock = clock
        self._lock = asyncio.Lock()

    async def join_world(
        self, world: World, rooms: Sequence[Room] = (), members: Sequence[Entity] = (), *, event_id: str = ""
    ) -> None:
        """Store a world with its rooms and members; call it at every connect and when the agent is invited.

        Emit WorldJoined where the world or the event was not known, else WorldConnected.
        """
        update = MembershipUpdate(world, tuple(rooms), tuple(members), event_id)
        await self._inbox.run_shielded(self._apply_world_join(self._sanitize(update)))

    async def update_world(self, world: World, rooms: Sequence[Room] = (), members: Sequence[Entity] = ()) -> None:
        """Store a world's new name and the roles in it."""
        update = MembershipUpdate(world, tuple(rooms), tuple(members))
        await self._inbox.run_shielded(self._apply_in_batches(self._sanitize(update)))

    async def join_room(self, world: World, room: Room) -> None:
        """Store a new room: a channel, a thread, a topic."""
        await self._inbox.run_shielded(self._apply_room_join(self._sanitize(MembershipUpdate(world, (room,)))))

    async def update_room(self, world: World, room: Room) -> None:
        """Store a room's new name; an unknown room is joined."""
        await self.join_room(world, room)

    async def add_member(self, world: World, member: Entity, *, event_id: str = "") -> None:
        """Store that a user joined a world; where it has a single room, they are in that room."""
        update = MembershipUpdate(world, entities=(member,), event_id=f"joined:{event_id}" if event_id else "")
        await self._inbox.run_shielded(self._apply_member_join(self._sanitize(update)))

    async def update_member(self, world: World, member: Entity) -> None:
        """Store a new name, picture or role, and emit EntityUpdated where it differs."""
        await self._inbox.run_shielded(
            self._apply_member_update(self._sanitize(MembershipUpdate(world, entities=(member,))))
        )

    async def remove_member(self, world: World, member: Entity, *, event_id: str = "") -> None:
        """Store that a user left a world: they are in none of its rooms and have no role in it.

        Their other data stays.
        """
        world = replace(world, roles=roles_after_leaving(world, [member]))
        key = f"left:{event_id}" if event_id else ""
        update = MembershipUpdate(world, entities=(member,), event_id=key, is_leaving=True)
        await self._inbox.run_shielded(self._apply_member_leave(self._sanitize(update)))

    def _sanitize(self, update: MembershipUpdate) -> MembershipUpdate:
        """Return a bounded update, without names of people who are not read."""
        return hide_members(sanitize_membership(update), self._store.marks.not_read)

    async def _apply_in_batches(self, update: MembershipUpdate) -> MembershipChange:
        """Store an update, a limited number of members at a time."""
        apply, now = self._store.edits.apply_membership, self._clock()
        change = await apply(replace(update, entities=update.entities[:BATCH_SIZE]), now)
        if change.is_new:
            for start in range(BATCH_SIZE, len(update.entities), BATCH_SIZE):
                await apply(MembershipUpdate(update.world, entities=update.entities[start : start + BATCH_SIZE]), now)
        return change

    async def _apply_world_join(self, update: MembershipUpdate) -> None:
        async with self._lock:
            change = await self._apply_in_batches(update)
            if not change.is_new:
                return
            world = update.world
            if change.previous_world is None or update.event_id:
                self._emit(WorldJoined(self._agent_id, world, update.rooms, update.entities))
            else:
                self._emit(WorldConnected(self._agent_id, world))

    async def _apply_room_join(self, update: MembershipUpdate) -> None:
        async with self._lock:
            change = await self._apply_in_batches(update)
            for room in update.rooms:
                if room.id in change.new_room_ids:
                    self._emit(RoomJoined(self._agent_id, room))

    async def _apply_member_join(self, update: MembershipUpdate) -> None:
        async with self._lock:
            change = await self._apply_in_batches(update)
            [member] = update.entities
            if change.is_new and (update.event_id or member.id in change.new_entity_ids):
                rooms = await self._store.worlds.rooms(update.world.id)
                if len(rooms) == 1:
                    await self._store.entities.save_entities([member], rooms[0].id)
                self._emit(EntityJoined(self._agent_id, member, update.world))

    async def _apply_member_update(self, update: MembershipUpdate) -> None:
        async with self._lock:
            change = await self._apply_in_batches(update)
            [member] = update.entities
            if change.has_changed(member, update.world):
                self._emit(EntityUpdated(self._agent_id, member, update.world))

    async def _apply_member_leave(self, update: MembershipUpdate) -> None:
        async with self._lock:
            change = await self._apply_in_batches(update)
            if change.is_new:
                [member] = update.entities
                self._emit(EntityLeft(self._agent_id, member, update.world))

    def _emit(self, event: Event) -> None:
        self._events.emit(event)


@dataclass(frozen=True, slots=True)
class EmulatedOutcome:
    """What a character made of a message: `room` and `message` are the platform's ids, `headline` is a sentence."""

    room: str
    message: str
    agent: str
    headline: str
    outcome: Outcome
    receipt_id: UUID
    took_ms: int | None
    cost: float | None

    @classmethod
    def build(cls, receipt: Receipt, headline: str, *, room: str, message: str, agent: str) -> "EmulatedOutcome":
        """Return the outcome that a receipt states."""
        took_ms = None if receipt.seconds is None else round(1000 * receipt.seconds)
        return cls(room, message, agent, headline, receipt.outcome, receipt.id, took_ms, receipt.cost)

    def describe(self) -> dict[str, Any]:
        """Return the outcome as the page receives it."""
        return {
            "agent": self.agent,
            "headline": self.headline,
            "outcome": self.outcome,
            "receipt_id": str(self.receipt_id),
            "took_ms": self.took_ms,
            "cost": self.cost,
        }


class EmulatedPage(Protocol):
    """The page of an emulator, as far as the program that runs the characters tells it something."""

    def connect_web(self, url: str) -> None:
        """Set the address of the web adapter, whose receipts the page shows to a browser that is signed in there."""

    def show_outcome(self, outcome: EmulatedOutcome) -> None:
        """Show what a character made of a message, under it."""


@dataclass(frozen=True, slots=True)
class EmulatedPlatform:
    """A platform that is emulated on this machine: its page, and the variables of each character by name.

    They replace the character's own; an empty one only removes its own. `url` is the address of the page, `page` what
    serves it, if that can be told something.
    """

    url: str
    settings: Mapping[str, Mapping[str, str]]
    page: EmulatedPage | None = None


StartEmulator = Callable[[Sequence[str]], AbstractAsyncContextManager[EmulatedPlatform]]


E = TypeVar("E", bound=Event)
CursorReader = Callable[[str, str, str], Awaitable[str | None]]
AccountCheck = Callable[[Settings, CursorReader], Awaitable[CheckReport]]
RunCommand = Callable[[CommandInvocation, ResponseTarget | None], Awaitable[CommandResponse]]


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """What came of reading a character's file again while the agent runs.

    `changed` are the fields and settings that were taken up, `needs_restart` those that stay as they were until the
    bot is started again. With an `error` nothing was taken up.
    """

    file: str = ""
    changed: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    error: str = ""


Reload = Callable[[], Awaitable[ReloadResult]]
ReadPicture = Callable[[], Awaitable[FetchedBody | None]]
SelectChoice = Callable[[ChoiceSelection, ResponseTarget | None], Awaitable[CommandResponse]]


class InlineQuestions(Protocol):
    """Answers questions that people type after the bot's name in any chat."""

    async def answer(self, world: World, room: Room, author: Entity, question: str) -> InlineAnswer | None:
        """Return the answer for a person; None where nothing may be answered, or no model answers in time.

        The same question of a person within five minutes gets the same answer, without a model.
        """

    async def note_sent(
        self, world: World, room: Room, author: Entity, answer_id: str, event_id: str, target: ResponseTarget
    ) -> None:
        """Store, once for each event, that a person has sent an answer: a receipt, and the answer as its delivery.

        Raises InboxClosed while the bot is stopping and StoreUnavailable while nothing can be stored.
        """


class RoomCast(Protocol):
    """Which of the characters that share an account speak in which room; see `Cast`."""

    async def describe(self, handle: "AgentHandle", room: Room) -> CastBody:
        """Return who speaks in a room of one of the characters."""

    async def change(
        self, handle: "AgentHandle", room: Room, agent_id: UUID, *, is_member: bool, source: str
    ) -> CastBody:
        """Add a character to a room or remove it; return who speaks there then."""


class AgentHandle:
    """What an adapter may call on one agent: submit events, as `Inbox` does, run commands, read conversations.

    Valid while the agent runs. Every method that submits something raises InboxClosed while the bot is
    stopping and StoreUnavailable while nothing can be stored; the platform must not acknowledge it then.
    """

    def __init__(
        self,
        *,
        agent_id: UUID,
        read_definition: Callable[[], AgentDefinition],
        inbox: Inbox,
        edits: EditReporter,
        membership: MembershipReporter,
        operations: Operations,
        activity: AgentActivity,
        tasks: TaskControl,
        world_settings: WorldSettings,
        limits: CostLimits,
        catalog: Callable[[], Catalog],
        room_rules: RoomRules,
        commands: tuple[CommandSpec, ...],
        run_command: RunCommand,
        add_commands: Callable[[str, Sequence[Any]], None],
        select_choice: SelectChoice,
        inline: InlineQuestions,
        reload: Reload,
        events: EventBus,
        routes: tuple[BoundRoute, ...] = (),
        connections: Callable[[], Sequence[ConnectionStatus]] = tuple,
        read_picture: ReadPicture,
        note_typing: Callable[[UUID, UUID], None],
    ) -> None:
        self.agent_id, self._read_definition = agent_id, read_definition
        self.edits = edits
        self.membership = membership
        self.operations, self.conversations = operations, operations.conversations
        self.inline = inline
        self.activity, self.undelivered = activity, operations.undelivered
        self.people, self.tasks = operations.people, tasks
        self.world_settings = world_settings
        self.limits = limits
        self._catalog = catalog
        self.room_rules = room_rules
        self.commands = commands
        self.routes = routes
        self._inbox = inbox
        self.submit, self.submit_all, self.submit_tolerant = inbox.submit, inbox.submit_all, inbox.submit_tolerant
        self.record_unreadable, self.wait_outcome = inbox.record_unreadable, inbox.wait_outcome
        self.cursor, self.last_seen, self.hide = inbox.cursor, inbox.last_seen, inbox.hide
        self._run_command, self._select_choice, self._reload = run_command, select_choice, reload
        self.add_commands = add_commands  # of a platform's account that several characters share: instances of Command
        self._connections = connections
        self._events = events
        self._note_typing = note_typing
        self.read_picture = read_picture
        self.operator_tools: OperatorTools | None = None  # set by the program that runs the agent, if it has any
        self.process_monitor: ProcessMonitor | None = None  # set by the runtime
        self.connection_leases: LeaseSharing | None = None  # likewise, where gateways share the connections
        self.read_failed_backup: Callable[[], str] = str  # likewise: why the last scheduled backup failed, or nothing
        self.casts: dict[str, RoomCast] = {}  # by platform, where the agent shares an account: set by the adapter
        self.inactive_platforms: Mapping[str, str] = {}  # why platforms did not start, by name; set by the runtime

    @property
    def definition(self) -> AgentDefinition:
        """The agent's character, settings and templates, as they are now, and the version of the file."""
        return self._read_definition()

    @property
    def cache(self) -> CacheStore:
        """Small values by key that outlast a restart, with an expiry; no page, prompt or export shows them."""
        return self.operations.store.cache

    @property
    def lists(self) -> ListStore:
        """Lists of rooms, messages and deliveries, page by page."""
        return self.operations.store.lists

    @property
    def character(self) -> Character:
        """The agent's character, as it is now."""
        return self._read_definition().character

    @property
    def settings(self) -> Settings:
        """The agent's settings, as they are now."""
        return self._read_definition().settings

    @property
    def catalog(self) -> Catalog:
        """The descriptions of the agent's components, as they are now."""
        return self._catalog()

    @property
    def problem(self) -> StoreProblem | None:
        """Why nothing can be stored at the moment; None while the store works."""
        return self._inbox.problem

    def note_typing(self, room_id: UUID, entity_id: UUID) -> None:
        """Report that a person is typing: an answer that has not been begun waits a moment for their message."""
        # The work on a message that was submitted just before begins first.
        asyncio.get_running_loop().call_soon(self._note_typing, room_id, entity_id)

    async def run_command(self, invocation: CommandInvocation, target: ResponseTarget | None = None) -> CommandResponse:
        """Run one of `commands` for its sender; a mistake of the sender is explained in the response.

        An event that is delivered again is not run again. Return what the caller has to show: without a `target` the
        whole response, also for an event that is delivered again; with one only files, and a response without parts.
        """
        return await self._run_command(invocation, target)

    async def select_choice(self, selection: ChoiceSelection, target: ResponseTarget | None = None) -> CommandResponse:
        """Apply a pressed button; return as `run_command`."""
        return await self._select_choice(selection, target)

    async def reload(self) -> ReloadResult:
        """Read the character's file again and take up what can change while the agent runs.

        A file that cannot be used changes nothing: the result says why.
        """
        return await self._reload()

    def subscribe(self, kind: type[E], listen: Callable[[E], None]) -> Callable[[], None]:
        """Call `listen` with every event of a class as it happens; the returned function ends it.

        It is called within the work on messages, so it may not block.
        """
        return self._events.subscribe(kind, listen, at_once=True)

    def connections(self) -> Sequence[ConnectionStatus]:
        """Return the connection of every account of the process, also of other agents and adapters."""
        return self._connections()


@dataclass(frozen=True, slots=True)
class Publishing:
    """How `bot post` publishes with an adapter.

    `post_url` returns the URL of a post by its id. `settings` are set while the command is connected, so that
    nothing is read or answered; with `is_dry_run` it shows the post only. `route` is the path at which a
    running bot publishes, and with `/delete` after it deletes; without one, `bot post` cannot do so while the bot
    runs. `parse_post_id` returns the id in an id or URL that a person typed, empty where it is none; None where
    posts cannot be deleted.
    """

    post_url: Callable[[str], str]
    settings: Mapping[str, str] = field(default_factory=dict)
    is_dry_run: Callable[[Settings], bool] | None = None
    route: str = ""
    parse_post_id: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """An adapter that can be connected.

    It is off unless every variable in `needs` is set; `extra` names what to install for it, which brings the
    modules `libraries`. `check` reads the state of the account behind an agent's settings without sending anything;
    it receives a function that reads cursors. Both it and `open` may be a `LazyImport`, so that the libraries are
    loaded only where the platform is on. `emulator` starts the platform on this machine for the named characters;
    it is imported for `bot run --emulate` only. `publishing` is set where `bot post` can publish with it. Where it
    `serves_clients`, as `Adapter.serves_clients` says, every gateway opens it; any other platform is connected by
    one gateway at a time, unless it `spreads_connections`: then every gateway opens it, and its connections are shared
    by `AgentHandle.connection_leases`. `setup_steps` tell a person how to get the values of `needs`, click by click.
    `build_conversation` is set where the platform can show private conversations of another program: it returns the
    place of one by the agent, its key, its title and the person's name. `faces_setting` is the variable with which
    several characters share an account.
    """

    name: str
    open: Callable[[Sequence[AgentHandle]], Adapter]
    settings: type[SettingsModel]
    needs: tuple[str, ...] = ()
    extra: str = ""
    libraries: tuple[str, ...] = ()
    check: AccountCheck | None = None
    emulator: StartEmulator | None = None
    publishing: Publishing | None = None
    setup_steps: tuple[str, ...] = ()
    serves_clients: bool = False
    spreads_connections: bool = False
    build_conversation: Callable[[UUID, str, str, str], tuple[World, Room, Entity]] | None = None
    faces_setting: str = ""
