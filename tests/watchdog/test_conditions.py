"""What needs attention in a situation."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.adapter.adapter import ConnectionState, DisconnectCause
from bot.concurrency.process_health import ProcessHealth
from bot.domain.environment import TakeOver
from bot.domain.ids import derived_id
from bot.store.activity import Backlog, OpenItems, TaskBacklog
from bot.testing import running_agent
from bot.watchdog.conditions import AccountSituation, Situation, find_conditions, read_situation

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
ACCOUNT = AccountSituation("discord", "Ada", ConnectionState.CONNECTED, NOW, agent_id=derived_id("Ada"))
WELL = Situation(NOW, None, [ACCOUNT], OpenItems(), TaskBacklog(), [])
GB = 1_000_000_000


def texts(situation: Situation) -> list[str]:
    return [f"{condition.level} {condition.text}" for condition in find_conditions(situation)]


def keys(situation: Situation) -> list[str]:
    return [condition.key for condition in find_conditions(situation)]


def test_without_a_problem_nothing_needs_attention() -> None:
    full_but_large = ProcessHealth(
        lag_seconds=0.4, clock_jump=timedelta(seconds=20), free_bytes=GB, disk_bytes=900 * GB
    )
    small_but_free = replace(full_but_large, free_bytes=GB // 4, disk_bytes=GB)
    assert keys(WELL) == []
    assert keys(replace(WELL, process=full_but_large, spent=3.9, limit=5.0)) == []
    assert keys(replace(WELL, process=small_but_free)) == []


def test_the_state_of_the_process_is_shown() -> None:
    process = ProcessHealth(1.44, timedelta(hours=-2), free_bytes=GB // 4, disk_bytes=20 * GB)
    assert texts(replace(WELL, process=process)) == [
        "bad The disk of the data folder is almost full: 250 MB left.",
        "warn The clock of this machine jumped back by 2 h.",
        "warn The bot reacts with a delay of 1.4 s.",
    ]


def test_a_budget_is_reported_from_80_percent_on_and_again_when_it_is_spent() -> None:
    assert texts(replace(WELL, spent=4.0, limit=5.0)) == ["warn $4.00 of today's limit of $5.00 is used."]
    assert keys(replace(WELL, spent=4.0, limit=5.0)) == ["budget"]
    assert keys(replace(WELL, spent=5.0, limit=5.0)) == ["budget:/spent"]
    both = replace(WELL, budgets={"Ada": (1.0, 1.25), "Bob": (2.0, 0.0)})
    assert texts(both) == ["warn $1.00 of today's limit of $1.25 for Ada is used."]


def test_a_deaf_account_is_reported_only_while_it_is_connected() -> None:
    deaf = replace(ACCOUNT, unheard_since=NOW)
    assert keys(replace(WELL, accounts=[deaf])) == ["deaf:discord/Ada"]
    off = replace(deaf, state=ConnectionState.OFF, cause=DisconnectCause.REFUSED)
    [condition] = find_conditions(replace(WELL, accounts=[off]))
    assert (condition.key, condition.text) == ("account:discord/Ada", "Ada on Discord is off.")
    assert condition.why == "The platform rejects the token: set a valid one."


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"stuck_turns_since": NOW - timedelta(minutes=6)}, "bad A message has been in progress for 6 min."),
        (
            {"stuck_parts_since": NOW - timedelta(minutes=2)},
            "bad A part of a reply has been waiting to be sent for 2 min.",
        ),
        ({"items": OpenItems(parked=Backlog(2, NOW))}, "warn 2 messages are parked."),
        ({"poisoned": 1}, "warn 1 message was abandoned today: the bot crashed on it repeatedly."),
        ({"failed_tasks": 1}, "warn 1 task has failed too often and is no longer run."),
        ({"failed_backup": "the disk is full"}, "bad The last scheduled backup failed."),
        ({"process": ProcessHealth(ends={"The key": NOW + timedelta(days=13)})}, "warn The key expires in 13 days."),
        ({"platforms": {"x": "no such key"}}, "bad X is off."),
        ({"process": ProcessHealth(ends={"The key": NOW})}, "bad The key has expired."),
        ({"plugins": {"knowledge": "no such folder"}}, "warn The plugin knowledge is off."),
    ],
)
def test_each_condition_says_what_it_is(change: dict[str, object], text: str) -> None:
    assert texts(replace(WELL, **change)) == [text]  # type: ignore[arg-type]  # values of different fields
    [condition] = find_conditions(replace(WELL, **change))  # type: ignore[arg-type]  # the same
    assert condition.why.endswith(".")


def test_referrals_to_help_are_counted_by_day() -> None:
    assert texts(replace(WELL, referrals=1)) == ["warn 1 person was referred to help today."]
    [condition] = find_conditions(replace(WELL, referrals=2))
    assert (condition.key, condition.text, condition.count) == (
        "care:2026-05-04",
        "2 people were referred to help today.",
        2,
    )


async def test_a_take_over_older_than_the_reminder_is_reported_until_it_is_given_back() -> None:
    async with running_agent(settings={"TAKE_OVER_REMINDER": "3"}) as harness:
        handle, store = harness.agent_runtime.handle, harness.agent.store
        room_id, now = derived_id("room"), harness.agent.clock()
        await store.take_overs.begin(TakeOver(room_id, "Mia", "a test", now - timedelta(hours=2)))
        assert keys(await read_situation([handle], now)) == []
        later = await read_situation([handle], now + timedelta(hours=2))
        assert keys(later) == ["take_over"]
        await store.take_overs.end(room_id, None, now)
        assert keys(await read_situation([handle], now + timedelta(hours=2))) == []
