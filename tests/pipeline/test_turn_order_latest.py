"""Turn order: which turn owns a room, which supersedes which, and that no message is lost."""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from bot.pipeline.turn_order import BURST_SECONDS, MAX_CARRIED, LatestResponse, Superseded, TurnQueue
from bot.testing import AgentHarness, make_turn
from bot.turn import Turn


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class Walk:
    """A turn that advances one step at a time, controlled by the test."""

    turn: Turn
    held: asyncio.Event = field(default_factory=asyncio.Event)
    may_commit: asyncio.Event = field(default_factory=asyncio.Event)
    committed: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None]" = field(init=False)

    async def over(self, turn_queue: TurnQueue, covers: frozenset[UUID] | None = None) -> None:
        async with turn_queue.acquire(self.turn, covers):
            self.held.set()
            await self.may_commit.wait()
            self.turn.commit()
            self.committed.set()
            await self.may_end.wait()

    async def commit(self) -> None:
        self.may_commit.set()
        await self.committed.wait()

    async def end(self) -> None:
        self.may_commit.set()
        self.may_end.set()
        await self.task

    @property
    def texts(self) -> list[str]:
        return [turn_input.message.content.text for turn_input in self.turn.inputs]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def turn_queue(clock: Clock) -> TurnQueue:
    return TurnQueue(LatestResponse.ROOM, clock=clock)


@pytest.fixture
def begin(agent_harness: AgentHarness, clock: Clock):
    """Start the turn of a message and run it until it waits."""
    walks: list[Walk] = []

    async def begin(
        turn_queue: TurnQueue, text: str, *, covers: frozenset[UUID] | None = None, **details: object
    ) -> Walk:
        walk = Walk(make_turn(agent_harness.agent, text, **details))
        walk.turn.inputs[0].received_monotonic = clock.now
        walk.task = asyncio.ensure_future(walk.over(turn_queue, covers))
        walks.append(walk)
        await idle()
        return walk

    yield begin
    assert all(walk.task.done() for walk in walks), "a turn was left over"


async def idle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def superseded(walk: Walk) -> Turn:
    with pytest.raises(Superseded) as raised:
        await walk.task
    return raised.value.newer_turn


async def test_an_idle_room_is_acquired_immediately(turn_queue: TurnQueue, begin) -> None:
    walk = await begin(turn_queue, "one")
    assert walk.held.is_set()
    await walk.end()


async def test_a_newer_turn_supersedes_and_takes_all_messages_in_order(turn_queue: TurnQueue, begin, clock) -> None:
    first = await begin(turn_queue, "one")
    clock.now += 0.1
    second = await begin(turn_queue, "two")
    clock.now += 0.1
    third = await begin(turn_queue, "three")
    assert await superseded(first) is second.turn
    assert await superseded(second) is third.turn
    assert third.held.is_set()
    assert third.texts == ["one", "two", "three"]
    await third.end()


async def test_a_late_turn_with_older_messages_keeps_the_newest_message_last(
    turn_queue: TurnQueue, begin, clock
) -> None:
    newer = await begin(turn_queue, "came second")
    clock.now -= 0.5
    older = await begin(turn_queue, "came first, judged later")
    await superseded(newer)
    assert older.texts == ["came first, judged later", "came second"]
    assert older.turn.message.content.text == "came second"
    await older.end()


async def test_a_committed_turn_is_not_superseded(turn_queue: TurnQueue, begin) -> None:
    first = await begin(turn_queue, "one")
    await first.commit()
    second = await begin(turn_queue, "two")
    assert not second.held.is_set()
    await first.end()
    await idle()
    assert second.held.is_set()
    assert second.texts == ["two"]
    await second.end()


async def test_a_waiting_turn_can_be_superseded(turn_queue: TurnQueue, begin) -> None:
    first = await begin(turn_queue, "one")
    await first.commit()
    second = await begin(turn_queue, "two")
    third = await begin(turn_queue, "three")
    assert await superseded(second) is third.turn
    assert not second.held.is_set()
    await first.end()
    await idle()
    assert third.texts == ["two", "three"]
    await third.end()


