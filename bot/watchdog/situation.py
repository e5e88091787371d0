"""`read_situation`: what is known about the bots of a process at one moment, from their stores and their memory."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import reduce
from uuid import UUID

from bot.adapter.connection_status import ConnectionState, ConnectionStatus
from bot.domain.costs import CostEntry
from bot.domain.ledger import Outcome, Rule
from bot.errors import ModelUnavailable
from bot.inbound.activity import Arrivals, Spending
from bot.inbound.agent_handle import AgentHandle
from bot.models.retry import ModelStatus
from bot.store.activity import Backlog, OpenItems, TaskBacklog
from bot.store.ledger import ReceiptQuery
from bot.watchdog.conditions import (
    SEND_TOLERANCE,
    TURN_TOLERANCE,
    AccountSituation,
    ModelSituation,
    ModelState,
    Situation,
)

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
    items, tasks, poisoned, failed_tasks = await asyncio.gather(
        asyncio.gather(*(handle.activity.open_items() for handle in handles)),
        asyncio.gather(*(handle.activity.task_backlog() for handle in handles)),
        asyncio.gather(*(_count_poisoned(handle, now) for handle in handles)),
        asyncio.gather(*(handle.tasks.count_failed() for handle in handles)),
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
        failed_tasks=sum(failed_tasks),
        stuck_turns_since=_find_stuck_turns(handles, items, accounts, now),
        stuck_parts_since=await _find_stuck_parts(handles, items, now),
        example_id=await _find_unanswered(handles, now) if is_resting else None,
    )


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
        accounts=_list_connections(handles) if accounts is None else accounts,
        items=OpenItems(),
        tasks=TaskBacklog(),
        models=list_models(handles, spending, now),
        spent=sum(item.total for item in spending),
        limit=limit_of(spending),
        budgets={
            handle.character.name: (item.total, item.limit) for handle, item in zip(handles, spending, strict=False)
        },
        plugins={name: cause for handle in handles for name, cause in _list_inactive_plugins(handle).items()},
        platforms=dict(handles[0].inactive_platforms),
        process=monitor.read() if monitor is not None else None,
        failed_backup=next((cause for handle in handles if (cause := handle.read_failed_backup())), ""),
    )


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


def _list_connections(handles: Sequence[AgentHandle]) -> list[AccountSituation]:
    return [_build_account(connection, [NO_ARRIVALS], None, None) for connection in connections_of(handles)]


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


def _list_inactive_plugins(handle: AgentHandle) -> Mapping[str, str]:
    return handle.operator_tools.program.inactive_plugins() if handle.operator_tools is not None else {}


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
        if _is_old(item.waiting, now):
            connected = {
                connection.platform: connection.snapshot.since
                for connection in connections_of([handle])
                if connection.snapshot.state is ConnectionState.CONNECTED
            }
            since = await handle.undelivered.find_overdue(connected, now - SEND_TOLERANCE)
            stuck += [since] if since is not None else []
    return min(stuck, default=None)


def _is_old(waiting: Backlog, now: datetime) -> bool:
    return waiting.oldest_at is not None and now - waiting.oldest_at > SEND_TOLERANCE


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
