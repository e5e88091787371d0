"""What needs attention: `find_conditions` returns it of a `Situation`, worst first.

`read_situation`: what is known about the bots of a process at one moment, from their stores and their memory.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import reduce
from uuid import UUID

from bot.adapter.adapter import ConnectionState, ConnectionStatus, DisconnectCause
from bot.concurrency.process_health import ProcessHealth
from bot.domain.ledger import CostEntry, Outcome, Rule
from bot.errors import ModelUnavailable, StoreUnavailable
from bot.inbound.agent_handle import AgentHandle
from bot.models.router import ModelStatus
from bot.operate.activity import Arrivals, Spending
from bot.operate.results import Result
from bot.operate.tools import Finding, FindingStatus
from bot.settings import CoreSettings
from bot.store.activity import Backlog, OpenItems, TaskBacklog
from bot.store.ledger import ReceiptQuery, StoreProblem
from bot.user_texts import count_text, current_language, format_dollars, format_seconds, load_catalogue, user_text

BUDGET_WARNING_SHARE = 0.8
TURN_TOLERANCE = timedelta(minutes=5)  # an answer that takes longer is stuck
SEND_TOLERANCE = timedelta(minutes=1)  # the same for a part of a reply on a platform that is connected
CONNECT_TOLERANCE = timedelta(minutes=1)  # of an account that is not connected for the first time, or not yet again
MIN_FREE_BYTES, MIN_FREE_SHARE = 500_000_000, 0.05  # of a disk; below both it is nearly full
MAX_LAG_SECONDS = 1.0
MAX_CLOCK_JUMP = timedelta(minutes=1)
EXPIRY_NOTICE = timedelta(days=14)
READ_TIMEOUT = 20.0


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
    CARE = "care"
    TAKE_OVER = "take_over"


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


class ModelSituation(Result):
    """A model, what it is used for, and how it has answered since the start of the bot.

    One that `rests` after repeated failures is not called before `rests_until`; `why` is the last failure, and
    `replaced_by` the model that is called instead. One `fails` if its server was busy or not there at the last attempt,
    or its last two calls were refused. `agents` are the names of the characters that use it. `unused` ones have not
    answered yet. `usd` is what the model has cost today (in UTC), null where no price is known.
    """

    name: str
    provider: str
    agents: Sequence[str] = ()
    work: Sequence[str]
    state: ModelState
    rests_until: datetime | None
    why: str
    replaced_by: str
    calls: int
    failed: int
    p50_ms: int | None
    usd: float | None


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
    start, by name. `referrals` is how many people in distress were referred to help today (UTC). `take_overs` are those
    that have lasted longer than TAKE_OVER_REMINDER.
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
    referrals: int = 0
    take_overs: Backlog = field(default_factory=Backlog)


def find_conditions(situation: Situation) -> list[Condition]:
    """Return what needs attention, worst first."""
    finders = (
        *(_find_store_problem, _find_accounts, _find_budgets, _find_models, _find_plugins, _find_process),
        *(_find_stuck, _find_messages, _find_late, _find_tasks, _find_backup, _find_expiries, _find_referrals),
    )
    conditions = [condition for find in finders for condition in find(situation)]
    return sorted(conditions, key=lambda condition: condition.level is not ConditionLevel.BAD)


def platform_name(platform: str) -> str:
    """Return the name of a platform in a sentence."""
    return load_catalogue(current_language()).get(f"platforms.{platform}", platform)


def store_text(problem: StoreProblem) -> str:
    """Return why nothing is taken in, in a sentence without a full stop."""
    cause = load_catalogue(current_language()).get(f"watchdog.stores.{problem.cause}", problem.message)
    return user_text("watchdog.store.text", cause=cause)


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


def _find_messages(situation: Situation) -> Iterator[Condition]:
    items = situation.items
    yield from _describe_backlog(ConditionKind.HELD, items.held)
    yield from _describe_backlog(ConditionKind.FAILED, items.failed)
    yield from _describe_backlog(ConditionKind.PARKED, items.parked)
    yield from _describe_backlog(ConditionKind.POISONED, Backlog(situation.poisoned))
    yield from _describe_backlog(ConditionKind.TAKE_OVER, situation.take_overs)


def _find_tasks(situation: Situation) -> Iterator[Condition]:
    yield from _describe_backlog(ConditionKind.TASKS, situation.tasks.late, "late")
    yield from _describe_backlog(ConditionKind.TASKS, Backlog(situation.failed_tasks), "failed", "failed_tasks")


def _describe_backlog(kind: ConditionKind, backlog: Backlog, subject: str = "", name: str = "") -> Iterator[Condition]:
    """Yield what needs attention where something waits; `name` is that of its texts, if it is not the kind's."""
    if count := backlog.count:
        key = f"watchdog.{name or kind}"
        text = count_text(key, count)
        yield Condition(kind, ConditionLevel.WARN, text, user_text(f"{key}.why"), subject, backlog.oldest_at, count)


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


