"""Sending within Telegram's rate limits, and the typing indicator."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from telegram.error import TelegramError

from adapters.telegram.client import BotClient, label_crash_points
from adapters.telegram.config import Limits, QuotePolicy, UnclearPolicy
from adapters.telegram.entities import ChatTarget
from adapters.telegram.errors import ChatUnavailable, TokenRefused
from adapters.telegram.outgoing import is_part, limit_mentions, split_reply
from adapters.telegram.rate_limits import RateLimiter
from adapters.telegram.send_methods import SendMethods
from bot import Content
from bot.platform import (
    RESPONSE_SOURCE,
    Delivery,
    DeliveryHeld,
    DeliveryUnknown,
    KnownPeople,
    NotSent,
    TaskSet,
    TimeSource,
    TokenCheck,
    Undeliverable,
)

HOLD_REASON = "Telegram cannot be asked whether it arrived, and TELEGRAM_UNCLEAR is hold"
UNAVAILABLE_REASON = "the bot is blocked there, or was removed; it is tried again when a user writes"
CALL_REFUSED = "Telegram refused this call with 401 and accepts the token: it is tried again"
COMMAND_CRASH_POINT = "errand"  # label of the crash points of responses to commands
MAX_TRIES = 3
SHORT_WAIT = 1.0
TYPING_TIMEOUT = 4.0
TYPING_DELAY = 0.5  # what is answered within it needs no indicator, which costs a request


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


class TypingIndicator:
    """Shows "is typing…" for one bot, except where messages need the capacity."""

    def __init__(self, client: BotClient, rate_limiter: RateLimiter, time_source: TimeSource, interval: float) -> None:
        self._client, self._rate_limiter = client, rate_limiter
        self._time, self._interval = time_source, interval
        self._tasks: dict[ChatTarget, asyncio.Task[None]] = {}
        self._requests = TaskSet("a typing request")

    def show(self, target: ChatTarget) -> None:
        """Start showing the indicator in a chat."""
        if target not in self._tasks:
            self._tasks[target] = asyncio.get_running_loop().create_task(self._repeat(target))

    def hide(self, target: ChatTarget) -> None:
        """Stop showing it in a chat; a request that is under way may end, which keeps its connection."""
        task = self._tasks.pop(target, None)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        """Stop all indicators."""
        for target in list(self._tasks):
            self.hide(target)
        await self._requests.cancel()

    async def _repeat(self, target: ChatTarget) -> None:
        """Show it after a while and then again and again."""
        await self._time.sleep(TYPING_DELAY)
        while not self._rate_limiter.try_acquire(target.chat_id) or await self._send(target):
            await self._time.sleep(self._interval)

    async def _send(self, target: ChatTarget) -> bool:
        """Send one request; return whether it succeeded, else the next turn tries again."""
        return await asyncio.shield(self._requests.start(self._request(target)))

    async def _request(self, target: ChatTarget) -> bool:
        try:
            await self._client.send_chat_action(
                target.chat_id, "typing", message_thread_id=target.thread_id, read_timeout=TYPING_TIMEOUT
            )
        except TelegramError:
            return False
        return True
