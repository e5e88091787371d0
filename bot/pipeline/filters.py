"""`ContentStage`: runs the filters of an agent on what comes in and on what is to be sent.

The filters of the core: word lists, links, lengths, a model for moderation.
"""

import logging
import traceback
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

from bot.concurrency.tasks import Failure, run_isolated
from bot.domain.character import FilterSpec
from bot.domain.content import Attachment, Content, MediaKind, Quotation
from bot.domain.environment import Room, World
from bot.domain.events import TextFiltered
from bot.domain.filters import (
    FILTER_KEY,
    STOPPED_TEXT,
    FilterDecision,
    FilterInput,
    FilterOutcome,
    FilterResult,
    build_stopped,
    find_hold_reason,
)
from bot.domain.memory import Memory
from bot.errors import ConfigError
from bot.models.types import ModelType, ModerationRequest, ModerationResult
from bot.outbound.content_filter import LinkPolicy
from bot.plugin_system.components import Filter
from bot.receipts import RecordedVerdict, current_trace
from bot.settings import OFF, FilterSettings, room_setting
from bot.text import INVISIBLE_CHARACTER, end_at_sentence, is_blank, name_shape
from bot.turn import Agent, Turn
from bot.user_texts import UNSPACED

logger = logging.getLogger(__name__)
FILTER_WORDS = "FILTER_WORDS"
FILE_PREFIX = "file:"
MAX_WORD_FILE_BYTES = 1_048_576
MASK = "***"
STOPPED_PROBLEM = "a filter stopped what it contains"
MODERATION, MODERATION_SECONDS = "MODERATION", 5.0
VERBS: Mapping[FilterOutcome, str] = {
    FilterOutcome.REPLACE: "replaced",
    FilterOutcome.HOLD: "held",
    FilterOutcome.STOP: "stopped",
}


