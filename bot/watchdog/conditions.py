"""What needs attention: `find_conditions` returns it of a `Situation`, worst first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from bot.adapter.connection_status import ConnectionState, DisconnectCause
from bot.concurrency.process_health import ProcessHealth
from bot.store.activity import OpenItems, TaskBacklog
from bot.store.ledger import StoreProblem
from bot.user_texts import LANGUAGE, load_catalogue, user_text

BUDGET_WARNING_SHARE = 0.8
TURN_TOLERANCE = timedelta(minutes=5)  # an answer that takes longer is stuck
SEND_TOLERANCE = timedelta(minutes=1)  # the same for a part of a reply on a platform that is connected
CONNECT_TOLERANCE = timedelta(minutes=1)  # of an account that is not connected for the first time, or not yet again
MIN_FREE_BYTES, MIN_FREE_SHARE = 500_000_000, 0.05  # of a disk; below both it is nearly full
MAX_LAG_SECONDS = 1.0
MAX_CLOCK_JUMP = timedelta(minutes=1)
EXPIRY_NOTICE = timedelta(days=14)


class ConditionKind(StrEnum):
    """What needs attention."""

    STORE = "store"
    ACCOUNT = "account"
    DEAF = "deaf"
    BUDGET = "budget"
    MODEL = "model"
    PLUGIN = "plugin"
    STUCK = "stuck"
    HELD = "held"
    FAILED = "failed"
    POISONED = "poisoned"
    PARKED = "parked"
    LATE = "late"
    TASKS = "tasks"
    BACKUP = "backup"
    DISK = "disk"
    CLOCK = "clock"
    LAG = "lag"
    EXPIRY = "expiry"


class ConditionLevel(StrEnum):
    """How bad it is: messages are not answered, or something should be looked at."""

    BAD = "bad"
    WARN = "warn"


class ModelState(StrEnum):
    """How a model answers: one that rests is not called for a while, one that fails has failed twice in a row."""

    ANSWERS = "answers"
    RESTS = "rests"
    FAILS = "fails"
    UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class AccountSituation:
    """An account on a platform, and how it is connected; `agent_id` is None for one that all agents share.

    `late_since` says since when a message should have come in, by `usual_gap`; `unheard_since` since when the platform
    has a message that it did not bring.
    """

    platform: str
    name: str
    state: ConnectionState
    since: datetime
    account: str = ""
    agent_id: UUID | None = None
    cause: DisconnectCause | None = None
    last_in_at: datetime | None = None
    last_out_at: datetime | None = None
    late_since: datetime | None = None
    usual_gap: timedelta | None = None
    unheard_since: datetime | None = None

    @property
    def label(self) -> str:
        """The account's name in a sentence."""
        platform = platform_name(self.platform)
        return platform if self.agent_id is None else f"{self.name} on {platform}"

    @property
    def why(self) -> str:
        """What the cause means; empty without one."""
        return user_text(f"watchdog.causes.{self.cause}") if self.cause else ""

    @property
    def state_text(self) -> str:
        """The state in a sentence."""
        return user_text(f"watchdog.states.{'limited' if self.cause is DisconnectCause.LIMITED else self.state}")


@dataclass(frozen=True, slots=True)
class ModelSituation:
    """A model, what it is used for, and how it has answered since the start of the bot.

    One that rests is not called before `rests_until`; `why` is the last failure, and `replaced_by` the model that is
    called instead. `agents` are the names of the characters that use it. `usd` is what it has cost today (in UTC),
    None where no price is known.
    """

    name: str
    provider: str
    work: tuple[str, ...]
    state: ModelState
    agents: tuple[str, ...] = ()
    rests_until: datetime | None = None
    why: str = ""
    replaced_by: str = ""
    calls: int = 0
    failed: int = 0
    p50_ms: int | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that needs attention; `subject` tells it from others of its kind, and does not change while it lasts.

    It is about `count` things, and `example_id` is the receipt of a message that shows it.
    """

    kind: ConditionKind
    level: ConditionLevel
    text: str
    why: str = ""
    subject: str = ""
    since: datetime | None = None
    count: int = 1
    example_id: UUID | None = None

    @property
    def key(self) -> str:
        """Identify the condition, also after a restart."""
        return f"{self.kind}:{self.subject}" if self.subject else self.kind.value


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known about the bots of a process at one moment; dollars are those of today.

    `plugins` says why plugins of the characters are off, by name. `example_id` is the last receipt of a message that
    no model answered. `budgets` has what each character has spent, and its limit, by name. `poisoned` is the number
    of messages of a day that were given up because the process died of them. `stuck_turns_since` and
    `stuck_parts_since` say since when the oldest of them has waited, None where none waits too long.
    `failed_backup` is why the last backup failed, empty where it did not. `platforms` says why platforms did not
    start, by name.
    """

    now: datetime
    store_problem: StoreProblem | None
    accounts: Sequence[AccountSituation]
    items: OpenItems
    tasks: TaskBacklog
    models: Sequence[ModelSituation]
    spent: float = 0.0
    limit: float = 0.0
    plugins: Mapping[str, str] = field(default_factory=dict)
    example_id: UUID | None = None
    budgets: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    poisoned: int = 0
    stuck_turns_since: datetime | None = None
    stuck_parts_since: datetime | None = None
    failed_backup: str = ""
    failed_tasks: int = 0
    platforms: Mapping[str, str] = field(default_factory=dict)
    process: ProcessHealth | None = None


