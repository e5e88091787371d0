"""The one door out: a reply is kept before it leaves, and leaves in its room's order."""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from bot.bus import EventBus
from bot.domain.clock import Clock, system_clock
from bot.domain.events import MessageSent
from bot.domain.ids import delivery_id
from bot.domain.ledger import Delivery, DeliveryState, Receipt
from bot.domain.memory import Memory
from bot.domain.places import Room
from bot.errors import NotSent, Unclear, Undeliverable
from bot.platform.adapter import Adapter
from bot.platform.egress import cleared
from bot.store.protocols import Commitment, Ledger

logger = logging.getLogger(__name__)

RETRY_BUDGET = timedelta(minutes=15)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A reply on its way out: `ordinal` counts the replies of its turn, `reply_to` is a platform's id."""

    memory: Memory
    room: Room
    ordinal: int = 0
    reply_to: str = ""


class Outbox:
    """Commits replies with whatever closes together with them, then sends their parts room by room.

    `secrets` are values that must never leave. A reply for a platform that is not connected waits.
    """

    def __init__(
        self,
        ledger: Ledger,
        events: EventBus,
        agent_id: UUID,
        *,
        secrets: Collection[str] = (),
        clock: Clock = system_clock,
    ) -> None:
        self._ledger = ledger
        self._events = events
        self._agent_id = agent_id
        self._secrets = frozenset(secrets)
        self._clock = clock
        self._adapters: dict[str, Adapter] = {}
        self._lanes: defaultdict[UUID, deque[Delivery]] = defaultdict(deque)
        self._senders: dict[UUID, asyncio.Task[None]] = {}

    def connect(self, adapter: Adapter) -> None:
        """Make a platform reachable; what waits for it leaves now."""
        self._adapters[adapter.platform] = adapter
        for room_id in list(self._lanes):
            self._wake(room_id)

    async def commit(
        self, outgoing: Sequence[Outgoing] = (), receipts: Sequence[Receipt] = ()
    ) -> list[Memory]:
        """Keep replies, their parts and the receipts they close, all at once; then send.

        Gives back the replies as they were kept; one of which nothing may leave is dropped.
        """
        kept: list[Memory] = []
        deliveries: list[Delivery] = []
        for reply in outgoing:
            content = cleared(reply.memory.content, self._secrets)
            if content is None:
                logger.info("a reply of turn %s was empty; nothing is sent", reply.memory.turn_id)
                continue
            memory = replace(reply.memory, content=content)
            kept.append(memory)
            deliveries += self._pack(replace(reply, memory=memory))
        placed = await self._ledger.commit(Commitment(tuple(kept), tuple(deliveries), tuple(receipts)))
        self._queue(placed)
        return kept

    async def resume(self) -> int:
        """Take up what an earlier process left unsent; gives back how many parts that is."""
        left = await self._ledger.deliveries(is_open=True)
        self._queue(left)
        return len(left)

    async def drain(self, seconds: float) -> int:
        """Wait for parts on their way, then stop; gives back how many rooms still have some.

        What is not sent stays in the ledger, for the next start.
        """
        late: set[asyncio.Task[None]] = set()
        if self._senders:
            _, late = await asyncio.wait(set(self._senders.values()), timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        return len(late)

    @asynccontextmanager
    async def typing(self, room: Room) -> AsyncIterator[None]:
        """Show that the agent is at work in a room, as long as the block lasts."""
        adapter = self._adapters.get(room.platform)
        if adapter is None:
            yield
            return
        await self._show(adapter, room, active=True)
        try:
            yield
        finally:
            await self._show(adapter, room, active=False)

    async def _show(self, adapter: Adapter, room: Room, *, active: bool) -> None:
        try:
            await adapter.typing(room, active)
        except Exception:  # a typing sign is a courtesy: it never costs the answer
            logger.debug("no typing sign in %s", room.id, exc_info=True)

    def _pack(self, reply: Outgoing) -> list[Delivery]:
        room, memory = reply.room, reply.memory
        adapter = self._adapters.get(room.platform)
        parts = adapter.parts(memory.content) if adapter else [memory.content]
        turn_id = memory.turn_id or memory.id
        return [
            Delivery(
                id=delivery_id(turn_id, reply.ordinal, number),
                turn_id=turn_id,
                room_id=room.id,
                memory_id=memory.id,
                platform=room.platform,
                account=room.account,
                target=room.external_id,
                part=number,
                content=part,
                created_at=self._clock(),
                reply_to=reply.reply_to if number == 0 else "",
            )
            for number, part in enumerate(parts)
        ]

    def _queue(self, deliveries: Sequence[Delivery]) -> None:
        open_states = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)
        for delivery in deliveries:
            if delivery.state in open_states:
                self._lanes[delivery.room_id].append(delivery)
        for room_id in {delivery.room_id for delivery in deliveries}:
            self._wake(room_id)

    def _wake(self, room_id: UUID) -> None:
        lane = self._lanes.get(room_id)
        if not lane or room_id in self._senders or lane[0].platform not in self._adapters:
            return
        task = asyncio.get_running_loop().create_task(self._send_all(room_id, lane))
        self._senders[room_id] = task
        task.add_done_callback(lambda done: self._rest(room_id, done))

    def _rest(self, room_id: UUID, task: asyncio.Task[None]) -> None:
        self._senders.pop(room_id, None)
        if not self._lanes.get(room_id):
            self._lanes.pop(room_id, None)
        elif task.cancelled():
            return
        elif (error := task.exception()) is not None:
            logger.error(
                "replies for room %s wait for the next one: the ledger failed", room_id, exc_info=error
            )
        else:
            self._wake(room_id)

    async def _send_all(self, room_id: UUID, lane: deque[Delivery]) -> None:
        while lane and (adapter := self._adapters.get(lane[0].platform)) is not None:
            delivery = await self._send(adapter, lane[0])
            lane.popleft()
            is_last = not any(other.memory_id == delivery.memory_id for other in lane)
            if delivery.state is DeliveryState.SENT and is_last:
                self._events.emit(MessageSent(self._agent_id, delivery.memory_id, room_id, delivery.turn_id))

    async def _send(self, adapter: Adapter, delivery: Delivery) -> Delivery:
        """Send one part until it is surely sent, surely not, or nobody can know."""
        is_unclear = delivery.state is DeliveryState.ATTEMPTING
        while True:
            now = self._clock()
            delivery = replace(
                delivery,
                state=DeliveryState.ATTEMPTING,
                attempts=delivery.attempts + 1,
                first_attempt_at=delivery.first_attempt_at or now,
            )
            await self._ledger.save_delivery(delivery)
            state, external_id, cause, pause = await self._attempt(adapter, delivery, is_unclear)
            is_unclear = state is DeliveryState.UNKNOWN
            if is_unclear and delivery.attempts == 1:
                continue
            if state is DeliveryState.PENDING and now - delivery.created_at > RETRY_BUDGET:
                state, cause = DeliveryState.FAILED, f"given up after {delivery.attempts} attempts: {cause}"
            delivery = replace(delivery, state=state, external_id=external_id, cause=cause)
            await self._ledger.save_delivery(delivery)
            if state is not DeliveryState.PENDING:
                if cause:
                    logger.warning("part %s is %s: %s", delivery.id, state, cause)
                return delivery
            growing = min(FIRST_PAUSE * 2 ** (delivery.attempts - 1), LONGEST_PAUSE)
            await asyncio.sleep(growing if pause is None else pause)

    async def _attempt(
        self, adapter: Adapter, delivery: Delivery, is_unclear: bool
    ) -> tuple[DeliveryState, str, str, float | None]:
        """Try once: the new state, the platform's id, the cause, and how long to wait before the next try."""
        try:
            call = adapter.reconcile(delivery) if is_unclear else adapter.deliver(delivery)
            return DeliveryState.SENT, await call, "", None
        except NotSent as error:
            return DeliveryState.PENDING, "", str(error), error.retry_after
        except Undeliverable as error:
            return DeliveryState.FAILED, "", str(error), None
        except Unclear as error:
            return DeliveryState.UNKNOWN, "", str(error), None
        except Exception as error:  # an adapter's fault may have come after the bytes left
            logger.warning("%s failed to deliver %s", adapter.platform, delivery.id, exc_info=True)
            return DeliveryState.UNKNOWN, "", f"{type(error).__name__}: {error}", None
