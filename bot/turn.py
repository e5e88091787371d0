"""`Turn`: one message being answered; `TurnInput`: one message and its receipt."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any, Self
from uuid import UUID

from bot.agent import Agent
from bot.domain.character import ActionSpec
from bot.domain.content import Content
from bot.domain.environment import ChannelType, Entity, Role, Room, World, own_words
from bot.domain.events import Event
from bot.domain.ids import derived_id, new_id
from bot.domain.inbound import REVISIONS_KEY, InboundMessage, list_revisions
from bot.domain.ledger import ActionResult, EditState, EventKey, ModelCall, Receipt, State
from bot.domain.memory import AUTHORS_KEY, Memory, MemoryKind
from bot.errors import TemplateError
from bot.outbound.sender import OutgoingReply
from bot.prompts.templates import find_template
from bot.receipts import TurnTrace
from bot.text import sanitize_name, suggest, truncate_line

REPLIES_PER_STEP = 1_000
MAX_CHECKED_REPLIES = 20
MAX_ANSWERED_INPUTS = 20


@dataclass(slots=True, eq=False)
class TurnInput:
    """One message that a turn answers, and its receipt.

    `received_monotonic` is on the monotonic clock, in seconds; `resolve` receives the final receipt; `calls`
    are the model calls made for this message so far, `interrupted_calls` those of its turns that were interrupted,
    which no receipt has; `is_evaluated` is set once the evaluators have run.
    """

    receipt: Receipt
    message: Memory
    author: Entity
    received_monotonic: float
    resolve: Callable[[Receipt], None]
    calls: list[ModelCall] = field(default_factory=list)
    is_evaluated: bool = False
    interrupted_calls: list[ModelCall] = field(default_factory=list)

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
    `obsolete_replies` are further replies of the earlier answer, which it removes.
    `result_authors` are the authors of what its actions have read; `running_actions` are the names of those that
    have begun and not ended; `on_progress` receives what the one that runs reports. `release_room` lets the room's
    next turn begin before this one has ended.
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
    is_waiting: bool = False
    is_committed: bool = False
    is_cancelled: bool = False
    is_stopped: bool = False
    is_closing: bool = False
    replaces: Memory | None = None
    obsolete_replies: tuple[UUID, ...] = ()
    result_authors: set[UUID] = field(default_factory=set)
    running_actions: list[str] = field(default_factory=list)
    on_progress: Callable[[str], None] | None = None
    release_room: Callable[[], None] = lambda: None
    trace: TurnTrace = field(default_factory=TurnTrace)

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

    @property
    def time_zone(self) -> tzinfo:
        """The time zone of this world, in which prompts tell times."""
        return self.agent.find_time_zone(self.world)

    def find_template(self, name: str) -> str:
        """Return a prompt template: the world's own, else the agent's; raises TemplateError where there is none."""
        source = find_template(name, self.world.settings, self.agent.templates)
        if source is None:
            hint = suggest(name, self.agent.templates, start="; ")
            raise TemplateError(f"there is no template {name!r}{hint}")
        return source

    def template_values(self) -> dict[str, Any]:
        """Return the variables that every template can use, with or without providers; names are sanitized."""
        return {
            "agentName": sanitize_name(self.agent.character.name),
            "characterBio": " ".join(self.agent.character.background),
            "messageText": truncate_line(self.message.content.render_text(), self.state.max_message_length),
            "userName": sanitize_name(self.author.name),
            "roomId": str(self.room.id),
            "roomName": sanitize_name(self.room.name) if self.room.name else "",
            "worldContext": sanitize_name(self.world.name) if self.world.name else "",
            "actionNames": ", ".join(spec.name for spec in self.actions),
            "relevantKnowledge": "",
            "recentMessages": "",
            "openMessages": "",
            "draftText": "",
            "actionResults": self.state.data.get("actionResultsText", ""),
        }

    def get_previous_result(self, action: str) -> ActionResult | None:
        """Return the result of an action that ran earlier in this turn."""
        return self.results.get(action)

    async def reply(self, content: str | Content) -> Memory | None:
        """Send a reply in the room at once, before the turn is over.

        Return it once it is stored and queued; None where the content filter left nothing. Replayed after a
        crash, the same reply is not sent twice.
        """
        if self.is_cancelled or self.is_stopped:
            return None
        if isinstance(content, str):
            content = Content(text=content)
        outgoing = self.build_reply(content)
        existing = next((memory for memory in self.replies if memory.id == outgoing.memory.id), None)
        if existing is not None:
            return existing
        stored = await self.agent.outbox.commit([await self.with_speech(outgoing)])
        self.replies += stored
        return stored[0] if stored else None

    def report_progress(self, text: str) -> None:
        """Show how far the running action is, in the message that says that it is under way.

        That is posted once the action has taken five seconds, and edited every three seconds at most, where the
        platform has edits. Anywhere else than in a running action this does nothing.
        """
        if self.on_progress is not None:
            self.on_progress(text)

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
            room_id=self.room.id,
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
            metadata = {**memory.metadata, REVISIONS_KEY: revisions}
            memory = replace(memory, id=earlier.id, created_at=earlier.created_at, metadata=metadata)
            return OutgoingReply(memory, self.room, reply_index, self.message.external_id, self.replaces)
        return OutgoingReply(memory, self.room, reply_index, self.message.external_id)

    def _note_authors(self) -> dict[str, Any]:
        """Return the metadata that names who else wrote what a reply in private may repeat."""
        if not self.room.type.is_direct:
            return {}  # there the words of others are in the conversation itself
        authors = self.foreign_authors()
        return {AUTHORS_KEY: [str(author) for author in authors]} if authors else {}

    def foreign_authors(self) -> set[UUID]:
        """Return who else than the author of the newest message wrote what the model has read in this turn."""
        return (self.state.authors() | self.result_authors) - {self.author.id, self.agent.id}


@dataclass(frozen=True, slots=True)
class TurnEnded(Event):
    """The work on a message ended, evaluators included; `turn.trace` has its steps. It may have been superseded."""

    turn: Turn