def find_conditions(situation: Situation) -> list[Condition]:
    """Return what needs attention, worst first."""
    finders = (
        *(_find_store_problem, _find_accounts, _find_budgets, _find_models, _find_plugins, _find_process),
        *(_find_stuck, _find_deliveries, _find_messages, _find_late, _find_tasks, _find_backup, _find_expiries),
    )
    conditions = [condition for find in finders for condition in find(situation)]
    return sorted(conditions, key=lambda condition: condition.level is not ConditionLevel.BAD)


def platform_name(platform: str) -> str:
    """Return the name of a platform in a sentence."""
    return load_catalogue(LANGUAGE).get(f"platforms.{platform}", platform)


def store_text(problem: StoreProblem) -> str:
    """Return why nothing is taken in, in a sentence without a full stop."""
    cause = load_catalogue(LANGUAGE).get(f"watchdog.stores.{problem.cause}", problem.message)
    return user_text("watchdog.store.text", cause=cause)


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


def _count_text(name: str, count: int) -> str:
    return user_text(f"watchdog.{name}.one") if count == 1 else user_text(f"watchdog.{name}.many", count=count)


def _to_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def _find_store_problem(situation: Situation) -> Iterator[Condition]:
    if (problem := situation.store_problem) is not None:
        text = f"{store_text(problem)}."
        yield Condition(ConditionKind.STORE, ConditionLevel.BAD, text, problem.message, since=problem.since)


def _find_accounts(situation: Situation) -> Iterator[Condition]:
    for name, cause in situation.platforms.items():
        text = user_text("watchdog.platform.text", platform=platform_name(name))
        yield Condition(ConditionKind.ACCOUNT, ConditionLevel.BAD, text, _to_sentence(cause), subject=name)
    for account in situation.accounts:
        subject = f"{account.platform}/{account.name}"
        is_slow = account.state is ConnectionState.CONNECTING and situation.now - account.since > CONNECT_TOLERANCE
        if is_slow or account.state in (ConnectionState.OFF, ConnectionState.DEGRADED):
            yield Condition(
                ConditionKind.ACCOUNT,
                ConditionLevel.BAD if account.state is ConnectionState.OFF else ConditionLevel.WARN,
                user_text("watchdog.account.text", account=account.label, state=account.state_text),
                _to_sentence(account.why),
                subject=subject,
                since=account.since,
            )
        elif account.unheard_since is not None:
            yield Condition(
                ConditionKind.DEAF,
                ConditionLevel.BAD,
                user_text("watchdog.deaf.text", account=account.label),
                user_text("watchdog.deaf.why"),
                subject=subject,
                since=account.unheard_since,
            )


def _find_budgets(situation: Situation) -> Iterator[Condition]:
    budgets = [("", situation.spent, situation.limit)]
    if len(situation.budgets) > 1:
        budgets = [(name, *budget) for name, budget in situation.budgets.items()]
    for name, spent, limit in budgets:
        if not limit or spent < BUDGET_WARNING_SHARE * limit:
            continue
        values = {"limit": format_dollars(limit), "whose": f" for {name}" if name else ""}
        is_spent = spent >= limit
        yield Condition(
            ConditionKind.BUDGET,
            ConditionLevel.BAD if is_spent else ConditionLevel.WARN,
            user_text("watchdog.budget.spent", **values)
            if is_spent
            else user_text("watchdog.budget.nearly", **values, spent=format_dollars(spent)),
            user_text("watchdog.budget.why" if is_spent else "watchdog.budget.nearly_why"),
            subject=f"{name}/spent" if is_spent else name,
        )


def _find_models(situation: Situation) -> Iterator[Condition]:
    several = len({name for model in situation.models for name in model.agents}) > 1
    for model in situation.models:
        if model.state not in (ModelState.RESTS, ModelState.FAILS):
            continue
        replacement = user_text("watchdog.model.replaced", name=model.replaced_by) if model.replaced_by else ""
        parts = [f"{model.why.rstrip('.')}.", replacement or user_text("watchdog.model.not_replaced")]
        if several:
            parts.append(user_text("watchdog.model.used_by", names=", ".join(model.agents)))
        yield Condition(
            ConditionKind.MODEL,
            ConditionLevel.WARN if model.replaced_by else ConditionLevel.BAD,
            user_text("watchdog.model.rests" if model.rests_until else "watchdog.model.fails", name=model.name),
            " ".join(parts),
            subject=model.provider,
            count=model.failed,
            example_id=situation.example_id,
        )


def _find_plugins(situation: Situation) -> Iterator[Condition]:
    for name, cause in sorted(situation.plugins.items()):
        text = user_text("watchdog.plugin.text", name=name)
        yield Condition(ConditionKind.PLUGIN, ConditionLevel.WARN, text, _to_sentence(cause), subject=name)