class ContentStage:
    """Runs the filters of one agent in order; each is given the text as the one before it has left it.

    `is_on` is False where only the choice of a world or a room could switch one on.
    """

    def __init__(self, filters: Sequence[Filter], *, is_on: bool, trusted_ids: Iterable[int] = ()) -> None:
        self.filters = tuple(filters)
        self.trusted_ids = frozenset(trusted_ids)
        self.is_on = is_on

    def is_active(self, direction: str, agent: Agent, room: Room, world: World) -> bool:
        """Return whether a filter of this direction is used in a room."""
        return next(self._list_active(direction, agent, room, world), None) is not None

    async def check_message(self, turn: Turn) -> str:
        """Check the newest message of a turn; return why it was stopped, empty if it was not.

        What was replaced or stopped is stored so, and nothing else of it is kept. Raises StoreUnavailable.
        """
        agent, turn_input = turn.agent, turn.inputs[-1]
        message, author = turn_input.message, turn_input.author
        if author.id == agent.id:
            return ""
        result = FilterResult.of_message(message)
        if result is None:
            given = FilterInput(message.content.text, message.content.attachments, turn.room, turn.world, author)
            result = await self._run("in", agent, given)
            quotation, result = await self._check_quotation(agent, given, message.content.quotation, result)
            turn_input.original_text = message.content.text
            content = replace(message.content, text=result.text, quotation=quotation)
            turn_input.message = await _store(agent, message, content, result)
        if notes := [note for note in result.notes if note != result.stop_reason]:
            receipt = turn_input.receipt
            turn_input.receipt = replace(receipt, notes=tuple(dict.fromkeys((*receipt.notes, *notes))))
        turn.hold_reason = turn.hold_reason or result.hold_reason
        turn_input.is_evaluated |= bool(result.stop_reason)
        return result.stop_reason

    async def check_attachment(self, turn: Turn, attachment: Attachment) -> Attachment:
        """Return an attachment that has been read, with what the filters let pass of its text.

        What is stopped or held is not read. Care still sees what was said in a recording.
        """
        text = attachment.text or attachment.description
        given = FilterInput(text, (attachment,), turn.room, turn.world, turn.author, is_attachment=True)
        result = await self._run("in", turn.agent, given)
        turn.notes += (f"{note} (in an attachment)" for note in result.notes)
        is_stopped = bool(result.stop_reason or result.hold_reason)
        if not is_stopped and result.text == text:
            return attachment
        if attachment.kind is MediaKind.AUDIO:
            for turn_input in turn.inputs:
                content = turn_input.message.content
                if any(item.id == attachment.id for item in content.attachments):
                    turn_input.original_text = "\n".join((turn_input.original_text or content.text, text))
        if is_stopped:
            return replace(attachment, title="", text="", description="", problem=STOPPED_PROBLEM)
        if attachment.text:
            return replace(attachment, text=result.text)
        return replace(attachment, description=result.text)

    async def check_reply(self, turn: Turn, content: Content) -> Content | None:
        """Return what the filters let pass of a reply; None where one has stopped it. The turn's notes say so."""
        given = FilterInput(content.text, content.attachments, turn.room, turn.world)
        result = await self._run("out", turn.agent, given)
        turn.notes += result.notes
        turn.hold_reason = turn.hold_reason or result.hold_reason
        return None if result.stop_reason else replace(content, text=result.text)

    async def check_post(self, agent: Agent, room: Room, content: Content) -> tuple[Content | None, str]:
        """Return what the filters let pass of a text that answers no message, and why it waits for a person.

        None where one has stopped it; the reason is empty where it does not wait.
        """
        world = await agent.store.worlds.world(room.world_id) or World(room.world_id, room.platform, "")
        with agent.rooms.charge(room):
            result = await self._run("out", agent, FilterInput(content.text, content.attachments, room, world))
        if result.notes:
            logger.info("a text for room %s was filtered: %s", room.id, "; ".join(result.notes))
        return None if result.stop_reason else replace(content, text=result.text), result.hold_reason

    async def _check_quotation(
        self, agent: Agent, given: FilterInput, quotation: Quotation | None, result: FilterResult
    ) -> tuple[Quotation | None, FilterResult]:
        """Check the text to which a message replies, unless the agent wrote it; return it and the result of both."""
        if quotation is None or not quotation.text or quotation.author_id == agent.id or result.stop_reason:
            return quotation, result
        quoted = await self._run("in", agent, replace(given, text=quotation.text, attachments=quotation.attachments))
        new_notes = (note for note in quoted.notes if note not in result.notes)
        notes = tuple(f"{note} (in the message that it replies to)" for note in new_notes)
        result = replace(result, hold_reason=result.hold_reason or quoted.hold_reason, notes=(*result.notes, *notes))
        if quoted.stop_reason:
            return replace(quotation, text=STOPPED_TEXT, attachments=()), result
        return replace(quotation, text=quoted.text), result

    async def _run(self, direction: str, agent: Agent, given: FilterInput) -> FilterResult:
        result = FilterResult(given.text)
        for item in self._list_active(direction, agent, given.room, given.world):
            decision, problem = await self._decide(item, agent, replace(given, text=result.text))
            notes = (*result.notes, problem) if problem else result.notes
            if decision.outcome is FilterOutcome.REPLACE and decision.text == result.text:
                decision = FilterDecision()
            if decision.outcome is not FilterOutcome.PASS:
                cause = f"{item.spec.name} {VERBS[decision.outcome]} the text"
                cause = f"filter {cause}: {decision.reason}" if decision.reason else f"filter {cause}"
                notes = (*notes, cause)
                event = TextFiltered(agent.id, given.room.id, item.spec.name, direction, VERBS[decision.outcome])
                agent.events.emit(event)
            result = replace(result, notes=notes)
            if decision.outcome is FilterOutcome.STOP:
                return replace(result, stop_reason=cause)
            if decision.outcome is FilterOutcome.HOLD:
                result = replace(result, hold_reason=result.hold_reason or cause)
            elif decision.outcome is FilterOutcome.REPLACE:
                result = replace(result, text=decision.text)
        return result

    def _list_active(self, direction: str, agent: Agent, room: Room, world: World) -> Iterator[Filter]:
        for item in self.filters:
            if item.spec.direction == direction and (item.when is None or _is_used(item, agent, room, world)):
                yield item

    async def _decide(self, item: Filter, agent: Agent, given: FilterInput) -> tuple[FilterDecision, str]:
        """Return the decision of a filter, as `_ask` does, and note one that a replay of the turn cannot make again."""
        decision, problem = await self._ask(item, agent, given)
        if (trace := current_trace.get()) is not None and self.is_recorded(item, given):
            trace.verdicts.append(RecordedVerdict(item.spec.name, item.spec.direction, decision, problem))
        return decision, problem

    def is_recorded(self, item: Filter, given: FilterInput) -> bool:
        """Return whether a decision is recorded for a replay: that of a model or of other code than the core's.

        Attachments are recorded as they were read.
        """
        is_own = id(item) in self.trusted_ids and item.spec.name != MODERATION
        return not is_own and not given.is_attachment

    async def _ask(self, item: Filter, agent: Agent, given: FilterInput) -> tuple[FilterDecision, str]:
        """Return the decision of a filter, and what has failed; empty if nothing has."""
        spec = item.spec
        answer: FilterDecision | Failure = await run_isolated(
            _call(item, agent, given),
            label=f"filter {spec.name}",
            timeout=spec.timeout,
            trusted=id(item) in self.trusted_ids,
        )
        if not isinstance(answer, Failure):
            return answer, ""
        problem = f"filter {spec.name} failed ({answer.cause}), which counts as {spec.on_failure}"
        if spec.on_failure == "open":
            return FilterDecision(), problem
        return FilterDecision.stop("it failed, and on_failure is closed"), problem


