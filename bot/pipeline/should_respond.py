"""The should_respond stage: rules decide whether to answer; if none applies, the small model."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from bot.adapter.adapter import Adapter
from bot.addressing.attention import Attention, Choice, Responsiveness
from bot.addressing.shared_calls import SharedCalls
from bot.concurrency.bounded import BoundedSet
from bot.concurrency.crash_points import crash_point
from bot.domain.component_specs import ProviderKind
from bot.domain.content import MediaKind
from bot.domain.environment import ParticipantState
from bot.domain.ledger import EditState, Rule
from bot.models.types import ModelType, Purpose, TextRequest
from bot.pipeline.attachments import ConcurrencyLimits, transcribe_undecided
from bot.pipeline.compose import Composer, generate_text
from bot.pipeline.name_matching import addresses_name, contains_name
from bot.pipeline.rate_limits import NO_LIMITS, PUBLIC_LIMITS, BotGuard, MessageRateLimiter, SharedTokens
from bot.pipeline.turn_order import LatestResponse
from bot.prompts.reply_parser.reader import read_decision
from bot.prompts.templates import SHOULD_RESPOND, SLOW_DOWN, SPENT
from bot.settings import CoreSettings
from bot.store.work_sharing import WorkSharing
from bot.text import is_blank
from bot.turn import Turn
from bot.user_texts import user_text

BYPASS_SOURCES = frozenset({"client_chat", "api", "postman"})
RESPOND_ACTIONS = frozenset({"RESPOND", "REPLY"})
SILENT_ACTIONS = frozenset({"IGNORE", "NONE", "STOP"})
MAX_NOTICES = 1_000
MAX_COUNTED_RECEIPTS = 4_000
PROMPT_KINDS = (ProviderKind.PERSONA, ProviderKind.STYLE, ProviderKind.PARTICIPANTS, ProviderKind.HISTORY)


@dataclass(frozen=True, slots=True)
class ResponseDecision:
    """Whether to answer, the reason, and the rule or setting that decided.

    A message that is not answered may cause a notice: `notice_template`. A rate-limited one is not evaluated.
    """

    should_answer: bool
    reason: str
    rule: str
    notice_template: str = ""
    is_rate_limited: bool = False


RESUMED_DECISION = ResponseDecision(True, "it was being answered when the process stopped", Rule.RESTART)


class MessageCounters:
    """What the rules of one agent know across messages: counts, the talks of rooms, calls in flight.

    All of it is in memory, but the rate limits where processes share the work.
    """

    def __init__(self, settings: CoreSettings, sharing: WorkSharing | None = None) -> None:
        self.shared_tokens = SharedTokens(sharing.limits) if sharing is not None else None
        self.public_limits = MessageRateLimiter(settings, PUBLIC_LIMITS)
        self.trusted_limits = MessageRateLimiter(settings, NO_LIMITS)
        self.bots = BotGuard()
        self.notices_sent = BoundedSet[tuple[str, UUID, date]](MAX_NOTICES)
        self.counted_receipts = BoundedSet[UUID](MAX_COUNTED_RECEIPTS)
        self.attention = Attention()
        self.decisions = SharedCalls[ResponseDecision]()


@dataclass(frozen=True, slots=True)
class RuleContext:
    """What the rules know about a message."""

    turn: Turn
    participant_state: ParticipantState
    settings: CoreSettings
    counters: MessageCounters

    @property
    def adapter(self) -> Adapter | None:
        """The adapter of the message's platform, if connected."""
        return self.turn.agent.outbox.adapter(self.turn.room.platform)

    @property
    def is_counted(self) -> bool:
        """Whether the limits have counted the message before, in an attempt without outcome."""
        return self.turn.inputs[-1].receipt.id in self.counters.counted_receipts

    @property
    def expects_reply(self) -> bool:
        """Whether the author expects a reply."""
        return _expects_reply(self.turn)

    @property
    def is_mentioned(self) -> bool:
        """Whether the message names the agent: by the platform's mention or as a whole word."""
        return _is_mentioned(self.turn)


RuleCheck = Callable[[RuleContext], ResponseDecision | None]


def agent_names(turn: Turn) -> list[str]:
    """Return the name and the user name of the character."""
    character = turn.agent.character
    return [name for name in (character.name, character.username) if name]


