"""Which notices follow from conditions: one when it begins, one when it is over, never a storm."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from bot.watchdog.channels import Notice, Record, group_notices, mark_notified, plan_notices
from bot.watchdog.conditions import Condition, ConditionKind, ConditionLevel

START = datetime(2026, 5, 4, 12, tzinfo=UTC)
FULL = Condition(ConditionKind.DISK, ConditionLevel.BAD, "The disk is nearly full.", "Free some space.")
CUT_OFF = Condition(ConditionKind.ACCOUNT, ConditionLevel.WARN, "Ada on Discord is cut off.", subject="discord/Ada")


def held(count: int) -> Condition:
    return Condition(ConditionKind.HELD, ConditionLevel.WARN, f"{count} parts are held.", count=count)


@dataclass
class Owner:
    """The notices when conditions are evaluated every fifteen seconds; records survive as JSON, as after a restart."""

    now: datetime = START
    reported: list[str] = field(default_factory=list)
    records: list[dict[str, object]] = field(default_factory=list)
    is_quiet: bool = False

    def watch(self, conditions: Iterable[Condition], undecided: Iterable[str] = (), **length: float) -> list[str]:
        """Evaluate for some time while these conditions last; return the notices of that time."""
        notices: list[Notice] = []
        end = self.now + timedelta(**length)
        while self.now < end:
            records = {record.key: record for record in map(Record.from_json, self.records)}
            plan = plan_notices(records, list(conditions), self.now, undecided=set(undecided), is_quiet=self.is_quiet)
            self.records = [record.to_json() for record in mark_notified(plan.records, plan.notices).values()]
            notices += plan.notices
            self.now += timedelta(seconds=15)
        return [notice.text for notice in notices]


def test_a_condition_is_reported_once_and_its_end_once() -> None:
    owner = Owner()
    assert owner.watch([FULL], hours=1) == ["The disk is nearly full. Free some space."]
    assert owner.watch([], minutes=1) == []
    assert owner.watch([], hours=1) == ["Resolved after 1 h: The disk is nearly full."]
    assert owner.watch([], hours=6) == []
    assert owner.records == []


def test_what_passes_by_itself_within_a_minute_is_not_reported() -> None:
    owner = Owner()
    assert owner.watch([CUT_OFF], seconds=30) == []
    assert owner.watch([], hours=1) == []
    assert owner.watch([CUT_OFF], seconds=75) == ["Ada on Discord is cut off."]


@pytest.mark.long
def test_a_condition_that_comes_and_goes_is_reported_less_and_less() -> None:
    owner, texts = Owner(), list[str]()
    for _ in range(60):
        texts += owner.watch([CUT_OFF], minutes=5)
        texts += owner.watch([], minutes=5)
    assert texts[0] == "Ada on Discord is cut off."
    assert len(texts) <= 8
    flickering = Owner()
    texts = [
        text for _ in range(60) for text in (*flickering.watch([CUT_OFF], minutes=1), *flickering.watch([], minutes=1))
    ]
    assert texts == ["Ada on Discord is cut off."]


def test_what_is_unknown_at_the_moment_is_not_over() -> None:
    owner = Owner()
    owner.watch([CUT_OFF], minutes=5)
    assert owner.watch([], undecided=["account:discord/Ada"], hours=1) == []
    assert owner.watch([], minutes=5) == ["Resolved after 1 h: Ada on Discord is cut off."]


def test_more_of_the_same_is_reported_once_an_hour() -> None:
    owner = Owner()
    assert owner.watch([held(2)], minutes=30) == ["2 parts are held."]
    assert owner.watch([held(3)], minutes=20) == []
    assert owner.watch([held(3)], hours=5) == ["3 parts are held."]
    assert owner.watch([held(1)], hours=2) == []
    assert owner.watch([held(2)], hours=2) == ["2 parts are held."]


def test_at_quiet_hours_only_what_still_lasts_at_their_end_is_reported() -> None:
    owner = Owner(is_quiet=True)
    assert owner.watch([FULL, CUT_OFF], hours=1) == []
    assert owner.watch([FULL], hours=1) == []
    owner.is_quiet = False
    assert owner.watch([FULL], hours=1) == ["The disk is nearly full. Free some space."]
    owner.is_quiet = True
    assert owner.watch([], hours=1) == []
    owner.is_quiet = False
    assert owner.watch([], minutes=1) == ["Resolved after 3 h: The disk is nearly full."]


def test_a_clock_that_is_set_back_delays_nothing() -> None:
    owner = Owner()
    owner.watch([CUT_OFF], seconds=30)
    owner.now -= timedelta(hours=2)
    assert owner.watch([CUT_OFF], minutes=2) == ["Ada on Discord is cut off."]
    owner.now -= timedelta(hours=2)
    assert len(owner.watch([], minutes=3)) == 1


def test_many_notices_are_a_single_message_and_many_messages_wait() -> None:
    conditions = [
        Condition(ConditionKind.PLUGIN, ConditionLevel.WARN, f"Plugin {number} is off.", subject=str(number))
        for number in range(8)
    ]
    notices = plan_notices({}, conditions, START).notices
    assert len(notices) == 8
    assert [len(group) for group in group_notices(notices, [], START)] == [8]
    assert [len(group) for group in group_notices(notices[:3], [], START)] == [1, 1, 1]
    assert group_notices(notices, [START] * 6, START) == []
    assert len(group_notices(notices, [START] * 6, START + timedelta(minutes=10))) == 1
    later = [START + timedelta(hours=1)] * 6  # the clock was set back
    assert len(group_notices(notices, later, START)) == 1


def referred(count: int) -> Condition:
    text = f"{count} people were referred to help today."
    return Condition(ConditionKind.CARE, ConditionLevel.WARN, text, subject="2026-05-04", count=count)


@pytest.mark.long
def test_referrals_to_help_are_reported_at_once_then_once_an_hour_and_are_never_over() -> None:
    owner = Owner()
    assert owner.watch([referred(1)], minutes=1) == ["1 people were referred to help today."]
    assert owner.watch([referred(3)], hours=2) == ["3 people were referred to help today."]
    assert owner.watch([], days=8) == []
    assert owner.records == []
