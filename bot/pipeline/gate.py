"""Whether to answer at all: rules first, and only where none decides, the small model."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from bot.domain.changes import LATE_EDIT, REVISIONS
from bot.domain.people import Attendance
from bot.domain.places import ChannelType
from bot.killpoints import reached
from bot.mentions import calls, names
from bot.models.types import ModelType, Purpose, TextRequest
from bot.pipeline.bots import BotGuard
from bot.pipeline.compose import Composer
from bot.pipeline.less import ask
from bot.pipeline.throttle import Throttle
from bot.platform.adapter import Adapter
from bot.platform.remembered import Remembered
from bot.prompts.reading.reader import read_decision
from bot.prompts.templates import SHOULD_RESPOND, SLOW_DOWN, SPENT
from bot.settings import CoreSettings
from bot.text import is_blank
from bot.turn import Turn

BYPASS_TYPES = frozenset({ChannelType.DM, ChannelType.VOICE_DM, ChannelType.SELF, ChannelType.API})
BYPASS_SOURCES = frozenset({"client_chat", "api", "postman"})
ANSWERS = frozenset({"RESPOND", "REPLY"})
SILENCES = frozenset({"IGNORE", "NONE", "STOP"})
MOST_TOLD = 1_000
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
        self.throttle = Throttle(settings)
        self.bots = BotGuard()
        self.told = Remembered[tuple[str, UUID, date]](MOST_TOLD)


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
        """Whether it was heard before, as it read before its edit, and had no outcome by then."""
        turn = self.turn
        return REVISIONS in turn.message.metadata and turn.inputs[-1].receipt.rule != LATE_EDIT

    @property
    def is_meant(self) -> bool:
        """Whether its author waits for an answer."""
        mention = self.turn.message.content.mention
        return self.turn.room.type in BYPASS_TYPES or mention.is_reply or self.is_named

    @property
    def is_named(self) -> bool:
        """Whether the message names the agent: by the platform's mention or as a whole word."""
        message = self.turn.message.content
        return message.mention.is_mention or any(names(message.text, name) for name in own_names(self.turn))


Rule = Callable[[Hearing], Verdict | None]


def own_names(turn: Turn) -> list[str]:
    """List what the agent is called: its name and its user name."""
    character = turn.agent.character
    return [name for name in (character.name, character.username) if name]


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
    case = (limit.setting, turn.room.id, turn.agent.clock().date())
    says = SPENT if hearing.is_meant and case not in hearing.counts.told else ""
    if says:
        hearing.counts.told.add(case)
    return Verdict(False, f"what may be spent is spent: {limit}", limit.setting, says)


def _too_much(hearing: Hearing) -> Verdict | None:
    turn = hearing.turn
    if hearing.is_counted or (hearing.adapter and hearing.adapter.is_private):
        return None
    excess = hearing.counts.throttle.excess(turn.author.id, turn.room, is_meant=hearing.is_meant)
    if excess is None:
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
