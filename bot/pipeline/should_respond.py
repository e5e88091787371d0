"""Whether to answer at all: rules first, and only where none decides, the small model."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from bot.adapter.adapter import Adapter
from bot.concurrency.bounded import Remembered
from bot.concurrency.crash_points import reached
from bot.domain.edits import LATE_EDIT
from bot.domain.environment import Attendance, ChannelType
from bot.models.types import ModelType, Purpose, TextRequest
from bot.name_matching import calls, names
from bot.pipeline.compose import Composer, ask
from bot.pipeline.rate_limits import NONE, OF_STRANGERS, BotGuard, Throttle
from bot.prompts.reply_parser.reader import read_decision
from bot.prompts.templates import SHOULD_RESPOND, SLOW_DOWN, SPENT
from bot.settings import CoreSettings
from bot.text import is_blank
from bot.turn import Turn

BYPASS_TYPES = frozenset({ChannelType.DM, ChannelType.VOICE_DM, ChannelType.SELF, ChannelType.API})
BYPASS_SOURCES = frozenset({"client_chat", "api", "postman"})
ANSWERS = frozenset({"RESPOND", "REPLY"})
SILENCES = frozenset({"IGNORE", "NONE", "STOP"})
MOST_TOLD = 1_000
MOST_HEARD = 10_000
PROVIDERS = ("CHARACTER", "ANXIETY", "ENTITIES", "RECENT_MESSAGES")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to answer, why in a sentence, and the rule or setting that decided.

    What is not answered may yet have the agent say something: `says` is the template. Of one that
    `is_excess` nothing is learnt either.
    """

    answer: bool
    reason: str
    rule: str
    says: str = ""
    is_excess: bool = False


class Counts:
    """What the rules remember of the messages before, for one agent."""

    def __init__(self, settings: CoreSettings) -> None:
        self.strangers = Throttle(settings, OF_STRANGERS)
        self.friends = Throttle(settings, NONE)
        self.bots = BotGuard()
        self.told = Remembered[tuple[str, UUID, date]](MOST_TOLD)
        self.heard = Remembered[UUID](MOST_HEARD)  # receipts


@dataclass(frozen=True, slots=True)
class Hearing:
    """What the rules are told of a message."""

    turn: Turn
    attendance: Attendance
    settings: CoreSettings
    counts: Counts

    @property
    def adapter(self) -> Adapter | None:
        """What connects the message's platform, while something does."""
        return self.turn.agent.outbox.adapter(self.turn.room.platform)

    @property
    def is_counted(self) -> bool:
        """Whether it was heard before, and an edit or an outage came before its outcome."""
        return self.turn.inputs[-1].receipt.id in self.counts.heard

    @property
    def is_meant(self) -> bool:
        """Whether its author waits for an answer."""
        return _is_meant(self.turn)

    @property
    def is_named(self) -> bool:
        """Whether the message names the agent: by the platform's mention or as a whole word."""
        return _is_named(self.turn)


Rule = Callable[[Hearing], Verdict | None]


def own_names(turn: Turn) -> list[str]:
    """List what the agent is called: its name and its user name."""
    character = turn.agent.character
    return [name for name in (character.name, character.username) if name]


def told_of_limit(turn: Turn, counts: Counts, setting: str) -> str:
    """Give the template that says what is spent: once a day in a room, where somebody waits for an answer."""
    case = (setting, turn.room.id, turn.agent.clock().date())
    if case in counts.told or not _is_meant(turn):
        return ""
    counts.told.add(case)
    return SPENT


def _is_meant(turn: Turn) -> bool:
    mention = turn.message.content.mention
    return turn.room.type in BYPASS_TYPES or mention.is_reply or _is_named(turn)


def _is_named(turn: Turn) -> bool:
    message = turn.message.content
    return message.mention.is_mention or any(names(message.text, name) for name in own_names(turn))


def _own(hearing: Hearing) -> Verdict | None:
    if hearing.turn.author.id == hearing.turn.agent.id:
        return Verdict(False, "it is the agent's own message", "own message")
    return None


def _edited_late(hearing: Hearing) -> Verdict | None:
    turn = hearing.turn
    if turn.inputs[-1].receipt.rule != LATE_EDIT:
        return None
    if hearing.settings.on_edit == "ignore":
        return Verdict(False, "it was edited when it had its outcome already", "ON_EDIT")
    if turn.replaces is not None and not (hearing.adapter and hearing.adapter.can_edit):
        return Verdict(False, f"what was said on {turn.room.platform} cannot be changed", "ON_EDIT")
    return None


def _denied(hearing: Hearing) -> Verdict | None:
    rule = hearing.turn.message.content.mention.denied_by
    return Verdict(False, f"{rule} forbids answering here", rule) if rule else None


def _empty(hearing: Hearing) -> Verdict | None:
    content = hearing.turn.message.content
    if is_blank(content.text) and not content.attachments:
        return Verdict(False, "it holds nothing to answer", "empty message")
    return None


