"""Judge from the talk of a room whether a message is meant for the agent; holds the state of the rooms.

One call at a time for each key, whose result also counts for those who asked while it waited.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from math import exp, inf, log
from types import MappingProxyType
from typing import Generic, TypeVar
from uuid import UUID

from bot.concurrency.tasks import BoundedDict
from bot.domain.environment import Entity, ParticipantState
from bot.domain.events import MessageSent, ReactionReceived
from bot.domain.memory import Memory
from bot.domain.reactions import vote_of
from bot.pipeline.talk import (
    CERTAIN,
    CONTAINS_NAME,
    MAX_NAMED,
    OPENS_WITH_NAME,
    WINDOW,
    Estimate,
    RoomTalk,
    TalkLine,
    load_classifier,
)
from bot.turn import Turn
from bot.user_texts import ENGLISH, use_language, user_text

MAX_ROOMS = 500
MAX_SILENCE_SECONDS = 900  # another process may have had the room meanwhile: it is read again
MIN_LINES = 3  # of a talk before silence is chosen without asking
IMPROBABLE = 0.02  # below it, silence is chosen earlier: when the model has found one line of the room not meant
NEW_ROOM_LINES = 20  # of a talk in which the agent may be meant by a question to all before it has spoken
MAX_CONTINUED_LINES = 2
CONTINUED_PROBABILITY = 0.3
REPLY_TO_OTHER_PROBABILITY = 0.02  # at most, of a line that replies to another person and does not name the agent
REPLY_TO_OTHER_REASONS = ("reply to other",)
OTHER_BOT_REASONS = ("other bot",)  # as improbable as a reply to another person
MIN_BOT_SECONDS, MAX_BOT_SECONDS = 2.0, 30.0  # that another bot has for an answer: twice its time of late
MAX_BOTS_SECONDS = 60.0  # that all of them have
MAX_NUMBER_LENGTH = 20  # of a message's id
EXCESS_DECAY = 0.98  # a line
MIN_EXCESS, EXCESS_WEIGHT, MAX_EXCESS_CORRECTION = 0.6, 2.5, 3.0
NAMED_CORRECTION = 0.5  # a shift from here on is named among the reasons
MAX_CORRECTION = 1.5  # in log odds
CORRECTION_DECAY = 0.98  # a line
NOT_MEANT, MISSED, DISLIKED, LIKED = -0.7, 0.5, -0.5, 0.2
_NOT_YOU = re.compile(
    r"(?i)\b(?:not (?:you|talking to you|asking you)|wasn'?t (?:talking|asking|speaking) (?:to )?you"
    r"|didn'?t (?:mean|ask) you|nicht (?:du|dich|dir)|pas (?:toi|à toi)|no (?:tú|a ti)"
    r"|non (?:tu|a te)|не (?:ты|тебе|тебя))\b"
)


class Responsiveness(StrEnum):
    """How readily the agent speaks in groups; the values of the setting RESPONSIVENESS."""

    CALLED = "called"
    RESERVED = "reserved"
    BALANCED = "balanced"
    LIVELY = "lively"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From `answer` on, the agent answers without asking the model; below `silence` it stays silent without asking.

    With `asks_open_questions`, the model is asked about questions to everybody, however improbable the agent is.
    """

    answer: float
    silence: float
    asks_open_questions: bool = False


THRESHOLDS = MappingProxyType(
    {
        Responsiveness.RESERVED: Thresholds(0.95, 0.25),
        Responsiveness.BALANCED: Thresholds(0.9, 0.1, asks_open_questions=True),
        Responsiveness.LIVELY: Thresholds(0.8, 0.0, asks_open_questions=True),
    }
)


