"""What needs attention: the sentence that says whether all is well, and the problems, worst first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from adapters.web.schemas import ResponseModel
from bot.platform import ConnectionState, DisconnectCause
from bot.store import Backlog, OpenItems, StoreProblem, TaskBacklog

PAGE_PLATFORM = "web"
PLATFORM_NAMES = {"telegram": "Telegram", "discord": "Discord", "x": "X", PAGE_PLATFORM: "The page and the API"}
CAUSE_TEXTS = {
    DisconnectCause.DNS: "the address of the platform is not found: check the network",
    DisconnectCause.TLS: "the platform's certificate is refused: check the clock, the proxy and the CA file",
    DisconnectCause.PROXY: "the proxy refuses the connection",
    DisconnectCause.UNREACHABLE: "the platform cannot be reached: check the network",
    DisconnectCause.TIMEOUT: "the platform does not answer in time",
    DisconnectCause.LIMITED: "the platform asks for a pause",
    DisconnectCause.REFUSED: "the platform refuses the token: set a valid one",
    DisconnectCause.FORBIDDEN: "the platform does not permit what is asked with this token: the log says what to do",
    DisconnectCause.CONTESTED: "another program uses the same token: stop it, or use another token",
    DisconnectCause.WEBHOOK: "the platform cannot deliver to the webhook",
    DisconnectCause.SWITCHED_OFF: "reading is switched off",
    DisconnectCause.PLATFORM: "the platform reports an error of its own",
    DisconnectCause.FAULT: "the adapter has failed: the log has the error",
}
STORE_TEXTS = {
    "db_full": "the disk is full",
    "db_locked": "another program locks the database",
    "db_read_only": "the database is read-only",
    "db_damaged": "the database is damaged",
    "db_unreachable": "the database cannot be reached",
    "db_slow": "the database does not answer in time",
}
STATE_TEXTS = {
    ConnectionState.CONNECTING: "connecting",
    ConnectionState.DEGRADED: "cut off",
    ConnectionState.OFF: "off",
}


class HalfHour(ResponseModel):
    """The worst state of an account in half an hour, and its cause; `unknown` before the bot was started."""

    state: Literal["connected", "connecting", "degraded", "off", "unknown"]
    cause: DisconnectCause | None = None


class AccountBody(ResponseModel):
    """An account on a platform, and how it is connected; `agent_id` is null for one that all agents share.

    `account` is its name on the platform, empty until it is known. `why` says what `cause` means. `since` is when the
    state last changed. The next message is late `late_since` a time, three times `usual_gap_s` after the last one and
    at least ten minutes; the gap is the mean number of seconds between two messages at this hour of the last seven
    days. `history` has the last 48 half hours, the current one last; it is known since the start of the bot.
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

    @property
    def label(self) -> str:
        """The account's name in a sentence."""
        platform = PLATFORM_NAMES.get(self.platform, self.platform)
        return platform if self.agent_id is None else f"{self.name} on {platform}"


class ModelBody(ResponseModel):
    """A model, what it is used for, and how it has answered since the start of the bot.

    One that `rests` after repeated failures is not called before `rests_until`; `why` is the last failure, and
    `replaced_by` the model that is called instead. One `fails` if its last two calls have failed. `agents` are the
    names of the characters that use it. `unused` ones have not answered yet. `usd` is what the model has
    cost today (in UTC), null where no price is known.
    """

    name: str
    provider: str
    agents: Sequence[str] = ()
    work: list[str]
    state: Literal["answers", "rests", "fails", "unused"]
    rests_until: datetime | None
    why: str
    replaced_by: str
    calls: int
    failed: int
    p50_ms: int | None
    usd: float | None


