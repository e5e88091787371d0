"""The road of one message, from the inbox to its one outcome."""

import asyncio
import logging
import time
from dataclasses import replace
from datetime import timedelta

from bot.agent import Agent
from bot.concurrency.crash_points import reached
from bot.concurrency.isolation import Cancellation, contained
from bot.concurrency.tasks import Gathering
from bot.domain.content import Content
from bot.domain.edits import REVISIONS
from bot.domain.environment import Attendance
from bot.domain.events import MessageReceived, VoiceMessageReceived
from bot.domain.ids import new_id
from bot.domain.inbound import Received
from bot.domain.ledger import Outcome
from bot.domain.memory import MemoryKind
from bot.errors import BudgetSpent, ModelError, StoreUnavailable
from bot.inbound.inbox import Settle
from bot.models.types import ModelType
from bot.pipeline.attachments import Places, read_attachments
from bot.pipeline.commit import REPETITION, close, drop_echo, earlier_answer, is_repetition, mark_late
from bot.pipeline.compose import Composer
from bot.pipeline.evaluate import Vectors, evaluate, has_lessons
from bot.pipeline.journal import forgive, hand_back, resumed, taken_up
from bot.pipeline.multi_step import MultiStep
from bot.pipeline.rate_limits import Pace
from bot.pipeline.reply_plan import course_of
from bot.pipeline.respond import NoAnswer, respond
from bot.pipeline.run_actions import OUTCOME_UNKNOWN, Actor, usable_actions
from bot.pipeline.should_respond import Counts, Verdict, judge, told_of_limit
from bot.pipeline.turn_order import CalledOff, Floors, LatestResponse, Superseded, Underway
from bot.plugin_system.registry import Registry
from bot.prompts.reply_parser.reader import Reply
from bot.prompts.templates import APOLOGY
from bot.runs import Run, track
from bot.settings import CoreSettings
from bot.turn import Input, Turn

logger = logging.getLogger(__name__)
APOLOGY_PAUSE = timedelta(minutes=5)
MOST_ATTEMPTS = 3
EMBEDDING_DEADLINE = 120.0
SILENCE = "IGNORE"  # what the character chose, not the gate
EDIT_PACE = 5.0
UNASKED = frozenset({"FOLLOWED", "shouldRespond: RESPOND"})  # nobody has turned to the character
RESUMED = Verdict(True, "it was being answered when the process stopped", "restart")