async def _call(item: Filter, agent: Agent, given: FilterInput) -> FilterDecision | Failure:
    """Return what a filter decides. Of what it raises only the class is told: the message may quote the text."""
    try:
        answer = await item(agent, given)
    except Exception as error:  # of a plugin: `on_failure` says what it means
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename}:{frame.lineno}"
        logger.warning("filter %s failed: %s at %s", item.spec.name, type(error).__name__, place)
        return Failure(type(error).__name__)
    if answer is None:
        return FilterDecision()
    if not isinstance(answer, FilterDecision):
        logger.warning("filter %s returned %s instead of a FilterDecision", item.spec.name, type(answer).__name__)
        return Failure(f"it returned {type(answer).__name__} instead of a FilterDecision")
    return answer


def _is_used(item: Filter, agent: Agent, room: Room, world: World) -> bool:
    """Return whether the condition of a filter holds; one that raises does not switch its filter off."""
    try:
        return item.when is None or bool(item.when(agent, room, world))
    except Exception:  # of a plugin
        logger.warning("the condition of filter %s failed; it is used", item.spec.name, exc_info=True)
        return True


async def _store(agent: Agent, message: Memory, content: Content, result: FilterResult) -> Memory:
    """Store and return a message as the filters have left it; without a change nothing is stored."""
    if result.stop_reason:
        content, result = build_stopped(content), replace(result, text=STOPPED_TEXT)
    if content == message.content and not result.hold_reason:
        return message
    message = replace(message, content=content, metadata={**message.metadata, FILTER_KEY: result.to_record()})
    await agent.store.memories.add([message])
    return message


def hold_with_inputs(turn: Turn) -> None:
    """Hold the answer of a turn that has taken over a message whose answer waits for a person."""
    reasons = (find_hold_reason(turn_input.message) for turn_input in turn.inputs)
    turn.hold_reason = turn.hold_reason or next((reason for reason in reasons if reason), "")


