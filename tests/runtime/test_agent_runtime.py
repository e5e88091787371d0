"""One character at work."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import FrozenInstanceError, replace
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import pytest
from pydantic import Field, SecretStr

from bot.concurrency import supervisor as supervisor_module
from bot.concurrency.clock import system_clock
from bot.domain.character import Character
from bot.domain.events import EmbeddingRequested
from bot.domain.ids import derived_id, new_id
from bot.domain.ledger import ProviderResult
from bot.domain.task import Task
from bot.errors import ConfigError, PluginError, SettingError
from bot.http import RouteRequest, RouteResponse
from bot.models.types import ModelType, TextRequest
from bot.plugin_system.components import Provider, Service, model, on, provider, route, worker
from bot.plugin_system.plugin import Plugin
from bot.runtime import agent_runtime
from bot.runtime.agent_runtime import run_agent
from bot.runtime.character_reload import AgentConfig
from bot.settings import Layer, Settings, SettingsModel
from bot.store import InMemoryStore
from bot.store.protocols import Store
from bot.testing import ScriptedModel
from bot.turn import Agent, Turn

Step = Callable[[], Awaitable[object]]


async def nothing() -> None:
    """Do nothing."""


async def never() -> None:
    await asyncio.Event().wait()


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if holds():
            return
        await asyncio.sleep(0)
    pytest.fail("it does not come to that")


def fails(error: BaseException) -> Step:
    async def step() -> None:
        raise error

    return step


def service(
    name: str, log: list[str], *, start: Step = nothing, stop: Step = nothing, wants: type | None = None
) -> type[Service]:
    """Make a service that writes down when it starts and stops."""

    class Made(Service):
        capability = f"does {name}"

        def __init__(self, agent: Agent) -> None:
            super().__init__(agent)
            if wants is not None:
                agent.services[wants]

        async def __aenter__(self) -> Self:
            await start()
            log.append(f"start {name}")
            return self

        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            log.append(f"stop {name}")
            await stop()

    Made.__name__ = Made.__qualname__ = name
    return Made


def saying(name: str) -> Provider:
    @provider(name, "What there is to say.")
    def say(turn: Turn) -> ProviderResult:
        return ProviderResult()

    return say


def plan(*plugins: Plugin, **details: object) -> AgentConfig:
    settings = Settings([Layer("the test", {"AI_NOTICE": "off"})])
    kept = {"character": Character(name="Ada"), "settings": settings, **details}
    return AgentConfig(plugins=plugins, **kept)  # type: ignore[arg-type]


async def test_an_agent_has_the_id_of_its_file_or_the_id_its_name_always_has() -> None:
    own = new_id()
    async with run_agent(plan()) as first, run_agent(plan(character=Character(name="Ada", id=own))) as second:
        assert first.agent.id == derived_id("agent", "Ada")
        assert second.agent.id == own
        assert (await first.agent.store.entities.entities([first.agent.id]))[first.agent.id].name == "Ada"
        assert first.handle.agent_id == first.agent.id


async def test_services_start_in_order_and_stop_in_reverse() -> None:
    log: list[str] = []
    a, b, c = (service(name, log) for name in "abc")
    async with run_agent(plan(Plugin("one", services=[a, b]), Plugin("two", services=[c]))) as resident:
        assert log == ["start a", "start b", "start c"]
        assert type(resident.agent.services[b]) is b
        assert resident.agent.catalog.capabilities == ("does a", "does b", "does c")

    assert log[3:] == ["stop c", "stop b", "stop a"]
    assert b not in resident.agent.services


async def test_a_service_starts_after_the_services_that_it_uses() -> None:
    log: list[str] = []
    base = type("base", (Service,), {})
    a, b, c, d = (service(name, log) for name in "abcd")
    a.uses = (c,)
    c.uses = (base,)  # a base class stands for every service derived from it
    d.__bases__ = (base,)
    async with run_agent(plan(Plugin("one", services=[a, b]), Plugin("two", services=[c, d]))):
        assert sorted(log) == ["start a", "start b", "start c", "start d"]
        assert log.index("start d") < log.index("start c") < log.index("start a")
        log.clear()

    assert log.index("stop a") < log.index("stop c") < log.index("stop d")


async def test_a_service_that_calls_models_starts_after_the_services_of_the_plugins_that_bring_them() -> None:
    log: list[str] = []
    backfill, client = service("backfill", log), service("client", log)
    backfill.uses_models = True

    @model(ModelType.TEXT_EMBEDDING)
    async def embed(agent: Agent, request: Any) -> Any:
        raise AssertionError("it is not called here")

    plugins = Plugin("one", services=[backfill]), Plugin("two", services=[client], models=[embed])
    async with run_agent(plan(*plugins)):
        assert log == ["start client", "start backfill"]


async def test_services_that_use_each_other_are_refused_by_name() -> None:
    a, b, c = (service(name, []) for name in "abc")
    a.uses, b.uses, c.uses = (b,), (c,), (a,)
    with pytest.raises(PluginError, match=r"services use one another: (a, b, c|b, c, a|c, a, b)$"):
        async with run_agent(plan(Plugin("one", services=[a, b, c]))):
            pass


@pytest.mark.failure("H-11")
@pytest.mark.parametrize(
    ("start", "cause"),
    [
        (fails(ValueError("no key")), "ValueError: no key"),
        (fails(SystemExit(1)), "SystemExit: 1"),
        (fails(asyncio.CancelledError()), "it cancelled itself"),
        (never, "no answer within 0 s"),
    ],
    ids=["error", "exit", "cancelled", "hangs"],
)
async def test_a_service_that_does_not_start_is_noted_and_the_others_run(
    start: Step, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_runtime, "START_TIMEOUT", 0 if start is never else 30)
    log: list[str] = []
    broken, fine = service("broken", log, start=start), service("fine", log)
    services = [broken] if start is never else [broken, fine]
    async with run_agent(plan(Plugin("one", services=services))) as resident:
        with pytest.raises(LookupError, match=f"service broken is not running: {cause}"):
            resident.agent.services[broken]
        assert (fine in resident.agent.services) == (fine in services)

    assert "stop broken" not in log


@pytest.mark.failure("H-11")
async def test_a_service_whose_required_service_is_missing_names_it() -> None:
    log: list[str] = []
    broken = service("broken", log, start=fails(ValueError("no key")))
    needy = service("needy", log, wants=broken)
    async with run_agent(plan(Plugin("one", services=[broken, needy]))) as resident:
        with pytest.raises(LookupError, match=r"needy is not running: LookupError: .*broken .*ValueError: no key"):
            resident.agent.services[needy]


@pytest.mark.failure("H-12")
@pytest.mark.parametrize(
    "stop",
    [fails(ValueError("no")), fails(SystemExit(1)), fails(asyncio.CancelledError()), never],
    ids=["error", "exit", "cancelled", "hangs"],
)
async def test_a_service_that_does_not_stop_is_left_and_the_others_stop(
    stop: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stop is never:
        monkeypatch.setattr(agent_runtime, "STOP_TIMEOUT", 0)
    log: list[str] = []
    fine, broken = service("fine", log), service("broken", log, stop=stop)
    async with run_agent(plan(Plugin("one", services=[fine, broken]))):
        log.clear()

    assert log == ["stop broken", "stop fine"]


async def test_services_stop_when_the_process_is_cancelled_even_if_a_service_cancels_its_own_task() -> None:
    log: list[str] = []
    ready = asyncio.Event()

    async def stop() -> None:
        child = asyncio.ensure_future(never())
        child.cancel()
        await child

    fine, usual = service("fine", log), service("usual", log, stop=stop)

    async def run() -> None:
        async with run_agent(plan(Plugin("one", services=[fine, usual]))):
            ready.set()
            await never()

    task = asyncio.ensure_future(run())
    await ready.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert log[2:] == ["stop usual", "stop fine"]


async def test_services_that_have_started_stop_when_the_start_is_cancelled() -> None:
    log: list[str] = []
    reached = asyncio.Event()

    async def start() -> None:
        reached.set()
        await never()

    services = [service("fine", log), service("slow", log, start=start)]

    async def run() -> None:
        async with run_agent(plan(Plugin("one", services=services))):
            pass

    task = asyncio.ensure_future(run())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert log == ["start fine", "stop fine"]


async def test_a_service_that_two_plugins_bring_runs_once() -> None:
    log: list[str] = []
    shared = service("shared", log)
    async with run_agent(plan(Plugin("one", services=[shared]), Plugin("two", services=[shared]))):
        pass

    assert log == ["start shared", "stop shared"]


async def test_a_service_need_not_give_itself_back() -> None:
    class Forgetful(Service):
        async def __aenter__(self) -> None:  # type: ignore[override]  # what a plugin may forget
            return None

    async with run_agent(plan(Plugin("one", services=[Forgetful]))) as resident:
        assert type(resident.agent.services[Forgetful]) is Forgetful


async def test_a_plugin_is_set_up_once_the_services_run_and_before_any_task() -> None:
    log: list[str] = []
    done = asyncio.Event()
    needed = service("needed", log)

    @worker("POST")
    async def post(agent: Agent, task: Task) -> None:
        log.append("task")
        done.set()

    async def init(agent: Agent) -> None:
        assert needed in agent.services
        for _ in range(5):
            await asyncio.sleep(0)
        log.append("init")

    store = InMemoryStore()
    await store.tasks.save_task(Task(new_id(), "POST", next_run=system_clock()))
    async with run_agent(plan(Plugin("one", services=[needed], init=init, workers=[post]), store=store)):
        await done.wait()

    assert log == ["start needed", "init", "task", "stop needed"]


@pytest.mark.failure("H-10")
@pytest.mark.parametrize(
    "error", [ValueError("no"), SettingError("WEATHER_API_KEY is not set"), SystemExit(1)], ids=lambda e: str(e)
)
async def test_where_all_must_start_a_plugin_that_does_not_is_named_and_everything_closed(error: BaseException) -> None:
    log: list[str] = []

    async def init(agent: Agent) -> None:
        raise error

    with pytest.raises(PluginError, match=f"plugin 'broken' could not be set up: .*{error}"):
        async with run_agent(plan(Plugin("broken", services=[service("a", log)], init=init)), is_strict=True):
            pass

    assert log == ["start a", "stop a"]


@pytest.mark.failure("H-10")
async def test_a_plugin_that_cannot_be_set_up_is_off_with_all_that_require_it() -> None:
    log: list[str] = []

    class Keys(SettingsModel):
        weather_pass: SecretStr = Field(SecretStr(""))

    async def init(agent: Agent) -> None:
        raise ValueError("no")

    plugins = [
        Plugin("weather", providers=[saying("SKY")], services=[service("a", log)], init=init, settings=Keys),
        Plugin("clothes", providers=[saying("COAT")], requires=["weather"]),
        Plugin("laundry", providers=[saying("SOAP")], requires=["clothes"], init=init),
        Plugin("time", providers=[saying("TIME")], services=[service("b", log)]),
    ]
    settings = Settings([Layer("the test", {"WEATHER_PASS": "a-fake-password"})])
    async with run_agent(plan(*plugins, settings=settings)) as resident:
        assert resident.inactive == {
            "weather": "ValueError: no",
            "clothes": "it requires 'weather', which is off: ValueError: no",
            "laundry": "it requires 'clothes', which is off: it requires 'weather', which is off: ValueError: no",
        }
        assert [provider.name for provider in resident.agent.catalog.providers] == ["TIME"]
        assert [type(service).__name__ for service in resident.agent.services.values()] == ["b"]
        assert "a-fake-password" in resident.agent.settings.secrets(Keys)

    assert log == ["start a", "start b", "stop b", "stop a", "start b", "stop b"]


@pytest.mark.failure("H-10")
@pytest.mark.parametrize("kind", ["store", "model"])
async def test_where_the_store_or_the_model_cannot_be_set_up_the_start_fails(kind: str) -> None:
    async def init(agent: Agent) -> None:
        raise ValueError("no")

    @asynccontextmanager
    async def open_store(agent_id: UUID, settings: Settings) -> AsyncIterator[Store]:
        yield InMemoryStore()

    model = ScriptedModel("hi").plugin
    vital = Plugin("sql", store=open_store, init=init) if kind == "store" else replace(model, init=init)
    with pytest.raises(PluginError, match=f"plugin '{vital.name}' could not be set up: ValueError: no"):
        async with run_agent(plan(vital)):
            pass


@pytest.mark.failure("H-11")
async def test_a_service_that_does_not_start_is_tried_again_and_so_is_what_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_DELAY_SECONDS", 0)
    log: list[str] = []
    may_start = asyncio.Event()

    async def start() -> None:
        if not may_start.is_set():
            raise OSError("no network")

    flaky = service("flaky", log, start=start)
    needy = service("needy", log, wants=flaky)
    async with run_agent(plan(Plugin("one", services=[flaky, needy]))) as resident:
        with pytest.raises(LookupError, match="flaky is not running: OSError: no network; retry in"):
            resident.agent.services[flaky]
        may_start.set()
        await until(lambda: needy in resident.agent.services)
        assert {type(service) for service in resident.agent.services.values()} == {flaky, needy}

    assert log == ["start flaky", "start needy", "stop needy", "stop flaky"]


@pytest.mark.failure("H-11")
async def test_a_service_that_lacks_what_a_person_must_give_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_DELAY_SECONDS", 0)
    starts: list[str] = []

    async def start() -> None:
        starts.append("start")
        raise SettingError("WEATHER_API_KEY is not set")

    lacking = service("lacking", [], start=start)
    async with run_agent(plan(Plugin("one", services=[lacking]))) as resident:
        for _ in range(10):
            await asyncio.sleep(0)
        with pytest.raises(LookupError, match=r"not running: SettingError: WEATHER_API_KEY is not set$"):
            resident.agent.services[lacking]

    assert starts == ["start"]


@pytest.mark.failure("H-11")
async def test_a_service_whose_own_work_ends_it_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_DELAY_SECONDS", 0)
    may_end = asyncio.Event()
    starts: list[Service] = []

    class Feed(Service):
        """Listens in a task group, which ends with what listens."""

        async def __aenter__(self) -> Self:
            self.group = await asyncio.TaskGroup().__aenter__()
            starts.append(self)
            if len(starts) == 1:
                self.group.create_task(self.listen())
            return self

        async def listen(self) -> None:
            await may_end.wait()
            raise ConnectionError("gone")

        async def __aexit__(self, *error: Any) -> None:
            await self.group.__aexit__(*error)

    async with run_agent(plan(Plugin("one", services=[Feed]))) as resident:
        assert resident.agent.services[Feed] is starts[0]
        may_end.set()
        await until(lambda: len(starts) == 2 and Feed in resident.agent.services)
        assert resident.agent.services[Feed] is starts[1]


@pytest.mark.failure("H-13")
async def test_a_plugin_can_replace_no_part_of_an_agent_and_shows_no_secret_by_accident() -> None:
    settings = Settings([Layer("the test", {"OTHER_API_KEY": "a-fake-key-of-another"}, is_secret=True)])

    async def init(agent: Agent) -> None:
        for part in ("store", "models", "outbox", "read_definition", "components", "rooms"):
            with pytest.raises(FrozenInstanceError):
                setattr(agent, part, None)
        for part in ("catalog", "character", "settings", "templates"):
            with pytest.raises(TypeError):  # a property of a frozen class
                setattr(agent, part, None)
        assert "a-fake-key" not in f"{agent!r} {agent.settings!r} {vars(agent.settings)}"

    async with run_agent(plan(Plugin("curious", init=init), settings=settings), is_strict=True):
        pass


async def test_a_wrong_setting_stops_before_anything_is_opened() -> None:
    log: list[str] = []
    settings = Settings([Layer("the test", {"LOG_LEVEL": "LOUD"})])
    with pytest.raises(ConfigError, match="LOG_LEVEL"):
        async with run_agent(plan(Plugin("one", services=[service("a", log)]), settings=settings)):
            pass

    assert log == []


@pytest.mark.failure("H-14")
async def test_two_components_of_the_same_name_stop_before_anything_is_opened() -> None:
    @provider("TIME", "The time.")
    async def time(turn: Turn) -> ProviderResult:
        return ProviderResult()

    with pytest.raises(PluginError, match="TIME is brought by plugin 'one' and by plugin 'two'"):
        async with run_agent(plan(Plugin("one", providers=[time]), Plugin("two", providers=[time]))):
            pass


async def test_a_plugins_store_is_opened_for_this_agent_and_closed_last() -> None:
    log: list[str] = []
    kept = InMemoryStore()

    @asynccontextmanager
    async def open_store(agent_id: UUID, settings: Settings) -> AsyncIterator[Store]:
        log.append(f"open {agent_id == derived_id('agent', 'Ada')}")
        yield kept
        log.append("close")

    sql = Plugin("sql", store=open_store, services=[service("a", log)])
    async with run_agent(plan(sql)) as resident:
        assert resident.agent.store is kept
        assert resident.handle.conversations._store is kept

    assert log == ["open True", "start a", "stop a", "close"]


async def test_listeners_hear_the_last_events_while_services_and_store_are_there() -> None:
    log: list[str] = []
    counter = service("counter", log)

    @asynccontextmanager
    async def open_store(agent_id: UUID, settings: Settings) -> AsyncIterator[Store]:
        yield InMemoryStore()
        log.append("close")

    @on(EmbeddingRequested)
    async def count(agent: Agent, event: EmbeddingRequested) -> None:
        await asyncio.sleep(0)
        agent.services[counter]
        log.append("heard")

    async with run_agent(plan(Plugin("one", services=[counter], store=open_store, listeners=[count]))) as resident:
        resident.agent.events.emit(EmbeddingRequested(resident.agent.id, new_id()))

    assert log == ["start counter", "heard", "stop counter", "close"]


async def test_models_are_asked_by_their_own_priority_then_by_their_plugins() -> None:
    low, high, own = ScriptedModel("low"), ScriptedModel("high"), ScriptedModel("own")
    plugins = [
        Plugin("low", models=low.plugin.models),
        Plugin("high", models=high.plugin.models, priority=5),
        Plugin("own", models=[type(model)(model.type, model.handler, 9) for model in own.plugin.models]),
    ]
    async with run_agent(plan(*plugins)) as resident:
        found = await resident.agent.models.text(TextRequest("hi"))
        assert found.text == "own"
    async with run_agent(plan(*plugins[:2])) as resident:
        assert (await resident.agent.models.text(TextRequest("hi"), ModelType.TEXT_SMALL)).text == "high"


async def test_the_characters_templates_come_over_the_plugins_and_those_over_ours() -> None:
    character = Character(name="Ada", templates={"a": "character"})
    plugins = [Plugin("one", templates={"a": "one", "b": "one", "c": "one"}), Plugin("two", templates={"b": "two"})]
    async with run_agent(plan(*plugins, character=character)) as resident:
        templates = resident.agent.templates

    assert [templates[name] for name in "abc"] == ["character", "two", "one"]
    assert len(templates) > 3


async def test_an_agent_handle_shows_an_adapter_the_plugins_routes() -> None:
    @route("get", "/status", public=True)
    async def status(agent: Agent, request: RouteRequest) -> RouteResponse:
        return RouteResponse(text=f"{agent.name}: {request.path}")

    async with run_agent(plan(Plugin("weather", routes=[status]))) as resident:
        [bound] = resident.handle.routes
        answer = await bound.handle(RouteRequest("GET", "/status"))

    assert (bound.plugin, bound.method, bound.path, bound.is_public) == ("weather", "GET", "/status", True)
    assert answer.text == "Ada: /status"