async def test_a_turn_that_acquired_the_room_but_has_not_started_can_be_superseded(
    turn_queue: TurnQueue, begin, agent_harness: AgentHarness
) -> None:
    first = await begin(turn_queue, "one")
    await first.commit()
    second = await begin(turn_queue, "two")
    first.may_end.set()
    third = Walk(make_turn(agent_harness.agent, "three"))
    first.task.add_done_callback(lambda _: setattr(third, "task", asyncio.ensure_future(third.over(turn_queue))))
    await idle()
    assert await superseded(second) is third.turn
    await third.end()


async def test_in_a_burst_any_number_of_turns_is_superseded(turn_queue: TurnQueue, begin, clock: Clock) -> None:
    walks = []
    for number in range(20):
        walks.append(await begin(turn_queue, str(number)))
        clock.now += BURST_SECONDS / 20
    assert walks[-1].texts == [str(number) for number in range(20)]
    await walks[-1].end()
    for walk in walks[:-1]:
        await superseded(walk)


@pytest.mark.failure("O-04")
async def test_after_the_burst_a_message_is_superseded_a_limited_number_of_times(
    turn_queue: TurnQueue, begin, clock: Clock
) -> None:
    walks = []
    for number in range(MAX_CARRIED + 1):
        walks.append(await begin(turn_queue, str(number)))
        clock.now += 2 * BURST_SECONDS
    protected = walks[-1]
    late = await begin(turn_queue, "late")
    assert [turn_input.receipt.supersede_count for turn_input in protected.turn.inputs] == [2, 1, 0]
    assert protected.held.is_set()
    assert not late.held.is_set()
    clock.now += 2 * BURST_SECONDS
    later = await begin(turn_queue, "later")
    assert await superseded(late) is later.turn
    await protected.end()
    await idle()
    assert later.texts == ["late", "later"]
    await later.end()
    for walk in walks[:-1]:
        await superseded(walk)


@pytest.mark.failure("O-04")
async def test_every_message_is_answered_in_a_room_that_never_pauses(
    turn_queue: TurnQueue, begin, clock: Clock
) -> None:
    """O-04: a message every 0.9 s, and each answer would take 5 s."""
    walks = [await begin(turn_queue, "0")]
    for number in range(1, 10):
        clock.now += 0.9
        walks.append(await begin(turn_queue, str(number)))
    kept = [walk for walk in walks if not walk.task.done()]
    assert [walk.texts for walk in kept] == [["0", "1", "2", "3"], ["4", "5", "6", "7"], ["8", "9"]]
    for walk in kept:
        await walk.end()
    for walk in walks:
        if walk not in kept:
            await superseded(walk)


async def test_by_author_only_messages_of_the_same_author_supersede(begin, clock: Clock) -> None:
    turn_queue = TurnQueue(LatestResponse.AUTHOR, clock=clock)
    alice = await begin(turn_queue, "one", author="Alice")
    bob = await begin(turn_queue, "two", author="Bob")
    assert not bob.held.is_set()
    again = await begin(turn_queue, "three", author="Bob")
    assert await superseded(bob) is again.turn
    assert not alice.task.done()
    await alice.end()
    await idle()
    assert again.texts == ["two", "three"]
    await again.end()


async def test_in_a_queue_no_turn_is_superseded_and_all_run_in_order(begin, clock: Clock) -> None:
    turn_queue = TurnQueue(LatestResponse.QUEUE, clock=clock)
    walks = [await begin(turn_queue, str(number)) for number in range(4)]
    for number, walk in enumerate(walks):
        assert [walk.held.is_set() for walk in walks] == [place <= number for place in range(4)]
        await walk.end()
        await idle()


