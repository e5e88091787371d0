"""What every store promises of the sums that were spent."""

from dataclasses import replace
from datetime import date, timedelta

from bot.domain.costs import Spending
from bot.domain.ids import derived_id
from bot.store.protocols import Store

DAY = date(2026, 5, 4)
NEXT = DAY + timedelta(days=1)
HERE, ANN = derived_id("here"), derived_id("Ann")
ONE = Spending(DAY, "gpt-4o", HERE, ANN, 1, 1000, 200, 30, 0.000_001_234, unpriced=1, estimated=1, failed=1)


async def test_what_is_spent_adds_up_where_day_room_person_and_model_are_the_same(store: Store) -> None:
    assert await store.spending.spent(DAY, DAY) == []
    await store.spending.add([])
    await store.spending.add([ONE])
    await store.spending.add([ONE, replace(ONE, model="other")])
    found = {line.model: line for line in await store.spending.spent(DAY, DAY)}
    assert found["gpt-4o"] == replace(
        ONE,
        calls=2,
        tokens_in=2000,
        tokens_cached=400,
        tokens_out=60,
        cost=0.000_002_468,
        unpriced=2,
        estimated=2,
        failed=2,
    )
    assert found["other"] == replace(ONE, model="other")


async def test_nobody_and_no_room_are_lines_of_their_own(store: Store) -> None:
    lines = [ONE, replace(ONE, person_id=None), replace(ONE, room_id=None, person_id=None)]
    await store.spending.add(lines)
    await store.spending.add(lines)
    found = await store.spending.spent(DAY, DAY)
    assert {(line.room_id, line.person_id, line.calls) for line in found} == {
        (HERE, ANN, 2),
        (HERE, None, 2),
        (None, None, 2),
    }


async def test_days_are_listed_in_order_with_both_ends(store: Store) -> None:
    days = [DAY + timedelta(days=number) for number in range(4)]
    await store.spending.add([replace(ONE, day=day) for day in reversed(days)])
    assert [line.day for line in await store.spending.spent(days[1], days[2])] == days[1:3]
    assert [line.day for line in await store.spending.spent(days[0], days[3])] == days
