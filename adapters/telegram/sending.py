"""Sending, editing and deleting messages of one bot, within Telegram's rate limits."""

import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
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
    ReactionTypeEmoji,
    ReplyParameters,
)
from telegram.constants import ReactionEmoji
from telegram.error import BadRequest, ChatMigrated, TelegramError

import bot.platform as bp
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
    is_reaction_refused,
    is_too_long,
    is_topic_unavailable,
    label_crash_points,
    translate_errors,
)
from adapters.telegram.config import Limits, QuotePolicy, TelegramSettings, UnclearPolicy
from adapters.telegram.incoming import PLATFORM, ChatTarget
from adapters.telegram.outgoing import (
    DUPLICATE_NOTICE,
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
    with_duplicate_notice,
    with_name,
)
from bot import Attachment, Content
from bot.text import shorten

logger = logging.getLogger(__name__)
NO_PREVIEW = LinkPreviewOptions(is_disabled=True)  # a preview would open the link
UPLOAD_TIMEOUT = 50.0
MAX_GUEST_ANSWERS = MAX_RESTRICTED_CHATS = 1000
REACTIONS = bp.ReactionSet(tuple(emoji.value for emoji in ReactionEmoji))
MEDIA_TYPES = {
    "photo": InputMediaPhoto,
    "video": InputMediaVideo,
    "audio": InputMediaAudio,
    "voice": InputMediaAudio,
    "document": InputMediaDocument,
}
FILE_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,250}")
HOLD_REASON = "Telegram cannot be asked whether it arrived, and TELEGRAM_UNCLEAR is hold"
UNAVAILABLE_REASON = "the bot is blocked there, or was removed; it is tried again when a user writes"
CALL_REFUSED = "Telegram refused this call with 401 and accepts the token: it is tried again"
COMMAND_CRASH_POINT = "errand"  # label of the crash points of responses to commands
MAX_TRIES = 3
SHORT_WAIT = 1.0
MAX_TOPIC_NAME = 128


