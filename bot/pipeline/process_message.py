"""The main flow of one message: eleven awaited stages and one error boundary.

`_run_stages` runs those from `resume_journal` to `commit`; `evaluate` follows when the room is free.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import TypeVar
from uuid import UUID

from bot.concurrency.clock import monotonic_clock
from bot.concurrency.tasks import Batcher, BoundedDict, CancellationScope, crash_point
from bot.domain.character import ProviderKind
from bot.domain.content import Content
from bot.domain.environment import ParticipantState
from bot.domain.events import AnswerDegraded, MessageReceived, MessageSent, ReactionReceived, VoiceMessageReceived
from bot.domain.filters import FILTER_KEY
from bot.domain.ids import new_id
from bot.domain.inbound import REVISIONS_KEY, StoredEvent
from bot.domain.ledger import Degradation, ModelCall, Outcome, Rule
from bot.domain.memory import ACCESS_TOKEN_KEY, Memory
from bot.errors import BudgetSpent, StoreUnavailable
from bot.inbound.processing import OnOutcome
from bot.installation import program_version
from bot.pipeline.attachments import ConcurrencyLimits, read_attachments
from bot.pipeline.care import Care
from bot.pipeline.commit import (
    PUBLIC_TYPES,
    ActionParked,
    Evaluation,
    TurnFailure,
    TurnResult,
    claim,
    classify,
    commit,
    commit_failure,
    commit_stopped,
    drop_echo,
    find_earlier_reaction,
    has_evaluation_work,
    mark_late_evaluations,
    park_turn,
    previous_replies,
    record_cancelled_calls,
    release,
    release_claim,
    resume_journal,
)
from bot.pipeline.compose import Composer
from bot.pipeline.filters import hold_with_inputs
from bot.pipeline.respond import answer_confirmation, respond
from bot.pipeline.run_actions import ActionRunner, MultiStep, list_usable_actions, run_actions
from bot.pipeline.should_respond import MessageCounters, ResponseDecision, find_current_take_over, should_respond
from bot.pipeline.turn_order import (
    ActiveTurns,
    Debounce,
    LatestResponse,
    Superseded,
    TurnCancelled,
    TurnQueue,
    TurnStopped,
)
from bot.plugin_system.registry import Registry
from bot.prompts.templates import DEGRADED
from bot.receipts import RecordedDecision, RecordedInput, ReplayRecord
from bot.runs import Run, track_run
from bot.settings import CoreSettings
from bot.turn import Agent, AgentDefinition, Turn, TurnEnded, TurnInput

T = TypeVar("T")
MAX_CRASHES = 3
MAX_INTERRUPTED = 1_000  # messages of which the model calls of interrupted turns are kept
MAX_TRACKED_MESSAGES = 1000
EDIT_INTERVAL_SECONDS = 5.0


def list_versions(definition: AgentDefinition) -> dict[str, str]:
    """Return the versions on which the prompts of a turn depend: the program, the templates and the character."""
    templates = sorted(definition.templates.items())
    return {
        "program": program_version(),
        "templates": sha256(repr(templates).encode("utf-8", "surrogatepass")).hexdigest()[:16],
        "character": definition.version,
    }


class EditPacer:
    """Delays repeated processing of one message, so that frequent edits do not each cost a reply."""

    def __init__(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._started_at = BoundedDict[UUID, float](MAX_TRACKED_MESSAGES)

    def note(self, message_id: UUID) -> None:
        """Note that processing of a message starts now."""
        self._started_at[message_id] = self._clock()

    async def wait(self, message_id: UUID) -> None:
        """Wait until the message may be processed again."""
        started_at = self._started_at.get(message_id)
        if started_at is not None and (pause := started_at + self._seconds - self._clock()) > 0:
            await self._sleep(min(pause, self._seconds))  # the clock may have been set back


class MessagePipeline:
    """Processes the messages of one agent; built and owned by its `AgentRuntime`.

    `active_turns` are the turns in progress, `turn_queue` has their order in each room, and `debounce`
    how the people there write, `counters` what the rules know across messages. `evaluated` collects the
    receipts whose evaluators have run; its owner enters it before the first message and leaves it after the last. So
    it does with `traces`, which collects what turns have noted.
    """

    def __init__(self, agent: Agent, registry: Registry, settings: CoreSettings) -> None:
        self.active_turns = ActiveTurns()
        self._agent = agent
        self._registry = registry
        self._settings = settings
        self.turn_queue = TurnQueue(LatestResponse(settings.latest_response))
        self.debounce = Debounce()
        self.care = Care(agent)
        # By the agent's clock, which stands still in a simulation.
        self._edit_pacer = EditPacer(EDIT_INTERVAL_SECONDS, clock=monotonic_clock(agent.clock))
        self.counters = MessageCounters(settings, agent.store.sharing, agent.clock)
        self._attachment_limits = ConcurrencyLimits()
        self._interrupted_calls = BoundedDict[UUID, list[ModelCall]](MAX_INTERRUPTED, list)
        self._composer = Composer(registry)
        self._action_runner = ActionRunner(self._composer)
        self._multi_step = MultiStep(
            registry, self._composer, self._action_runner, max_steps=settings.max_multistep_iterations
        )
        self._evaluation = Evaluation(agent, registry)
        attention = self.counters.attention
        agent.events.subscribe(MessageSent, attention.note_sent, at_once=True)
        agent.events.subscribe(ReactionReceived, attention.note_reaction, at_once=True)
        definition = agent.read_definition()
        self._versions = definition, list_versions(definition)
        self.evaluated = self._evaluation.evaluated
        self.traces = Batcher(agent.store.ledger.save_traces, label="traces of turns")

    def apply_settings(self, settings: CoreSettings) -> None:
        """Use these settings from the next message on; the limits of messages a minute stay as they are."""
        self._settings = settings
        self.turn_queue.mode = LatestResponse(settings.latest_response)
        self._multi_step.max_steps = settings.max_multistep_iterations

    async def process_message(self, event: StoredEvent, on_outcome: OnOutcome) -> None:
        """Process one stored message up to its outcome, then evaluate it.

        `on_outcome` is called with the final receipt. While the store is unavailable the message stays open.
        """
        agent, received_monotonic = self._agent, time.monotonic()  # before anything can overtake it
        if event.inbound is None:
            received_monotonic = self.turn_queue.expect(event.receipt, received_monotonic)
            event = await claim(agent, event.receipt)
        receipt, inbound = event.receipt, event.inbound
        if inbound is None:
            on_outcome(receipt)
            if not receipt.is_evaluated:
                await agent.store.ledger.mark_evaluated([receipt.id])
            return
        cancellation = CancellationScope()
        turn_input = TurnInput(receipt, inbound.message, inbound.author, received_monotonic, on_outcome)
        turn_input.interrupted_calls = self._interrupted_calls[receipt.id]
        turn_id = receipt.turn_id or new_id()
        turn = Turn(agent, turn_id, inbound.room, inbound.world, [turn_input], is_fresh=event.is_new)
        if agent.budget.limits:
            turn.degrade(agent.budget.find_degradation(turn.room.id, turn.author.id))
        if receipt.outcome.is_final:
            await self._finish_closed(turn, turn_input)
            return
        crash_point("turn.claimed")
        try:
            await self._run_turn(turn, turn_input, event.participant_state)
            if turn.is_cancelled:
                await record_cancelled_calls(turn)
            self._save_trace(turn, turn_input, inbound.message, event.participant_state)
        except asyncio.CancelledError:
            if cancellation.requested:
                await release_claim(turn)
            raise
        except StoreUnavailable:  # the journal holds what was done so far
            self.turn_queue.expect(receipt, received_monotonic)
            release(turn)

    def _save_trace(
        self, turn: Turn, turn_input: TurnInput, message: Memory, participant_state: ParticipantState
    ) -> None:
        """Store what a turn has noted, if a model was asked, since all else is in the receipt; report its end.

        An answer that an earlier process was given is in the journal. `message` is the newest one as it came. Of a
        turn whose message was deleted or edited meanwhile nothing is stored: its prompts contain the old text.
        """
        decision = turn.trace.decision
        is_resumed = decision is not None and decision.rule == Rule.RESTART
        is_withdrawn = turn.superseded_by is not None or turn.is_cancelled
        if (turn.trace.calls or is_resumed) and not is_withdrawn:
            subject_ids, record = {turn.room.id, *turn.state.authors()}, None
            if self._settings.replay_keep and decision is not None and (turn.trace.answers or is_resumed):
                subject_ids.update(item.author.id for item in turn.inputs)
                record = self._build_record(turn, message, participant_state, decision)
            results, now = turn.state.results.values(), self._agent.clock()
            step = turn.trace.to_step(turn.id, turn_input.calls, results, subject_ids, now, record, turn.replies)
            self.traces.add(step)
        if self._agent.events.has_listeners(TurnEnded):
            self._agent.events.emit(TurnEnded(self._agent.id, turn))

    def _build_record(
        self, turn: Turn, message: Memory, participant_state: ParticipantState, decision: RecordedDecision
    ) -> ReplayRecord:
        """Return what is needed to run a turn again, without what its trace adds."""
        author_ids, world, trace = [item.author.id for item in turn.inputs], turn.world, turn.trace
        roles, grants = (
            {author_id: roles[author_id] for author_id in author_ids if author_id in roles}
            for roles in (world.roles, world.grants)
        )
        if self._versions[0] is not turn.definition:
            self._versions = turn.definition, list_versions(turn.definition)
        return ReplayRecord(
            versions=self._versions[1],
            started_at=trace.started_at or message.created_at,
            is_fresh=turn.is_fresh,
            room=turn.room,
            world=replace(world, roles=roles, grants=grants, metadata={}),
            message=_as_filtered(message, turn.inputs[-1].message),
            inputs=tuple(
                RecordedInput(
                    replace(item.receipt, model_calls=(), notes=()), item.message, item.author, item.distress or ""
                )
                for item in turn.inputs
            ),
            participant_state=participant_state,
            decision=decision,
            offered=tuple(spec.name for spec in turn.actions),
            replaces=turn.replaces,
            degradation=turn.degradation,
            hold_reason=turn.hold_reason,
            is_plain=trace.is_plain,
            is_confirmed=trace.is_confirmed,
            has_minor=trace.has_minor,
        )

    async def _run_turn(self, turn: Turn, turn_input: TurnInput, participant_state: ParticipantState) -> None:
        if turn_input.receipt.crash_count >= MAX_CRASHES:
            reason = f"the process died {MAX_CRASHES} times while only this message was under way"
            await self._close_failed(turn, TurnFailure(Rule.RESTART, reason, should_apologize=True))
            self._evaluation.mark_evaluated(turn_input)  # the message itself may be what ends the process
            return
        agent, message = self._agent, turn_input.message
        is_edited = REVISIONS_KEY in message.metadata or turn.is_regeneration
        trace = turn.trace
        trace.started, trace.started_at = time.monotonic(), agent.clock()
        trace.earlier_calls = len(turn_input.receipt.model_calls)
        run = Run(
            turn.id,
            turn.room.id,
            message.id,
            turn_input.author.id,
            str(message.metadata.get(ACCESS_TOKEN_KEY) or ""),
            languages=agent.language_tags(turn_input.author),
            calls=turn_input.calls,
            trace=trace,
        )
        async with track_run(run, agent.events, agent.id, timeout=self._settings.response_timeout / 1000):
            if not is_edited:
                kind = (
                    VoiceMessageReceived
                    if message.content.attachments and message.content.is_voice
                    else MessageReceived
                )
                agent.events.emit(kind(agent.id, message, turn.room, turn_input.author))
            should_reply = True
            try:
                with self.active_turns.track(turn):
                    if is_edited:
                        await self._prepare_edit(turn)
                    self._edit_pacer.note(message.id)
                    should_reply = await self._run_stages(turn, turn_input, run, participant_state)
            except TurnCancelled:
                run.outcome = Outcome.CANCELLED
                await agent.outbox.remove_draft(turn.id)
                return
            except TurnStopped:
                run.outcome = await commit_stopped(turn)
                return
            except Superseded:
                run.outcome = Outcome.SUPERSEDED
            if turn_input.author.id == agent.id:
                await drop_echo(turn)
                self._evaluation.mark_evaluated(turn_input)
            elif has_evaluation_work(agent) and not turn_input.is_evaluated:
                await self._evaluation.evaluate(turn, turn_input, should_reply=should_reply)
        if run.error and turn.superseded_by is None and not turn_input.receipt.outcome.is_final:
            await self._close_timed_out(turn, run.error)

    async def _prepare_edit(self, turn: Turn) -> None:
        """Wait until the message may be answered again, and find the replies that its answer replaces."""
        if not turn.is_regeneration:
            await self._edit_pacer.wait(turn.message.id)
        turn.earlier_reaction = await find_earlier_reaction(turn)
        if replies := await previous_replies(turn):
            turn.replaces = replies[0]
            turn.obsolete_replies = tuple(reply.id for reply in replies[1:])
            if turn.replaces.room_id != turn.room.id:  # it was answered in a thread
                turn.thread = await self._agent.store.worlds.room(turn.replaces.room_id)

    async def _run_stages(
        self, turn: Turn, turn_input: TurnInput, run: Run, participant_state: ParticipantState
    ) -> bool:
        """Run the stages up to the commit; return whether the message was to be answered.

        Every error becomes the outcome that `classify` names, but StoreUnavailable and Superseded propagate.
        """
        decision: ResponseDecision | None = None
        spans, begun = turn.trace.spans, time.monotonic()
        async with AsyncExitStack() as room_turn:
            try:
                answered_ids = await resume_journal(turn)
                await self.care.check(turn)
                if self._agent.outbox.approval is not None and (note := await _edit_draft(turn)):
                    turn_input.is_evaluated = True
                    edit = TurnResult(Outcome.IGNORED, "it is the new text of a draft", Rule.DRAFT, Content(text=note))
                    run.outcome = await commit(turn, edit)
                    return False
                decision = await self._decide(turn, participant_state, is_resumed=bool(answered_ids))
                decided = time.monotonic()
                trace = turn.trace
                trace.gate_rule = decision.rule
                trace.decision = RecordedDecision(
                    decision.should_answer,
                    decision.reason,
                    decision.rule,
                    decision.notice_template,
                    trace.judged,
                    trace.covered,
                    decision.reaction,
                )
                spans.append(("gate", "Gate", begun, decided, ""))
                if decision.should_answer:
                    await self._begin_answer(turn, decision, answered_ids, room_turn)
                    spans.append(("wait", "Waited for its turn", decided, time.monotonic(), ""))
                    result = await self._answer(turn, decision)
                else:
                    turn_input.is_evaluated |= decision.is_rate_limited or decision.rule == Rule.TAKEN_OVER
                    template = decision.notice_template if turn.replaces is None else ""  # the earlier reply stays
                    notice = self._composer.render_notice(turn, template)
                    turn.reaction = decision.reaction
                    outcome = Outcome.ANSWERED if decision.reaction else Outcome.IGNORED
                    result = TurnResult(outcome, decision.reason, decision.rule, notice)
                answered = time.monotonic()
                run.outcome = await commit(turn, result)
                self.counters.attention.hear_replies(turn)
                if decision.should_answer:
                    self.debounce.learn(turn)
                spans.append(("commit", "Commit", answered, time.monotonic(), ""))
            except (StoreUnavailable, Superseded):
                raise
            except ActionParked as parked:
                run.outcome = await park_turn(turn, parked.proposal)
                return True
            except Exception as error:  # the room is told once; no message may stop those that follow
                is_answering = decision is not None and decision.should_answer
                failure = classify(error, turn, is_answering=is_answering)
                if is_answering:
                    turn.commit()
                run.outcome = await self._close_failed(turn, failure)
                return is_answering
        return decision.should_answer

    async def _decide(self, turn: Turn, participant_state: ParticipantState, *, is_resumed: bool) -> ResponseDecision:
        """Return whether a turn is answered, once the filters of messages have passed it."""
        if turn.room.parent_id is not None and turn.definition.character.rooms:
            turn.apply_instructions(await turn.agent.store.worlds.room(turn.room.parent_id))
        filters = turn.agent.filters
        if (filters.is_on or turn.world.settings) and (reason := await filters.check_message(turn)):
            return ResponseDecision(False, reason, Rule.FILTERED)
        return await should_respond(
            turn,
            self._composer,
            self._settings,
            participant_state,
            self.counters,
            self._attachment_limits,
            is_resumed=is_resumed,
        )

    async def _begin_answer(
        self, turn: Turn, decision: ResponseDecision, answered_ids: frozenset[UUID] | None, room_turn: AsyncExitStack
    ) -> None:
        """Wait until the turn may answer, and find out what its answer depends on."""
        if turn.degradation is not None:
            self._note_degradation(turn, turn.degradation)
        if turn.instructions.values:
            turn.notes.append(f"instructions of the room: {turn.instructions.describe()}")
        await self._acquire_turn(turn, answered_ids, room_turn)
        await self._wait_for_burst(turn)
        await read_attachments(turn, self._attachment_limits)
        await turn.find_unnotified()
        await self.care.check(turn, decision.rule)
        if turn.agent.filters.is_on or turn.world.settings:
            hold_with_inputs(turn)
        turn.actions = await list_usable_actions(turn, self._registry)

    async def _answer(self, turn: Turn, decision: ResponseDecision) -> TurnResult:
        """Ask the model, and run the actions that it calls."""
        confirmation = await answer_confirmation(turn)
        if confirmation is None and self._settings.use_multi_step:
            text = await self._multi_step.run(turn, self._run_degrading)
            result = TurnResult.answered(decision, Content(text=text, actions=tuple(turn.results)))
        else:
            try:
                reply = confirmation or await respond(turn, self._composer, self._attachment_limits)
            except BudgetSpent as error:
                answer = partial(respond, turn, self._composer, self._attachment_limits)
                reply = await self._run_degrading(turn, answer, error)
            is_confirmed = turn.trace.is_confirmed = confirmation is not None
            result = await run_actions(
                turn, reply, decision, self._registry, self._action_runner, is_confirmed=is_confirmed
            )
        if turn.agent.store.take_overs.current and (take_over := find_current_take_over(turn)):
            return TurnResult(Outcome.IGNORED, str(take_over), Rule.TAKEN_OVER)  # at another process meanwhile
        if turn.degradation is not None and result.outcome is Outcome.ANSWERED:
            return self._report_degradation(turn, turn.degradation, result)
        return result

    async def _run_degrading(
        self, turn: Turn, answer: Callable[[], Awaitable[T]], error: BudgetSpent | None = None
    ) -> T:
        """Return the answer, by the next step of DEGRADE that can be paid for; raises BudgetSpent without one.

        With an `error` the present step could not be paid for.
        """
        while True:
            if error is not None:
                # No answer was written by this step: its note would contradict that of the next one, or of none.
                turn.notes[:] = [note for note in turn.notes if note != str(turn.degradation)]
                step = self._agent.budget.find_next_step(turn.degradation, error.setting, turn.room.id, turn.author.id)
                if step is None:
                    raise error
                turn.degrade(step)
                turn.state.results.clear()  # prompts show less now
                self._note_degradation(turn, step)
            try:
                return await answer()
            except BudgetSpent as next_error:
                error = next_error

    def _note_degradation(self, turn: Turn, degradation: Degradation) -> None:
        """Note the step of DEGRADE in effect in the receipt and the trace."""
        turn.notes.append(str(degradation))
        now = time.monotonic()
        turn.trace.spans.append(("degrade", str(degradation), now, now, ""))

    def _report_degradation(self, turn: Turn, degradation: Degradation, result: TurnResult) -> TurnResult:
        """Emit AnswerDegraded; return the result with the notice for the room, where it may have one."""
        self._agent.events.emit(AnswerDegraded(self._agent.id, turn.room.id, degradation))
        if turn.replaces is not None or turn.is_care or turn.room.type in PUBLIC_TYPES:  # there it would be a post
            return result
        return replace(result, notice=self._composer.render_notice(turn, DEGRADED))

    async def _acquire_turn(self, turn: Turn, answered_ids: frozenset[UUID] | None, room_turn: AsyncExitStack) -> None:
        """Wait until the turn may answer in its room; `room_turn` gives the room free again."""
        await room_turn.enter_async_context(self.turn_queue.acquire(turn, answered_ids))
        turn.release_room = self.turn_queue.release  # not bound to the turn: that would be a reference cycle
        await room_turn.enter_async_context(self._agent.outbox.show_typing(turn.room))
        if turn.state.results:  # others may have written while the turn waited
            turn.state.invalidate(*self._registry.provider_names(ProviderKind.HISTORY))

    async def _wait_for_burst(self, turn: Turn) -> None:
        pause = self._settings.burst_pause
        await self.debounce.wait(turn, self.turn_queue.mode, None if pause is None else pause / 1000)

    async def _finish_closed(self, turn: Turn, turn_input: TurnInput) -> None:
        """Send and evaluate what an earlier process committed but did not finish."""
        receipt = turn_input.receipt
        turn_input.resolve(receipt)
        await turn.agent.outbox.send_pending(turn.id)
        if receipt.is_evaluated:
            return
        memories = await turn.agent.store.memories.by_turn(turn.id)
        turn.replies = [memory for memory in memories if memory.is_reply]
        was_ignored = receipt.outcome is Outcome.IGNORED and receipt.rule != Rule.CHOSE_SILENCE
        await self._evaluation.evaluate_again(turn, turn_input, should_reply=not was_ignored)

    async def _close_failed(self, turn: Turn, failure: TurnFailure) -> Outcome:
        return await commit_failure(turn, failure, self._composer, self.counters)

    async def _close_timed_out(self, turn: Turn, reason: str) -> None:
        """Close what RESPONSE_TIMEOUT has stopped, unless the ledger has its outcome already."""
        for turn_input in turn.inputs:
            receipt = await self._agent.store.ledger.receipt(turn_input.receipt.id)
            turn_input.receipt = receipt or turn_input.receipt
        if not all(turn_input.receipt.outcome.is_final for turn_input in turn.inputs):
            await self._close_failed(turn, TurnFailure(Rule.RESPONSE_TIMEOUT, reason, should_apologize=True))
            return
        for turn_input in turn.inputs:
            turn_input.resolve(turn_input.receipt)
        await mark_late_evaluations(turn, [(turn_input, turn_input.receipt) for turn_input in turn.inputs])


def _as_filtered(message: Memory, stored: Memory) -> Memory:
    """Return a message as it came, but with what filters have replaced in it: nothing else of that is kept."""
    if FILTER_KEY not in stored.metadata:
        return message
    content = replace(message.content, text=stored.content.text, quotation=stored.content.quotation)
    metadata = {**message.metadata, FILTER_KEY: stored.metadata[FILTER_KEY]}
    return replace(message, content=content, metadata=metadata)


async def _edit_draft(turn: Turn) -> str:
    """Take a message as the new text of the draft to which it replies; return what its author reads, if it is one."""
    return await turn.agent.proposals.edit_by_reply(turn.message, turn.room, turn.author, turn.role)
