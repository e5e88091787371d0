"""`Agent`: the collaborators of one running character, and its services looked up by class.

`Turn`: one message being answered; `TurnInput`: one message and its receipt.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar
from uuid import UUID

from pydantic import SecretStr

from bot.care.recognition import DistressCategory
from bot.concurrency.clock import Clock, system_clock
from bot.concurrency.tasks import MemorySemaphore
from bot.costs.budget import Budget
from bot.domain.character import ActionSpec, Catalog, Character, ContentRating, WorldSettingState
from bot.domain.content import Attachment, Content
from bot.domain.environment import ChannelType, Entity, Role, Room, World, own_words
from bot.domain.events import Event
from bot.domain.ids import derived_id, new_id
from bot.domain.inbound import REVISIONS_KEY, InboundMessage, list_revisions
from bot.domain.instructions import MODEL_SIZES, NOTHING_SET, ResolvedInstructions, ThreadRule, resolve_instructions
from bot.domain.ledger import (
    SOURCES_KEY,
    ActionResult,
    Degradation,
    DegradeStep,
    Delivery,
    DeliveryKind,
    DeliveryState,
    EditState,
    EventKey,
    ModelCall,
    Receipt,
    State,
    Step,
    StepState,
)
from bot.domain.memory import AUTHORS_KEY, NOTICE_KEY, WRITTEN_BY_KEY, Memory, MemoryKind
from bot.domain.proposal import Proposal, proposal_id
from bot.domain.reactions import ReactionSet
from bot.domain.task import Task, merge_schedule
from bot.errors import TemplateError
from bot.event_bus import EventBus
from bot.fetch.documents import DocumentReader
from bot.fetch.response import UrlFetcher
from bot.models.router import ModelRouter
from bot.models.types import ModelType
from bot.outbound.content_filter import replace_human_claims
from bot.outbound.notices import GROUP_RULE, MINOR_INTERVAL, PRIVATE_RULE, Notice, NoticeRule
from bot.outbound.outbox import Outbox, Speech
from bot.outbound.proposals import ApprovalSettings, Proposals
from bot.outbound.sender import OutgoingReply
from bot.prompts.template_language import render_template
from bot.prompts.templates import find_problems, find_template
from bot.receipts import TurnTrace
from bot.settings import MinorRule, Settings, find_time_zone, parse_minor_rules, room_setting
from bot.store.protocols import RecallScope, Store
from bot.text import sanitize_name, suggest, truncate_line
from bot.user_texts import user_text

logger = logging.getLogger(__name__)
T = TypeVar("T")
TIMEZONE = "TIMEZONE"
AI_NOTICE, AI_NOTICE_TEXT, MINORS = "AI_NOTICE", "AI_NOTICE_TEXT", "MINORS"
AGE_RESTRICTED_ROOMS = "AGE_RESTRICTED_ROOMS"
CITATION = re.compile(r"\[(\d{1,3})\]")
FORGED_CITATION = re.compile(
    r"^[ \t]*\[\d{1,3}\]:?[ \t]+\S*://\S+[ \t]*\n?", re.MULTILINE
)  # as the model has read it before


class Services(dict[type, Any]):
    """The running services of one agent, by class: `agent.services[Forecasts]`.

    A class whose service is not running stands for the first of its subclasses that runs. Without one, LookupError
    with the reason is raised.
    """

    if TYPE_CHECKING:

        def __getitem__(self, kind: type[T]) -> T: ...

    def __init__(self) -> None:
        super().__init__()
        self._failures: dict[type, str] = {}

    def __missing__(self, kind: type[T]) -> T:
        for service in self.values():
            if isinstance(service, kind):
                return service
        causes = (cause for failed_kind, cause in self._failures.items() if issubclass(failed_kind, kind))
        cause = next(causes, "no plugin of this agent brings it")
        raise LookupError(f"service {kind.__name__} is not running: {cause}")

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, type) and any(isinstance(service, kind) for service in self.values())

    @property
    def failures(self) -> Mapping[type, str]:
        """Why services that an agent should have are not running, by class."""
        return dict(self._failures)

    def add(self, service: object) -> None:
        """Register a started service."""
        self[type(service)] = service
        self._failures.pop(type(service), None)

    def remove(self, kind: type, cause: str = "it has stopped") -> None:
        """Remove a service and remember the reason, which a look-up then reports."""
        self.pop(kind, None)
        self._failures[kind] = cause


class WorldSettings(Protocol):
    """The settings of worlds that the plugins of one agent declare."""

    async def worlds_of(self, person_id: UUID) -> list[World]:
        """Return the worlds that a person owns, by name; none where no plugin declares settings of worlds."""

    async def states(self, world: World) -> list[WorldSettingState]:
        """Return the settings that a world can have now, without values of secrets, in the plugins' order."""

    def value(self, world: World, name: str) -> str:
        """Return the value of a setting, or its default.

        Raises SettingError for a secret, and for one that no plugin declares.
        """

    def secret(self, world: World, name: str) -> SecretStr | None:
        """Return the value of a secret setting; None if it is not set, or was encrypted with another key.

        Raises SettingError for one that is no secret, and for one that no plugin declares.
        """

    async def find_problem(self, world: World, name: str, value: str) -> str:
        """Return why a setting cannot have this value in a world; empty if it can."""

    async def change(self, world_id: UUID, name: str, value: str, *, actor: UUID | None, source: str) -> str:
        """Set a setting of a world, or remove it with a blank value; return what the plugin says about it.

        Who did it (None: the operator) and by what is logged, but not the value of a secret. It is not checked
        whether the actor may. Raises SettingError for a value that is not accepted, LookupError for an unknown
        world.
        """


