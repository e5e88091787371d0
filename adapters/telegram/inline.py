"""Inline questions: typed after the bot's @name in any chat; the answer is shown to the person who types."""

import logging

from telegram import ChosenInlineResult, InlineQuery, InlineQueryResultArticle, InputTextMessageContent, User
from telegram.error import TelegramError

from adapters.telegram.client import PARSE_ERRORS, BotClient, error_text
from adapters.telegram.incoming import INLINE_QUERY, PLATFORM, BotIdentity, ChatTarget, build_entity, derive_room_id
from adapters.telegram.outgoing import SPANS_KEY, build_text, split_reply
from adapters.telegram.sending import NO_PREVIEW
from bot import BotError, ChannelType, CommandResponse, Content, Room, World, derived_id
from bot.platform import AgentHandle, BoundedDict, InlineAnswer, ResponseTarget, TaskSet, TimeSource
from bot.text import shorten

logger = logging.getLogger(__name__)
PLACE_NAME = "Inline questions"
MIN_LENGTH, PAUSE_SECONDS = 3, 0.8  # of a question, and without another one of the person, before a model is asked
CACHE_SECONDS = 300  # for which Telegram shows a person the same answer to the same question
MAX_TITLE_LENGTH, MAX_DESCRIPTION_LENGTH = 64, 200
MAX_PEOPLE = 10_000


class InlineReceiver:
    """Answers the inline queries of one bot, each after a pause; one that another of its person follows is dropped."""

    def __init__(self, handle: AgentHandle, client: BotClient, time_source: TimeSource, identity: BotIdentity) -> None:
        self._handle, self._client, self._time, self._identity = handle, client, time_source, identity
        self._newest = BoundedDict[int, str](MAX_PEOPLE)  # the query of each person
        self._tasks = TaskSet("answering an inline query on Telegram")
        target = ChatTarget(identity.id, guest_query_id=INLINE_QUERY)
        self._world = World(
            derived_id(PLATFORM, identity.account, "world", str(target)), PLATFORM, str(target), PLACE_NAME
        )
        self._room = Room(
            derive_room_id(identity.account, target),
            self._world.id,
            ChannelType.GROUP,
            PLATFORM,
            str(target),
            account=identity.account,
            name=PLACE_NAME,
        )
        self._is_stored = False

    def receive(self, query: InlineQuery) -> None:
        """Answer a query in the background, unless another one of its person follows within PAUSE_SECONDS."""
        self._newest[query.from_user.id] = query.id
        self._tasks.start(self._answer(query))

    async def note_sent(self, sent: ChosenInlineResult, update_id: int) -> None:
        """Store that a person has sent an answer. Raises InboxClosed or StoreUnavailable: it must come again."""

        def split(response: CommandResponse) -> list[Content]:
            return [Content(text=response.text, metadata={SPANS_KEY: []})]

        target = ResponseTarget(self._room.external_id, split, sent.result_id)
        author = build_entity(sent.from_user, self._identity)
        await self._handle.inline.note_sent(
            self._world, self._room, author, sent.result_id, f"inline {update_id}", target
        )

    async def stop(self) -> None:
        """Answer no more queries."""
        await self._tasks.cancel()

    async def _answer(self, query: InlineQuery) -> None:
        answer, question = None, query.query.strip()
        if len(question) >= MIN_LENGTH:
            await self._time.sleep(PAUSE_SECONDS)
            if self._newest.get(query.from_user.id) != query.id:
                return
            answer = await self._ask(query.from_user, question)
        try:
            await self._client.answer_inline_query(
                query.id,
                [] if answer is None else [_build_result(answer)],
                cache_time=0 if answer is None else CACHE_SECONDS,
                is_personal=True,
            )
        except (TelegramError, *PARSE_ERRORS) as error:  # the person has typed on, or given up
            logger.debug("an inline query was not answered: %s", error_text(error))

    async def _ask(self, user: User, question: str) -> InlineAnswer | None:
        if not self._is_stored:  # the bill names the room
            try:
                await self._handle.membership.update_world(self._world, [self._room])
            except BotError as error:
                logger.info("an inline question is not answered: %s", error)
                return None
            self._is_stored = True
        author = build_entity(user, self._identity)
        return await self._handle.inline.answer(self._world, self._room, author, question)


def _build_result(answer: InlineAnswer) -> InlineQueryResultArticle:
    text = build_text(split_reply(Content(text=answer.text))[0])
    content = InputTextMessageContent(text.text, entities=text.entities or None, link_preview_options=NO_PREVIEW)
    title = shorten(text.text, MAX_TITLE_LENGTH)
    return InlineQueryResultArticle(answer.id, title, content, description=shorten(text.text, MAX_DESCRIPTION_LENGTH))
