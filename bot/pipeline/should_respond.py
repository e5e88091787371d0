"""The should_respond stage: rules decide whether to answer; if none applies, the small model.

Whether a text contains or addresses a name.

Rate limits: messages per person, room and world, replies to other bots.
"""

import asyncio
import math
import re
import time
import unicodedata
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache, partial
from types import MappingProxyType
from uuid import UUID

from bot.adapter.adapter import Adapter
from bot.concurrency.clock import Clock, monotonic_clock, system_clock
from bot.concurrency.tasks import BoundedDict, BoundedSet, crash_point
from bot.domain.character import ProviderKind
from bot.domain.content import Content, MediaKind
from bot.domain.environment import Entity, ParticipantState, Room, TakeOver, find_take_over
from bot.domain.inbound import NOT_READ_REASON
from bot.domain.instructions import AnswerRule
from bot.domain.ledger import DegradeStep, EditState, Rule
from bot.domain.memory import Memory
from bot.models.types import ModelType, Purpose, TextRequest
from bot.pipeline.attachments import ConcurrencyLimits, transcribe_undecided
from bot.pipeline.attention import Attention, Choice, Responsiveness, SharedCalls
from bot.pipeline.compose import Composer, generate_text
from bot.pipeline.turn_order import LatestResponse
from bot.prompts.reply_parser.reader import read_decision
from bot.prompts.templates import SHOULD_RESPOND, SLOW_DOWN, SPENT
from bot.settings import CoreSettings
from bot.store.ledger import BucketRequest, SharedLimits, WorkSharing
from bot.text import is_blank
from bot.turn import Turn, TurnInput
from bot.user_texts import format_dollars, user_text

_MAX_DISTANCE = 60  # characters between a name that addresses and the beginning or end of the text