class Components(Protocol):
    """The components of one agent: what they are, and how plugins add to them while the agent runs."""

    @property
    def catalog(self) -> Catalog:
        """The descriptions of all components, as they are now."""

    def register(self, plugin: str, component: object, *, replaces_own: bool = False) -> Callable[[], None]:
        """Add an action, provider, evaluator, worker or listener to a plugin; the returned function removes it.

        With `replaces_own` it is used instead of the one of its name that the plugin brings. Raises PluginError
        for a plugin that the agent does not have, for another kind of component, and for a name that is taken.
        """

    @property
    def world_settings(self) -> WorldSettings:
        """The settings of worlds that plugins declare."""

    async def set_setting(self, plugin: str, name: str, value: str) -> None:
        """Set a variable that a plugin declares, from now on and after a restart; a blank value removes it again.

        It is above the operator's value. Raises SettingError for a variable that the plugin does not declare,
        for a secret one, and for a value that is not valid.
        """


class ContentFilters(Protocol):
    """The filters of one agent; where it `is_on`, or a world has settings, one may be in use."""

    is_on: bool

    def is_active(self, direction: str, agent: "Agent", room: Room, world: World) -> bool:
        """Return whether a filter of a direction, `in` or `out`, is used in a room."""

    async def check_message(self, turn: "Turn") -> str:
        """Check the newest message of a turn; return why a filter stopped it, empty if none did."""

    async def check_attachment(self, turn: "Turn", attachment: Attachment) -> Attachment:
        """Return an attachment that has been read, with what the filters let pass of its text."""

    async def check_reply(self, turn: "Turn", content: Content) -> Content | None:
        """Return what the filters let pass of a reply; None where one stopped it."""

    async def check_post(self, agent: "Agent", room: Room, content: Content) -> tuple[Content | None, str]:
        """Return what the filters let pass of a text that answers no message, and why it waits for a person.

        None where one has stopped it; the reason is empty where it does not wait.
        """


class Rooms(Protocol):
    """What code that answers no message can do in the rooms of one agent."""

    async def compose(
        self,
        room: Room,
        include: Collection[str] = (),
        *,
        only_included: bool = False,
        author: Entity | None = None,
        text: str = "",
    ) -> State:
        """Return the state of a room: the texts and values of the default providers and of those in `include`.

        With `only_included` only the latter run. Dynamic and hidden providers are included by their names.
        Providers see a message of `author`, by default of the agent itself, with this text.
        """

    async def submit(
        self, room: Room, content: str | Content, *, author: Entity, key: str, role: Role | None = None
    ) -> Receipt:
        """Store a message as if it had come from the room's platform, start on it, and return its receipt.

        It is processed like any other, and counts as addressed to the agent. With the same `key` it is stored
        once. `role` is that of `author` in the room's world from now on; without one a person of the room's
        platform keeps theirs, and any other author has none. Raises InboxClosed while the agent starts or stops,
        and StoreUnavailable.
        """

    async def wait_outcome(self, receipt_id: UUID) -> Receipt:
        """Wait for the final receipt of a message; raises as `AgentHandle.wait_outcome`."""

    async def find(self, platform: str, external_id: str, *, account: str = "") -> Room | None:
        """Return the room with this id of a platform; None where the agent has not been in it."""

    async def open_direct(self, person: Entity) -> Room | None:
        """Return the private chat with a person, opened where the platform can; None where it cannot."""

    async def visible_to(self, person_id: UUID) -> RecallScope:
        """Return the scope of all that a person may see: the rooms they take part in, and their worlds.

        Of more than fifty rooms the most recently active count. Show what is found with it to that person alone.
        """

    def charge(self, room: Room, person: Entity | None = None) -> AbstractContextManager[None]:
        """Count the model calls in this block for a room and a person, within their budgets too."""


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """What the file of a character says of an agent; another one replaces it when a changed file is taken up.

    `templates` are prompt templates by name, the character's over the plugins' over the defaults. `version` is a hash
    of the file's text, empty for a character without a file; it was read `loaded_at`.
    """

    character: Character
    settings: Settings
    templates: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    loaded_at: datetime | None = None


class CurrentDefinition:
    """The definition of one agent as it is now; only who has built it can replace it, with `replace`."""

    def __init__(self, definition: AgentDefinition) -> None:
        self._definition = definition

    def read(self) -> AgentDefinition:
        """Return the definition."""
        return self._definition

    def replace(self, definition: AgentDefinition) -> None:
        """Use another definition from now on."""
        self._definition = definition


