"""What needs attention, as the page shows it: the sentence that says whether all is well, and the problems."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from adapters.web.schemas import ResponseModel
from bot.platform import (
    AccountSituation,
    Condition,
    ConditionKind,
    ConditionLevel,
    ConnectionSnapshot,
    ConnectionState,
    DisconnectCause,
    ModelSituation,
    Situation,
    format_dollars,
    store_text,
)

PAGE_PLATFORM = "web"
SEE_LOG, OPEN_DOCTOR = ("console/logs", "See the log"), ("console/doctor", "Open Doctor")
# Where each can be solved, below the server's base, and what the link to it says.
PLACES = {
    ConditionKind.STORE: OPEN_DOCTOR,
    ConditionKind.DEAF: SEE_LOG,
    ConditionKind.BUDGET: ("console/costs", "See costs"),
    ConditionKind.MODEL: SEE_LOG,
    ConditionKind.PLUGIN: ("console/plugins", "See plugins"),
    ConditionKind.HELD: ("console/deliveries?state=held", "Decide"),
    ConditionKind.FAILED: ("console/deliveries?state=failed", "Look"),
    ConditionKind.POISONED: ("console/receipts?outcome=failed", "See them"),
    ConditionKind.PARKED: ("console/receipts?outcome=parked", "See them"),
    ConditionKind.LATE: OPEN_DOCTOR,
    ConditionKind.TASKS: ("console/tasks", "See tasks"),
    ConditionKind.LAG: SEE_LOG,
    ConditionKind.BACKUP: SEE_LOG,
}
STUCK_PLACES = {"turns": ("console/receipts?outcome=claimed", "See it"), "parts": ("console/deliveries", "Look")}


class HalfHour(ResponseModel):
    """The worst state of an account in half an hour, and its cause; `unknown` before the bot was started."""

    state: Literal["connected", "connecting", "degraded", "off", "unknown"]
    cause: DisconnectCause | None = None


class AccountBody(ResponseModel):
    """An account on a platform, and how it is connected; `agent_id` is null for one that all agents share.

    `account` is its name on the platform, empty until it is known. `why` says what `cause` means. `since` is when the
    state last changed. The next message is late `late_since` a time, at which on each of the last seven days eight
    would have come in since the last one, at least ten minutes after it; `usual_gap_s` is the mean number of seconds
    between two messages at this hour of these days. `history` has the last 48 half hours, the current one last; it is
    known since the start of the bot.
    """

    platform: str
    name: str
    account: str
    agent_id: UUID | None
    state: ConnectionState
    cause: DisconnectCause | None
    why: str
    since: datetime
    last_in_at: datetime | None
    last_out_at: datetime | None
    late_since: datetime | None
    usual_gap_s: float | None
    history: list[HalfHour]


class ModelBody(ModelSituation):
    """A model, as the API names it."""


class ProblemBody(ResponseModel):
    """Something that needs attention; `href` is the page below the server's base where it can be solved.

    `key` tells it from others as long as it lasts.
    """

    key: str
    kind: ConditionKind
    level: Literal["bad", "warn"]
    text: str
    why: str
    since: datetime | None
    count: int
    href: str
    action: str


class HeadlineBody(ResponseModel):
    """Whether all is well, in one sentence, and a second one with figures."""

    level: Literal["good", "warn", "bad"]
    text: str
    summary: str


def build_problem(condition: Condition) -> ProblemBody:
    """Return a condition with the place where it can be solved."""
    href, action = _place_of(condition)
    return ProblemBody.build(condition, href=href, action=action)


def build_headline(situation: Situation, problems: Sequence[object]) -> HeadlineBody:
    """Return the worst of the five headlines."""
    summary = build_summary(situation)
    if situation.store_problem is not None:
        return HeadlineBody(level="bad", text=store_text(situation.store_problem), summary=summary)
    platforms = [account for account in situation.accounts if account.platform != PAGE_PLATFORM]
    if platforms and not any(account.state is ConnectionState.CONNECTED for account in platforms):
        return HeadlineBody(level="bad", text="Not connected to any platform", summary=summary)
    if problems:
        things = "1 thing needs" if len(problems) == 1 else f"{len(problems)} things need"
        return HeadlineBody(level="warn", text=f"Running; {things} attention", summary=summary)
    absent = [account for account in situation.accounts if account.state is not ConnectionState.CONNECTED]
    if absent:  # for moments, at the start: what lasts is a problem
        text = f"Running; {absent[0].label} is {absent[0].state_text}"
        return HeadlineBody(level="warn", text=text, summary=summary)
    return HeadlineBody(level="good", text="All is well", summary=summary)


def build_summary(situation: Situation) -> str:
    """Return the accounts, open work and costs in a sentence each."""
    accounts, items = situation.accounts, situation.items
    connected = sum(account.state is ConnectionState.CONNECTED for account in accounts)
    parts = [f"{connected} of {len(accounts)} account{'' if len(accounts) == 1 else 's'} connected"]
    others = [account for account in accounts if account.state is not ConnectionState.CONNECTED]
    parts += [f"{account.label} is {account.state_text}" for account in others[:2]]
    turns = items.turns.count
    parts.append(f"{turns} open turn{'' if turns == 1 else 's'}" if turns else "no open turn")
    limit = f" of {format_dollars(situation.limit)}" if situation.limit else ""
    return f"{', '.join(parts)}. {format_dollars(situation.spent)}{limit} spent today."


def build_account(account: AccountSituation, history: Sequence[ConnectionSnapshot | None]) -> AccountBody:
    """Return an account as the page shows it, with its state in each of the last half hours."""
    half_hours = [
        HalfHour(state="unknown") if item is None else HalfHour(state=item.state.value, cause=item.cause)
        for item in history
    ]
    gap = account.usual_gap
    return AccountBody.build(account, usual_gap_s=None if gap is None else gap.total_seconds(), history=half_hours)


def _place_of(condition: Condition) -> tuple[str, str]:
    if condition.kind is ConditionKind.ACCOUNT:
        return SEE_LOG if condition.level is ConditionLevel.WARN else OPEN_DOCTOR
    if condition.kind is ConditionKind.STUCK:
        return STUCK_PLACES[condition.subject]
    if condition.kind is ConditionKind.MODEL and condition.example_id is not None:
        return f"console/receipts/{condition.example_id}", "See one"
    return PLACES.get(condition.kind, OPEN_DOCTOR)