def _find_referrals(situation: Situation) -> Iterator[Condition]:
    referrals = Backlog(situation.referrals)
    yield from _describe_backlog(ConditionKind.CARE, referrals, situation.now.astimezone(UTC).date().isoformat())


DAY = timedelta(days=1)
NO_ARRIVALS = Arrivals()
UNANSWERED_RULE = ModelUnavailable.__name__


async def read_situation(
    handles: Sequence[AgentHandle], now: datetime, spending: Sequence[Spending] | None = None
) -> Situation:
    """Return the situation of these agents; raises StoreUnavailable where a store cannot be read.

    `spending` is what each of them has spent, if that is known already.
    """
    accounts = await list_accounts(handles, now)
    items, tasks, poisoned, failed_tasks, care_counts = await asyncio.gather(
        asyncio.gather(*(handle.activity.open_items() for handle in handles)),
        asyncio.gather(*(handle.activity.task_backlog() for handle in handles)),
        asyncio.gather(*(_count_poisoned(handle, now) for handle in handles)),
        asyncio.gather(*(handle.tasks.failed() for handle in handles)),
        asyncio.gather(*(handle.activity.care_counts() for handle in handles)),
    )
    if spending is None:
        spending = await asyncio.gather(*(handle.activity.spending() for handle in handles))
    situation = read_memory(handles, now, accounts, spending)
    is_resting = any(model.rests_until is not None for model in situation.models)
    return replace(
        situation,
        items=reduce(OpenItems.plus, items),
        tasks=reduce(TaskBacklog.plus, tasks),
        poisoned=sum(poisoned),
        failed_tasks=sum(map(len, failed_tasks)),
        referrals=sum(item.count for of_agent in care_counts for item in of_agent),
        stuck_turns_since=_find_stuck_turns(handles, items, accounts, now),
        stuck_parts_since=await _find_stuck_parts(handles, items, now),
        example_id=await _find_unanswered(handles, now) if is_resting else None,
    )


async def read_reachable(handles: Sequence[AgentHandle], now: datetime) -> tuple[Situation, StoreProblem | None]:
    """Return the situation of these agents, and why a store cannot be read: then it is what is known without them."""
    try:
        async with asyncio.timeout(READ_TIMEOUT):
            return await read_situation(handles, now), None
    except (StoreUnavailable, TimeoutError) as error:
        cause = error.cause if isinstance(error, StoreUnavailable) else "db_slow"
        situation, problem = read_memory(handles, now), StoreProblem(cause, str(error), now)
        return replace(situation, store_problem=situation.store_problem or problem), problem


async def check_running(handles: Sequence[AgentHandle], now: datetime) -> list[Finding]:
    """Return what needs attention as findings of `bot doctor`; a good finding where nothing does."""
    situation, _ = await read_reachable(handles, now)
    status = {ConditionLevel.BAD: FindingStatus.FAIL, ConditionLevel.WARN: FindingStatus.WARN}
    findings = [
        Finding(status[condition.level], "running", condition.text, condition.why, is_outside=True)
        for condition in find_conditions(situation)
    ]
    return findings or [Finding(FindingStatus.OK, "running", "the bot runs, and nothing needs attention")]


