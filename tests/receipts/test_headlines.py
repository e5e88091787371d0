"""The sentence about an outcome, and the checks that led to it."""

import inspect
import re
from datetime import UTC, datetime
from uuid import UUID

import pytest

from bot.domain.ledger import EventKey, Outcome, Receipt, Rule
from bot.pipeline import should_respond
from bot.receipts import GATE_RULES, LIMITS, describe_receipt, list_checks

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ID = UUID(int=1)


def receipt(outcome: Outcome, rule: str, reason: str = "") -> Receipt:
    key = EventKey("console", "a", "e", ID, "m")
    return Receipt(ID, key, ID, ID, ID, NOON, outcome=outcome, rule=rule, reason=reason)


SENTENCES = [
    (Outcome.ANSWERED, "room type DM", "", "Answered: it was a direct message"),
    (Outcome.ANSWERED, "room type API", "", "Answered: it came by the HTTP API, where every message is answered"),
    (Outcome.ANSWERED, "room type SELF", "", "Answered: it was written in a room of Marlo alone"),
    (Outcome.ANSWERED, Rule.MENTION, "", "Answered: Marlo was mentioned"),
    (Outcome.ANSWERED, Rule.REPLY, "", "Answered: it was a reply to Marlo"),
    (Outcome.ANSWERED, Rule.NAME_CALLED, "", "Answered: Marlo was called by name"),
    (Outcome.ANSWERED, Rule.DECIDED_RESPOND, "Bob said 1234", "Answered: the model decided that Marlo was addressed"),
    (Outcome.IGNORED, Rule.DECIDED_IGNORE, "x", "Stayed silent: the model decided that Marlo was not addressed"),
    (Outcome.IGNORED, Rule.CHOSE_SILENCE, "x", "Stayed silent: Marlo chose not to answer"),
    (Outcome.IGNORED, Rule.MUTED, "", "Stayed silent: the room is muted"),
    (Outcome.IGNORED, "MESSAGES_PER_PERSON", "", "Stayed silent: too many messages from one person in a minute"),
    (
        Outcome.IGNORED,
        "BUDGET_USD",
        "the budget is used up: $8 a day in all",
        "Stayed silent: today's limit of $8.00 is used up",
    ),
    (
        Outcome.IGNORED,
        "BUDGET_TOKENS_PER_ROOM",
        "the budget is used up: 20,000 tokens a day for this room",
        "Stayed silent: today's limit of 20,000 tokens is used up",
    ),
    (Outcome.IGNORED, Rule.RESPOND_TO_BOTS, "", "Stayed silent: another bot wrote it"),
    (Outcome.IGNORED, Rule.REPETITION, "", "Stayed silent: the answer would have repeated earlier ones"),
    (
        Outcome.IGNORED,
        "DISCORD_CHANNELS",
        "DISCORD_CHANNELS forbids answering here",
        "Stayed silent: DISCORD_CHANNELS forbids answering here",
    ),
    (Outcome.SUPERSEDED, Rule.LATEST_RESPONSE, "x", "Handled together with a later message"),
    (Outcome.SUPERSEDED, Rule.EDITED, "x", "Replaced: the message was edited"),
    (Outcome.CANCELLED, "stopped", "x", "Stopped by the author while it was being written"),
    (Outcome.CANCELLED, Rule.REMOVED, "x", "Cancelled: the message was deleted"),
    (Outcome.FAILED, "ModelUnavailable", "key sk-fake-000", "Failed: no model answered"),
    (Outcome.FAILED, Rule.RESPONSE_TIMEOUT, "x", "Failed: it took too long"),
    (Outcome.FAILED, "SomeError", "key sk-fake-000", "Failed: the model or a part of the bot failed"),
    (Outcome.EXPIRED, Rule.RESTART, "x", "Not answered: it was more than 15 minutes old after a restart"),
    (Outcome.PARKED, "restore", "x", "Parked: restored from a backup"),
    (Outcome.CLAIMED, "", "", "Answering"),
    (Outcome.RECEIVED, "", "", "Not started yet"),
]


@pytest.mark.parametrize(("outcome", "rule", "reason", "sentence"), SENTENCES)
def test_every_outcome_is_reported_in_a_single_sentence(
    outcome: Outcome, rule: str, reason: str, sentence: str
) -> None:
    assert describe_receipt(receipt(outcome, rule, reason), "Marlo") == sentence


@pytest.mark.parametrize("outcome", list(Outcome))
def test_no_outcome_and_rule_is_without_a_sentence(outcome: Outcome) -> None:
    for rule in ("", "anything", *Rule):
        assert describe_receipt(receipt(outcome, rule), "Marlo").strip(), rule
        list_checks(receipt(outcome, rule), "Marlo")


def test_the_checks_end_with_the_check_that_decided() -> None:
    checks = list_checks(receipt(Outcome.ANSWERED, Rule.MENTION), "Marlo")
    assert [check.is_deciding for check in checks] == [False] * (len(checks) - 1) + [True]
    assert (checks[-1].check, checks[-1].result) == ("Mentioned or replied to", "named")
    assert ("Daily budget", "within the limit") in [(check.check, check.result) for check in checks]


def test_the_checks_of_a_failed_turn_are_those_that_its_turn_recorded() -> None:
    failed = receipt(Outcome.FAILED, "ModelUnavailable")
    assert list_checks(failed, "Marlo") == []
    assert list_checks(failed, "Marlo", "room type DM")[-1].result == "direct message"
    assert list_checks(failed, "Marlo", "room type API")[-1].result == "room of the HTTP API"


def test_a_rule_of_a_platform_decides_under_its_own_name() -> None:
    checks = list_checks(receipt(Outcome.IGNORED, "DISCORD_CHANNELS"), "Marlo")
    assert (checks[-1].check, checks[-1].result) == ("Excluded by a rule of the platform", "DISCORD_CHANNELS")


def test_every_rule_of_the_gate_belongs_to_a_check() -> None:
    source = inspect.getsource(should_respond)
    named = {Rule[name] for name in re.findall(r"ResponseDecision\([^)]*?Rule\.([A-Z_]+)", source)}
    assert {Rule.MENTION, Rule.MUTED, Rule.FOLLOWED} <= named
    assert named - GATE_RULES.keys() == {Rule.RESTART, Rule.REGENERATED}
    assert GATE_RULES.keys() >= LIMITS
