"""Sending within Telegram's rate limits.

API calls that send or edit texts and files for one bot.
"""

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from telegram import (
    InlineKeyboardMarkup,
    InlineQueryResultArticle,
    InputFile,
    InputMediaAudio,
    InputMediaDocument,
    InputMediaPhoto,
    InputMediaVideo,
    InputTextMessageContent,
    LinkPreviewOptions,
    ReplyParameters,
)
from telegram.error import BadRequest, ChatMigrated, TelegramError

from adapters.telegram.client import (
    BotClient,
    ChatUnavailable,
    RateLimiter,
    TokenRefused,
    error_text,
    has_no_text,
    is_about_markup,
    is_already_done,
    is_message_gone,
    is_too_long,
    is_topic_unavailable,
    label_crash_points,
    translate_errors,
)
from adapters.telegram.config import Limits, QuotePolicy, UnclearPolicy
from adapters.telegram.incoming import PLATFORM, ChatTarget
from adapters.telegram.outgoing import (
    MAX_TEXT_LENGTH,
    FormattedText,
    OutgoingText,
    build_keyboard,
    build_plain_text,
    build_text,
    display_name_of,
    is_part,
    limit_mentions,
    split_reply,
    split_text,
    upload_method_of,
)
from bot import Attachment, Content
from bot.platform import (
    RESPONSE_SOURCE,
    BoundedDict,
    Delivery,
    DeliveryError,
    DeliveryHeld,
    DeliveryUnknown,
    KnownPeople,
    MessageGone,
    NotSent,
    TimeSource,
    TokenCheck,
    Undeliverable,
)
from bot.text import shorten

logger = logging.getLogger(__name__)
NO_PREVIEW = LinkPreviewOptions(is_disabled=True)  # a preview would open the link
UPLOAD_TIMEOUT = 50.0
MAX_GUEST_ANSWERS = 1000
MEDIA_TYPES = {
    "photo": InputMediaPhoto,
    "video": InputMediaVideo,
    "audio": InputMediaAudio,
    "voice": InputMediaAudio,
    "document": InputMediaDocument,
}
FILE_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,250}")
SendCall = Callable[[ChatTarget], Awaitable[str]]


