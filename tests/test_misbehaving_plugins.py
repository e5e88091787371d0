"""A plugin that misbehaves, at every point where its code is called: the message is answered all the same."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import pytest

from bot import event_bus
from bot.background.scheduler import Scheduler
from bot.concurrency import supervisor, tasks
from bot.domain.character import Character
from bot.domain.events import MessageReceived
from bot.domain.ids import derived_id
from bot.domain.ledger import Outcome
from bot.domain.task import Task
from bot.errors import PluginError
from bot.http import RouteRequest
from bot.models.types import ModelType, TextRequest
from bot.pipeline import commit, run_actions
from bot.pipeline.compose import Composer
from bot.plugin_system.components import Service, action, evaluator, model, on, provider, route, worker
from bot.plugin_system.plugin import Plugin
from bot.runtime import agent_runtime
from bot.runtime.character_reload import AgentConfig
from bot.runtime.runtime import Runtime
from bot.settings import Layer, Settings
from bot.store import InMemoryStore
from bot.testing import RecordingAdapter, ScriptedModel, make_message, model_answer
from bot.turn import Agent, Turn

BRIEF, LONG = 0.3, 60.0
Fault = Callable[[], Awaitable[Any]]
Point = Callable[[Fault], Plugin]
NOW = datetime.now(UTC)
DUE = Task(derived_id("task", "odd"), "ODD", next_run=NOW)


def at_init(fault: Fault) -> Plugin:
    async def init(agent: Agent) -> None:
        await fault()

    return Plugin("odd", init=init)


def at_validating(fault: Fault) -> Plugin:
    async def when(turn: Turn) -> Any:
        return await fault()

    @action("ODD", "Do something odd.", when=when)
    async def odd(turn: Turn) -> None:
        pytest.fail("it was not allowed")

    return Plugin("odd", actions=[odd])


def at_an_action(fault: Fault) -> Plugin:
    @action("ODD", "Do something odd.")
    async def odd(turn: Turn) -> Any:
        return await fault()

    return Plugin("odd", actions=[odd])


def at_a_provider(fault: Fault) -> Plugin:
    @provider("ODD", "Something odd.")
    async def odd(turn: Turn) -> Any:
        return await fault()

    return Plugin("odd", providers=[odd])


def at_an_evaluator(fault: Fault) -> Plugin:
    @evaluator("ODD", "Look at something odd.")
    async def odd(turn: Turn) -> Any:
        return await fault()

    return Plugin("odd", evaluators=[odd])


def at_a_listener(fault: Fault) -> Plugin:
    @on(MessageReceived)
    async def odd(agent: Agent, event: MessageReceived) -> Any:
        return await fault()

    return Plugin("odd", listeners=[odd])


def at_a_services_start(fault: Fault) -> Plugin:
    class Odd(Service):
        async def __aenter__(self) -> Self:
            await fault()
            return self

    return Plugin("odd", services=[Odd])


def at_a_services_stop(fault: Fault) -> Plugin:
    class Odd(Service):
        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            await fault()

    return Plugin("odd", services=[Odd])


def at_a_route(fault: Fault) -> Plugin:
    @route("GET", "/odd")
    async def odd(agent: Agent, request: RouteRequest) -> Any:
        return await fault()

    return Plugin("odd", routes=[odd])


def at_a_model(fault: Fault) -> Plugin:
    @model(ModelType.TEXT_LARGE, priority=9)
    async def odd(agent: Agent, request: TextRequest) -> Any:
        return await fault()

    return Plugin("odd", models=[odd])


def at_a_worker(fault: Fault) -> Plugin:
    @worker("ODD", deadline=BRIEF)
    async def odd(agent: Agent, task: Task) -> None:
        await fault()

    return Plugin("odd", workers=[odd])


POINTS = {
    at_init: "init of plugin odd",
    at_validating: "validating ODD",
    at_an_action: "action ODD",
    at_a_provider: "provider ODD",
    at_an_evaluator: "evaluator ODD",
    at_a_listener: "listener odd.odd",
    at_a_services_start: "service Odd",
    at_a_services_stop: "stopping service Odd",
    at_a_route: "GET /odd of plugin odd",
    at_a_model: "odd",
    at_a_worker: "worker ODD",
}
everywhere = pytest.mark.parametrize("point", POINTS, ids=lambda value: value.__name__)


def raising(error: BaseException) -> Fault:
    async def fault() -> None:
        raise error

    return fault


def giving(result: object) -> Fault:
    async def fault() -> object:
        return result

    return fault


async def hanging() -> None:
    await asyncio.Event().wait()


async def clinging() -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for misbehaving code alone, and for that hardly at all."""
    monkeypatch.setattr(tasks, "CANCEL_GRACE_SECONDS", 0.02)
    monkeypatch.setattr(supervisor, "CANCEL_GRACE_SECONDS", 0.02)
    monkeypatch.setattr(run_actions, "VALIDATE_TIMEOUT", 0.02)
    monkeypatch.setattr(run_actions, "ACTION_TIMEOUT", 0.02)
    monkeypatch.setattr(commit, "EVALUATOR_TIMEOUT", 0.02)
    monkeypatch.setattr(event_bus, "FLUSH_TIMEOUT", 0.02)
    monkeypatch.setattr(agent_runtime, "INIT_TIMEOUT", 0.02)
    monkeypatch.setattr(agent_runtime, "START_TIMEOUT", 0.02)
    monkeypatch.setattr(agent_runtime, "STOP_TIMEOUT", 0.02)
    monkeypatch.setattr(Composer.__init__, "__kwdefaults__", {"timeout": 0.02})


