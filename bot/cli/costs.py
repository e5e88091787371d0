"""What models have cost, summed by day, room, person or model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from bot.cli.case import place_of
from bot.cli.explain import priced
from bot.domain.costs import Spending, summed
from bot.store.protocols import Store
from bot.text import shorten

WIDTH = 40
NOBODY = "(nobody: tasks, posts)"


class By(StrEnum):
    """What sums are made by."""

    DAY = "day"
    ROOM = "room"
    PERSON = "person"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class Costs:
    """The sums of some days; `sums` are by `by`, each with its name, the dearest first but days in order."""

    days: int
    by: By
    total: Spending
    sums: Sequence[tuple[str, Spending]]

    def lines(self) -> Iterator[str]:
        """Tell them to a person."""
        period = "today (UTC)" if self.days == 1 else f"the last {self.days} days (UTC)"
        yield f"{period}: {told(self.total)}"
        for name, one in self.sums:
            yield f"  {shorten(name, WIDTH):<{WIDTH}}  {told(one)}"
        if self.total.unpriced:
            yield "what has no price is not in the dollars: MODEL_PRICES gives one, `name=in/out`"
        if self.total.estimated:
            yield f"the tokens of {self.total.estimated} calls are estimated: their provider did not count"

    def to_json(self) -> dict[str, Any]:
        """Give them as JSON."""
        sums = [{"name": name, **self._id(one), **one.to_json()} for name, one in self.sums]
        return {"days": self.days, "by": self.by.value, "total": self.total.to_json(), "sums": sums}

    def _id(self, one: Spending) -> Mapping[str, str | None]:
        ids = {By.ROOM: one.room_id, By.PERSON: one.person_id}
        found = ids.get(self.by)
        return {"id": str(found) if found else None} if self.by in ids else {}


async def costs_of(store: Store, now: datetime, *, days: int, by: By) -> Costs:
    """Sum up what was spent today and on the days before."""
    today = now.date()
    spent = await store.spending.spent(today - timedelta(days=days - 1), today)
    total = summed(spent, lambda one: None).get(None, Spending(today, ""))
    keys = {
        By.DAY: lambda one: one.day,
        By.ROOM: lambda one: one.room_id,
        By.PERSON: lambda one: one.person_id,
    }
    sums = list(summed(spent, keys.get(by, lambda one: one.model)).values())
    sums.sort(key=lambda one: (one.day if by is By.DAY else today, -one.cost, -one.tokens))
    names = await _names(store, sums, by)
    return Costs(days, by, total, list(zip(names, sums, strict=True)))


async def _names(store: Store, sums: Sequence[Spending], by: By) -> list[str]:
    if by is By.ROOM:
        rooms = {room.id: room for room in await store.worlds.rooms()}
        return [place_of(rooms.get(one.room_id), one.room_id) if one.room_id else NOBODY for one in sums]
    if by is By.PERSON:
        ids = {one.person_id for one in sums if one.person_id}
        people = await store.entities.entities(ids)
        known: dict[UUID, str] = {key: f"{one.name or key} ({one.platform})" for key, one in people.items()}
        return [known.get(one.person_id, str(one.person_id)) if one.person_id else NOBODY for one in sums]
    return [one.day.isoformat() if by is By.DAY else one.model for one in sums]


def told(one: Spending) -> str:
    """Tell a sum to a person."""
    return ", ".join(_told(one))


def _told(one: Spending) -> Iterator[str]:
    is_unknown = 0 < one.unpriced == one.calls - one.failed
    yield priced(None if is_unknown else one.cost)
    yield "1 call" if one.calls == 1 else f"{one.calls:,} calls"
    if one.failed:
        yield f"{one.failed:,} failed"
    if one.unpriced and not is_unknown:
        yield f"{one.unpriced:,} without a price"
    yield f"{one.tokens_in:,} tokens in" + (f" ({one.tokens_cached:,} cached)" if one.tokens_cached else "")
    yield f"{one.tokens_out:,} out"
