"""Deliver, edit, reconcile within limits; typing."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from telegram.error import TelegramError

from adapters.telegram.client import Account, watched_as
from adapters.telegram.config import Limits, Moments, Unsure
from adapters.telegram.entities import Target
from adapters.telegram.errors import Gone, Refused
from adapters.telegram.outgoing import Company, is_part, parts
from adapters.telegram.rate_limits import Floods
from adapters.telegram.send_methods import Sender
from bot import Content
from bot.platform import Delivery, NotSent, Unclear, Undeliverable

HELD = "Telegram has no way to ask whether it arrived, and TELEGRAM_UNCLEAR is hold"
GONE = "the bot is blocked there, or was put out; it is tried again when somebody writes"
TRIES = 3
RECONCILE_SECONDS = 50.0  # the outbox waits for sixty
SHORT = 1.0


class Mouth:
    """Says things for one bot; raises as `Adapter.deliver` does."""

    def __init__(
        self, sender: Sender, floods: Floods, limits: Limits, moments: Moments, unsure: Unsure
    ) -> None:
        self._sender, self._floods = sender, floods
        self._limits, self._moments, self._unsure = limits, moments, unsure
        self.company = Company()
        self._gone: set[int] = set()  # chats that will not have us
        self._is_refused = False

    def hears_from(self, chat: int, username: str) -> None:
        """Somebody has written: they will have us again, and may be called by their @name, if any."""
        self._gone.discard(chat)
        if username:
            self.company.heard(chat, username)

    def refuse(self) -> None:
        """Telegram refuses the token: nothing is tried any more."""
        self._is_refused = True

    async def deliver(self, delivery: Delivery) -> str:
        """Say a part, as soon as it may be said."""
        with watched_as("send"):
            return await self._say(Target.read(delivery.target), delivery.content, delivery.reply_to)

    async def edit(self, delivery: Delivery) -> str:
        """Change what was said."""
        target = Target.read(delivery.target)
        if not delivery.edits.isdecimal():
            raise Undeliverable(f"there is no message {delivery.edits!r} on Telegram")
        await self._wait_turn(target, SHORT)
        with self._noting(target), watched_as("edit"):
            content = self._considerate(target, delivery.content)
            return await self._sender.edit(target, int(delivery.edits), content)

    async def reconcile(self, delivery: Delivery) -> str:
        """Say it once more, with a mark, as soon as Telegram can be reached; or hold it.

        It is never `NotSent`: what is tried again after that would not be marked.
        """
        if self._unsure is Unsure.HOLD:
            raise Unclear(HELD)
        end = self._moments.steady() + RECONCILE_SECONDS
        pause = SHORT
        while True:
            try:
                with watched_as("send"):
                    target = Target.read(delivery.target)
                    return await self._say(target, delivery.content, delivery.reply_to, again=True)
            except NotSent as error:
                pause = max(error.retry_after or 0.0, pause)
                if self._moments.steady() + pause > end:
                    raise Unclear(f"it may have been sent, and cannot be sent again now: {error}") from None
                await self._moments.pause(pause)
                pause = min(pause * 2, self._limits.longest_pause)

    async def say_soon(self, target: Target, content: Content, reply_to: str) -> None:
        """Say what no book has; it is tried three times."""
        for tries in range(1, TRIES + 1):
            try:
                await self._say(target, content, reply_to)
                return
            except NotSent as error:
                wait = error.retry_after if error.retry_after is not None else SHORT
                if tries == TRIES or wait > self._limits.longest_pause:
                    raise
                await self._moments.pause(wait)

    async def _say(self, target: Target, content: Content, reply_to: str, *, again: bool = False) -> str:
        """Say one part; what was kept while nobody could cut it is cut now, and goes by its first name."""
        names: list[str] = []
        for part in [content] if is_part(content) else parts(content):
            try:
                await self._wait_turn(target, self._limits.longest_turn)
                with self._noting(target):
                    shown = self._considerate(target, part)
                    name = await self._sender.send(target, shown, "" if names else reply_to, again=again)
            except (NotSent, Undeliverable) as error:
                if names:  # to send it all again would say the beginning twice
                    raise Unclear(f"only its beginning was sent: {error}") from None
                raise
            names.append(name)
        return names[0]

    def _considerate(self, target: Target, content: Content) -> Content:
        """Have nobody called who has not been heard there; in private there is nobody else to call."""
        place = self._sender.place(target)
        return self.company.among(place.chat, content) if place.is_group else content

    async def _wait_turn(self, target: Target, most: float) -> None:
        if self._is_refused:
            raise Refused
        chat = self._sender.place(target).chat
        if chat in self._gone:
            raise Undeliverable(GONE)
        wait = self._floods.reserve(chat, most)
        if wait > most:
            raise NotSent(f"Telegram's limits leave no room for {wait:.0f} s", retry_after=wait)
        if wait:
            await self._moments.pause(wait)

    @contextmanager
    def _noting(self, target: Target) -> Iterator[None]:
        """Remember what a refusal says about the chat."""
        chat = self._sender.place(target).chat
        try:
            yield
        except Refused:
            self._is_refused = True
            raise
        except NotSent as error:
            if error.retry_after is not None:
                self._floods.shut(chat, error.retry_after)
            raise
        except Gone:
            self._gone.add(chat)
            raise


DEADLINE = 4.0


class TypingSigns:
    """Shows them for one bot, and leaves them out where messages need the room."""

    def __init__(self, account: Account, floods: Floods, moments: Moments, seconds: float) -> None:
        self._account, self._floods = account, floods
        self._moments, self._seconds = moments, seconds
        self._shown: dict[Target, asyncio.Task[None]] = {}

    def show(self, target: Target) -> None:
        """Begin to show that the bot is writing."""
        if target not in self._shown:
            self._shown[target] = asyncio.get_running_loop().create_task(self._renew(target))

    async def hide(self, target: Target) -> None:
        """Show it no more."""
        task = self._shown.pop(target, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def stop(self) -> None:
        """Show none any more."""
        for target in list(self._shown):
            await self.hide(target)

    async def _renew(self, target: Target) -> None:
        while True:
            if self._floods.spare(target.chat):
                try:
                    await self._account.send_chat_action(
                        target.chat, "typing", message_thread_id=target.thread, read_timeout=DEADLINE
                    )
                except TelegramError:
                    return  # a courtesy: the next answer tries again
            await self._moments.pause(self._seconds)
