"""What is sent as it happens: events of the whole bot by topic, and updates of rooms to those in them.

`LiveSources`: where live updates come from; `LiveUpdates`: passes them to the subscriptions of connections.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from secrets import token_hex
from typing import Any
from uuid import UUID

from adapters.web import frames
from adapters.web.auth import Access, Grant, find_owner
from adapters.web.config import PLATFORM, Limits
from adapters.web.json_io import HttpProblem, JsonResponder, build_not_found
from adapters.web.outgoing import build_message_body
from adapters.web.queries import AgentDirectory, is_conversation, load_messages
from adapters.web.schemas import MessageBody, MessageResponse
from bot import ChannelType, Clock, Outcome, Receipt, platform, system_clock
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

MAX_OTHER_ROOMS = 10_000
Publish = Callable[[frames.LiveUpdate], None]
IsWanted = Callable[[frames.TopicKind, UUID, UUID], bool]


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
        self._kinds: set[frames.TopicKind] = set()
        self._unsubscribes: list[Callable[[], None]] = []
        self._tasks = platform.TaskSet("a live update")
        self._account_watch: asyncio.Task[None] | None = None
        self._other_rooms = platform.BoundedSet[UUID](MAX_OTHER_ROOMS)  # of other platforms: they hold no conversation
        self._attempts: Counter[UUID | None] = Counter()
        self._spending: dict[UUID, frames.SpendingFrame] = {}  # the last frame of each agent
        self._to_load: defaultdict[UUID, list[UUID]] = defaultdict(list)  # messages of an agent, while some are loaded

    @property
    def kinds(self) -> frozenset[frames.TopicKind]:
        """What is listened to."""
        return frozenset(self._kinds)

    def start(self, kinds: Collection[frames.TopicKind]) -> None:
        """Listen to what these kinds need, besides those before."""
        for kind in set(kinds) - self._kinds:
            self._kinds.add(kind)
            for event_class, listen in self._listeners(kind).items():
                for handle in self._directory:
                    self._unsubscribes.append(handle.subscribe(event_class, partial(listen, handle)))
            if kind is frames.TopicKind.ACCOUNT:
                self._account_watch = self._tasks.start(self._watch_accounts())
            if kind is frames.TopicKind.SPENDING:
                for handle in self._directory:
                    self._tasks.start(self._load_spending(handle))
            if kind is frames.TopicKind.LOG and (buffer := platform.find_log_buffer()) is not None:
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

    def _listeners(self, kind: frames.TopicKind) -> Mapping[type[Event], Callable[[platform.AgentHandle, Any], None]]:
        listeners: Mapping[frames.TopicKind, Mapping[type[Event], Callable[[platform.AgentHandle, Any], None]]] = {
            frames.TopicKind.MESSAGE: {
                MessageReceived: self._on_received,
                MessageEdited: lambda handle, event: self._publish_message(
                    handle, event.message.id, event.message.room_id
                ),
                MessageSent: lambda handle, event: self._publish_message(handle, event.message_id, event.room_id),
            },
            frames.TopicKind.CONVERSATION: {MessageReceived: self._on_talked, MessageSent: self._on_talked},
            frames.TopicKind.RECEIPT: {RunStarted: self._on_run_started, MessageClosed: self._on_closed},
            frames.TopicKind.STEP: {
                ActionStarted: lambda _, event: self._publish_step(event, "action", event.action, "running"),
                ActionCompleted: self._on_action_completed,
                EvaluatorStarted: lambda _, event: self._publish_step(event, "evaluator", event.evaluator, "running"),
                EvaluatorCompleted: self._on_evaluator_completed,
                ModelUsed: self._on_model_step,
            },
            frames.TopicKind.DELIVERY: {DeliveryFinished: self._on_delivery},
            frames.TopicKind.PROPOSAL: {ProposalUpdated: self._on_proposal},
            frames.TopicKind.MODEL: {ModelUsed: self._on_model},
            frames.TopicKind.BUSY: {ModelRetried: self._on_busy, RunEnded: self._on_run_ended},
            frames.TopicKind.SPENDING: {ModelUsed: self._on_spent},
            frames.TopicKind.TASK: {TaskEnded: self._on_task},
        }
        return listeners.get(kind, {})

    def _follow_log(self, buffer: platform.LogBuffer) -> Callable[[], None]:
        """Publish each line of the log, whichever thread writes it; return the function that ends this."""
        loop = asyncio.get_running_loop()

        def on_line(line: platform.LogLine) -> None:
            with suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(self._on_line, line)

        return buffer.subscribe(on_line)

    def _on_line(self, line: platform.LogLine) -> None:
        if frames.TopicKind.LOG in self._kinds:
            level = (
                frames.LogLevel(line.level.lower())
                if line.level in frames.LogLevel.__members__
                else frames.LogLevel.ERROR
            )
            build = partial(
                frames.LogFrame, at=line.at, id=line.number, level=level, logger=line.logger, text=line.text
            )
            self._publish(frames.LiveUpdate(frames.TopicKind.LOG, build, line.number, severity=level))

    def _on_received(self, handle: platform.AgentHandle, event: MessageReceived) -> None:
        message, at = event.message, self._clock()

        def build() -> frames.LiveFrame:
            body = build_message_body(message, event.agent_id, {event.author.id: event.author})
            return frames.RoomMessageFrame(at=at, agent_id=event.agent_id, **dict(body))

        self._publish(frames.LiveUpdate(frames.TopicKind.MESSAGE, build, message.id, event.agent_id, message.room_id))

    def _publish_message(self, handle: platform.AgentHandle, message_id: UUID, room_id: UUID) -> None:
        """Load a message and publish it, together with those that come while others are loaded."""
        if not self._is_wanted(frames.TopicKind.MESSAGE, handle.agent_id, room_id):
            self._publish(frames.LiveUpdate(frames.TopicKind.MESSAGE, None, message_id, handle.agent_id, room_id))
            return
        is_loading = handle.agent_id in self._to_load
        self._to_load[handle.agent_id].append(message_id)
        if not is_loading:
            self._tasks.start(self._load_messages(handle))

    async def _load_messages(self, handle: platform.AgentHandle) -> None:
        waiting = self._to_load[handle.agent_id]
        try:
            while waiting:
                ids = list(dict.fromkeys(waiting))
                waiting.clear()
                for body in await load_messages(handle, ids):
                    frame = frames.RoomMessageFrame(at=self._clock(), agent_id=handle.agent_id, **dict(body))
                    self._publish(frames.LiveUpdate.of_frame(frame))
        finally:
            del self._to_load[handle.agent_id]

    def _on_talked(self, handle: platform.AgentHandle, event: MessageReceived | MessageSent) -> None:
        if isinstance(event, MessageSent):
            if event.room_id not in self._other_rooms:
                self._tasks.start(self._publish_conversation(handle, event.room_id))
        elif event.room.platform == PLATFORM and event.room.type is ChannelType.DM:
            self._tasks.start(self._publish_conversation(handle, event.room.id))

    async def _publish_conversation(self, handle: platform.AgentHandle, room_id: UUID) -> None:
        room, now = await handle.conversations.room(room_id), self._clock()
        if room is not None and room.platform != PLATFORM:
            self._other_rooms.add(room.id)
        elif room is not None and is_conversation(room):
            frame = frames.ConversationFrame.of_room(handle.agent_id, room, now, updated_at=now)
            self._publish(frames.LiveUpdate.of_frame(frame))

    def _on_run_started(self, handle: platform.AgentHandle, event: RunStarted) -> None:
        place = {"agent_id": event.agent_id, "id": event.message_id, "room_id": event.room_id}
        build = partial(frames.ReceiptFrame.model_validate, {**place, "at": self._clock(), "outcome": Outcome.CLAIMED})
        self._publish(
            frames.LiveUpdate(frames.TopicKind.RECEIPT, build, event.message_id, event.agent_id, event.room_id)
        )

    def _on_closed(self, handle: platform.AgentHandle, event: MessageClosed) -> None:
        receipt, at = event.receipt, self._clock()
        build = partial(_build_receipt, receipt, handle, at)
        self._publish(
            frames.LiveUpdate(frames.TopicKind.RECEIPT, build, receipt.memory_id, handle.agent_id, receipt.room_id)
        )

    def _on_action_completed(self, handle: platform.AgentHandle, event: ActionCompleted) -> None:
        state = "done" if event.result.success else "failed"
        self._publish_step(event, "action", event.result.action, state, note=event.result.error)

    def _on_evaluator_completed(self, handle: platform.AgentHandle, event: EvaluatorCompleted) -> None:
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
        build = partial(frames.StepFrame.model_validate, body)
        self._publish(frames.LiveUpdate(frames.TopicKind.STEP, build, key, event.agent_id, event.room_id))

    def _on_model_step(self, handle: platform.AgentHandle, event: ModelUsed) -> None:
        call, number = event.call, str(self._clock().timestamp())
        if event.run_id is not None:
            state = "failed" if call.has_failed else "done"
            self._publish_step(event, "model", call.model, state, number=number, seconds=call.seconds, note=call.error)

    def _on_delivery(self, handle: platform.AgentHandle, event: DeliveryFinished) -> None:
        part, at = event.delivery, self._clock()
        build = partial(frames.DeliveryFrame.build, part, at=at, agent_id=event.agent_id, message_id=part.memory_id)
        self._publish(frames.LiveUpdate(frames.TopicKind.DELIVERY, build, part.id, event.agent_id, part.room_id))

    def _on_proposal(self, handle: platform.AgentHandle, event: ProposalUpdated) -> None:
        frame = frames.ProposalFrame.build(event.proposal, at=self._clock(), agent_id=event.agent_id)
        self._publish(frames.LiveUpdate.of_frame(frame))

    def _on_model(self, handle: platform.AgentHandle, event: ModelUsed) -> None:
        call, at = event.call, self._clock()
        build = partial(frames.ModelFrame.build, call, at=at, agent_id=event.agent_id, id=call.model, work=call.purpose)
        self._publish(frames.LiveUpdate(frames.TopicKind.MODEL, build, call.model, event.agent_id))

    def _on_busy(self, handle: platform.AgentHandle, event: ModelRetried) -> None:
        now = self._clock()
        self._attempts[event.run_id] += 1
        frame = frames.BusyFrame(
            at=now,
            agent_id=event.agent_id,
            id=event.run_id,
            room_id=event.room_id,
            model=event.model,
            attempt=self._attempts[event.run_id] + 1,
            retry_at=now + timedelta(seconds=event.delay),
        )
        self._publish(frames.LiveUpdate.of_frame(frame))

    def _on_run_ended(self, handle: platform.AgentHandle, event: RunEnded) -> None:
        self._attempts.pop(event.run_id, None)

    def _on_spent(self, handle: platform.AgentHandle, event: ModelUsed) -> None:
        today, cost = self._clock().date(), event.call.cost
        before = self._spending.get(event.agent_id)
        if before is None:
            return  # it is being loaded
        usd, unpriced = (before.usd, before.unpriced_calls) if before.day == today else (0.0, 0)
        self._publish_spending(event.agent_id, today, usd + (cost or 0.0), unpriced + (cost is None))

    async def _load_spending(self, handle: platform.AgentHandle) -> None:
        today = self._clock().date()
        entries = await handle.conversations.costs(today, today)
        usd, unpriced = sum(entry.cost for entry in entries), sum(entry.unpriced_calls for entry in entries)
        self._publish_spending(handle.agent_id, today, usd, unpriced)

    def _publish_spending(self, agent_id: UUID, day: date, usd: float, unpriced: int) -> None:
        frame = frames.SpendingFrame(at=self._clock(), agent_id=agent_id, day=day, usd=usd, unpriced_calls=unpriced)
        self._spending[agent_id] = frame
        self._publish(frames.LiveUpdate.of_frame(frame))

    def _on_task(self, handle: platform.AgentHandle, event: TaskEnded) -> None:
        self._publish(frames.LiveUpdate.of_frame(frames.TaskFrame.build(event, at=self._clock(), id=event.task_id)))

    async def _watch_accounts(self) -> None:
        """Publish the states that have changed; what every account reports is in memory."""
        known: dict[int, platform.ConnectionSnapshot] = {}
        while True:
            for number, link in enumerate(self._directory.find_agent(None).connections()):
                snapshot = link.snapshot
                if known.get(number, snapshot) != snapshot:
                    frame = frames.AccountFrame.build(snapshot, at=self._clock(), id=number, platform=link.platform)
                    self._publish(frames.LiveUpdate.of_frame(frame))
                known[number] = snapshot
            await asyncio.sleep(self._account_seconds)


def _build_receipt(receipt: Receipt, handle: platform.AgentHandle, at: datetime) -> frames.LiveFrame:
    names = ("author_id", "reason", "rule", "received_at", "closed_at", "cost")
    headline = platform.describe_receipt(receipt, handle.character.name)
    fields = {name: getattr(receipt, name) for name in names} | {"receipt_id": receipt.id, "headline": headline}
    return frames.ReceiptFrame.build(receipt, at=at, agent_id=handle.agent_id, id=receipt.memory_id, **fields)


LEVELS = tuple(frames.LogLevel)
MAX_BATCH = 100  # updates in one frame
MAX_ROOMS = 1000  # in the summary of a topic


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """A topic with the ids of its agent and its room, None for all."""

    kind: frames.TopicKind
    agent_id: UUID | None = None
    room_id: UUID | None = None
    level: frames.LogLevel = frames.LogLevel.INFO
    owner: str | None = None  # of the conversations, see `Grant.owner`
    is_summary: bool = False

    def matches(self, update: frames.LiveUpdate) -> bool:
        """Return whether an update of its kind belongs to it; one that concerns no single agent belongs to each."""
        return (
            self.covers(update.agent_id or self.agent_id, update.room_id)
            and (self.owner is None or find_owner(update.room) == self.owner)
            and (self.kind is not frames.TopicKind.LOG or LEVELS.index(update.severity) >= LEVELS.index(self.level))
        )

    def covers(self, agent_id: UUID | None, room_id: UUID | None) -> bool:
        """Return whether what happens to an agent in a room belongs to it."""
        return self.agent_id in (None, agent_id) and self.room_id in (None, room_id)


async def build_filter(
    topic: frames.Topic, grant: Grant, directory: AgentDirectory, joined: UUID | None
) -> TopicFilter:
    """Return the filter of a topic; the room `joined` need not exist yet.

    Raises HttpProblem for an unknown agent, or what the token may not see.
    """
    grant.require(Access.CHANGE if topic.kind is frames.TopicKind.LOG else Access.ANY)
    is_list = topic.kind is frames.TopicKind.CONVERSATION
    if grant.scope is platform.TokenScope.CHAT and not is_list:
        if topic.kind not in frames.CHAT_TOPICS or topic.room is None:
            raise HttpProblem(403, "forbidden", f"a token of the scope {grant.scope} does not allow this")
        if topic.room != joined:
            _, room = await directory.find_room(topic.room)
            if room.platform != PLATFORM or find_owner(room.external_id) != grant.owner:
                raise build_not_found("room", topic.room)
    agent_id = None if topic.agent is None else directory.find_agent(topic.agent).agent_id
    owner = grant.owner if is_list else None
    return TopicFilter(topic.kind, agent_id, topic.room, topic.level, owner, topic.is_summary)


class LiveEvent:
    """A frame with its number and its id, built and turned into JSON once for all connections, if any takes it."""

    __slots__ = ("_build", "_event_id", "_responder", "_text", "key", "number")

    def __init__(
        self,
        number: int,
        event_id: str,
        key: tuple[object, ...],
        build: Callable[[], frames.LiveFrame] | None,
        responder: JsonResponder,
    ) -> None:
        self.number, self.key = number, key
        self._event_id, self._build, self._responder = event_id, build, responder
        self._text = ""

    @property
    def text(self) -> str:
        """The frame as JSON."""
        if not self._text:
            assert self._build is not None, "what was not loaded is not offered"
            self._text = self._responder.to_json(self._build().model_copy(update={"event_id": self._event_id}))
        return self._text


class LiveSubscription:
    """The topics of one connection, and the updates that it has not sent yet: the latest of each key, in order.

    `wake` is called when there is something to send; with `is_batched` updates are taken together. `batches` has the
    texts of batches, which connections with the same topics share. A connection that leaves too many unread gets a
    reset instead.
    """

    def __init__(self, wake: Callable[[], None], batches: dict[tuple[int, ...], str], *, max_pending: int) -> None:
        self.wake = wake
        self.is_batched = False
        self._batches = batches
        self._max_pending = max_pending
        self.filters: tuple[TopicFilter, ...] = ()
        self._pending: dict[tuple[object, ...], LiveEvent] = {}
        self._reset_text = ""

    @property
    def has_pending(self) -> bool:
        """Whether there is an update to send."""
        return bool(self._pending)

    def change_topics(self, filters: Sequence[TopicFilter], *, is_batched: bool) -> None:
        """Replace the topics; what was not sent yet is forgotten."""
        self.filters, self.is_batched = tuple(filters), is_batched
        self._pending.clear()
        self._reset_text = ""

    def add(self, event: LiveEvent, build_reset: Callable[[], str]) -> None:
        """Add an update of its topics."""
        self._pending.pop(event.key, None)
        self._pending[event.key] = event
        if len(self._pending) > self._max_pending:
            self.reset(build_reset())
        elif not self.is_batched:
            self.wake()

    def reset(self, text: str) -> None:
        """Send a reset frame instead of what was not sent yet."""
        self._pending.clear()
        self._reset_text = text
        self.wake()

    def take(self) -> str | None:
        """Return the next frame to send as JSON, None if there is none."""
        if self._reset_text:
            text, self._reset_text = self._reset_text, ""
            return text
        if not self._pending:
            return None
        if self.is_batched:
            return self._take_batch()
        return self._pending.pop(next(iter(self._pending))).text

    def _take_batch(self) -> str:
        events = [self._pending.pop(key) for key in list(self._pending)[:MAX_BATCH]]
        numbers = tuple(event.number for event in events)
        text = self._batches.get(numbers)
        if text is None:
            text = f'{{"type":"batch","frames":[{",".join(event.text for event in events)}]}}'
            self._batches[numbers] = text
        return text


class Summary:
    """Counts what happened in a topic since its last `changed` frame, for the connections that watch only this."""

    def __init__(self, topic: TopicFilter) -> None:
        self.subscriptions: set[LiveSubscription] = set()
        self._topic = topic
        self._rooms: set[UUID] = set()
        self._has_changed = False

    def add(self, update: frames.LiveUpdate) -> None:
        """Add an update that belongs to the topic."""
        self._has_changed = True
        if update.room_id is not None and len(self._rooms) <= MAX_ROOMS:
            self._rooms.add(update.room_id)

    def take(self, at: datetime) -> Callable[[], frames.ChangedFrame] | None:
        """Return what builds the frame about what happened, None if nothing did, and begin anew."""
        if not self._has_changed:
            return None
        rooms, is_partial = list(self._rooms)[:MAX_ROOMS], len(self._rooms) > MAX_ROOMS
        self._rooms.clear()
        self._has_changed = False
        topic, agent_id = self._topic.kind, self._topic.agent_id
        return partial(frames.ChangedFrame, at=at, topic=topic, agent_id=agent_id, rooms=rooms, is_partial=is_partial)


class LiveUpdates:
    """All updates of the process. While there is no subscription, and for a while after the last, nothing is done.

    Ids of updates begin with a random part for this process, so those of an earlier process are recognised.
    """

    def __init__(
        self, directory: AgentDirectory, responder: JsonResponder, limits: Limits, clock: Clock = system_clock
    ) -> None:
        self._responder = responder
        self._limits = limits
        self._clock = clock
        self._sources = LiveSources(
            directory, self._publish, self._is_wanted, account_seconds=limits.account_seconds, clock=clock
        )
        self._process = token_hex(4)
        self._number = 0
        self._first_known = 1  # every update from this number on is remembered
        self._events: deque[tuple[LiveEvent, frames.LiveUpdate]] = deque()
        self._subscriptions: set[LiveSubscription] = set()
        # Those with the same topics of a kind, so that an update is compared with these once for all of them. A group
        # without subscriptions stays as long as one may come back and resume.
        self._groups: dict[frames.TopicKind, dict[tuple[TopicFilter, ...], set[LiveSubscription]]] = {}
        self._summaries: dict[frames.TopicKind, dict[TopicFilter, Summary]] = {}
        self._batches: dict[tuple[int, ...], str] = {}
        self._batch_timer: asyncio.TimerHandle | None = None
        self._summary_timer: asyncio.TimerHandle | None = None
        self._stop_timer: asyncio.TimerHandle | None = None

    @property
    def is_listening(self) -> bool:
        """Whether events are listened to."""
        return bool(self._sources.kinds)

    def open(self, wake: Callable[[], None]) -> LiveSubscription:
        """Return the subscription of a new connection, without topics."""
        return LiveSubscription(wake, self._batches, max_pending=self._limits.max_pending_updates)

    def subscribe(
        self,
        subscription: LiveSubscription,
        filters: Sequence[TopicFilter],
        after: str | None,
        *,
        is_batched: bool = False,
    ) -> str:
        """Set the topics of a connection and offer it the updates after an id; return the id from which they go on."""
        self._leave_groups(subscription)
        subscription.change_topics(filters, is_batched=is_batched)
        if not filters:
            self.close(subscription)
            return self._event_id(self._number)
        self._join_groups(subscription)
        if self._stop_timer is not None:
            self._stop_timer.cancel()
            self._stop_timer = None
        self._sources.start({topic.kind for topic in filters})
        if after is None:
            return self._event_id(self._number)
        number = self._parse_id(after)
        if number is None:
            subscription.reset(self._build_reset())
            return self._event_id(self._number)
        return self._resume(subscription, number) or after

    def close(self, subscription: LiveSubscription) -> None:
        """End the subscription of a connection; after the last one the events are listened to for a while."""
        self._leave_groups(subscription)
        if not self._subscriptions and self._stop_timer is None and self._sources.kinds:
            self._stop_timer = asyncio.get_running_loop().call_later(self._limits.resume_seconds, self._stop_listening)

    def publish(self, frame: frames.LiveFrame) -> None:
        """Publish what no event tells, if its kind is listened to."""
        if frame.topic_kind in self._sources.kinds:
            self._publish(frames.LiveUpdate.of_frame(frame))

    async def stop(self) -> None:
        """Stop listening."""
        for timer in (self._stop_timer, self._batch_timer, self._summary_timer):
            if timer is not None:
                timer.cancel()
        await self._sources.close()

    def _stop_listening(self) -> None:
        self._stop_timer = None
        self._sources.stop()
        self._events.clear()
        self._groups.clear()
        self._number += 1  # what happens from now on is not remembered
        self._first_known = self._number + 1

    def _is_wanted(self, kind: frames.TopicKind, agent_id: UUID, room_id: UUID) -> bool:
        """Return whether a connection takes the frames of what happens in a room, or did so a short time ago."""
        groups = self._groups.get(kind, ())
        return any(topic.covers(agent_id, room_id) for filters in groups for topic in filters)

    def _publish(self, update: frames.LiveUpdate) -> None:
        event = self._build_event(update.key, update.build)
        self._events.append((event, update))
        if len(self._events) > self._limits.max_remembered_updates:
            self._first_known = self._events.popleft()[0].number + 1
        for filters, subscriptions in self._groups.get(update.kind, {}).items():
            if update.build is not None and any(topic.matches(update) for topic in filters):
                self._offer(subscriptions, event)
        for topic, summary in self._summaries.get(update.kind, {}).items():
            if topic.matches(update):
                self._add_to_summary(summary, update)

    def _build_event(self, key: tuple[object, ...], build: Callable[[], frames.LiveFrame] | None) -> LiveEvent:
        self._number += 1
        return LiveEvent(self._number, self._event_id(self._number), key, build, self._responder)

    def _resume(self, subscription: LiveSubscription, number: int) -> str:
        """Offer the updates after a number; if one was not loaded, a reset, and return the id from which it goes on."""
        for event, update in self._events:
            if event.number <= number:
                continue
            topics = [topic for topic in subscription.filters if topic.kind is update.kind and topic.matches(update)]
            if update.build is None and not all(topic.is_summary for topic in topics):
                subscription.reset(self._build_reset())
                return self._event_id(self._number)
            for topic in topics:
                if topic.is_summary:
                    self._add_to_summary(self._summaries[topic.kind][topic], update)
            if not all(topic.is_summary for topic in topics):
                self._offer([subscription], event)
        return ""

    def _offer(self, subscriptions: Collection[LiveSubscription], event: LiveEvent) -> None:
        for subscription in subscriptions:
            subscription.add(event, self._build_reset)
        if self._batch_timer is None and any(subscription.is_batched for subscription in subscriptions):
            loop = asyncio.get_running_loop()
            self._batch_timer = loop.call_later(self._limits.batch_seconds, self._send_batches)

    def _send_batches(self) -> None:
        self._batch_timer = None
        self._batches.clear()
        for subscription in self._subscriptions:
            if subscription.is_batched and subscription.has_pending:
                subscription.wake()

    def _add_to_summary(self, summary: Summary, update: frames.LiveUpdate) -> None:
        summary.add(update)
        if self._summary_timer is None:
            loop = asyncio.get_running_loop()
            self._summary_timer = loop.call_later(self._limits.summary_seconds, self._send_summaries)

    def _send_summaries(self) -> None:
        self._summary_timer = None
        for summaries in self._summaries.values():
            for topic, summary in summaries.items():
                build = summary.take(self._clock())
                if build is not None:
                    self._offer(summary.subscriptions, self._build_event(("changed", topic), build))

    def _join_groups(self, subscription: LiveSubscription) -> None:
        self._subscriptions.add(subscription)
        for kind, filters in _group_by_kind(subscription.filters).items():
            self._groups.setdefault(kind, {}).setdefault(filters, set()).add(subscription)
        for topic in subscription.filters:
            if topic.is_summary:
                summary = self._summaries.setdefault(topic.kind, {}).setdefault(topic, Summary(topic))
                summary.subscriptions.add(subscription)

    def _leave_groups(self, subscription: LiveSubscription) -> None:
        self._subscriptions.discard(subscription)
        for kind, filters in _group_by_kind(subscription.filters).items():
            group = self._groups.get(kind, {}).get(filters)
            if group is not None:
                group.discard(subscription)
                loop = asyncio.get_running_loop()
                loop.call_later(self._limits.resume_seconds, self._forget_group, kind, filters)
        for topic in subscription.filters:
            summaries = self._summaries.get(topic.kind, {})
            if topic.is_summary and topic in summaries:
                summaries[topic].subscriptions.discard(subscription)
                if not summaries[topic].subscriptions:
                    del summaries[topic]

    def _forget_group(self, kind: frames.TopicKind, filters: tuple[TopicFilter, ...]) -> None:
        groups = self._groups.get(kind, {})
        if filters in groups and not groups[filters]:
            del groups[filters]

    def _parse_id(self, event_id: str) -> int | None:
        """Return the number of an id after which every update is remembered, else None."""
        process, _, digits = event_id.partition("-")
        if process != self._process or not (digits.isascii() and digits.isdigit()):
            return None
        number = int(digits)
        return number if self._first_known - 1 <= number <= self._number else None

    def _event_id(self, number: int) -> str:
        return f"{self._process}-{number}"

    def _build_reset(self) -> str:
        return self._responder.to_json(frames.ResetFrame(event_id=self._event_id(self._number)))


def _group_by_kind(filters: Sequence[TopicFilter]) -> dict[frames.TopicKind, tuple[TopicFilter, ...]]:
    """Return the topics that are not summaries by their kind."""
    kinds = {topic.kind for topic in filters if not topic.is_summary}
    return {kind: tuple(each for each in filters if each.kind is kind and not each.is_summary) for kind in kinds}


@dataclass(frozen=True, slots=True)
class DraftDelta:
    """A streamed reply has more text: `text` is appended or, with `is_reset`, replaces the text so far.

    With `is_reset` and no text the reply is withdrawn. `reply_to` is the external id of the message.
    """

    message_id: UUID
    text: str
    is_reset: bool
    reply_to: str


class DraftDeltas:
    """The published text of the replies that are being streamed, by room."""

    def __init__(self) -> None:
        self._rooms: dict[UUID, dict[UUID, DraftDelta]] = {}

    def update(self, room_id: UUID, message_id: UUID, text: str, reply_to: str) -> DraftDelta:
        """Store the text of a reply so far; return the difference to publish."""
        whole = DraftDelta(message_id, text, True, reply_to)
        before = self._rooms.get(room_id, {}).get(message_id)
        if not text:
            self.end(room_id, message_id)
            return whole
        self._rooms.setdefault(room_id, {})[message_id] = whole
        if before is None or not text.startswith(before.text):
            return whole
        return DraftDelta(message_id, text.removeprefix(before.text), False, reply_to)

    def end(self, room_id: UUID, message_id: UUID) -> None:
        """Remove a reply that was delivered or withdrawn."""
        room = self._rooms.get(room_id, {})
        room.pop(message_id, None)
        if not room:
            self._rooms.pop(room_id, None)

    def list_room(self, room_id: UUID) -> list[DraftDelta]:
        """Return the streamed replies of a room, for a client that joins."""
        return list(self._rooms.get(room_id, {}).values())


@dataclass(frozen=True, slots=True)
class TypingChanged:
    """The agent started or stopped typing in the room, or waits for a busy model that is called again."""

    is_active: bool
    is_model_busy: bool = False


@dataclass(frozen=True, slots=True)
class ControlRequested:
    """The agent asks the page to do something: to disable the input, to enable it, to show a hint."""

    action: str
    target: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A message will get its outcome after the next start."""

    message_id: UUID