class SendMethods:
    """Sends to chats and follows migrated groups; `on_migrated` is called for each migration."""

    def __init__(self, client: BotClient, on_migrated: Callable[[int, int], None]) -> None:
        self._client = client
        self._on_migrated = on_migrated
        self._migrated_chats: dict[int, int] = {}  # new ids by former ids of groups
        self._guest_answers = BoundedDict[str, str](MAX_GUEST_ANSWERS)  # ids of inline messages by query

    def resolve(self, target: ChatTarget) -> ChatTarget:
        """Return the target with the current id of its chat."""
        return replace(target, chat_id=self._migrated_chats.get(target.chat_id, target.chat_id))

    def note_migration(self, old_chat_id: int, new_chat_id: int) -> None:
        """Redirect messages for a chat to its new id."""
        self._migrated_chats[old_chat_id] = new_chat_id

    async def send(self, target: ChatTarget, content: Content, reply_to: str = "", *, is_repeat: bool = False) -> str:
        """Send one part, with a notice if it may be a duplicate. Raises as `Adapter.deliver`."""

        async def send_part(resolved: ChatTarget) -> str:
            # message ids differ in the supergroup, and a reply stands in the topic of the message that it replies to
            answered_id = reply_to if resolved == target else ""
            if content.attachments:
                return await self._send_file(resolved, content, answered_id, is_repeat=is_repeat)
            return await self._send_text(resolved, content, answered_id, is_repeat=is_repeat)

        return await self._send_after_migration(target, partial(self._send_in_topic, send_part))

    async def edit(self, target: ChatTarget, message_id: int, content: Content) -> str:
        """Edit a message, or delete it if the content is empty; idempotent.

        A message of a group that has become a supergroup cannot be edited: message ids differ there.
        """
        if (new_chat_id := self._migrated_chats.get(target.chat_id)) is not None:
            raise self._migrated_edit_error(target.chat_id, new_chat_id, content)
        with translate_errors():
            try:
                await self._edit_or_delete(target, message_id, content)
            except ChatMigrated as error:
                raise self._migrated_edit_error(target.chat_id, error.new_chat_id, content) from None
            except BadRequest as error:
                if is_message_gone(error):
                    raise MessageGone("the message was deleted from the chat: it is not sent again") from None
                if not is_already_done(error):
                    raise
        return str(message_id)

    def _migrated_edit_error(self, old_chat_id: int, new_chat_id: int, content: Content) -> DeliveryError:
        """Report the migration and return the error for the edit; the outbox sends the content again."""
        self.note_migration(old_chat_id, new_chat_id)
        self._on_migrated(old_chat_id, new_chat_id)
        if content.text or content.attachments:
            return NotSent("the group has become a supergroup: the message is sent there")
        return Undeliverable("the message is in the group that has become a supergroup and cannot be deleted")

    async def _send_after_migration(self, target: ChatTarget, send: SendCall) -> str:
        with translate_errors():
            try:
                return await send(self.resolve(target))
            except ChatMigrated as error:
                new_chat_id = error.new_chat_id
                self.note_migration(target.chat_id, new_chat_id)
                self._on_migrated(target.chat_id, new_chat_id)
                return await send(ChatTarget(new_chat_id))

    async def _send_in_topic(self, send: SendCall, target: ChatTarget) -> str:
        """Send to a topic; if it was deleted or is closed, to the chat, which a forum shows as the topic General."""
        try:
            return await send(target)
        except BadRequest as error:
            if not is_topic_unavailable(error):
                raise
            if target.thread_id is None:
                logger.warning("chat %s: the topic General is closed: open it, or let the bot manage topics", target)
                raise
            logger.warning("chat %s: %s: a message for this topic is sent to General", target, error_text(error))
        return await self._send_in_topic(send, ChatTarget(target.chat_id))

    async def _send_text(self, target: ChatTarget, content: Content, reply_to: str, *, is_repeat: bool) -> str:
        try:
            return await self._send_message(target, _with_notice(build_text(content), is_repeat), reply_to, content)
        except BadRequest as error:
            if is_too_long(error):
                return await self._send_in_pieces(target, content, reply_to, is_repeat=is_repeat)
            if not is_about_markup(error):
                raise
        return await self._send_message(target, _with_notice(build_plain_text(content), is_repeat), reply_to, content)

    async def _send_in_pieces(self, target: ChatTarget, content: Content, reply_to: str, *, is_repeat: bool) -> str:
        """Send a text in smaller pieces and return the id of the first."""
        texts = [piece.text for piece in split_text(FormattedText(content.text), MAX_TEXT_LENGTH // 2)]
        message_id = await self._send_message(target, _with_notice(OutgoingText(texts[0]), is_repeat), reply_to)
        try:
            for text in texts[1:]:
                await self._send_message(target, OutgoingText(text), "", content if text is texts[-1] else None)
        except TelegramError as error:
            raise DeliveryUnknown(f"only the beginning was sent: {error_text(error)}") from None
        return message_id

    async def _send_message(
        self, target: ChatTarget, text: OutgoingText, reply_to: str, content: Content | None = None
    ) -> str:
        keyboard = build_keyboard(content.choices) if content is not None else None
        if target.guest_query_id:
            return await self._answer_as_guest(target.guest_query_id, text, keyboard)
        message_id = await self._client.send_text(
            target.chat_id,
            text.text,
            entities=text.entities,
            message_thread_id=target.thread_id,
            direct_messages_topic_id=target.direct_topic_id,
            reply_to=int(reply_to) if reply_to.isdecimal() else None,
            reply_markup=keyboard,
        )
        return _check_message_id(message_id)

    async def _answer_as_guest(self, query_id: str, text: OutgoingText, keyboard: InlineKeyboardMarkup | None) -> str:
        """Answer a question in a chat without the bot; return the id of the inline message.

        That is possible once: what follows, such as the result after "On it.", replaces the answer.
        """
        if (message_id := self._guest_answers.get(query_id)) is not None:
            await self._client.edit_message_text(
                text.text,
                inline_message_id=message_id,
                entities=text.entities or None,
                link_preview_options=NO_PREVIEW,
                reply_markup=keyboard,
            )
            return message_id
        message = InputTextMessageContent(text.text, entities=text.entities or None, link_preview_options=NO_PREVIEW)
        result = InlineQueryResultArticle("answer", shorten(text.text, 64), message, reply_markup=keyboard)
        sent = await self._client.answer_guest_query(query_id, result)
        self._guest_answers[query_id] = sent.inline_message_id
        return sent.inline_message_id

    async def _send_file(self, target: ChatTarget, content: Content, reply_to: str, *, is_repeat: bool) -> str:
        """Send a file with its caption; if Telegram rejects the file, the caption and a notice."""
        for text in (build_text(content), build_plain_text(content)):
            try:
                return await self._upload(target, _with_notice(text, is_repeat), reply_to, content)
            except Undeliverable:
                break
            except BadRequest as error:
                if is_topic_unavailable(error):
                    raise
                if not is_about_markup(error):
                    break
        notice = f"({display_name_of(content.attachments[0])} could not be sent.)"
        fallback = OutgoingText("\n\n".join(filter(None, [build_plain_text(content).text, notice])))
        return await self._send_message(target, _with_notice(fallback, is_repeat), reply_to, content)

    async def _upload(self, target: ChatTarget, text: OutgoingText, reply_to: str, content: Content) -> str:
        [file] = content.attachments
        if target.guest_query_id:
            raise Undeliverable("as a guest the bot can send no file")
        send = getattr(self._client, f"send_{upload_method_of(file)}")
        message = await send(
            target.chat_id,
            self._file_source(file),
            caption=text.text or None,
            caption_entities=text.entities or None,
            message_thread_id=target.thread_id,
            direct_messages_topic_id=target.direct_topic_id,
            reply_parameters=_reply_parameters(reply_to),
            reply_markup=build_keyboard(content.choices),
            read_timeout=UPLOAD_TIMEOUT,
        )
        return _check_message_id(message.message_id)

    def _file_source(self, file: Attachment) -> InputFile | str:
        if file.data is not None:
            return InputFile(file.data, filename=display_name_of(file))
        own_prefix = f"{PLATFORM}:{self._client.account}/"
        if file.url.startswith(own_prefix) and _is_file_id(file.url.removeprefix(own_prefix)):
            return file.url.removeprefix(own_prefix)
        if file.url.startswith(("http://", "https://")):
            return file.url
        raise Undeliverable(f"{display_name_of(file)} has no content that could be sent")

    async def _edit_or_delete(self, target: ChatTarget, message_id: int, content: Content) -> None:
        if not content.text and not content.attachments:
            await self._client.delete_message(target.chat_id, message_id)
            return
        text = build_text(content)
        try:
            await self._replace_content(target, message_id, text, content)
        except BadRequest as error:
            if not is_about_markup(error):
                raise
            await self._replace_content(target, message_id, build_plain_text(content), content)

    async def _replace_content(self, target: ChatTarget, message_id: int, text: OutgoingText, content: Content) -> None:
        arguments: dict[str, Any] = {"chat_id": target.chat_id, "message_id": message_id}
        arguments["reply_markup"] = build_keyboard(content.choices)
        entities = text.entities or None
        if content.attachments:
            [file] = content.attachments
            media = MEDIA_TYPES[upload_method_of(file)](
                self._file_source(file), caption=text.text or None, caption_entities=entities
            )
            await self._client.edit_message_media(media, **arguments, read_timeout=UPLOAD_TIMEOUT)
            return
        try:
            await self._client.edit_message_text(
                text.text, entities=entities, link_preview_options=NO_PREVIEW, **arguments
            )
        except BadRequest as error:
            if not has_no_text(error):
                raise
            await self._client.edit_message_caption(caption=text.text, caption_entities=entities, **arguments)


def _with_notice(text: OutgoingText, is_repeat: bool) -> OutgoingText:
    return text.with_duplicate_notice() if is_repeat else text


def _reply_parameters(reply_to: str) -> ReplyParameters | None:
    """Return the reply reference; the message is sent even if the replied one was deleted."""
    if not reply_to.isdecimal():
        return None
    return ReplyParameters(int(reply_to), allow_sending_without_reply=True)


def _is_file_id(text: str) -> bool:
    """Return whether it is a file id; python-telegram-bot would open a local file of that name."""
    return FILE_ID_PATTERN.fullmatch(text) is not None and not Path(text).exists()


def _check_message_id(message_id: object) -> str:
    """Return the id of a sent message as text. Raises DeliveryUnknown if it is none."""
    if not isinstance(message_id, int) or message_id <= 0:
        raise DeliveryUnknown("Telegram did not return the id of the message")
    return str(message_id)


HOLD_REASON = "Telegram cannot be asked whether it arrived, and TELEGRAM_UNCLEAR is hold"
UNAVAILABLE_REASON = "the bot is blocked there, or was removed; it is tried again when a user writes"
CALL_REFUSED = "Telegram refused this call with 401 and accepts the token: it is tried again"
COMMAND_CRASH_POINT = "errand"  # label of the crash points of responses to commands
MAX_TRIES = 3
SHORT_WAIT = 1.0


class MessageSender:
    """Sends, edits and reconciles deliveries of one bot. Raises as `Adapter.deliver`."""

    def __init__(
        self,
        send_methods: SendMethods,
        rate_limiter: RateLimiter,
        limits: Limits,
        time_source: TimeSource,
        unclear_policy: UnclearPolicy,
        token_check: TokenCheck,
        quote_policy: QuotePolicy = QuotePolicy.ALWAYS,
    ) -> None:
        self._send_methods, self._rate_limiter = send_methods, rate_limiter
        self._limits, self._time = limits, time_source
        self._unclear_policy, self._quote_policy = unclear_policy, quote_policy
        self.known_people = KnownPeople[int]()
        self._unavailable_chats: set[int] = set()  # chats that blocked or removed the bot
        self._token_check = token_check

    def note_user(self, chat_id: int, username: str) -> None:
        """Record that a user wrote: the chat accepts messages again, and the user may be mentioned."""
        self._unavailable_chats.discard(chat_id)
        if username:
            self.known_people.note_user(chat_id, username.lower())

    async def deliver(self, delivery: Delivery) -> str:
        """Send a part as soon as the rate limits allow, and return its message id."""
        target = ChatTarget.parse(delivery.target)
        if target.guest_query_id and delivery.part:
            raise Undeliverable("as a guest the bot can answer with one message only")
        with label_crash_points(COMMAND_CRASH_POINT if delivery.content.source == RESPONSE_SOURCE else "send"):
            return await self._send(target, delivery.content, delivery.reply_to)

    async def edit(self, delivery: Delivery) -> str:
        """Edit a sent message, or delete it."""
        target = ChatTarget.parse(delivery.target)
        if target.guest_query_id and delivery.content.text:  # which replaces the answer
            return await self._send(target, delivery.content, "")
        if not delivery.replaces_external_id.isdecimal():
            raise Undeliverable(f"there is no message {delivery.replaces_external_id!r} on Telegram")
        await self._acquire_slot(target, SHORT_WAIT)
        with label_crash_points("edit"):
            async with self._track_refusals(target):
                content = self._limit_mentions(target, delivery.content)
                return await self._send_methods.edit(target, int(delivery.replaces_external_id), content)

    async def reconcile(self, delivery: Delivery) -> str:
        """Send an uncertain part again with a notice, or hold it.

        Never raises NotSent: the retry after that would carry no notice.
        """
        if self._unclear_policy is UnclearPolicy.HOLD:
            raise DeliveryHeld(HOLD_REASON)
        target = ChatTarget.parse(delivery.target)
        try:
            with label_crash_points("send"):
                return await self._send(target, delivery.content, delivery.reply_to, is_repeat=True)
        except NotSent as error:
            cause = f"it may have been sent and cannot be sent again now: {error}"
            raise DeliveryUnknown(cause, retry_after=error.retry_after) from None

    async def send_untracked(self, target: ChatTarget, content: Content, reply_to: str) -> None:
        """Send a message that is not in the ledger, with up to three attempts."""
        for attempt in range(1, MAX_TRIES + 1):
            try:
                await self._send(target, content, reply_to)
                return
            except NotSent as error:
                wait = error.retry_after if error.retry_after is not None else SHORT_WAIT
                if attempt == MAX_TRIES or wait > self._limits.max_retry_delay:
                    raise
                await self._time.sleep(wait)

    async def _send(self, target: ChatTarget, content: Content, reply_to: str, *, is_repeat: bool = False) -> str:
        """Send a part, split first if it was not, and return the id of its first message."""
        message_ids: list[str] = []
        reply_to = reply_to if self._should_quote(target) else ""
        for part in [content] if is_part(content) else split_reply(content):
            try:
                await self._acquire_slot(target, self._limits.max_queue_seconds)
                async with self._track_refusals(target):
                    limited = self._limit_mentions(target, part)
                    message_id = await self._send_methods.send(
                        target, limited, "" if message_ids else reply_to, is_repeat=is_repeat
                    )
            except (NotSent, Undeliverable) as error:
                if message_ids:  # a retry would repeat the beginning
                    raise DeliveryUnknown(f"only the beginning was sent: {error}") from None
                raise
            message_ids.append(message_id)
        return message_ids[0]

    def _should_quote(self, target: ChatTarget) -> bool:
        if self._quote_policy is QuotePolicy.GROUPS:
            return self._send_methods.resolve(target).is_group
        return self._quote_policy is QuotePolicy.ALWAYS

    def _limit_mentions(self, target: ChatTarget, content: Content) -> Content:
        """Limit mentions in groups to users who have written there."""
        resolved = self._send_methods.resolve(target)
        if not resolved.is_group:
            return content
        return limit_mentions(content, self.known_people.of(resolved.chat_id))

    async def _acquire_slot(self, target: ChatTarget, max_wait: float) -> None:
        if self._token_check.is_refused:
            raise TokenRefused(self._token_check.retry_after)
        chat_id = self._send_methods.resolve(target).chat_id
        if chat_id in self._unavailable_chats:
            raise Undeliverable(UNAVAILABLE_REASON)
        wait = self._rate_limiter.acquire(chat_id, max_wait)
        if wait > max_wait:
            raise NotSent(f"Telegram's rate limits allow no message for {wait:.0f} s", retry_after=wait)
        if wait:
            await self._time.sleep(wait)

    @asynccontextmanager
    async def _track_refusals(self, target: ChatTarget) -> AsyncIterator[None]:
        """Record what an error says about the chat, and find out whether it is about the token."""
        chat_id = self._send_methods.resolve(target).chat_id
        try:
            yield
        except TokenRefused:
            if await self._token_check.confirm():
                raise TokenRefused(self._token_check.retry_after) from None
            raise NotSent(CALL_REFUSED) from None
        except NotSent as error:
            if error.retry_after is not None:
                self._rate_limiter.block(chat_id, error.retry_after)
            raise
        except ChatUnavailable:
            self._unavailable_chats.add(chat_id)
            raise