async def test_rooms_are_independent(turn_queue: TurnQueue, begin) -> None:
    here = await begin(turn_queue, "one", room="here")
    there = await begin(turn_queue, "two", room="there")
    assert here.held.is_set()
    assert there.held.is_set()
    await here.end()
    await there.end()


@pytest.mark.parametrize("is_committed", [False, True])
async def test_a_failed_turn_frees_the_room(turn_queue: TurnQueue, begin, is_committed: bool) -> None:
    turn = replace_turn((await begin(turn_queue, "first")).turn)

    async def fail() -> None:
        async with turn_queue.acquire(turn):
            if is_committed:
                turn.commit()
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await fail()
    after = await begin(turn_queue, "second")
    assert after.held.is_set()
    await after.end()


def replace_turn(turn: Turn) -> Turn:
    return replace(turn, inputs=list(turn.inputs))


async def test_outer_cancellation_propagates_while_waiting(turn_queue: TurnQueue, begin) -> None:
    first = await begin(turn_queue, "one")
    await first.commit()
    second = await begin(turn_queue, "two")
    second.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second.task
    third = await begin(turn_queue, "three")
    await first.end()
    await idle()
    assert third.held.is_set()
    await third.end()


async def test_outer_cancellation_propagates_and_frees_the_room(turn_queue: TurnQueue, begin) -> None:
    first = await begin(turn_queue, "one")
    first.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first.task
    second = await begin(turn_queue, "two")
    assert second.held.is_set()
    assert second.texts == ["two"]
    await second.end()


