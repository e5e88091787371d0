"""The road of one message, from the inbox to its one outcome."""

import asyncio
import logging
import time
from dataclasses import replace
from datetime import timedelta

from bot.agent import Agent
from bot.concurrency.crash_points import crash_point
from bot.concurrency.isolation import CancellationScope, run_isolated
from bot.concurrency.tasks import Batcher
from bot.domain.content import Content
from bot.domain.edits import REVISIONS_KEY
from bot.domain.environment import ParticipantState
from bot.domain.events import MessageReceived, VoiceMessageReceived
from bot.domain.ids import new_id
from bot.domain.inbound import StoredEvent
from bot.domain.ledger import Outcome, Rule
from bot.domain.memory import MemoryKind
from bot.errors import BudgetSpent, ModelError, StoreUnavailable
from bot.inbound.inbox import OnOutcome
from bot.models.types import ModelType
from bot.pipeline.attachments import ConcurrencyLimits, read_attachments
from bot.pipeline.commit import (
    close_turn,
    drop_echo,
    is_repetition,
    mark_late_evaluations,
    previous_reply,
)
from bot.pipeline.compose import Composer
from bot.pipeline.evaluate import Embeddings, evaluate, has_evaluation_work
from bot.pipeline.journal import claim, release, restore, uncount_attempt
from bot.pipeline.multi_step import MultiStep
from bot.pipeline.rate_limits import EditPacer
from bot.pipeline.reply_plan import plan_reply
from bot.pipeline.respond import NoAnswer, respond
from bot.pipeline.run_actions import OUTCOME_UNKNOWN, ActionRunner, list_usable_actions
from bot.pipeline.should_respond import MessageCounters, ResponseDecision, decide, limit_notice
from bot.pipeline.turn_order import ActiveTurns, LatestResponse, Superseded, TurnCancelled, TurnQueue
from bot.plugin_system.registry import Registry
from bot.prompts.reply_parser.reader import Reply
from bot.prompts.templates import APOLOGY
from bot.runs import Run, track_run
from bot.settings import CoreSettings
from bot.turn import Turn, TurnInput

logger = logging.getLogger(__name__)
APOLOGY_INTERVAL = timedelta(minutes=5)
MAX_ATTEMPTS = 3
EMBEDDING_TIMEOUT = 120.0
EDIT_INTERVAL_SECONDS = 5.0
UNSOLICITED_RULES = frozenset(
    {Rule.FOLLOWED, Rule.DECIDED_RESPOND}
)  # the message does not address the character
RESUMED_DECISION = ResponseDecision(True, "it was being answered when the process stopped", Rule.RESTART)


