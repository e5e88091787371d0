"""One reply shown while it is streamed, at its platform's pace, without delaying the final text."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cached_property
from uuid import UUID

from bot.adapter.adapter import Adapter
from bot.concurrency.clock import Clock, Sleep
from bot.concurrency.crash_points import crash_point
from bot.domain.content import Content
from bot.domain.ledger import Delivery, DeliveryState
from bot.outbound.delivery_attempt import DeliveryAttempt, attempt_delivery, retry_delay

logger = logging.getLogger(__name__)
ReadText = Callable[[], str]
PREVIEW_TIMEOUT = 5.0
AMBIGUOUS_STATES = (DeliveryState.ATTEMPTING, DeliveryState.UNKNOWN)
UPDATE_GRACE_SECONDS, CANCEL_GRACE_SECONDS = 1.0, 1.0


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What a draft works with: `filter_text` returns what may be shown, `can_send` whether it may be now.

    `on_update` is called before every update.
    """

    filter_text: Callable[[Adapter, str, UUID], Content]
    can_send: Callable[[Delivery], bool]
    on_update: Callable[["Draft"], None]
    save: Callable[[Delivery], Awaitable[None]]
    sleep: Sleep
    clock: Clock


def is_ambiguous(part: Delivery) -> bool:
    """Return whether it is unknown if the platform has a draft."""
    return part.state is DeliveryState.ATTEMPTING and not part.external_id


class Draft(ABC):
    """Shows the text of one reply so far, at most once in `interval` seconds.

    Nothing is shown in the first interval: a reply that is complete by then is sent as any other, and `build_part`
    is not called. Where an update fails, the final text follows all the same.
    """

    def __init__(
        self, build_part: Callable[[], Delivery], adapter: Adapter, interval: float, context: DraftContext
    ) -> None:
        self._build_part = build_part
        self.adapter = adapter
        self._interval = interval
        self._context = context
        self._read_text: ReadText = str
        self._can_show: Callable[[], bool] = lambda: True
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_updating = False
        self._is_stopped = False
        self.shown_text = ""

    @cached_property
    def part(self) -> Delivery:
        """The part of the reply that is shown."""
        return self._build_part()

    def follow(self, read_text: ReadText, can_show: Callable[[], bool]) -> None:
        """Show what `read_text` returns from now on, as long as `can_show` allows it."""
        self._read_text, self._can_show, self._is_stopped = read_text, can_show, False
        if not self._is_updating:
            self._task = None

    def notify(self) -> None:
        """Report that there is more text."""
        self._changed.set()
        if self._task is None and not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Start no further update."""
        self._is_stopped = True
        if self._task is not None and not self._is_updating:
            self._task.cancel()

    async def wait_stopped(self) -> None:
        """Wait shortly for an update that is running: the final text waits for it."""
        self.stop()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=UPDATE_GRACE_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CANCEL_GRACE_SECONDS)

    @abstractmethod
    async def _update(self, content: Content) -> float:
        """Show some text; return the seconds that the platform asks to wait then."""

    async def _run(self) -> None:
        delay, last_text = self._interval, ""
        try:
            while not self._is_stopped:
                await self._changed.wait()
                self._changed.clear()
                await self._context.sleep(delay)
                delay = self._interval
                content = self._context.filter_text(self.adapter, self._read_text(), self.part.room_id)
                if content.text in ("", last_text) or not self._context.can_send(self.part) or not self._can_show():
                    continue
                self._is_updating = True
                self._context.on_update(self)
                self.shown_text = content.text
                delay, last_text = max(delay, await self._update(content)), content.text
                self._is_updating = False
        except Exception:  # of the platform, or of the store: the final text tells more
            logger.warning("a reply for %s is shown no further until it is whole", self.part.target, exc_info=True)
        finally:
            self._is_updating = False


class PreviewDraft(Draft):
    """A draft on a platform that drops it by itself."""

    async def _update(self, content: Content) -> float:
        async with asyncio.timeout(PREVIEW_TIMEOUT):
            await self.adapter.preview(replace(self.part, content=content))
        return 0.0

    async def clear(self) -> None:
        """Show nothing of it any more."""
        await self.wait_stopped()
        try:
            await self._update(Content())
        except Exception:  # of the platform: the reply has been sent, and previews expire
            logger.debug("a preview could not be cleared", exc_info=True)


class PostedDraft(Draft):
    """A draft that is a message of the platform, edited as the reply grows and finally into the reply.

    It is stored as a delivery before it is sent, and stays open until the reply has replaced it, so that
    after a crash the same message is edited to its end.
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
        """Post the draft; where an earlier process may have done so, reconcile instead."""
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
        elif attempt.state is DeliveryState.FAILED or not (was_ambiguous or attempt.state in AMBIGUOUS_STATES):
            state = DeliveryState.PENDING if attempt.state is DeliveryState.PENDING else DeliveryState.CANCELLED
            self.part = replace(part, state=state, cause=attempt.cause)
        await self._context.save(self.part)
        return attempt
