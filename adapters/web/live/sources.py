"""Where live updates come from: events of the agents, the state of connections, and the log."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import date, timedelta
from typing import Any
from uuid import UUID

from adapters.web.config import PLATFORM
from adapters.web.live.frames import (
    AccountFrame,
    BusyFrame,
    ConversationFrame,
    DeliveryFrame,
    LiveFrame,
    LogFrame,
    LogLevel,
    ModelFrame,
    ReceiptFrame,
    RoomMessageFrame,
    SpendingFrame,
    StepFrame,
    TaskFrame,
    TopicKind,
)
from adapters.web.outgoing import build_message_body
from adapters.web.queries import AgentDirectory, is_conversation, load_message
from bot import ChannelType, Clock, Outcome, system_clock
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
Publish = Callable[[LiveFrame], None]


class LiveSources:
    """Listens to what the subscribed kinds of topics need, and to nothing else; `publish` receives the frames."""

    def __init__(
        self, directory: AgentDirectory, publish: Publish, *, account_seconds: float, clock: Clock = system_clock
    ) -> None:
        self._directory = directory
        self._publish = publish
        self._account_seconds = account_seconds
        self._clock = clock
        self._kinds: set[TopicKind] = set()
        self._unsubscribes: list[Callable[[], None]] = []
        self._tasks = TaskSet("a live update")
        self._account_watch: asyncio.Task[None] | None = None
        self._other_rooms = BoundedSet[UUID](MAX_OTHER_ROOMS)  # of other platforms: they hold no conversation
        self._attempts: Counter[UUID | None] = Counter()
        self._spending: dict[UUID, SpendingFrame] = {}

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
                    self._unsubscribes.append(handle.subscribe(event_class, _bind(listen, handle)))
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
                MessageEdited: self._on_edited,
                MessageSent: self._on_sent,
            },
            TopicKind.CONVERSATION: {MessageReceived: self._on_talked, MessageSent: self._on_talked},
            TopicKind.RECEIPT: {RunStarted: self._on_run_started, MessageClosed: self._on_closed},
            TopicKind.STEP: {
                ActionStarted: self._on_action_started,
                ActionCompleted: self._on_action_completed,
                EvaluatorStarted: self._on_evaluator_started,
                EvaluatorCompleted: self._on_evaluator_completed,
                ModelUsed: self._on_model_step,
            },
            TopicKind.DELIVERY: {DeliveryFinished: self._on_delivery},
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
            self._publish(LogFrame(at=line.at, id=line.number, level=level, logger=line.logger, text=line.text))

    def _on_received(self, handle: AgentHandle, event: MessageReceived) -> None:
        body = build_message_body(event.message, event.agent_id, {event.author.id: event.author})
        self._publish(RoomMessageFrame(at=self._clock(), agent_id=event.agent_id, **dict(body)))

    def _on_edited(self, handle: AgentHandle, event: MessageEdited) -> None:
        self._tasks.start(self._publish_message(handle, event.message.id))

    def _on_sent(self, handle: AgentHandle, event: MessageSent) -> None:
        self._tasks.start(self._publish_message(handle, event.message_id))

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
            self._publish(ConversationFrame.of_room(handle.agent_id, room, now, updated_at=now))

    async def _publish_message(self, handle: AgentHandle, message_id: UUID) -> None:
        body = await load_message(handle, message_id)
        if body is not None:
            self._publish(RoomMessageFrame(at=self._clock(), agent_id=handle.agent_id, **dict(body)))

    def _on_run_started(self, handle: AgentHandle, event: RunStarted) -> None:
        self._publish(
            ReceiptFrame(
                at=self._clock(),
                agent_id=event.agent_id,
                id=event.message_id,
                room_id=event.room_id,
                outcome=Outcome.CLAIMED,
            )
        )

    def _on_closed(self, handle: AgentHandle, event: MessageClosed) -> None:
        receipt = event.receipt
        costs = [call.cost for call in receipt.model_calls if call.cost is not None]
        self._publish(
            ReceiptFrame(
                at=self._clock(),
                agent_id=event.agent_id,
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
                cost=sum(costs) if costs else None,
            )
        )

    def _on_action_started(self, handle: AgentHandle, event: ActionStarted) -> None:
        self._publish_step(event, "action", event.action, "running")

    def _on_action_completed(self, handle: AgentHandle, event: ActionCompleted) -> None:
        state = "done" if event.result.success else "failed"
        self._publish_step(event, "action", event.result.action, state, note=event.result.error)

    def _on_evaluator_started(self, handle: AgentHandle, event: EvaluatorStarted) -> None:
        self._publish_step(event, "evaluator", event.evaluator, "running")

    def _on_evaluator_completed(self, handle: AgentHandle, event: EvaluatorCompleted) -> None:
        self._publish_step(event, "evaluator", event.evaluator, "failed" if event.error else "done", note=event.error)

    def _publish_step(
        self,
        event: ActionStarted | ActionCompleted | EvaluatorStarted | EvaluatorCompleted,
        step: str,
        name: str,
        state: str,
        *,
        note: str = "",
    ) -> None:
        body: dict[str, object] = {
            "step": step,
            "name": name,
            "state": state,
            "note": note,
            "id": f"{event.run_id}:{step}:{name}",
        }
        body |= {"agent_id": event.agent_id, "run_id": event.run_id, "room_id": event.room_id, "at": self._clock()}
        self._publish(StepFrame.model_validate(body))

    def _on_model_step(self, handle: AgentHandle, event: ModelUsed) -> None:
        if event.run_id is None:
            return
        now, call = self._clock(), event.call
        self._publish(
            StepFrame(
                at=now,
                agent_id=event.agent_id,
                id=f"{event.run_id}:model:{now.timestamp()}",
                run_id=event.run_id,
                room_id=event.room_id,
                step="model",
                name=call.model,
                state="failed" if call.error else "done",
                seconds=call.seconds,
                note=call.error,
            )
        )

    def _on_delivery(self, handle: AgentHandle, event: DeliveryFinished) -> None:
        part = event.delivery
        frame = DeliveryFrame.build(part, at=self._clock(), agent_id=event.agent_id, message_id=part.memory_id)
        self._publish(frame)

    def _on_model(self, handle: AgentHandle, event: ModelUsed) -> None:
        call = event.call
        self._publish(
            ModelFrame.build(call, at=self._clock(), agent_id=event.agent_id, id=call.model, work=call.purpose)
        )

    def _on_busy(self, handle: AgentHandle, event: ModelRetried) -> None:
        now = self._clock()
        self._attempts[event.run_id] += 1
        self._publish(
            BusyFrame(
                at=now,
                agent_id=event.agent_id,
                id=event.run_id,
                room_id=event.room_id,
                model=event.model,
                attempt=self._attempts[event.run_id] + 1,
                retry_at=now + timedelta(seconds=event.delay),
            )
        )

    def _on_run_ended(self, handle: AgentHandle, event: RunEnded) -> None:
        self._attempts.pop(event.run_id, None)

    def _on_spent(self, handle: AgentHandle, event: ModelUsed) -> None:
        today, cost = self._clock().date(), event.call.cost
        before = self._spending.get(event.agent_id)
        if before is None:
            return  # it is being loaded
        if before.day != today:
            before = _no_spending(event.agent_id, today, self._clock)
        self._publish_spending(
            before.model_copy(
                update={
                    "at": self._clock(),
                    "usd": before.usd + (cost or 0.0),
                    "unpriced_calls": before.unpriced_calls + (cost is None and not event.call.error),
                }
            )
        )

    async def _load_spending(self, handle: AgentHandle) -> None:
        today = self._clock().date()
        entries = await handle.conversations.costs(today, today)
        frame = _no_spending(handle.agent_id, today, self._clock)
        sums = {"usd": sum(entry.cost for entry in entries), "unpriced_calls": sum(e.unpriced_calls for e in entries)}
        self._publish_spending(frame.model_copy(update=sums))

    def _publish_spending(self, frame: SpendingFrame) -> None:
        self._spending[frame.agent_id] = frame
        self._publish(frame)

    def _on_task(self, handle: AgentHandle, event: TaskEnded) -> None:
        self._publish(TaskFrame.build(event, at=self._clock(), id=event.task_id))

    async def _watch_accounts(self) -> None:
        """Publish the states that have changed; what every account reports is in memory."""
        known: dict[int, ConnectionSnapshot] = {}
        while True:
            for number, link in enumerate(self._directory.find_agent(None).connections()):
                snapshot = link.snapshot
                if known.get(number, snapshot) != snapshot:
                    self._publish(AccountFrame.build(snapshot, at=self._clock(), id=number, platform=link.platform))
                known[number] = snapshot
            await asyncio.sleep(self._account_seconds)


def _bind(listen: Callable[[AgentHandle, Any], None], handle: AgentHandle) -> Callable[[Event], None]:
    return lambda event: listen(handle, event)


def _no_spending(agent_id: UUID, day: date, clock: Clock) -> SpendingFrame:
    return SpendingFrame(at=clock(), agent_id=agent_id, day=day, usd=0.0, unpriced_calls=0)