def read_memory(
    handles: Sequence[AgentHandle],
    now: datetime,
    accounts: Sequence[AccountSituation] | None = None,
    spending: Sequence[Spending] = (),
) -> Situation:
    """Return what is known without the stores: connections, models, the process, whether messages are taken in."""
    monitor = handles[0].process_monitor
    return Situation(
        now=now,
        store_problem=next((item for handle in handles if (item := handle.problem)), None),
        accounts=[_build_account(connection, [NO_ARRIVALS], None, None) for connection in connections_of(handles)]
        if accounts is None
        else accounts,
        items=OpenItems(),
        tasks=TaskBacklog(),
        models=list_models(handles, spending, now),
        spent=sum(item.total for item in spending),
        limit=limit_of(spending),
        budgets={
            handle.character.name: (item.total, item.limit) for handle, item in zip(handles, spending, strict=False)
        },
        plugins={
            name: cause
            for handle in handles
            if handle.operator_tools is not None
            for name, cause in handle.operator_tools.program.inactive_plugins().items()
        },
        platforms=dict(handles[0].inactive_platforms),
        process=monitor.read() if monitor is not None else None,
        take_overs=_find_old_take_overs(handles, now),
        failed_backup=next((cause for handle in handles if (cause := handle.read_failed_backup())), ""),
    )


def _find_old_take_overs(handles: Sequence[AgentHandle], now: datetime) -> Backlog:
    old = []
    for handle in handles:
        limit = timedelta(hours=handle.settings.load(CoreSettings).take_over_reminder)
        old += [item.since for item in handle.operations.take_overs() if now - item.since > limit]
    return Backlog(len(old), min(old, default=None))


async def list_accounts(handles: Sequence[AgentHandle], now: datetime) -> list[AccountSituation]:
    """Return the accounts of these agents, and those that all agents share."""
    all_arrivals = await asyncio.gather(*(handle.activity.arrivals() for handle in handles))
    all_sent = await asyncio.gather(*(handle.activity.last_sent() for handle in handles))
    accounts = []
    for connection in connections_of(handles):
        owners = [number for number, handle in enumerate(handles) if connection.agent_id in (None, handle.agent_id)]
        arrivals = [all_arrivals[number].get(connection.platform, NO_ARRIVALS) for number in owners]
        sent = [at for number in owners if (at := all_sent[number].get(connection.platform))]
        accounts.append(_build_account(connection, arrivals, max(sent, default=None), now))
    return accounts


def connections_of(handles: Sequence[AgentHandle]) -> list[ConnectionStatus]:
    """Return the connections of these agents, and those that all agents share, in the order of `list_accounts`."""
    agent_ids = {None, *(handle.agent_id for handle in handles)}
    return [connection for connection in handles[0].connections() if connection.agent_id in agent_ids]


def list_models(handles: Sequence[AgentHandle], spending: Sequence[Spending], now: datetime) -> list[ModelSituation]:
    """Return the models of these agents, those that work first; one that serves several types or agents is one."""
    costs: dict[str, CostEntry] = {}
    for name, entry in (pair for item in spending for pair in item.by_model.items()):
        costs[name] = costs[name].plus(entry) if name in costs else entry
    groups: dict[tuple[str, str, str], list[tuple[ModelStatus, str, str]]] = {}
    for handle in handles:
        statuses = handle.activity.model_statuses()
        for status in statuses:
            # A model that has not answered yet has no name: what fails for different causes is told apart.
            key = (status.provider, status.model, "" if status.model else status.cause)
            groups.setdefault(key, []).append((status, _replacement(status, statuses), handle.character.name))
    models = [_build_model(group, costs, now) for group in groups.values()]
    return sorted(models, key=lambda model: (model.state is ModelState.UNUSED, -model.calls, model.name))


def limit_of(spending: Sequence[Spending]) -> float:
    """Return the limit of all agents together; 0 where one of them has none."""
    return sum(item.limit for item in spending) if all(item.limit for item in spending) else 0.0


def _build_account(
    connection: ConnectionStatus, arrivals: Sequence[Arrivals], last_out_at: datetime | None, now: datetime | None
) -> AccountSituation:
    snapshot, late_since, gap = connection.snapshot, None, None
    if connection.agent_id is not None:  # a page to which people come by themselves is never late
        gap = arrivals[0].usual_gap
        if snapshot.state is ConnectionState.CONNECTED and now is not None:
            late_since = arrivals[0].late_since(snapshot.since, now)
    return AccountSituation(
        platform=connection.platform,
        name=connection.label,
        account=connection.account,
        agent_id=connection.agent_id,
        state=snapshot.state,
        cause=snapshot.cause,
        since=snapshot.since,
        last_in_at=max((item.last_at for item in arrivals if item.last_at), default=None),
        last_out_at=last_out_at,
        late_since=late_since,
        usual_gap=gap,
        unheard_since=connection.unheard_since,
    )


