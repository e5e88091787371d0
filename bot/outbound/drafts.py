"""`Drafts`: all drafts of an outbox, and the replies that replace them.

One reply shown while it is streamed, at its platform's pace, without delaying the final text.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property, partial
from uuid import UUID

from bot.adapter.adapter import Adapter
from bot.concurrency.clock import Clock, Sleep
from bot.concurrency.tasks import crash_point
from bot.domain.content import Content
from bot.domain.ids import delivery_id
from bot.domain.ledger import Delivery, DeliveryState
from bot.errors import StoreUnavailable
from bot.outbound.sender import (
    OPEN_STATES,
    DeliveryAttempt,
    OutgoingReply,
    attempt_delivery,
    retry_delay,
    split_reply,
    without_references,
)
from bot.store.ledger import Ledger

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
            self._task = None  # it would keep the draft, and that the turn, until garbage is collected

    async def wait_stopped(self) -> None:
        """Wait shortly for an update that is running: the final text waits for it."""
        task = self._task
        self.stop()
        if task is None:
            return
        await asyncio.wait({task}, timeout=UPDATE_GRACE_SECONDS)
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_GRACE_SECONDS)

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


DRAFT_REPLY_INDEX = -1  # no reply of a turn has this number
MAX_DRAFT_AGE = timedelta(minutes=15)
MAX_OPEN_RECEIPTS = 1000


def is_draft(part: Delivery) -> bool:
    """Return whether a part is a draft and not part of a reply."""
    return part.draft_id == part.id


class Drafts:
    """The drafts of one outbox by turn, until the turn's first reply replaces them.

    `filter_text` returns what of an unfinished text may be shown in a room.

    A draft without a reply is removed. One whose delivery is unknown is reconciled first, as any other part.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        filter_text: Callable[[str, UUID], str],
        can_send: Callable[[Delivery], bool],
        clock: Clock,
        sleep: Sleep,
    ) -> None:
        self._ledger = ledger
        self._filter_partial = filter_text
        self._clock = clock
        self._context = DraftContext(self._filter_text, can_send, self._register, ledger.save_delivery, sleep, clock)
        self.by_turn: dict[UUID, Draft | Delivery] = {}  # a part is what an earlier process has left
        self._ambiguous: set[str] = set()  # on their way like other parts, before what takes their place
        self._external_ids: dict[str, str] = {}  # what the platform calls those of them that have arrived
        self._closing: dict[str, Delivery] = {}  # by what takes their place: how they end when that is done

    def has_draft(self, turn_id: UUID) -> bool:
        """Return whether something of a turn's reply is shown already, or may be."""
        return turn_id in self.by_turn

    def is_showing(self, room_id: UUID) -> bool:
        """Return whether an unfinished reply is shown in a room."""
        return any(draft.part.room_id == room_id for draft in self._live_drafts())

    def shown_text(self, turn_id: UUID) -> str:
        """Return what is shown of a turn's unfinished reply; empty where nothing is."""
        draft = self.by_turn.get(turn_id)
        return draft.shown_text if isinstance(draft, Draft) else ""

    def open_draft(
        self, turn_id: UUID, build_reply: Callable[[], OutgoingReply], adapter: Adapter, interval: float
    ) -> Draft:
        """Return the draft of a turn's next reply: the one that is shown already, or a new one."""
        existing = self.by_turn.get(turn_id)
        if isinstance(existing, Draft):
            return existing
        is_preview = type(adapter).preview is not Adapter.preview
        if is_preview or existing is None:
            draft_class = PreviewDraft if is_preview else PostedDraft
            build_part = partial(self._build_draft_part, turn_id, build_reply)
            return draft_class(build_part, adapter, interval, self._context)
        draft = self.by_turn[turn_id] = PostedDraft(lambda: existing, adapter, interval, self._context)
        return draft

    async def replace_drafts(self, parts: Sequence[Delivery], closed_turns: Collection[UUID]) -> list[Delivery]:
        """Return these parts, the first of each turn as the replacement of the turn's draft.

        The draft of a turn in `closed_turns` without a reply is removed: that is one part more.
        """
        result = list(parts)
        for turn_id in {*(part.turn_id for part in parts), *closed_turns}:
            if self.has_draft(turn_id):
                own = (
                    number for number, part in enumerate(result) if part.turn_id == turn_id and not part.kind.is_gesture
                )
                position = next(own, None)
                replacement = None if position is None else result[position]
                replacement = await self._replace_draft(turn_id, replacement)
                if position is not None and replacement is not None:
                    result[position] = replacement
                elif replacement is not None:
                    result.append(replacement)
        return result

    def note_committed(self, parts: Sequence[Delivery]) -> list[Delivery]:
        """Record what replaces drafts; return drafts that must be sent before it."""
        earlier = []
        for part in parts:
            draft = self._find_part(part.turn_id)
            if draft is None or draft.id != part.draft_id:
                continue
            self._remove(part.turn_id)
            if is_ambiguous(draft):
                self._ambiguous.add(draft.id)
                earlier.append(draft)
            else:
                self._closing[part.id] = _close_draft(draft)
        return earlier

    def with_external_id(self, part: Delivery) -> Delivery:
        """Return a part as the replacement of a draft that is known only now to have arrived."""
        external_id = self._external_ids.get(part.draft_id)
        return part if external_id is None else replace(part, replaces_external_id=external_id)

    def note_finished(self, part: Delivery) -> bool:
        """Record a draft that was sent as other parts are; return False for any other part."""
        if part.id not in self._ambiguous:
            return False
        self._ambiguous.discard(part.id)
        if part.state is DeliveryState.SENT:
            self._external_ids[part.id] = part.external_id
        return True

    async def close_replaced(self, replacement: Delivery) -> None:
        """Close a draft after its replacement was sent."""
        if is_draft(replacement):
            return
        self._external_ids.pop(replacement.draft_id, None)
        closed_draft = self._closing.pop(replacement.id, None)
        if closed_draft is not None:
            await self._save(closed_draft)

    def find_removal(self, cancelled: Delivery) -> Delivery | None:
        """Return the part that removes a draft whose replacement was cancelled; None where it had none."""
        closed_draft = self._closing.pop(cancelled.id, None)
        if closed_draft is None:
            return None
        removal = self._build_removal(closed_draft)
        self._closing[removal.id] = closed_draft
        return removal

    async def resume(self, open_parts: Sequence[Delivery]) -> tuple[list[Delivery], list[UUID]]:
        """Resume what an earlier process left open.

        Return the parts to send, and the turns whose drafts no turn will finish.
        """
        to_send = [part for part in open_parts if not is_draft(part)]
        for replacement in to_send:
            if draft_id := replacement.draft_id:
                draft = await self._ledger.delivery(draft_id)
                if draft is not None and draft.state is DeliveryState.SENT:
                    self._external_ids[draft_id] = draft.external_id
        abandoned_turns = []
        for draft in filter(is_draft, open_parts):
            if isinstance(self.by_turn.get(draft.turn_id), Draft):
                continue
            parts = await self._ledger.deliveries(turn_id=draft.turn_id)
            replacements = (part for part in parts if part.draft_id == draft.id != part.id)
            if (replacing_part := next(replacements, None)) is not None:
                to_send = [without_references(part) if _has_migrated(draft, part) else part for part in to_send]
                to_send += await self._resume_replacement(draft, replacing_part)
                continue
            self.by_turn[draft.turn_id] = draft
            if not await self._is_turn_open(draft):
                abandoned_turns.append(draft.turn_id)
        return to_send, abandoned_turns

    async def migrate(self, room_id: UUID) -> None:
        """Close the drafts of a room that continues under another id: they cannot be edited any more."""
        for turn_id, draft in list(self.by_turn.items()):
            part = draft.part if isinstance(draft, Draft) else draft
            if part.room_id != room_id or turn_id not in self.by_turn:  # it may have been closed meanwhile
                continue
            if isinstance(draft, Draft):
                draft.stop()
            self._remove(turn_id)
            if not isinstance(draft, PreviewDraft):
                await self._save(_close_draft(part))

    async def stop(self) -> None:
        """Show nothing more; what is shown is resumed at the next start."""
        for draft in self._live_drafts():
            draft.stop()
        await asyncio.gather(*(draft.wait_stopped() for draft in self._live_drafts()))
        self.by_turn.clear()
        self._closing.clear()

    async def _replace_draft(self, turn_id: UUID, replacement: Delivery | None) -> Delivery | None:
        """Close or replace one draft; return its replacement as it is then sent."""
        live = self.by_turn.get(turn_id)
        if isinstance(live, PreviewDraft):
            is_same = replacement is not None and replacement.memory_id == live.part.memory_id
            await (live.wait_stopped() if is_same else live.clear())
            self._remove(turn_id)
            return replacement
        if isinstance(live, Draft):
            await live.wait_stopped()
        draft = self._find_part(turn_id)
        if draft is None:  # its room has moved meanwhile, and it was left behind there
            return replacement
        if replacement is None:
            if draft.external_id:
                return self._build_removal(draft)
            self._remove(turn_id)
            await self._save(_close_draft(draft))
            return None
        if _has_migrated(draft, replacement):
            self._remove(turn_id)
            await self._save(_close_draft(draft))
            return replacement
        replaces = draft.external_id or replacement.replaces_external_id
        return replace(replacement, draft_id=draft.id, replaces_external_id=replaces)

    async def _resume_replacement(self, draft: Delivery, replacement: Delivery) -> list[Delivery]:
        """Resume a draft whose replacement is committed; return what is still to be sent of it."""
        if replacement.state not in OPEN_STATES or _has_migrated(draft, replacement):
            await self._save(_close_draft(draft))
        elif is_ambiguous(draft):
            self._ambiguous.add(draft.id)
            return [draft]
        else:
            self._closing[replacement.id] = _close_draft(draft)
        return []

    async def _is_turn_open(self, draft: Delivery) -> bool:
        """Return whether the turn of a draft will be resumed."""
        if self._clock() - draft.created_at > MAX_DRAFT_AGE:
            return False
        receipts = await self._ledger.receipts(room_id=draft.room_id, is_open=True, limit=MAX_OPEN_RECEIPTS)
        return any(receipt.turn_id == draft.turn_id for receipt in receipts)

    def _build_draft_part(self, turn_id: UUID, build_reply: Callable[[], OutgoingReply]) -> Delivery:
        [part] = split_reply(build_reply(), None, self._clock())
        draft_id = delivery_id(turn_id, DRAFT_REPLY_INDEX, 0)
        return replace(part, id=draft_id, draft_id=draft_id)

    def _filter_text(self, adapter: Adapter, text: str, room_id: UUID) -> Content:
        content = Content(text=self._filter_partial(text, room_id))
        return adapter.split_content(content)[0] if content.text else content

    def _build_removal(self, draft: Delivery) -> Delivery:
        return replace(
            draft,
            id=delivery_id(draft.turn_id, DRAFT_REPLY_INDEX, 1),
            content=Content(),
            draft_id=draft.id,
            replaces_external_id=draft.external_id,
            created_at=self._clock(),
            state=DeliveryState.PENDING,
            attempts=0,
            first_attempt_at=None,
            external_id="",
            reply_to="",
        )

    def _register(self, draft: Draft) -> None:
        self.by_turn[draft.part.turn_id] = draft

    def _live_drafts(self) -> list[Draft]:
        return [draft for draft in self.by_turn.values() if isinstance(draft, Draft)]

    def _find_part(self, turn_id: UUID) -> Delivery | None:
        draft = self.by_turn.get(turn_id)
        return draft.part if isinstance(draft, Draft) else draft

    def _remove(self, turn_id: UUID) -> None:
        self.by_turn.pop(turn_id, None)

    async def _save(self, closed_draft: Delivery) -> None:
        with suppress(StoreUnavailable):  # it stays open, and is closed at the next start
            await self._ledger.save_delivery(closed_draft)


def _has_migrated(draft: Delivery, replacement: Delivery) -> bool:
    """Return whether a turn's reply is sent to another place than its draft."""
    return replacement.turn_id == draft.turn_id and replacement.target != draft.target


def _close_draft(draft: Delivery) -> Delivery:
    """Return the draft in its final state: sent, cancelled, or unknown."""
    if draft.external_id:
        return replace(draft, state=DeliveryState.SENT)
    if is_ambiguous(draft):
        return replace(draft, state=DeliveryState.UNKNOWN, cause="it may have been shown in part")
    return replace(draft, state=DeliveryState.CANCELLED)