async def assert_answered_with(plugin: Plugin, timeout: float = LONG) -> None:
    """Run an agent with this plugin: a message, its routes, its tasks; `timeout` of models and routes, in seconds."""
    before = asyncio.all_tasks()
    store, adapter = InMemoryStore(), RecordingAdapter()
    if plugin.workers:
        await store.tasks.save_task(DUE)
    writer = ScriptedModel(model_answer("Fine.", actions=["REPLY", "ODD"] if plugin.actions else ["REPLY"]))
    values = {"MODEL_RETRIES": "0", "MODEL_TIMEOUT": str(timeout), "AI_NOTICE": "off"}
    settings = Settings([Layer("the test", values)])
    brought = (plugin, writer.plugin)
    blueprint = AgentConfig(Character(name="Ada"), brought, settings, store, is_idle=True)
    async with Runtime([blueprint]) as runtime:
        await runtime.connect(adapter)
        [agent] = runtime.agents
        receipt = await agent.inbox.submit(make_message("Hello", sent_at=NOW))
        assert (await agent.inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED
        assert (await adapter.wait_until_sent(1))[0] == "Fine."
        for bound in agent.handle.routes:
            with pytest.raises((PluginError, TimeoutError)):  # the deadline is the web page's
                await asyncio.wait_for(bound.handle(RouteRequest("GET", "/odd")), timeout)
        assert await Scheduler(agent.agent, agent.registry).run_due() == len(plugin.workers)
    assert asyncio.all_tasks() == before


def assert_logged(point: Point, error: str, caplog: pytest.LogCaptureFixture) -> None:
    """Fail unless the log names the point and its error; those of a route are logged by the web page."""
    if point is not at_a_route:
        assert POINTS[point] in caplog.text
        assert error in caplog.text


@pytest.mark.failure("H-01")
@everywhere
async def test_code_that_raises_costs_its_own_part_alone(point: Point, caplog: pytest.LogCaptureFixture) -> None:
    await assert_answered_with(point(raising(ValueError("odd"))))

    assert_logged(point, "ValueError: odd", caplog)


@pytest.mark.matrix(3)
@pytest.mark.failure("H-02")
@everywhere
@pytest.mark.parametrize("error", [SystemExit("odd"), KeyboardInterrupt("odd")], ids=["exit", "interrupt"])
async def test_code_that_would_end_the_process_costs_its_own_part_alone(
    point: Point, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    await assert_answered_with(point(raising(error)))

    assert_logged(point, f"{type(error).__name__}: odd", caplog)


@pytest.mark.failure("H-03")
@everywhere
async def test_code_that_cancels_itself_is_not_taken_for_a_shutdown(point: Point) -> None:
    await assert_answered_with(point(raising(asyncio.CancelledError())))


@pytest.mark.matrix(3)
@pytest.mark.failure("H-03")
@pytest.mark.usefixtures("short")
@everywhere
async def test_code_that_swallows_its_cancellation_is_ended_by_force_and_named(
    point: Point, caplog: pytest.LogCaptureFixture
) -> None:
    await assert_answered_with(point(clinging), BRIEF)

    [warning] = {line for line in caplog.messages if "did not stop when it was cancelled" in line}
    assert POINTS[point].removeprefix("stopping ") in warning


@pytest.mark.matrix(3)
@pytest.mark.failure("H-04")
@pytest.mark.usefixtures("short")
@everywhere
async def test_code_that_never_returns_has_a_deadline_of_its_own(
    point: Point, caplog: pytest.LogCaptureFixture
) -> None:
    await assert_answered_with(point(hanging), BRIEF)

    # Listeners at work at the end are counted; a route's deadline is the web page's.
    assert POINTS[point] in caplog.text or point in (at_a_listener, at_a_route)


CYCLE: dict[str, Any] = {}
CYCLE["self"] = CYCLE


@pytest.mark.failure("H-08")
@pytest.mark.parametrize("given", [object(), CYCLE, "x" * 1_000_000], ids=["object", "cycle", "huge"])
@pytest.mark.parametrize("point", [at_an_action, at_a_provider, at_an_evaluator, at_a_model])
async def test_what_is_of_the_wrong_type_counts_as_nothing(point: Point, given: object) -> None:
    await assert_answered_with(point(giving(given)))
