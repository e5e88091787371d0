"""`Simulation`: one character in a simulated room, by itself: its store is in memory, and nothing is sent.

Its clock stands still between the steps. A step returns a `StepResult` once all that it leads to has ended: the answer,
its deliveries, the evaluators and the listeners.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

from bot.background.scheduler import Scheduler
from bot.domain.content import Attachment, Content, MediaKind, MentionContext, Quotation
from bot.domain.environment import ChannelType, Entity, ParticipantState, Role, Room, World
from bot.domain.ids import derived_id, new_id
from bot.domain.inbound import InboundMessage, Reaction
from bot.domain.ledger import Delivery, DeliveryKind, Receipt
from bot.domain.proposal import Proposal
from bot.domain.reactions import ReactionSet
from bot.plugin_system.components import Action
from bot.plugin_system.plugin import Plugin
from bot.receipts import TracedCall
from bot.runtime.agent_runtime import AgentRuntime
from bot.runtime.character_reload import AgentConfig
from bot.runtime.runtime import Runtime
from bot.settings import Layer
from bot.store import InMemoryStore
from bot.testing.manual_clock import ManualClock
from bot.testing.recording_adapter import RecordingAdapter
from bot.turn import Agent, Turn, TurnEnded

STEP_SECONDS = 20.0  # between two steps; more than a burst lasts
SEND_TIMEOUT = 5.0  # seconds
MAX_TASKS = 1_000  # of one step
# No pause of real time, no repeated calls, and one process.
SETTINGS = {"BURST_PAUSE": "0", "MODEL_RETRIES": "0", "BOT_ROLE": "all", "STREAMING": "false"}


@dataclass(frozen=True, slots=True)
class Person:
    """A person in a simulated room; `name` identifies them."""

    name: str
    role: Role = Role.MEMBER
    is_bot: bool = False


@dataclass(frozen=True, slots=True)
class SimulatedRoom:
    """The room of a simulation: name, kind, the platform that it is said to be on, and how the agent takes part.

    With `has_threads` the platform lets the agent open threads in a group.
    """

    name: str = "lobby"
    kind: ChannelType = ChannelType.GROUP
    platform: str = "test"
    state: ParticipantState = ParticipantState.DEFAULT
    has_threads: bool = False


@dataclass(frozen=True, slots=True)
class ActionRun:
    """An action that was run, and its validated arguments."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the character made of one step.

    `message_id` names the message of the step for later ones, `reply_id` the first reply. `receipt` is None for a step
    without a message, `reactions` are the emoji that the character has set. `turns` are those that ended in the step,
    `calls` their model calls with request and result.
    """

    message_id: str = ""
    receipt: Receipt | None = None
    deliveries: tuple[Delivery, ...] = ()
    drafts: tuple[Proposal, ...] = ()
    actions: tuple[ActionRun, ...] = ()
    turns: tuple[Turn, ...] = ()
    task_count: int = 0
    reply_id: str = ""
    reactions: tuple[str, ...] = ()

    @property
    def replies(self) -> tuple[str, ...]:
        """The texts that the character has sent."""
        return self._texts(DeliveryKind.REPLY)

    @property
    def notices(self) -> tuple[str, ...]:
        """The texts that no model wrote: AI notices, and references to help for people in distress."""
        return (*self._texts(DeliveryKind.NOTICE), *self._texts(DeliveryKind.REFERRAL))

    @property
    def text(self) -> str:
        """What the character says: the replies, else the texts of the drafts."""
        return "\n".join(self.replies or [draft.content.text for draft in self.drafts])

    @property
    def calls(self) -> tuple[TracedCall, ...]:
        """The model calls of the turns."""
        return tuple(call for turn in self.turns for call in turn.trace.calls)

    @property
    def cost(self) -> float | None:
        """The cost in US dollars of the calls whose price is known; None without any."""
        return None if self.receipt is None else self.receipt.cost

    def _texts(self, kind: DeliveryKind) -> tuple[str, ...]:
        return tuple(delivery.content.text for delivery in self.deliveries if delivery.kind is kind)


class Simulation:
    """One running character in a simulated room; valid inside `run_simulation`.

    Steps follow one another: each ends before the next may begin.
    """

    def __init__(
        self,
        agent_runtime: AgentRuntime,
        adapter: RecordingAdapter,
        clock: ManualClock,
        room: SimulatedRoom,
        people: Iterable[Person],
        action_runs: list[ActionRun],
    ) -> None:
        self.clock = clock
        self._runtime, self._adapter = agent_runtime, adapter
        self._people = {person.name: person for person in people}
        self._action_runs = action_runs
        self._platform = room.platform
        self._world_id = derived_id(room.platform, "world")
        room_id = derived_id(room.platform, "room", room.name)
        self.room = Room(room_id, self._world_id, room.kind, room.platform, room.name, "account", room.name)
        self._turns: list[Turn] = []
        self._turn_ended = asyncio.Condition()
        self._contents: dict[str, tuple[Entity, Content, int]] = {}
        self._memory_ids: dict[str, UUID] = {}  # of the history
        self._own_entity = Entity(self.agent.id, room.platform, "agent", (self.agent.name,))
        self._numbers = count(1)
        self._scheduler = Scheduler(agent_runtime.agent, agent_runtime.registry)
        self._draft_ids: set[str] = set()
        agent_runtime.agent.events.subscribe(TurnEnded, self._on_turn_ended, name="simulation")

    @property
    def agent(self) -> Agent:
        """The running agent."""
        return self._runtime.agent

    async def say(
        self,
        author: str,
        text: str,
        *,
        reply_to: str = "",
        image: str = "",
        is_mention: bool = False,
        seconds: float = STEP_SECONDS,
    ) -> StepResult:
        """Write a message as a person, `seconds` after the step before.

        `reply_to` is the id of an earlier message or reply; `image` describes a picture that comes with it. With
        `is_mention` the platform reports that the message mentions the character.
        """
        message_id = self._add_content(self.find_person(author), text, reply_to, image, is_mention=is_mention)
        return await self._run_step(lambda: self._submit(message_id), message_id, seconds=seconds)

    async def add_history(
        self,
        author: str,
        text: str,
        *,
        reply_to: str = "",
        image: str = "",
        is_mention: bool = False,
        is_addressed: bool | None = None,
        seconds: float = 0.0,
    ) -> StepResult:
        """Store a message of a person, or without `author` of the character, as one that was processed before.

        `is_addressed` is what a model has decided about it.
        """
        self.clock.advance(seconds)
        agent, entity = self.agent, self.find_person(author) if author else self._own_entity
        message_id = self._add_content(entity, text, reply_to, image, is_mention=is_mention)
        inbound = self._build_inbound(message_id)
        message = inbound.message
        if not author:
            content = Content(text, source=self._platform, in_reply_to=self._memory_ids.get(reply_to))
            message = replace(message, content=content, turn_id=new_id())
        self._memory_ids[message_id] = message.id
        await agent.store.worlds.save_world(inbound.world, [self.room])
        await agent.store.entities.save_entities([entity], self.room.id)
        await agent.store.memories.add([message])
        if author:
            self._runtime.pipeline.counters.recall(message, entity, is_addressed)
        return StepResult(message_id)

    def _add_content(self, entity: Entity, text: str, reply_to: str, image: str, *, is_mention: bool) -> str:
        """Note the content of a new message; return its id."""
        message_id = f"message-{next(self._numbers)}"
        quotation, mention = self._quote(reply_to), MentionContext(is_mention=is_mention)
        if quotation is not None:
            is_reply = quotation.author_id == self.agent.id
            mention = replace(mention, is_reply=is_reply, replies_to=quotation.author_id)
        attachments: tuple[Attachment, ...] = ()
        if image:
            attachments = (Attachment(f"image-{message_id}", MediaKind.IMAGE, title="picture", description=image),)
        content = Content(text, source=self._platform, mention=mention, quotation=quotation, attachments=attachments)
        self._contents[message_id] = entity, content, 0
        return message_id

    async def submit(self, inbound: InboundMessage) -> StepResult:
        """Submit a message that was built elsewhere, at its own time, unless that is past.

        Of earlier steps the simulation keeps nothing then: there may be thousands.
        """
        self._turns.clear()
        self.clock.advance(max(0.0, (inbound.message.created_at - self.clock.now()).total_seconds()))
        return await self._run_step(lambda: self._submit_message(inbound), inbound.key.message_id, seconds=0.0)

    async def edit(self, message_id: str, text: str) -> StepResult:
        """Edit a message as its author."""
        entity, content, revision = self._contents[message_id]
        self._contents[message_id] = entity, replace(content, text=text), revision + 1
        return await self._run_step(lambda: self._submit(message_id), message_id)

    async def delete(self, message_id: str) -> StepResult:
        """Delete a message as its author."""
        edits = self._runtime.handle.edits
        return await self._run_step(lambda: edits.delete_messages(self.room.id, [message_id]), message_id)

    async def react(self, author: str, message_id: str, emoji: str) -> StepResult:
        """React to a message or a reply as a person."""
        entity, now = self.find_person(author), self.clock.now()
        reaction = Reaction(self._build_world(), self.room, entity, message_id, emoji, now)
        return await self._run_step(lambda: self._runtime.handle.edits.add_reaction(reaction), message_id)

    async def join(self, name: str) -> StepResult:
        """Report that a person joined the world of the room."""
        world, member = self._build_world(), self.find_person(name)
        membership = self._runtime.handle.membership
        return await self._run_step(lambda: membership.add_member(world, member, event_id=f"join-{name}"))

    async def wait(self, duration: timedelta) -> StepResult:
        """Advance the clock, and run the tasks that become due in it, at the time of each."""
        return await self._run_step(lambda: self._pass_time(duration))

    async def set_state(self, state: ParticipantState) -> None:
        """Set how the agent takes part in the room."""
        worlds = self.agent.store.worlds
        await worlds.save_world(self._build_world(), [self.room])
        await worlds.set_participant_state(self.room.id, state)

    def find_person(self, name: str) -> Entity:
        """Return the entity of a person; unknown names are those of members."""
        person = self._people.setdefault(name, Person(name))
        return Entity(derived_id(self._platform, "entity", name), self._platform, name, (name,), person.is_bot)

    async def _submit(self, message_id: str) -> Receipt:
        return await self._submit_message(self._build_inbound(message_id))

    def _build_inbound(self, message_id: str) -> InboundMessage:
        entity, content, revision = self._contents[message_id]
        return InboundMessage.build(
            self._build_world(),
            self.room,
            entity,
            content,
            created_at=self.clock.now(),
            message_id=message_id,
            event_id=f"event-{message_id}-{revision}",
            revision=revision,
        )

    async def _submit_message(self, inbound: InboundMessage) -> Receipt:
        handle = self._runtime.handle
        receipt = await (handle.edits.submit_edit(inbound) if inbound.key.revision else handle.submit(inbound))
        if not receipt.outcome.is_final:
            async with self._turn_ended:
                await self._turn_ended.wait_for(lambda: self._has_ended(receipt.id))
        return await handle.wait_outcome(receipt.id)

    async def _pass_time(self, duration: timedelta) -> int:
        end, task_count = self.clock.now() + duration, 0
        workers = self._runtime.registry.workers
        while task_count < MAX_TASKS:
            due = await self.agent.store.tasks.next_due(workers)
            if due is None or due > end:
                break
            self.clock.advance(max(0.0, (due - self.clock.now()).total_seconds()))
            if not (started := await self._scheduler.run_due()):
                break
            task_count += started
        self.clock.advance((end - self.clock.now()).total_seconds())
        return task_count

    async def _run_step(
        self, act: Callable[[], Awaitable[object]], message_id: str = "", *, seconds: float = STEP_SECONDS
    ) -> StepResult:
        self.clock.advance(seconds)
        reaction_count = len(self._adapter.reacted)
        sent_count, action_count, turn_count = len(self._adapter.sent), len(self._action_runs), len(self._turns)
        outcome = await act()
        agent = self.agent
        await agent.events.flush()
        await agent.outbox.drain(SEND_TIMEOUT)
        waiting = await self._runtime.handle.operations.proposals.waiting()
        drafts = [draft for draft in waiting if draft.id not in self._draft_ids]
        self._draft_ids |= {draft.id for draft in drafts}
        sent = self._adapter.sent[sent_count:]
        numbers = (number for number, part in enumerate(sent, sent_count + 1) if part.kind is DeliveryKind.REPLY)
        return StepResult(
            message_id,
            outcome if isinstance(outcome, Receipt) else None,
            tuple(sent),
            tuple(drafts),
            tuple(self._action_runs[action_count:]),
            tuple(self._turns[turn_count:]),
            outcome if type(outcome) is int else 0,
            next((f"sent-{number}" for number in numbers), ""),
            tuple(part.content.text for part in self._adapter.reacted[reaction_count:] if part.content.text),
        )

    def _quote(self, reply_to: str) -> Quotation | None:
        if not reply_to:
            return None
        if reply_to in self._contents:
            entity, content, _ = self._contents[reply_to]
            return Quotation(content.text, entity.name, entity.id, reply_to)
        sent = self._adapter.sent[int(reply_to.removeprefix("sent-")) - 1]
        return Quotation(sent.content.text, self.agent.name, self.agent.id, reply_to)

    def _build_world(self) -> World:
        roles = {self.find_person(name).id: person.role for name, person in self._people.items()}
        return World(self._world_id, self._platform, "world", "The World", roles)

    def _has_ended(self, receipt_id: UUID) -> bool:
        return any(item.receipt.id == receipt_id for turn in self._turns for item in turn.inputs)

    async def _on_turn_ended(self, event: TurnEnded) -> None:
        async with self._turn_ended:
            self._turns.append(event.turn)
            self._turn_ended.notify_all()


@asynccontextmanager
async def run_simulation(
    config: AgentConfig,
    *,
    model: Plugin | None = None,
    room: SimulatedRoom = SimulatedRoom(),
    people: Iterable[Person] = (),
    settings: Mapping[str, str] | None = None,
    clock: ManualClock | None = None,
) -> AsyncIterator[Simulation]:
    """Run a character in a simulated room, with a store in memory.

    `model` is a plugin whose models are used in place of all others; None for the models of the configuration. The
    `settings` take precedence over the configuration's. Raises ConfigError as `Runtime` does.
    """
    clock, action_runs = clock or ManualClock(), list[ActionRun]()
    plugins = [_record_actions(plugin, action_runs) for plugin in config.plugins]
    if model is not None:
        plugins = [*map(_without_models, plugins), model]
    config = replace(
        config,
        plugins=tuple(plugins),
        settings=config.settings.with_layer(Layer("the scene", {**SETTINGS, **(settings or {})})),
        store=InMemoryStore(clock.now),
        clock=clock.now,
        is_idle=True,
        reload=None,
        build_tools=None,
    )
    adapter = _SimulatedAdapter(room)
    async with Runtime([config], is_strict=True) as runtime:
        await runtime.connect(adapter)
        agent_runtime = runtime.agents[0]
        agent_runtime.pipeline.counters.attention.waits_for_bots = False  # steps follow one another
        simulation = Simulation(agent_runtime, adapter, clock, room, people, action_runs)
        if room.state is not ParticipantState.DEFAULT:
            await simulation.set_state(room.state)
        yield simulation


class _SimulatedAdapter(RecordingAdapter):
    def __init__(self, room: SimulatedRoom) -> None:
        super().__init__(
            reactions=ReactionSet(), has_threads=room.has_threads
        )  # the audience is trusted: the limits of messages a minute are of real time
        self.platform = room.platform  # type: ignore[misc]  # one class stands for every platform


def _without_models(plugin: Plugin) -> Plugin:
    """Return a plugin without models; one that brings nothing else for a turn is not set up, nor are its services."""
    if not plugin.models:
        return plugin
    if plugin.actions or plugin.providers or plugin.evaluators:
        return replace(plugin, models=())
    return Plugin(plugin.name, plugin.description, settings=plugin.settings, schema=plugin.schema)


def _record_actions(plugin: Plugin, runs: list[ActionRun]) -> Plugin:
    return replace(plugin, actions=[_record_action(action, runs) for action in plugin.actions])


def _record_action(action: Action[Any], runs: list[ActionRun]) -> Action[Any]:
    handle = action.handler

    async def record(turn: Turn, **arguments: Any) -> Any:
        runs.append(ActionRun(action.spec.name, arguments))
        return await handle(turn, **arguments)

    return replace(action, handler=record)
