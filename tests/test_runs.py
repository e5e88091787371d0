"""The work on one message, from its first moment to its one end."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bot.domain.events import Event, ModelUsed, RunEnded, RunStarted, RunStatus, RunTimedOut
from bot.domain.ids import new_id
from bot.domain.ledger import ModelCall, Outcome
from bot.event_bus import EventBus
from bot.runs import Run, current_run, track_run, usage_recorder

AGENT = new_id()
CALL = ModelCall("TEXT_LARGE", "reply", "m")


def a_run() -> Run:
    return Run(new_id(), new_id(), new_id())


async def events_of(
    work: Callable[[Run], Awaitable[None]], run: Run, timeout: float = 60.0
) -> tuple[list[Event], BaseException | None]:
    """Run some work as a run; return its events and the exception."""
    bus, heard = EventBus(), []

    async def listen(event: Event) -> None:
        heard.append(event)

    bus.subscribe(Event, listen)
    raised: BaseException | None = None
    try:
        async with track_run(run, bus, AGENT, timeout=timeout):
            await work(run)
    except BaseException as error:
        raised = error
    await bus.wait_idle()
    return heard, raised


def ended(events: list[Event]) -> RunEnded:
    [end] = [event for event in events if isinstance(event, RunEnded)]
    return end


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome.ANSWERED, RunStatus.COMPLETED),
        (Outcome.IGNORED, RunStatus.IGNORED),
        (Outcome.SUPERSEDED, RunStatus.SUPERSEDED),
        (Outcome.CANCELLED, RunStatus.CANCELLED),
        (Outcome.EXPIRED, RunStatus.CANCELLED),
        (Outcome.FAILED, RunStatus.ERROR),
        (Outcome.PARKED, RunStatus.ERROR),
        (Outcome.RECEIVED, RunStatus.ERROR),
    ],
)
async def test_the_beginning_and_the_end_of_a_run_are_each_reported_once(outcome: Outcome, status: RunStatus) -> None:
    async def work(run: Run) -> None:
        assert current_run.get() is run
        run.outcome = outcome

    run = a_run()
    heard, raised = await events_of(work, run)

    assert raised is None
    assert [type(event) for event in heard] == [RunStarted, RunEnded]
    assert (ended(heard).status, ended(heard).outcome, ended(heard).error) == (status, outcome, "")
    assert (ended(heard).run_id, ended(heard).room_id, ended(heard).message_id) == (run.id, run.room_id, run.message_id)
    assert current_run.get() is None


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("its own"), SystemExit(3)])
async def test_an_error_ends_a_run_once_and_is_raised_again(error: BaseException) -> None:
    async def work(run: Run) -> None:
        raise error

    heard, raised = await events_of(work, a_run())

    assert raised is error
    assert ended(heard).status is RunStatus.ERROR
    assert ended(heard).error == f"{type(error).__name__}: {error}"
    assert current_run.get() is None


async def never(run: Run) -> None:
    await asyncio.Event().wait()


async def test_a_run_without_end_is_stopped_and_has_failed() -> None:
    run = a_run()
    heard, raised = await events_of(never, run, timeout=0)

    assert raised is None
    assert [type(event) for event in heard] == [RunStarted, RunTimedOut, RunEnded]
    assert (ended(heard).status, ended(heard).outcome) == (RunStatus.TIMEOUT, Outcome.FAILED)
    assert "RESPONSE_TIMEOUT" in run.error


async def test_an_answer_that_is_out_stays_an_answer_when_the_rest_takes_too_long() -> None:
    async def work(run: Run) -> None:
        run.outcome = Outcome.ANSWERED
        await never(run)

    run = a_run()
    heard, _ = await events_of(work, run, timeout=0)

    assert (ended(heard).status, ended(heard).outcome) == (RunStatus.TIMEOUT, Outcome.ANSWERED)
    assert run.outcome is Outcome.ANSWERED
    assert run.error


async def test_a_cancellation_from_outside_ends_a_run_once_and_goes_on() -> None:
    heard: list[Event] = []
    bus = EventBus()

    async def listen(event: Event) -> None:
        heard.append(event)

    bus.subscribe(Event, listen)

    async def work() -> None:
        async with track_run(a_run(), bus, AGENT, timeout=60):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await bus.wait_idle()

    assert [type(event) for event in heard] == [RunStarted, RunEnded]
    assert ended(heard).status is RunStatus.CANCELLED


async def test_a_call_is_booked_to_the_run_it_belongs_to() -> None:
    bus, heard = EventBus(), []

    async def listen(event: ModelUsed) -> None:
        heard.append(event)

    bus.subscribe(ModelUsed, listen)
    record = usage_recorder(bus, AGENT, lambda call, run: call)
    first, second = a_run(), a_run()

    async def work(run: Run, calls: int) -> None:
        async with track_run(run, bus, AGENT, timeout=60):
            run.outcome = Outcome.ANSWERED
            for _ in range(calls):
                record(CALL)
                await asyncio.sleep(0)

    await asyncio.gather(work(first, 2), work(second, 1))
    record(CALL)
    await bus.wait_idle()

    assert (len(first.calls), len(second.calls)) == (2, 1)
    assert sorted(str(event.run_id) for event in heard) == sorted(map(str, (first.id, first.id, second.id, None)))
