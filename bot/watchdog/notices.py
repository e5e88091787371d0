"""Which notices the owner gets: one when a condition begins, one when it is over, never a storm.

`plan_notices` is pure: the watchdog sends what it returns, and stores the records, so that a restart repeats nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from bot.user_texts import user_text
from bot.watchdog.conditions import Condition, ConditionKind, ConditionLevel, format_seconds

# How long a condition must last before it is told: what often passes by itself within a minute waits for that.
DELAYS = {
    (ConditionKind.ACCOUNT, ConditionLevel.WARN): timedelta(seconds=45),
    (ConditionKind.MODEL, ConditionLevel.WARN): timedelta(seconds=45),
    (ConditionKind.MODEL, ConditionLevel.BAD): timedelta(seconds=45),
    (ConditionKind.LAG, ConditionLevel.WARN): timedelta(seconds=30),
    (ConditionKind.TASKS, ConditionLevel.WARN): timedelta(seconds=30),
}
OVER_DELAY = timedelta(minutes=2)  # what returns sooner has lasted
RECURRENCE_MEMORY = timedelta(hours=6)  # for so long a condition that returns is told later each time
FIRST_RECURRENCE_DELAY, MAX_RECURRENCE_DELAY = timedelta(minutes=2), timedelta(hours=1)
REPEAT_INTERVAL = timedelta(hours=1)  # between two notices of a condition of which there is more and more
MAX_SINGLE_NOTICES = 3  # at a time; more are told in one message
MAX_RECENT_NOTICES, RECENT = 6, timedelta(minutes=10)
RECORD_LIFETIME = timedelta(days=7)  # of a record that another process has left


class NoticeKind(StrEnum):
    """What a notice is about."""

    BEGAN = "began"
    MORE = "more"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a condition: when it began and was told, since when it is gone, and how often it returned.

    `count` is the smallest number of things since it was told, so that one more is noticed.
    """

    key: str
    text: str
    why: str
    began_at: datetime
    seen_at: datetime
    count: int = 1
    notified_at: datetime | None = None
    gone_at: datetime | None = None
    over_at: datetime | None = None
    recurrences: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON."""
        return {name: _to_json(value) for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Build a record from JSON; raises KeyError, TypeError or ValueError for anything else."""
        times = {name: datetime.fromisoformat(values[name]) for name in TIME_FIELDS if values.get(name)}
        return cls(**{**values, **{name: times.get(name) for name in TIME_FIELDS}})


