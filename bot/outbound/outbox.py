"""The one door out: a reply is kept before it leaves, and leaves in its room's order."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from bot.adapter.adapter import Adapter, Feed
from bot.concurrency.bounded import Remembered
from bot.concurrency.clock import Clock, Patience, system_clock
from bot.concurrency.crash_points import reached
from bot.concurrency.tasks import Unbroken
from bot.domain.environment import Room
from bot.domain.events import MessageSent
from bot.domain.ledger import Delivery, DeliveryState, Receipt
from bot.domain.memory import Memory
from bot.errors import StoreUnavailable
from bot.event_bus import EventBus
from bot.outbound.content_filter import Hyperlinks, cleared
from bot.outbound.delivery_attempt import OPEN, written_down
from bot.outbound.draft import Draft, Sleep
from bot.outbound.drafts import Drafts, is_draft
from bot.outbound.message_parts import Outgoing, anew, is_removal, packed
from bot.outbound.room_sender import Lane, Sender
from bot.outbound.typing_indicator import Signs
from bot.store.ledger import Commitment, Ledger

logger = logging.getLogger(__name__)
LET_GO, GLANCE = 2.0, 0.2
MOST_FINISHED = 1000
LEFT_BEHIND = "it stands in the room that this was before, where nothing can be changed any more"


class Outbox:
    """Commits replies with whatever closes together with them, then sends their parts room by room.

    `secrets` are values that must never leave, `hyperlinks` says what links may carry; where it `streams`,
    replies are seen while they are written. A reply for a platform that is not connected waits; so does one
    in a room that another process holds.
    """

    def __init__(
        self,
        ledger: Ledger,
        events: EventBus,
        agent_id: UUID,
        *,
        secrets: Collection[str] = (),
        hyperlinks: Hyperlinks | None = None,
        streams: bool = True,
        holds: Callable[[UUID], bool] = lambda room_id: True,
        clock: Clock = system_clock,
        sleep: Sleep = asyncio.sleep,
        patience: Patience | None = None,
    ) -> None:
        self._ledger = ledger
        self._events = events
        self._agent_id = agent_id
        self._secrets, self._hyperlinks = frozenset(secrets), hyperlinks
        self._holds = holds
        self._clock = clock
        self._patience = patience or Patience()
        self._adapters: dict[str, Adapter] = {}
        self._lanes: defaultdict[UUID, Lane] = defaultdict(Lane)
        self._signs = Signs()
        self._finished = Remembered[str](MOST_FINISHED)  # a commit or resume may still name them
        self._broken: set[UUID] = set()  # messages of which a part did not arrive
        self._moved: dict[UUID, Room] = {}  # turns under way may still name the room that it was
        self._commits = Unbroken()
        self._taken_back: set[UUID] = set()  # turns of which the draft is just being taken away
        self._streams = streams
        self._sender = Sender(ledger, clock, sleep)
        self._drafts = Drafts(
            ledger,
            secrets=self._secrets,
            hyperlinks=hyperlinks,
            may_leave=lambda part: part.room_id not in self._lanes,
            clock=clock,
            sleep=sleep,
        )
        self._is_open = True

    def connect(self, adapter: Adapter) -> None:
        """Make a platform reachable; what waits for it leaves now."""
        self._adapters[adapter.platform] = adapter
        for room_id in list(self._lanes):
            self._wake(room_id)

    def disconnect(self, adapter: Adapter) -> None:
        """Leave what is for a platform that is gone, also what is just on its way, until it is back."""
        if self._adapters.get(adapter.platform) is not adapter:
            return
        del self._adapters[adapter.platform]
        for lane in self._lanes.values():
            if lane.sender and lane.sending and lane.sending.platform == adapter.platform:
                lane.sender.cancel()

    def reaches(self, platform: str) -> bool:
        """Tell whether a platform is connected."""
        return platform in self._adapters

    def adapter(self, platform: str) -> Adapter | None:
        """Find what connects a platform, to ask what can be done there; None while nothing does."""
        return self._adapters.get(platform)

    def feeds(self) -> list[Feed]:
        """List where the agent posts on the platforms that are connected."""
        return [feed for one in self._adapters.values() if (feed := one.feed(self._agent_id)) is not None]

    async def commit(
        self, outgoing: Sequence[Outgoing] = (), receipts: Sequence[Receipt] = ()
    ) -> list[Memory]:
        """Keep replies, their parts and the receipts they close, all at once; then send.

        Gives back the replies as they were kept; one of which nothing may leave is dropped.
        """
        kept: list[Memory] = []
        deliveries: list[Delivery] = []
        for reply in outgoing:
            content = cleared(reply.memory.content, self._secrets, self._hyperlinks)
            if content is None:
                logger.info("a reply of turn %s was empty; nothing is sent", reply.memory.turn_id)
                continue
            reply = self._where_now(reply)
            if content is not reply.memory.content:
                reply = replace(reply, memory=replace(reply.memory, content=content))
            kept.append(reply.memory)
            deliveries += await self._pack(reply)
        if self._drafts:
            ended = {one.turn_id for one in receipts if one.turn_id is not None and one.outcome.is_final}
            deliveries = await self._drafts.settle(deliveries, ended)
        await self._commit(Commitment(tuple(kept), tuple(deliveries), tuple(receipts)))
        return kept

    def draft(self, room: Room, reply: Callable[[], Outgoing]) -> Draft | None:
        """Give what shows a reply while it is written; None where the room's platform takes whole ones only.

        What the turn then says first takes its place. Where it closes without a word, that is taken away.
        """
        adapter = self._adapters.get(room.platform)
        every = adapter.edits_every(room) if adapter is not None and self._streams else None
        if adapter is None or every is None:
            return None
        return self._drafts.of(self._where_now(reply()), adapter, every)

    def has_draft(self, turn_id: UUID) -> bool:
        """Tell whether something of a turn's reply is seen already, or may be."""
        return turn_id in self._drafts

    def take_back(self, turn_id: UUID) -> Awaitable[None]:
        """Take away what is seen of a reply that will not be said; also where nobody waits for it."""
        return asyncio.shield(self._commits.begin(self._take_back(turn_id)))

    async def _take_back(self, turn_id: UUID) -> None:
        if turn_id not in self._drafts or turn_id in self._taken_back:
            return
        self._taken_back.add(turn_id)
        try:
            parts = await self._drafts.settle([], [turn_id])
            await self._commit(Commitment(deliveries=tuple(parts)))
        except StoreUnavailable:
            logger.debug("what is seen of turn %s stands until the next start", turn_id)
        finally:
            self._taken_back.discard(turn_id)

    async def resume(self) -> int:
        """Take up what an earlier process left unsent; gives back how many parts that is."""
        found = await self._ledger.deliveries(is_open=True)
        left, orphans = await self._drafts.take_up([part for part in found if self._holds(part.room_id)])
        for turn_id in orphans:
            await self.take_back(turn_id)
        for turn_id in {delivery.turn_id for delivery in left if delivery.part}:
            for part in await self._ledger.deliveries(is_open=False, turn_id=turn_id):
                if part.state is not DeliveryState.SENT:
                    self._broken.add(part.memory_id)
        for part in left:
            self._lanes[part.room_id].open_from = self._clock()
        self._queue(left)
        return len(left)

    async def send_left(self, turn_id: UUID) -> None:
        """Send what a turn has committed without anybody knowing; what is under way stays as it is."""
        left = await self._ledger.deliveries(is_open=True, turn_id=turn_id)
        self._queue([part for part in left if not is_draft(part)])

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
        return room_id in self._lanes or self._drafts.is_at_work(room_id)

    async def abandon(self) -> None:
        """Stop sending: another process does it."""
        await self._drafts.stop()
        for lane in self._lanes.values():
            lane.waiting.clear()
        await self._stop_sending(LET_GO)
        self._lanes.clear()
        self._finished = Remembered[str](MOST_FINISHED)

    async def hold_back(self, cancelled: Sequence[Delivery]) -> None:
        """Send these no more, which the ledger has as cancelled; one on its way right now is let finish."""
        for part in cancelled:
            lane = self._lanes.get(part.room_id)
            is_next = lane is not None and lane.sending is not None and lane.sending.id == part.id
            if not await self.withdraw(part):
                continue
            if is_next:
                await written_down(self._ledger, part)  # over the attempt that was just to be written down
            if (removal := self._drafts.orphaned(part)) is not None:
                await self._commit(Commitment(deliveries=(removal,)))

    async def move(self, room_id: UUID, room: Room, waiting: Sequence[Delivery]) -> None:
        """Have what waits in a room leave to another one, and what is still said there too."""
        self._moved[room_id] = room
        await self._drafts.move(room_id)
        waiting = [part for part in waiting if not is_draft(part)]
        for part in waiting:
            if await self.withdraw(replace(part, room_id=room_id)):
                self._finished.discard(part.id)
        for part in filter(is_removal, waiting):
            await written_down(self._ledger, replace(part, state=DeliveryState.CANCELLED, cause=LEFT_BEHIND))
        self._queue([anew(part) for part in waiting if not is_removal(part)])

    async def drain(self, seconds: float) -> int:
        """Wait for parts on their way, then stop those; gives back how many rooms still have some.

        What is not sent stays in the ledger; it is taken up with the room's next reply, or at the next
        start. Nobody waits for what its platform will not have before the time is up.
        """
        clock = asyncio.get_running_loop().time
        end, wall_end = clock() + seconds, self._clock() + timedelta(seconds=seconds)
        await self._commits.wait(min(seconds, LET_GO))
        while (senders := self._senders(open_by=wall_end)) and (left := end - clock()) > 0:
            await asyncio.wait(senders, timeout=min(left, GLANCE))
        await self._stop_sending(self._patience.left(LET_GO))
        return sum(1 for lane in self._lanes.values() if lane.waiting or lane.sending)

    async def close(self, seconds: float) -> int:
        """Drain, and send nothing more: what is committed from now on waits for the next start."""
        await self._drafts.stop()
        left = await self.drain(seconds)
        self._is_open = False
        return left

    def typing(self, room: Room) -> AbstractAsyncContextManager[None]:
        """Show that the agent is at work in a room, as long as the block lasts."""
        return self._signs.shown(self._adapters.get(room.platform), room)

    def _where_now(self, reply: Outgoing) -> Outgoing:
        """Give a reply the room that its own has become, if it has; there it answers nothing by a name."""
        room = self._moved.get(reply.room.id)
        if room is None:
            return reply
        memory = replace(reply.memory, room_id=room.id, world_id=room.world_id)
        return replace(reply, memory=memory, room=room, reply_to="")

    async def _pack(self, reply: Outgoing) -> list[Delivery]:
        before: list[Delivery] = []
        if reply.replaces is not None:
            made = await self._ledger.deliveries(turn_id=reply.replaces.turn_id)
            here = (part for part in made if part.target == reply.room.external_id)
            before = [part for part in here if part.memory_id == reply.replaces.id]
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
            placed = task.result()
            if self._drafts:
                placed = [*self._drafts.committed(placed), *placed]
            self._queue(placed)
        for room_id in room_ids:
            self._lanes[room_id].commits -= 1
            self._wake(room_id)

    async def _stop_sending(self, seconds: float) -> None:
        senders = self._senders()
        for task in senders:
            task.cancel()
        if senders:
            await asyncio.wait(senders, timeout=seconds)

    def _senders(self, open_by: datetime | None = None) -> set[asyncio.Task[None]]:
        lanes = (one for one in self._lanes.values() if open_by is None or one.is_open(open_by))
        return {lane.sender for lane in lanes if lane.sender is not None}

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
            adapter = self._adapters.get(lane.waiting[0].platform)  # a room has one platform
            if adapter is None:
                return
            lane.sending = lane.waiting.popleft()
            try:
                await self._sender.send(adapter, lane, self._drafts.addressed(lane.sending))
            except BaseException:  # stopped, or our own fault: the part goes on from where it stands
                lane.waiting.appendleft(lane.sending)
                lane.sending = None
                raise
            done, lane.sending = lane.sending, None
            if done.state is DeliveryState.CANCELLED:
                await self._drop_rest(lane, done)
            self._finish(lane, done)
            await self._drafts.end(done)

    async def _drop_rest(self, lane: Lane, gone: Delivery) -> None:
        """Say no more of a message whose beginning somebody has taken away."""
        for part in [one for one in lane.waiting if one.memory_id == gone.memory_id and not one.edits]:
            lane.waiting.remove(part)
            self._finished.add(part.id)
            dropped = replace(part, state=DeliveryState.CANCELLED, cause=gone.cause)
            await written_down(self._ledger, dropped)

    def _finish(self, lane: Lane, delivery: Delivery) -> None:
        self._finished.add(delivery.id)
        if self._drafts.has_come(delivery):
            return
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