class MessagePipeline:
    """Walks messages down the road; one an agent, so that two agents in one process never meet."""

    def __init__(self, agent: Agent, registry: Registry, settings: CoreSettings) -> None:
        self._agent = agent
        self._registry = registry
        self._settings = settings
        self._turn_queue = TurnQueue(LatestResponse(settings.latest_response))
        self.active_turns = ActiveTurns()
        self.evaluated = Batcher(agent.store.ledger.mark_evaluated, label="marks of what was learnt from")
        self._edit_pacer = EditPacer(EDIT_INTERVAL_SECONDS)
        self._counters = MessageCounters(settings)
        self._embeddings = Embeddings(agent)
        self._attachment_limits = ConcurrencyLimits()
        self._composer = Composer(registry)
        self._action_runner = ActionRunner(self._composer)
        self._step_loop = MultiStep(
            registry, self._composer, self._action_runner, max_steps=settings.max_multistep_iterations
        )

    async def process_message(self, received: StoredEvent, on_outcome: OnOutcome) -> None:
        """Bring one stored message to its outcome, then learn from it."""
        agent = self._agent
        if received.inbound is None:
            received = await claim(agent, received.receipt)
        receipt, inbound = received.receipt, received.inbound
        if inbound is None:
            on_outcome(receipt)
            if not receipt.is_evaluated:
                await agent.store.ledger.mark_evaluated([receipt.id])
            return
        turn_input = TurnInput(receipt, inbound.message, inbound.author, time.monotonic(), on_outcome)
        turn_id = receipt.turn_id or new_id()
        turn = Turn(agent, turn_id, inbound.room, inbound.world, [turn_input], is_fresh=received.is_new)
        if receipt.outcome.is_final:
            await self._finish(turn, turn_input)
            return
        crash_point("turn.claimed")
        cancellation = CancellationScope()
        try:
            await self._run_stages(turn, turn_input, received.participant_state)
        except asyncio.CancelledError:
            if cancellation.requested:
                await uncount_attempt(turn)
            raise
        except StoreUnavailable:  # what it has come to stands in the journal
            release(turn)

    async def _run_stages(
        self, turn: Turn, turn_input: TurnInput, participant_state: ParticipantState
    ) -> None:
        agent = self._agent
        if turn_input.receipt.attempts > MAX_ATTEMPTS:
            await self._close_failed(
                turn, f"{MAX_ATTEMPTS} attempts ended before it had an answer", Rule.RESTART
            )
            self._mark_evaluated(
                turn_input
            )  # unseen: whatever it is that ends the process, nobody looks at it again
            return
        run = Run(turn.id, turn.room.id, turn_input.message.id, turn_input.author.id, calls=turn_input.calls)
        async with track_run(run, agent.events, agent.id, timeout=self._settings.response_timeout / 1000):
            is_edited = REVISIONS_KEY in turn_input.message.metadata
            if not is_edited:
                kind = VoiceMessageReceived if turn_input.message.content.is_voice else MessageReceived
                agent.events.emit(kind(agent.id, turn_input.message, turn.room, turn_input.author))
            try:
                with self.active_turns.track(turn):
                    if is_edited:
                        await self._edit_pacer.wait(turn_input.message.id)
                        turn.replaces = await previous_reply(turn)
                    self._edit_pacer.note(turn_input.message.id)
                    decision = await self._decide_and_respond(turn, turn_input, run, participant_state)
            except TurnCancelled:
                run.outcome = Outcome.CANCELLED
                await agent.outbox.remove_draft(turn.id)
                return
            if turn_input.author.id == agent.id:
                await drop_echo(turn)
                self._mark_evaluated(turn_input)
            elif has_evaluation_work(agent) and not turn_input.is_evaluated:
                await self._evaluate(turn, turn_input, should_reply=decision)
        if run.error and turn.superseded_by is None and not turn_input.receipt.outcome.is_final:
            await self._close_timed_out(turn, run.error)

    async def _evaluate(self, turn: Turn, turn_input: TurnInput, *, should_reply: bool) -> None:
        if self._agent.budget.find_reached_limit(turn.room.id, turn_input.author.id) is not None:
            self._mark_evaluated(turn_input)  # learning is paid for too
            return
        if turn.agent.models.has_handler_for(ModelType.TEXT_EMBEDDING):
            embedding = self._embeddings.embed(turn, turn_input.message)
            await run_isolated(embedding, label="embedding", timeout=EMBEDDING_TIMEOUT)
        crash_point("eval.pre")
        await evaluate(turn, self._registry, should_reply=should_reply)
        self._mark_evaluated(turn_input)

    def _mark_evaluated(self, turn_input: TurnInput) -> None:
        """Note that the evaluators are done with a message; before its close, whoever closes it does so."""
        turn_input.is_evaluated = True
        if turn_input.receipt.outcome.is_final and not turn_input.receipt.is_evaluated:
            turn_input.receipt = replace(turn_input.receipt, is_evaluated=True)
            self.evaluated.add(turn_input.receipt.id)

    async def _finish(self, turn: Turn, turn_input: TurnInput) -> None:
        """Do what comes after the close of a message, where nobody was there to do it."""
        turn_input.resolve(turn_input.receipt)
        await turn.agent.outbox.send_pending(turn.id)
        if turn_input.receipt.is_evaluated:
            return
        memories = await turn.agent.store.memories.by_turn(turn.id)
        turn.replies = [memory for memory in memories if memory.kind is MemoryKind.MESSAGE]
        was_ignored = (
            turn_input.receipt.outcome is Outcome.IGNORED and turn_input.receipt.rule != Rule.CHOSE_SILENCE
        )
        await self._evaluate(turn, turn_input, should_reply=not was_ignored)

    async def _decide_and_respond(
        self, turn: Turn, turn_input: TurnInput, run: Run, participant_state: ParticipantState
    ) -> bool:
        """Judge and answer; tells whether the message was to be answered."""
        answered_ids = await restore(turn)
        try:
            decision = RESUMED_DECISION if answered_ids else await self._decide(turn, participant_state)
        except BudgetSpent as error:
            run.outcome = await self._close_over_budget(turn, error)
            return False
        except ModelError as error:
            reason = f"no model could decide whether to answer: {error}"
            run.outcome = await close_turn(turn, Outcome.FAILED, reason, Rule.DECISION_FAILED)
            return False
        except StoreUnavailable:
            raise
        except Exception as error:  # our own fault, or a template's: nobody knows whether it called for words
            logger.exception("it could not be decided whether to answer message %s", turn_input.message.id)
            run.outcome = await close_turn(turn, Outcome.FAILED, _describe_error(error), Rule.INTERNAL_ERROR)
            return False
        if not decision.should_answer:
            turn_input.is_evaluated |= decision.is_rate_limited
            notices = (
                [turn.build_reply(self._render_notice(turn, decision.notice_template))]
                if decision.notice_template
                else []
            )
            run.outcome = await close_turn(turn, Outcome.IGNORED, decision.reason, decision.rule, notices)
            return False
        try:
            async with (
                self._turn_queue.acquire(turn, answered_ids),
                self._agent.outbox.show_typing(turn.room),
            ):
                run.outcome = await self._respond(turn, decision)
        except Superseded:
            run.outcome = Outcome.SUPERSEDED
        return True

    async def _decide(self, turn: Turn, participant_state: ParticipantState) -> ResponseDecision:
        settings = _settings_for(turn, self._settings)
        return await decide(turn, self._composer, settings, participant_state, self._counters)

    def _render_notice(self, turn: Turn, template: str) -> Content:
        """Fill in one line that no model writes."""
        return Content(text=self._composer.render(turn, template))

    async def _respond(self, turn: Turn, decision: ResponseDecision) -> Outcome:
        """Answer while holding the floor; whatever goes wrong, the room is told once."""
        await self._debounce(turn)
        turn.state.invalidate("RECENT_MESSAGES")  # it may have waited for the floor: the room has moved on
        try:
            await read_attachments(turn, self._attachment_limits)
            turn.actions = await list_usable_actions(turn, self._registry)
            if self._settings.use_multi_step:
                turn.commit()
                text = await self._step_loop.run(turn)
                return await self._commit_reply(
                    turn, Content(text=text, actions=tuple(turn.results)), decision
                )
            return await self._run_plan(turn, await respond(turn, self._composer), decision)
        except BudgetSpent as error:
            turn.commit()
            return await self._close_over_budget(turn, error)
        except (ModelError, NoAnswer) as error:
            turn.commit()
            return await self._close_failed(turn, str(error), type(error).__name__)
        except StoreUnavailable:
            raise
        except Exception as error:  # our own fault: the room is told, the log has the rest
            logger.exception("message %s could not be answered", turn.message.id)
            turn.commit()
            return await self._close_failed(turn, _describe_error(error), Rule.INTERNAL_ERROR)

    async def _debounce(self, turn: Turn) -> None:
        """Wait for the rest of a burst: a newer message takes the turn over before anything is paid for."""
        remaining = turn.inputs[-1].received_monotonic + self._settings.burst_pause / 1000 - time.monotonic()
        if remaining > 0 and turn.is_fresh:
            await asyncio.sleep(remaining)

    async def _run_plan(self, turn: Turn, reply: Reply, decision: ResponseDecision) -> Outcome:
        """Say and do what the answer wants; from here on nothing newer takes the turn over."""
        plan = plan_reply(reply, self._registry)
        if not reply.is_complete:
            turn.notes.append("the model's answer breaks off")
        for name in plan.unknown:
            self._action_runner.reject_unknown(turn, name)
        if plan.is_silent:
            return await close_turn(
                turn, Outcome.IGNORED, reply.thought or "it chose silence", Rule.CHOSE_SILENCE
            )
        content = Content(text=reply.text, thought=reply.thought, actions=reply.actions)
        if plan.is_simple:
            return await self._commit_reply(turn, content, decision)
        if plan.has_text:
            await turn.reply(content)
        await self._action_runner.run_plan(turn, plan.calls, reply.thought)
        results = turn.state.data.get("actionResults", ())  # one action may have several
        if turn.replies and not any(result.error == OUTCOME_UNKNOWN for result in results):
            return await close_turn(turn, Outcome.ANSWERED, decision.reason, decision.rule)
        is_unchanged = not turn.replies and all(result.success for result in results)
        text = reply.text if is_unchanged and reply.text else await self._step_loop.write_summary(turn)
        return await self._commit_reply(turn, replace(content, text=text), decision)

    async def _commit_reply(self, turn: Turn, content: Content, decision: ResponseDecision) -> Outcome:
        is_unsolicited = decision.rule in UNSOLICITED_RULES or turn.author.is_bot
        if is_unsolicited and await is_repetition(turn, content.text):
            reason = "it would have said the same words a fourth time within ten minutes"
            return await close_turn(turn, Outcome.IGNORED, reason, Rule.REPETITION)
        outgoing = [turn.build_reply(content)]
        return await close_turn(turn, Outcome.ANSWERED, decision.reason, decision.rule, outgoing)

    async def _close_over_budget(self, turn: Turn, error: BudgetSpent) -> Outcome:
        """Close what is not paid for any more as the gate closes what comes now; what was said stays said."""
        if turn.replies:
            return await close_turn(turn, Outcome.ANSWERED, str(error), error.setting)
        template = limit_notice(turn, self._counters, error.setting)
        notices = [turn.build_reply(self._render_notice(turn, template))] if template else []
        return await close_turn(turn, Outcome.IGNORED, str(error), error.setting, notices)

    async def _close_failed(self, turn: Turn, reason: str, rule: str) -> Outcome:
        """Close as failed, with one short line to the room; the next minutes' failures stay silent."""
        cache, now = self._agent.store.cache, self._agent.clock()
        key, turn_id = f"apology:{turn.room.id}", str(turn.id)
        outgoing = []
        if not turn.replies and await cache.get(key) in (None, turn_id):
            await cache.set(key, turn_id, expires_at=now + APOLOGY_INTERVAL)
            outgoing = [turn.build_reply(self._render_notice(turn, APOLOGY))]
        return await close_turn(turn, Outcome.FAILED, reason, rule, outgoing)

    async def _close_timed_out(self, turn: Turn, reason: str) -> None:
        """Close what RESPONSE_TIMEOUT has ended, unless the books have its outcome already."""
        for turn_input in turn.inputs:
            turn_input.receipt = (
                await self._agent.store.ledger.receipt(turn_input.receipt.id) or turn_input.receipt
            )
        if not all(turn_input.receipt.outcome.is_final for turn_input in turn.inputs):
            await self._close_failed(turn, reason, Rule.RESPONSE_TIMEOUT)
            return
        for turn_input in turn.inputs:
            turn_input.resolve(turn_input.receipt)
        await mark_late_evaluations(turn, [(turn_input, turn_input.receipt) for turn_input in turn.inputs])


def _settings_for(turn: Turn, core: CoreSettings) -> CoreSettings:
    """Put what the people of the turn's world have chosen over the agent's settings, where it fits."""
    try:
        return core.for_world(turn.world.settings)
    except ValueError:  # an older version has let them
        turn.notes.append(f"what is set for {turn.world.name or 'this world'} does not fit, and is left out")
        return core


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
