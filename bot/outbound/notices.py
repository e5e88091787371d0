"""AI notices: the rule that says when a person is told that an AI writes, and a log of who was told when."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Self
from uuid import UUID

from bot.concurrency.tasks import BoundedDict
from bot.domain.events import EntityErased
from bot.domain.ledger import DeliveryKind, Disclosure
from bot.event_bus import EventBus
from bot.store.ledger import Ledger

NOTICE_REPLY_INDEX = -2  # no reply of a turn has this number, and no draft
MAX_PEOPLE = 10_000


@dataclass(frozen=True, slots=True)
class NoticeRule:
    """When a person gets the AI notice: never, with the first reply only, or again after an interval."""

    is_on: bool = True
    interval: timedelta | None = None

    @classmethod
    @lru_cache(maxsize=64)
    def parse(cls, text: str) -> Self:
        """Return the rule of a value of AI_NOTICE, which is valid: `off`, `first` or `hours:N`."""
        kind, _, hours = text.partition(":")
        return cls(kind != "off", timedelta(hours=int(hours)) if kind == "hours" else None)

    def at_least_every(self, interval: timedelta) -> Self:
        """Return the rule for people who get the notice at least this often."""
        return type(self)(True, min(self.interval or interval, interval))

    def is_due(self, notified_at: datetime | None, now: datetime) -> bool:
        """Return whether a person who was notified last at that time, or never, gets the notice with the next reply."""
        if not self.is_on or notified_at is None:
            return self.is_on
        return self.interval is not None and now - notified_at >= self.interval


PRIVATE_RULE, GROUP_RULE = NoticeRule(interval=timedelta(hours=3)), NoticeRule()  # where AI_NOTICE is not set
MINOR_INTERVAL = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Notice:
    """The AI notice that is sent before a reply, and the people who are told by it."""

    text: str
    people: frozenset[UUID]


class NoticeLog:
    """When the people of one agent were last told that an AI writes; the latest are kept in memory.

    Another process may have told a person since, so the store is asked before a notice is sent, and not otherwise.
    """

    def __init__(self, ledger: Ledger, events: EventBus) -> None:
        self._ledger = ledger
        self._notified_at = BoundedDict[UUID, datetime](MAX_PEOPLE)
        events.subscribe(EntityErased, self._forget, at_once=True)

    async def find_due(self, rules: Mapping[UUID, NoticeRule], now: datetime) -> frozenset[UUID]:
        """Return the people to whom a notice is due, each by their rule. Raises StoreUnavailable."""
        due = {person for person, rule in rules.items() if rule.is_due(self._notified_at.get(person), now)}
        if due:
            self.note(await self._ledger.disclosures(due))
        return frozenset(person for person in due if rules[person].is_due(self._notified_at.get(person), now))

    def _forget(self, event: EntityErased) -> None:
        self._notified_at.pop(event.entity_id, None)

    def note(self, disclosures: Iterable[Disclosure]) -> None:
        """Record that people were told."""
        for disclosure in disclosures:
            if disclosure.kind is DeliveryKind.NOTICE:
                self._notified_at[disclosure.entity_id] = disclosure.at