_OPENING = re.compile(
    r"[^\w>`]*(?:(?:hey+|hi+|hiya|heya|hello|yo|oi|dear|ok|okay|gm|gn|welcome|sorry|please|pls|thx|thanks"
    r"|thank you|good (?:morning|afternoon|evening|night)"
    r"|hallo|moin|hola|olá|ciao|salut|bonjour|merhaba|selam|привет|здравствуй(?:те)?|مرحبا|नमस्ते"
    r"|こんにちは|こんばんは|おはよう|你好|嗨|안녕(?:하세요)?)"
    r"(?:[\W_]+(?:there|again|my dear|my friend))?[\W_]*)?"
)
_PAUSE = r"[,;:!?。、—–\n]|\.\.|\.\s|\s-\s"
_CLOSING = re.compile(
    rf"(?:{_PAUSE}|(?:^|{_PAUSE})\s*(?:(?:and|ok|okay|no|yes|oh|many|so)\s+)?"
    r"(?:thanks|thank you(?: so much| very much)?|thx|ty|please|pls|sorry|cheers|welcome(?: back)?"
    r"|bye(?: bye)?|goodbye|good (?:morning|afternoon|evening|night|bot)|night|gm|gn|see you|(?:i )?love you"
    r"|congrats|congratulations|well done|nice one|how are you|(?:are )?you there"
    r"|what (?:about|do) you(?: think)?|danke|gracias|merci|obrigad[oa]|grazie"
    r"|спасибо|ありがとう|谢谢|고마워)[\s,]+)[\s@]*$"
)
_UNSPACED_SCRIPT = re.compile(  # Thai, Lao, Burmese, Khmer, Hiragana, Han
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u309f\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_CAST_RULE = re.compile(r"cast \((.+)\)")  # of characters that share an account; it says why in words
_DOTTED = re.compile(r"\w\.$")  # ada.com, www.ada: one word
_POSSESSIVE = re.compile(r"'s\b")


def contains_name(text: str, name: str) -> bool:
    """Return whether `name` is in `text` as a whole word, in any capitalisation."""
    return any(_find_name(_normalize(text), name))


def addresses_name(text: str, name: str) -> bool:
    """Return whether `text` addresses `name`: it opens or closes with the name, or contains @name."""
    normalized = _normalize(text)
    return any(
        _is_handle(normalized, start) or _is_opening(normalized, start, end) or _is_closing(normalized, start, end)
        for start, end in _find_name(normalized, name)
    )


def _is_handle(normalized: str, start: int) -> bool:
    return normalized[start - 1 : start] == "@" and not (start > 1 and _is_word_char(normalized[start - 2]))


def _is_opening(normalized: str, start: int, end: int) -> bool:
    if start > _MAX_DISTANCE or _POSSESSIVE.match(normalized, end):
        return False
    return _OPENING.fullmatch(normalized, 0, start) is not None


def _is_closing(normalized: str, start: int, end: int) -> bool:
    rest = normalized[end : end + _MAX_DISTANCE + 1]
    if len(rest) > _MAX_DISTANCE or any(map(_is_word_char, rest)):
        return False
    return _CLOSING.search(normalized[max(0, start - _MAX_DISTANCE) : start]) is not None


def _find_name(normalized: str, name: str) -> Iterator[tuple[int, int]]:
    """Yield where the name is in a normalized text as a word of its own."""
    pattern = _name_pattern(name)
    match = pattern.search(normalized) if pattern else None
    while pattern and match:
        start, end = match.span()
        if _is_word_start(normalized, start) and _is_word_end(normalized, end):
            yield start, end
        match = pattern.search(normalized, start + 1)


def _is_word_start(normalized: str, start: int) -> bool:
    return start == 0 or (
        _is_word_break(normalized[start - 1], normalized[start])
        and not _DOTTED.match(normalized[max(0, start - 2) : start])
    )


def _is_word_end(normalized: str, end: int) -> bool:
    if end == len(normalized) or _is_hangul(normalized[end - 1]):
        return True
    return _is_word_break(normalized[end - 1], normalized[end]) and not _DOTTED.match(normalized[end : end + 2][::-1])


@lru_cache(maxsize=256)
def _name_pattern(name: str) -> re.Pattern[str] | None:
    """Compile a name; J.A.R.V.I.S. also matches JARVIS, but A.I. does not match AI: too short to be sure."""
    normalized = _normalize(name).strip(" .-_")
    pieces = [piece for piece in re.split(r"[\s.\-_]+", normalized) if piece]
    if not pieces:
        return None
    separator = r"[\s.\-_]{0,2}" if sum(map(len, pieces)) >= 4 else r"[\s.\-_]"
    return re.compile(separator.join(map(re.escape, pieces)))


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", text.casefold()).replace("’", "'")


def _is_word_break(before: str, after: str) -> bool:
    """Return whether a word can end between these two characters."""
    if not (_is_word_char(before) and _is_word_char(after)):
        return True
    script = _script_of(before)
    return script != _script_of(after) or script == "unspaced"


def _is_word_char(char: str) -> bool:
    return char.isalnum() or char == "_" or unicodedata.category(char).startswith("M")


def _is_hangul(char: str) -> bool:
    """Return whether a character is Korean, which writes particles after a word without a space."""
    return "가" <= char <= "힣"


def _script_of(char: str) -> str:
    """Return how a character's script divides words; empty for scripts that put spaces."""
    if _is_hangul(char):
        return "hangul"
    if "\u30a0" <= char <= "\u30ff":
        return "katakana"
    return "unspaced" if _UNSPACED_SCRIPT.match(char) else ""


MINUTE_SECONDS = 60.0
BURST_MINUTES = 2  # minutes whose messages may arrive at once
MAX_BUCKETS = 10_000
PUBLIC_LIMITS = MappingProxyType({"MESSAGES_PER_PERSON": 10, "MESSAGES_PER_ROOM": 60, "MESSAGES_PER_WORLD": 300})
NO_LIMITS: Mapping[str, int] = MappingProxyType({})
MAX_BOT_MESSAGES_PER_MINUTE = 20  # of one bot; then it is ignored for a minute
MAX_BOT_MESSAGES_IN_A_ROW = 5  # in one room, since the last message of a person
MAX_TRACKED_ROOMS = 1_000
MAX_DELAY_SECONDS = 10.0  # a message that came later was written while the bot was offline


@dataclass(frozen=True, slots=True)
class LimitExceeded:
    """A limit that a message exceeds: the reason, the setting, and whether its author should be notified."""

    reason: str
    setting: str
    should_notify: bool


@dataclass(slots=True)
class _Bucket:
    """A token bucket; `is_notified` once its limit was exceeded, until it is full again."""

    level: float
    filled_at: float = -math.inf
    is_notified: bool = False

    def fill(self, capacity: int, timestamp: float) -> None:
        """Add the tokens since the last call, at most `capacity`."""
        elapsed = max(0.0, timestamp - self.filled_at)
        self.level = min(capacity, self.level + elapsed * capacity / (BURST_MINUTES * MINUTE_SECONDS))
        self.filled_at = max(self.filled_at, timestamp)
        self.is_notified &= self.level < capacity


@dataclass(slots=True, eq=False)
class _TokenRequest:
    """What a message takes: a token of each bucket, by setting, key and capacity; `granted` is the answer."""

    buckets: Sequence[tuple[str, UUID, int]]
    age: float
    granted: list[bool] = field(default_factory=list)


class SharedTokens:
    """Takes tokens of the buckets that all processes share, for all messages that wait by one question.

    A token that was taken for a message which another limit refused is kept for the next message of its bucket.
    """

    def __init__(self, limits: SharedLimits) -> None:
        self._limits = limits
        self._spare = BoundedDict[tuple[str, UUID], int](MAX_BUCKETS, int)
        self._waiting: list[_TokenRequest] = []
        self._lock = asyncio.Lock()

    async def take(self, buckets: Sequence[tuple[str, UUID, int]], age: float) -> list[bool]:
        """Return whether each bucket had a token for a message that was written `age` seconds ago."""
        request = _TokenRequest(buckets, age if age > MAX_DELAY_SECONDS else 0.0)
        self._waiting.append(request)
        try:
            async with self._lock:
                if not request.granted:
                    await self._ask([other for other in self._waiting if other.age == request.age])
        finally:
            self._waiting.remove(request)
        return request.granted

    def give_back(self, setting: str, key: UUID) -> None:
        """Keep a token for the next message."""
        self._spare[setting, key] += 1

    async def _ask(self, requests: Sequence[_TokenRequest]) -> None:
        wanted = Counter(bucket for request in requests if not request.granted for bucket in request.buckets)
        asked = [
            BucketRequest(setting, key, capacity, BURST_MINUTES * MINUTE_SECONDS, missing)
            for (setting, key, capacity), number in wanted.items()
            if (missing := number - self._spare[setting, key]) > 0
        ]
        if asked:
            for request, taken in zip(asked, await self._limits.take_tokens(asked, requests[0].age), strict=True):
                self._spare[request.setting, request.key] += taken
        for waiting in requests:
            if not waiting.granted:
                waiting.granted = [self._use(setting, key) for setting, key, _ in waiting.buckets]

    def _use(self, setting: str, key: UUID) -> bool:
        is_there = self._spare[setting, key] > 0
        self._spare[setting, key] -= int(is_there)
        return is_there


class MessageRateLimiter:
    """Limits the messages of one agent by token buckets of two minutes, in memory unless processes share them.

    `defaults` are the limits for settings that are not set; `clock` is monotonic, in seconds.
    """

    def __init__(
        self, settings: CoreSettings, defaults: Mapping[str, int], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        limits = {
            "MESSAGES_PER_PERSON": settings.messages_per_person,
            "MESSAGES_PER_ROOM": settings.messages_per_room,
            "MESSAGES_PER_WORLD": settings.messages_per_world,
        }
        self._limits = {name: defaults.get(name, 0) if value is None else value for name, value in limits.items()}
        self._buckets = {
            setting: BoundedDict[UUID, _Bucket](MAX_BUCKETS, partial(_Bucket, limit * BURST_MINUTES))
            for setting, limit in self._limits.items()
        }

    def check(self, person_id: UUID, room: Room, *, expects_reply: bool, age: float = 0.0) -> LimitExceeded | None:
        """Count a message; return the limit that it exceeds, and then do not count it.

        `age` is in seconds: messages written while the bot was offline count for the minutes in which they
        were written. An author who expects a reply is notified once, until the bucket is full again.
        """
        buckets, written_at = [], self._clock() - max(0.0, age)
        for setting, key in self._keys(person_id, room):
            bucket = self._fill(setting, key, written_at)
            if bucket.level < 1:
                return self._refuse(bucket, setting, expects_reply=expects_reply)
            buckets.append(bucket)
        for bucket in buckets:
            bucket.level -= 1
        return None

    async def check_shared(
        self, tokens: SharedTokens, person_id: UUID, room: Room, *, expects_reply: bool, age: float = 0.0
    ) -> LimitExceeded | None:
        """Count a message as `check` does, in buckets that all processes share. Raises StoreUnavailable."""
        keys, age = self._keys(person_id, room), max(0.0, age)
        if not keys:
            return None
        found = await tokens.take([(setting, key, self._limits[setting] * BURST_MINUTES) for setting, key in keys], age)
        refused = ""
        for (setting, key), is_taken in zip(keys, found, strict=True):
            bucket = self._fill(setting, key, self._clock() - age)  # it shows when the author may be notified again
            bucket.level = max(0.0, bucket.level - 1) if is_taken else 0.0
            refused = refused or ("" if is_taken else setting)
        if not refused:
            return None
        for (setting, key), is_taken in zip(keys, found, strict=True):
            if is_taken:
                tokens.give_back(setting, key)
        return self._refuse(self._buckets[refused][dict(keys)[refused]], refused, expects_reply=expects_reply)

    def _keys(self, person_id: UUID, room: Room) -> list[tuple[str, UUID]]:
        """Return the settings that limit a message, and whose buckets they are."""
        world_key = room.id if room.type.is_private_chat else room.world_id  # a direct chat shares no world
        owners = zip(self._limits.items(), (person_id, room.id, world_key), strict=True)
        return [(setting, key) for (setting, limit), key in owners if limit]

    def _fill(self, setting: str, key: UUID, at: float) -> _Bucket:
        bucket = self._buckets[setting][key]
        bucket.fill(self._limits[setting] * BURST_MINUTES, at)
        return bucket

    def _refuse(self, bucket: _Bucket, setting: str, *, expects_reply: bool) -> LimitExceeded:
        should_notify = expects_reply and not bucket.is_notified
        bucket.is_notified |= should_notify
        scope = setting.rpartition("_")[2].lower()
        reason = f"more than {self._limits[setting]} messages a minute came of one {scope}"
        return LimitExceeded(reason, setting, should_notify)


@dataclass(slots=True)
class _BotActivity:
    times: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_BOT_MESSAGES_PER_MINUTE))
    silent_until: float = 0.0


