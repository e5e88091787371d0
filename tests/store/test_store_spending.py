"""Contract of every store: costs."""

from dataclasses import replace
from datetime import date, timedelta

from bot.domain.ids import derived_id
from bot.domain.ledger import CostDimension, CostEntry
from bot.store.protocols import Store

DAY = date(2026, 5, 4)
NEXT_DAY = DAY + timedelta(days=1)
ROOM, PERSON = derived_id("here"), derived_id("Ann")
ENTRY = CostEntry(
    DAY, "gpt-4o", ROOM, PERSON, 1, 1000, 200, 30, 0.000_001_234, unpriced_calls=1, estimated_calls=1, failed_calls=1
)


async def test_costs_of_the_same_day_room_person_and_model_are_summed(store: Store) -> None:
    assert await store.costs.costs_between(DAY, DAY) == []
    await store.costs.add([])
    await store.costs.add([ENTRY])
    await store.costs.add([ENTRY, replace(ENTRY, model="other")])
    found = {line.model: line for line in await store.costs.costs_between(DAY, DAY)}
    assert found["gpt-4o"] == replace(
        ENTRY,
        calls=2,
        tokens_in=2000,
        tokens_cached=400,
        tokens_out=60,
        cost=0.000_002_468,
        unpriced_calls=2,
        estimated_calls=2,
        failed_calls=2,
    )
    assert found["other"] == replace(ENTRY, model="other")


async def test_costs_without_room_or_person_are_entries_of_their_own(store: Store) -> None:
    lines = [ENTRY, replace(ENTRY, person_id=None), replace(ENTRY, room_id=None, person_id=None)]
    await store.costs.add(lines)
    await store.costs.add(lines)
    found = await store.costs.costs_between(DAY, DAY)
    assert {(line.room_id, line.person_id, line.calls) for line in found} == {
        (ROOM, PERSON, 2),
        (ROOM, None, 2),
        (None, None, 2),
    }


async def test_days_are_listed_in_order_with_both_ends(store: Store) -> None:
    days = [DAY + timedelta(days=number) for number in range(4)]
    await store.costs.add([replace(ENTRY, day=day) for day in reversed(days)])
    assert [line.day for line in await store.costs.costs_between(days[1], days[2])] == days[1:3]
    assert [line.day for line in await store.costs.costs_between(days[0], days[3])] == days


async def test_costs_are_entries_of_their_own_for_each_purpose(store: Store) -> None:
    await store.costs.add([ENTRY, replace(ENTRY, purpose="reply"), replace(ENTRY, purpose="reply")])
    found = await store.costs.costs_between(DAY, DAY)
    assert {(line.purpose, line.calls) for line in found} == {("", 1), ("reply", 2)}


async def test_costs_are_summed_by_any_dimension_or_two_in_a_period(store: Store) -> None:
    other_room = derived_id("there")
    await store.costs.add(
        [
            replace(ENTRY, cost=1.0, purpose="reply"),
            replace(ENTRY, cost=2.0, purpose="embedding", room_id=other_room, person_id=None),
            replace(ENTRY, cost=4.0, purpose="reply", day=NEXT_DAY, model="small"),
            replace(ENTRY, cost=8.0, day=NEXT_DAY + timedelta(days=1)),
        ]
    )

    async def sums(*by: CostDimension) -> dict[tuple[object, ...], float]:
        lines = await store.costs.sums_between(DAY, NEXT_DAY, by)
        return {tuple(getattr(line, dimension) for dimension in by): line.cost for line in lines}

    assert await sums() == {(): 7.0}
    assert await sums(CostDimension.PURPOSE) == {("reply",): 5.0, ("embedding",): 2.0}
    assert await sums(CostDimension.ROOM) == {(ROOM,): 5.0, (other_room,): 2.0}
    assert await sums(CostDimension.PERSON) == {(PERSON,): 5.0, (None,): 2.0}
    by_model_and_day = await sums(CostDimension.MODEL, CostDimension.DAY)
    assert by_model_and_day == {("gpt-4o", DAY): 3.0, ("small", NEXT_DAY): 4.0}
    assert await store.costs.sums_between(DAY - timedelta(days=9), DAY - timedelta(days=8), ()) == []