# Besides: a message that was added to the room, and the outcome of a message.
RoomUpdate = TypingChanged | ControlRequested | DraftDelta | MessageBody | MessageResponse | Interrupted
UpdateListener = Callable[[RoomUpdate], None]


class RoomBroadcaster:
    """Publishes updates of rooms to their subscribers."""

    def __init__(self) -> None:
        self._rooms: defaultdict[UUID, list[UpdateListener]] = defaultdict(list)
        self._typing_counts: Counter[UUID] = Counter()
        self.drafts = DraftDeltas()

    def subscribe(self, room_id: UUID, listener: UpdateListener) -> Callable[[], None]:
        """Call `listener` with all updates of a room; return a function that ends the subscription."""
        listeners = self._rooms[room_id]
        listeners.append(listener)

        def unsubscribe() -> None:
            if listener in listeners:
                listeners.remove(listener)
            if not listeners and self._rooms.get(room_id) is listeners:
                del self._rooms[room_id]

        return unsubscribe

    def publish(self, room_id: UUID, update: RoomUpdate, *, exclude: UpdateListener | None = None) -> None:
        """Call all subscribers of a room except `exclude`."""
        for listener in list(self._rooms.get(room_id, ())):
            if listener != exclude:
                listener(update)

    def has_listeners(self, room_id: UUID) -> bool:
        """Return whether a room has subscribers: without any, what would be published need not be read."""
        return room_id in self._rooms

    def set_typing(self, room_id: UUID, is_active: bool) -> None:
        """Count the turns in a room; publish a change of the first and the last of overlapping turns."""
        before = self._typing_counts[room_id]
        after = max(0, before + (1 if is_active else -1))
        if after:
            self._typing_counts[room_id] = after
        else:
            del self._typing_counts[room_id]
        if bool(before) != bool(after):
            self.publish(room_id, TypingChanged(is_active))

    def is_typing(self, room_id: UUID) -> bool:
        """Return whether the agent is typing in a room."""
        return room_id in self._typing_counts