def build_content_stage(
    filters: Sequence[Filter], settings: FilterSettings, hosts: Sequence[str], trusted_ids: Iterable[int] = ()
) -> ContentStage:
    """Return the stage with the filters of the core before those of plugins. `hosts` are those of LINK_HOSTS.

    Raises ConfigError for a file of words that cannot be read.
    """
    own: list[Filter] = []
    if settings.filter_max_message_length:
        limit = settings.filter_max_message_length
        own.append(_build("in", "MAX_MESSAGE_LENGTH", "Cuts long messages.", partial(_shorten, limit)))
    words = WordFilter(load_words(settings.filter_words), FilterOutcome(settings.filter_words_action))
    lists = [_build(item, "WORDS", "Looks for words of FILTER_WORDS.", words.check, words.is_used) for item in BOTH]
    if settings.filter_moderation != OFF:
        moderation = Moderation(settings.moderation_thresholds, FilterOutcome(settings.filter_moderation_action))
        text, on_failure = "Asks a model whether texts are harmful.", settings.filter_moderation_failure
        specs = (FilterSpec(MODERATION, text, item, on_failure, MODERATION_SECONDS) for item in BOTH)
        own += [Filter(spec, moderation.check) for spec in specs]
    if settings.filter_links != OFF:
        policy = LinkPolicy(hosts)
        check_links = partial(_check_links, policy, FilterOutcome(settings.filter_links))
        own.append(_build("out", "LINKS", "Looks for links to hosts that are not in LINK_HOSTS.", check_links))
    if settings.filter_max_length:
        own.append(_build("out", "MAX_LENGTH", "Cuts long replies.", partial(_shorten, settings.filter_max_length)))
    is_on = bool(own or filters or words.has_words)
    all_filters = (*lists, *own, *filters)
    return ContentStage(all_filters, is_on=is_on, trusted_ids={*trusted_ids, *map(id, (*lists, *own))})


def check_moderation(agent: Agent) -> None:
    """Raise ConfigError where texts are to be moderated, and no plugin of the agent brings a model that can."""
    is_on = agent.settings.operator_only().load(FilterSettings).filter_moderation != OFF
    if is_on and not agent.models.has_handler_for(ModelType.MODERATION):
        raise ConfigError(
            f"FILTER_MODERATION is on, and {agent.name} has no model for it: set OPENAI_API_KEY and load the "
            "plugin openai, or set FILTER_MODERATION=off"
        )


BOTH = ("in", "out")
Check = Callable[[Agent, FilterInput], FilterDecision | Awaitable[FilterDecision | None] | None]


def _build(
    direction: str, name: str, description: str, check: Check, when: Callable[[Agent, Room, World], bool] | None = None
) -> Filter:
    return Filter(FilterSpec(name, description, direction, "closed"), check, when)


