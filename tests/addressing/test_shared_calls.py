"""One call at a time for each key, whose result counts for all who waited."""

import asyncio

import pytest

from bot.pipeline.attention import SharedCalls


class Caller:
    """Calls that end when the test says so; `covered` is the argument of each."""

    def __init__(self) -> None:
        self.shared: SharedCalls[str] = SharedCalls()
        self.covered: list[tuple[str, int]] = []
        self.gates: dict[str, asyncio.Future[str]] = {}

    def start(self, name: str, key: str = "room") -> "asyncio.Task[str]":
        gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.gates[name] = gate

        async def call(covered: int) -> str:
            self.covered.append((name, covered))
            return await gate

        return asyncio.ensure_future(self.shared.run(key, call, counts_for_later=lambda result: result == "for all"))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_waits_gets_the_result_of_the_newest_caller() -> None:
    caller = Caller()
    tasks = [caller.start(name) for name in "abcd"]
    await settle()
    assert caller.covered == [("a", 0)]
    caller.gates["a"].set_result("first")
    await settle()
    assert caller.covered == [("a", 0), ("d", 2)]
    caller.gates["d"].set_result("second")
    assert await asyncio.gather(*tasks) == ["first", "second", "second", "second"]
    assert not caller.shared._queues


async def test_a_result_may_count_for_those_who_asked_meanwhile() -> None:
    caller = Caller()
    tasks = [caller.start(name) for name in "abc"]
    await settle()
    caller.gates["a"].set_result("for all")
    assert await asyncio.gather(*tasks) == ["for all"] * 3
    assert caller.covered == [("a", 0)]
    assert not caller.shared._queues


async def test_keys_do_not_wait_for_each_other() -> None:
    caller = Caller()
    tasks = [caller.start("a", "x"), caller.start("b", "y")]
    await settle()
    assert len(caller.covered) == 2
    for gate in caller.gates.values():
        gate.set_result("done")
    assert await asyncio.gather(*tasks) == ["done", "done"]


async def test_a_failed_call_is_its_callers_alone_and_another_asks() -> None:
    caller = Caller()
    tasks = [caller.start(name) for name in "abc"]
    await settle()
    caller.gates["a"].set_exception(LookupError("no model"))
    await settle()
    caller.gates["c"].set_exception(LookupError("no model"))
    await settle()
    caller.gates["b"].set_result("third")
    assert await tasks[1] == "third"
    for task in (tasks[0], tasks[2]):
        with pytest.raises(LookupError):
            await task
    assert not caller.shared._queues


async def test_a_cancelled_caller_delays_no_other_caller() -> None:
    caller = Caller()
    tasks = [caller.start(name) for name in "abc"]
    await settle()
    caller.gates["a"].set_result("first")
    await asyncio.sleep(0)  # c is to call, and is cancelled before it does
    tasks[2].cancel()
    await settle()
    tasks[0].cancel()
    caller.gates["b"].set_result("third")
    assert await tasks[1] == "third"
    assert not caller.shared._queues


async def test_a_caller_that_gives_up_waiting_is_left_out() -> None:
    caller = Caller()
    tasks = [caller.start(name) for name in "abc"]
    await settle()
    tasks[2].cancel()
    await settle()
    caller.gates["a"].set_result("first")
    await settle()
    assert caller.covered[-1] == ("b", 0)
    caller.gates["b"].set_result("second")
    assert await tasks[1] == "second"