def _find_process(situation: Situation) -> Iterator[Condition]:
    if (process := situation.process) is None:
        return
    free, size = process.free_bytes, process.disk_bytes
    if free is not None and free < MIN_FREE_BYTES and free < MIN_FREE_SHARE * size:
        text = user_text("watchdog.disk.text", free=f"{free / 1_000_000:.0f} MB")
        yield Condition(ConditionKind.DISK, ConditionLevel.BAD, text, user_text("watchdog.disk.why"))
    jump = process.clock_jump
    if jump is not None and abs(jump) > MAX_CLOCK_JUMP:
        direction = "forward" if jump > timedelta() else "back"
        length = format_seconds(abs(jump).total_seconds())
        text = user_text(f"watchdog.clock.{direction}", length=length)
        yield Condition(ConditionKind.CLOCK, ConditionLevel.WARN, text, user_text("watchdog.clock.why"))
    if process.lag_seconds > MAX_LAG_SECONDS:
        text = user_text("watchdog.lag.text", seconds=f"{process.lag_seconds:.1f}")
        yield Condition(ConditionKind.LAG, ConditionLevel.WARN, text, user_text("watchdog.lag.why"))


def _find_stuck(situation: Situation) -> Iterator[Condition]:
    stuck = {"turns": situation.stuck_turns_since, "parts": situation.stuck_parts_since}
    for name, since in stuck.items():
        if since is not None:
            text = user_text(f"watchdog.stuck.{name}", time=format_seconds((situation.now - since).total_seconds()))
            why = user_text(f"watchdog.stuck.{name}_why")
            yield Condition(ConditionKind.STUCK, ConditionLevel.BAD, text, why, subject=name, since=since)


def _find_deliveries(situation: Situation) -> Iterator[Condition]:
    for kind, items in ((ConditionKind.HELD, situation.items.held), (ConditionKind.FAILED, situation.items.failed)):
        if items.count:
            text, why = _count_text(kind, items.count), user_text(f"watchdog.{kind}.why")
            yield Condition(kind, ConditionLevel.WARN, text, why, since=items.oldest_at, count=items.count)


def _find_messages(situation: Situation) -> Iterator[Condition]:
    parked = situation.items.parked
    if parked.count:
        text, why = _count_text("parked", parked.count), user_text("watchdog.parked.why")
        yield Condition(
            ConditionKind.PARKED, ConditionLevel.WARN, text, why, since=parked.oldest_at, count=parked.count
        )
    if situation.poisoned:
        text, why = _count_text("poisoned", situation.poisoned), user_text("watchdog.poisoned.why")
        yield Condition(ConditionKind.POISONED, ConditionLevel.WARN, text, why, count=situation.poisoned)


def _find_late(situation: Situation) -> Iterator[Condition]:
    for account in situation.accounts:
        if account.late_since is None or account.state is not ConnectionState.CONNECTED:
            continue
        silence = situation.now - (account.last_in_at or account.since)
        values = {"account": account.label, "time": format_seconds(silence / timedelta(seconds=1))}
        why = user_text("watchdog.late.why_then")
        if account.usual_gap is not None:
            why = user_text("watchdog.late.why", usual=format_seconds(account.usual_gap.total_seconds()))
        yield Condition(
            ConditionKind.LATE,
            ConditionLevel.WARN,
            user_text("watchdog.late.text", **values),
            why,
            subject=f"{account.platform}/{account.name}",
            since=account.late_since,
        )


def _find_tasks(situation: Situation) -> Iterator[Condition]:
    late = situation.tasks.late
    if late.count:
        text, why = _count_text("tasks", late.count), user_text("watchdog.tasks.why")
        yield Condition(
            ConditionKind.TASKS, ConditionLevel.WARN, text, why, "late", since=late.oldest_at, count=late.count
        )
    if situation.failed_tasks:
        text, why = _count_text("failed_tasks", situation.failed_tasks), user_text("watchdog.failed_tasks.why")
        count = situation.failed_tasks
        yield Condition(ConditionKind.TASKS, ConditionLevel.WARN, text, why, "failed", count=count)


def _find_backup(situation: Situation) -> Iterator[Condition]:
    if situation.failed_backup:
        text, why = user_text("watchdog.backup.text"), _to_sentence(situation.failed_backup)
        yield Condition(ConditionKind.BACKUP, ConditionLevel.BAD, text, why)


def _find_expiries(situation: Situation) -> Iterator[Condition]:
    for name, ends_at in situation.process.ends.items() if situation.process is not None else ():
        remaining = ends_at - situation.now
        if remaining > EXPIRY_NOTICE:
            continue
        has_ended = remaining <= timedelta()
        text = user_text("watchdog.expiry.ended", name=name)
        if not has_ended:
            text = user_text("watchdog.expiry.text", name=name, time=format_seconds(remaining.total_seconds()))
        level = ConditionLevel.BAD if has_ended else ConditionLevel.WARN
        yield Condition(ConditionKind.EXPIRY, level, text, user_text("watchdog.expiry.why"), subject=name)