@dataclass(slots=True)
class _RoomActivity:
    in_a_row: int = 0


class BotGuard:
    """Limits replies of one agent to other bots, so that bots do not talk for ever; in memory only.

    `clock` is monotonic, in seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bots = BoundedDict[UUID, _BotActivity](MAX_TRACKED_ROOMS, _BotActivity)
        self._rooms = BoundedDict[UUID, _RoomActivity](MAX_TRACKED_ROOMS, _RoomActivity)

    def note_person(self, room_id: UUID) -> None:
        """Note that a person wrote in a room."""
        self._rooms[room_id].in_a_row = 0

    def refusal_for(self, bot_id: UUID, room_id: UUID) -> str:
        """Count a message of a bot; return why it must not be answered, or an empty string."""
        bot, room, now = self._bots[bot_id], self._rooms[room_id], self._clock()
        if now < bot.silent_until:
            return "this bot wrote too much in a minute, and is not answered for another"
        if len(bot.times) == MAX_BOT_MESSAGES_PER_MINUTE and now - bot.times[0] < MINUTE_SECONDS:
            bot.silent_until = now + MINUTE_SECONDS
            return f"this bot wrote more than {MAX_BOT_MESSAGES_PER_MINUTE} messages in a minute"
        if room.in_a_row >= MAX_BOT_MESSAGES_IN_A_ROW:
            return f"bots wrote {MAX_BOT_MESSAGES_IN_A_ROW} messages here since a person did"
        bot.times.append(now)
        room.in_a_row += 1
        return ""


BYPASS_SOURCES = frozenset({"client_chat", "api", "postman"})
RESPOND_ACTIONS = frozenset({"RESPOND", "REPLY"})
SILENT_ACTIONS = frozenset({"IGNORE", "NONE", "STOP"})
REACT_ACTION = "REACT"
MAX_NOTICES = 1_000
MAX_COUNTED_RECEIPTS = 4_000
PROMPT_KINDS = (ProviderKind.PERSONA, ProviderKind.STYLE, ProviderKind.PARTICIPANTS, ProviderKind.HISTORY)


@dataclass(frozen=True, slots=True)
class ResponseDecision:
    """Whether to answer, the reason, and the rule or setting that decided.

    A message that is not answered may cause a notice: `notice_template`. A rate-limited one is not evaluated. With a
    `reaction` the message gets that emoji in place of words.
    """

    should_answer: bool
    reason: str
    rule: str
    notice_template: str = ""
    is_rate_limited: bool = False
    reaction: str = ""


RESUMED_DECISION = ResponseDecision(True, "it was being answered when the process stopped", Rule.RESTART)


class MessageCounters:
    """What the rules of one agent know across messages: counts, the talks of rooms, calls in flight.

    All of it is in memory, but the rate limits where processes share the work.
    """

    def __init__(self, settings: CoreSettings, sharing: WorkSharing | None = None, clock: Clock = system_clock) -> None:
        seconds = monotonic_clock(clock)
        self.shared_tokens = SharedTokens(sharing.limits) if sharing is not None else None
        self.public_limits = MessageRateLimiter(settings, PUBLIC_LIMITS, clock=seconds)
        self.trusted_limits = MessageRateLimiter(settings, NO_LIMITS, clock=seconds)
        self.bots = BotGuard(clock=seconds)
        self.notices_sent = BoundedSet[tuple[str, UUID, date]](MAX_NOTICES)
        self.counted_receipts = BoundedSet[UUID](MAX_COUNTED_RECEIPTS)
        self.attention = Attention()
        self.decisions = SharedCalls[ResponseDecision]()

    def recall(self, message: Memory, author: Entity, is_addressed: bool | None) -> None:
        """Take a stored message into account that another process has processed.

        `is_addressed` is what a model has decided about it there; None if no model was asked.
        """
        if author.is_bot:
            self.bots.refusal_for(author.id, message.room_id)
        else:
            self.bots.note_person(message.room_id)
        if is_addressed is not None:
            self.attention.recalled[message.id] = is_addressed


@dataclass(frozen=True, slots=True)
class RuleContext:
    """What the rules know about the newest message of a turn; `adapter` is that of its platform, if connected."""

    turn: Turn
    participant_state: ParticipantState
    settings: CoreSettings
    counters: MessageCounters
    newest: TurnInput
    edit_state: EditState
    adapter: Adapter | None

    @property
    def is_counted(self) -> bool:
        """Whether the limits have counted the message before, in an attempt without outcome."""
        return self.newest.receipt.id in self.counters.counted_receipts

    @property
    def is_mentioned(self) -> bool:
        """Whether the message names the agent: by the platform's mention or as a whole word."""
        return _is_mentioned(self.turn, self.newest.message.content)


