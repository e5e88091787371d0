"""L-20: authorization decisions stay on record, and changes to them are detected."""

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest
from sqlalchemy import Connection

from bot import derived_id, system_clock
from bot.store import LogEntry, LogKind, Store
from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.storage import OpenServers
from bot.store.sql.sqlite.check import find_unreadable
from bot.store.sql.sqlite.storage import OpenFiles
from bot.store.sql.stores import cache_logs_costs
from bot.store.sql.stores.cache_logs_costs import find_breaks
from bot.store.sql.stores.retention import DELETE_DECISIONS
from tests.store.sql.conftest import Bare

ADA, MALLORY = derived_id("agent", "Ada"), derived_id("mallory")


def opened(bare: Bare) -> AbstractAsyncContextManager[Store]:
    if bare.is_sqlite:
        return OpenFiles().open_store(bare.place, ADA)
    url = bare.address.replace("postgresql+asyncpg://", "postgresql://")
    return OpenServers().open_store(parse_address(url, "the test's"), ADA)


async def decide(store: Store, *, first: int = 0, count: int = 5) -> None:
    for number in range(first, first + count):
        body = {"action": "UPDATE_ROLE", "allowed": False, "number": number, "text": "ü\ud800"}
        await store.logs.log(LogKind.AUTHORIZATION, body, entity_id=MALLORY if number == 2 else None)
        await store.logs.log("run", {"number": number})


async def numbers(store: Store) -> list[int]:
    return [entry["body"]["number"] for entry in await store.logs.logs(kind=LogKind.AUTHORIZATION, limit=100)]


async def problems(bare: Bare) -> list[str]:
    found: list[str] = await bare.run(lambda connection: list(find_breaks(connection)))
    return found


@pytest.mark.matrix(3)
@pytest.mark.failure("L-20")
@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE logs SET body = replace(body, 'false', 'true') WHERE {second}", "was changed afterwards"),
        ("UPDATE logs SET at = at - 1 WHERE {second}", "was changed afterwards"),
        ("UPDATE logs SET kind = 'run' WHERE {second}", "others were deleted from the log"),
        ("DELETE FROM logs WHERE {second}", "others were deleted from the log"),
    ],
)
async def test_a_changed_or_deleted_decision_is_reported(bare: Bare, statement: str, problem: str) -> None:
    async with opened(bare) as store:
        await decide(store)
        await decide(store, first=5, count=1)
    assert await problems(bare) == []
    second = "position = (SELECT min(position) + 2 FROM logs)"
    await bare.sql(statement.format(second=second))
    assert [problem in line for line in await problems(bare)] == [True]


@pytest.mark.failure("L-20")
async def test_after_an_erasure_the_log_keeps_links_without_content(bare: Bare) -> None:
    async with opened(bare) as store:
        await decide(store)
        await store.edits.erase_entity(MALLORY, system_clock())
        await decide(store, first=5, count=1)
        assert await numbers(store) == [5, 4, 3, 1, 0]
    assert await problems(bare) == []
    rows = await bare.sql("SELECT entity_id, body FROM logs WHERE kind = 'authority' ORDER BY position")
    assert rows[2][0] is None
    assert "UPDATE_ROLE" not in rows[2][1]


@pytest.mark.failure("L-20")
async def test_an_entry_may_have_any_keys(bare: Bare) -> None:
    body = {"action": "RENAME", "before": "Ann", "after": "Anna", "seal": "of approval", "forgotten": True}
    async with opened(bare) as store:
        await store.logs.log(LogKind.AUTHORIZATION, body)
        await decide(store, count=1)
        [_, entry] = await store.logs.logs(kind=LogKind.AUTHORIZATION)
        assert entry["body"] == body
    assert await problems(bare) == []


@pytest.mark.failure("L-20")
async def test_deleting_entries_with_wrong_times_does_not_break_the_chain(bare: Bare) -> None:
    async with opened(bare) as store:
        await decide(store)
        await decide(store, first=5, count=1)
    wrong = "SELECT min(position) + 2 FROM logs UNION SELECT max(position) - 1 FROM logs"
    await bare.sql(f"UPDATE logs SET at = at + 1000000000 WHERE position IN ({wrong})")
    before = await problems(bare)
    now = system_clock()

    def trim(connection: Connection) -> None:
        agent = connection.exec_driver_sql("SELECT min(agent_id) FROM logs").scalar_one()
        DELETE_DECISIONS(connection, agent, now + timedelta(seconds=1), None)

    await bare.run(trim)
    assert await problems(bare) == before


@pytest.mark.failure("L-20")
async def test_concurrent_writers_make_a_single_chain(bare: Bare) -> None:
    async with opened(bare) as store:
        if bare.is_sqlite:
            await asyncio.gather(*(decide(store, first=n * 5) for n in range(4)))
        else:
            async with opened(bare) as other:
                await asyncio.gather(*(decide(store if n % 2 else other, first=n * 5) for n in range(4)))
        assert len(await numbers(store)) == 20
    assert await problems(bare) == []


@pytest.mark.long
@pytest.mark.failure("L-20")
async def test_many_denials_do_not_displace_permissions(bare: Bare) -> None:
    async with opened(bare) as store:
        await store.logs.log(LogKind.AUTHORIZATION, {"number": -1, "allowed": True})
        flood = [
            LogEntry(LogKind.AUTHORIZATION, {"number": number}) for number in range(cache_logs_costs.MAX_LOGS + 600)
        ]
        await store.logs.log_all(flood[:-1])
        await store.logs.log_all(flood[-1:])
        entries = await store.logs.logs(kind=LogKind.AUTHORIZATION, limit=20_000)
        assert entries[-1]["body"] == {"number": -1, "allowed": True}
        assert len(entries) == cache_logs_costs.MAX_LOGS + 601


@pytest.mark.failure("I-16")
@pytest.mark.parametrize("position", ["min(position)", "max(position) - 1"])
async def test_a_decision_that_cannot_be_read_stops_neither_the_log_nor_its_check(bare: Bare, position: str) -> None:
    async with opened(bare) as store:
        await decide(store, count=3)
    await bare.sql(f"UPDATE logs SET body = '{{' WHERE position = (SELECT {position} FROM logs)")
    async with opened(bare) as store:
        await decide(store, first=3, count=2)
        assert len(await numbers(store)) == 4
    assert await problems(bare) == []
    [problem] = await bare.run(lambda connection: list(find_unreadable(connection)))
    assert problem.startswith("1 rows of logs hold what cannot be read (authority ")


async def test_decisions_from_before_seals_are_accepted(bare: Bare) -> None:
    async with opened(bare) as store:
        await decide(store, count=2)
        await bare.sql("UPDATE logs SET body = '{\"number\":0}'")
        await decide(store, first=2, count=2)
        assert await numbers(store) == [3, 2, 0, 0]
    assert await problems(bare) == []
