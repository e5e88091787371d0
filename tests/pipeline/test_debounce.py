"""How long a turn waits for the rest of a burst: by the rhythm in which its author writes."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from bot.concurrency.clock import TimeSource
from bot.pipeline.turn_order import MAX_BURST_SECONDS, Debounce, LatestResponse
from bot.testing import AgentHarness, make_turn
from bot.turn import Turn

ROOM = LatestResponse.ROOM


@dataclass
class Time:
    """A clock that a sleep moves on; `during` is called at the end of each."""

    seconds: float = 100.0
    slept: float = 0.0
    during: list[Callable[[], None]] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.slept += seconds
        if self.during:
            self.during.pop(0)()

    @property
    def source(self) -> TimeSource:
        return TimeSource(monotonic=lambda: self.seconds, sleep=self.sleep)


@dataclass
class Writer:
    """One person in one room, and what waits for their messages."""

    harness: AgentHarness
    time: Time
    debounce: Debounce
    name: str = "Ann"

    def turn(self, *gaps: float) -> Turn:
        """A turn about a message that is received now, and about further ones after these seconds."""
        turn = make_turn(self.harness.agent, "hello", author=self.name)
        for gap in (0.0, *gaps):
            self.time.seconds += gap
            [turn_input] = make_turn(self.harness.agent, "hello", author=self.name).inputs
            turn_input.received_monotonic = self.time.seconds
            turn.inputs.append(turn_input)
        del turn.inputs[0]
        turn.is_fresh = True
        return turn

    async def wait(self, turn: Turn, mode: LatestResponse = ROOM, fixed: float | None = None) -> float:
        """Return how many seconds a turn waits."""
        before = self.time.slept
        await self.debounce.wait(turn, mode, fixed)
        return round(self.time.slept - before, 6)

    async def write(self, *gaps: float) -> float:
        """Write messages, and wait until they are answered; return how many seconds the last one waited."""
        turn = self.turn(*gaps)
        waited = await self.wait(turn)
        self.time.seconds += 1.0
        self.debounce.learn(turn)
        self.time.seconds += 1.0
        return waited


@pytest.fixture
def writer(agent_harness: AgentHarness) -> Writer:
    time = Time()
    return Writer(agent_harness, time, Debounce(time.source))


async def test_single_messages_never_wait(writer: Writer) -> None:
    assert [await writer.write() for _ in range(8)] == [0.0] * 8


async def test_quick_questions_that_are_answered_at_once_are_single_messages(writer: Writer) -> None:
    for _ in range(5):
        turn = writer.turn()
        assert await writer.wait(turn) == 0.0
        writer.time.seconds += 0.01
        writer.debounce.learn(turn)
        writer.time.seconds += 0.01


@pytest.mark.parametrize(("gap", "pause"), [(0.02, 0.5), (0.4, 0.8), (0.7, 1.4), (1.2, 1.5), (1.5, 1.5)])
async def test_a_message_in_a_burst_waits_for_twice_the_longest_gap(writer: Writer, gap: float, pause: float) -> None:
    assert await writer.write(0.01, gap, 0.01) == pause


async def test_messages_further_apart_than_the_longest_pause_do_not_wait(writer: Writer) -> None:
    assert await writer.write(1.6, 4.0) == 0.0


async def test_a_person_who_mostly_writes_bursts_is_waited_for_from_the_first_message_on(writer: Writer) -> None:
    await writer.write(0.6, 0.4)
    assert await writer.write() == 1.2
    assert await writer.write() == 0.0  # a burst and a single message: not mostly bursts


async def test_a_person_who_has_changed_their_rhythm_is_not_waited_for_any_more(writer: Writer) -> None:
    for _ in range(5):
        await writer.write(0.3)
    assert [await writer.write() for _ in range(4)] == [0.6, 0.6, 0.6, 0.0]


async def test_a_message_that_came_before_the_answer_to_the_previous_message_belongs_to_its_burst(
    writer: Writer,
) -> None:
    first, second = writer.turn(), writer.turn(0.0)
    second.inputs[:] = second.inputs[-1:]
    second.inputs[0].received_monotonic += 0.4
    writer.time.seconds += 0.5
    writer.debounce.learn(first)
    assert await writer.wait(second) == pytest.approx(0.7)
    writer.debounce.learn(second)
    await writer.write(0.3)
    assert await writer.write() == 0.8


async def test_the_rhythm_of_a_person_makes_no_other_wait(writer: Writer) -> None:
    await writer.write(0.3)
    assert await Writer(writer.harness, writer.time, writer.debounce, "Ben").write() == 0.0


async def test_in_a_turn_of_two_people_both_are_waited_for(writer: Writer) -> None:
    turn = writer.turn(0.6)
    turn.inputs += Writer(writer.harness, writer.time, writer.debounce, "Ben").turn().inputs
    assert await writer.wait(turn) == 1.2


async def test_a_person_who_types_is_waited_for(writer: Writer) -> None:
    turn = writer.turn()
    room, author = turn.room.id, turn.author.id
    writer.debounce.note_typing(room, author)  # the message that has come
    assert await writer.wait(turn) == 0.0
    writer.time.seconds += 0.2
    writer.debounce.note_typing(room, author)
    assert await writer.wait(turn) == 1.3


async def test_a_person_who_begins_to_type_during_the_wait_is_waited_for_longer(writer: Writer) -> None:
    turn = writer.turn(0.02)
    writer.time.during.append(lambda: writer.debounce.note_typing(turn.room.id, turn.author.id))
    writer.time.seconds += 0.1
    assert await writer.wait(turn) == 1.4


async def test_the_wait_for_a_burst_ends_ten_seconds_after_its_first_message(writer: Writer) -> None:
    assert await writer.write(*[1.0] * 9) == MAX_BURST_SECONDS - 9.0
    assert await writer.write(*[1.0] * 12) == 0.0


async def test_a_fixed_pause_is_waited_after_every_message(writer: Writer) -> None:
    assert await writer.wait(writer.turn(), fixed=0.3) == 0.3
    assert await writer.wait(writer.turn(0.1, 0.1), fixed=0.3) == 0.3
    assert await writer.wait(writer.turn(0.1, 0.1), fixed=0.0) == 0.0


async def test_nothing_waits_where_each_message_gets_its_own_answer_or_the_process_was_restarted(
    writer: Writer,
) -> None:
    assert await writer.wait(writer.turn(0.1), LatestResponse.QUEUE) == 0.0
    resumed = writer.turn(0.1)
    resumed.is_fresh = False
    assert await writer.wait(resumed) == 0.0


async def test_a_turn_says_that_it_waits(writer: Writer) -> None:
    turn, seen = writer.turn(0.1), list[bool]()
    writer.time.during.append(lambda: seen.append(turn.is_waiting))
    await writer.wait(turn)
    assert (seen, turn.is_waiting) == ([True], False)