RuleCheck = Callable[[RuleContext], ResponseDecision | None]


def agent_names(turn: Turn) -> list[str]:
    """Return the name and the user name of the character."""
    character = turn.agent.character
    return [name for name in (character.name, character.username) if name]


def limit_notice(turn: Turn, counters: MessageCounters, setting: str) -> str:
    """Return the template of the budget notice; empty if it was sent today or no reply is expected."""
    key = (setting, turn.room.id, turn.agent.clock().date())
    if key in counters.notices_sent or not expects_reply(turn, turn.message.content):
        return ""
    counters.notices_sent.add(key)
    return SPENT


def expects_reply(turn: Turn, content: Content) -> bool:
    """Return whether a message addresses the agent by itself: in private, as a reply, by a mention or by name."""
    return turn.room.type.is_direct or content.mention.is_reply or _is_mentioned(turn, content)


def _is_mentioned(turn: Turn, content: Content) -> bool:
    return content.mention.is_mention or _is_named(turn, content, contains_name)


def _is_named(turn: Turn, content: Content, is_named_in: Callable[[str, str], bool]) -> bool:
    """Return whether the text of a message, or a transcript of what was said in it, names the agent."""
    transcripts = (attachment.text for attachment in content.attachments if attachment.kind is MediaKind.AUDIO)
    return any(is_named_in(text, name) for text in (content.text, *transcripts) for name in agent_names(turn))


