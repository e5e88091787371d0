"""Asking for updates: how far they are read is kept with them, in one transaction."""

import logging
import random
from collections.abc import Sequence
from datetime import datetime, timedelta

from telegram.error import Conflict, InvalidToken, TelegramError

from adapters.telegram.client import MOST_UPDATES, Account, TooMany
from adapters.telegram.config import Limits, Moments
from adapters.telegram.entities import PLATFORM
from adapters.telegram.errors import cause_of_gap, said
from adapters.telegram.receiving import Intake, Known, number_of
from bot import BotError
from bot.platform import Cause, Cursor, Door, IntakeClosed, Link

logger = logging.getLogger(__name__)
OFFSET, CALLED = "offset", "called"
NOTED_EVERY = timedelta(minutes=10)


class Poller:
    """Asks one bot's updates of Telegram, for ever; whatever goes wrong is waited out."""

    def __init__(
        self,
        account: Account,
        door: Door,
        intake: Intake,
        limits: Limits,
        moments: Moments,
        link: Link,
    ) -> None:
        self._link = link
        self._account, self._inbox, self._intake = account, door.inbox, intake
        self._limits, self._moments = limits, moments
        self._offset: int | None = None
        self._moved_at: datetime | None = None  # when the last update was kept
        self._called_at: datetime | None = None  # when Telegram answered last, as it is kept
        self._taken: set[int] = set()  # beyond the offset, which an album holds back
        self._waited_for: set[str] = set()  # albums that have had their time
        self._failures = 0
        self._has_asked = False
        self._is_behind = True  # what comes may have waited while we were away

    async def run(self) -> None:
        """Ask until the inbox closes; raises InvalidToken where Telegram refuses the token."""
        is_restored = False
        while True:
            try:
                if not is_restored:
                    await self._restore()
                    is_restored = True
                await self._round()
                self._failures = 0
                self._link.stands()
            except IntakeClosed:
                return
            except InvalidToken:
                raise
            except Conflict as error:
                await self._conflict(error)
            except TooMany as error:
                self._link.fails(cause_of_gap(error), said(error))
                self._is_behind = True
                await self._moments.pause(error.seconds)
            except TelegramError as error:
                self._link.fails(cause_of_gap(error), said(error))
                await self._failed()
            except BotError as error:  # nothing can be kept: that is told where it is found
                logger.info("updates of bot %s wait: %s", self._account.number, error)
                await self._failed()
            except Exception as error:  # our own fault: the next round must come all the same
                logger.exception("updates of bot %s could not be taken in", self._account.number)
                self._link.fails(Cause.FAULT, type(error).__name__)
                await self._failed()

    async def _round(self) -> None:
        is_pressing = self._taken or self._waited_for or not self._has_asked
        wait = 0 if is_pressing else self._limits.poll_seconds
        asked_at = self._moments.steady()
        raw = await self._account.updates(self._offset_to_ask(), wait, self._limits.grace_seconds)
        if wait and not raw and self._moments.steady() - asked_at < 1:
            await self._moments.pause(self._limits.hasty_seconds)
        self._has_asked = True
        numbers = [number for one in raw if (number := number_of(one)) is not None]
        if raw and not numbers:
            raise TelegramError("the updates have no numbers")  # to ask again at once would give the same
        fresh = [one for one in raw if number_of(one) not in self._taken]
        batch = await self._intake.read(fresh, may_be_old=self._is_behind)
        held = self._held_back(batch)
        ready = [one for one in batch if one.number not in held]
        end = min(held, default=max(numbers, default=(self._offset or 1) - 1) + 1)
        await self._note_call()
        if numbers:
            await self._intake.take(ready, Cursor(PLATFORM, self._account.number, OFFSET, self._written(end)))
            self._offset, self._moved_at = end, self._moments.wall()
        self._taken = {one for one in (*self._taken, *numbers) if one >= end and one not in held}
        self._waited_for = {album for one in batch if one.number in held for album in one.albums}
        self._is_behind = (bool(held) and self._is_behind) or len(raw) >= MOST_UPDATES
        if held:
            await self._moments.pause(self._limits.album_seconds)

    def _held_back(self, batch: Sequence[Known]) -> set[int]:
        """Name the updates that wait for the rest of an album, and what follows it in the same chat.

        The offset stays before them, so that they come once more, with all that has come meanwhile.
        """
        waiting, held = set[int | None](), set[int]()
        for one in batch:
            if one.chat in waiting or any(album not in self._waited_for for album in one.albums):
                waiting.add(one.chat)
                held.add(one.number)
        return held

    async def _restore(self) -> None:
        """Find out how far we were, and whether we were away for longer than Telegram keeps updates."""
        account = self._account.number
        value = await self._inbox.cursor(PLATFORM, account, OFFSET) or ""
        number, _, moment = value.partition(" ")
        if number.lstrip("-").isdecimal():
            self._offset = int(number)
            self._moved_at = _moment(moment)
        self._called_at = _moment(await self._inbox.cursor(PLATFORM, account, CALLED) or "")
        self._warn_if_lossy()

    def _warn_if_lossy(self) -> None:
        now, last = self._moments.wall(), self._called_at
        if last is not None and now - last > timedelta(hours=self._limits.lossy_hours):
            logger.warning(
                "Telegram was not asked for updates from %s to %s, and it keeps them for 24 hours: "
                "messages of that time may be lost",
                last.isoformat(timespec="minutes"),
                now.isoformat(timespec="minutes"),
            )

    def _offset_to_ask(self) -> int | None:
        """Forget the offset after six quiet days: after a week Telegram counts anew, maybe below it."""
        at = self._moved_at
        if at is not None and self._moments.wall() - at > timedelta(days=self._limits.stale_days):
            return None
        return self._offset

    async def _note_call(self) -> None:
        """Keep now and then when Telegram answered last."""
        now = self._moments.wall()
        if self._failures:
            self._warn_if_lossy()
        if self._called_at is None or now - self._called_at > NOTED_EVERY:
            self._called_at = now
            await self._inbox.put_all([], Cursor(PLATFORM, self._account.number, CALLED, now.isoformat()))

    async def _conflict(self, error: Conflict) -> None:
        if "webhook" in error.message.lower():
            logger.warning("bot %s had a webhook; it is removed", self._account.number)
            try:
                await self._account.delete_webhook(drop_pending_updates=False)
            except TelegramError as failure:
                logger.warning("the webhook stays: %s", said(failure))
            await self._moments.pause(self._limits.hasty_seconds)
            return
        self._link.fails(
            Cause.CONTESTED,
            f"another program asks for the updates of bot {self._account.number} ({said(error)}): end "
            "that one, or give this one a token of its own",
        )
        self._is_behind = True
        await self._moments.pause(self._limits.conflict_seconds)

    async def _failed(self) -> None:
        self._failures += 1
        self._is_behind = True
        longest = min(2.0 ** min(self._failures - 1, 10), self._limits.longest_pause)
        await self._moments.pause(longest * random.uniform(0.5, 1.0))

    def _written(self, offset: int) -> str:
        return f"{offset} {self._moments.wall().isoformat()}"


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
