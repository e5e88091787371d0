"""Inline questions: typed after the bot's name in any chat, and answered to the person who types until they send it.

Of a question whose answer is not sent nothing is stored but its cost, under the purpose `inline`.
"""

import asyncio
import hashlib
import logging
from datetime import timedelta

from bot.care.recognition import find_distress
from bot.commands.dispatcher import CommandEvent, CommandReceipts, CommandResult
from bot.domain.character import ProviderKind
from bot.domain.content import Content
from bot.domain.environment import Entity, Room, World
from bot.domain.inbound import CommandResponse, InlineAnswer, ResponseTarget
from bot.errors import BotError
from bot.models.types import ModelType, Purpose
from bot.pipeline.compose import Composer
from bot.pipeline.should_respond import PUBLIC_LIMITS, MessageRateLimiter
from bot.plugin_system.registry import Registry
from bot.prompts.reply_parser.reader import read_reply
from bot.prompts.templates import INLINE_ANSWER
from bot.settings.layers import CoreSettings
from bot.text import HistoryLine, render_history, sanitize_name, sanitize_text, shorten
from bot.turn import Agent, Turn

logger = logging.getLogger(__name__)
INLINE_LABEL = "an inline question"
KEPT_FOR = timedelta(hours=1)  # an answer, until it is sent
REUSED_FOR = timedelta(minutes=5)  # for the same question of the same person
MAX_LENGTH, MAX_QUESTION_LENGTH = 1000, 256
ANSWER_TIMEOUT = 15.0
PROVIDER_KINDS = (ProviderKind.PERSONA, ProviderKind.TIME)


class InlineQuestions:
    """Answers the inline questions of one agent, within the limits of messages and the budgets."""

    def __init__(self, agent: Agent, registry: Registry, receipts: CommandReceipts) -> None:
        self._agent, self._registry, self._receipts = agent, registry, receipts
        self._limiter = MessageRateLimiter(agent.settings.load(CoreSettings), PUBLIC_LIMITS)

    async def answer(self, world: World, room: Room, author: Entity, question: str) -> InlineAnswer | None:
        """Return the answer for a person; None where nothing may be answered, or no model answers in time.

        The same question of a person within five minutes gets the same answer, without a model.
        """
        agent, question = self._agent, sanitize_text(question, MAX_QUESTION_LENGTH)
        if author.id in agent.store.marks.not_read | agent.muted_people or not agent.may_speak_in(room):
            return None
        answer_id = hashlib.sha256(f"{author.id} {question}".encode()).hexdigest()[:32]
        key, now = _key(author, answer_id), agent.clock()
        try:
            kept = await agent.store.cache.get(key)
            if kept is not None and now.timestamp() - kept["at"] < REUSED_FOR.total_seconds():
                return InlineAnswer(answer_id, kept["text"])
            if find_distress(question) or self._limiter.check(author.id, room, expects_reply=False):
                return None
            text = await self._write(world, room, author, question)
            if text:
                value = {"text": text, "at": now.timestamp()}
                await agent.store.cache.set(key, value, expires_at=now + KEPT_FOR)
                return InlineAnswer(answer_id, text)
        except (BotError, TimeoutError) as error:
            logger.info("an inline question is not answered: %s", error or type(error).__name__)
        return None

    async def note_sent(
        self, world: World, room: Room, author: Entity, answer_id: str, event_id: str, target: ResponseTarget
    ) -> None:
        """Store, once for each event, that a person has sent an answer: a receipt, and the answer as its delivery.

        Nothing is stored of a person who is not read. Raises InboxClosed while the bot is stopping and StoreUnavailable
        while nothing can be stored.
        """

        async def read_answer() -> CommandResult:
            kept = await self._agent.store.cache.get(_key(author, answer_id))
            return CommandResult(CommandResponse(kept["text"] if kept is not None else "(an answer of long ago)"))

        if author.id in self._agent.store.marks.not_read:
            return
        event = CommandEvent(INLINE_LABEL, world, room, author, event_id)
        await self._receipts.run(event, read_answer, target)

    async def _write(self, world: World, room: Room, author: Entity, question: str) -> str:
        agent, composer = self._agent, Composer(self._registry)
        turn = Turn.for_room(agent, room, world, author=author, text=question)
        with agent.rooms.charge(room, author):
            async with asyncio.timeout(ANSWER_TIMEOUT):
                await composer.compose(turn, self._registry.provider_names(*PROVIDER_KINDS), only_included=True)
                line = HistoryLine(agent.clock(), sanitize_name(author.name), "1", question, is_open=True)
                values = {"maxLength": MAX_LENGTH, "question": render_history([line])}
                request = composer.build_request(turn, INLINE_ANSWER, Purpose.INLINE, ModelType.TEXT_SMALL, **values)
                written = read_reply((await agent.models.text(request, ModelType.TEXT_SMALL)).text).text
            content, hold_reason = await agent.filters.check_post(
                agent, room, Content(text=shorten(written, MAX_LENGTH))
            )
        filtered = agent.outbox.filter_content(content, room.id) if content is not None and not hold_reason else None
        return filtered.text if filtered is not None else ""


def _key(author: Entity, answer_id: str) -> str:
    return f"inline {author.id} {answer_id}"  # with the id of the person, so that it is erased with them
