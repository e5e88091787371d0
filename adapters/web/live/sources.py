"""Where live updates come from: events of the agents, the state of connections, and the log."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from adapters.web.config import PLATFORM
from adapters.web.live.frames import (
    AccountFrame,
    BusyFrame,
    ConversationFrame,
    DeliveryFrame,
    LiveFrame,
    LiveUpdate,
    LogFrame,
    LogLevel,
    ModelFrame,
    ProposalFrame,
    ReceiptFrame,
    RoomMessageFrame,
    SpendingFrame,
    StepFrame,
    TaskFrame,
    TopicKind,
)
from adapters.web.outgoing import build_message_body
from adapters.web.queries import AgentDirectory, is_conversation, load_messages
from bot import ChannelType, Clock, Outcome, Receipt, system_clock
from bot.events import (
    ActionCompleted,
    ActionStarted,
    DeliveryFinished,
    EvaluatorCompleted,
    EvaluatorStarted,
    Event,
    MessageClosed,
    MessageEdited,
    MessageReceived,
    MessageSent,
    ModelRetried,
    ModelUsed,
    ProposalUpdated,
    RunEnded,
    RunStarted,
    TaskEnded,
)
from bot.platform import (
    AgentHandle,
    BoundedSet,
    ConnectionSnapshot,
    LogBuffer,
    LogLine,
    TaskSet,
    describe_receipt,
    find_log_buffer,
)

MAX_OTHER_ROOMS = 10_000
Publish = Callable[[LiveUpdate], None]
IsWanted = Callable[[TopicKind, UUID, UUID], bool]


@dataclass(frozen=True, slots=True)
class _Spending:
    """What an agent has spent on a day (UTC) in US dollars."""

    day: date
    usd: float = 0.0
    unpriced_calls: int = 0


class LiveSources:
    """Listens to what the subscribed kinds of topics need, and to nothing else; `publish` receives the updates.

    What has to be loaded from the store is loaded where `is_wanted` returns true for its kind, agent and room; of the
    rest is published only that it happened.
    """

    def __init__(
        self,
        directory: AgentDirectory,
        publish: Publish,
        is_wanted: IsWanted,
        *,
        account_seconds: float,
        clock: Clock = system_clock,
    ) -> None:
        self._directory = directory
        self._publish = publish
        self._is_wanted = is_wanted
        self._account_seconds = account_seconds
        self._clock = clock
        self._kinds: set[TopicKind] = set()
        self._unsubscribes: list[Callable[[], None]] = []
        self._tasks = TaskSet("a live update")
        self._account_watch: asyncio.Task[None] | None = None
        self._other_rooms = BoundedSet[UUID](MAX_OTHER_ROOMS)  # of other platforms: they hold no conversation
        self._attempts: Counter[UUID | None] = Counter()
        self._spending: dict[UUID, _Spending] = {}
        self._to_load: defaultdict[UUID, list[UUID]] = defaultdict(list)  # messages of an agent, while some are loaded

    @property
    def kinds(self) -> frozenset[TopicKind]:
        """What is listened to."""
        return frozenset(self._kinds)

    def start(self, kinds: Collection[TopicKind]) -> None:
        """Listen to what these kinds need, besides those before."""
        for kind in set(kinds) - self._kinds:
            self._kinds.add(kind)
            for event_class, listen in self._listeners(kind).items():
                for handle in self._directory:
                    self._unsubscribes.append(handle.subscribe(event_class, partial(listen, handle)))
            if kind is TopicKind.ACCOUNT:
                self._account_watch = self._tasks.start(self._watch_accounts())
            if kind is TopicKind.SPENDING:
                for handle in self._directory:
                    self._tasks.start(self._load_spending(handle))
            if kind is TopicKind.LOG and (buffer := find_log_buffer()) is not None:
                self._unsubscribes.append(self._follow_log(buffer))

    def stop(self) -> None:
        """Listen to nothing."""
        for unsubscribe in self._unsubscribes:
            unsubscribe()
        self._unsubscribes.clear()
        self._kinds.clear()
        self._attempts.clear()
        self._spending.clear()
        if self._account_watch is not None:
            self._account_watch.cancel()
            self._account_watch = None

    async def close(self) -> None:
        """Listen to nothing, and cancel what is in progress."""
        self.stop()
        await self._tasks.cancel()

    def _listeners(self, kind: TopicKind) -> Mapping[type[Event], Callable[[AgentHandle, Any], None]]:
        listeners: Mapping[TopicKind, Mapping[type[Event], Callable[[AgentHandle, Any], None]]] = {
            TopicKind.MESSAGE: {
                MessageReceived: self._on_received,
                MessageEdited: lambda handle, event: self._publish_message(
                    handle, event.message.id, event.message.room_id
                ),
                MessageSent: lambda handle, event: self._publish_message(handle, event.message_id, event.room_id),
            },
            TopicKind.CONVERSATION: {MessageReceived: self._on_talked, MessageSent: self._on_talked},
            TopicKind.RECEIPT: {RunStarted: self._on_run_started, MessageClosed: self._on_closed},
            TopicKind.STEP: {
                ActionStarted: lambda _, event: self._publish_step(event, "action", event.action, "running"),
                ActionCompleted: self._on_action_completed,
                EvaluatorStarted: lambda _, event: self._publish_step(event, "evaluator", event.evaluator, "running"),
                EvaluatorCompleted: self._on_evaluator_completed,
                ModelUsed: self._on_model_step,
            },
            TopicKind.DELIVERY: {DeliveryFinished: self._on_delivery},
            TopicKind.PROPOSAL: {ProposalUpdated: self._on_proposal},
            TopicKind.MODEL: {ModelUsed: self._on_model},
            TopicKind.BUSY: {ModelRetried: self._on_busy, RunEnded: self._on_run_ended},
            TopicKind.SPENDING: {ModelUsed: self._on_spent},
            TopicKind.TASK: {TaskEnded: self._on_task},
        }
        return listeners.get(kind, {})

    def _follow_log(self, buffer: LogBuffer) -> Callable[[], None]:
        """Publish each line of the log, whichever thread writes it; return the function that ends this."""
        loop = asyncio.get_running_loop()

        def on_line(line: LogLine) -> None:
            with suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(self._on_line, line)

        return buffer.subscribe(on_line)

    def _on_line(self, line: LogLine) -> None:
        if TopicKind.LOG in self._kinds:
            level = LogLevel(line.level.lower()) if line.level in LogLevel.__members__ else LogLevel.ERROR
            build = partial(LogFrame, at=line.at, id=line.number, level=level, logger=line.logger, text=line.text)
            self._publish(LiveUpdate(TopicKind.LOG, build, line.number, severity=level))

    def _on_received(self, handle: AgentHandle, event: MessageReceived) -> None:
        message, at = event.message, self._clock()

        def build() -> LiveFrame:
            body = build_message_body(message, event.agent_id, {event.author.id: event.author})
            return RoomMessageFrame(at=at, agent_id=event.agent_id, **dict(body))

        self._publish(LiveUpdate(TopicKind.MESSAGE, build, message.id, event.agent_id, message.room_id))

    def _publish_message(self, handle: AgentHandle, message_id: UUID, room_id: UUID) -> None:
        """Load a message and publish it, together with those that come while others are loaded."""
        if not self._is_wanted(TopicKind.MESSAGE, handle.agent_id, room_id):
            self._publish(LiveUpdate(TopicKind.MESSAGE, None, message_id, handle.agent_id, room_id))
            return
        is_loading = handle.agent_id in self._to_load
        self._to_load[handle.agent_id].append(message_id)
        if not is_loading:
            self._tasks.start(self._load_messages(handle))

    async def _load_messages(self, handle: AgentHandle) -> None:
        waiting = self._to_load[handle.agent_id]
        try:
            while waiting:
                ids = list(dict.fromkeys(waiting))
                waiting.clear()
                for body in await load_messages(handle, ids):
                    frame = RoomMessageFrame(at=self._clock(), agent_id=handle.agent_id, **dict(body))
                    self._publish(LiveUpdate.of_frame(frame))
        finally:
            del self._to_load[handle.agent_id]

    def _on_talked(self, handle: AgentHandle, event: MessageReceived | MessageSent) -> None:
        if isinstance(event, MessageSent):
            if event.room_id not in self._other_rooms:
                self._tasks.start(self._publish_conversation(handle, event.room_id))
        elif event.room.platform == PLATFORM and event.room.type is ChannelType.DM:
            self._tasks.start(self._publish_conversation(handle, event.room.id))

    async def _publish_conversation(self, handle: AgentHandle, room_id: UUID) -> None:
        room, now = await handle.conversations.room(room_id), self._clock()
        if room is not None and room.platform != PLATFORM:
            self._other_rooms.add(room.id)
        elif room is not None and is_conversation(room):
            frame = ConversationFrame.of_room(handle.agent_id, room, now, updated_at=now)
            self._publish(LiveUpdate.of_frame(frame))

    def _on_run_started(self, handle: AgentHandle, event: RunStarted) -> None:
        agent_id, message_id, room_id, at = event.agent_id, event.message_id, event.room_id, self._clock()

        def build() -> LiveFrame:
            return ReceiptFrame(at=at, agent_id=agent_id, id=message_id, room_id=room_id, outcome=Outcome.CLAIMED)

        self._publish(LiveUpdate(TopicKind.RECEIPT, build, message_id, agent_id, room_id))

    def _on_closed(self, handle: AgentHandle, event: MessageClosed) -> None:
        receipt, at = event.receipt, self._clock()
        build = partial(_build_receipt, receipt, handle, at)
        self._publish(LiveUpdate(TopicKind.RECEIPT, build, receipt.memory_id, handle.agent_id, receipt.room_id))

    def _on_action_completed(self, handle: AgentHandle, event: ActionCompleted) -> None:
        state = "done" if event.result.success else "failed"
        self._publish_step(event, "action", event.result.action, state, note=event.result.error)

    def _on_evaluator_completed(self, handle: AgentHandle, event: EvaluatorCompleted) -> None:
        self._publish_step(event, "evaluator", event.evaluator, "failed" if event.error else "done", note=event.error)

    def _publish_step(
        self,
        event: ActionStarted | ActionCompleted | EvaluatorStarted | EvaluatorCompleted | ModelUsed,
        step: str,
        name: str,
        state: str,
        *,
        number: str = "",
        **fields: Any,
    ) -> None:
        key, at = f"{event.run_id}:{step}:{number or name}", self._clock()
        body = {"step": step, "name": name, "state": state, "id": key, "at": at, **fields}
        body |= {"agent_id": event.agent_id, "run_id": event.run_id, "room_id": event.room_id}
        build = partial(StepFrame.model_validate, body)
        self._publish(LiveUpdate(TopicKind.STEP, build, key, event.agent_id, event.room_id))

    def _on_model_step(self, handle: AgentHandle, event: ModelUsed) -> None:
        call, number = event.call, str(self._clock().timestamp())
        if event.run_id is not None:
            state = "failed" if call.has_failed else "done"
            self._publish_step(event, "model", call.model, state, number=number, seconds=call.seconds, note=call.error)

    def _on_delivery(self, handle: AgentHandle, event: DeliveryFinished) -> None:
        part, at = event.delivery, self._clock()

        def build() -> LiveFrame:
            return DeliveryFrame.build(part, at=at, agent_id=event.agent_id, message_id=part.memory_id)

        self._publish(LiveUpdate(TopicKind.DELIVERY, build, part.id, event.agent_id, part.room_id))

    def _on_proposal(self, handle: AgentHandle, event: ProposalUpdated) -> None:
        frame = ProposalFrame.build(event.proposal, at=self._clock(), agent_id=event.agent_id)
        self._publish(LiveUpdate.of_frame(frame))

    def _on_model(self, handle: AgentHandle, event: ModelUsed) -> None:
        call, at = event.call, self._clock()

        def build() -> LiveFrame:
            return ModelFrame.build(call, at=at, agent_id=event.agent_id, id=call.model, work=call.purpose)

        self._publish(LiveUpdate(TopicKind.MODEL, build, call.model, event.agent_id))

    def _on_busy(self, handle: AgentHandle, event: ModelRetried) -> None:
        now = self._clock()
        self._attempts[event.run_id] += 1
        frame = BusyFrame(
            at=now,
            agent_id=event.agent_id,
            id=event.run_id,
            room_id=event.room_id,
            model=event.model,
            attempt=self._attempts[event.run_id] + 1,
            retry_at=now + timedelta(seconds=event.delay),
        )
        self._publish(LiveUpdate.of_frame(frame))

    def _on_run_ended(self, handle: AgentHandle, event: RunEnded) -> None:
        self._attempts.pop(event.run_id, None)

    def _on_spent(self, handle: AgentHandle, event: ModelUsed) -> None:
        now, cost = self._clock(), event.call.cost
        before = self._spending.get(event.agent_id)
        if before is None:
            return  # it is being loaded
        if before.day != now.date():
            before = _Spending(now.date())
        unpriced = before.unpriced_calls + (cost is None)
        self._publish_spending(event.agent_id, _Spending(before.day, before.usd + (cost or 0.0), unpriced))

    async def _load_spending(self, handle: AgentHandle) -> None:
        today = self._clock().date()
        entries = await handle.conversations.costs(today, today)
        usd, unpriced = sum(entry.cost for entry in entries), sum(entry.unpriced_calls for entry in entries)
        self._publish_spending(handle.agent_id, _Spending(today, usd, unpriced))

    def _publish_spending(self, agent_id: UUID, sums: _Spending) -> None:
        self._spending[agent_id] = sums
        at = self._clock()

        def build() -> LiveFrame:
            return SpendingFrame.build(sums, at=at, agent_id=agent_id)

        self._publish(LiveUpdate(TopicKind.SPENDING, build, agent_id=agent_id))

    def _on_task(self, handle: AgentHandle, event: TaskEnded) -> None:
        self._publish(LiveUpdate.of_frame(TaskFrame.build(event, at=self._clock(), id=event.task_id)))

    async def _watch_accounts(self) -> None:
        """Publish the states that have changed; what every account reports is in memory."""
        known: dict[int, ConnectionSnapshot] = {}
        while True:
            for number, link in enumerate(self._directory.find_agent(None).connections()):
                snapshot = link.snapshot
                if known.get(number, snapshot) != snapshot:
                    frame = AccountFrame.build(snapshot, at=self._clock(), id=number, platform=link.platform)
                    self._publish(LiveUpdate.of_frame(frame))
                known[number] = snapshot
            await asyncio.sleep(self._account_seconds)


def _build_receipt(receipt: Receipt, handle: AgentHandle, at: datetime) -> LiveFrame:
    return ReceiptFrame(
        at=at,
        agent_id=handle.agent_id,
        id=receipt.memory_id,
        room_id=receipt.room_id,
        receipt_id=receipt.id,
        author_id=receipt.author_id,
        outcome=receipt.outcome,
        reason=receipt.reason,
        rule=receipt.rule,
        headline=describe_receipt(receipt, handle.character.name),
        received_at=receipt.received_at,
        closed_at=receipt.closed_at,
        cost=receipt.cost,
    )