def _check_own_message(context: RuleContext) -> ResponseDecision | None:
    if context.newest.author.id == context.turn.agent.id:
        return ResponseDecision(False, "it is the agent's own message", Rule.OWN_MESSAGE)
    return None


def _check_not_read(context: RuleContext) -> ResponseDecision | None:
    if context.newest.author.id in context.turn.agent.store.marks.not_read:
        return ResponseDecision(False, NOT_READ_REASON, Rule.NOT_READ)
    return None


def _check_late_edit(context: RuleContext) -> ResponseDecision | None:
    turn, edit_state = context.turn, context.edit_state
    if edit_state is EditState.NORMAL:
        return None
    is_addressed_now = edit_state is EditState.IGNORED and context.is_mentioned
    is_late = edit_state in (EditState.LATE, EditState.IGNORED) and not is_addressed_now
    if is_late and context.settings.on_edit == "ignore":
        return ResponseDecision(False, "it was edited when it had its outcome already", Rule.ON_EDIT)
    if turn.replaces is not None and not (context.adapter and context.adapter.can_edit):
        return ResponseDecision(False, f"what was said on {turn.room.platform} cannot be changed", Rule.ON_EDIT)
    return None


def _check_denied(context: RuleContext) -> ResponseDecision | None:
    rule = context.newest.message.content.mention.denied_by
    if not rule:
        return None
    cast = _CAST_RULE.fullmatch(rule)
    return ResponseDecision(False, cast[1] if cast is not None else f"{rule} forbids answering here", rule)


def _check_empty(context: RuleContext) -> ResponseDecision | None:
    content = context.newest.message.content
    if is_blank(content.text) and not content.attachments:
        return ResponseDecision(False, "it holds nothing to answer", Rule.EMPTY_MESSAGE)
    return None


