"""The road of one message, from the inbox to its one outcome."""

import logging
import time
from dataclasses import replace
from datetime import timedelta

from bot.agent import Agent
from bot.boundary import contained
from bot.domain.content import Content
from bot.domain.events import MessageReceived
from bot.domain.ids import new_id
from bot.domain.ledger import Outcome, Receipt
from bot.errors import ModelError
from bot.pipeline.act import OUTCOME_UNKNOWN, Actor, course_of, usable_actions
from bot.pipeline.attachments import read_attachments
from bot.pipeline.commit import close
from bot.pipeline.compose import Composer
from bot.pipeline.evaluate import embed, evaluate
from bot.pipeline.gate import Verdict, judge
from bot.pipeline.journal import resumed
from bot.pipeline.latest import Claim, Floors, LatestResponse, Superseded
from bot.pipeline.multistep import MultiStep
from bot.pipeline.respond import NoAnswer, respond
from bot.platform.inbox import Settle
from bot.prompts.reading.reader import Reply
from bot.prompts.templates import APOLOGY
from bot.registry import Registry
from bot.runs import Run, track
from bot.settings import CoreSettings
from bot.turn import Input, Turn

logger = logging.getLogger(__name__)
APOLOGY_PAUSE = timedelta(minutes=5)
MOST_ATTEMPTS = 3
EMBEDDING_DEADLINE = 120.0
RESUMED = Verdict(True, "it was being answered when the process stopped", "restart")


