"""Acknowledged writes survive a kill of the process at any time (A-02, A-15, I-08)."""

import subprocess
import sys
from itertools import islice
from pathlib import Path
from uuid import UUID

import pytest

from bot import Outcome, derived_id
from bot.store.sql.sqlite.storage import OpenFiles
from bot.store.sql.stores.store import SqlStore

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).with_name("writing_process.py")
ROUNDS = 5


def killed(path: Path, after: int) -> list[tuple[str, UUID]]:
    """Kill the process after so many acknowledged writes; return all of them."""
    process = subprocess.Popen([sys.executable, str(SCRIPT), str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = list(islice(process.stdout, after))
    finally:
        process.kill()
    rest, _ = process.communicate()
    reports = [line.split() for line in (*lines, *rest.splitlines(keepends=True)) if line.endswith("\n")]
    return [(what, UUID(receipt_id)) for what, receipt_id in reports]


async def test_nothing_acknowledged_is_lost_when_the_process_is_killed(path: Path) -> None:
    acknowledged: list[tuple[str, UUID]] = []
    for number in range(ROUNDS):
        acknowledged += killed(path, 60 + 37 * number)
        async with OpenFiles().open_store(path, derived_id("agent")) as store:
            await verify(store, acknowledged)

    assert len(acknowledged) > ROUNDS * 60


async def verify(store: SqlStore, acknowledged: list[tuple[str, UUID]]) -> None:
    found = {receipt.id: receipt for receipt in await store.ledger.receipts(limit=100_000)}
    deliveries = await store.ledger.deliveries()
    turns = {delivery.turn_id for delivery in deliveries}
    for what, receipt_id in acknowledged:
        assert receipt_id in found
        if what == "answered":
            assert found[receipt_id].outcome is Outcome.ANSWERED
    for receipt in found.values():
        assert await store.ledger.inbound_message(receipt) is not None
        assert (receipt.outcome is Outcome.ANSWERED) == (receipt.turn_id in turns)
    for room_id in {delivery.room_id for delivery in deliveries}:
        places = [delivery.seq for delivery in await store.ledger.deliveries(room_id=room_id)]
        assert places == list(range(1, len(places) + 1))
    check = store.ledger._database.read
    assert await check(lambda db: db.exec_driver_sql("PRAGMA integrity_check").scalar()) == "ok"
    assert await check(lambda db: db.exec_driver_sql("PRAGMA foreign_key_check").fetchall()) == []