def limit_notice(turn: Turn, counters: MessageCounters, setting: str) -> str:
    """Return the template of the budget notice; empty if it was sent today or no reply is expected."""
    key = (setting, turn.room.id, turn.agent.clock().date())
    if key in counters.notices_sent or not _expects_reply(turn):
        return ""
    counters.notices_sent.add(key)
    return SPENT


def _expects_reply(turn: Turn) -> bool:
    mention = turn.message.content.mention
    return turn.room.type.is_direct or mention.is_reply or _is_mentioned(turn)


def _is_mentioned(turn: Turn) -> bool:
    return turn.message.content.mention.is_mention or _is_named(turn, contains_name)


def _is_named(turn: Turn, is_named_in: Callable[[str, str], bool]) -> bool:
    """Return whether the text of the message, or a transcript of what was said in it, names the agent."""
    content = turn.message.content
    transcripts = (attachment.text for attachment in content.attachments if attachment.kind is MediaKind.AUDIO)
    return any(is_named_in(text, name) for text in (content.text, *transcripts) for name in agent_names(turn))


def _check_own_message(context: RuleContext) -> ResponseDecision | None:
    if context.turn.author.id == context.turn.agent.id:
        return ResponseDecision(False, "it is the agent's own message", Rule.OWN_MESSAGE)
    return None


def _check_late_edit(context: RuleContext) -> ResponseDecision | None:
    turn = context.turn
    edit_state = turn.inputs[-1].receipt.edit_state
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
    rule = context.turn.message.content.mention.denied_by
    return ResponseDecision(False, f"{rule} forbids answering here", rule) if rule else None


def _check_empty(context: RuleContext) -> ResponseDecision | None:
    content = context.turn.message.content
    if is_blank(content.text) and not content.attachments:
        return ResponseDecision(False, "it holds nothing to answer", Rule.EMPTY_MESSAGE)
    return None


def _check_bot(context: RuleContext) -> ResponseDecision | None:
    author, room = context.turn.author, context.turn.room
    if not author.is_bot:
        context.counters.bots.note_person(room.id)
        return None
    if not context.settings.respond_to_bots:
        return ResponseDecision(False, "another bot wrote it", Rule.RESPOND_TO_BOTS)
    if context.is_counted:
        return None
    refusal = context.counters.bots.refusal_for(author.id, room.id)
    return ResponseDecision(False, refusal, Rule.RESPOND_TO_BOTS) if refusal else None


def _check_muted(context: RuleContext) -> ResponseDecision | None:
    if context.turn.author.id in context.turn.agent.muted_people:
        return ResponseDecision(False, "an operator has muted its author", Rule.PERSON_MUTED)
    if context.participant_state is ParticipantState.MUTED and not context.is_mentioned:
        return ResponseDecision(False, "the room is muted and the message does not name the agent", Rule.MUTED)
    return None


def _check_sending(context: RuleContext) -> ResponseDecision | None:
    platform = context.turn.room.platform
    if not context.turn.agent.outbox.is_full(platform):
        return None
    reason = f"the account is off on {platform}, and replies that cannot be sent wait there already"
    return ResponseDecision(False, reason, Rule.CANNOT_SEND)


def _check_budget(context: RuleContext) -> ResponseDecision | None:
    turn = context.turn
    limit = turn.agent.budget.find_reached_limit(turn.room.id, turn.author.id)
    if limit is None:
        return None
    notice_template = limit_notice(turn, context.counters, limit.setting)
    return ResponseDecision(False, f"the budget is used up: {limit}", limit.setting, notice_template)


async def _check_rate_limits(context: RuleContext) -> ResponseDecision | None:
    turn, counters = context.turn, context.counters
    if context.is_counted:
        return None
    limits = (
        counters.trusted_limits if context.adapter and context.adapter.is_trusted_audience else counters.public_limits
    )
    age = (turn.agent.clock() - turn.message.created_at).total_seconds()
    expects_reply = context.expects_reply
    if (tokens := counters.shared_tokens) is None:
        exceeded = limits.check(turn.author.id, turn.room, expects_reply=expects_reply, age=age)
    else:
        exceeded = await limits.check_shared(tokens, turn.author.id, turn.room, expects_reply=expects_reply, age=age)
    if exceeded is None:
        counters.counted_receipts.add(turn.inputs[-1].receipt.id)
        return None
    notice_template = SLOW_DOWN if exceeded.should_notify else ""
    return ResponseDecision(False, exceeded.reason, exceeded.setting, notice_template, is_rate_limited=True)