def _shorten(limit: int, agent: Agent, given: FilterInput) -> FilterDecision | None:
    if len(given.text) <= limit or given.is_attachment:
        return None
    text = end_at_sentence(given.text[:limit], limit // 2)
    return FilterDecision.replace(text, f"it had more than {limit} characters")


def _check_links(policy: LinkPolicy, outcome: FilterOutcome, agent: Agent, given: FilterInput) -> FilterDecision | None:
    if not policy.has_other_host(given.text):
        return None
    return FilterDecision(outcome, "a link leads to a host that is not in LINK_HOSTS")


@dataclass(frozen=True, slots=True)
class Moderation:
    """Asks a model for moderation; `thresholds` are as in FILTER_MODERATION_THRESHOLDS."""

    thresholds: Mapping[str, float | None]
    outcome: FilterOutcome

    async def check(self, agent: Agent, given: FilterInput) -> FilterDecision | None:
        """Return what a harmful text leads to; None for another. Raises ModelError where no model answers."""
        if is_blank(given.text):
            return None
        result = await agent.models.moderate(ModerationRequest(given.text))
        found = sorted(result.flagged)
        if self.thresholds:
            found = [name for name, least in self.thresholds.items() if _is_reached(result, name, least)]
        return FilterDecision(self.outcome, f"the model finds {', '.join(found)}") if found else None


def _is_reached(result: ModerationResult, category: str, least: float | None) -> bool:
    return category in result.flagged if least is None else result.scores.get(category, 0.0) >= least


@dataclass(frozen=True, slots=True)
class WordFilter:
    """Finds listed words, whatever letters that look alike they are written with; worlds and rooms add their own."""

    words: "WordList"
    outcome: FilterOutcome

    @property
    def has_words(self) -> bool:
        """Whether the operator has listed words."""
        return bool(self.words.entries or self.words.unspaced)

    def is_used(self, agent: Agent, room: Room, world: World) -> bool:
        """Return whether there are words for a room."""
        return self.has_words or bool(world.settings and _choices(room, world))

    def check(self, agent: Agent, given: FilterInput) -> FilterDecision | None:
        """Return what listed words in a text lead to; None without any."""
        lists = [self.words, *(parse_words(choice) for choice in _choices(given.room, given.world))]
        spans = [span for words in lists for span in words.find(given.text)]
        if not spans:
            return None
        if self.outcome is FilterOutcome.REPLACE:
            return FilterDecision.replace(_mask(given.text, spans), "words of FILTER_WORDS were masked")
        return FilterDecision(self.outcome, "it has a word of FILTER_WORDS")


def _choices(room: Room, world: World) -> list[str]:
    """Return the words that a world, a room and the room around it have listed."""
    rooms = (item for item in (room.id, room.parent_id) if item is not None)
    names = (FILTER_WORDS, *(room_setting(FILTER_WORDS, item) for item in rooms))
    return [choice for name in names if (choice := world.settings.get(name))]


def _mask(text: str, spans: Iterable[tuple[int, int]]) -> str:
    pieces, position = [], 0
    for start, end in sorted(spans):
        if end > position:
            pieces += [text[position : max(start, position)], MASK if start >= position else ""]
            position = end
    return "".join((*pieces, text[position:]))


@dataclass(frozen=True, slots=True)
class WordList:
    """Words and phrases by their shapes: those between spaces, and those of scripts that put none."""

    entries: tuple[tuple[str, ...], ...] = ()
    unspaced: tuple[str, ...] = ()
    _by_first: dict[str, list[tuple[str, ...]]] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for entry in self.entries:
            self._by_first.setdefault(entry[0], []).append(entry)

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where the words stand in a text."""
        tokens = list(_split_words(text)) if self.entries else []
        shapes = [name_shape(text[start:end]) for start, end in tokens]
        for number, shape in enumerate(shapes):
            for entry in self._by_first.get(shape, ()):
                if tuple(shapes[number : number + len(entry)]) == entry:
                    yield tokens[number][0], tokens[number + len(entry) - 1][1]
        for word in self.unspaced:
            start = text.find(word)
            while start >= 0:
                yield start, start + len(word)
                start = text.find(word, start + len(word))


def parse_words(listed: str) -> WordList:
    """Return the words of a list in which commas or lines part them; a line that begins with # is a comment."""
    lines = [line for line in listed.splitlines() if not line.lstrip().startswith("#")]
    return _parse(tuple(word.strip() for line in lines for word in line.split(",") if word.strip()))


@lru_cache(maxsize=64)
def _parse(words: tuple[str, ...]) -> WordList:
    unspaced = tuple(word for word in words if UNSPACED.match(word))
    spaced = (word for word in words if not UNSPACED.match(word))
    shapes = (tuple(name_shape(word[start:end]) for start, end in _split_words(word)) for word in spaced)
    return WordList(tuple(entry for entry in dict.fromkeys(shapes) if entry), unspaced)


def load_words(value: str) -> WordList:
    """Return the words of FILTER_WORDS: a list, or `file:` and the path of one. Raises ConfigError."""
    if not value.startswith(FILE_PREFIX):
        return parse_words(value)
    path = Path(value.removeprefix(FILE_PREFIX).strip()).expanduser()
    try:
        with path.open("rb") as file:
            data = file.read(MAX_WORD_FILE_BYTES + 1)
        listed = data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{FILTER_WORDS}: {path} cannot be read as a list of words in UTF-8: {error}") from None
    if len(data) > MAX_WORD_FILE_BYTES:
        raise ConfigError(f"{FILTER_WORDS}: {path} is larger than {MAX_WORD_FILE_BYTES // 1024} KiB: shorten the list")
    return parse_words(listed)


def _split_words(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the words of a text begin and end; invisible characters and accents do not part them."""
    start = -1
    for index, char in enumerate(text):
        if char.isalnum() or (not char.isascii() and _is_in_word(char, has_begun=start >= 0)):
            start = index if start < 0 else start
        elif start >= 0:
            yield start, index
            start = -1
    if start >= 0:
        yield start, len(text)


def _is_in_word(char: str, *, has_begun: bool) -> bool:
    if INVISIBLE_CHARACTER.match(char) or unicodedata.category(char).startswith("M"):
        return has_begun
    return any(map(str.isalnum, unicodedata.normalize("NFKD", char)))
