"""The road of one message, from the inbox to its one outcome."""

import logging
import time
from dataclasses import replace
from datetime import timedelta

from bot.agent import Agent
from bot.domain.content import Content
from bot.domain.events import MessageReceived
from bot.domain.ids import new_id
from bot.domain.ledger import Outcome, Receipt
from bot.errors import ModelError
from bot.pipeline.act import Actor, course_of, usable_actions
from bot.pipeline.attachments import read_attachments
from bot.pipeline.commit import close
from bot.pipeline.compose import Composer
from bot.pipeline.evaluate import embed, evaluate
from bot.pipeline.gate import Verdict, judge
from bot.pipeline.latest import Claim, Floors, LatestResponse, Superseded
from bot.pipeline.multistep import MultiStep
from bot.pipeline.respond import NoAnswer, respond
from bot.platform.inbox import Settle
from bot.prompts.templates import APOLOGY
from bot.registry import Registry
from bot.runs import Run, track
from bot.settings import CoreSettings
from bot.turn import Input, Turn

logger = logging.getLogger(__name__)
APOLOGY_PAUSE = timedelta(minutes=5)


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
        run = Run(turn.id, turn.room.id, own.message.id)
        async with track(run, agent.events, agent.id, timeout=self._settings.response_timeout / 1000):
            agent.events.emit(MessageReceived(agent.id, own.message, turn.room, own.author))
            verdict = await self._walk(turn, own, run)
            if own.author.id != agent.id:
                await embed(turn, own.message)
                await evaluate(turn, self._registry, was_to_be_answered=verdict)
        if run.error and not own.receipt.outcome.is_final:
            await self._fail(turn, run.error, "RESPONSE_TIMEOUT")

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
        try:
            verdict = await judge(turn, self._composer, self._settings)
        except ModelError as error:
            reason = f"no model could decide whether to answer: {error}"
            run.outcome = await close(turn, Outcome.FAILED, reason, "shouldRespond")
            return False
        if not verdict.answer:
            run.outcome = await close(turn, Outcome.IGNORED, verdict.reason, verdict.rule)
            return False
        try:
            async with self._floors.hold(turn) as claim, self._agent.outbox.typing(turn.room):
                run.outcome = await self._answer(turn, claim, verdict)
        except Superseded:
            run.outcome = Outcome.SUPERSEDED
            own.receipt = replace(own.receipt, model_calls=(*own.receipt.model_calls, *run.calls))
        return True

    async def _answer(self, turn: Turn, claim: Claim, verdict: Verdict) -> Outcome:
        """Answer while holding the floor; whatever goes wrong, the room is told once."""
        turn.state.forget("RECENT_MESSAGES")  # it may have waited for the floor: the room has moved on
        try:
            await read_attachments(turn)
            turn.actions = await usable_actions(turn, self._registry)
            if self._settings.use_multi_step:
                return await self._work(turn, claim, verdict)
            reply = await respond(turn, self._composer)
            course = course_of(reply, self._registry)
            turn.notes += course.notes
            await claim.commit()
            if course.is_silent:
                return await close(turn, Outcome.IGNORED, reply.thought or "it chose silence", "IGNORE")
            said = Content(text=reply.text, thought=reply.thought, actions=reply.actions)
            if course.is_simple:
                return await self._say(turn, said, verdict)
            if course.says:
                await turn.reply(said)
            await self._actor.run_all(turn, course.calls, reply.thought)
            if not turn.replies:
                said = replace(said, text=reply.text or await self._multistep.summary(turn))
                return await self._say(turn, said, verdict)
            return await close(turn, Outcome.ANSWERED, verdict.reason, verdict.rule)
        except (ModelError, NoAnswer) as error:
            await claim.commit()
            return await self._fail(turn, str(error), type(error).__name__)
        except Exception as error:  # our own fault: the room is told, the log has the rest
            logger.exception("message %s could not be answered", turn.message.id)
            await claim.commit()
            return await self._fail(turn, f"{type(error).__name__}: {error}", "internal error")

    async def _work(self, turn: Turn, claim: Claim, verdict: Verdict) -> Outcome:
        await claim.commit()
        text = await self._multistep.work(turn)
        return await self._say(turn, Content(text=text, actions=tuple(turn.results)), verdict)

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
            outgoing = [turn.outgoing(Content(text=self._agent.templates[APOLOGY]))]
        return await close(turn, Outcome.FAILED, reason, rule, outgoing)
