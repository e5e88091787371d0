"""After a crash the messages under way are halved until the one that causes it is alone."""

import asyncio
import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.domain.inbound import StoredEvent
from bot.domain.ledger import Outcome, Receipt, Rule
from bot.inbound.inbox import Inbox
from bot.inbound.processing import EventState, OnOutcome, plan_recovery
from bot.outbound.sender import WorkOwnership
from bot.store import InMemoryStore
from bot.testing import make_message
from tests.clocks import ManualClock

MAX_CRASHES = 3
MAX_STEPS = 10_000
STEPS = 3  # of the event loop, in which a message is under way


async def until_over(inbox: Inbox, died: asyncio.Event) -> None:
    """Wait until nothing is under way or held, or until the process dies."""
    for _ in range(MAX_STEPS):
        if died.is_set() or not (inbox.processor._tasks or inbox.processor.trials.is_holding):
            return
        await asyncio.sleep(0)
    pytest.fail("it does not end")


@dataclass(slots=True, eq=False)
class Bot:
    """Processes that share a store, one after another; some texts end the process that works on them."""

    deadly: frozenset[str] = frozenset()
    clock: ManualClock = field(default_factory=ManualClock)
    platforms: dict[str, object] = field(default_factory=lambda: {"test": object()})
    crashes: int = 0
    alone_at_crash: list[str] = field(default_factory=list)
    store: InMemoryStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = InMemoryStore(self.clock)

    async def run(self, *texts: str, downtime: float = 0.0) -> bool:
        """Run one process until nothing is under way, or until it dies; return whether it has ended well."""
        under_way: dict[UUID, str] = {}
        died = asyncio.Event()

        async def process(event: StoredEvent, on_outcome: OnOutcome) -> None:
            receipt = event.receipt
            if not event.is_new:
                attempts, claimed_at = receipt.attempts + 1, self.clock()
                receipt = replace(receipt, outcome=Outcome.CLAIMED, attempts=attempts, claimed_at=claimed_at)
                await self.store.ledger.save_receipts([receipt])
            outcome = Outcome.FAILED if receipt.crash_count >= MAX_CRASHES else Outcome.ANSWERED
            text = (await self.store.memories.memories([receipt.memory_id]))[receipt.memory_id].content.text
            under_way[receipt.id] = text
            for step in range(STEPS):
                if text in self.deadly and outcome is Outcome.ANSWERED and step == 1:
                    died.set()
                    await asyncio.Event().wait()
                await asyncio.sleep(0)
            if died.is_set():
                await asyncio.Event().wait()
            del under_way[receipt.id]
            closed = replace(receipt, outcome=outcome, closed_at=self.clock())
            await self.store.ledger.save_receipts([closed])
            on_outcome(closed)

        ownership = WorkOwnership(None, self.platforms)  # type: ignore[arg-type]
        inbox = Inbox(self.store.ledger, process, ownership=ownership, clock=self.clock)
        await inbox.recover()
        for text in texts:
            await inbox.submit(make_message(text, sent_at=self.clock(), room=text))
        await inbox.processor.resume_all()
        await until_over(inbox, died)
        if died.is_set():
            self.crashes += 1
            if len(under_way) == 1:
                self.alone_at_crash += under_way.values()
        inbox.processor.trials.cancel()
        await inbox.processor._tasks.cancel()  # as SIGKILL would end them: nothing is stored by that
        self.clock.advance(seconds=downtime)
        return not died.is_set()

    async def outcomes(self) -> dict[str, Outcome]:
        receipts = await self.store.ledger.receipts(limit=10_000)
        memories = await self.store.memories.memories([receipt.memory_id for receipt in receipts])
        return {memories[receipt.memory_id].content.text: receipt.outcome for receipt in receipts}

    async def run_until_settled(self, *texts: str, downtime: float = 0.0) -> dict[str, Outcome]:
        waiting = list(texts)
        while not await self.run(*waiting, downtime=downtime):
            waiting = []
            assert self.crashes < 100, "it crashes for ever"
        return await self.outcomes()


def texts_of(count: int, deadly: Collection[int]) -> tuple[list[str], frozenset[str]]:
    texts = [f"message {number}" for number in range(count)]
    return texts, frozenset(texts[number % count] for number in deadly)


@pytest.mark.long
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 60), st.sets(st.integers(0, 59), min_size=1, max_size=2), st.integers(0, 5))
def test_what_ends_the_process_is_found_and_given_up_and_all_others_are_answered(
    count: int, deadly: set[int], later: int
) -> None:
    texts, killers = texts_of(count, deadly)
    bot = Bot(killers)

    async def run() -> dict[str, Outcome]:
        await bot.run(*texts)
        for number in range(later):  # what comes during the search waits and is not blamed
            await bot.run(f"later {number}")
        return await bot.run_until_settled()

    outcomes = asyncio.run(run())
    assert {text for text, outcome in outcomes.items() if outcome is Outcome.FAILED} == killers
    assert {outcome for text, outcome in outcomes.items() if text not in killers} <= {Outcome.ANSWERED}
    assert set(bot.alone_at_crash) <= killers
    halvings = math.ceil(math.log2(count + later)) + 2 if count + later > 1 else 1
    assert bot.crashes <= len(killers) * (halvings + MAX_CRASHES)


