"""One message being answered."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

from bot.agent import Agent
from bot.domain.component_specs import ActionSpec
from bot.domain.content import Content
from bot.domain.environment import Entity, Role, Room, World
from bot.domain.ids import derived_id
from bot.domain.ledger import ModelCall, Receipt
from bot.domain.memory import Memory, MemoryKind
from bot.domain.results import ActionResult, State
from bot.outbound.message_parts import OutgoingReply

REPLIES_PER_STEP = 1_000
MAX_ANSWERED_INPUTS = 20


@dataclass(slots=True, eq=False)
class TurnInput:
    """One message that a turn is to answer, and the receipt that its outcome goes to.

    `arrived` is on the monotonic clock, in seconds; `settle` is told the final receipt; `calls` are
    the model calls made for this message so far; `is_learnt` once the evaluators have looked at it.
    """

    receipt: Receipt
    message: Memory
    author: Entity
    received_monotonic: float
    resolve: Callable[[Receipt], None]
    calls: list[ModelCall] = field(default_factory=list)
    is_evaluated: bool = False


@dataclass(slots=True, eq=False)
class Turn:
    """One message being answered, with whatever earlier ones it took over; the one mutable traveller.

    `inputs` are in their room's order and never empty; `results` holds what actions did, by name;
    `actions` are those that the author may use just now; `successor` is the newer turn that took
    this one's messages over; `next_reply` numbers what is said; a turn that `is_fresh` has nothing in
    the journal from an earlier try. One that `is_committed` is past its point of no return; one that
    `is_called_off` says no more, because its messages were edited or are gone. The first words of one
    that `replaces` something take the place of that.
    """

    agent: Agent
    id: UUID
    room: Room
    world: World
    inputs: list[TurnInput]
    state: State = field(default_factory=State)
    results: dict[str, ActionResult] = field(default_factory=dict)
    replies: list[Memory] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    actions: tuple[ActionSpec, ...] = ()
    superseded_by: "Turn | None" = None
    next_reply_index: int = 0
    is_fresh: bool = False
    is_committed: bool = False
    is_cancelled: bool = False
    replaces: Memory | None = None

    @property
    def message(self) -> Memory:
        """The newest message to be answered."""
        return self.inputs[-1].message

    @property
    def recent_inputs(self) -> list[TurnInput]:
        """The newest messages, as many as one reply answers; older ones stand in the history, if anywhere."""
        return self.inputs[-MAX_ANSWERED_INPUTS:]

    @property
    def author(self) -> Entity:
        """Who wrote the newest message."""
        return self.inputs[-1].author

    @property
    def role(self) -> Role:
        """What every author whom this turn answers may do in this world, by the platform's word.

        The lowest of their roles: nobody's request is carried out with somebody else's.
        """
        first_role, *other_roles = [self.world.role_of(turn_input.author.id) for turn_input in self.inputs]
        return min(first_role, *other_roles, key=lambda role: role.rank) if other_roles else first_role

    def commit(self) -> None:
        """Pass the point of no return: from here on nothing newer takes this turn over.

        Ends a turn that was taken over or called off already, by raising CancelledError: what it called
        may have swallowed the cancellation.
        """
        if self.superseded_by is not None or self.is_cancelled:
            raise asyncio.CancelledError
        self.is_committed = True

    def find_setting(self, name: str) -> str | None:
        """Find a setting: what the people of this world have chosen for it, else the agent's own."""
        return self.world.settings.get(name) or self.agent.settings.get(name)

    def get_previous_result(self, action: str) -> ActionResult | None:
        """Find what an action did earlier in this turn."""
        return self.results.get(action)

    async def reply(self, content: str | Content) -> Memory | None:
        """Say something in the room at once, before the turn is over.

        Kept and on its way when this returns; None where nothing was left to say. Replayed after a
        crash, the same reply is not said twice.
        """
        if self.is_cancelled:
            return None
        if isinstance(content, str):
            content = Content(text=content)
        outgoing = self.build_reply(content)
        existing = next((memory for memory in self.replies if memory.id == outgoing.memory.id), None)
        if existing is not None:
            return existing
        stored = await self.agent.outbox.commit([outgoing])
        self.replies += stored
        return stored[0] if stored else None

    def begin_step(self, number: int) -> None:
        """Number what a step says apart from what the others say.

        So a replay that skips a step, or runs one again, still calls each reply by the same id.
        """
        self.next_reply_index = number * REPLIES_PER_STEP

    def peek_reply(self) -> OutgoingReply:
        """Name the turn's next reply, of which nothing is known yet."""
        reply = self.build_reply(Content())
        self.next_reply_index -= 1
        return reply

    def build_reply(self, content: Content) -> OutgoingReply:
        """Make the turn's next reply, ready for the outbox."""
        reply_index = self.next_reply_index
        self.next_reply_index += 1
        memory = Memory(
            id=derived_id(self.id, "reply", str(reply_index)),
            kind=MemoryKind.MESSAGE,
            entity_id=self.agent.id,
            room_id=self.room.id,
            world_id=self.world.id,
            content=replace(content, in_reply_to=self.message.id, source=self.message.content.source),
            created_at=self.agent.clock(),
            turn_id=self.id,
        )
        if self.replaces is not None and reply_index == 0:
            memory = replace(memory, id=self.replaces.id, created_at=self.replaces.created_at)
            return OutgoingReply(memory, self.room, reply_index, self.message.external_id, self.replaces)
        return OutgoingReply(memory, self.room, reply_index, self.message.external_id)
