"""A reply that is seen while it is written: at its platform's pace, never in the way of the final text."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from bot.adapter.adapter import Adapter
from bot.concurrency.clock import Clock, Sleep
from bot.concurrency.crash_points import crash_point
from bot.domain.content import Content
from bot.domain.ledger import Delivery, DeliveryState
from bot.outbound.delivery_attempt import DeliveryAttempt, attempt_delivery, retry_delay

logger = logging.getLogger(__name__)
ReadText = Callable[[], str]
PREVIEW_TIMEOUT = 5.0
UPDATE_GRACE_SECONDS, CANCEL_GRACE_SECONDS = 1.0, 1.0


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What a draft works with: `fit` makes of a text what may be seen, `may_leave` tells whether now.

    `begin` is told before every look.
    """

    filter_text: Callable[[Adapter, str], Content]
    can_send: Callable[[Delivery], bool]
    on_update: Callable[["Draft"], None]
    save: Callable[[Delivery], Awaitable[None]]
    sleep: Sleep
    clock: Clock


def is_ambiguous(part: Delivery) -> bool:
    """Tell of a draft whether nobody knows if the platform has it."""
    return part.state is DeliveryState.ATTEMPTING and not part.external_id


class Draft(ABC):
    """Shows what is written of one reply so far, at most once in `every` seconds.

    Nothing is shown in the first of them: a reply that is whole by then leaves as any other. A look at it
    is a courtesy: where it fails, the final text follows all the same.
    """

    def __init__(self, part: Delivery, adapter: Adapter, interval: float, context: DraftContext) -> None:
        self.part = part
        self.adapter = adapter
        self._interval = interval
        self._context = context
        self._read_text: ReadText = str
        self._can_show: Callable[[], bool] = lambda: True
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_updating = False
        self._is_stopped = False

    def follow(self, read_text: ReadText, can_show: Callable[[], bool]) -> None:
        """Show from now on what `read` gives, as long as that `may_show`."""
        self._read_text, self._can_show, self._is_stopped = read_text, can_show, False
        if not self._is_updating:
            self._task = None

    def notify(self) -> None:
        """Say that there is more to be read."""
        self._changed.set()
        if self._task is None and not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Begin on no further look."""
        self._is_stopped = True
        if self._task is not None and not self._is_updating:
            self._task.cancel()

    async def wait_stopped(self) -> None:
        """Wait for a look that is on its way right now, but not for long: the final text stands behind it."""
        self.stop()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=UPDATE_GRACE_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CANCEL_GRACE_SECONDS)

    @abstractmethod
    async def _update(self, content: Content) -> float:
        """Show something; gives back for how many seconds the platform wants to be left alone then."""

    async def _run(self) -> None:
        delay, last_text = self._interval, ""
        try:
            while not self._is_stopped:
                await self._changed.wait()
                self._changed.clear()
                await self._context.sleep(delay)
                delay = self._interval
                content = self._context.filter_text(self.adapter, self._read_text())
                if (
                    content.text in ("", last_text)
                    or not self._context.can_send(self.part)
                    or not self._can_show()
                ):
                    continue
                self._is_updating = True
                self._context.on_update(self)
                delay, last_text = max(delay, await self._update(content)), content.text
                self._is_updating = False
        except Exception:  # of the platform, or of the store: the final text tells more
            logger.warning(
                "a reply for %s is shown no further until it is whole", self.part.target, exc_info=True
            )
        finally:
            self._is_updating = False


class PreviewDraft(Draft):
    """A draft on a platform that forgets it by itself."""

    async def _update(self, content: Content) -> float:
        async with asyncio.timeout(PREVIEW_TIMEOUT):
            await self.adapter.preview(replace(self.part, content=content))
        return 0.0

    async def clear(self) -> None:
        """Have nothing seen of it any more."""
        await self.wait_stopped()
        try:
            await self._update(Content())
        except Exception:
            logger.debug("a preview could not be cleared", exc_info=True)


class PostedDraft(Draft):
    """A draft that is a message of the platform, edited as the reply grows, and in the end into it.

    It has a row among the deliveries from before it leaves, open until the reply has taken its place: so
    that after a crash the same message is edited to its end.
    """

    async def _update(self, content: Content) -> float:
        if self.part.external_id:
            edit = replace(self.part, content=content, replaces_external_id=self.part.external_id)
            attempt = await attempt_delivery(self.adapter, edit, False)
        else:
            attempt = await self._post(content)
        crash_point("stream.mid")
        is_refused = attempt.state in (DeliveryState.FAILED, DeliveryState.CANCELLED)
        self._is_stopped = self._is_stopped or is_ambiguous(self.part) or is_refused
        return retry_delay(1, attempt.retry_after) if attempt.state is DeliveryState.PENDING else 0.0

    async def _post(self, content: Content) -> DeliveryAttempt:
        """Post it; where an earlier process may have done so, find that out instead."""
        was_ambiguous = is_ambiguous(self.part)
        part = replace(
            self.part,
            content=self.part.content if was_ambiguous else content,
            state=DeliveryState.ATTEMPTING,
            attempts=self.part.attempts + 1,
            first_attempt_at=self.part.first_attempt_at or self._context.clock(),
        )
        await self._context.save(part)
        self.part = part
        attempt = await attempt_delivery(self.adapter, part, was_ambiguous)
        if attempt.state is DeliveryState.SENT:
            self.part = replace(part, external_id=attempt.external_id)
        elif attempt.state is DeliveryState.FAILED or not (
            was_ambiguous or attempt.state is DeliveryState.UNKNOWN
        ):
            state = (
                DeliveryState.PENDING if attempt.state is DeliveryState.PENDING else DeliveryState.CANCELLED
            )
            self.part = replace(part, state=state, cause=attempt.cause)
        await self._context.save(self.part)
        return attempt