class Choice(StrEnum):
    """What a judgement leads to."""

    ANSWER = "answer"
    ASK = "ask"
    SILENCE = "silence"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the talk says about one message, and the words for it, which people in the room may read."""

    choice: Choice
    probability: float = 0.0
    text: str = ""


@dataclass(slots=True, eq=False)
class HeardLine:
    """One message as its room's talk had it: what the classifier is given, and whether it is an open question.

    `bots_before` may answer it before the agent; `answered_by_bot` is set when one of them has.
    """

    line: TalkLine
    features: tuple[float, ...]
    line_count: int
    is_open_question: bool = False
    is_continued: bool = False
    is_reply_to_other: bool = False
    is_for_other_bot: bool = False
    bots_before: tuple[str, ...] = ()
    answered_by_bot: asyncio.Event = field(default_factory=asyncio.Event)
    probability: float = 0.0  # as the classifier estimated it

    def note_answer(self, line: TalkLine) -> None:
        """Note whether a later line answers this one, by a bot that may do so before the agent."""
        is_answer = line.answers == self.line.author and line.replied_order >= self.line.order
        if is_answer and line.author in self.bots_before:
            self.answered_by_bot.set()


@dataclass(slots=True, eq=False)
class RoomAttention:
    """The talk of one room. `pending` are messages that came while it was read from the store.

    `excess` is how many more lines the classifier would have expected to be addressed, of those about which a model
    has decided lately. With `has_others`, a model has found that a line was not for the agent. `own` are lines of
    the agent with their turns, `sent_unheard` the platform's ids of its messages that are not in the talk yet.
    """

    talk: RoomTalk
    correction: float = 0.0
    excess: float = 0.0
    has_others: bool = False
    is_followed: bool = False
    heard_at: datetime | None = None
    authors: BoundedDict[UUID, str] = field(default_factory=lambda: BoundedDict(WINDOW))
    heard: BoundedDict[UUID, HeardLine] = field(default_factory=lambda: BoundedDict(WINDOW))
    silenced: BoundedDict[str, int] = field(default_factory=lambda: BoundedDict(8))
    own: BoundedDict[UUID, tuple[TalkLine, UUID | None]] = field(default_factory=lambda: BoundedDict(WINDOW))
    sent_unheard: dict[UUID, str] = field(default_factory=dict)
    pending: deque[tuple[Memory, TalkLine, tuple[str, ...]]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def hear(self, memory: Memory, line: TalkLine, names: Sequence[str]) -> None:
        """Add a message to the talk, unless it is in it."""
        external_id = self.sent_unheard.pop(memory.id, None)
        if memory.id in self.authors:
            return
        talk = self.talk
        is_own = line.author == talk.agent
        if is_own:
            self.own[memory.id] = line, memory.turn_id
            if external_id is not None:
                line.order = find_order(external_id, line.minute)
        answered = memory.content.in_reply_to
        if is_own and answered is not None and answered in self.authors and not line.answers:
            line.answers, line.certainty = self.authors[answered], OPENS_WITH_NAME
        talk.read(line, names)
        if not is_own:
            self._learn(line)
            bots_before = talk.bots_before_agent(line)
            self.heard[memory.id] = HeardLine(
                line,
                talk.features(line),
                talk.line_count,
                self._is_open_question(line, bots_before),
                not line.names and not line.opens_unknown and talk.continues_talk(line, MAX_CONTINUED_LINES),
                talk.replies_to_other(line) and talk.agent not in line.names,
                talk.is_for_other_bot(line),
                bots_before,
            )
            for heard in self.heard.values() if line.is_by_bot else ():
                heard.note_answer(line)
        talk.add(line)
        self.authors[memory.id] = line.author
        self.heard_at = memory.created_at

    def place_own(self, memory_id: UUID, external_id: str) -> bool:
        """Note what the platform calls a line of the agent; return whether it is in the talk."""
        line, _ = self.own.get(memory_id, (None, None))
        if line is not None:
            line.order = find_order(external_id, line.minute)
        return line is not None

    def correct(self, amount: float) -> None:
        """Shift all estimates of this room by log odds, within the limit."""
        self.correction = max(-MAX_CORRECTION, min(MAX_CORRECTION, self.correction + amount))

    def note_decision(self, heard: HeardLine, is_addressed: bool) -> None:
        """Learn from what a model decided about a line: whether the estimates are too high in this room."""
        self.talk.note_decision(heard.line, is_addressed)
        self.has_others = self.has_others or not is_addressed
        if not heard.is_open_question:
            self.excess = max(0.0, self.excess + heard.probability - is_addressed)

    def decided_correction(self, heard: HeardLine) -> float:
        """Return the shift of an estimate by a model's decisions, in log odds; none for a line that names the agent."""
        if self.talk.agent in heard.line.names:
            return 0.0
        return -min(MAX_EXCESS_CORRECTION, EXCESS_WEIGHT * max(0.0, self.excess - MIN_EXCESS))

    def seconds_of_bots(self, heard: HeardLine) -> float:
        """Return how long the bots before the agent have for an answer to a line."""
        times = (120 * self.talk.answer_minutes(bot) for bot in heard.bots_before)  # twice the time of late
        return min(sum(max(MIN_BOT_SECONDS, min(MAX_BOT_SECONDS, time)) for time in times), MAX_BOTS_SECONDS)

    def _is_open_question(self, line: TalkLine, bots_before: tuple[str, ...]) -> bool:
        """Return whether a line asks everybody in a talk in which the agent or another bot takes part.

        So does a question in a talk that has just begun.
        """
        is_near = self.talk.lines_since_agent(line) <= WINDOW or self.talk.line_count < NEW_ROOM_LINES
        is_new_question = (is_near or bool(bots_before)) and line.is_question and not line.continues()
        return is_new_question and not line.opening and not line.opens_unknown and line.certainty <= CONTAINS_NAME

    def _learn(self, line: TalkLine) -> None:
        """Correct the estimates by what a person says about the agent's last lines and silences."""
        self.correction *= CORRECTION_DECAY
        self.excess *= EXCESS_DECAY
        since_agent = self.talk.lines_since_agent(line)
        if since_agent <= MAX_CONTINUED_LINES + 1 and _NOT_YOU.search(line.text[:200]):
            self.correct(NOT_MEANT)
        elif line.opening == self.talk.agent:
            silenced_at = self.silenced.pop(line.author, None)
            if silenced_at is not None and line.position - silenced_at == 1 and since_agent > MAX_CONTINUED_LINES + 1:
                self.correct(MISSED)