class Processor:
    """Walks messages down the road; one an agent, so that two agents in one process never meet."""

    def __init__(self, agent: Agent, registry: Registry, settings: CoreSettings) -> None:
        self._agent = agent
        self._registry = registry
        self._settings = settings
        self._floors = Floors(LatestResponse(settings.latest_response))
        self.underway = Underway()
        self.learnt = Gathering(agent.store.ledger.mark_learnt, what="marks of what was learnt from")
        self._pace = Pace(EDIT_PACE)
        self._counts = Counts(settings)
        self._vectors = Vectors(agent)
        self._places = Places()
        self._composer = Composer(registry)
        self._actor = Actor(self._composer)
        self._multistep = MultiStep(
            registry, self._composer, self._actor, most_rounds=settings.max_multistep_iterations
        )

    async def process_message(self, received: Received, settle: Settle) -> None:
        """Bring one stored message to its outcome, then learn from it."""
        agent = self._agent
        if received.arrival is None:
            received = await taken_up(agent, received.receipt)
        receipt, arrival = received.receipt, received.arrival
        if arrival is None:
            settle(receipt)
            if not receipt.is_learnt:
                await agent.store.ledger.mark_learnt([receipt.id])
            return
        own = Input(receipt, arrival.message, arrival.author, time.monotonic(), settle)
        turn_id = receipt.turn_id or new_id()
        turn = Turn(agent, turn_id, arrival.room, arrival.world, [own], is_fresh=received.is_new)
        if receipt.outcome.is_final:
            await self._finish(turn, own)
            return
        reached("turn.claimed")
        cancellation = Cancellation()
        try:
            await self._bring_to_an_end(turn, own, received.attendance)
        except asyncio.CancelledError:
            if cancellation.is_asked_for:
                await forgive(turn)
            raise
        except StoreUnavailable:  # what it has come to stands in the journal
            hand_back(turn)

    async def _bring_to_an_end(self, turn: Turn, own: Input, attendance: Attendance) -> None:
        agent = self._agent
        if own.receipt.attempts > MOST_ATTEMPTS:
            await self._fail(turn, f"{MOST_ATTEMPTS} attempts ended before it had an answer", "restart")
            self._note_learnt(own)  # unseen: whatever it is that ends the process, nobody looks at it again
            return
        run = Run(turn.id, turn.room.id, own.message.id, own.author.id, calls=own.calls)
        async with track(run, agent.events, agent.id, timeout=self._settings.response_timeout / 1000):
            is_edited = REVISIONS in own.message.metadata
            if not is_edited:
                kind = VoiceMessageReceived if own.message.content.is_spoken else MessageReceived
                agent.events.emit(kind(agent.id, own.message, turn.room, own.author))
            try:
                with self.underway.working(turn):
                    if is_edited:
                        await self._pace.wait(own.message.id)
                        turn.replaces = await earlier_answer(turn)
                    self._pace.note(own.message.id)
                    verdict = await self._walk(turn, own, run, attendance)
            except CalledOff:
                run.outcome = Outcome.CANCELLED
                await agent.outbox.take_back(turn.id)
                return
            if own.author.id == agent.id:
                await drop_echo(turn)
                self._note_learnt(own)
            elif has_lessons(agent) and not own.is_learnt:
                await self._learn(turn, own, was_to_be_answered=verdict)
        if run.error and turn.successor is None and not own.receipt.outcome.is_final:
            await self._time_out(turn, run.error)

    async def _learn(self, turn: Turn, own: Input, *, was_to_be_answered: bool) -> None:
        if self._agent.budget.reached(turn.room.id, own.author.id) is not None:
            self._note_learnt(own)  # learning is paid for too
            return
        if turn.agent.models.serves(ModelType.TEXT_EMBEDDING):
            vectors = self._vectors.give(turn, own.message)
            await contained(vectors, what="embedding", deadline=EMBEDDING_DEADLINE)
        reached("eval.pre")
        await evaluate(turn, self._registry, was_to_be_answered=was_to_be_answered)
        self._note_learnt(own)

    def _note_learnt(self, own: Input) -> None:
        """Note that the evaluators are done with a message; before its close, whoever closes it does so."""
        own.is_learnt = True
        if own.receipt.outcome.is_final and not own.receipt.is_learnt:
            own.receipt = replace(own.receipt, is_learnt=True)
            self.learnt.add(own.receipt.id)

    async def _finish(self, turn: Turn, own: Input) -> None:
        """Do what comes after the close of a message, where nobody was there to do it."""
        own.settle(own.receipt)
        await turn.agent.outbox.send_left(turn.id)
        if own.receipt.is_learnt:
            return
        made = await turn.agent.store.memories.by_turn(turn.id)
        turn.replies = [memory for memory in made if memory.kind is MemoryKind.MESSAGE]
        was_ignored = own.receipt.outcome is Outcome.IGNORED and own.receipt.rule != SILENCE
        await self._learn(turn, own, was_to_be_answered=not was_ignored)

    async def _walk(self, turn: Turn, own: Input, run: Run, attendance: Attendance) -> bool:
        """Judge and answer; tells whether the message was to be answered."""
        covers = await resumed(turn)
        try:
            verdict = RESUMED if covers else await self._judge(turn, attendance)
        except BudgetSpent as error:
            run.outcome = await self._end_spent(turn, error)
            return False
        except ModelError as error:
            reason = f"no model could decide whether to answer: {error}"
            run.outcome = await close(turn, Outcome.FAILED, reason, "shouldRespond")
            return False
        except StoreUnavailable:
            raise
        except Exception as error:  # our own fault, or a template's: nobody knows whether it called for words
            logger.exception("it could not be decided whether to answer message %s", own.message.id)
            run.outcome = await close(turn, Outcome.FAILED, _told(error), "internal error")
            return False
        if not verdict.answer:
            own.is_learnt |= verdict.is_excess
            says = [turn.outgoing(self._line(turn, verdict.says))] if verdict.says else []
            run.outcome = await close(turn, Outcome.IGNORED, verdict.reason, verdict.rule, says)
            return False
        try:
            async with self._floors.hold(turn, covers), self._agent.outbox.typing(turn.room):
                run.outcome = await self._answer(turn, verdict)
        except Superseded:
            run.outcome = Outcome.SUPERSEDED
        return True

    async def _judge(self, turn: Turn, attendance: Attendance) -> Verdict:
        settings = _settings_for(turn, self._settings)
        return await judge(turn, self._composer, settings, attendance, self._counts)

    def _line(self, turn: Turn, template: str) -> Content:
        """Fill in one line that no model writes."""
        return Content(text=self._composer.render(turn, template))

    async def _answer(self, turn: Turn, verdict: Verdict) -> Outcome:
        """Answer while holding the floor; whatever goes wrong, the room is told once."""
        await self._collect(turn)
        turn.state.forget("RECENT_MESSAGES")  # it may have waited for the floor: the room has moved on
        try:
            await read_attachments(turn, self._places)
            turn.actions = await usable_actions(turn, self._registry)
            if self._settings.use_multi_step:
                turn.commit()
                text = await self._multistep.work(turn)
                return await self._say(turn, Content(text=text, actions=tuple(turn.results)), verdict)
            return await self._follow(turn, await respond(turn, self._composer), verdict)
        except BudgetSpent as error:
            turn.commit()
            return await self._end_spent(turn, error)
        except (ModelError, NoAnswer) as error:
            turn.commit()
            return await self._fail(turn, str(error), type(error).__name__)
        except StoreUnavailable:
            raise
        except Exception as error:  # our own fault: the room is told, the log has the rest
            logger.exception("message %s could not be answered", turn.message.id)
            turn.commit()
            return await self._fail(turn, _told(error), "internal error")

    async def _collect(self, turn: Turn) -> None:
        """Wait for the rest of a burst: a newer message takes the turn over before anything is paid for."""
        left = turn.inputs[-1].arrived + self._settings.burst_pause / 1000 - time.monotonic()
        if left > 0 and turn.is_fresh:
            await asyncio.sleep(left)

    async def _follow(self, turn: Turn, reply: Reply, verdict: Verdict) -> Outcome:
        """Say and do what the answer wants; from here on nothing newer takes the turn over."""
        course = course_of(reply, self._registry)
        if not reply.complete:
            turn.notes.append("the model's answer breaks off")
        for name in course.unknown:
            self._actor.refuse(turn, name)
        if course.is_silent:
            return await close(turn, Outcome.IGNORED, reply.thought or "it chose silence", SILENCE)
        said = Content(text=reply.text, thought=reply.thought, actions=reply.actions)
        if course.is_simple:
            return await self._say(turn, said, verdict)
        if course.says:
            await turn.reply(said)
        await self._actor.run_all(turn, course.calls, reply.thought)
        results = turn.state.data.get("actionResults", ())  # one action may have several
        if turn.replies and not any(result.error == OUTCOME_UNKNOWN for result in results):
            return await close(turn, Outcome.ANSWERED, verdict.reason, verdict.rule)
        is_as_said = not turn.replies and all(result.success for result in results)
        text = reply.text if is_as_said and reply.text else await self._multistep.summary(turn)
        return await self._say(turn, replace(said, text=text), verdict)

    async def _say(self, turn: Turn, content: Content, verdict: Verdict) -> Outcome:
        is_unasked = verdict.rule in UNASKED or turn.author.is_bot
        if is_unasked and await is_repetition(turn, content.text):
            reason = "it would have said the same words a fourth time within ten minutes"
            return await close(turn, Outcome.IGNORED, reason, REPETITION)
        outgoing = [turn.outgoing(content)]
        return await close(turn, Outcome.ANSWERED, verdict.reason, verdict.rule, outgoing)

    async def _end_spent(self, turn: Turn, error: BudgetSpent) -> Outcome:
        """Close what is not paid for any more as the gate closes what comes now; what was said stays said."""
        if turn.replies:
            return await close(turn, Outcome.ANSWERED, str(error), error.setting)
        template = told_of_limit(turn, self._counts, error.setting)
        says = [turn.outgoing(self._line(turn, template))] if template else []
        return await close(turn, Outcome.IGNORED, str(error), error.setting, says)

    async def _fail(self, turn: Turn, reason: str, rule: str) -> Outcome:
        """Close as failed, with one short line to the room; the next minutes' failures stay silent."""
        cache, now = self._agent.store.cache, self._agent.clock()
        key, own = f"apology:{turn.room.id}", str(turn.id)
        outgoing = []
        if not turn.replies and await cache.get(key) in (None, own):
            await cache.set(key, own, expires_at=now + APOLOGY_PAUSE)
            outgoing = [turn.outgoing(self._line(turn, APOLOGY))]
        return await close(turn, Outcome.FAILED, reason, rule, outgoing)

    async def _time_out(self, turn: Turn, reason: str) -> None:
        """Close what RESPONSE_TIMEOUT has ended, unless the books have its outcome already."""
        for one in turn.inputs:
            one.receipt = await self._agent.store.ledger.receipt(one.receipt.id) or one.receipt
        if not all(one.receipt.outcome.is_final for one in turn.inputs):
            await self._fail(turn, reason, "RESPONSE_TIMEOUT")
            return
        for one in turn.inputs:
            one.settle(one.receipt)
        await mark_late(turn, [(one, one.receipt) for one in turn.inputs])


def _settings_for(turn: Turn, core: CoreSettings) -> CoreSettings:
    """Put what the people of the turn's world have chosen over the agent's settings, where it fits."""
    try:
        return core.for_world(turn.world.settings)
    except ValueError:  # an older version has let them
        turn.notes.append(f"what is set for {turn.world.name or 'this world'} does not fit, and is left out")
        return core


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
