"""Start and stop."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from bot.background import scheduler
from bot.concurrency import supervisor as supervisor_module
from bot.domain.character import Character
from bot.domain.events import MessageReceived
from bot.domain.ids import new_id
from bot.domain.ledger import Delivery, DeliveryState, Outcome
from bot.domain.task import Task
from bot.errors import ConfigError, InboxClosed, NotSent, PluginError, SettingError
from bot.inbound import processing
from bot.inbound.agent_handle import AdapterSpec, AgentHandle
from bot.models.types import TextRequest
from bot.outbound import sender
from bot.plugin_system.components import Service, evaluator, on, worker
from bot.plugin_system.plugin import Plugin
from bot.runtime import runtime as runtime_module
from bot.runtime.character_reload import AgentConfig
from bot.runtime.runtime import Runtime
from bot.settings import Layer, Settings, SettingsModel
from bot.store import InMemoryStore
from bot.testing import RecordingAdapter, ScriptedModel, make_message, model_answer
from bot.turn import Agent, Turn

NOW = datetime.now(UTC)


class LoggingAdapter(RecordingAdapter):
    """Writes down when it connects and disconnects; connecting fails where the test wants it to."""

    def __init__(self, log: list[str], name: str = "adapter", fault: BaseException | None = None) -> None:
        super().__init__()
        self.log, self.name, self.fault = log, name, fault

    async def __aenter__(self) -> Any:
        self.log.append(f"connect {self.name}")
        if self.fault is not None:
            raise self.fault
        return self

    async def __aexit__(self, *error: object) -> None:
        self.log.append(f"disconnect {self.name}")


def spec(adapter: RecordingAdapter, opened: list[list[AgentHandle]] | None = None) -> AdapterSpec:
    def open_adapter(handles: Sequence[AgentHandle]) -> RecordingAdapter:
        if opened is not None:
            opened.append(list(handles))
        return adapter

    return AdapterSpec(adapter.platform, open_adapter, SettingsModel)


def plan(name: str = "Ada", model: ScriptedModel | None = None, **details: Any) -> AgentConfig:
    plugins = (*details.pop("plugins", ()), (model or ScriptedModel(model_answer(f"I am {name}."))).plugin)
    return AgentConfig(Character(name=name), plugins, Settings([Layer("the test", {"AI_NOTICE": "off"})]), **details)


async def test_agents_live_first_and_platforms_leave_first() -> None:
    log: list[str] = []
    opened: list[list[AgentHandle]] = []

    async def init(agent: Any) -> None:
        log.append(f"agent {agent.name}")

    plans = [plan(name, plugins=[Plugin("log", init=init)]) for name in ("Ada", "Eve")]
    first, second = LoggingAdapter(log, "first"), LoggingAdapter(log, "second")
    async with Runtime(plans, [spec(first, opened), spec(second, opened)]) as runtime:
        assert log == ["agent Ada", "agent Eve", "connect first", "connect second"]
        assert [handle.character.name for handle in runtime.handles] == ["Ada", "Eve"]
        assert opened == [runtime.handles, runtime.handles]
        log.clear()

    assert log == ["disconnect second", "disconnect first"]


async def test_two_agents_in_the_same_process_never_meet() -> None:
    models = [ScriptedModel(model_answer(f"I am {name}.")) for name in ("Ada", "Eve")]
    adapter = RecordingAdapter()
    async with Runtime([plan("Ada", models[0]), plan("Eve", models[1])], [spec(adapter)]) as runtime:
        ada, eve = runtime.agents
        arrival = make_message("The word is swordfish.", sent_at=NOW)
        receipts = [await resident.inbox.submit(arrival) for resident in (ada, eve)]
        await asyncio.gather(ada.inbox.wait_outcome(receipts[0].id), eve.inbox.wait_outcome(receipts[1].id))
        await adapter.wait_until_sent(2)
        only_ada = make_message("Only for Ada.", sent_at=NOW)
        receipt = await ada.inbox.submit(only_ada)
        await ada.inbox.wait_outcome(receipt.id)
        await adapter.wait_until_sent(3)

        assert ada.agent.id != eve.agent.id
        assert sorted(adapter.texts) == ["I am Ada.", "I am Ada.", "I am Eve."]
        in_ada = await ada.agent.store.memories.recent(arrival.room.id)
        in_eve = await eve.agent.store.memories.recent(arrival.room.id)
        assert [memory.content.text for memory in in_eve] == ["The word is swordfish.", "I am Eve."]
        assert len(in_ada) == 4
        assert not {memory.id for memory in in_ada if memory.entity_id == ada.agent.id} & {
            memory.id for memory in in_eve
        }
        with pytest.raises(LookupError):
            await eve.inbox.wait_outcome(receipt.id)
        assert not any("Only for Ada." in request.prompt for request in models[1].requests)


async def test_two_characters_that_would_be_the_same_agent_are_refused() -> None:
    log: list[str] = []
    with pytest.raises(ConfigError, match="'Ada', 'Ada': these characters would be one agent"):
        async with Runtime([plan(), plan("Eve"), plan()], [spec(LoggingAdapter(log))]):
            pass

    assert log == []


@pytest.mark.parametrize(
    "fault",
    [SettingError("no token"), OSError("no network"), asyncio.CancelledError()],
    ids=lambda value: type(value).__name__,
)
async def test_a_start_that_fails_closes_what_was_opened(fault: BaseException) -> None:
    log: list[str] = []
    before = asyncio.all_tasks()
    adapters = [LoggingAdapter(log, "first"), LoggingAdapter(log, "second", fault)]
    with pytest.raises(type(fault) if isinstance(fault, Exception) else PluginError):
        async with Runtime([plan()], [spec(adapter) for adapter in adapters], is_strict=True):
            log.append("running")

    assert log == ["connect first", "connect second", "disconnect first"]
    assert asyncio.all_tasks() == before


@pytest.mark.failure("H-10")
async def test_a_platform_that_does_not_start_is_off_and_the_others_run() -> None:
    log: list[str] = []
    adapters = [LoggingAdapter(log, "first", SettingError("no token")), LoggingAdapter(log, "second")]
    specs = [replace(spec(adapters[0]), name="other"), spec(adapters[1])]
    async with Runtime([plan()], specs) as runtime:
        assert runtime.inactive == {"other": "SettingError: no token"}
        assert runtime.adapters == (adapters[1],)

    assert log == ["connect first", "connect second", "disconnect second"]


async def test_where_no_platform_starts_the_start_fails_with_what_the_first_platform_says() -> None:
    log: list[str] = []
    faults = [SettingError("no token"), OSError("no network")]
    with pytest.raises(SettingError, match="no token"):
        async with Runtime([plan()], [spec(LoggingAdapter(log, "one", fault)) for fault in faults]):
            log.append("running")

    assert log == ["connect one", "connect one"]


@pytest.mark.failure("H-11")
async def test_a_platform_that_starts_later_takes_up_what_was_left_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(RecordingAdapter):
        platform = "elsewhere"

    monkeypatch.setattr(supervisor_module, "FIRST_DELAY_SECONDS", 0)
    log: list[str] = []
    store, late = InMemoryStore(), LoggingAdapter(log)
    [left] = await store.ledger.receive([make_message("Hello", sent_at=NOW)], datetime.now(UTC))
    opened = [LoggingAdapter(log, "broken", OSError("no network")), late]
    flaky = AdapterSpec("test", lambda handles: opened.pop(0), SettingsModel)
    async with Runtime([plan(store=store)], [flaky, spec(Elsewhere())]) as runtime:
        assert await late.wait_until_sent(1) == ["I am Ada."]
        assert (await runtime.agents[0].inbox.wait_outcome(left.receipt.id)).outcome is Outcome.ANSWERED
        assert runtime.inactive == {}

    assert log == ["connect broken", "connect adapter", "disconnect adapter"]


@pytest.mark.failure("H-11")
async def test_what_is_said_while_a_platform_is_gone_leaves_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ending(RecordingAdapter):
        def __init__(self) -> None:
            super().__init__()
            self.begins, self.may_begin = asyncio.Event(), asyncio.Event()

        async def __aenter__(self) -> Any:
            self.begins.set()
            await self.may_begin.wait()
            self.connection = asyncio.current_task()
            return self

        async def deliver(self, delivery: Delivery) -> str:
            if self.connection is None or self.connection.done():
                raise RuntimeError("the session is closed")
            return await super().deliver(delivery)

    monkeypatch.setattr(supervisor_module, "FIRST_DELAY_SECONDS", 0)
    first, second = opened = [Ending(), Ending()]
    first.may_begin.set()
    flaky = AdapterSpec("test", lambda handles: opened.pop(0), SettingsModel)
    async with Runtime([plan()], [flaky]) as runtime:
        inbox = runtime.agents[0].inbox
        assert first.connection is not None
        first.connection.cancel()
        await second.begins.wait()
        receipt = await inbox.submit(make_message("Hello", sent_at=NOW))
        assert (await inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED
        second.may_begin.set()
        assert await second.wait_until_sent(1) == ["I am Ada."]


async def test_a_start_that_fails_leaves_nothing_behind_that_was_taken_in_meanwhile() -> None:
    log: list[str] = []
    asked = asyncio.Event()
    store = InMemoryStore()

    async def hang(request: TextRequest) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    class Early(LoggingAdapter):
        async def __aenter__(self) -> Any:
            await handles[0][0].submit(make_message("Hello", sent_at=NOW))
            await asked.wait()
            return await super().__aenter__()

    handles: list[list[AgentHandle]] = []
    before = asyncio.all_tasks()
    broken = LoggingAdapter(log, "broken", OSError("no network"))
    with pytest.raises(OSError, match="no network"):
        async with Runtime(
            [plan(model=ScriptedModel(hang), store=store)], [spec(Early(log), handles), spec(broken)], is_strict=True
        ):
            pass

    assert asyncio.all_tasks() == before
    assert [receipt.outcome for receipt in await store.ledger.receipts()] == [Outcome.RECEIVED]


async def test_an_agent_that_cannot_move_in_lets_the_others_move_out() -> None:
    log: list[str] = []

    async def init(agent: Any) -> None:
        raise ValueError("no")

    ada = plan(plugins=[Plugin("fine")])
    with pytest.raises(ConfigError, match="'broken' could not be set up"):
        async with Runtime(
            [ada, plan("Eve", plugins=[Plugin("broken", init=init)])], [spec(LoggingAdapter(log))], is_strict=True
        ):
            pass

    assert log == []


async def test_what_an_earlier_process_left_is_taken_up() -> None:
    store, adapter = InMemoryStore(), RecordingAdapter()
    hello = make_message("Hello", sent_at=NOW)
    done = make_message("Bye", sent_at=NOW, room="attic")
    received = await store.ledger.receive([hello, done], datetime.now(UTC))
    left, answered = (stored_event.receipt for stored_event in received)
    await store.ledger.save_receipts([replace(answered, outcome=Outcome.ANSWERED)])
    async with Runtime([plan(store=store)], [spec(adapter)]) as runtime:
        settled = await runtime.agents[0].inbox.wait_outcome(left.id)
        assert settled.outcome is Outcome.ANSWERED
        assert await adapter.wait_until_sent(1) == ["I am Ada."]


async def test_what_was_left_unsent_leaves_before_anything_new() -> None:
    class Eager(RecordingAdapter):
        """Brings a message, and is answered, before it is even connected."""

        async def __aenter__(self) -> Any:
            [handle] = handles[0]
            receipt = await handle.submit(make_message("Hello", sent_at=NOW))
            await handle.wait_outcome(receipt.id)
            return self

    store = InMemoryStore()
    async with Runtime([plan("Ada", store=store)]) as runtime:  # no platform: its reply is left
        receipt = await runtime.agents[0].inbox.submit(make_message("Hello", sent_at=NOW))
        await runtime.agents[0].inbox.wait_outcome(receipt.id)

    handles: list[list[AgentHandle]] = []
    adapter = Eager()
    async with Runtime([plan("Ada", ScriptedModel(model_answer("New.")), store=store)], [spec(adapter, handles)]):
        assert await adapter.wait_until_sent(2) == ["I am Ada.", "New."]


async def test_what_comes_in_while_the_process_starts_is_answered_once() -> None:
    class Eager(RecordingAdapter):
        """Brings a message before it is even connected."""

        async def __aenter__(self) -> Any:
            self.receipt = await handles[0][0].submit(make_message("Hello", sent_at=NOW))
            return self

    handles: list[list[AgentHandle]] = []
    adapter, model = Eager(), ScriptedModel(model_answer("Hi."))
    async with Runtime([plan(model=model)], [spec(adapter, handles)]) as runtime:
        await runtime.agents[0].inbox.wait_outcome(adapter.receipt.id)
        await adapter.wait_until_sent(1)
        await runtime.agents[0].inbox.drain(60)

    assert adapter.texts == ["Hi."]
    assert len(model.requests) == 1


async def test_stopping_lets_a_turn_finish_and_its_reply_leave() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def think(request: TextRequest) -> str:
        asked.set()
        await go.wait()
        return model_answer("At last.")

    adapter, log = LoggingAdapter([]), []
    async with Runtime([plan(model=ScriptedModel(think))], [spec(adapter)]) as runtime:
        inbox = runtime.agents[0].inbox
        await inbox.submit(make_message("Hello", sent_at=NOW))
        await asked.wait()
        asyncio.get_running_loop().call_soon(go.set)

    with pytest.raises(InboxClosed):
        await inbox.submit(make_message("Too late", sent_at=NOW))
    assert adapter.texts == ["At last."]
    assert log == []


async def test_what_does_not_finish_in_time_waits_for_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "TURNS_TIMEOUT", 0)
    asked = asyncio.Event()

    async def hang(request: TextRequest) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    before = asyncio.all_tasks()
    store = InMemoryStore()
    async with Runtime([plan(model=ScriptedModel(hang), store=store)], [spec(RecordingAdapter())]) as runtime:
        receipt = await runtime.agents[0].inbox.submit(make_message("Hello", sent_at=NOW))
        await asked.wait()

    assert asyncio.all_tasks() == before
    assert [receipt.id for receipt in await store.ledger.receipts(is_open=True)] == [receipt.id]
    adapter = RecordingAdapter()
    async with Runtime([plan(store=store)], [spec(adapter)]) as runtime:
        assert (await runtime.agents[0].inbox.wait_outcome(receipt.id)).outcome is Outcome.ANSWERED
        assert await adapter.wait_until_sent(1) == ["I am Ada."]


async def test_what_is_not_sent_in_time_waits_for_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "SENDS_TIMEOUT", 0)
    store = InMemoryStore()
    busy = RecordingAdapter(faults=[NotSent("busy", retry_after=600)])
    async with Runtime([plan(store=store)], [spec(busy)]) as runtime:
        receipt = await runtime.agents[0].inbox.submit(make_message("Hello", sent_at=NOW))
        await runtime.agents[0].inbox.wait_outcome(receipt.id)

    [part] = await store.ledger.deliveries()
    assert part.state in (DeliveryState.PENDING, DeliveryState.ATTEMPTING)
    await store.ledger.save_delivery(replace(part, state=DeliveryState.PENDING))
    adapter = RecordingAdapter()
    async with Runtime([plan(store=store)], [spec(adapter)]):
        assert await adapter.wait_until_sent(1) == ["I am Ada."]


async def test_a_stop_that_is_cancelled_closes_everything_all_the_same() -> None:
    asked, stopping = asyncio.Event(), asyncio.Event()
    log: list[str] = []

    async def hang(request: TextRequest) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    async def run() -> None:
        async with Runtime([plan(model=ScriptedModel(hang))], [spec(LoggingAdapter(log))]) as runtime:
            await runtime.agents[0].inbox.submit(make_message("Hello", sent_at=NOW))
            await asked.wait()
            stopping.set()

    task = asyncio.ensure_future(run())
    await stopping.wait()
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert log == ["connect adapter", "disconnect adapter"]


@pytest.mark.failure("K-08")
async def test_a_stop_that_was_asked_for_is_no_attempt_of_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(request: TextRequest) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(runtime_module, "TURNS_TIMEOUT", 0)
    store = InMemoryStore()
    [received] = await store.ledger.receive([make_message("Hello", sent_at=NOW)], datetime.now(UTC))
    for _ in range(5):
        asked = asyncio.Event()
        async with Runtime([plan(model=ScriptedModel(hang), store=store)], [spec(RecordingAdapter())]):
            await asked.wait()

    async with Runtime([plan(store=store)], [spec(RecordingAdapter())]) as runtime:
        settled = await runtime.agents[0].inbox.wait_outcome(received.receipt.id)
    assert (settled.outcome, settled.attempts) == (Outcome.ANSWERED, 2)


@pytest.mark.long
async def test_after_a_long_outage_fifty_messages_are_resumed_at_once_and_new_messages_in_parallel() -> None:
    at_work, most = 0, 0
    fifty_and_the_new_message, go = asyncio.Event(), asyncio.Event()

    async def think(request: TextRequest) -> str:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        if at_work == 51:
            fifty_and_the_new_message.set()
        await go.wait()
        at_work -= 1
        return model_answer("Here I am.")

    store = InMemoryStore()
    arrivals = [make_message("Old.", sent_at=NOW, room=f"room {number}") for number in range(120)]
    await store.ledger.receive(arrivals, datetime.now(UTC))
    adapter = RecordingAdapter()
    async with Runtime([plan(model=ScriptedModel(think), store=store)], [spec(adapter)]) as runtime:
        await runtime.agents[0].inbox.submit(make_message("New.", sent_at=NOW))
        await fifty_and_the_new_message.wait()
        go.set()
        await adapter.wait_until_sent(121)

    assert most == 51


@pytest.mark.failure("K-08")
async def test_a_platform_that_does_not_disconnect_keeps_nothing_else_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Clinging(LoggingAdapter):
        async def __aexit__(self, *error: object) -> None:
            await super().__aexit__(*error)
            await asyncio.Event().wait()

    class Failing(LoggingAdapter):
        async def __aexit__(self, *error: object) -> None:
            await super().__aexit__(*error)
            raise OSError("no network")

    monkeypatch.setattr(runtime_module, "DISCONNECT_TIMEOUT", 0)
    log: list[str] = []
    adapters = [LoggingAdapter(log, "first"), Clinging(log, "clinging"), Failing(log, "failing")]
    async with Runtime([plan()], [spec(adapter) for adapter in adapters]):
        log.clear()

    assert log == ["disconnect failing", "disconnect clinging", "disconnect first"]


@pytest.mark.failure("K-08")
async def test_everything_that_stops_shares_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Service):
        async def __aexit__(self, *error: object) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                log.append("service let go")

    class Clinging(LoggingAdapter):
        async def __aexit__(self, *error: object) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                log.append("platform let go")

    monkeypatch.setattr(runtime_module, "STOP_TIMEOUT", 0)  # each alone would have five seconds
    log: list[str] = []
    plugins = [Plugin("slow", services=[Slow])]
    async with asyncio.timeout(4), Runtime([plan(plugins=plugins)], [spec(Clinging([]))]):
        pass

    assert log == ["platform let go", "service let go"]


@pytest.mark.failure("K-08")
async def test_what_does_not_let_itself_be_stopped_shares_the_deadline_too(monkeypatch: pytest.MonkeyPatch) -> None:
    over, all_at_work, at_work = asyncio.Event(), asyncio.Event(), set[str]()
    is_quick = [False, True]

    async def cling(what: str) -> None:
        at_work.add(what)
        if len(at_work) == 4:
            all_at_work.set()
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()

    class Sending(RecordingAdapter):
        async def deliver(self, delivery: Delivery) -> str:
            await cling("sending")
            return "sent"

    @on(MessageReceived)
    async def hear(agent: Agent, event: MessageReceived) -> None:
        await cling("listening")

    @worker("CLING")
    async def work(agent: Agent, task: Task) -> None:
        await cling("working")

    async def write(request: TextRequest) -> str:
        if not is_quick.pop():
            await cling("thinking")
        return model_answer("Hello.")

    monkeypatch.setattr(runtime_module, "TURNS_TIMEOUT", 0)
    monkeypatch.setattr(runtime_module, "STOP_TIMEOUT", 0)
    monkeypatch.setattr(processing, "CANCEL_GRACE_SECONDS", 600)  # each alone would wait for so long
    monkeypatch.setattr(scheduler, "CANCEL_GRACE_SECONDS", 600)
    monkeypatch.setattr(sender, "CANCEL_GRACE_SECONDS", 600)
    plugins = [Plugin("clinging", listeners=[hear], workers=[work])]
    try:
        async with Runtime([plan(model=ScriptedModel(write), plugins=plugins)], [spec(Sending())]) as runtime:
            [resident] = runtime.agents
            task = Task(new_id(), "CLING", next_run=resident.agent.clock())
            await resident.agent.store.tasks.save_task(task)
            for room in ("lobby", "attic"):
                await resident.inbox.submit(make_message("Hello", sent_at=NOW, room=room))
            async with asyncio.timeout(60):
                await all_at_work.wait()
            stopping = asyncio.get_running_loop().call_later(60, over.set)
        assert not over.is_set(), "what does not let itself be stopped was waited for"
        stopping.cancel()
    finally:
        over.set()


async def test_a_platform_may_be_connected_later() -> None:
    log: list[str] = []
    async with Runtime([plan()]) as runtime:
        receipt = await runtime.agents[0].inbox.submit(make_message("Hello", sent_at=NOW))
        await runtime.agents[0].inbox.wait_outcome(receipt.id)
        adapter = LoggingAdapter(log)
        await runtime.connect(adapter)
        assert await adapter.wait_until_sent(1) == ["I am Ada."]

    assert log == ["connect adapter", "disconnect adapter"]


async def test_what_was_left_of_a_platform_that_is_not_connected_waits_for_a_process_that_has_it() -> None:
    store, model = InMemoryStore(), ScriptedModel(model_answer("Hi."))
    arrivals = [make_message(f"Hello {name}", sent_at=NOW, room=name, platform=name) for name in ("test", "other")]
    here, there = [stored_event.receipt for stored_event in await store.ledger.receive(arrivals, datetime.now(UTC))]
    async with Runtime([plan(model=model, store=store)], [spec(RecordingAdapter())]) as runtime:
        await runtime.agents[0].inbox.wait_outcome(here.id)
        await runtime.agents[0].inbox.drain(60)

    assert len(model.requests) == 1
    kept = await store.ledger.receipt(there.id)
    assert kept is not None
    assert kept.outcome is Outcome.RECEIVED  # it waits, and was not under way when this process stopped


async def test_what_was_left_of_a_platform_is_taken_up_when_it_is_connected() -> None:
    store = InMemoryStore()
    [received] = await store.ledger.receive([make_message("Hello", sent_at=NOW)], datetime.now(UTC))
    async with Runtime([plan(store=store)]) as runtime:
        kept = await store.ledger.receipt(received.receipt.id)
        assert kept is not None
        assert not kept.outcome.is_final
        adapter = RecordingAdapter()
        await runtime.connect(adapter)
        assert await adapter.wait_until_sent(1) == ["I am Ada."]


async def test_only_what_was_left_of_connected_platforms_is_learnt_from_and_each_once() -> None:
    looked: list[str] = []

    @evaluator("LOOK", "Looks at every message.", always_run=True)
    async def look(turn: Turn) -> None:
        looked.append(turn.message.content.text)

    store = InMemoryStore()
    for platform in ("test", "other"):
        arrival = make_message(f"Hello {platform}", sent_at=NOW, platform=platform, room=platform)
        [received] = await store.ledger.receive([arrival], datetime.now(UTC))
        closed = replace(received.receipt, outcome=Outcome.IGNORED, is_evaluated=False)
        await store.ledger.save_receipts([closed])
    async with Runtime([plan(store=store, plugins=[Plugin("look", evaluators=[look])])]) as runtime:
        await runtime.connect(RecordingAdapter())
        await runtime.connect(LoggingAdapter([]))
        await runtime.agents[0].inbox.drain(60)

    assert looked == ["Hello test"]