def _check_bot(context: RuleContext) -> ResponseDecision | None:
    author, room = context.newest.author, context.turn.room
    if not author.is_bot:
        context.counters.bots.note_person(room.id)
        return None
    if not context.settings.respond_to_bots:
        return ResponseDecision(False, "another bot wrote it", Rule.RESPOND_TO_BOTS)
    if context.is_counted:
        return None
    refusal = context.counters.bots.refusal_for(author.id, room.id)
    return ResponseDecision(False, refusal, Rule.RESPOND_TO_BOTS) if refusal else None


def find_current_take_over(turn: Turn) -> TakeOver | None:
    """Return who has taken over the room of a turn, or the author of its newest message there."""
    return find_take_over(turn.agent.store.take_overs.current, turn.room.id, turn.author.id)


def _check_muted(context: RuleContext) -> ResponseDecision | None:
    if context.turn.agent.store.take_overs.current and (take_over := find_current_take_over(context.turn)):
        return ResponseDecision(False, str(take_over), Rule.TAKEN_OVER)
    if context.newest.author.id in context.turn.agent.muted_people:
        return ResponseDecision(False, "an operator has muted its author", Rule.PERSON_MUTED)
    if context.participant_state is ParticipantState.MUTED and not context.is_mentioned:
        return ResponseDecision(False, "the room is muted and the message does not name the agent", Rule.MUTED)
    return None


def _check_room_answer(context: RuleContext) -> ResponseDecision | None:
    turn, answer = context.turn, context.turn.instructions.current.answer
    is_silent = answer is AnswerRule.LISTEN or (
        answer is AnswerRule.MENTIONS and not expects_reply(turn, context.newest.message.content)
    )
    if not is_silent:
        return None
    return ResponseDecision(False, f"the instructions of this room say `answer: {answer}`", Rule.ROOM_ANSWER)


def _check_age(context: RuleContext) -> ResponseDecision | None:
    if context.turn.agent.may_speak_in(context.turn.room):
        return None
    reason = "the character's content is mature, and the room is not restricted to adults (AGE_RESTRICTED_ROOMS)"
    return ResponseDecision(False, reason, Rule.MATURE_CONTENT)


def _check_sending(context: RuleContext) -> ResponseDecision | None:
    platform = context.turn.room.platform
    if not context.turn.agent.outbox.is_full(platform):
        return None
    reason = f"the account is off on {platform}, and replies that cannot be sent wait there already"
    return ResponseDecision(False, reason, Rule.CANNOT_SEND)


def _check_budget(context: RuleContext) -> ResponseDecision | None:
    turn, degradation = context.turn, context.turn.degradation
    if (maximum := turn.instructions.current.budget) is not None:
        spent = turn.agent.budget.spent_in(turn.room.id)
        if spent >= maximum:
            notice_template = limit_notice(turn, context.counters, Rule.ROOM_BUDGET)
            reason = f"the budget of this room is used up: {format_dollars(spent)} of {format_dollars(maximum)} today"
            return ResponseDecision(False, reason, Rule.ROOM_BUDGET, notice_template)
    if degradation is not None and degradation.step is DegradeStep.OFFLINE:
        return None
    limit = turn.agent.budget.find_reached_limit(turn.room.id, context.newest.author.id)
    if limit is not None:
        notice_template = limit_notice(turn, context.counters, limit.setting)
        return ResponseDecision(False, f"the budget is used up: {limit}", limit.setting, notice_template)
    if degradation is not None and degradation.step is DegradeStep.SILENT:
        notice_template = limit_notice(turn, context.counters, degradation.setting)
        return ResponseDecision(False, str(degradation), degradation.setting, notice_template)
    return None


async def _check_rate_limits(context: RuleContext) -> ResponseDecision | None:
    turn, counters, author = context.turn, context.counters, context.newest.author
    if context.is_counted:
        return None
    limits = (
        counters.trusted_limits if context.adapter and context.adapter.is_trusted_audience else counters.public_limits
    )
    age = (turn.agent.clock() - context.newest.message.created_at).total_seconds()
    is_expected = expects_reply(turn, context.newest.message.content)
    if (tokens := counters.shared_tokens) is None:
        exceeded = limits.check(author.id, turn.room, expects_reply=is_expected, age=age)
    else:
        exceeded = await limits.check_shared(tokens, author.id, turn.room, expects_reply=is_expected, age=age)
    if exceeded is None:
        counters.counted_receipts.add(context.newest.receipt.id)
        return None
    notice_template = SLOW_DOWN if exceeded.should_notify else ""
    return ResponseDecision(False, exceeded.reason, exceeded.setting, notice_template, is_rate_limited=True)