@dataclass(frozen=True, slots=True)
class Agent:
    """One running character and everything it works with.

    `id` is also its entity: its own messages carry it. `character`, `settings` and `templates`
    may change while the agent runs: read them when they are needed. `folder` is where the character's file is; None
    for a character without one. `memory` bounds what all agents of the process hold of files and responses, see
    MEMORY_LIMIT. `muted_people` are those whose messages are stored and not answered.
    """

    id: UUID
    read_definition: Callable[[], AgentDefinition] = field(repr=False)
    models: ModelRouter
    store: Store
    events: EventBus
    outbox: Outbox
    speech: Speech
    services: Services
    components: Components
    rooms: Rooms
    filters: ContentFilters
    fetcher: UrlFetcher
    budget: Budget = field(default_factory=Budget)
    memory: MemorySemaphore = field(default_factory=MemorySemaphore)
    clock: Clock = system_clock
    folder: Path | None = None
    muted_people: set[UUID] = field(default_factory=set)
    document_reader: DocumentReader = field(default_factory=DocumentReader, repr=False)

    @property
    def character(self) -> Character:
        """The character, as it is now."""
        return self.read_definition().character

    @property
    def settings(self) -> Settings:
        """The settings, as they are now."""
        return self.read_definition().settings

    @property
    def templates(self) -> Mapping[str, str]:
        """The prompt templates by name, the character's over the plugins' over the defaults."""
        return self.read_definition().templates

    @property
    def name(self) -> str:
        """The character's name."""
        return self.character.name

    @property
    def catalog(self) -> Catalog:
        """The descriptions of all components."""
        return self.components.catalog

    @property
    def world_settings(self) -> WorldSettings:
        """The settings of worlds that the plugins declare."""
        return self.components.world_settings

    @property
    def notice_text(self) -> str:
        """The text of the AI notice: the character's own, else that of the language."""
        text, name = self.settings.get(AI_NOTICE_TEXT), sanitize_name(self.name)
        if not text:
            return user_text("notices.ai", name=name)
        return replace_human_claims(" ".join(text.replace("{name}", name).split()))[0]

    @property
    def proposals(self) -> Proposals:
        """The replies and posts that wait for a person."""
        load_settings = partial(self.settings.load, ApprovalSettings)
        return Proposals(self.id, self.store, self.outbox, load_settings, self.clock)

    def may_speak_in(self, room: Room) -> bool:
        """Return whether the character may speak in a room: one whose content is mature only where adults are."""
        if self.character.content is ContentRating.GENERAL or room.is_age_restricted:
            return True
        listed = {name.strip() for name in (self.settings.get(AGE_RESTRICTED_ROOMS) or "").split(",")}
        return not listed.isdisjoint({room.platform, f"{room.platform}:{room.external_id}"})

    def language_tags(self, person: Entity) -> tuple[str, str]:
        """Return the languages of texts to a person, for `use_language`: their platform's, else BOT_LANGUAGE."""
        default = self.settings.get("BOT_LANGUAGE") or ""
        return person.language, default

    def find_time_zone(self, world: World | None = None) -> tzinfo:
        """Return the time zone of a world (`TIMEZONE`), by default the agent's."""
        for name in (world.settings.get(TIMEZONE) if world is not None else None, self.settings.get(TIMEZONE)):
            if name and (zone := find_time_zone(name)):
                return zone
        return UTC

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """Render one of the agent's templates with values, such as those of a state that was composed.

        Raises TemplateError for a name that no template has.
        """
        source = find_template(template, self.templates)
        if source is None:
            hint = suggest(template, self.templates, start="; ")
            raise TemplateError(f"there is no template {template!r}{hint}")
        return render_template(source, values)

    async def set_template(self, world_id: UUID, name: str, source: str) -> None:
        """Replace a template in one world, above that of the character; a blank one removes the replacement.

        Raises TemplateError for one that cannot be used, and LookupError for an unknown world. The templates of
        a world are what its prompts say: take them from the operator, not from people in rooms.
        """
        if source.strip():
            for problem in find_problems(name, source, self.templates):
                if problem.is_error or not (problem.variable or problem.is_completed):
                    raise TemplateError(f"template {name!r}: {problem.message}")
        await self.store.worlds.set_setting(world_id, name, source)

    async def say(
        self, room: Room, content: str | Content, *, key: str = "", written_by: str = "", is_approved: bool = False
    ) -> Memory | None:
        """Send a message in a room without being asked: a reminder, a greeting, news.

        Return the message once it is stored and queued; None where a filter stopped it or the content filter left
        nothing, where a character of mature content may not speak or a person has taken over, and where the message
        waits for a person (APPROVAL, or a filter holds it). With a `key` it is sent once, however often this is called
        with it: work that may run again passes its own. What a person wrote is sent under the name `written_by`, in a
        room that they have taken over too. What `is_approved` was seen by a person, and does not wait for one.
        """
        if not self.may_speak_in(room):
            logger.info("nothing is said in %s: the content of %s is mature", room.id, self.name)
            return None
        held = self.store.take_overs.current
        if held and not written_by and (take_over := held.get((room.id, None))):
            logger.info("nothing is said in %s: it is %s", room.id, take_over)
            return None
        if isinstance(content, str):
            content = Content(text=content)
        if written_by:
            label = user_text("take_overs.label", name=written_by)
            content = replace(content, text=f"{label}\n{content.text}")
        turn_id = derived_id(self.id, "said", key) if key else new_id()
        memory_id = derived_id(turn_id, "reply", "0")
        if key and (existing := (await self.store.memories.memories([memory_id])).get(memory_id)) is not None:
            return existing
        filtered, reason = await self.filters.check_post(self, room, content)
        if filtered is None:
            return None
        now, approval = self.clock(), self.outbox.approval
        reason = reason or (approval.find_post_reason(room) if approval is not None else "")
        if reason and not (is_approved or written_by):
            proposed = self.outbox.filter_content(filtered, room.id)
            if proposed is not None:
                expires_at, id_ = now + self.proposals.timeout, proposal_id(turn_id)
                proposal = Proposal(id_, room.id, turn_id, memory_id, proposed, proposed, now, expires_at, reason)
                await self.proposals.propose(proposal)
            return None
        memory = Memory(
            id=memory_id,
            kind=MemoryKind.MESSAGE,
            entity_id=self.id,
            room_id=room.id,
            world_id=room.world_id,
            content=filtered,
            created_at=now,
            turn_id=turn_id,
            metadata={WRITTEN_BY_KEY: written_by} if written_by else {},
        )
        stored = await self.outbox.commit([OutgoingReply(memory, room)])
        return stored[0] if stored else None

    async def say_to(self, entity_id: UUID, content: str | Content, *, key: str = "") -> Memory | None:
        """Send a private message, as `say` does, in the room where the entity last wrote privately.

        Where there is none, it is opened if the platform can. Return None also where there is no such room on a
        connected platform.
        """
        room = await self.find_direct(entity_id)
        return None if room is None else await self.say(room, content, key=key)

    async def find_direct(self, entity_id: UUID) -> Room | None:
        """Return the room where an entity last wrote privately, else one opened for it.

        None where there is no such room on a connected platform. Raises as `Adapter.open_direct` does.
        """
        for room in await self.store.worlds.rooms_of(entity_id):
            if room.type is ChannelType.DM and self.outbox.ownership.is_connected(room.platform):
                return room
        person = (await self.store.entities.entities([entity_id])).get(entity_id)
        return None if person is None else await self.rooms.open_direct(person)

    async def schedule(self, task: Task) -> Task:
        """Store a task for later; `store.tasks` finds, changes and removes tasks.

        A repeating task first runs one interval after its `next_run`, or at the next time of its cron
        expression; at `next_run` itself if it is `immediate`. It may be scheduled again at every start: a
        stored task with its id keeps its next run, failures and metadata, unless its times have changed or it
        was parked. A cron expression without a time zone counts in that of the task's world. Raises ValueError for
        invalid times.
        """
        if task.is_repeating and "cron" in task.metadata and "timezone" not in task.metadata:
            world = None if task.world_id is None else await self.store.worlds.world(task.world_id)
            if (zone := self.find_time_zone(world)) is not UTC:
                task = replace(task, metadata={**task.metadata, "timezone": str(zone)})
        existing = await self.store.tasks.task(task.id)
        merged = merge_schedule(task, existing)
        if merged != existing:
            await self.store.tasks.save_task(merged)
        return merged


