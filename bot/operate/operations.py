"""`Operations`: what operators do with one agent, beside the running bot or on the store of a stopped one.

The parts of replies that have not arrived, and what comes of a decision about them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol, Self
from uuid import UUID

from pydantic import Field

from bot.concurrency.tasks import crash_point
from bot.domain.environment import Entity, MarkedPerson, MarkOrigin, PersonMark, Room, TakeOver, World
from bot.domain.inbound import ErasureResult
from bot.domain.instructions import RoomInstructions
from bot.domain.ledger import DROPPED_CAUSE, CostEntry, Delivery, DeliveryState
from bot.domain.memory import Memory
from bot.domain.proposal import Proposal, ProposalState
from bot.errors import ConfigError
from bot.event_bus import EventBus
from bot.operate.conversations import ConversationReader
from bot.operate.people import People
from bot.operate.results import NameRoom, Result, name_room
from bot.operate.rooms import (
    RoomInstructionsBody,
    TakeOverBody,
    change_instructions,
    describe_instructions,
    end_take_overs,
)
from bot.outbound.outbox import Outbox, UndeliveredParts, is_dropped
from bot.outbound.proposals import ProposalDecision, Proposals
from bot.settings import room_setting
from bot.store.protocols import LogKind, Store
from bot.text import sanitize_name, shorten
from bot.user_texts import user_text

MAX_REASON_LENGTH = 200

NO_DRAFT = "there is no such draft"


class PartState(StrEnum):
    """What is the matter with a part: it waits, an operator has to decide, it failed, or it was given up."""

    WAITING = "waiting"
    HELD = "held"
    FAILED = "failed"
    DROPPED = "dropped"

    @classmethod
    def of(cls, part: Delivery) -> "PartState":
        """Return the state of a part that has not arrived."""
        if part.state is DeliveryState.FAILED:
            return cls.DROPPED if is_dropped(part) else cls.FAILED
        return cls.HELD if part.state is DeliveryState.UNKNOWN else cls.WAITING


DELIVERY_STATES = {
    PartState.WAITING: (DeliveryState.PENDING, DeliveryState.ATTEMPTING),
    PartState.HELD: (DeliveryState.UNKNOWN,),
    PartState.FAILED: (DeliveryState.FAILED,),
    PartState.DROPPED: (DeliveryState.FAILED,),
}


class PartDecision(StrEnum):
    """What an operator decides about a part."""

    SEND = "send"
    DROP = "drop"


class DeliveryBody(Result):
    """One outgoing part and its delivery state; `kind` is reply, notice or referral."""

    id: str
    message_id: UUID
    kind: str
    part: int
    state: str
    attempts: int
    created_at: datetime
    first_attempt_at: datetime | None
    next_attempt_at: datetime | None
    cause: str


class UndeliveredPartBody(DeliveryBody):
    """An undelivered part: it waits, is being sent, is held (`unknown`) or has failed.

    `status` is the state in the word of the filter, `why` a sentence; `receipt_id` is the receipt of the message that
    it answers, null for a post.
    """

    agent_id: UUID
    room_id: UUID
    room: str
    platform: str
    text: str
    status: PartState
    why: str
    receipt_id: UUID | None
    external_id: str = Field("", exclude=True)


class PartCounts(Result):
    """How many parts wait, are held and have failed; those that were given up are not counted."""

    waiting: int
    held: int
    failed: int


class DecisionResult(Result):
    """What came of a decision about one part, with a note; `part` is null for an unknown one."""

    id: str
    is_done: bool
    note: str
    part: UndeliveredPartBody | None


class DraftBody(Result):
    """A reply or post that waits for a person (`waiting`), or what became of it.

    `text` is what is sent, `proposed` what the bot wrote; `reason` says why it waits. A decision names its `revision`.
    `question` is the message that led to it, by `author`, null for a post. Until `edited_until` the
    `editor` writes another text. `action` is the name of the action that waits for approval, which `text` describes;
    empty for a reply or post.
    """

    id: str
    agent_id: UUID
    room_id: UUID
    room: str
    platform: str
    state: ProposalState
    revision: int
    reason: str
    text: str
    proposed: str
    question: str | None
    author: str | None
    author_id: UUID | None
    receipt_id: UUID | None
    created_at: datetime
    expires_at: datetime
    decided_by: str
    decided_at: datetime | None
    editor: str
    edited_until: datetime | None
    replaced_by: str
    action: str


class DraftDecision(Result):
    """What came of a decision about a draft, with a note; `draft` is null for an unknown one."""

    id: str
    is_done: bool
    note: str
    draft: DraftBody | None


class ForgottenResponse(Result):
    """How many items of a person were deleted, by type."""

    id: UUID
    messages: int
    replies: int
    derived: int
    components: int
    relationships: int
    tasks: int
    costs: int = 0


class IgnoredResponse(Result):
    """Whether a person is read: `ignored_by` are those who have set that they are not (person, operator, role)."""

    id: UUID
    ignored_by: list[str]


class SaidResponse(Result):
    """The id of a message that a person wrote as the bot's account; null where nothing of it could be sent."""

    message_id: UUID | None