class Attention:
    """The talks of the rooms of one agent, in memory only; a room is read from the store when it is first judged.

    `recalled` has what models have decided about stored messages, by their ids. Without `waits_for_bots` no other bot
    is waited for, as in a simulation, where no message comes meanwhile.
    """

    def __init__(self) -> None:
        self.waits_for_bots = True
        self.recalled: BoundedDict[UUID, bool] = BoundedDict(MAX_ROOMS)
        self._rooms: BoundedDict[UUID, RoomAttention] = BoundedDict(MAX_ROOMS)

    def hear(self, turn: Turn, participant_state: ParticipantState) -> None:
        """Add the newest message of a turn to the talk of its room, if that was judged before.

        An agent that no longer follows the room becomes as reserved there as corrections may make it.
        """
        room = self._rooms.get(turn.room.id)
        if room is None:
            return
        if room.is_followed and participant_state is ParticipantState.DEFAULT:
            room.correct(-2 * MAX_CORRECTION)
        room.is_followed = participant_state is ParticipantState.FOLLOWED
        entry = (turn.message, _to_line(turn, turn.message, turn.author), turn.author.names)
        if room.heard_at is None:
            room.pending.append(entry)
        else:
            room.hear(*entry)

    def hear_replies(self, turn: Turn) -> None:
        """Add what the agent has answered in a turn."""
        room = self._rooms.get(turn.room.id)
        if room is None or room.heard_at is None:
            return
        for reply in (item for item in turn.replies if item.room_id == turn.room.id):
            line = replace(_to_line(turn, reply), answers=str(turn.author.id), certainty=OPENS_WITH_NAME, order=inf)
            room.hear(reply, line, ())

    def note_sent(self, event: MessageSent) -> None:
        """Note when the agent said something; what no turn tells of is read from the store."""
        room = self._rooms.get(event.room_id)
        if room is None:
            return
        if not room.place_own(event.message_id, event.external_id):
            room.sent_unheard[event.message_id] = event.external_id

    def note_reaction(self, event: ReactionReceived) -> None:
        """Learn from a reaction to a message of the agent."""
        room, content = self._rooms.get(event.room.id), event.reaction.content
        if room is None or content.in_reply_to is None:
            return
        if room.authors.get(content.in_reply_to) == room.talk.agent:
            room.correct({-1: DISLIKED, 1: LIKED}.get(vote_of(content.text), 0.0))

    def note_decision(self, turn: Turn, is_addressed: bool) -> None:
        """Learn from what the model has decided about the newest message of a turn."""
        room = self._rooms.get(turn.room.id)
        if room is not None and (heard := room.heard.get(turn.message.id)) is not None:
            room.note_decision(heard, is_addressed)

    async def judge(self, turn: Turn, responsiveness: Responsiveness) -> Judgement:
        """Return what the talk says about the newest message of a turn."""
        if responsiveness is Responsiveness.CALLED:
            with use_language(ENGLISH):
                text = user_text("addressing.only_called", name=turn.agent.character.name)
            return Judgement(Choice.SILENCE, text=text)
        room = await self._find_room(turn)
        heard = room.heard.get(turn.message.id)
        if heard is None:  # an old message that was edited
            return Judgement(Choice.ASK)
        await _place_own_lines(turn, room, heard)
        estimate = load_classifier().estimate(heard.features)
        heard.probability = estimate.probability
        if estimate.probability < THRESHOLDS[responsiveness].answer or room.correction < 0:
            estimate = _correct(estimate, room.correction, room.decided_correction(heard))
        if heard.is_reply_to_other or heard.is_for_other_bot:
            reasons = REPLY_TO_OTHER_REASONS if heard.is_reply_to_other else OTHER_BOT_REASONS
            estimate = Estimate(min(estimate.probability, REPLY_TO_OTHER_PROBABILITY), reasons)
        elif heard.is_continued:
            estimate = replace(estimate, probability=max(estimate.probability, CONTINUED_PROBABILITY))
        choice = _choose(estimate.probability, heard, THRESHOLDS[responsiveness], has_others=room.has_others)
        if choice is Choice.SILENCE:
            room.silenced[str(turn.author.id)] = room.talk.line_count - 1
        return Judgement(choice, estimate.probability, _describe(estimate, choice, turn.agent.character.name))

    async def is_left_to_other_bot(self, turn: Turn) -> bool:
        """Wait while bots that come before the agent may answer the newest message; return whether one has answered."""
        room = self._rooms.get(turn.room.id)
        heard = room.heard.get(turn.message.id) if room is not None else None
        if room is None or heard is None or not heard.bots_before or not self.waits_for_bots:
            return False
        try:
            async with asyncio.timeout(room.seconds_of_bots(heard)):
                await heard.answered_by_bot.wait()
        except TimeoutError:
            return False
        return True

    async def _find_room(self, turn: Turn) -> RoomAttention:
        """Return the talk of the turn's room with the newest message in it; it is read from the store if need be."""
        room = self._rooms.get(turn.room.id)
        if room is not None and self._is_outdated(room, turn):
            room = None
        if room is None:
            character = turn.agent.character
            names = tuple(name for name in (character.name, character.username) if name)
            room = self._rooms[turn.room.id] = RoomAttention(RoomTalk(str(turn.agent.id), names))
        async with room.lock:
            if room.heard_at is None:
                await self._read_room(turn, room)
        return room

    def _is_outdated(self, room: RoomAttention, turn: Turn) -> bool:
        if room.heard_at is None:
            return False
        silence = (turn.message.created_at - room.heard_at).total_seconds()
        return bool(room.sent_unheard) or silence > MAX_SILENCE_SECONDS

    async def _read_room(self, turn: Turn, room: RoomAttention) -> None:
        store = turn.agent.store
        memories = await store.memories.recent(turn.room.id, WINDOW)
        people = {memory.entity_id for memory in memories} - {turn.agent.id, turn.author.id}
        entities = await store.entities.entities(people) if people else {}
        entities[turn.author.id] = turn.author
        waiting, room.pending = room.pending, deque(maxlen=WINDOW)
        if any(entity.is_bot for entity in entities.values()):
            turn_ids = {memory.turn_id for memory in memories if memory.entity_id == turn.agent.id}
            room.sent_unheard |= await _find_sent(turn, turn_ids)
        for memory in memories:
            author = entities.get(memory.entity_id)
            room.hear(memory, _to_line(turn, memory, author), author.names if author else ())
            if memory.id in self.recalled and (heard := room.heard.get(memory.id)) is not None:
                heard.probability = load_classifier().estimate(heard.features).probability
                room.note_decision(heard, self.recalled[memory.id])
        room.heard_at = room.heard_at or turn.message.created_at
        for memory, line, names in waiting:
            room.hear(memory, line, names)
        room.hear(turn.message, _to_line(turn, turn.message, turn.author), turn.author.names)


