"""Runs a turn again from its replay record, by the stages that ran it first, and compares both.

Models, providers and actions are not asked: what they returned is in the record. Nothing is sent, and what is stored is
in the memory of the agent that replays.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import unified_diff
from itertools import zip_longest
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict

import bot.errors
from bot.care.recognition import DistressCategory
from bot.care.settings import CareSettings
from bot.domain.character import ActionSpec, Effect, ProviderKind, ProviderSpec
from bot.domain.environment import ParticipantState
from bot.domain.filters import FilterDecision, FilterInput
from bot.domain.ledger import ActionResult, Outcome, ProviderResult, Receipt, Rule, State
from bot.errors import BudgetSpent, ModelError, ModelUnavailable
from bot.models.handler import ModelProfile
from bot.models.router import ModelRouter
from bot.models.types import ModelType, Purpose, TextRequest, TextResult, ToolCall
from bot.operate.results import Difference
from bot.pipeline.attention import Attention, Choice, Judgement, Responsiveness, SharedCalls
from bot.pipeline.care import Care
from bot.pipeline.commit import TurnFailure
from bot.pipeline.compose import Composer
from bot.pipeline.filters import ContentStage
from bot.pipeline.process_message import MessagePipeline
from bot.pipeline.respond import ActionCall
from bot.pipeline.run_actions import ActionRunner, MultiStep, RepeatedCall
from bot.pipeline.should_respond import ResponseDecision, expects_reply
from bot.plugin_system.components import Action, Filter, Provider
from bot.plugin_system.registry import Registry
from bot.receipts import RecordedAction, RecordedAnswer, RecordedVerdict, ReplayRecord, describe_content, digest_prompt
from bot.runs import Run
from bot.settings import CoreSettings
from bot.turn import Agent, Turn, TurnInput
from bot.user_texts import use_language

CHARACTER_KINDS = (ProviderKind.PERSONA, ProviderKind.STYLE)  # texts that another character has of its own
SEPARATOR = "\n\n"  # between the system prompt and the prompt


@dataclass(slots=True, eq=False)
class Comparison:
    """What was compared of a turn, in order, and what differs."""

    steps: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    def compare(self, step: str, recorded: str, replayed: str) -> None:
        """Compare two texts of a step."""
        self.steps.append(step)
        if recorded == replayed:
            return
        before, after = recorded.split("\n"), replayed.split("\n")
        pairs = enumerate(zip_longest(before, after), 1)  # None where one of them has fewer lines
        line, first, second = next((number, *pair) for number, pair in pairs if pair[0] != pair[1])
        diff = list(unified_diff(before, after, "recorded", "replayed", n=1, lineterm=""))
        self.differences.append(
            Difference(step=step, line=line, recorded=first or "", replayed=second or "", diff=diff)
        )


# What ends a turn from outside, at a moment that is recorded: as the last answer, or by what is missing then.
INTERRUPTED_RULES = frozenset({Rule.RESPONSE_TIMEOUT, Rule.STOPPED})


class Interruption:
    """Ends a turn where a person or RESPONSE_TIMEOUT ended it: where it needs what was not recorded any more."""

    def __init__(self, record: ReplayRecord) -> None:
        rule = record.inputs[-1].receipt.rule
        self.rule, self.has_ended_turn = rule if rule in INTERRUPTED_RULES else "", False

    def end_turn(self) -> None:
        """Cancel the task, as then, if the turn was ended from outside."""
        if self.rule:
            self.has_ended_turn = True
            raise asyncio.CancelledError


class RecordedModels(ModelRouter):
    """Gives the recorded answers in their order, and compares the prompts; `prompts` are their texts by digest."""

    def __init__(self, record: ReplayRecord, prompts: dict[str, str], comparison: Comparison) -> None:
        super().__init__(reserve=_refuse)
        self._answers, self._is_plain = record.answers, record.is_plain
        self.interruption = Interruption(record)
        self._prompts, self._comparison = prompts, comparison
        self.position = 0

    @property
    def next(self) -> RecordedAnswer | None:
        """The answer that is given next."""
        return self._answers[self.position] if self.position < len(self._answers) else None

    def has_handler_for(self, kind: ModelType) -> bool:
        return kind.startswith("TEXT_") and kind is not ModelType.TEXT_EMBEDDING

    def can_call_tools(self, kind: ModelType) -> bool:
        return any(answer.tools for answer in self._same())

    def can_write_json(self, kind: ModelType) -> bool:
        return any(answer.is_json for answer in self._same())

    async def profile(self, kind: ModelType) -> ModelProfile | None:
        return None

    async def writes_plain_text(self, kind: ModelType) -> bool:
        return self._is_plain

    async def text(self, request: TextRequest, kind: ModelType = ModelType.TEXT_LARGE) -> TextResult:
        answer, step = self.next, f"prompt {self.position + 1} ({request.purpose})"
        if answer is None:
            self.interruption.end_turn()
            self._comparison.compare(step, "", join_prompt(request.system, request.prompt))
            raise ModelUnavailable("the record has no further answer")
        self.position += 1
        prompt = recorded = join_prompt(request.system, request.prompt)
        if digest_prompt(request.system, request.prompt) != answer.digest:
            recorded = self._prompts.get(answer.digest, "(a prompt whose text is not stored)")
        self._comparison.compare(step, recorded, prompt)
        tools = ", ".join(tool.name for tool in request.tools)
        if tools or answer.tools:
            self._comparison.compare(f"{step}, functions", ", ".join(answer.tools), tools)
        if answer.error == asyncio.CancelledError.__name__:
            self.interruption.end_turn()
        if answer.error:
            raise _build_error(answer)
        calls = tuple(ToolCall(name, arguments) for name, arguments in answer.calls)
        return TextResult(
            answer.text,
            "recorded",
            is_truncated=answer.is_truncated,
            tool_calls=calls,
            has_cut_call=answer.has_cut_call,
        )

    def _same(self) -> list[RecordedAnswer]:
        """Return the answers of the purpose that is answered next."""
        return [answer for answer in self._answers if self.next is not None and answer.purpose == self.next.purpose]


async def _refuse(*_: object) -> Any:
    raise AssertionError("a replay calls no model")


def join_prompt(system: str, prompt: str) -> str:
    """Return a prompt as one text."""
    return f"{system}{SEPARATOR}{prompt}"


def _build_error(answer: RecordedAnswer) -> ModelError:
    if answer.error == BudgetSpent.__name__:
        return BudgetSpent(answer.setting, answer.text)
    kind = getattr(bot.errors, answer.error, ModelError)
    return kind(answer.text) if issubclass(kind, ModelError) else ModelError(answer.text)


class RecordedFilters(ContentStage):
    """Runs the filters of the core; of the others the recorded decisions count, in their order."""

    def __init__(self, stage: ContentStage, verdicts: Iterable[RecordedVerdict], comparison: Comparison) -> None:
        super().__init__(stage.filters, is_on=stage.is_on, trusted_ids=stage.trusted_ids)
        self._verdicts, self._comparison = deque(verdicts), comparison

    async def _ask(self, item: Filter, agent: Agent, given: FilterInput) -> tuple[FilterDecision, str]:
        if not self.is_recorded(item, given):
            return await super()._ask(item, agent, given)
        name = f"{item.spec.name} {item.spec.direction}"
        verdict = self._verdicts.popleft() if self._verdicts else None
        recorded = f"{verdict.name} {verdict.direction}" if verdict is not None else ""
        self._comparison.compare(f"filter {name}", recorded, name)
        return (verdict.decision, verdict.problem) if verdict is not None else (FilterDecision(), "")


class RecordedComposer(Composer):
    """Composes from the recorded texts of providers; those about the character run if it `is_other`."""

    def __init__(self, registry: Registry, record: ReplayRecord, models: RecordedModels, *, is_other: bool) -> None:
        super().__init__(registry)
        self._record, self._models = record, models
        self._own = frozenset(registry.provider_names(*CHARACTER_KINDS)) if is_other else frozenset()

    async def compose(self, turn: Turn, include: Collection[str] = (), *, only_included: bool = False) -> State:
        """Compose the state of the next prompt from what was recorded with its answer."""
        answer, state = self._models.next, turn.state
        if answer is not None:
            state.is_shortened, state.max_message_length = answer.is_shortened, answer.max_message_length
            for name, index in answer.providers.items():
                if name not in self._own:
                    text = self._record.texts[index]
                    state.results[name] = ProviderResult(text.text, text.values, authors=())
            include = [*include, *answer.providers]
        return await super().compose(turn, include, only_included=only_included)

    async def _run_providers(self, turn: Turn, providers: Sequence[Provider]) -> None:
        own = [provider for provider in providers if provider.spec.name in self._own]
        turn.state.results |= {provider.spec.name: ProviderResult() for provider in providers if provider not in own}
        await super()._run_providers(turn, own)


class RecordedActions(ActionRunner):
    """Returns the recorded results of actions, and compares what each was called with."""

    def __init__(
        self, composer: Composer, actions: Sequence[RecordedAction], comparison: Comparison, interruption: Interruption
    ) -> None:
        super().__init__(composer)
        self._interruption = interruption
        self._actions = {action.number: action for action in actions}
        self._comparison = comparison

    async def run(
        self,
        turn: Turn,
        call: ActionCall,
        number: int,
        call_keys: set[str] | None = None,
        *,
        is_confirmed: bool = False,
    ) -> ActionResult:
        """Return the recorded result of an action, after the replies that it has sent."""
        name, recorded = call.action.spec.name, self._actions.get(number)
        if recorded is None:
            self._interruption.end_turn()
        if recorded is None and call_keys is not None:
            raise RepeatedCall
        turn.begin_step(number + 1)
        before = "" if recorded is None else _describe_call(recorded.name, recorded.parameters)
        self._comparison.compare(f"action {number + 1}", before, _describe_call(name, call.parameters))
        if recorded is None:
            return self._finish(turn, call, number, ActionResult(False, error="not recorded", action=name), 0)
        reply_count = len(turn.replies)
        for content in recorded.replies:
            await turn.reply(content)
        result = ActionResult(recorded.success, recorded.text, recorded.values, error=recorded.error, action=name)
        return self._finish(turn, call, number, result, reply_count)


def _describe_call(name: str, parameters: Any) -> str:
    return f"{name} {json.dumps(parameters, ensure_ascii=False, sort_keys=True, default=str)}"


class _AnyArguments(BaseModel):
    model_config = ConfigDict(extra="allow")


async def _not_run(turn: Turn) -> ActionResult:
    return ActionResult(False, error="a replay runs no action")


def add_missing(registry: Registry, record: ReplayRecord) -> None:
    """Register what services had registered while the agent ran, as far as the turn used it: they do not run now."""
    plugin = registry.plugins[0]
    called = {action.name: action for action in record.actions}
    for name in record.offered:
        if name not in registry.actions:
            action = called.get(name)
            effect, is_critical = (action.effect, action.is_critical) if action is not None else (Effect.UNSAFE, False)
            spec = ActionSpec(name, "", effect=effect, is_critical=is_critical)
            registry.register(plugin, Action(spec, _not_run, _AnyArguments))
    for answer in record.answers:
        position = 0
        for name in answer.providers:
            if (known := registry.providers.get(name)) is not None:
                position = known.spec.position
            else:
                missing = ProviderSpec(name, "", is_dynamic=True, position=position)
                registry.register(plugin, Provider(missing, lambda turn: ProviderResult()))


class _RecordedTalk(Attention):
    """Judges as the talk of the room did."""

    def __init__(self, judged: tuple[str, str]) -> None:
        super().__init__()
        self._judged = judged

    def hear(self, turn: Turn, participant_state: ParticipantState) -> None:
        pass

    async def judge(self, turn: Turn, responsiveness: Responsiveness) -> Judgement:
        choice, text = self._judged
        return Judgement(Choice(choice or Choice.ASK), text=text)

    async def is_left_to_other_bot(self, turn: Turn) -> bool:
        return False


class _RecordedCalls(SharedCalls[ResponseDecision]):
    """Asks the model whether to answer as the turn did, or returns what another message's call has decided."""

    def __init__(self, record: ReplayRecord, models: RecordedModels) -> None:
        super().__init__()
        self._record, self._models = record, models

    async def run(
        self,
        key: Hashable,
        call: Callable[[int], Awaitable[ResponseDecision]],
        *,
        counts_for_later: Callable[[ResponseDecision], bool],
    ) -> ResponseDecision:
        decision, answer = self._record.decision, self._models.next
        if answer is not None and answer.purpose == Purpose.SHOULD_RESPOND:
            return await call(decision.covered)
        return ResponseDecision(
            decision.should_answer, decision.reason, decision.rule, decision.notice_template, reaction=decision.reaction
        )