class Say(Protocol):
    """Sends what a person wrote as the bot's account; see `Agent.say`."""

    async def __call__(self, room: Room, content: str, *, key: str = "", written_by: str = "") -> Memory | None: ...


@dataclass(frozen=True, slots=True)
class Operations:
    """What operators do with one agent and ask about it.

    `erase` deletes a person's data, `ignore` stores that a person is not read, `begin_take_over` that a person answers
    in place of the agent; beside a running bot these also stop the work for them. `add_costs` counts costs of another
    process, such as a rehearsal, in the sums and against the limits of today. `say` is there beside a running bot.
    `source` in the methods that change something is where the operator did it, for the log of decisions.
    """

    agent_id: UUID
    store: Store
    conversations: ConversationReader
    undelivered: UndeliveredParts
    people: People
    erase: Callable[[UUID], Awaitable[ErasureResult]]
    ignore: Callable[[MarkedPerson], Awaitable[None]]
    begin_take_over: Callable[[TakeOver], Awaitable[TakeOver]]
    proposals: Proposals
    add_costs: Callable[[Sequence[CostEntry]], Awaitable[None]]
    say: Say | None = None

    @classmethod
    def on_store(cls, agent_id: UUID, store: Store) -> Self:
        """Return the operations on the store of an agent that does not run in this process."""

        async def erase(entity_id: UUID) -> ErasureResult:
            return await store.edits.erase_entity(entity_id, datetime.now(UTC))

        async def begin_take_over(take_over: TakeOver) -> TakeOver:
            held = await store.take_overs.begin(take_over)
            crash_point("take_over.stored")
            await proposals.drop_taken_over(held)
            return held

        people = People(agent_id, store=store, muted=set())
        undelivered = UndeliveredParts(store.ledger)
        proposals = Proposals(agent_id, store, Outbox(store.ledger, EventBus(), agent_id))
        return cls(
            agent_id,
            store,
            ConversationReader(store),
            undelivered,
            people,
            erase,
            store.marks.save,
            begin_take_over,
            proposals,
            store.costs.add,
        )

    async def describe_parts(
        self, parts: Sequence[Delivery], name_room: NameRoom = name_room
    ) -> list[UndeliveredPartBody]:
        """Return parts with what belongs to them, by a fixed number of queries."""
        rooms = await self.store.lists.rooms_by_id({part.room_id for part in parts})
        replies = await self.store.memories.memories({part.memory_id for part in parts})
        answered = {reply.id: reply.content.in_reply_to for reply in replies.values()}
        receipts = await self.store.lists.receipts_of({message_id for message_id in answered.values() if message_id})
        bodies = []
        for part in parts:
            room, message_id = rooms.get(part.room_id), answered.get(part.memory_id)
            receipt = receipts.get(message_id) if message_id else None
            status = self.undelivered.explain(part)
            bodies.append(
                UndeliveredPartBody.build(
                    part,
                    message_id=part.memory_id,
                    agent_id=self.agent_id,
                    room=name_room(room) if room else part.target,
                    text=part.content.text,
                    status=PartState.of(part),
                    why=status.why,
                    next_attempt_at=status.next_attempt_at,
                    receipt_id=receipt.id if receipt else None,
                    external_id=part.external_id,
                )
            )
        return bodies

    async def count_parts(self) -> PartCounts:
        """Count the parts that wait, are held and have failed."""
        counts = await self.store.lists.count_deliveries(without_cause=DROPPED_CAUSE)
        return PartCounts.model_validate(
            {
                name: sum(counts.get(state, 0) for state in DELIVERY_STATES[PartState(name)])
                for name in PartCounts.model_fields
            }
        )

    async def decide(self, part_id: str, decision: PartDecision, name_room: NameRoom = name_room) -> DecisionResult:
        """Send a held or failed part again, or give a part up."""
        decide = self.undelivered.retry if decision is PartDecision.SEND else self.undelivered.drop
        made = await decide(part_id)
        if made is None:
            return DecisionResult(id=part_id, is_done=False, note="there is no such part", part=None)
        [part] = await self.describe_parts([made.part], name_room)
        return DecisionResult(id=part_id, is_done=made.is_done, note=made.note, part=part)

    async def drafts(
        self, *, state: ProposalState | None = ProposalState.WAITING, limit: int = 100, name_room: NameRoom = name_room
    ) -> list[DraftBody]:
        """Return the latest drafts, oldest first: those that wait, or those in another state, None for all."""
        found = await self.store.ledger.proposals(state=state, limit=limit)
        return await self._describe_drafts(found, name_room)

    async def has_draft(self, draft_id: str) -> bool:
        """Return whether there is a draft with this id, whatever became of it."""
        return await self.store.ledger.proposal(draft_id) is not None

    async def decide_draft(
        self,
        draft_id: str,
        decision: ProposalDecision,
        *,
        actor: str,
        revision: int | None = None,
        text: str | None = None,
        name_room: NameRoom = name_room,
    ) -> DraftDecision:
        """Send, edit or drop a draft on behalf of a person; see `Proposals.decide`."""
        made = await self.proposals.decide(draft_id, decision, actor=actor, revision=revision, text=text)
        if made is None:
            return DraftDecision(id=draft_id, is_done=False, note=NO_DRAFT, draft=None)
        [draft] = await self._describe_drafts([made.proposal], name_room)
        return DraftDecision(id=draft_id, is_done=made.is_done, note=made.note, draft=draft)

    async def _describe_drafts(self, found: Sequence[Proposal], name_room: NameRoom) -> list[DraftBody]:
        rooms = await self.store.lists.rooms_by_id({proposal.room_id for proposal in found})
        message_ids = {proposal.message_id for proposal in found if proposal.message_id is not None}
        messages = await self.store.memories.memories(message_ids)
        authors = await self.store.entities.entities({message.entity_id for message in messages.values()})
        bodies = []
        for proposal in found:
            room = rooms.get(proposal.room_id)
            message = None if proposal.message_id is None else messages.get(proposal.message_id)
            author = authors.get(message.entity_id) if message else None
            bodies.append(
                DraftBody.build(
                    proposal,
                    agent_id=self.agent_id,
                    room=name_room(room) if room else str(proposal.room_id),
                    platform=room.platform if room else "",
                    text=proposal.content.text,
                    proposed=proposal.proposed.text,
                    action=proposal.action_name,
                    question=message.content.text if message else None,
                    author=author.name if author else None,
                    author_id=author.id if author else None,
                )
            )
        return bodies

    async def change_fact(self, fact_id: UUID, text: str | None, *, source: str) -> bool:
        """Replace the text of a fact, or delete it without a text; return whether there was one."""
        fact = await self.people.fact(fact_id)
        if fact is None:
            return False
        if text is None:
            await self.people.delete_fact(fact, source=source)
        else:
            await self.people.correct_fact(fact, text, source=source)
        return True

    async def mark_minor(self, entity: Entity, *, is_minor: bool, source: str) -> None:
        """Store whether a person is a minor."""
        await self.people.mark_minor(entity, is_minor=is_minor, source=source)

    async def forget_person(self, entity_id: UUID, *, source: str) -> ForgottenResponse:
        """Delete a person's data, as they could with `/forget-me`."""
        result = await self.erase(entity_id)
        await self.people.log_decision("FORGET_PERSON", {"person": str(entity_id)}, source)
        return ForgottenResponse.build(result, id=entity_id, costs=result.costs)

    async def ignore_person(self, entity_id: UUID, *, is_ignored: bool, source: str) -> IgnoredResponse:
        """Store for an operator that a person is not read, or end that; what others have set stays.

        Raises LookupError for an unknown person.
        """
        entity = (await self.people.entities([entity_id])).get(entity_id)
        if entity is None:
            raise LookupError(f"there is no person {entity_id}")
        mark, origin = PersonMark.NOT_READ, MarkOrigin.OPERATOR
        if is_ignored:
            now = datetime.now(UTC)
            await self.ignore(MarkedPerson(entity_id, mark, entity.platform, entity.external_id, origin, now))
        else:
            await self.store.marks.remove(entity_id, mark, origin)
        action = "IGNORE_PERSON" if is_ignored else "READ_PERSON"
        await self.people.log_decision(action, {"person": str(entity_id)}, source)
        return IgnoredResponse(id=entity_id, ignored_by=[str(origin) for origin in self.people.ignored_by(entity_id)])

    def take_overs(self) -> list[TakeOverBody]:
        """Return the take-overs that hold, the oldest first."""
        held = sorted(self.store.take_overs.current.values(), key=lambda item: item.since)
        return [TakeOverBody.build(item) for item in held]

    async def take_over(
        self, room_id: UUID, person_id: UUID | None = None, *, name: str = "", reason: str = "", source: str
    ) -> TakeOverBody:
        """Store that an operator answers in place of the agent in a room, or one person there; return what holds.

        Raises LookupError for an unknown room or person.
        """
        await self._find_room(room_id)
        if person_id is not None and person_id not in await self.people.entities([person_id]):
            raise LookupError(f"there is no person {person_id}")
        name = sanitize_name(name) if name.strip() else user_text("take_overs.operator")
        now, reason = datetime.now(UTC), shorten(reason, MAX_REASON_LENGTH)
        held = await self.begin_take_over(TakeOver(room_id, name, source, now, person_id, None, reason))
        await self._log_take_over("TAKE_OVER", held, source)
        return TakeOverBody.build(held)

    async def give_back(self, room_id: UUID, person_id: UUID | None = None, *, source: str) -> list[TakeOverBody]:
        """End the take-over of a room or a person there, else those of all people there; return what has ended."""
        ended = await end_take_overs(self.store, room_id, person_id, datetime.now(UTC))
        for take_over in ended:
            await self._log_take_over("GIVE_BACK", take_over, source)
        return [TakeOverBody.build(item) for item in ended]

    async def instructions(self, room_id: UUID, rooms: Mapping[str, RoomInstructions]) -> RoomInstructionsBody:
        """Return what is in effect in a room; `rooms` is what the character's file says.

        Raises LookupError for an unknown room.
        """
        return await describe_instructions(self.store, rooms, await self._find_room(room_id))

    async def set_instructions(
        self,
        room_id: UUID,
        values: Mapping[str, str],
        rooms: Mapping[str, RoomInstructions],
        *,
        of_world: bool = False,
        source: str,
    ) -> RoomInstructionsBody:
        """Set values of a room or its world, or remove them with blank ones, and return what is in effect then.

        Raises SettingError for a value that does not fit, LookupError for an unknown room.
        """
        room = await self._find_room(room_id)
        await change_instructions(self.store, room, values, now=datetime.now(UTC), source=source, of_world=of_world)
        return await describe_instructions(self.store, rooms, room)

    async def set_room_setting(
        self, world: World, room: Room, name: str, value: str, *, source: str, by_id: UUID | None = None
    ) -> None:
        """Store a setting of a room, and the room where its world is not known yet; the log of decisions shows it."""
        if await self.store.worlds.world(world.id) is None:
            await self.store.worlds.save_world(world, [room])
        await self.store.worlds.set_setting(world.id, room_setting(name, room.id), value)
        body = {
            "action": f"SET_{name}",
            "allowed": True,
            "actors": [str(by_id)] if by_id is not None else [],
            "world": str(world.id),
            "room": str(room.id),
            "arguments": {name: value},
            "event": source,
        }
        await self.store.logs.log(LogKind.AUTHORIZATION, body, entity_id=by_id)

    async def write_as_agent(self, room_id: UUID, text: str, *, name: str = "", key: str = "") -> SaidResponse:
        """Send what a person wrote as the bot's account, marked as theirs; once for each `key`.

        Raises LookupError for an unknown room, ConfigError where the bot does not run here.
        """
        room = await self._find_room(room_id)
        if self.say is None:
            raise ConfigError("only a running bot can write: start it")
        written_by = sanitize_name(name) if name.strip() else user_text("take_overs.operator")
        message = await self.say(room, text, key=key, written_by=written_by)
        return SaidResponse(message_id=None if message is None else message.id)

    async def _find_room(self, room_id: UUID) -> Room:
        room = await self.store.worlds.room(room_id)
        if room is None:
            raise LookupError(f"there is no room {room_id}")
        return room

    async def _log_take_over(self, action: str, take_over: TakeOver, source: str) -> None:
        arguments = {"room": str(take_over.room_id), "person": str(take_over.person_id or "")}
        await self.people.log_decision(action, arguments, source, take_over)
