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
from bot.outbound.message_parts import Outgoing

REPLIES_A_STEP = 1_000
MOST_LISTED = 20


@dataclass(slots=True, eq=False)
class Input:
    """One message that a turn is to answer, and the receipt that its outcome goes to.

    `arrived` is on the monotonic clock, in seconds; `settle` is told the final receipt; `calls` are
    the model calls made for this message so far; `is_learnt` once the evaluators have looked at it.
    """

    receipt: Receipt
    message: Memory
    author: Entity
    arrived: float
    settle: Callable[[Receipt], None]
    calls: list[ModelCall] = field(default_factory=list)
    is_learnt: bool = False


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
    inputs: list[Input]
    state: State = field(default_factory=State)
    results: dict[str, ActionResult] = field(default_factory=dict)
    replies: list[Memory] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    actions: tuple[ActionSpec, ...] = ()
    successor: "Turn | None" = None
    next_reply: int = 0
    is_fresh: bool = False
    is_committed: bool = False
    is_called_off: bool = False
    replaces: Memory | None = None

    @property
    def message(self) -> Memory:
        """The newest message to be answered."""
        return self.inputs[-1].message

    @property
    def listed(self) -> list[Input]:
        """The newest messages, as many as one reply answers; older ones stand in the history, if anywhere."""
        return self.inputs[-MOST_LISTED:]

    @property
    def author(self) -> Entity:
        """Who wrote the newest message."""
        return self.inputs[-1].author

    @property
    def role(self) -> Role:
        """What every author whom this turn answers may do in this world, by the platform's word.

        The lowest of their roles: nobody's request is carried out with somebody else's.
        """
        first, *others = [self.world.role_of(one.author.id) for one in self.inputs]
        return min(first, *others, key=lambda role: role.rank) if others else first

    def commit(self) -> None:
        """Pass the point of no return: from here on nothing newer takes this turn over.

        Ends a turn that was taken over or called off already, by raising CancelledError: what it called
        may have swallowed the cancellation.
        """
        if self.successor is not None or self.is_called_off:
            raise asyncio.CancelledError
        self.is_committed = True

    def setting(self, name: str) -> str | None:
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
        if self.is_called_off:
            return None
        if isinstance(content, str):
            content = Content(text=content)
        outgoing = self.outgoing(content)
        said = next((memory for memory in self.replies if memory.id == outgoing.memory.id), None)
        if said is not None:
            return said
        kept = await self.agent.outbox.commit([outgoing])
        self.replies += kept
        return kept[0] if kept else None

    def begin_step(self, number: int) -> None:
        """Number what a step says apart from what the others say.

        So a replay that skips a step, or runs one again, still calls each reply by the same id.
        """
        self.next_reply = number * REPLIES_A_STEP

    def upcoming(self) -> Outgoing:
        """Name the turn's next reply, of which nothing is known yet."""
        reply = self.outgoing(Content())
        self.next_reply -= 1
        return reply

    def outgoing(self, content: Content) -> Outgoing:
        """Make the turn's next reply, ready for the outbox."""
        ordinal = self.next_reply
        self.next_reply += 1
        memory = Memory(
            id=derived_id(self.id, "reply", str(ordinal)),
            kind=MemoryKind.MESSAGE,
            entity_id=self.agent.id,
            room_id=self.room.id,
            world_id=self.world.id,
            content=replace(content, in_reply_to=self.message.id, source=self.message.content.source),
            created_at=self.agent.clock(),
            turn_id=self.id,
        )
        if self.replaces is not None and ordinal == 0:
            memory = replace(memory, id=self.replaces.id, created_at=self.replaces.created_at)
            return Outgoing(memory, self.room, ordinal, self.message.external_id, self.replaces)
        return Outgoing(memory, self.room, ordinal, self.message.external_id)
