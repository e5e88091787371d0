"""Contract of every store: cache and logs."""

from collections.abc import Callable
from typing import Any

import pytest

from bot.domain.ids import derived_id, new_id
from bot.store.protocols import LogEntry, Store


async def test_a_value_is_stored_replaced_and_deleted(store: Store) -> None:
    assert await store.cache.get("key") is None

    await store.cache.set("key", {"a": [1, 2.5, None, "ä"]})
    assert await store.cache.get("key") == {"a": [1, 2.5, None, "ä"]}

    await store.cache.set("key", False)
    assert await store.cache.get("key") is False

    await store.cache.delete("key")
    await store.cache.delete("key")
    assert await store.cache.get("key") is None


async def test_a_value_expires_at_its_time(store: Store, clock: Any) -> None:
    await store.cache.set("brief", 1, expires_at=clock.now)
    await store.cache.set("key", 1, expires_at=clock.advance(seconds=60))
    clock.advance(seconds=-0.001)
    assert await store.cache.get("brief") is None
    assert await store.cache.get("key") == 1

    clock.advance(seconds=0.001)
    assert await store.cache.get("key") is None

    clock.advance(seconds=-30)
    await store.cache.set("key", 2)
    clock.advance(days=400)
    assert await store.cache.get("key") == 2


async def test_a_value_stored_without_expiry_loses_the_earlier_expiry(store: Store, clock: Any) -> None:
    await store.cache.set("key", 1, expires_at=clock.now)
    await store.cache.set("key", 2)

    assert await store.cache.get("key") == 2


async def test_stored_values_are_independent_of_the_callers_objects(store: Store) -> None:
    given = {"seen": [1]}
    await store.cache.set("key", given)
    given["seen"].append(2)
    taken = await store.cache.get("key")
    taken["seen"].append(3)

    assert await store.cache.get("key") == {"seen": [1]}


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes"], ids=["object", "set", "bytes"])
async def test_a_value_that_is_not_json_is_refused(store: Store, value: object) -> None:
    with pytest.raises(TypeError):
        await store.cache.set("key", value)


async def test_the_latest_entries_that_match_come_first(store: Store) -> None:
    lobby, alice = derived_id("lobby"), derived_id("alice")
    await store.logs.log("role", {"number": 1}, room_id=lobby, entity_id=alice)
    await store.logs.log("post", {"number": 2, "text": ["a"]})
    await store.logs.log("role", {"number": 3})

    def numbers(found: list[Any]) -> list[int]:
        return [entry["body"]["number"] for entry in found]

    assert numbers(await store.logs.logs()) == [3, 2, 1]
    assert numbers(await store.logs.logs(limit=2)) == [3, 2]
    assert numbers(await store.logs.logs(kind="role")) == [3, 1]
    assert numbers(await store.logs.logs(kind="role", room_id=lobby)) == [1]
    assert numbers(await store.logs.logs(entity_id=alice)) == [1]
    assert numbers(await store.logs.logs(kind="post", entity_id=alice)) == []
    assert await store.logs.logs(kind="nothing") == []


async def test_a_log_entry_has_time_kind_room_and_entity(store: Store, clock: Callable[[], Any]) -> None:
    lobby, alice = derived_id("lobby"), derived_id("alice")
    await store.logs.log("role", {"to": "ADMIN"}, room_id=lobby, entity_id=alice)
    [entry] = await store.logs.logs()

    assert entry["kind"] == "role"
    assert entry["at"] == clock()
    assert (entry["room_id"], entry["entity_id"]) == (lobby, alice)
    assert entry["body"] == {"to": "ADMIN"}


async def test_entries_stored_together_are_separate_entries(store: Store) -> None:
    room, person = new_id(), new_id()
    entries = [LogEntry("run", {"number": 1}, room), LogEntry("call", {"number": 2}, entity_id=person)]
    await store.logs.log_all(entries)

    kept = [(entry["kind"], entry["body"], entry["room_id"], entry["entity_id"]) for entry in await store.logs.logs()]
    assert kept == [("call", {"number": 2}, None, person), ("run", {"number": 1}, room, None)]


@pytest.mark.long
async def test_many_entries_of_a_kind_drop_none_of_another_kind(store: Store) -> None:
    await store.logs.log("role", {"number": 0})
    for first in range(0, 10_500, 350):
        await store.logs.log_all([LogEntry("run", {"number": first + offset}) for offset in range(350)])

    assert len(await store.logs.logs(kind="role")) == 1
    runs = await store.logs.logs(kind="run", limit=20_000)
    assert [entry["body"]["number"] for entry in runs] == list(range(10_499, 499, -1))
