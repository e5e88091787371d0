"""Sums over what is stored in memory."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from bot.domain.ledger import DROPPED_CAUSE, Delivery, DeliveryState, Outcome, Receipt
from bot.domain.task import TaskTag
from bot.store.activity import ActivityBucket, Backlog, OpenItems, PlatformHour, TaskBacklog
from bot.store.inmemory.ledger import OPEN_STATES, InMemoryLedger
from bot.store.inmemory.records import InMemoryTasks

HOUR = timedelta(hours=1)
MILLISECOND = timedelta(milliseconds=1)


class InMemoryActivity:
    """Implements `ActivityStore`."""

    def __init__(self, ledger: InMemoryLedger, tasks: InMemoryTasks) -> None:
        self._ledger = ledger
        self._tasks = tasks

    async def buckets(self, start: datetime, step: timedelta, count: int, platform: str = "") -> list[ActivityBucket]:
        receipts_by_number = defaultdict[int, list[Receipt]](list)
        for receipt in self._ledger.receipt_table:
            if platform in ("", receipt.key.platform):
                receipts_by_number[(receipt.received_at - start) // step].append(receipt)
        return [_build_bucket(start + step * number, receipts_by_number[number]) for number in range(count)]

    async def platform_hours(self, start: datetime, hours: int) -> list[PlatformHour]:
        times = defaultdict[tuple[str, int], list[datetime]](list)
        for receipt in self._ledger.receipt_table:
            number = (receipt.received_at - start) // HOUR
            if 0 <= number < hours:
                times[receipt.key.platform, number].append(receipt.received_at)
        return [
            PlatformHour(platform, start + HOUR * number, len(arrivals), max(arrivals))
            for (platform, number), arrivals in times.items()
        ]

    async def last_sent(self) -> Mapping[str, datetime]:
        times: dict[str, datetime] = {}
        for delivery in await self._ledger.deliveries():
            if delivery.state is DeliveryState.SENT:
                at = delivery.first_attempt_at or delivery.created_at
                times[delivery.platform] = max(at, times.get(delivery.platform, at))
        return times

    async def open_items(self) -> OpenItems:
        parts = [part for part in await self._ledger.deliveries() if part.cause != DROPPED_CAUSE]
        turns = [receipt.received_at for receipt in self._ledger.receipt_table if not receipt.outcome.is_final]
        return OpenItems(
            turns=_build_backlog(turns),
            waiting=_count_parts(parts, *OPEN_STATES),
            held=_count_parts(parts, DeliveryState.UNKNOWN),
            failed=_count_parts(parts, DeliveryState.FAILED),
            parked=_build_backlog(
                [item.received_at for item in self._ledger.receipt_table if item.outcome is Outcome.PARKED]
            ),
        )

    async def task_backlog(self, due_before: datetime) -> TaskBacklog:
        tasks = await self._tasks.tasks(tags=(TaskTag.QUEUE,))
        due_times = [task.next_run for task in tasks if not task.is_parked]
        late = _build_backlog([at for at in due_times if at < due_before])
        return TaskBacklog(late, min(due_times, default=None))


def _build_bucket(start: datetime, receipts: Sequence[Receipt]) -> ActivityBucket:
    answered = [receipt for receipt in receipts if receipt.outcome is Outcome.ANSWERED]
    times = sorted(
        (item.closed_at - item.received_at) // MILLISECOND for item in answered if item.closed_at is not None
    )
    return ActivityBucket(
        start,
        received=len(receipts),
        answered=len(answered),
        open=sum(not receipt.outcome.is_final for receipt in receipts),
        failures=Counter(receipt.rule for receipt in receipts if receipt.outcome is Outcome.FAILED),
        p50_ms=_percentile(times, 50),
        p95_ms=_percentile(times, 95),
    )


def _percentile(times: Sequence[int], percent: int) -> int | None:
    return times[(len(times) * percent + 99) // 100 - 1] if times else None


def _count_parts(parts: Sequence[Delivery], *states: DeliveryState) -> Backlog:
    return _build_backlog([part.created_at for part in parts if part.state in states])


def _build_backlog(times: Sequence[datetime]) -> Backlog:
    return Backlog(len(times), min(times, default=None))