REPLIES_PER_STEP = 1_000
MAX_CHECKED_REPLIES = 20
MAX_ANSWERED_INPUTS = 20
DEGRADED_SHARE = 0.3
DEGRADED_MODELS = MappingProxyType(
    {DegradeStep.SMALL: ModelType.TEXT_SMALL, DegradeStep.OFFLINE: ModelType.TEXT_OFFLINE}
)
DEFAULT_MEMORY_BYTES = 600
REACTIONS, DEFAULT_REACTIONS = "REACTIONS", 6  # in a room and an hour
REACTION_STEP = "reaction"  # key and kind of the step that has the reaction of a turn
THREADS, DEFAULT_THREADS = "THREADS", 2  # in a room and an hour
THREAD_STEP = "thread"  # key and kind of the step that has the name of a turn's thread, and its room once it is open
HELD_STEP = "held"  # key and kind of the steps that have replies which wait for the commit


@dataclass(slots=True, eq=False)
class TurnInput:
    """One message that a turn answers, and its receipt.

    `received_monotonic` is on the monotonic clock, in seconds; `resolve` receives the final receipt; `calls`
    are the model calls made for this message so far, `interrupted_calls` those of its turns that were interrupted,
    which no receipt has; `is_evaluated` is set once the evaluators have run. `distress` is what it speaks of, found in
    its `checked_text`. `original_text` is what a message said before the filters; empty where none was asked.
    """

    receipt: Receipt
    message: Memory
    author: Entity
    received_monotonic: float
    resolve: Callable[[Receipt], None]
    calls: list[ModelCall] = field(default_factory=list)
    is_evaluated: bool = False
    interrupted_calls: list[ModelCall] = field(default_factory=list)
    distress: DistressCategory | None = None
    checked_text: str = ""
    original_text: str = ""

    @property
    def all_calls(self) -> tuple[ModelCall, ...]:
        """All model calls made for this message, as its receipt is to name them."""
        return (*self.receipt.model_calls, *self.calls, *self.interrupted_calls)


