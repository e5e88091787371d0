"""The sentence that tells the outcome of a message, and the checks that led to it; made from its receipt alone."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bot.domain.environment import ChannelType
from bot.domain.ledger import Outcome, Receipt, Rule
from bot.user_texts import user_text

# The texts of rules, below `receipt` in the catalogue. The reason of any other rule is told in its own words,
# unless a model wrote it or it is that of a failure: those may quote other people or name what is private.
CAUSES: Mapping[Outcome, Mapping[str, str]] = MappingProxyType(
    {
        Outcome.ANSWERED: {
            Rule.MENTION: "mention",
            Rule.REPLY: "reply",
            Rule.NAME_CALLED: "name_called",
            Rule.FOLLOWED: "followed",
            Rule.BYPASS_TYPES: "room_type",
            Rule.BYPASS_SOURCES: "source",
            Rule.DECIDED_RESPOND: "decided_respond",
            Rule.RESTART: "resumed",
            Rule.REGENERATED: "regenerated",
        },
        Outcome.IGNORED: {
            Rule.OWN_MESSAGE: "own_message",
            Rule.EMPTY_MESSAGE: "empty",
            Rule.EDITED: "unchanged_edit",
            Rule.RESPOND_TO_BOTS: "bot",
            Rule.MUTED: "muted",
            Rule.PERSON_MUTED: "person_muted",
            Rule.CANNOT_SEND: "cannot_send",
            Rule.DECIDED_IGNORE: "decided_ignore",
            Rule.DECIDED_NONE: "decided_ignore",
            Rule.DECIDED_STOP: "decided_stop",
            Rule.DECISION_UNREADABLE: "decision_unreadable",
            Rule.CHOSE_SILENCE: "chose_silence",
            Rule.REPETITION: "repetition",
            "MESSAGES_PER_PERSON": "limit_person",
            "MESSAGES_PER_ROOM": "limit_room",
            "MESSAGES_PER_WORLD": "limit_world",
        },
        Outcome.FAILED: {
            Rule.RESPONSE_TIMEOUT: "timeout",
            Rule.DECISION_FAILED: "no_decision",
            Rule.RESTART: "deaths",
            Rule.INTERNAL_ERROR: "internal_error",
            "ModelUnavailable": "no_model",
            "ModelBusy": "no_model",
            "ModelRefused": "refused",
            "PromptTooLong": "too_long",
            "NoAnswer": "no_answer",
        },
        Outcome.CANCELLED: {Rule.REMOVED: "removed", Rule.ERASED: "erased", Rule.EDITED: "edited"},
        Outcome.EXPIRED: {Rule.RESTART: "too_old", Rule.BACKFILL: "was_offline", Rule.EDITED: "old_edit"},
        Outcome.PARKED: {"restore": "parked"},
    }
)
STOPPED_RULE = "stopped"
COMMAND_RULE = "a command"  # of a message that a command has answered already
DIRECT_RULES = frozenset(f"room type {kind}" for kind in ChannelType)
BUDGETS = frozenset(f"BUDGET_{unit}{scope}" for unit in ("USD", "TOKENS") for scope in ("", "_PER_ROOM", "_PER_PERSON"))
AMOUNT = re.compile(r"(?:\$([0-9.]+(?:e[+-]?[0-9]+)?)|([0-9,]+ tokens)) a day")  # as a limit writes itself
LIMITS = frozenset({"MESSAGES_PER_PERSON", "MESSAGES_PER_ROOM", "MESSAGES_PER_WORLD"})
COMMAND_SENTENCES: Mapping[tuple[Outcome, str], str] = MappingProxyType(
    {
        (Outcome.ANSWERED, Rule.COMMAND): "answered",
        (Outcome.IGNORED, Rule.COMMAND): "ignored",
        (Outcome.FAILED, Rule.COMMAND): "failed",
        (Outcome.FAILED, Rule.COMMAND_INTERRUPTED): "interrupted",
    }
)
# Sentences that do not begin as others of their outcome do.
SENTENCES: Mapping[tuple[Outcome, str], str] = MappingProxyType(
    {
        (Outcome.SUPERSEDED, Rule.EDITED): "replaced",
        (Outcome.CANCELLED, STOPPED_RULE): "stopped",
        (Outcome.IGNORED, COMMAND_RULE): "command",
    }
)


def describe_receipt(receipt: Receipt, agent_name: str) -> str:
    """Return one sentence about the outcome of a message, without a full stop; it may be shown in its room."""
    if (name := COMMAND_SENTENCES.get((receipt.outcome, receipt.rule))) is not None:
        return user_text(f"receipt.command.{name}", command=receipt.reason)
    sentence = SENTENCES.get((receipt.outcome, receipt.rule))
    if sentence is not None:
        return user_text(f"receipt.sentence.{sentence}")
    opening = user_text(f"receipt.opening.{receipt.outcome}")
    cause = _describe_cause(receipt, agent_name)
    return f"{opening}: {cause}" if cause else opening


def _describe_cause(receipt: Receipt, agent_name: str) -> str:
    if receipt.outcome is Outcome.SUPERSEDED or not receipt.outcome.is_final:
        return ""
    if receipt.rule in DIRECT_RULES:
        return user_text("receipt.cause.direct")
    if receipt.rule in BUDGETS and (amount := _spent_amount(receipt.reason)):
        return user_text("receipt.cause.budget", amount=amount)
    key = CAUSES.get(receipt.outcome, {}).get(receipt.rule)
    if key is not None:
        return user_text(f"receipt.cause.{key}", name=agent_name)
    if receipt.outcome is Outcome.FAILED:
        return user_text("receipt.cause.failure")
    if receipt.is_reason_generated:
        return user_text("receipt.cause.model_decision")
    return receipt.reason.rstrip(".")


def _spent_amount(reason: str) -> str:
    """Return the daily limit that a reason names, dollars with cents; empty if it names none."""
    match = AMOUNT.search(reason)
    if match is None:
        return ""
    dollars, tokens = match.groups()
    return f"${float(dollars):,.2f}" if dollars else str(tokens)


@dataclass(frozen=True, slots=True)
class GateCheck:
    """One check of whether to answer: what it looks at, what it found, and whether it decided."""

    check: str
    result: str
    is_deciding: bool = False


PLATFORM_CHECK = "platform"
# In the order in which `should_respond` makes them: the name of each check, and the rules that it decides by, each
# with the name of its result below `receipt.result` in the catalogue.
CHECKS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("own_message", {Rule.OWN_MESSAGE: "yes"}),
    ("late_edit", {Rule.ON_EDIT: "yes"}),
    (PLATFORM_CHECK, {}),
    ("empty", {Rule.EMPTY_MESSAGE: "yes"}),
    ("bot", {Rule.RESPOND_TO_BOTS: "yes"}),
    ("muted", {Rule.MUTED: "muted", Rule.PERSON_MUTED: "person"}),
    ("sending", {Rule.CANNOT_SEND: "waits"}),
    ("budget", dict.fromkeys(BUDGETS, "spent")),
    ("limits", dict.fromkeys(LIMITS, "exceeded")),
    ("room_type", {Rule.BYPASS_TYPES: "listed", **dict.fromkeys(DIRECT_RULES, "direct")}),
    ("source", {Rule.BYPASS_SOURCES: "listed"}),
    ("addressed", {Rule.MENTION: "mentioned", Rule.REPLY: "replied", Rule.NAME_CALLED: "called"}),
    ("followed", {Rule.FOLLOWED: "yes"}),
    ("talk", {Rule.ADDRESSED: "meant", Rule.NOT_ADDRESSED: "not_meant"}),
    (
        "model",
        {
            Rule.DECIDED_RESPOND: "respond",
            Rule.DECIDED_IGNORE: "ignore",
            Rule.DECIDED_NONE: "ignore",
            Rule.DECIDED_STOP: "stop",
            Rule.DECISION_UNREADABLE: "unreadable",
            Rule.DECISION_FAILED: "no_answer",
        },
    ),
)
PASSED = MappingProxyType({"budget": "within", "limits": "within", "talk": "unclear"})  # all others pass as "no"
GATE_RULES: Mapping[str, str] = MappingProxyType({rule: name for name, rules in CHECKS for rule in rules})
# Rules of silence that apply once it was decided to answer.
LATER_RULES = frozenset({Rule.CHOSE_SILENCE, Rule.REPETITION, Rule.EDITED})


def list_checks(receipt: Receipt, agent_name: str, gate_rule: str = "") -> list[GateCheck]:
    """Return the checks of whether to answer a message in their order, up to the one that decided.

    `gate_rule` is the rule that decided whether to answer, where the turn recorded it: the receipt's own may be that
    of something later. Empty where it is not known, or no check was made.
    """
    rule = gate_rule or receipt.rule
    deciding = GATE_RULES.get(rule, "")
    if not deciding and receipt.outcome is Outcome.IGNORED and rule not in LATER_RULES:
        deciding = PLATFORM_CHECK  # its rules have the names that the adapter chose
    if not deciding:
        return []
    checks = []
    for name, rules in CHECKS:
        label = user_text(f"receipt.check.{name}", name=agent_name)
        if name == deciding:
            result = user_text(f"receipt.result.{rules[rule]}") if rule in rules else rule
            checks.append(GateCheck(label, result, is_deciding=True))
            break
        checks.append(GateCheck(label, user_text(f"receipt.result.{PASSED.get(name, 'no')}")))
    return checks