class MessageSender:
    """Sends, edits and reconciles deliveries of one bot. Raises as `Adapter.deliver`.

    What is for a group that has become a supergroup is sent there; `on_migrated` is called with both ids.
    """

    def __init__(
        self,
        client: BotClient,
        settings: TelegramSettings,
        limits: Limits,
        time_source: bp.TimeSource,
        token_check: bp.TokenCheck,
        on_migrated: Callable[[int, int], None],
    ) -> None:
        self._client, self._settings, self._limits, self._time = client, settings, limits, time_source
        self._token_check, self._on_migrated = token_check, on_migrated
        self.rate_limiter = RateLimiter(time_source.monotonic)
        self.known_people = bp.KnownPeople[int]()
        self._problems = bp.ChannelProblems(logger, "Telegram chat")
        self._unavailable_chats: set[int] = set()  # chats that blocked or removed the bot
        self._migrated_chats: dict[int, int] = {}  # new ids by former ids of groups
        # by chat that does not allow all
        self._reactions = bp.BoundedDict[int, bp.ReactionSet | None](MAX_RESTRICTED_CHATS)
        self._guest_answers = bp.BoundedDict[str, str](MAX_GUEST_ANSWERS)  # ids of inline messages by query

    def resolve(self, target: ChatTarget) -> ChatTarget:
        """Return the target with the current id of its chat."""
        return replace(target, chat_id=self._migrated_chats.get(target.chat_id, target.chat_id))

    def note_user(self, chat_id: int, username: str) -> None:
        """Record that a user wrote: the chat accepts messages again, and the user may be mentioned."""
        self._unavailable_chats.discard(chat_id)
        if username:
            self.known_people.note_user(chat_id, username.lower())

    async def deliver(self, delivery: bp.Delivery, name: str = "") -> str:
        """Send a part as soon as the rate limits allow, with a name before it, and return its message id."""
        target = ChatTarget.parse(delivery.target)
        if target.is_inline:  # the person has sent it
            return delivery.reply_to
        if target.guest_query_id and delivery.part:
            raise bp.Undeliverable("as a guest the bot can answer with one message only")
        with label_crash_points(COMMAND_CRASH_POINT if delivery.content.source == bp.RESPONSE_SOURCE else "send"):
            return await self._send(target, delivery.content, delivery.reply_to, name=name)

    async def edit(self, delivery: bp.Delivery, name: str = "") -> str:
        """Edit a sent message, with a name before its text, or delete it if the new content is empty; idempotent."""
        target = ChatTarget.parse(delivery.target)
        if target.guest_query_id and delivery.content.text:  # which replaces the answer
            return await self._send(target, delivery.content, "", name=name)
        if not delivery.replaces_external_id.isdecimal():
            raise bp.Undeliverable(f"there is no message {delivery.replaces_external_id!r} on Telegram")
        with label_crash_points("edit"):
            async with self._take_slot(target, SHORT_WAIT):
                content = self._limit_mentions(target, delivery.content)
                if name and (content.text or content.attachments):
                    content = with_name(content, name)
                await self._edit_or_delete(target, int(delivery.replaces_external_id), content)
        return delivery.replaces_external_id

    def find_reactions(self, target: ChatTarget) -> bp.ReactionSet | None:
        """Return the reactions that the bot can set in a chat, as far as it is known; None where it can set none."""
        return None if target.guest_query_id else self._reactions.get(self.resolve(target).chat_id, REACTIONS)

    async def react(self, delivery: bp.Delivery) -> str:
        """Set or remove the bot's reaction to a message, of which Telegram has one at most; return its emoji."""
        target = ChatTarget.parse(delivery.target)
        if target != self.resolve(target):
            raise bp.MessageGone("the message is in the group that has become a supergroup")
        with label_crash_points("react"):
            try:
                async with self._take_slot(target, SHORT_WAIT):
                    return await self._set_reaction(target.chat_id, int(delivery.reply_to), delivery.content.text)
            except ChatMigrated as error:
                self._note_migration(target.chat_id, error.new_chat_id)
                raise bp.MessageGone("the message is in the group that has become a supergroup") from None

    async def _set_reaction(self, chat_id: int, message_id: int, emoji: str) -> str:
        """Set a reaction; where the chat does not allow it, the nearest that it allows."""
        try:
            await self._client.set_message_reaction(chat_id, message_id, [ReactionTypeEmoji(emoji)] if emoji else [])
            return emoji
        except BadRequest as error:
            if is_message_gone(error):
                raise bp.MessageGone("the message was deleted from the chat") from None
            if not is_reaction_refused(error):
                raise
        allowed = (await self._client.get_chat(chat_id)).available_reactions
        listed = tuple(item.emoji for item in allowed or () if isinstance(item, ReactionTypeEmoji))
        self._reactions[chat_id] = reactions = bp.ReactionSet(listed) if listed else None
        nearest = reactions.find(emoji) if reactions is not None else ""
        if not nearest:
            raise bp.Undeliverable(f"the chat does not allow the reaction {emoji}, nor one like it")
        await self._client.set_message_reaction(chat_id, message_id, [ReactionTypeEmoji(nearest)])
        return nearest

    async def open_topic(self, delivery: bp.Delivery, *, is_repeat: bool) -> str:
        """Open a topic of a forum, and return the target of its messages.

        Telegram cannot be asked whether an earlier attempt has opened one: another one is marked in its name, or the
        part is held, according to TELEGRAM_UNCLEAR. Then this never raises NotSent, as `reconcile`.
        """
        if not is_repeat:
            return await self._create_topic(delivery, delivery.content.text)
        if self._settings.telegram_unclear is UnclearPolicy.HOLD:
            raise bp.DeliveryHeld(HOLD_REASON)
        try:
            return await self._create_topic(delivery, f"{DUPLICATE_NOTICE.strip()} {delivery.content.text}")
        except bp.NotSent as error:
            cause = f"it may have been opened and cannot be opened again now: {error}"
            raise bp.DeliveryUnknown(cause, retry_after=error.retry_after) from None

    async def _create_topic(self, delivery: bp.Delivery, name: str) -> str:
        target = ChatTarget.parse(delivery.target)
        place = ChatTarget(self.resolve(target).chat_id)
        with label_crash_points("thread"):
            try:
                async with self._take_slot(target, SHORT_WAIT):
                    topic = await self._client.create_forum_topic(place.chat_id, shorten(name, MAX_TOPIC_NAME))
            except ChatMigrated as error:
                self._note_migration(target.chat_id, error.new_chat_id)
                raise bp.NotSent("the group has become a supergroup: the topic is opened there") from None
            except bp.Undeliverable as error:
                problem = f"{error}: let the bot manage topics, in a group that has them"
                self._problems.report(str(place), problem)
                raise bp.Undeliverable(problem) from None
        return str(replace(place, thread_id=int(_check_message_id(topic.message_thread_id))))

    async def reconcile(self, delivery: bp.Delivery, name: str = "") -> str:
        """Send an uncertain part again with a notice, and a name before that, or hold it.

        Never raises NotSent: the retry after that would carry no notice.
        """
        target = ChatTarget.parse(delivery.target)
        if target.is_inline:
            return delivery.reply_to
        if self._settings.telegram_unclear is UnclearPolicy.HOLD:
            raise bp.DeliveryHeld(HOLD_REASON)
        try:
            with label_crash_points("send"):
                return await self._send(target, delivery.content, delivery.reply_to, is_repeat=True, name=name)
        except bp.NotSent as error:
            cause = f"it may have been sent and cannot be sent again now: {error}"
            raise bp.DeliveryUnknown(cause, retry_after=error.retry_after) from None

    async def send_untracked(self, target: ChatTarget, content: Content, reply_to: str) -> None:
        """Send a message that is not in the ledger, with up to three attempts."""
        for attempt in range(1, MAX_TRIES + 1):
            try:
                await self._send(target, content, reply_to)
                return
            except bp.NotSent as error:
                wait = error.retry_after if error.retry_after is not None else SHORT_WAIT
                if attempt == MAX_TRIES or wait > self._limits.max_retry_delay:
                    raise
                await self._time.sleep(wait)

    async def _send(
        self, target: ChatTarget, content: Content, reply_to: str, *, is_repeat: bool = False, name: str = ""
    ) -> str:
        """Send a part, split first if it was not, and return the id of its first message."""
        message_ids: list[str] = []
        reply_to = reply_to if self._should_quote(target) else ""
        for part in [content] if is_part(content) else split_reply(content):
            limited = self._limit_mentions(target, with_duplicate_notice(part) if is_repeat else part)
            limited = with_name(limited, name) if name else limited
            try:
                # A long wait of the first part is reported by the queue; a message that has begun is not broken off.
                max_wait = self._limits.max_queue_seconds if message_ids else self._limits.max_silent_seconds
                async with self._take_slot(target, max_wait):
                    message_ids.append(await self._send_part(target, limited, "" if message_ids else reply_to))
            except (bp.NotSent, bp.Undeliverable) as error:
                if message_ids:  # a retry would repeat the beginning
                    raise bp.DeliveryUnknown(f"only the beginning was sent: {error}") from None
                raise
        return message_ids[0]

    def _should_quote(self, target: ChatTarget) -> bool:
        if self._settings.telegram_quote is QuotePolicy.GROUPS:
            return self.resolve(target).is_group
        return self._settings.telegram_quote is QuotePolicy.ALWAYS

    def _limit_mentions(self, target: ChatTarget, content: Content) -> Content:
        """Limit mentions in groups to users who have written there."""
        resolved = self.resolve(target)
        return limit_mentions(content, self.known_people.of(resolved.chat_id)) if resolved.is_group else content

    @asynccontextmanager
    async def _take_slot(self, target: ChatTarget, max_wait: float) -> AsyncIterator[None]:
        """Wait until the rate limits allow a message, which is sent inside.

        Records what an error says about the chat, and finds out whether it is about the token.
        """
        if self._token_check.is_refused:
            raise TokenRefused(self._token_check.retry_after)
        chat_id = self.resolve(target).chat_id
        if chat_id in self._unavailable_chats:
            raise bp.Undeliverable(UNAVAILABLE_REASON)
        wait = self.rate_limiter.acquire(chat_id, max_wait)
        if wait > max_wait:
            raise bp.NotSent(f"Telegram's rate limits allow no message for {wait:.0f} s", retry_after=wait)
        if wait:
            await self._time.sleep(wait)
        try:
            with translate_errors():
                yield
        except TokenRefused:
            if await self._token_check.confirm():
                raise TokenRefused(self._token_check.retry_after) from None
            raise bp.NotSent(CALL_REFUSED) from None
        except bp.NotSent as error:
            if error.retry_after is not None:
                self.rate_limiter.block(chat_id, error.retry_after)
            raise
        except ChatUnavailable:
            self._unavailable_chats.add(chat_id)
            raise

    async def _send_part(self, target: ChatTarget, content: Content, reply_to: str) -> str:
        """Send a part to its chat, or where that has moved to; if its topic was deleted or is closed, to the chat.

        A forum shows that as the topic General.
        """
        send = self._send_file if content.attachments else self._send_text
        place = self.resolve(target)
        for _ in range(MAX_TRIES):
            # message ids differ in the supergroup, and a reply stands in the topic of the message that it replies to
            answered_id = reply_to if place == target else ""
            try:
                return await send(place, content, answered_id)
            except ChatMigrated as error:
                self._note_migration(target.chat_id, error.new_chat_id)
                place = ChatTarget(error.new_chat_id)
            except BadRequest as error:
                if not is_topic_unavailable(error):
                    raise
                if place.thread_id is None:
                    problem = "the topic General is closed: open it, or let the bot manage topics"
                    self._problems.report(str(place), problem)
                    raise
                self._problems.report(str(place), f"{error_text(error)}: messages for this topic are sent to General")
                place = ChatTarget(place.chat_id)
        raise bp.NotSent(f"chat {target.chat_id} has moved several times")

    def _note_migration(self, old_chat_id: int, new_chat_id: int) -> None:
        self._migrated_chats[old_chat_id] = new_chat_id
        self._on_migrated(old_chat_id, new_chat_id)

    async def _send_text(self, target: ChatTarget, content: Content, reply_to: str) -> str:
        try:
            return await self._send_message(target, build_text(content), reply_to, content)
        except BadRequest as error:
            if is_too_long(error):
                return await self._send_in_pieces(target, content, reply_to)
            if not is_about_markup(error):
                raise
        return await self._send_message(target, build_plain_text(content), reply_to, content)

    async def _send_in_pieces(self, target: ChatTarget, content: Content, reply_to: str) -> str:
        """Send a text in smaller pieces and return the id of the first."""
        texts = [piece.text for piece in split_text(FormattedText(content.text), MAX_TEXT_LENGTH // 2)]
        message_id = await self._send_message(target, OutgoingText(texts[0]), reply_to)
        try:
            for text in texts[1:]:
                await self._send_message(target, OutgoingText(text), "", content if text is texts[-1] else None)
        except TelegramError as error:
            raise bp.DeliveryUnknown(f"only the beginning was sent: {error_text(error)}") from None
        return message_id

    async def _send_message(
        self, target: ChatTarget, text: OutgoingText, reply_to: str, content: Content | None = None
    ) -> str:
        keyboard = build_keyboard(content.choices) if content is not None else None
        if target.guest_query_id:
            return await self._answer_as_guest(target.guest_query_id, text, keyboard)
        message = await self._client.send_message(
            text=text.text,
            entities=text.entities or None,
            link_preview_options=NO_PREVIEW,
            reply_markup=keyboard,
            **_address(target, reply_to),
        )
        return _check_message_id(message.message_id)

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

    async def _send_file(self, target: ChatTarget, content: Content, reply_to: str) -> str:
        """Send a file with its caption; if Telegram rejects the file, the caption and a notice."""
        for text in (build_text(content), build_plain_text(content)):
            try:
                return await self._upload(target, text, reply_to, content)
            except bp.Undeliverable:
                break
            except BadRequest as error:
                if is_topic_unavailable(error):
                    raise
                if not is_about_markup(error):
                    break
        notice = f"({display_name_of(content.attachments[0])} could not be sent.)"
        fallback = "\n\n".join(filter(None, [build_plain_text(content).text, notice]))
        return await self._send_message(target, OutgoingText(fallback), reply_to, content)

    async def _upload(self, target: ChatTarget, text: OutgoingText, reply_to: str, content: Content) -> str:
        [file] = content.attachments
        if target.guest_query_id:
            raise bp.Undeliverable("as a guest the bot can send no file")
        method = upload_method_of(file)
        message = await getattr(self._client, f"send_{method}")(
            **{method: self._file_source(file)},
            caption=text.text or None,
            caption_entities=text.entities or None,
            reply_markup=build_keyboard(content.choices),
            read_timeout=UPLOAD_TIMEOUT,
            **_address(target, reply_to),
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
        raise bp.Undeliverable(f"{display_name_of(file)} has no content that could be sent")

    async def _edit_or_delete(self, target: ChatTarget, message_id: int, content: Content) -> None:
        """Edit or delete a message; in a group that has become a supergroup neither is possible: its ids differ."""
        if (new_chat_id := self._migrated_chats.get(target.chat_id)) is not None:
            raise self._migrated_edit_error(target.chat_id, new_chat_id, content)
        try:
            if not content.text and not content.attachments:
                await self._client.delete_message(target.chat_id, message_id)
                return
            try:
                await self._replace_content(target, message_id, build_text(content), content)
            except BadRequest as error:
                if not is_about_markup(error):
                    raise
                await self._replace_content(target, message_id, build_plain_text(content), content)
        except ChatMigrated as error:
            raise self._migrated_edit_error(target.chat_id, error.new_chat_id, content) from None
        except BadRequest as error:
            if is_message_gone(error):
                raise bp.MessageGone("the message was deleted from the chat: it is not sent again") from None
            if not is_already_done(error):
                raise

    def _migrated_edit_error(self, old_chat_id: int, new_chat_id: int, content: Content) -> bp.DeliveryError:
        """Report the migration and return the error for the edit; the outbox sends the content again."""
        self._note_migration(old_chat_id, new_chat_id)
        if content.text or content.attachments:
            return bp.NotSent("the group has become a supergroup: the message is sent there")
        return bp.Undeliverable("the message is in the group that has become a supergroup and cannot be deleted")

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


def _address(target: ChatTarget, reply_to: str) -> dict[str, Any]:
    """Return the arguments that say where a message goes; it is sent even if the one it replies to was deleted."""
    is_reply = reply_to.isdecimal()
    return {
        "chat_id": target.chat_id,
        "message_thread_id": target.thread_id,
        "direct_messages_topic_id": target.direct_topic_id,
        "reply_parameters": ReplyParameters(int(reply_to), allow_sending_without_reply=True) if is_reply else None,
    }


def _is_file_id(text: str) -> bool:
    """Return whether it is a file id; python-telegram-bot would open a local file of that name."""
    return FILE_ID_PATTERN.fullmatch(text) is not None and not Path(text).exists()


def _check_message_id(message_id: object) -> str:
    """Return the id of a sent message as text. Raises DeliveryUnknown if it is none."""
    if not isinstance(message_id, int) or message_id <= 0:
        raise bp.DeliveryUnknown("Telegram did not return the id of the message")
    return str(message_id)