def find_order(external_id: str, default: float) -> float:
    """Return the place of a message among those of its room, as platforms number them; else the default."""
    is_number = external_id.isascii() and external_id.isdecimal() and len(external_id) <= MAX_NUMBER_LENGTH
    return int(external_id) if is_number else default


async def _place_own_lines(turn: Turn, room: RoomAttention, heard: HeardLine) -> None:
    """Find the order of the agent's lines that another process has sent, before other bots are waited for."""
    unplaced = {turn_id for line, turn_id in room.own.values() if line.order == inf}
    if not unplaced or not heard.line.is_question or not room.talk.has_bots:
        return
    for memory_id, external_id in (await _find_sent(turn, unplaced)).items():
        room.place_own(memory_id, external_id)
    heard.bots_before = room.talk.bots_before_agent(heard.line)


async def _find_sent(turn: Turn, turn_ids: Iterable[UUID | None]) -> dict[UUID, str]:
    """Return the platform's ids of the messages of these turns that were sent, by memory."""
    found = [await turn.agent.store.ledger.deliveries(turn_id=turn_id) for turn_id in turn_ids if turn_id]
    deliveries = [delivery for deliveries in found for delivery in deliveries]
    return {delivery.memory_id: delivery.external_id for delivery in deliveries if delivery.external_id}