TIME_FIELDS = ("began_at", "seen_at", "notified_at", "gone_at", "over_at")


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell: a condition began, has become more, or is over. `id` is the same when it is sent again."""

    kind: NoticeKind
    record: Record
    at: datetime

    @property
    def id(self) -> str:
        """Identify the notice."""
        return f"{self.record.key}/{self.record.began_at.isoformat()}/{self.kind}/{self.record.count}"

    @property
    def text(self) -> str:
        """The text of the notice."""
        record = self.record
        if self.kind is NoticeKind.OVER:
            length = format_seconds(((record.gone_at or self.at) - record.began_at).total_seconds())
            return user_text("watchdog.notice.over", text=record.text, time=length)
        return user_text("watchdog.notice.began", text=record.text, why=record.why).strip()


@dataclass(frozen=True, slots=True)
class Plan:
    """The records after a check, and what is to be told now; `mark_notified` returns the records once that is done."""

    records: Mapping[str, Record]
    notices: Sequence[Notice] = ()


def mark_notified(records: Mapping[str, Record], notices: Sequence[Notice]) -> dict[str, Record]:
    """Return the records once these notices are sent."""
    notified = dict(records)
    for notice in notices:
        record = notice.record
        if notice.kind is NoticeKind.OVER:
            notified[record.key] = replace(
                record, notified_at=None, over_at=notice.at, recurrences=record.recurrences + 1
            )
        else:
            notified[record.key] = replace(record, notified_at=notice.at)
    return notified


def plan_notices(
    records: Mapping[str, Record],
    conditions: Sequence[Condition],
    now: datetime,
    *,
    undecided: Collection[str] = (),
    is_quiet: bool = False,
) -> Plan:
    """Return what is to be told of the present conditions, given the records of those before.

    Whether those whose keys are `undecided` last is unknown at the moment. While it `is_quiet`, nothing is told;
    what is over by its end was never told.
    """
    records = {key: _not_after(record, now) for key, record in records.items()}
    current: dict[str, Record] = {}
    notices = []
    for condition in conditions:
        if condition.key in current:
            continue
        record = _note_present(records.get(condition.key), condition, now)
        kind = _find_kind(record, condition, now)
        if kind is not None and not is_quiet:
            record = replace(record, text=condition.text, why=condition.why, count=condition.count)
            notices.append(Notice(kind, record, now))
        current[record.key] = record
    for key, record in records.items():
        if key in current:
            continue
        left = record if key in undecided else _note_absent(record, now)
        if _is_forgotten(left, now):
            continue
        if left.notified_at is not None and key not in undecided and _is_over(left, now) and not is_quiet:
            notices.append(Notice(NoticeKind.OVER, left, now))
        current[key] = left
    return Plan(current, notices)


def group_notices(notices: Sequence[Notice], sent_at: Sequence[datetime], now: datetime) -> list[list[Notice]]:
    """Return the notices by message: one each, or all in one where there are many.

    Where many messages were sent in the last ten minutes there is none: they wait.
    """
    recent = sum(timedelta() <= now - at < RECENT for at in sent_at)
    if not notices or recent >= MAX_RECENT_NOTICES:
        return []
    if len(notices) > min(MAX_SINGLE_NOTICES, MAX_RECENT_NOTICES - recent):
        return [list(notices)]
    return [[notice] for notice in notices]


def _not_after(record: Record, now: datetime) -> Record:
    """Return the record without times to come, which it has where the clock was set back."""
    if max(at for name in TIME_FIELDS if (at := getattr(record, name)) is not None) <= now:
        return record
    times = {name: min(at, now) for name in TIME_FIELDS if (at := getattr(record, name)) is not None}
    return replace(record, **times)


def _note_present(record: Record | None, condition: Condition, now: datetime) -> Record:
    """Return the record of a condition that is present."""
    if record is None:
        return Record(condition.key, condition.text, condition.why, now, now, condition.count)
    if record.over_at is not None:  # it returns
        return replace(record, began_at=now, seen_at=now, gone_at=None, over_at=None, count=condition.count)
    if record.notified_at is None:
        return replace(record, seen_at=now, gone_at=None, text=condition.text, why=condition.why, count=condition.count)
    return replace(record, seen_at=now, gone_at=None, count=min(record.count, condition.count))


def _note_absent(record: Record, now: datetime) -> Record:
    if record.over_at is not None:
        return record
    record = replace(record, gone_at=record.gone_at or now)
    is_unnoticed = record.notified_at is None and record.recurrences and _is_over(record, now)
    return replace(record, over_at=now) if is_unnoticed else record


def _is_forgotten(record: Record, now: datetime) -> bool:
    """Return whether a record of what is not present has no use any more."""
    if record.over_at is not None:
        return now - record.over_at >= RECURRENCE_MEMORY
    return now - record.seen_at >= RECORD_LIFETIME or (record.notified_at is None and _is_over(record, now))


def _find_kind(record: Record, condition: Condition, now: datetime) -> NoticeKind | None:
    if record.notified_at is None:
        delay = DELAYS.get((condition.kind, condition.level), timedelta())
        if record.recurrences:
            longer = FIRST_RECURRENCE_DELAY * (1 << min(record.recurrences - 1, 5))
            delay = max(delay, min(longer, MAX_RECURRENCE_DELAY))
        return NoticeKind.BEGAN if now - record.began_at >= delay else None
    has_more = condition.count > record.count and condition.kind in COUNTED
    return NoticeKind.MORE if has_more and now - record.notified_at >= REPEAT_INTERVAL else None


COUNTED = frozenset({ConditionKind.HELD, ConditionKind.FAILED, ConditionKind.POISONED, ConditionKind.PARKED})


def _is_over(record: Record, now: datetime) -> bool:
    return record.gone_at is not None and now - record.gone_at >= OVER_DELAY


def _to_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
