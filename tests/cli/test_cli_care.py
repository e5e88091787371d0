"""`bot care report`: the counts of referrals, also while no bot runs."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.cli.main import entry
from bot.cli.process.shutdown import Exit
from tests.cli.stored_character import FILE, answer_messages, write_character

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def character(workdir: Path) -> None:
    write_character(workdir)


def test_the_report_has_the_referrals_by_day_and_category_and_nothing_of_the_person(capsys: Out) -> None:
    answer_messages("I want to die")
    today = datetime.now(UTC).date()
    assert entry(["care", "report", "-c", FILE, "--since", str(today)]) == Exit.OK
    assert capsys.readouterr().out == f"referrals since {today}: 1\n  {today}  suicide          1\n"
    assert entry(["care", "report", "-c", FILE, "--json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["total"], document["categories"]["suicide"]) == (1, 1)
    assert document["since"] == str(today - timedelta(days=30))


def test_without_referrals_the_report_says_so(capsys: Out) -> None:
    answer_messages("hello")
    assert entry(["care", "report", "-c", FILE, "--since", "2026-01-01"]) == Exit.OK
    assert capsys.readouterr().out == "referrals since 2026-01-01: 0\n"


def test_a_day_that_is_none_is_a_wrong_usage(capsys: Out) -> None:
    assert entry(["care", "report", "-c", FILE, "--since", "yesterday"]) == Exit.USAGE
    assert "--since" in capsys.readouterr().err