def _to_line(turn: Turn, memory: Memory, author: Entity | None = None) -> TalkLine:
    content = memory.content
    mention = content.mention
    line = TalkLine(str(memory.entity_id), _written(content.text), memory.created_at.timestamp() / 60)
    for attachment in content.attachments:
        if not content.text and attachment.text:
            line.text = attachment.text
    if mention.is_reply or mention.is_mention:
        line.answers, line.certainty = str(turn.agent.id), OPENS_WITH_NAME
    elif mention.replies_to not in (None, memory.entity_id):
        line.answers, line.certainty = str(mention.replies_to), CERTAIN
    line.opens_unknown = mention.mentions_others and not mention.is_mention
    line.is_by_bot = author is not None and author.is_bot
    line.order = find_order(memory.external_id, line.minute)
    line.replied_order = find_order(content.metadata.get("replies_to", ""), inf)
    return line


def _written(text: str) -> str:
    """Return a text without the lines that it quotes."""
    if "> " not in text:
        return text
    return "\n".join(line for line in text.splitlines() if not line.startswith("> "))


def _correct(estimate: Estimate, by_people: float, by_decisions: float) -> Estimate:
    """Return the estimate, shifted; a shift that may have decided is named first."""
    correction = by_people + by_decisions
    if not correction:
        return estimate
    odds = log(estimate.probability / (1 - estimate.probability)) + correction
    probability = 1 / (1 + exp(-odds))
    is_turned = (estimate.probability >= 0.5) != (probability >= 0.5)
    reasons = () if is_turned else estimate.reasons
    if correction <= -NAMED_CORRECTION:
        reasons = ("objected" if by_people < by_decisions else "decided", *reasons)[:MAX_NAMED]
    return Estimate(probability, reasons)


