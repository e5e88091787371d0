"""The one door out: a reply is kept before it leaves, and leaves in its room's order."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from uuid import UUID

from bot.bus import EventBus
from bot.domain.clock import Clock, system_clock
from bot.domain.events import MessageSent
from bot.domain.ledger import Delivery, DeliveryState, Receipt
from bot.domain.memory import Memory
from bot.domain.places import Room
from bot.errors import LaneLost, StoreUnavailable
from bot.killpoints import reached
from bot.patience import Patience
from bot.platform.adapter import Adapter
from bot.platform.attempt import OPEN, attempt, pause_after
from bot.platform.egress import cleared
from bot.platform.lane import Lane
from bot.platform.packing import Outgoing, packed
from bot.platform.remembered import Remembered
from bot.platform.unbroken import Unbroken
from bot.store.protocols import Commitment, Ledger

logger = logging.getLogger(__name__)

RETRY_BUDGET = timedelta(minutes=15)
TYPING_DEADLINE, LET_GO = 5.0, 2.0
MOST_FINISHED = 1000


class Outbox:
    """Commits replies with whatever closes together with them, then sends their parts room by room.

    `secrets` are values that must never leave. A reply for a platform that is not connected waits; so does
    one in a room that this process does not hold: another one sends it.
    """

    def __init__(
        self,
        ledger: Ledger,
        events: EventBus,
        agent_id: UUID,
        *,
        secrets: Collection[str] = (),
        holds: Callable[[UUID], bool] = lambda room_id: True,
        clock: Clock = system_clock,
        patience: Patience | None = None,
    ) -> None:
        self._ledger = ledger
        self._events = events
        self._agent_id = agent_id
        self._secrets = frozenset(secrets)
        self._holds = holds
        self._clock = clock
        self._patience = patience or Patience()
        self._adapters: dict[str, Adapter] = {}
        self._lanes: defaultdict[UUID, Lane] = defaultdict(Lane)
        self._at_work: Counter[UUID] = Counter()
        self._finished = Remembered[str](MOST_FINISHED)  # a commit or resume may still name them
        self._broken: set[UUID] = set()  # messages of which a part did not arrive
        self._moved: dict[UUID, Room] = {}  # turns under way may still name the room that it was
        self._commits = Unbroken()
        self._is_open = True

    def connect(self, adapter: Adapter) -> None:
        """Make a platform reachable; what waits for it leaves now."""
        self._adapters[adapter.platform] = adapter
        for room_id in list(self._lanes):
            self._wake(room_id)

    def reaches(self, platform: str) -> bool:
        """Tell whether a platform is connected."""
        return platform in self._adapters

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
            room = self._moved.get(reply.room.id, reply.room)
            memory = replace(reply.memory, content=content, room_id=room.id, world_id=room.world_id)
            kept.append(memory)
            deliveries += await self._pack(replace(reply, memory=memory, room=room))
        await self._commit(Commitment(tuple(kept), tuple(deliveries), tuple(receipts)))
        return kept

    async def resume(self) -> int:
        """Take up what an earlier process left unsent; gives back how many parts that is."""
        left = await self._ledger.deliveries(is_open=True)
        for turn_id in {delivery.turn_id for delivery in left if delivery.part}:
            for part in await self._ledger.deliveries(is_open=False, turn_id=turn_id):
                if part.state is not DeliveryState.SENT:
                    self._broken.add(part.memory_id)
        self._queue(left)
        return len(left)

    async def send_left(self, turn_id: UUID) -> None:
        """Send what a turn has committed without anybody knowing; what is under way stays as it is."""
        self._queue(await self._ledger.deliveries(is_open=True, turn_id=turn_id))

    async def requeue(self, delivery: Delivery) -> None:
        """Send a part that had been held or given up, and that the ledger now has as pending."""
        others = await self._ledger.deliveries(is_open=False, turn_id=delivery.turn_id)
        if any(
            part.memory_id == delivery.memory_id and part.state is not DeliveryState.SENT for part in others
        ):
            self._broken.add(delivery.memory_id)
        self._finished.discard(delivery.id)
        self._queue([delivery])

    async def withdraw(self, delivery: Delivery) -> bool:
        """Take a part out of its room's lane; False where it is on its way right now."""
        lane = self._lanes.get(delivery.room_id)
        if lane is None:
            return True
        if lane.sending is not None and lane.sending.id == delivery.id and lane.sender is not None:
            if lane.sending.state is not DeliveryState.PENDING:
                return False
            lane.sender.cancel()  # it pauses between two attempts
            await asyncio.wait({lane.sender})
        self._finished.add(delivery.id)
        if lane.remove(delivery.id):
            self._broken.add(delivery.memory_id)
        self._wake(delivery.room_id)
        return True

    def is_busy(self, room_id: UUID) -> bool:
        """Tell whether parts of a room wait here, or are on their way."""
        return room_id in self._lanes

    async def abandon(self) -> None:
        """Stop sending: another process does it."""
        senders = self._senders()
        for lane in self._lanes.values():
            lane.waiting.clear()
        for task in senders:
            task.cancel()
        if senders:
            await asyncio.wait(senders, timeout=LET_GO)
        self._lanes.clear()
        self._finished = Remembered[str](MOST_FINISHED)

    def can_edit(self, room: Room) -> bool:
        """Tell whether what was said in a room can be changed."""
        adapter = self._adapters.get(room.platform)
        return adapter is not None and adapter.can_edit

    async def hold_back(self, cancelled: Sequence[Delivery]) -> None:
        """Send these no more, which the ledger has as cancelled; one on its way right now is let finish."""
        for part in cancelled:
            lane = self._lanes.get(part.room_id)
            is_next = lane is not None and lane.sending is not None and lane.sending.id == part.id
            if await self.withdraw(part) and is_next:
                await self._record(part)  # over the attempt that was just to be written down

    async def move(self, room_id: UUID, room: Room, waiting: Sequence[Delivery]) -> None:
        """Have what waits in a room leave to another one, and what is still said there too."""
        self._moved[room_id] = room
        for part in waiting:
            if await self.withdraw(replace(part, room_id=room_id)):
                self._finished.discard(part.id)
        self._queue(waiting)

    async def drain(self, seconds: float) -> int:
        """Wait for parts on their way, then stop those; gives back how many rooms still have some.

        What is not sent stays in the ledger; it is taken up with the room's next reply, or at the next
        start.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        await self._commits.wait(min(seconds, LET_GO))
        while (senders := self._senders()) and (left := end - clock()) > 0:
            await asyncio.wait(senders, timeout=left)
        for task in senders:
            task.cancel()
        if senders:
            await asyncio.wait(senders, timeout=self._patience.left(LET_GO))
        return sum(1 for lane in self._lanes.values() if lane.waiting or lane.sending)

    async def close(self, seconds: float) -> int:
        """Drain, and send nothing more: what is committed from now on waits for the next start."""
        left = await self.drain(seconds)
        self._is_open = False
        return left

    @asynccontextmanager
    async def typing(self, room: Room) -> AsyncIterator[None]:
        """Show that the agent is at work in a room, as long as the block lasts."""
        adapter = self._adapters.get(room.platform)
        if adapter is None or type(adapter).typing is Adapter.typing:
            yield
            return
        self._at_work[room.id] += 1
        if self._at_work[room.id] == 1:
            await self._show(adapter, room, active=True)
        try:
            yield
        finally:
            self._at_work[room.id] -= 1
            if not self._at_work[room.id]:  # a turn that took this one over may still be writing
                del self._at_work[room.id]
                await self._show(adapter, room, active=False)

    async def _show(self, adapter: Adapter, room: Room, *, active: bool) -> None:
        try:
            async with asyncio.timeout(TYPING_DEADLINE):
                await adapter.typing(room, active)
        except Exception:  # a typing sign is a courtesy: it never costs the answer
            logger.debug("no typing sign in %s", room.id, exc_info=True)

    async def _pack(self, reply: Outgoing) -> list[Delivery]:
        before: list[Delivery] = []
        if reply.replaces is not None:
            made = await self._ledger.deliveries(turn_id=reply.replaces.turn_id)
            before = [part for part in made if part.memory_id == reply.replaces.id]
        return packed(reply, self._adapters.get(reply.room.platform), self._clock(), before)

    def _queue(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            is_ours = self._holds(delivery.room_id)
            if delivery.state in OPEN and is_ours and delivery.id not in self._finished:
                self._lanes[delivery.room_id].put(delivery)
        for room_id in {delivery.room_id for delivery in deliveries}:
            self._wake(room_id)

    async def _commit(self, commitment: Commitment) -> None:
        """Carry a commitment out and queue its parts, also where whoever asked for it is stopped."""
        room_ids = {delivery.room_id for delivery in commitment.deliveries}
        for room_id in room_ids:
            self._lanes[room_id].commits += 1
        task = self._commits.begin(self._ledger.commit(commitment))
        try:
            await asyncio.shield(task)
        finally:
            if task.done():
                self._committed(room_ids, task)
            else:
                task.add_done_callback(partial(self._committed, room_ids))

    def _committed(self, room_ids: Collection[UUID], task: asyncio.Task[list[Delivery]]) -> None:
        if not task.cancelled() and task.exception() is None:
            reached("outbox.committed")
            self._queue(task.result())
        for room_id in room_ids:
            self._lanes[room_id].commits -= 1
            self._wake(room_id)

    def _senders(self) -> set[asyncio.Task[None]]:
        return {lane.sender for lane in self._lanes.values() if lane.sender is not None}

    def _wake(self, room_id: UUID) -> None:
        lane = self._lanes.get(room_id)
        if lane is None or lane.sender is not None or lane.commits:
            return
        if not lane.waiting:
            del self._lanes[room_id]
        elif self._is_open and lane.waiting[0].platform in self._adapters:
            lane.sender = asyncio.get_running_loop().create_task(self._send_all(lane))
            lane.sender.add_done_callback(partial(self._rest, room_id, lane))

    def _rest(self, room_id: UUID, lane: Lane, task: asyncio.Task[None]) -> None:
        lane.sender = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("replies for room %s wait for the next one", room_id, exc_info=error)
        elif not (task.cancelled() and lane.waiting):
            self._wake(room_id)

    async def _send_all(self, lane: Lane) -> None:
        while lane.waiting and not lane.commits:
            adapter = self._adapters[lane.waiting[0].platform]  # a room has one platform
            lane.sending = lane.waiting.popleft()
            try:
                await self._send(adapter, lane, lane.sending)
            except BaseException:  # stopped, or our own fault: the part goes on from where it stands
                lane.waiting.appendleft(lane.sending)
                lane.sending = None
                raise
            done, lane.sending = lane.sending, None
            self._finish(lane, done)

    def _finish(self, lane: Lane, delivery: Delivery) -> None:
        self._finished.add(delivery.id)
        message_id = delivery.memory_id
        if delivery.state is not DeliveryState.SENT:
            logger.warning("part %s is %s: %s", delivery.id, delivery.state, delivery.cause)
            self._broken.add(message_id)
        if any(other.memory_id == message_id for other in lane.waiting):
            return
        if message_id in self._broken:
            self._broken.discard(message_id)
            return
        self._events.emit(MessageSent(self._agent_id, message_id, delivery.room_id, delivery.turn_id))

    async def _send(self, adapter: Adapter, lane: Lane, delivery: Delivery) -> None:
        """Send one part until it is surely sent, surely not, or nobody can know; the lane has its state."""
        is_unclear = delivery.state is DeliveryState.ATTEMPTING
        if delivery.state not in OPEN:  # its outcome was known, but not yet written down, when it was stopped
            await self._record(delivery)
        while delivery.state in OPEN:
            delivery = replace(
                delivery,
                state=DeliveryState.ATTEMPTING,
                attempts=delivery.attempts + 1,
                first_attempt_at=delivery.first_attempt_at or self._clock(),
            )
            if not adapter.repeats_harmlessly:
                await self._record(delivery)
            lane.sending = delivery
            found = await attempt(adapter, delivery, is_unclear)
            if found.state is DeliveryState.UNKNOWN and not is_unclear:
                is_unclear = True  # it is asked for before anything is tried again
                continue
            is_unclear = False
            pause = pause_after(delivery.attempts, found.retry_after)
            state, cause = found.state, found.cause
            if state is DeliveryState.PENDING and self._is_over(delivery, pause):
                state, cause = DeliveryState.FAILED, f"given up after {delivery.attempts} attempts: {cause}"
            delivery = replace(delivery, state=state, external_id=found.external_id, cause=cause)
            lane.sending = delivery
            reached("send.pre_record")
            await self._record(delivery)
            reached(f"send.part{delivery.part + 1}")
            if state is DeliveryState.PENDING:
                await asyncio.sleep(pause)

    def _is_over(self, delivery: Delivery, pause: float) -> bool:
        return self._clock() + timedelta(seconds=pause) - delivery.created_at > RETRY_BUDGET

    async def _record(self, delivery: Delivery) -> None:
        """Write a delivery's state; while the ledger fails nothing else is done with it."""
        for failures in count(1):
            try:
                await self._ledger.save_delivery(delivery)
            except LaneLost:
                raise
            except StoreUnavailable:  # the log has it once, and not for every part
                logger.debug("part %s waits to be written down", delivery.id)
            except Exception:  # the store's fault, and perhaps a passing one: what was sent must be known
                logger.warning("part %s could not be written down", delivery.id, exc_info=True)
            else:
                return
            await asyncio.sleep(pause_after(failures))