class Processor:
    """Walks messages down the road; one an agent, so that two agents in one process never meet."""

    def __init__(self, agent: Agent, registry: Registry, settings: CoreSettings) -> None:
        self._agent = agent
        self._registry = registry
        self._settings = settings
        self._floors = Floors(LatestResponse(settings.latest_response))
        self._composer = Composer(registry)
        self._actor = Actor(self._composer)
        self._multistep = MultiStep(
            registry, self._composer, self._actor, most_rounds=settings.max_multistep_iterations
        )

    async def process_message(self, receipt: Receipt, settle: Settle) -> None:
        """Bring one stored message to its outcome, then learn from it."""
        turn = await self._begin(receipt, settle)
        if turn is None:
            return
        own = turn.inputs[0]
        agent = self._agent
        if own.receipt.attempts > MOST_ATTEMPTS:
            await self._fail(turn, f"{MOST_ATTEMPTS} attempts ended before it had an answer", "restart")
            return
        run = Run(turn.id, turn.room.id, own.message.id, calls=own.calls)
        async with track(run, agent.events, agent.id, timeout=self._settings.response_timeout / 1000):
            agent.events.emit(MessageReceived(agent.id, own.message, turn.room, own.author))
            verdict = await self._walk(turn, own, run)
            if own.author.id != agent.id:
                await contained(embed(turn, own.message), what="embedding", deadline=EMBEDDING_DEADLINE)
                await evaluate(turn, self._registry, was_to_be_answered=verdict)
        if run.error and turn.successor is None and not own.receipt.outcome.is_final:
            await self._time_out(turn, run.error)

    async def _begin(self, receipt: Receipt, settle: Settle) -> Turn | None:
        """Claim the receipt; None where its message was removed before anybody looked at it."""
        ledger, now = self._agent.store.ledger, self._agent.clock()
        turn_id = receipt.turn_id or new_id()
        receipt = replace(
            receipt,
            outcome=Outcome.CLAIMED,
            turn_id=turn_id,
            attempts=receipt.attempts + 1,
            claimed_at=now,
        )
        arrival = await ledger.arrival(receipt)
        if arrival is None:
            gone = replace(
                receipt, outcome=Outcome.CANCELLED, reason="its message was removed", closed_at=now
            )
            await ledger.save_receipts([gone])
            settle(gone)
            return None
        await ledger.save_receipts([receipt])
        own = Input(receipt, arrival.message, arrival.author, time.monotonic(), settle)
        return Turn(self._agent, turn_id, arrival.room, arrival.world, [own])

    async def _walk(self, turn: Turn, own: Input, run: Run) -> bool:
        """Judge and answer; tells whether the message was to be answered."""
        covers = await resumed(turn) if own.receipt.attempts > 1 else None
        try:
            verdict = RESUMED if covers else await judge(turn, self._composer, self._settings)
        except ModelError as error:
            reason = f"no model could decide whether to answer: {error}"
            run.outcome = await close(turn, Outcome.FAILED, reason, "shouldRespond")
            return False
        except Exception as error:  # our own fault, or a template's: nobody knows whether it called for words
            logger.exception("it could not be decided whether to answer message %s", own.message.id)
            run.outcome = await close(turn, Outcome.FAILED, _told(error), "internal error")
            return False
        if not verdict.answer:
            run.outcome = await close(turn, Outcome.IGNORED, verdict.reason, verdict.rule)
            return False
        try:
            async with self._floors.hold(turn, covers) as claim, self._agent.outbox.typing(turn.room):
                run.outcome = await self._answer(turn, claim, verdict)
        except Superseded:
            run.outcome = Outcome.SUPERSEDED
        return True

    async def _answer(self, turn: Turn, claim: Claim, verdict: Verdict) -> Outcome:
        """Answer while holding the floor; whatever goes wrong, the room is told once."""
        turn.state.forget("RECENT_MESSAGES")  # it may have waited for the floor: the room has moved on
        try:
            await read_attachments(turn)
            turn.actions = await usable_actions(turn, self._registry)
            if self._settings.use_multi_step:
                claim.commit()
                text = await self._multistep.work(turn)
                return await self._say(turn, Content(text=text, actions=tuple(turn.results)), verdict)
            reply = await respond(turn, self._composer)
            claim.commit()
            return await self._follow(turn, reply, verdict)
        except (ModelError, NoAnswer) as error:
            claim.commit()
            return await self._fail(turn, str(error), type(error).__name__)
        except Exception as error:  # our own fault: the room is told, the log has the rest
            logger.exception("message %s could not be answered", turn.message.id)
            claim.commit()
            return await self._fail(turn, _told(error), "internal error")

    async def _follow(self, turn: Turn, reply: Reply, verdict: Verdict) -> Outcome:
        """Say and do what the answer wants; from here on nothing newer takes the turn over."""
        course = course_of(reply, self._registry)
        if not reply.complete:
            turn.notes.append("the model's answer breaks off")
        for name in course.unknown:
            self._actor.refuse(turn, name)
        if course.is_silent:
            return await close(turn, Outcome.IGNORED, reply.thought or "it chose silence", "IGNORE")
        said = Content(text=reply.text, thought=reply.thought, actions=reply.actions)
        if course.is_simple:
            return await self._say(turn, said, verdict)
        if course.says:
            await turn.reply(said)
        await self._actor.run_all(turn, course.calls, reply.thought)
        results = turn.results.values()
        if turn.replies and not any(result.error == OUTCOME_UNKNOWN for result in results):
            return await close(turn, Outcome.ANSWERED, verdict.reason, verdict.rule)
        is_as_said = not turn.replies and all(result.success for result in results)
        text = reply.text if is_as_said and reply.text else await self._multistep.summary(turn)
        return await self._say(turn, replace(said, text=text), verdict)

    async def _say(self, turn: Turn, content: Content, verdict: Verdict) -> Outcome:
        outgoing = [turn.outgoing(content)]
        return await close(turn, Outcome.ANSWERED, verdict.reason, verdict.rule, outgoing)

    async def _fail(self, turn: Turn, reason: str, rule: str) -> Outcome:
        """Close as failed, with one short line to the room; the next minutes' failures stay silent."""
        cache, now = self._agent.store.cache, self._agent.clock()
        key = f"apology:{turn.room.id}"
        outgoing = []
        if not turn.replies and await cache.get(key) is None:
            await cache.set(key, True, expires_at=now + APOLOGY_PAUSE)
            outgoing = [turn.outgoing(Content(text=self._composer.render(turn, APOLOGY)))]
        return await close(turn, Outcome.FAILED, reason, rule, outgoing)

    async def _time_out(self, turn: Turn, reason: str) -> None:
        """Close what RESPONSE_TIMEOUT has ended, unless the books have its outcome already."""
        kept = [await self._agent.store.ledger.receipt(one.receipt.id) for one in turn.inputs]
        if not all(receipt is not None and receipt.outcome.is_final for receipt in kept):
            await self._fail(turn, reason, "RESPONSE_TIMEOUT")
            return
        for one, receipt in zip(turn.inputs, kept, strict=True):
            one.settle(receipt or one.receipt)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