class ProblemBody(ResponseModel):
    """Something that needs attention; `href` is the page below the server's base where it can be solved."""

    kind: Literal["store", "account", "budget", "model", "plugin", "held", "failed", "late", "tasks"]
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


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known about the bot at one moment; dollars are those of today.

    `plugins` says why plugins of the characters are off, by name. `example_id` is the last receipt of a message that
    no model answered.
    `budgets` has what each character has spent, and its limit, by name.
    """

    now: datetime
    store_problem: StoreProblem | None
    accounts: Sequence[AccountBody]
    items: OpenItems
    tasks: TaskBacklog
    models: Sequence[ModelBody]
    spent: float
    limit: float
    plugins: Mapping[str, str] = field(default_factory=dict)
    example_id: UUID | None = None
    budgets: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def find_problems(situation: Situation) -> list[ProblemBody]:
    """Return what needs attention, worst first."""
    problems = [*_find_store_problem(situation), *_find_account_problems(situation), *_find_budget_problem(situation)]
    problems += [*_find_model_problems(situation), *_find_plugin_problems(situation)]
    problems += [*_find_delivery_problems(situation), *_find_late(situation)]
    return sorted(problems, key=lambda problem: problem.level != "bad")


def build_headline(situation: Situation, problems: Sequence[ProblemBody]) -> HeadlineBody:
    """Return the worst of the four headlines."""
    summary = build_summary(situation)
    if situation.store_problem is not None:
        return HeadlineBody(level="bad", text=_store_text(situation.store_problem), summary=summary)
    platforms = [account for account in situation.accounts if account.platform != PAGE_PLATFORM]
    if platforms and not any(account.state is ConnectionState.CONNECTED for account in platforms):
        return HeadlineBody(level="bad", text="Not connected to any platform", summary=summary)
    if problems:
        things = "1 thing needs" if len(problems) == 1 else f"{len(problems)} things need"
        return HeadlineBody(level="warn", text=f"Running; {things} attention", summary=summary)
    return HeadlineBody(level="good", text="All is well", summary=summary)


def build_summary(situation: Situation) -> str:
    """Return the accounts, open work and costs in a sentence each."""
    accounts, items = situation.accounts, situation.items
    connected = sum(account.state is ConnectionState.CONNECTED for account in accounts)
    parts = [f"{connected} of {len(accounts)} account{'' if len(accounts) == 1 else 's'} connected"]
    others = [account for account in accounts if account.state is not ConnectionState.CONNECTED]
    parts += [f"{account.label} is {_state_text(account)}" for account in others[:2]]
    turns = items.turns.count
    parts.append(f"{turns} open turn{'' if turns == 1 else 's'}" if turns else "no open turn")
    limit = f" of {format_dollars(situation.limit)}" if situation.limit else ""
    return f"{', '.join(parts)}. {format_dollars(situation.spent)}{limit} spent today."


def format_dollars(amount: float) -> str:
    """Return an amount with two digits, four where it is less than ten cents."""
    if 0 < amount < 0.0001:
        return "< $0.0001"
    return "$0" if not amount else f"${amount:.4f}" if amount < 0.1 else f"${amount:,.2f}"


def format_seconds(seconds: float) -> str:
    """Return a length of time in its two largest units."""
    minutes, hours = round(seconds / 60), seconds / 3600
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"


def _state_text(account: AccountBody) -> str:
    return "rate limited" if account.cause is DisconnectCause.LIMITED else STATE_TEXTS[account.state]


def _store_text(problem: StoreProblem) -> str:
    return f"No messages are taken in: {STORE_TEXTS.get(problem.cause, problem.message)}"


def _find_store_problem(situation: Situation) -> Iterator[ProblemBody]:
    if (problem := situation.store_problem) is not None:
        yield ProblemBody(
            kind="store",
            level="bad",
            text=f"{_store_text(problem)}.",
            why=problem.message,
            since=problem.since,
            count=1,
            href="console/doctor",
            action="Open Doctor",
        )


def _find_account_problems(situation: Situation) -> Iterator[ProblemBody]:
    for account in situation.accounts:
        if account.state not in (ConnectionState.OFF, ConnectionState.DEGRADED):
            continue
        yield ProblemBody(
            kind="account",
            level="bad" if account.state is ConnectionState.OFF else "warn",
            text=f"{account.label} is {_state_text(account)}.",
            why=f"{account.why[:1].upper()}{account.why[1:]}." if account.why else "",
            since=account.since,
            count=1,
            href="console/logs" if account.state is ConnectionState.DEGRADED else "console/doctor",
            action="See the log" if account.state is ConnectionState.DEGRADED else "Open Doctor",
        )


def _find_budget_problem(situation: Situation) -> Iterator[ProblemBody]:
    budgets = [("", situation.spent, situation.limit)]
    if len(situation.budgets) > 1:
        budgets = [(f" for {name}", *budget) for name, budget in situation.budgets.items()]
    for whose, spent, limit in budgets:
        if not limit or spent < limit:
            continue
        yield ProblemBody(
            kind="budget",
            level="bad",
            text=f"Today's limit of {format_dollars(limit)}{whose} is spent.",
            why="Messages are not answered before midnight UTC, or until the limit is raised.",
            since=None,
            count=1,
            href="console/costs",
            action="See costs",
        )


def _find_model_problems(situation: Situation) -> Iterator[ProblemBody]:
    for model in situation.models:
        if model.state not in ("rests", "fails"):
            continue
        instead = f"{model.replaced_by} replaces it." if model.replaced_by else "No other model replaces it."
        yield ProblemBody(
            kind="model",
            level="warn" if model.replaced_by else "bad",
            text=f"{model.name} {'is resting after repeated failures' if model.rests_until else 'fails'}.",
            why=f"{model.why.rstrip('.')}. {instead}{_used_by(model, situation)}",
            since=None,
            count=model.failed,
            href="console/logs" if situation.example_id is None else f"console/receipts/{situation.example_id}",
            action="See the log" if situation.example_id is None else "See one",
        )


def _find_plugin_problems(situation: Situation) -> Iterator[ProblemBody]:
    for name, cause in sorted(situation.plugins.items()):
        yield ProblemBody(
            kind="plugin",
            level="warn",
            text=f"The plugin {name} is off.",
            why=f"{cause[:1].upper()}{cause[1:].rstrip('.')}.",
            since=None,
            count=1,
            href="console/plugins",
            action="See plugins",
        )


def _used_by(model: ModelBody, situation: Situation) -> str:
    """Return whose model it is, where there are several characters."""
    names = {name for item in situation.models for name in item.agents}
    return f" Used by {', '.join(model.agents)}." if len(names) > 1 else ""


def _find_delivery_problems(situation: Situation) -> Iterator[ProblemBody]:
    held, failed = situation.items.held, situation.items.failed
    if held.count:
        are = "1 part of a reply is" if held.count == 1 else f"{held.count} parts of replies are"
        yield ProblemBody(
            kind="held",
            level="warn",
            text=f"{are} held.",
            why="It is unknown whether they arrived. Check the room, then send or drop them.",
            since=held.oldest_at,
            count=held.count,
            href="console/deliveries?state=held",
            action="Decide",
        )
    if failed.count:
        parts = "1 part of a reply" if failed.count == 1 else f"{failed.count} parts of replies"
        yield ProblemBody(
            kind="failed",
            level="warn",
            text=f"{parts} could not be sent.",
            why="The platform refused; the reason stands beside each.",
            since=failed.oldest_at,
            count=failed.count,
            href="console/deliveries?state=failed",
            action="Look",
        )


def _find_late(situation: Situation) -> Iterator[ProblemBody]:
    for account in situation.accounts:
        if account.late_since is None or account.usual_gap_s is None or account.state is not ConnectionState.CONNECTED:
            continue
        silence = situation.now - (account.last_in_at or account.since)
        usual = format_seconds(account.usual_gap_s)
        yield ProblemBody(
            kind="late",
            level="warn",
            text=f"Nothing came in from {account.label} for {format_seconds(silence / timedelta(seconds=1))}.",
            why=f"At this hour a message usually comes every {usual}. Write to it from there, to see whether it hears.",
            since=account.late_since,
            count=1,
            href="console/doctor",
            action="Open Doctor",
        )
    late: Backlog = situation.tasks.late
    if late.count:
        yield ProblemBody(
            kind="tasks",
            level="warn",
            text=f"{'1 task is' if late.count == 1 else f'{late.count} tasks are'} late.",
            why="They are due and have not been run.",
            since=late.oldest_at,
            count=late.count,
            href="console/tasks",
            action="See tasks",
        )
