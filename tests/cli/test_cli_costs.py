"""`bot why --costs`."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.cli.commands.why import format_dollars
from bot.cli.main import entry
from bot.domain.ids import new_id
from bot.domain.ledger import CostEntry
from bot.store.protocols import Store
from tests.cli.stored_character import FILE, answer_messages, run_with_store, write_character

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def character(workdir: Path) -> None:
    write_character(workdir)


def today() -> date:
    return datetime.now(UTC).date()


def store_costs(*spendings: CostEntry) -> None:
    async def add(store: Store) -> None:
        await store.costs.add(spendings)

    run_with_store(add)


def run_costs(capsys: Out, *arguments: str) -> dict[str, Any]:
    assert entry(["why", "-c", FILE, "--costs", "--json", *arguments]) == 0
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    return output


def test_costs_are_shown_by_day_with_notes_on_unknown_prices(capsys: Out) -> None:
    answer_messages("hello")
    store_costs(
        CostEntry(today(), "gpt-4o", None, None, 2, 3000, 1000, 500, 0.0125, estimated_calls=1),
        CostEntry(today(), "my-own", None, None, 1, 10, 0, 5, unpriced_calls=1),
    )
    assert entry(["why", "-c", FILE, "--costs"]) == 0
    first, second, *notes = capsys.readouterr().out.splitlines()
    assert first.startswith("the last 7 days (UTC): $0.0125, ")
    assert "1 without a price" in first
    assert second.split()[0] == today().isoformat()
    assert notes == [
        "calls without a price are not in the dollars: set one with MODEL_PRICES, `name=in/out`",
        "the tokens of 1 calls are estimated: their provider did not count",
    ]


@pytest.mark.long
def test_costs_are_summed_by_room_person_or_model_highest_first(capsys: Out) -> None:
    [receipt] = answer_messages("hello", room="cellar")
    room, person = receipt.room_id, receipt.author_id
    store_costs(
        CostEntry(today(), "cheap", room, person, 1, 10, cost=0.01),
        CostEntry(today(), "dear", None, None, 1, 10, cost=2.0),
        CostEntry(today(), "cheap", None, new_id(), 1, 10, cost=0.02),
    )
    assert [group["name"] for group in run_costs(capsys, "--by", "model")["sums"]][:2] == ["dear", "cheap"]
    by_room = {group["name"]: group for group in run_costs(capsys, "--by", "room")["sums"]}
    assert by_room["cellar (test)"]["usd"] == 0.01
    assert by_room["cellar (test)"]["id"] == str(room)
    assert by_room["(no person: tasks, posts)"]["usd"] == 2.02
    by_person = {group["name"]: group for group in run_costs(capsys, "--by", "person")["sums"]}
    assert by_person["Alice (test)"]["id"] == str(person)
    assert by_person["an unknown person"]["usd"] == 0.02


@pytest.mark.long
def test_only_the_requested_days_count(capsys: Out) -> None:
    answer_messages("hello")
    for back in (0, 1, 2):
        store_costs(CostEntry(today() - timedelta(days=back), "m", None, None, 1, cost=1.0))
    assert run_costs(capsys, "--days", "2")["total"]["usd"] == 2.0
    assert run_costs(capsys)["total"]["usd"] == 3.0
    names = [group["name"] for group in run_costs(capsys)["sums"]]
    assert names == sorted(names)


def test_conflicting_options_are_usage_errors(capsys: Out) -> None:
    assert entry(["why", "-c", FILE, "--costs", "--last", "2"]) == 2
    assert "--costs excludes a message's id, --room" in capsys.readouterr().err
    assert entry(["why", "-c", FILE, "--by", "room"]) == 2
    assert "--by and --days need --costs" in capsys.readouterr().err


def test_without_costs_the_sum_is_zero_and_a_period_of_a_day_is_today(capsys: Out) -> None:
    store_costs()
    assert entry(["why", "-c", FILE, "--costs", "--days", "1"]) == 0
    assert capsys.readouterr().out == "today (UTC): $0, 0 calls, 0 tokens in, 0 out\n"


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(0, "$0"), (1e-9, "under $0.000001"), (0.000012, "$0.000012"), (0.5, "$0.5"), (1234.567, "$1,234.57")],
)
def test_amounts_have_a_fitting_precision(amount: float, expected: str) -> None:
    assert format_dollars(amount) == expected