def _bot(hearing: Hearing) -> Verdict | None:
    author, room = hearing.turn.author, hearing.turn.room
    if not author.is_bot:
        hearing.counts.bots.note_person(room.id)
        return None
    if not hearing.settings.respond_to_bots:
        return Verdict(False, "another bot wrote it", "RESPOND_TO_BOTS")
    if hearing.is_counted:
        return None
    objection = hearing.counts.bots.objection(author.id, room.id)
    return Verdict(False, objection, "RESPOND_TO_BOTS") if objection else None


def _muted(hearing: Hearing) -> Verdict | None:
    if hearing.attendance is Attendance.MUTED and not hearing.is_named:
        return Verdict(False, "the room is muted and the message does not name the agent", "MUTED")
    return None


def _spent(hearing: Hearing) -> Verdict | None:
    turn = hearing.turn
    limit = turn.agent.budget.reached(turn.room.id, turn.author.id)
    if limit is None:
        return None
    says = told_of_limit(turn, hearing.counts, limit.setting)
    return Verdict(False, f"what may be spent is spent: {limit}", limit.setting, says)


def _too_much(hearing: Hearing) -> Verdict | None:
    turn, counts = hearing.turn, hearing.counts
    if hearing.is_counted:
        return None
    throttle = counts.friends if hearing.adapter and hearing.adapter.is_private else counts.strangers
    age = (turn.agent.clock() - turn.message.created_at).total_seconds()
    excess = throttle.excess(turn.author.id, turn.room, is_meant=hearing.is_meant, age=age)
    if excess is None:
        counts.heard.add(turn.inputs[-1].receipt.id)
        return None
    says = SLOW_DOWN if excess.is_told else ""
    return Verdict(False, excess.reason, excess.setting, says, is_excess=True)


def _bypass_type(hearing: Hearing) -> Verdict | None:
    kind = hearing.turn.room.type
    listed = {one.upper() for one in hearing.settings.should_respond_bypass_types}
    if kind in BYPASS_TYPES:
        return Verdict(True, f"every message in a room of type {kind} is answered", f"room type {kind}")
    if kind.value in listed:
        return Verdict(
            True, f"every message in a room of type {kind} is answered", "SHOULD_RESPOND_BYPASS_TYPES"
        )
    return None


def _bypass_source(hearing: Hearing) -> Verdict | None:
    source = hearing.turn.message.content.source.split(":")[0].strip().lower()
    listed = {one.lower() for one in hearing.settings.should_respond_bypass_sources}
    if source in BYPASS_SOURCES | listed:
        return Verdict(True, f"every message from {source} is answered", "SHOULD_RESPOND_BYPASS_SOURCES")
    return None


def _addressed(hearing: Hearing) -> Verdict | None:
    content = hearing.turn.message.content
    if content.mention.is_mention:
        return Verdict(True, "it mentions the agent", "mention")
    if content.mention.is_reply:
        return Verdict(True, "it replies to the agent", "reply")
    if any(calls(content.text, name) for name in own_names(hearing.turn)):
        return Verdict(True, "it calls the agent by name", "name called")
    return None


def _followed(hearing: Hearing) -> Verdict | None:
    if hearing.attendance is Attendance.FOLLOWED:
        return Verdict(True, "the agent follows this room", "FOLLOWED")
    return None


RULES: tuple[Rule, ...] = (
    _own,
    _edited_late,
    _denied,
    _empty,
    _bot,
    _muted,
    _spent,
    _too_much,
    _bypass_type,
    _bypass_source,
    _addressed,
    _followed,
)


async def judge(
    turn: Turn, composer: Composer, settings: CoreSettings, attendance: Attendance, counts: Counts
) -> Verdict:
    """Decide whether to answer; the first rule that has an opinion decides, else the small model."""
    hearing = Hearing(turn, attendance, settings, counts)
    for rule in RULES:
        if (verdict := rule(hearing)) is not None:
            return verdict
    return await _ask(turn, composer)


async def _ask(turn: Turn, composer: Composer) -> Verdict:
    await composer.compose(turn, PROVIDERS, only=True)

    def request() -> TextRequest:
        prompt = composer.render(turn, SHOULD_RESPOND)
        return TextRequest(prompt, purpose=Purpose.SHOULD_RESPOND, system=composer.system(turn))

    for _ in range(2):
        result = await ask(turn, composer, request, ModelType.TEXT_SMALL)
        reached("model.decide")
        decision = read_decision(result.text)
        if decision.action in ANSWERS:
            return Verdict(True, decision.reasoning or "the model chose to answer", "shouldRespond: RESPOND")
        if decision.action in SILENCES:
            reason = decision.reasoning or "the model chose silence"
            return Verdict(False, reason, f"shouldRespond: {decision.action}")
    return Verdict(False, "the model's decision could not be read, twice", "shouldRespond: unreadable")