async def _count_poisoned(handle: AgentHandle, now: datetime) -> int:
    wanted = ReceiptQuery(outcomes=[Outcome.FAILED], rules=[Rule.RESTART], since=now - DAY)
    return sum(item.count for item in await handle.conversations.count_receipts(wanted))


async def _find_unanswered(handles: Sequence[AgentHandle], now: datetime) -> UUID | None:
    """Return the last receipt of a day that says that no model answered."""
    wanted = ReceiptQuery(outcomes=[Outcome.FAILED], rules=[UNANSWERED_RULE], since=now - DAY)
    for handle in handles:
        for found in await handle.conversations.search_receipts(wanted, limit=1):
            return found.receipt.id
    return None


def _find_stuck_turns(
    handles: Sequence[AgentHandle], items: Sequence[OpenItems], accounts: Sequence[AccountSituation], now: datetime
) -> datetime | None:
    """Return since when the oldest message has been worked on, where that is too long.

    The time before the start and before the last connection does not count, nor does the longest deadline of an action.
    """
    connected = [account.since for account in accounts if account.state is ConnectionState.CONNECTED]
    stuck = []
    for handle, item in zip(handles, items, strict=True):
        if item.turns.oldest_at is not None:
            since = max(item.turns.oldest_at, handle.activity.started_at, *connected)
            deadline = max((spec.deadline or 0.0 for spec in handle.catalog.actions), default=0.0)
            stuck += [since] if now - since > TURN_TOLERANCE + timedelta(seconds=deadline) else []
    return min(stuck, default=None)


async def _find_stuck_parts(
    handles: Sequence[AgentHandle], items: Sequence[OpenItems], now: datetime
) -> datetime | None:
    """Return since when the oldest part has waited on a connected platform, where that is too long."""
    stuck = []
    for handle, item in zip(handles, items, strict=True):
        if item.waiting.oldest_at is not None and now - item.waiting.oldest_at > SEND_TOLERANCE:
            connected = {
                connection.platform: connection.snapshot.since
                for connection in connections_of([handle])
                if connection.snapshot.state is ConnectionState.CONNECTED
            }
            since = await handle.undelivered.find_overdue(connected, now - SEND_TOLERANCE)
            stuck += [since] if since is not None else []
    return min(stuck, default=None)


def _replacement(status: ModelStatus, statuses: Iterable[ModelStatus]) -> str:
    others = (item for item in statuses if item.type is status.type and item is not status and not item.cause)
    return next((item.model or item.provider for item in others), "")


def _build_model(
    group: Sequence[tuple[ModelStatus, str, str]], costs: Mapping[str, CostEntry], now: datetime
) -> ModelSituation:
    statuses = [status for status, _, _ in group]
    first = statuses[0]
    resting, replaced_by, _ = max(group, key=lambda item: (item[0].rest_seconds, bool(item[0].cause)))
    medians = [status.median_seconds for status in statuses if status.median_seconds is not None]
    entry = costs.get(first.model)
    is_priced = entry is None or entry.unpriced_calls < entry.calls
    return ModelSituation(
        name=first.model or first.provider,
        provider=first.provider,
        agents=tuple(sorted({name for _, _, name in group})),
        work=tuple(sorted({status.type.value for status in statuses})),
        state=_model_state(resting),
        rests_until=now + timedelta(seconds=resting.rest_seconds) if resting.rest_seconds else None,
        why=resting.cause,
        replaced_by=replaced_by if resting.cause else "",
        calls=sum(status.calls for status in statuses),
        failed=sum(status.failed for status in statuses),
        p50_ms=round(1000 * max(medians)) if medians else None,
        usd=(entry.cost if entry else 0.0) if is_priced else None,
    )


def _model_state(status: ModelStatus) -> ModelState:
    if status.rest_seconds:
        return ModelState.RESTS
    return ModelState.FAILS if status.cause else ModelState.ANSWERS if status.model else ModelState.UNUSED