async def test_a_turn_that_was_just_superseded_can_still_be_cancelled_from_outside(
    turn_queue: TurnQueue, begin
) -> None:
    first = await begin(turn_queue, "one")
    second = Walk(replace_turn(first.turn))
    second.task = asyncio.ensure_future(second.over(turn_queue))
    asyncio.get_running_loop().call_soon(first.task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await first.task
    await second.end()


async def test_after_being_superseded_the_task_can_continue(
    turn_queue: TurnQueue, begin, agent_harness: AgentHarness
) -> None:
    reached = asyncio.Event()

    async def go_on(turn: Turn) -> None:
        with pytest.raises(Superseded):
            async with turn_queue.acquire(turn):
                await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        reached.set()

    task = asyncio.ensure_future(go_on(make_turn(agent_harness.agent, "one")))
    await idle()
    second = await begin(turn_queue, "two")
    await reached.wait()
    await task
    await second.end()


async def test_the_newer_turn_may_finish_before_the_older_has_released_the_room(
    turn_queue: TurnQueue, begin, agent_harness: AgentHarness
) -> None:
    has_let_go = asyncio.Event()

    async def slow_to_let_go() -> None:
        async with turn_queue.acquire(make_turn(agent_harness.agent, "one")):
            try:
                await asyncio.Event().wait()
            finally:
                await has_let_go.wait()

    older = asyncio.ensure_future(slow_to_let_go())
    await idle()
    newer = await begin(turn_queue, "two")
    await newer.end()
    has_let_go.set()
    with pytest.raises(Superseded):
        await older
    third = await begin(turn_queue, "three")
    assert third.held.is_set()
    await third.end()


async def test_a_late_release_does_not_affect_a_third_turn(
    turn_queue: TurnQueue, begin, agent_harness: AgentHarness
) -> None:
    has_let_go = asyncio.Event()

    async def slow_to_let_go() -> None:
        async with turn_queue.acquire(make_turn(agent_harness.agent, "one")):
            try:
                await asyncio.Event().wait()
            finally:
                await has_let_go.wait()

    older = asyncio.ensure_future(slow_to_let_go())
    await idle()
    newer = await begin(turn_queue, "two")
    await newer.end()
    third = await begin(turn_queue, "three")
    await third.commit()
    has_let_go.set()
    with pytest.raises(Superseded):
        await older
    fourth = await begin(turn_queue, "four")
    assert not fourth.held.is_set()
    await third.end()
    await fourth.end()


async def test_a_superseded_turn_that_suppresses_cancellation_cannot_commit(
    turn_queue: TurnQueue, begin, agent_harness: AgentHarness
) -> None:
    passed = asyncio.Event()

    async def swallow() -> None:
        turn = make_turn(agent_harness.agent, "one")
        async with turn_queue.acquire(turn):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            turn.commit()
            passed.set()

    older = asyncio.ensure_future(swallow())
    await idle()
    newer = await begin(turn_queue, "two")
    with pytest.raises(Superseded):
        await older
    assert not passed.is_set()
    assert not older.cancelling()
    await newer.end()


async def test_a_turn_that_suppresses_cancellation_and_returns_is_still_superseded(
    turn_queue: TurnQueue, begin, agent_harness: AgentHarness
) -> None:
    async def swallow() -> None:
        async with turn_queue.acquire(make_turn(agent_harness.agent, "one")):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    older = asyncio.ensure_future(swallow())
    await idle()
    newer = await begin(turn_queue, "two")
    with pytest.raises(Superseded):
        await older
    await newer.end()


async def test_a_resumed_answer_is_not_superseded(turn_queue: TurnQueue, begin) -> None:
    first = await begin(turn_queue, "one", covers=frozenset())
    second = await begin(turn_queue, "two")
    assert not first.task.done()
    assert not second.held.is_set()
    await first.end()
    await idle()
    assert second.texts == ["two"]
    await second.end()


async def test_a_resumed_answer_supersedes_only_turns_of_its_own_messages(turn_queue: TurnQueue, begin) -> None:
    about = await begin(turn_queue, "one", room="a")
    other = await begin(turn_queue, "one", room="b")
    resumed = await begin(turn_queue, "two", room="a", covers=frozenset({about.turn.message.id}))
    waiting = await begin(turn_queue, "two", room="b", covers=frozenset())
    assert await superseded(about) is resumed.turn
    assert resumed.texts == ["one", "two"]
    assert not waiting.held.is_set()
    await other.end()
    await idle()
    assert waiting.texts == ["two"]
    await resumed.end()
    await waiting.end()


@pytest.mark.matrix(3)
@pytest.mark.parametrize("mode", list(LatestResponse))
@pytest.mark.parametrize("seed", range(8))
async def test_every_message_belongs_to_exactly_1_finished_turn(
    agent_harness: AgentHarness, mode: LatestResponse, seed: int
) -> None:
    """Turns that arrive, commit, suppress cancellation, fail, stop and release late, in any order."""
    chance = random.Random(seed)
    clock = Clock()
    turn_queue = TurnQueue(mode, clock=clock)
    holders: dict[UUID, int] = {}
    ended: list[UUID] = []

    async def pause() -> None:
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)

    async def walk(turn: Turn) -> None:
        try:
            await pause()
            clock.now += chance.random()
            turn.inputs[0].received_monotonic = clock.now
            async with turn_queue.acquire(turn):
                try:
                    await pause()
                except asyncio.CancelledError:
                    if chance.random() < 0.5 or turn.superseded_by is None:
                        raise
                turn.commit()
                holders[turn.room.id] = holders.get(turn.room.id, 0) + 1
                assert holders[turn.room.id] == 1
                try:
                    await pause()
                    if chance.random() < 0.2:
                        raise RuntimeError("broken")
                finally:
                    holders[turn.room.id] -= 1
        finally:
            if turn.superseded_by is None:
                ended.extend(turn_input.message.id for turn_input in turn.inputs)

    turns = [
        make_turn(agent_harness.agent, str(number), room=f"r{number % 3}", author=f"a{number % 2}")
        for number in range(60)
    ]
    messages = {turn.message.id for turn in turns}
    tasks = [asyncio.ensure_future(walk(turn)) for turn in turns]
    await asyncio.sleep(0)
    for task in chance.sample(tasks, 6):
        await pause()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(ended) == len(messages)
    assert set(ended) == messages
    assert not turn_queue._rooms