def _check_regeneration(context: RuleContext) -> ResponseDecision | None:
    if context.turn.is_regeneration:
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
    source = context.turn.message.content.source.split(":")[0].strip().lower()
    listed = {entry.lower() for entry in context.settings.should_respond_bypass_sources}
    if source in BYPASS_SOURCES | listed:
        return ResponseDecision(True, f"every message from {source} is answered", Rule.BYPASS_SOURCES)
    return None


def _check_addressed(context: RuleContext) -> ResponseDecision | None:
    content = context.turn.message.content
    if content.mention.is_reply:  # which some platforms report as a mention too
        return ResponseDecision(True, "it replies to the agent", Rule.REPLY)
    if content.mention.is_mention:
        return ResponseDecision(True, "it mentions the agent", Rule.MENTION)
    if _is_named(context.turn, addresses_name):
        return ResponseDecision(True, "it calls the agent by name", Rule.NAME_CALLED)
    return None


def _check_followed(context: RuleContext) -> ResponseDecision | None:
    if context.participant_state is ParticipantState.FOLLOWED:
        return ResponseDecision(True, "the agent follows this room", Rule.FOLLOWED)
    return None


RULES_BEFORE_LIMITS: tuple[RuleCheck, ...] = (
    _check_own_message,
    _check_late_edit,
    _check_denied,
    _check_empty,
    _check_bot,
    _check_muted,
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
    """Decide whether to answer, with the settings of the turn's world; a resumed turn always goes on."""
    if is_resumed:
        return RESUMED_DECISION
    try:
        room = turn.room
        settings = settings.for_world(turn.world.settings, [item for item in (room.id, room.parent_id) if item])
    except ValueError:  # an older version accepted them
        name = turn.world.name or "this world"
        turn.notes.append(f"what is set for {name} does not fit, and is left out")
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
    context = RuleContext(turn, participant_state, settings, counters)
    if not turn.room.type.is_direct and turn.author.id != turn.agent.id:
        counters.attention.hear(turn, participant_state)
    decision = _apply(RULES_BEFORE_LIMITS, context) or await _check_rate_limits(context)
    if (decision := decision or _apply(RULES_AFTER_LIMITS, context)) is not None:
        return decision
    if await transcribe_undecided(turn, attachment_limits) and (decision := _check_addressed(context)) is not None:
        return decision
    judgement = await counters.attention.judge(turn, Responsiveness(settings.responsiveness))
    if judgement.choice is not Choice.SILENCE and await counters.attention.is_left_to_other_bot(turn):
        reason = user_text("addressing.answered_by_other_bot")
        return ResponseDecision(False, reason, Rule.NOT_ADDRESSED)
    if judgement.choice is not Choice.ASK:
        should_answer = judgement.choice is Choice.ANSWER
        return ResponseDecision(should_answer, judgement.text, Rule.ADDRESSED if should_answer else Rule.NOT_ADDRESSED)

    async def ask(covered: int) -> ResponseDecision:
        decision = await _decide_by_model(turn, composer, _describe_open_messages(judgement.text, covered))
        if decision.rule != Rule.DECISION_UNREADABLE:
            counters.attention.note_decision(turn, decision.should_answer)
        return decision

    if settings.latest_response == LatestResponse.QUEUE:
        return await ask(0)
    by_author = settings.latest_response == LatestResponse.AUTHOR
    key = (turn.room.id, turn.author.id if by_author else None)
    # One reply answers what came meanwhile too: the newest turn takes the others over.
    return await counters.decisions.run(key, ask, counts_for_later=lambda decision: decision.should_answer)


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

    def build_request() -> TextRequest:
        return composer.build_request(
            turn, SHOULD_RESPOND, Purpose.SHOULD_RESPOND, ModelType.TEXT_SMALL, talkEvidence=evidence
        )

    for _ in range(2):
        result = await generate_text(turn, composer, build_request, ModelType.TEXT_SMALL)
        crash_point("model.decide")
        decision = read_decision(result.text)
        if decision.action in RESPOND_ACTIONS:
            return ResponseDecision(True, decision.reasoning or "the model chose to answer", Rule.DECIDED_RESPOND)
        if decision.action in SILENT_ACTIONS:
            reason = decision.reasoning or "the model chose silence"
            return ResponseDecision(False, reason, Rule(f"{Rule.DECISION_FAILED}: {decision.action}"))
    return ResponseDecision(False, "the model's decision could not be read, twice", Rule.DECISION_UNREADABLE)