@dataclass(slots=True, eq=False)
class Turn:
    """One message being answered, with the earlier ones it superseded; the only mutable object of a turn.

    `inputs` are in their room's order and never empty; `results` holds what actions returned, by name;
    `actions` are those that the author may use; `superseded_by` is the newer turn that answers these
    messages; `next_reply_index` numbers the replies; a turn that `is_fresh` has no journal of an earlier
    attempt; one that `is_waiting` waits for more messages, and no model was asked for its reply. After the commit
    point it `is_committed`, and `is_closing` once its outcome is being stored. One that `is_cancelled` sends no
    more, because its messages were edited or deleted; one that `is_stopped` sends what is shown of its reply at
    most, because a person stopped it. The first reply of one that `replaces` something is sent as an edit of it;
    `obsolete_replies` are further replies of the earlier answer, which it removes. `unnotified` are the authors who get
    the AI notice with its first reply; None as long as that was not looked up.
    `result_authors` are the authors of what its actions have read; `running_actions` are the names of those that
    have begun and not ended; `on_progress` receives what the one that runs reports. `release_room` lets the room's
    next turn begin before the given one has ended. `conversation_length` is how many of the room's last messages a
    prompt shows at most, and `time_zone` is that of this world, in which prompts tell times. `memory_bytes` is how
    much of a prompt tells what people told before; `reaction_limit` and `thread_limit` are how many of these a room
    may have in an hour. `degradation` is the step of DEGRADE in effect: then prompts show `context_share` of the
    usual conversation and memory, and `reply_model` writes. `named_sources` are the sites of which its replies say
    already that they were read. `reaction` is the emoji with which it reacts to its message when it is answered, in
    place of `earlier_reaction`. `thread` is the room in which it answers where that is another: a thread that it
    has opened. `thread_name` is the name of one that it has opened, or begun to. With a `hold_reason` its replies
    wait for a person; `held_replies` are those that wait for the commit. One that `was_parked` has waited for the
    approval of an action. `definition` is the agent's when the turn began, and `instructions` are those of the room
    then.
    """

    agent: Agent
    id: UUID
    room: Room
    world: World
    inputs: list[TurnInput]
    state: State = field(default_factory=State)
    results: dict[str, ActionResult] = field(default_factory=dict)
    replies: list[Memory] = field(default_factory=list)
    held_replies: list[OutgoingReply] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    actions: tuple[ActionSpec, ...] = ()
    superseded_by: "Turn | None" = None
    next_reply_index: int = 0
    is_fresh: bool = False
    is_waiting: bool = False
    is_committed: bool = False
    is_cancelled: bool = False
    is_stopped: bool = False
    is_closing: bool = False
    replaces: Memory | None = None
    obsolete_replies: tuple[UUID, ...] = ()
    unnotified: frozenset[UUID] | None = None
    result_authors: set[UUID] = field(default_factory=set)
    running_actions: list[str] = field(default_factory=list)
    on_progress: Callable[[str], None] | None = None
    release_room: Callable[["Turn"], None] = lambda _: None
    trace: TurnTrace = field(default_factory=TurnTrace)
    degradation: Degradation | None = None
    context_share: float = 1.0
    reply_model: ModelType = ModelType.TEXT_LARGE
    reaction: str = ""
    earlier_reaction: Delivery | None = None
    thread: Room | None = None
    thread_name: str = ""
    hold_reason: str = ""
    was_parked: bool = False
    named_sources: set[str] = field(default_factory=set)
    instructions: ResolvedInstructions = NOTHING_SET
    definition: AgentDefinition = field(init=False)
    conversation_length: int = field(init=False)
    notice_rule: NoticeRule = field(init=False)
    memory_bytes: int = field(init=False)
    reaction_limit: int = field(init=False)
    thread_limit: int = field(init=False)
    time_zone: tzinfo = field(init=False)

    def __post_init__(self) -> None:
        self.definition = self.agent.read_definition()
        self.apply_instructions()
        settings = self.definition.settings
        self.time_zone = self.agent.find_time_zone(self.world)
        length = self.world.settings.get("CONVERSATION_LENGTH") or settings.get("CONVERSATION_LENGTH")
        self.conversation_length = int(length or 20)
        notice = settings.get(AI_NOTICE)
        default_rule = PRIVATE_RULE if self.room.type.is_direct else GROUP_RULE
        self.notice_rule = default_rule if notice is None else NoticeRule.parse(notice)
        self.memory_bytes = int(settings.get("MEMORY_BYTES") or DEFAULT_MEMORY_BYTES)
        self.reaction_limit = int(settings.get(REACTIONS) or DEFAULT_REACTIONS)
        self.thread_limit = int(settings.get(THREADS) or DEFAULT_THREADS)

    @classmethod
    def for_preview(cls, agent: Agent, text: str, *, role: Role = Role.OWNER) -> Self:
        """Return a turn about a message that was never received, to see what a model would be asked."""
        platform, now = "test", agent.clock()
        author = Entity(derived_id(platform, "entity", "Alice"), platform, "Alice", ("Alice",))
        world_id = derived_id(platform, "world")
        world = World(world_id, platform, "world", "The World", {author.id: role})
        room_id = derived_id(platform, "room", "lobby")
        room = Room(room_id, world_id, ChannelType.DM, platform, "lobby", "account", "lobby")
        content = Content(text=text, source=platform)
        inbound = InboundMessage.build(world, room, author, content, created_at=now, message_id="preview")
        receipt = Receipt(new_id(), inbound.key, room_id, author.id, inbound.message.id, now)
        turn_input = TurnInput(receipt, inbound.message, author, time.monotonic(), lambda receipt: None)
        return cls(agent, new_id(), room, world, [turn_input], actions=agent.catalog.actions)

    @classmethod
    def for_room(cls, agent: Agent, room: Room, world: World, *, author: Entity | None = None, text: str = "") -> Self:
        """Return a turn in a room that answers no stored message, for providers to read.

        Its only message is by `author`, by default the agent itself.
        """
        now = agent.clock()
        author = author or Entity(agent.id, room.platform, str(agent.id), (agent.name,))
        message = Memory(new_id(), MemoryKind.MESSAGE, author.id, room.id, world.id, Content(text=text), now)
        key = EventKey(room.platform, room.account, str(message.id), room.id, "")
        receipt = Receipt(new_id(), key, room.id, author.id, message.id, now)
        turn_input = TurnInput(receipt, message, author, time.monotonic(), lambda receipt: None)
        return cls(agent, new_id(), room, world, [turn_input], actions=agent.catalog.actions)

    @property
    def message(self) -> Memory:
        """The newest message to be answered."""
        return self.inputs[-1].message

    @property
    def recent_inputs(self) -> list[TurnInput]:
        """The newest messages, as many as one reply answers; older ones are in the history."""
        return self.inputs[-MAX_ANSWERED_INPUTS:]

    @property
    def author(self) -> Entity:
        """The author of the newest message."""
        return self.inputs[-1].author

    @property
    def is_regeneration(self) -> bool:
        """Whether a new answer to a message was asked for that had its outcome already."""
        return self.inputs[-1].receipt.edit_state is EditState.REGENERATED

    @property
    def is_care(self) -> bool:
        """Whether one of its messages speaks of distress: its answer is bound by CARE_RULE, and not streamed."""
        return any(turn_input.distress is not None for turn_input in self.inputs)

    @property
    def own_text(self) -> str:
        """What the author wrote in this turn: no quotes, no forwarded text, no description of media."""
        texts = [item.message.content.text for item in self.inputs if item.author.id == self.author.id]
        return own_words("\n".join(texts))

    @property
    def role(self) -> Role:
        """The lowest role in this world of all authors whom this turn answers.

        The lowest, so that no author's request is carried out with another's role.
        """
        first_role, *other_roles = [self.world.role_of(turn_input.author.id) for turn_input in self.inputs]
        return min(first_role, *other_roles, key=lambda role: role.rank) if other_roles else first_role

    @property
    def model_name(self) -> str:
        """The model that is named for its room; empty for a size, and while DEGRADE is in effect."""
        name = self.instructions.current.model
        return name if name and name not in MODEL_SIZES and self.degradation is None else ""

    def apply_instructions(self, parent: Room | None = None) -> None:
        """Answer as the instructions of the room say; `parent` is the channel of a thread."""
        self.instructions = resolve_instructions(self.definition.character.rooms, self.world, self.room, parent)
        if self.degradation is None:
            self.reply_model = self._room_model()
        else:
            self.degrade(self.degradation)

    def _room_model(self) -> ModelType:
        size = self.instructions.current.model
        return ModelType(f"TEXT_{size.upper()}") if size in MODEL_SIZES else ModelType.TEXT_LARGE

    def degrade(self, degradation: Degradation | None) -> None:
        """Answer from now on as a step of DEGRADE says, if there is one."""
        if degradation is not None:
            self.degradation = degradation
            self.context_share = DEGRADED_SHARE
            self.reply_model = DEGRADED_MODELS.get(degradation.step, self._room_model())

    def commit(self) -> None:
        """Pass the commit point: from here on no newer turn supersedes this one.

        Raises CancelledError where the turn was superseded, cancelled or stopped: a stage may have swallowed the
        cancellation.
        """
        if self.superseded_by is not None or self.is_cancelled or self.is_stopped:
            raise asyncio.CancelledError
        self.is_committed = True

    def find_setting(self, name: str) -> str | None:
        """Return a setting: the world's own choice, else the agent's."""
        return self.world.settings.get(name) or self.agent.settings.get(name)

    def find_template(self, name: str) -> str:
        """Return a prompt template: the world's own, else the agent's; raises TemplateError where there is none."""
        source = find_template(name, self.world.settings, self.agent.templates)
        if source is None:
            hint = suggest(name, self.agent.templates, start="; ")
            raise TemplateError(f"there is no template {name!r}{hint}")
        return source

    def template_values(self) -> dict[str, Any]:
        """Return the variables that every template can use, with or without providers; names are sanitized."""
        character, newest = self.agent.character, self.inputs[-1]
        return {
            "agentName": sanitize_name(character.name),
            "actionNames": ", ".join(spec.name for spec in self.actions),
            "characterBio": " ".join(character.background),
            "messageText": truncate_line(newest.message.content.render_text(), self.state.max_message_length),
            "userName": sanitize_name(newest.author.name),
            "roomId": str(self.room.id),
            "roomName": sanitize_name(self.room.name) if self.room.name else "",
            "worldContext": sanitize_name(self.world.name) if self.world.name else "",
            "relevantKnowledge": "",
            "recentMessages": "",
            "openMessages": "",
            "draftText": "",
            "actionResults": self.state.data.get("actionResultsText", ""),
        }

    def get_previous_result(self, action: str) -> ActionResult | None:
        """Return the result of an action that ran earlier in this turn."""
        return self.results.get(action)

    def cite_sources(self, content: Content) -> Content:
        """Return a reply with the links that it cites as `[1]`, and the sites that were read for it, below its text.

        They are those that providers and actions have returned: a link or a number that the model made up is none.
        """
        results = (*self.state.results.values(), *self.state.data.get("actionResults", ()))
        sources = [source for result in results for source in result.values.get(SOURCES_KEY, ())]
        if not sources or not content.text:  # as nearly always
            return content
        text = FORGED_CITATION.sub("", content.text).rstrip()
        cited = set(CITATION.findall(text))
        lines = [f"[{source['number']}] {source['url']}" for source in sources if source.get("number") in cited]
        read = dict.fromkeys(source["site"] for source in sources if not source.get("number"))
        if sites := [site for site in read if site not in self.named_sources]:
            lines.append(user_text("notices.read_sites", sites=", ".join(sites)))
        self.named_sources.update(sites)
        return replace(content, text="\n\n".join(filter(None, [text, "\n".join(lines)])))

    async def reply(self, content: str | Content) -> Memory | None:
        """Send a reply in the room at once, before the turn is over.

        Return it once it is stored and queued; None where a filter stopped it or the content filter left nothing.
        Replayed after a crash, the same reply is not sent twice.
        """
        if self.is_cancelled or self.is_stopped:
            return None
        content = self.cite_sources(Content(text=content) if isinstance(content, str) else content)
        outgoing = self.build_reply(content)
        existing = next((memory for memory in self.replies if memory.id == outgoing.memory.id), None)
        if existing is not None:
            return existing
        if self.agent.filters.is_on or self.world.settings:
            filtered = await self.agent.filters.check_reply(self, outgoing.memory.content)
            if filtered is None:
                return None
            outgoing = replace(outgoing, memory=replace(outgoing.memory, content=filtered))
        if (self.hold_reason or self.agent.outbox.approval is not None) and self.find_hold_reason():
            return await self._hold(outgoing)
        stored = await self.send([await self.with_speech(outgoing)])
        self.replies += stored
        return stored[0] if stored else None

    def find_reactions(self) -> ReactionSet | None:
        """Return the reactions that the turn may set at its message; None where it may set none."""
        adapter, limit = self.agent.outbox.adapters.get(self.room.platform), self.reaction_limit
        is_allowed = limit and self.message.external_id and self.instructions.current.reactions is not False
        if adapter is None or self.is_care or not is_allowed or self.find_hold_reason():
            return None
        has_spare = self.agent.outbox.has_spare(DeliveryKind.REACTION, self.room.id, limit)
        return adapter.find_reactions(self.room) if has_spare else None

    def may_react(self) -> bool:
        """Return whether a reaction can be set at the message now."""
        return self.find_reactions() is not None

    async def react(self, text: str) -> str:
        """React to the message with the emoji in a text once the turn is answered; return the emoji.

        It is the nearest that the platform has, empty where nothing is like it or the turn may set none. The last one
        of a turn is set. Replayed after a crash, it is set once.
        """
        reactions = self.find_reactions()
        emoji = reactions.find(text) if reactions is not None else ""
        if emoji:
            result, now = {"emoji": emoji}, self.agent.clock()
            step = Step(self.id, REACTION_STEP, REACTION_STEP, StepState.DONE, result=result, recorded_at=now)
            await self.agent.store.ledger.save_step(step)
            self.reaction = emoji
        return emoji

    def build_reaction(self) -> OutgoingReply:
        """Build the reaction of an answered turn, or the removal of an earlier one."""
        earlier, message = self.earlier_reaction, self.message
        memory = Memory(
            id=derived_id("reaction", self.room.id, message.external_id, self.agent.id, self.reaction),
            kind=MemoryKind.REACTION,
            entity_id=self.agent.id,
            room_id=self.room.id,
            world_id=self.world.id,
            content=Content(text=self.reaction, source=self.room.platform, in_reply_to=message.id),
            created_at=self.agent.clock(),
            external_id=message.external_id,
            source_id=message.id,
            turn_id=self.id,
        )
        replaced = earlier.id if earlier is not None else ""
        return OutgoingReply(memory, self.room, reply_to=message.external_id, replaced_reaction=replaced)

    @property
    def reply_room(self) -> Room:
        """The room in which it answers: that of its message, or its thread."""
        return self.thread or self.room

    @property
    def reply_to(self) -> str:
        """The platform's id of the message that its replies answer; empty in a thread, where that message is not."""
        return self.message.external_id if self.thread is None else ""

    def may_open_thread(self) -> bool:
        """Return whether a thread can be opened at the message now, or an earlier attempt has begun to open it."""
        if self.thread_name:
            return True
        adapter = self.agent.outbox.adapters.get(self.room.platform)
        rule = self.instructions.current.threads or ThreadRule.ADMINS
        if adapter is None or rule is ThreadRule.OFF or self.author.is_bot or not self.message.external_id:
            return False
        if self.is_care or self.replaces is not None or self.thread is not None or self.find_hold_reason():
            return False
        if rule is ThreadRule.ADMINS and not self.role.is_at_least(Role.ADMIN):
            return False
        return adapter.can_open_thread(self.room) and self.agent.outbox.has_spare(
            DeliveryKind.THREAD, self.room.id, self.thread_limit
        )

    async def open_thread(self, name: str) -> str:
        """Open a thread with a name at the message, and answer there from now on; return why not, empty if it is open.

        Of one turn there is one thread: repeated, also after a crash, this opens no other. Raises StoreUnavailable.
        """
        if self.thread is not None:
            return ""
        if not self.may_open_thread():
            return "no thread can be opened here now"
        name = self.thread_name or await self._filter_name(name)
        if not name:
            return "its name was stopped by a filter, or is empty"
        adapter = self.agent.outbox.adapters[self.room.platform]
        await self._note_thread(name)
        opening = await self.agent.outbox.open_thread(self.room, self.id, name, self.message.external_id)
        if opening.state is not DeliveryState.SENT:
            return opening.cause or f"it is {opening.state}"
        room = adapter.build_thread(opening, self.room)
        await self.agent.store.worlds.save_world(replace(self.world, roles={}, grants={}, settings={}), [room])
        await self._note_thread(name, room.id)
        self.thread = room
        self.notes.append(f"it opened the thread {name!r}")
        return ""

    async def _filter_name(self, name: str) -> str:
        """Return what the filters let pass of the name of a thread, as one line."""
        content: Content | None = Content(text=" ".join(name.split()))
        if content is not None and (self.agent.filters.is_on or self.world.settings):
            content = await self.agent.filters.check_reply(self, content)
        if content is not None:
            content = self.agent.outbox.filter_content(content, self.room.id)
        return "" if content is None or self.find_hold_reason() else " ".join(content.text.split())

    async def _note_thread(self, name: str, room_id: UUID | None = None) -> None:
        self.thread_name, now = name, self.agent.clock()
        result = {"name": name, **({"room": str(room_id)} if room_id is not None else {})}
        await self.agent.store.ledger.save_step(
            Step(self.id, THREAD_STEP, THREAD_STEP, StepState.DONE, result=result, recorded_at=now)
        )

    async def restore_thread(self, steps: Iterable[Step]) -> None:
        """Take up the thread that an earlier attempt at this turn has opened, or begun to open."""
        noted = next((step.result for step in steps if step.kind == THREAD_STEP), None)
        if noted is not None:
            self.thread_name = noted["name"]
            self.thread = await self.agent.store.worlds.room(UUID(noted["room"])) if "room" in noted else None
            self.notes += [f"it opened the thread {self.thread_name!r}"] if self.thread is not None else []

    def find_hold_reason(self) -> str:
        """Return why the replies of the turn wait for a person; empty if they do not."""
        approval = self.agent.outbox.approval
        return self.hold_reason or (approval.find_reason(self.room) if approval is not None else "")

    async def _hold(self, outgoing: OutgoingReply) -> Memory:
        """Keep a reply for the commit, in the journal too, so that it is not lost where the process dies before that.

        Of files that only an action has, the journal has none.
        """
        result = {"index": outgoing.reply_index, "text": outgoing.memory.content.text}
        key = f"{HELD_STEP}:{outgoing.reply_index}"
        step = Step(self.id, key, HELD_STEP, StepState.DONE, result=result, recorded_at=self.agent.clock())
        await self.agent.store.ledger.save_step(step)
        self.held_replies.append(outgoing)
        self.replies.append(outgoing.memory)
        return outgoing.memory

    def restore_held(self, steps: Iterable[Step]) -> None:
        """Take up the replies and the reaction that an earlier attempt at this turn has kept for the commit."""
        next_index, steps = self.next_reply_index, list(steps)
        self.reaction = next((step.result["emoji"] for step in steps if step.kind == REACTION_STEP), "")
        for step in sorted((step for step in steps if step.kind == HELD_STEP), key=lambda step: step.result["index"]):
            self.next_reply_index = step.result["index"]
            self.held_replies.append(self.build_reply(Content(text=step.result["text"])))
        self.next_reply_index = next_index
        self.replies += [reply.memory for reply in self.held_replies]

    async def find_unnotified(self) -> frozenset[UUID]:
        """Return the authors to whom the AI notice is due: it precedes the turn's first reply. Raises StoreUnavailable.

        A bot gets none, and none is sent where the platform says it in another place.
        """
        if self.unnotified is None:
            has_minor, rule = self.has_minor, self.notice_rule
            self.trace.has_minor = has_minor
            if not (has_minor or rule.is_on):
                self.unnotified = frozenset()
                return self.unnotified
            adapter = self.agent.outbox.adapters.get(self.room.platform)
            rules = {}
            for author in {item.author.id: item.author for item in self.inputs if not item.author.is_bot}.values():
                is_minor = self.room_is_for_minors or author.id in self.agent.store.marks.minors
                has_own_rule = is_minor and MinorRule.NOTICE in self.minor_rules
                rules[author.id] = rule.at_least_every(MINOR_INTERVAL) if has_own_rule else rule
            is_shown = adapter is None or adapter.shows_notices or adapter.labels_posts
            notices = self.agent.outbox.notices
            self.unnotified = await notices.find_due(rules, self.agent.clock()) if is_shown else frozenset()
        return self.unnotified

    async def send(
        self, replies: Sequence[OutgoingReply], receipts: Sequence[Receipt] = (), action_results: Sequence[Memory] = ()
    ) -> list[Memory]:
        """Commit replies as `Outbox.commit` does, together with the AI notice where it is due."""
        has_text = any(reply.memory.kind is MemoryKind.MESSAGE for reply in replies)
        unnotified = await self.find_unnotified() if has_text else frozenset()
        if not unnotified:
            return await self.agent.outbox.commit(replies, receipts, action_results)
        self.unnotified = frozenset()
        notice = Notice(self.agent.notice_text, unnotified)
        stored = await self.agent.outbox.commit(replies, receipts, action_results, notice=notice)
        if not stored:
            self.unnotified = unnotified
        return stored

    def report_progress(self, text: str) -> None:
        """Show how far the running action is, in the message that says that it is under way.

        That is posted once the action has taken five seconds, and edited every three seconds at most, where the
        platform has edits; when the action ends, it shows what was reported last. Anywhere else than in a running
        action this does nothing.
        """
        if self.on_progress is not None:
            self.on_progress(text)

    @property
    def minor_rules(self) -> frozenset[MinorRule]:
        """What holds for minors."""
        return parse_minor_rules(self.agent.settings.get(MINORS))

    @property
    def room_is_for_minors(self) -> bool:
        """Whether an admin has marked the room, or the one around it, as one of minors."""
        settings = self.world.settings
        rooms = (self.room.id, self.room.parent_id)
        return bool(settings) and any(settings.get(room_setting(MINORS, room)) == "on" for room in rooms if room)

    @property
    def has_minor(self) -> bool:
        """Whether one of the authors, or the room, is marked as a minor's."""
        minors = self.agent.store.marks.minors
        return self.room_is_for_minors or (bool(minors) and any(item.author.id in minors for item in self.inputs))

    @property
    def is_spoken(self) -> bool:
        """Whether replies of the turn are spoken: they are not shown while they are written then."""
        return self.replaces is None and self.agent.speech.is_due(self.room, self.message.content)

    async def with_speech(self, outgoing: OutgoingReply) -> OutgoingReply:
        """Return a reply with its spoken form, where there is to be one."""
        if not self.is_spoken or self.agent.outbox.has_draft(self.id):
            return outgoing
        content, problem = await self.agent.speech.add_speech(outgoing.memory.content, self.room)
        if problem:
            self.notes.append(problem)
        return replace(outgoing, memory=replace(outgoing.memory, content=content))

    def begin_step(self, number: int) -> None:
        """Number the replies of a step apart from those of other steps.

        A replay that skips a step, or runs one again, so uses the same id for each reply.
        """
        self.next_reply_index = number * REPLIES_PER_STEP

    def has_replied_in(self, number: int) -> bool:
        """Return whether a reply of this step was stored, by this attempt at the turn or an earlier one.

        To be asked while the step is the last one that was begun. Of an earlier attempt the first replies count.
        """
        reply_ids = {memory.id for memory in self.replies}
        first_index = number * REPLIES_PER_STEP
        end = max(self.next_reply_index, first_index + MAX_CHECKED_REPLIES) if reply_ids else first_index
        return any(derived_id(self.id, "reply", str(index)) in reply_ids for index in range(first_index, end))

    def peek_reply(self) -> OutgoingReply:
        """Return the turn's next reply, still empty, without counting it."""
        reply = self.build_reply(Content())
        self.next_reply_index -= 1
        return reply

    def build_reply(self, content: Content) -> OutgoingReply:
        """Build the turn's next reply for the outbox."""
        reply_index = self.next_reply_index
        self.next_reply_index += 1
        memory = Memory(
            id=derived_id(self.id, "reply", str(reply_index)),
            kind=MemoryKind.MESSAGE,
            entity_id=self.agent.id,
            room_id=self.reply_room.id,
            world_id=self.world.id,
            content=replace(content, in_reply_to=self.message.id, source=self.message.content.source),
            created_at=self.agent.clock(),
            turn_id=self.id,
            metadata=self._note_authors(),
        )
        if self.replaces is not None and reply_index == 0:
            earlier = self.replaces
            revisions = earlier.metadata.get(REVISIONS_KEY, ())
            if earlier.turn_id != self.id:  # else an earlier attempt at this turn has replaced it
                revisions = list_revisions(earlier, self.agent.clock())
            given = {name: earlier.metadata[name] for name in (NOTICE_KEY,) if name in earlier.metadata}
            metadata = {**memory.metadata, **given, REVISIONS_KEY: revisions}
            memory = replace(memory, id=earlier.id, created_at=earlier.created_at, metadata=metadata)
            return OutgoingReply(memory, self.reply_room, reply_index, self.reply_to, self.replaces)
        return OutgoingReply(memory, self.reply_room, reply_index, self.reply_to)

    def _note_authors(self) -> dict[str, Any]:
        """Return the metadata that names who else wrote what a reply in private may repeat."""
        if not self.room.type.is_direct:
            return {}  # there the words of others are in the conversation itself
        authors = self.foreign_authors()
        return {AUTHORS_KEY: [str(author) for author in authors]} if authors else {}

    def foreign_authors(self) -> set[UUID]:
        """Return who else than the author of the newest message wrote what the model has read in this turn."""
        own_ids = {self.author.id, self.agent.id}
        return (self.state.authors() | self.result_authors) - own_ids


@dataclass(frozen=True, slots=True)
class TurnEnded(Event):
    """The work on a message ended, evaluators included; `turn.trace` has its steps. It may have been superseded."""

    turn: Turn