def _choose(probability: float, heard: HeardLine, thresholds: Thresholds, *, has_others: bool) -> Choice:
    if probability >= thresholds.answer:
        return Choice.ANSWER
    is_improbable = has_others and probability < IMPROBABLE
    is_known = heard.is_reply_to_other or heard.is_for_other_bot or is_improbable or heard.line_count >= MIN_LINES
    is_clear = probability < thresholds.silence and is_known
    if is_clear and not (thresholds.asks_open_questions and heard.is_open_question):
        return Choice.SILENCE
    return Choice.ASK


def _key(reason: str) -> str:
    return reason.replace(" ", "_").replace("'", "")


def _describe(estimate: Estimate, choice: Choice, name: str) -> str:
    """Return the words for an estimate: how probable, and what says so."""
    key = {Choice.ANSWER: "meant", Choice.SILENCE: "not_meant"}.get(choice, "unclear")
    percent = min(99, max(1, round(100 * estimate.probability)))
    with use_language(ENGLISH):  # as all reasons in receipts and prompts are
        reasons = [user_text(f"addressing.reason.{_key(reason)}", name=name) for reason in estimate.reasons]
        text = user_text(f"addressing.{key}", name=name, percent=percent)
    return f"{text}: {', '.join(reasons)}" if reasons else text


T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Queue(Generic[T]):
    """Those who wait for the call in flight. A future without result makes its owner the next to call."""

    waiting: list[asyncio.Future[T | None]] = field(default_factory=list)


class SharedCalls(Generic[T]):
    """Runs one call at a time for each key.

    Those who ask while a call is in flight wait. When it ends, the newest of them calls, and the result is that of
    all who waited: it was found later than they asked. If a call fails, only its caller gets the error.
    """

    def __init__(self) -> None:
        self._queues: dict[Hashable, _Queue[T]] = {}

    async def run(
        self, key: Hashable, call: Callable[[int], Awaitable[T]], *, counts_for_later: Callable[[T], bool]
    ) -> T:
        """Return the result of `call`, or of another caller's; `call` receives how many others it covers.

        A result for which `counts_for_later` is also that of those who asked while it was being found.
        """
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        elif (result := await self._wait(key, queue)) is not None:
            return result
        covered, queue.waiting = queue.waiting, []
        result = None
        try:
            result = await call(len(covered))
            return result
        finally:
            if result is None:
                queue.waiting[:0] = covered  # it failed: another one of them asks
            else:
                if counts_for_later(result):
                    covered, queue.waiting = covered + queue.waiting, []
                for future in covered:
                    if not future.done():
                        future.set_result(result)
            self._call_next(key, queue)

    async def _wait(self, key: Hashable, queue: _Queue[T]) -> T | None:
        future: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        queue.waiting.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result() is None:
                self._call_next(key, queue)
            raise

    def _call_next(self, key: Hashable, queue: _Queue[T]) -> None:
        """Make the newest who waits to call; without any, forget the key."""
        while queue.waiting:
            future = queue.waiting.pop()
            if not future.done():
                future.set_result(None)
                return
        del self._queues[key]