def _check_regeneration(context: RuleContext) -> ResponseDecision | None:
    if context.edit_state is EditState.REGENERATED:
        return ResponseDecision(True, "a new answer was asked for", Rule.REGENERATED)
    return None


def _check_bypass_type(context: RuleContext) -> ResponseDecision | None:
    kind = context.turn.room.type
    listed = {entry.upper() for entry in context.settings.should_respond_bypass_types}
    if kind.is_direct:
        return ResponseDecision(True, f"every message in a room of type {kind} is answered", f"room type {kind}")
    if kind.value in listed:
        return ResponseDecision(True, f"every message in a room of type {kind} is answered", Rule.BYPASS_TYPES)
    return None


def _check_bypass_source(context: RuleContext) -> ResponseDecision | None:
    source = context.newest.message.content.source.split(":")[0].strip().lower()
    listed = {entry.lower() for entry in context.settings.should_respond_bypass_sources}
    if source in BYPASS_SOURCES | listed:
        return ResponseDecision(True, f"every message from {source} is answered", Rule.BYPASS_SOURCES)
    return None


def _check_addressed(context: RuleContext) -> ResponseDecision | None:
    content = context.newest.message.content
    if content.mention.is_reply:  # which some platforms report as a mention too
        return ResponseDecision(True, "it replies to the agent", Rule.REPLY)
    if content.mention.is_mention:
        return ResponseDecision(True, "it mentions the agent", Rule.MENTION)
    if _is_named(context.turn, content, addresses_name):
        return ResponseDecision(True, "it calls the agent by name", Rule.NAME_CALLED)
    return None


def _check_followed(context: RuleContext) -> ResponseDecision | None:
    if context.participant_state is ParticipantState.FOLLOWED:
        return ResponseDecision(True, "the agent follows this room", Rule.FOLLOWED)
    if context.turn.instructions.current.answer is AnswerRule.ALWAYS:
        return ResponseDecision(True, "the instructions of this room say `answer: always`", Rule.ROOM_ANSWER)
    return None


RULES_BEFORE_LIMITS: tuple[RuleCheck, ...] = (
    _check_own_message,
    _check_not_read,
    _check_late_edit,
    _check_denied,
    _check_empty,
    _check_bot,
    _check_muted,
    _check_room_answer,
    _check_age,
    _check_sending,
    _check_budget,
)
RULES_AFTER_LIMITS: tuple[RuleCheck, ...] = (
    _check_regeneration,
    _check_bypass_type,
    _check_bypass_source,
    _check_addressed,
    _check_followed,
)


async def should_respond(
    turn: Turn,
    composer: Composer,
    settings: CoreSettings,
    participant_state: ParticipantState,
    counters: MessageCounters,
    attachment_limits: ConcurrencyLimits,
    *,
    is_resumed: bool = False,
) -> ResponseDecision:
    """Decide whether to answer, with the settings of the turn's world.

    A resumed turn always goes on, unless its author is not read any more, or a person has taken over.
    """
    if is_resumed:
        if turn.agent.store.take_overs.current and (take_over := find_current_take_over(turn)):
            return ResponseDecision(False, str(take_over), Rule.TAKEN_OVER)
        is_read = turn.author.id not in turn.agent.store.marks.not_read
        return RESUMED_DECISION if is_read else ResponseDecision(False, NOT_READ_REASON, Rule.NOT_READ)
    if turn.world.settings:
        room_ids = [item for item in (turn.room.id, turn.room.parent_id) if item]
        try:
            settings = settings.for_world(turn.world.settings, room_ids)
        except ValueError:  # an older version accepted them
            name = turn.world.name or "this world"
            turn.notes.append(f"what is set for {name} does not fit, and is left out")
    if (answer := turn.instructions.current.answer) is not None and answer.is_responsiveness:
        settings = settings.model_copy(update={"responsiveness": answer.value})
    return await decide(turn, composer, settings, participant_state, counters, attachment_limits)


