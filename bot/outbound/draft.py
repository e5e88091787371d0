"""A reply that is seen while it is written: at its platform's pace, never in the way of the final text."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from bot.adapter.adapter import Adapter
from bot.concurrency.clock import Clock
from bot.concurrency.crash_points import reached
from bot.domain.content import Content
from bot.domain.ledger import Delivery, DeliveryState
from bot.outbound.delivery_attempt import Attempt, attempt, pause_after
from bot.outbound.message_parts import in_place_of

logger = logging.getLogger(__name__)
Read = Callable[[], str]
Sleep = Callable[[float], Awaitable[None]]
PREVIEW_DEADLINE = 5.0
GRACE, LET_GO = 1.0, 1.0


@dataclass(frozen=True, slots=True)
class Desk:
    """What a draft works with: `fit` makes of a text what may be seen, `may_leave` tells whether now.

    `begin` is told before every look.
    """

    fit: Callable[[Adapter, str, str], Content]
    may_leave: Callable[[Delivery], bool]
    begin: Callable[["Draft"], None]
    save: Callable[[Delivery], Awaitable[None]]
    sleep: Sleep
    clock: Clock


def is_unclear(part: Delivery) -> bool:
    """Tell of a draft whether nobody knows if the platform has it."""
    return part.state is DeliveryState.ATTEMPTING and not part.external_id


class Draft(ABC):
    """Shows what is written of one reply so far, at most once in `every` seconds.

    Nothing is shown in the first of them: a reply that is whole by then leaves as any other. A look at it
    is a courtesy: where it fails, the final text follows all the same.
    """

    def __init__(self, part: Delivery, adapter: Adapter, every: float, desk: Desk) -> None:
        self.part = part
        self.adapter = adapter
        self._every = every
        self._desk = desk
        self._read: Read = str
        self._may_show: Callable[[], bool] = lambda: True
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_looking = False
        self._is_over = False

    def follow(self, read: Read, may_show: Callable[[], bool]) -> None:
        """Show from now on what `read` gives, as long as that `may_show`."""
        self._read, self._may_show, self._is_over = read, may_show, False
        if not self._is_looking:
            self._task = None

    def stir(self) -> None:
        """Say that there is more to be read."""
        self._news.set()
        if self._task is None and not self._is_over:
            self._task = asyncio.get_running_loop().create_task(self._show())

    def rest(self) -> None:
        """Begin on no further look."""
        self._is_over = True
        if self._task is not None and not self._is_looking:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait for a look that is on its way right now, but not for long: the final text stands behind it."""
        self.rest()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=GRACE)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=LET_GO)

    @abstractmethod
    async def _look(self, content: Content) -> float:
        """Show something; gives back for how many seconds the platform wants to be left alone then."""

    async def _show(self) -> None:
        pause, seen = self._every, ""
        try:
            while not self._is_over:
                await self._news.wait()
                self._news.clear()
                await self._desk.sleep(pause)
                pause = self._every
                content = self._desk.fit(self.adapter, self._read(), self.part.id)
                if content.text in ("", seen) or not self._desk.may_leave(self.part) or not self._may_show():
                    continue
                self._is_looking = True
                self._desk.begin(self)
                pause, seen = max(pause, await self._look(content)), content.text
                self._is_looking = False
        except Exception:  # of the platform, or of the store: the final text tells more
            logger.warning(
                "a reply for %s is shown no further until it is whole", self.part.target, exc_info=True
            )
        finally:
            self._is_looking = False


class Preview(Draft):
    """A draft on a platform that forgets it by itself."""

    async def _look(self, content: Content) -> float:
        async with asyncio.timeout(PREVIEW_DEADLINE):
            await self.adapter.preview(replace(self.part, content=content))
        return 0.0

    async def clear(self) -> None:
        """Have nothing seen of it any more."""
        await self.ended()
        try:
            await self._look(Content())
        except Exception:
            logger.debug("a preview could not be cleared", exc_info=True)


class PostedDraft(Draft):
    """A draft that is a message of the platform, edited as the reply grows, and in the end into it.

    It has a row among the deliveries from before it leaves, open until the reply has taken its place: so
    that after a crash the same message is edited to its end.
    """

    async def _look(self, content: Content) -> float:
        if self.part.external_id:
            edit = replace(self.part, content=in_place_of(self.part.external_id, content))
            found = await attempt(self.adapter, edit, False)
        else:
            found = await self._post(content)
        reached("stream.mid")
        is_refused = found.state in (DeliveryState.FAILED, DeliveryState.CANCELLED)
        self._is_over = self._is_over or is_unclear(self.part) or is_refused
        return pause_after(1, found.retry_after) if found.state is DeliveryState.PENDING else 0.0

    async def _post(self, content: Content) -> Attempt:
        """Post it; where an earlier process may have done so, find that out instead."""
        was_unclear = is_unclear(self.part)
        part = replace(
            self.part,
            content=self.part.content if was_unclear else content,
            state=DeliveryState.ATTEMPTING,
            attempts=self.part.attempts + 1,
            first_attempt_at=self.part.first_attempt_at or self._desk.clock(),
        )
        await self._desk.save(part)
        self.part = part
        found = await attempt(self.adapter, part, was_unclear)
        if found.state is DeliveryState.SENT:
            self.part = replace(part, external_id=found.external_id)
        elif found.state is DeliveryState.FAILED or not (was_unclear or found.state is DeliveryState.UNKNOWN):
            state = DeliveryState.PENDING if found.state is DeliveryState.PENDING else DeliveryState.CANCELLED
            self.part = replace(part, state=state, cause=found.cause)
        await self._desk.save(self.part)
        return found