class _RecordedCare(Care):
    """Sets what messages speak of as it was found; refers no person."""

    def __init__(self, agent: Agent, found: dict[Any, str]) -> None:
        self._agent, self._found = agent, found

    async def check(self, turn: Turn, rule: str | None = None) -> None:
        in_groups = turn.agent.settings.load(CareSettings).care_in_groups
        for item in turn.inputs:
            category = self._found.get(item.message.id)
            if category and (rule is not None or in_groups or expects_reply(turn, item.message.content)):
                item.distress = DistressCategory(category)


class ReplayPipeline(MessagePipeline):
    """The pipeline that runs one recorded turn again."""

    def __init__(
        self,
        agent: Agent,
        registry: Registry,
        settings: CoreSettings,
        record: ReplayRecord,
        models: RecordedModels,
        comparison: Comparison,
        *,
        is_other: bool,
    ) -> None:
        super().__init__(agent, registry, settings)
        self._record, self._models, self._comparison = record, models, comparison
        self._composer = RecordedComposer(registry, record, models, is_other=is_other)
        self._action_runner = RecordedActions(self._composer, record.actions, comparison, models.interruption)
        self._multi_step = MultiStep(
            registry, self._composer, self._action_runner, max_steps=settings.max_multistep_iterations
        )
        self.care = _RecordedCare(agent, {item.message.id: item.distress for item in record.inputs})
        self.counters.attention = _RecordedTalk(record.decision.judged)
        self.counters.decisions = _RecordedCalls(record, models)

    async def replay(self, turn_id: UUID) -> None:
        """Run the stages up to the commit, and compare what they decide, request and say."""
        record, final = self._record, self._record.inputs[-1]
        receipt = replace(final.receipt, outcome=Outcome.CLAIMED, reason="", rule="", closed_at=None)
        turn_input = TurnInput(receipt, record.message, final.author, time.monotonic(), lambda receipt: None)
        turn = Turn(self._agent, turn_id, record.room, record.world, [turn_input], is_fresh=record.is_fresh)
        turn.degrade(record.degradation)
        turn.replaces = record.replaces if record.decision.rule == Rule.ON_EDIT else None  # else its platform has edits
        if not record.replies:  # nothing was said of a failure, because it had been said before
            now = self._agent.clock()
            self.counters.notices_sent.add((final.receipt.rule, turn.room.id, now.date()))
            apology = f"apology:{turn.room.id}"
            await self._agent.store.cache.set(apology, "told before", expires_at=now + timedelta(days=1))
        run = Run(turn.id, turn.room.id, turn.message.id, turn.author.id, calls=turn_input.calls, trace=turn.trace)
        with use_language(*self._agent.language_tags(final.author)):
            try:
                await self._run_stages(turn, turn_input, run, record.participant_state)
            except asyncio.CancelledError:
                if not self._models.interruption.has_ended_turn:
                    raise
            await self._compare_end(turn, turn_input)

    async def _compare_end(self, turn: Turn, turn_input: TurnInput) -> None:
        """Compare the replies and the outcome of a turn that has ended."""
        record, final, rule = self._record, self._record.inputs[-1], self._models.interruption.rule
        recorded = record.replies
        if rule == Rule.RESPONSE_TIMEOUT:
            await self._close_failed(turn, TurnFailure(rule, final.receipt.reason, should_apologize=True))
        elif rule:  # what was shown of the last reply when it was stopped is no result of the code
            recorded = recorded[: len(turn.replies)]
            turn_input.receipt = final.receipt
        if self._models.next is not None:
            self._comparison.compare(
                f"prompt {self._models.position + 1} ({self._models.next.purpose})", "sent", "not sent"
            )
        replies = [describe_content(reply.content) for reply in turn.replies]
        for number, (before, after) in enumerate(zip_longest(recorded, replies, fillvalue=""), 1):
            self._comparison.compare(f"reply {number}", before, after)
        self._comparison.compare("outcome", _describe_outcome(final.receipt), _describe_outcome(turn_input.receipt))

    async def _decide(self, turn: Turn, participant_state: ParticipantState, *, is_resumed: bool) -> ResponseDecision:
        decision = await super()._decide(turn, participant_state, is_resumed=is_resumed)
        recorded, turn.replaces = self._record.decision, self._record.replaces
        before, after = (
            f"{'answer' if made.should_answer else 'no answer'}: {made.rule}: {made.reason}"
            for made in (recorded, decision)
        )
        self._comparison.compare("decision", before, after)
        return decision

    async def _begin_answer(
        self, turn: Turn, decision: ResponseDecision, answered_ids: frozenset[UUID] | None, room_turn: AsyncExitStack
    ) -> None:
        """Take from the record what the answer depends on: its messages as they were read, and the actions."""
        if turn.degradation is not None:
            self._note_degradation(turn, turn.degradation)
        newest = turn.inputs[-1]
        newest.message = self._record.inputs[-1].message
        turn.inputs = [
            TurnInput(item.receipt, item.message, item.author, newest.received_monotonic, newest.resolve)
            for item in self._record.inputs[:-1]
        ]
        turn.inputs.append(newest)
        await self.care.check(turn, decision.rule)
        turn.state.invalidate(*self._registry.provider_names(ProviderKind.HISTORY))
        turn.hold_reason, turn.unnotified = self._record.hold_reason, frozenset()
        specs = {spec.name: spec for spec in self._agent.catalog.actions}
        turn.actions = tuple(specs[name] for name in self._record.offered if name in specs)


def _describe_outcome(receipt: Receipt) -> str:
    return f"{receipt.outcome}: {receipt.rule}: {receipt.reason}"