async def decide(
    turn: Turn,
    composer: Composer,
    settings: CoreSettings,
    participant_state: ParticipantState,
    counters: MessageCounters,
    attachment_limits: ConcurrencyLimits,
) -> ResponseDecision:
    """Return the decision of the first rule that applies, else that of the talk's state, else of the small model.

    Recordings that no rule has decided on are transcribed first, because they may call the agent by name.
    """
    newest, adapter = turn.inputs[-1], turn.agent.outbox.adapters.get(turn.room.platform)
    edit_state = newest.receipt.edit_state
    context = RuleContext(turn, participant_state, settings, counters, newest, edit_state, adapter)
    if not turn.room.type.is_direct and newest.author.id != turn.agent.id:
        counters.attention.hear(turn, participant_state)
    decision = _apply(RULES_BEFORE_LIMITS, context) or await _check_rate_limits(context)
    if (decision := decision or _apply(RULES_AFTER_LIMITS, context)) is not None:
        return decision
    if await transcribe_undecided(turn, attachment_limits) and (decision := _check_addressed(context)) is not None:
        return decision
    judgement = await counters.attention.judge(turn, Responsiveness(settings.responsiveness))
    turn.trace.judged = judgement.choice, judgement.text
    if judgement.choice is not Choice.SILENCE and await counters.attention.is_left_to_other_bot(turn):
        reason = user_text("addressing.answered_by_other_bot")
        return ResponseDecision(False, reason, Rule.NOT_ADDRESSED)
    if judgement.choice is not Choice.ASK:
        should_answer = judgement.choice is Choice.ANSWER
        return ResponseDecision(should_answer, judgement.text, Rule.ADDRESSED if should_answer else Rule.NOT_ADDRESSED)
    if turn.degradation is not None and turn.degradation.step is DegradeStep.OFFLINE:
        return ResponseDecision(False, judgement.text, Rule.NOT_ADDRESSED)  # no model may be asked

    async def ask(covered: int) -> ResponseDecision:
        turn.trace.covered = covered
        decision = await _decide_by_model(turn, composer, _describe_open_messages(judgement.text, covered))
        if decision.rule != Rule.DECISION_UNREADABLE:
            counters.attention.note_decision(turn, decision.should_answer)
        return decision

    if settings.latest_response == LatestResponse.QUEUE:
        return await ask(0)
    return await _ask_for_all(turn, counters, ask, by_author=settings.latest_response == LatestResponse.AUTHOR)


async def _ask_for_all(
    turn: Turn, counters: MessageCounters, ask: Callable[[int], Awaitable[ResponseDecision]], *, by_author: bool
) -> ResponseDecision:
    """Return the decision about the messages of a room, or of an author there, that wait for one; a reaction is set
    at the newest of them only.
    """
    has_asked = False

    async def ask_here(covered: int) -> ResponseDecision:
        nonlocal has_asked
        has_asked = True
        return await ask(covered)

    key = (turn.room.id, turn.inputs[-1].author.id if by_author else None)
    # One reply answers what came meanwhile too: the newest turn takes the others over.
    decision = await counters.decisions.run(key, ask_here, counts_for_later=lambda decision: decision.should_answer)
    if decision.reaction and not has_asked:
        return replace(decision, rule=Rule.DECIDED_IGNORE, reaction="")
    return decision


def _apply(rules: Iterable[RuleCheck], context: RuleContext) -> ResponseDecision | None:
    for rule in rules:
        if (decision := rule(context)) is not None:
            return decision
    return None


def _describe_open_messages(evidence: str, covered: int) -> str:
    """Return what the model is told about the messages that its decision covers."""
    if not covered:
        return evidence
    note = f"Nothing was decided about the {covered} messages before the last; RESPOND if any of them is meant."
    return f"{evidence}. {note}" if evidence else note


async def _decide_by_model(turn: Turn, composer: Composer, evidence: str) -> ResponseDecision:
    await composer.compose(turn, composer.registry.provider_names(*PROMPT_KINDS), only_included=True)

    reactions = turn.find_reactions()

    def build_request() -> TextRequest:
        return composer.build_request(
            turn,
            SHOULD_RESPOND,
            Purpose.SHOULD_RESPOND,
            ModelType.TEXT_SMALL,
            talkEvidence=evidence,
            reactions=str(reactions) if reactions is not None else "",
        )

    for _ in range(2):
        result = await generate_text(turn, composer, build_request, ModelType.TEXT_SMALL)
        crash_point("model.decide")
        decision = read_decision(result.text)
        if decision.action in RESPOND_ACTIONS:
            return ResponseDecision(True, decision.reasoning or "the model chose to answer", Rule.DECIDED_RESPOND)
        if decision.action == REACT_ACTION:
            emoji = reactions.find(decision.emoji) if reactions is not None else ""
            reason = decision.reasoning or f"the model chose {'to react' if emoji else 'silence'}"
            return ResponseDecision(False, reason, Rule.DECIDED_REACT if emoji else Rule.DECIDED_IGNORE, reaction=emoji)
        if decision.action in SILENT_ACTIONS:
            reason = decision.reasoning or "the model chose silence"
            return ResponseDecision(False, reason, Rule(f"{Rule.DECISION_FAILED}: {decision.action}"))
    return ResponseDecision(False, "the model's decision could not be read, twice", Rule.DECISION_UNREADABLE)