@pytest.mark.long
async def test_a_suspect_of_two_hundred_is_found_within_a_dozen_crashes() -> None:
    texts, killers = texts_of(201, {137})
    bot = Bot(killers)
    outcomes = await bot.run_until_settled(*texts)

    assert [text for text, outcome in outcomes.items() if outcome is not Outcome.ANSWERED] == list(killers)
    assert bot.crashes <= 12


@pytest.mark.long
async def test_the_search_expires_nothing() -> None:
    texts, killers = texts_of(40, {0})
    bot = Bot(killers)
    outcomes = await bot.run_until_settled(*texts, downtime=600)

    assert bot.crashes * timedelta(seconds=600) > timedelta(minutes=45)
    assert [outcome for text, outcome in outcomes.items() if text not in killers] == [Outcome.ANSWERED] * 39


async def test_after_a_long_downtime_a_message_expires_as_ever() -> None:
    bot = Bot(frozenset({"message 0"}))
    await bot.run("message 0", "message 1", downtime=901)
    await bot.run()

    assert set((await bot.outcomes()).values()) == {Outcome.EXPIRED}
    assert {receipt.rule for receipt in await bot.store.ledger.receipts()} == {Rule.RESTART}


async def test_suspects_of_a_platform_that_is_not_connected_hold_nothing_up() -> None:
    texts, killers = texts_of(4, {1})
    bot = Bot(killers)
    await bot.run(*texts)
    assert not await bot.run()
    adapter = bot.platforms.pop("test")
    assert await bot.run()
    assert (await bot.outcomes())["message 1"] is Outcome.RECEIVED
    bot.platforms["test"] = adapter
    outcomes = await bot.run_until_settled()

    assert [text for text, outcome in outcomes.items() if outcome is not Outcome.ANSWERED] == list(killers)


def receipts_of(*texts: str, attempts: int = 1) -> list[Receipt]:
    clock = ManualClock()
    messages = [make_message(text, sent_at=clock()) for text in texts]
    return [
        Receipt(
            message.message.id,
            message.key,
            message.room.id,
            message.author.id,
            message.message.id,
            clock(),
            outcome=Outcome.CLAIMED,
            attempts=attempts,
        )
        for message in messages
    ]


def test_after_the_first_crash_everything_is_tried_again_at_once() -> None:
    assert plan_recovery(receipts_of("a", "b", "c")).group_size == 0
    assert plan_recovery(receipts_of("a")).group_size == 0
    assert plan_recovery([*receipts_of("a", "b"), *receipts_of("c", attempts=2)]).group_size == 2


def test_only_a_message_that_was_alone_counts_a_death() -> None:
    several = plan_recovery(receipts_of("a", "b", attempts=2)).released
    assert [receipt.crash_count for receipt in several] == [0, 0]
    [alone] = plan_recovery(receipts_of("a")).released
    [again] = plan_recovery([alone]).released
    assert (alone.crash_count, again.crash_count) == (1, 2)
    assert again.notes[-1] == "the process died while only this message was under way (2)"
    assert {receipt.outcome for receipt in (*several, alone, again)} == {Outcome.RECEIVED}


async def test_a_waiting_message_says_so_and_is_waited_for() -> None:
    store, clock, is_free = InMemoryStore(), ManualClock(), asyncio.Event()

    async def process(event: StoredEvent, on_outcome: OnOutcome) -> None:
        await is_free.wait()
        closed = replace(event.receipt, outcome=Outcome.ANSWERED)
        await store.ledger.save_receipts([closed])
        on_outcome(closed)

    suspects = [make_message(text, sent_at=clock()) for text in ("a", "b")]
    left = [event.receipt for event in await store.ledger.receive(suspects, clock())]
    await store.ledger.save_receipts([replace(receipt, attempts=2) for receipt in left])
    inbox = Inbox(store.ledger, process, clock=clock)
    await inbox.recover()
    new = await inbox.submit(make_message("c", sent_at=clock()))
    assert (new.outcome, new.attempts) == (Outcome.RECEIVED, 0)  # a crash now would not blame it
    await inbox.processor.resume_all()
    for _ in range(10):
        await asyncio.sleep(0)
    states = [inbox.processor.state_of(receipt_id) for receipt_id in (left[0].id, left[1].id, new.id)]
    assert states == [EventState.RUNNING, EventState.WAITING, EventState.WAITING]
    is_free.set()

    assert (await inbox.wait_outcome(new.id)).outcome is Outcome.ANSWERED
    assert (await inbox.wait_outcome(left[1].id)).outcome is Outcome.ANSWERED
    await inbox.drain(1)


@pytest.mark.parametrize("stops", [1, 4])
async def test_what_a_clean_stop_interrupts_is_no_suspect(stops: int) -> None:
    store, clock = InMemoryStore(), ManualClock()
    [event] = await store.ledger.receive([make_message("a", sent_at=clock())], clock())
    for _ in range(stops):
        await store.ledger.save_receipts([replace(event.receipt, outcome=Outcome.RECEIVED, attempts=0)])
        inbox = Inbox(store.ledger, lambda event, on_outcome: asyncio.sleep(0), clock=clock)
        await inbox.recover()
        await inbox.drain(0)
    [receipt] = await store.ledger.receipts()

    assert receipt.crash_count == 0
