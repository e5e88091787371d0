"""The overview of the bot and its health over HTTP."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from adapters.telegram.adapter import TelegramAdapter
from adapters.telegram.config import Limits
from adapters.telegram.emulator import Emulator, Fault
from adapters.web.overview_api import ProblemBody, build_headline, build_problem
from bot import Outcome, derived_id, system_clock
from bot.models import ModelBusy
from bot.platform import (
    AccountSituation,
    ConnectionState,
    ConnectionStatus,
    DisconnectCause,
    ModelSituation,
    ModelState,
    Situation,
    TimeSource,
    find_conditions,
)
from bot.store import Backlog, InMemoryStore, OpenItems, StoreProblem, TaskBacklog
from bot.testing import RecordingAdapter, make_message
from tests.adapters.web.conftest import RunningServer, ServerFactory

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
ACCOUNT = AccountSituation(
    platform="telegram",
    name="Ada",
    account="@ada_bot",
    agent_id=derived_id("Ada"),
    state=ConnectionState.CONNECTED,
    since=NOW,
    last_in_at=NOW,
    last_out_at=NOW,
    usual_gap=timedelta(minutes=1),
)
CUT_OFF = replace(ACCOUNT, state=ConnectionState.DEGRADED, cause=DisconnectCause.DNS)
PAGE = replace(ACCOUNT, platform="web", agent_id=None)


def build_model(**fields: object) -> ModelSituation:
    known = {"name": "gpt-4o", "provider": "openai", "work": ["TEXT_LARGE"], "state": ModelState.ANSWERS}
    figures = {"calls": 9, "failed": 3, "p50_ms": 800, "usd": 0.5}
    unset = {"rests_until": None, "why": "", "replaced_by": ""}
    return ModelSituation.model_validate({**known, **figures, **unset, **fields})


WELL = Situation(NOW, None, [ACCOUNT, PAGE], OpenItems(), TaskBacklog(), [build_model()], spent=2.334, limit=8.0)


def find_problems(situation: Situation) -> list[ProblemBody]:
    return list(map(build_problem, find_conditions(situation)))


def headline(situation: Situation) -> str:
    return build_headline(situation, find_problems(situation)).text


def kinds(situation: Situation) -> list[str]:
    return [problem.kind for problem in find_problems(situation)]


def test_without_a_problem_all_is_well() -> None:
    headline = build_headline(WELL, find_problems(WELL))
    assert (headline.level, headline.text) == ("good", "All is well")
    assert headline.summary == "2 of 2 accounts connected, no open turn. $2.33 of $8.00 spent today."


def test_the_headline_counts_what_needs_attention() -> None:
    held = replace(WELL, items=OpenItems(held=Backlog(3, NOW)))
    assert headline(held) == "Running; 1 thing needs attention"
    late = replace(held, tasks=TaskBacklog(Backlog(1, NOW)))
    assert headline(late) == "Running; 2 things need attention"


def test_the_headline_says_that_no_platform_is_connected() -> None:
    assert headline(replace(WELL, accounts=[CUT_OFF, PAGE])) == "Not connected to any platform"
    assert headline(replace(WELL, accounts=[PAGE])) == "All is well"


def test_all_is_not_well_while_an_account_is_still_connecting() -> None:
    connecting = replace(ACCOUNT, platform="discord", state=ConnectionState.CONNECTING)
    starting = replace(WELL, accounts=[ACCOUNT, connecting, PAGE])
    headline = build_headline(starting, find_problems(starting))
    assert (headline.level, headline.text) == ("warn", "Running; Ada on Discord is connecting")
    assert kinds(replace(starting, now=NOW + timedelta(minutes=2))) == ["account"]


def test_a_store_that_takes_nothing_in_is_the_worst() -> None:
    problem = StoreProblem("db_full", "the database /data/x.db cannot grow: free some space on its disk", NOW)
    situation = replace(WELL, accounts=[CUT_OFF], store_problem=problem)
    assert headline(situation) == "Messages cannot be received: the disk is full"
    assert kinds(situation) == ["store", "account"]


def test_problems_are_listed_worst_first_each_with_an_action() -> None:
    resting = build_model(state=ModelState.RESTS, rests_until=NOW, why="529", replaced_by="other")
    silent = replace(ACCOUNT, late_since=NOW, last_in_at=NOW - timedelta(minutes=40))
    situation = replace(
        WELL,
        accounts=[CUT_OFF, silent],
        models=[resting],
        items=OpenItems(held=Backlog(1, NOW), failed=Backlog(2, NOW)),
        tasks=TaskBacklog(Backlog(1, NOW)),
        spent=8.0,
    )
    problems = find_problems(situation)
    assert kinds(situation) == ["budget", "account", "model", "held", "failed", "late", "tasks"]
    assert all(problem.action and problem.href.startswith("console/") for problem in problems)
    texts = {problem.kind: f"{problem.text} {problem.why}" for problem in problems}
    assert texts["late"].startswith(
        "Ada on Telegram has received nothing for 40 min. At this hour a message usually arrives every 1 min."
    )
    assert texts["model"].endswith("529. other is used instead.")
    refused = build_model(state=ModelState.FAILS, why="refused the key (401)", agents=("Ada",))
    [failing] = find_problems(replace(WELL, models=[refused, build_model(agents=("Bob",))]))
    assert (failing.text, failing.level) == ("gpt-4o is failing.", "bad")
    assert failing.why == "refused the key (401). No other model is available. Used by Ada."
    alone = replace(WELL, models=[resting.model_copy(update={"replaced_by": ""})])
    assert find_problems(alone)[0].level == "bad"


def test_a_resting_model_leads_to_an_example_and_a_plugin_that_is_off_to_the_plugins() -> None:
    resting = build_model(state=ModelState.RESTS, rests_until=NOW, why="529")
    receipt_id = derived_id("receipt")
    model, plugin = find_problems(
        replace(WELL, models=[resting], example_id=receipt_id, plugins={"x": "X_KEY is missing"})
    )
    assert (model.href, model.action) == (f"console/receipts/{receipt_id}", "See one")
    assert (plugin.kind, plugin.href) == ("plugin", "console/plugins")
    assert f"{plugin.text} {plugin.why}" == "The plugin x is off. X_KEY is missing."


class ShakyAdapter(RecordingAdapter):
    """An adapter with an account whose status the test sets."""

    platform = "telegram"

    def __init__(self, agent_id: Any) -> None:
        super().__init__()
        self.status = ConnectionStatus("telegram", "Ada", agent_id=agent_id)

    @property
    def connections(self) -> Sequence[ConnectionStatus]:
        return (self.status,)


def test_a_spent_budget_of_a_single_character_among_several_is_named() -> None:
    [problem] = find_problems(replace(WELL, limit=0.0, budgets={"Ada": (1.5, 1.25), "Bob": (2.0, 0.0)}))
    assert problem.text == "Today's limit of $1.25 for Ada is used up."


async def store_messages(store: InMemoryStore, times: Sequence[datetime], platform: str = "telegram") -> None:
    for number, at in enumerate(times):
        message = make_message("Hello", sent_at=at, platform=platform, message_id=f"{platform}-{number}")
        [event] = await store.ledger.receive([message], at)
        closed_at = at + timedelta(seconds=2)
        await store.ledger.save_receipts([replace(event.receipt, outcome=Outcome.ANSWERED, closed_at=closed_at)])


async def test_a_server_with_only_its_page_is_well(web_server: RunningServer) -> None:
    await web_server.send("Hello")
    body = await web_server.get("/api/overview")
    assert body["headline"]["text"] == "All is well"
    assert body["problems"] == []
    [account] = body["accounts"]
    assert (account["platform"], account["state"], account["agent_id"]) == ("web", "connected", None)
    assert account["last_in_at"] is not None
    assert account["late_since"] is None
    assert len(account["history"]) == 48
    assert [item["state"] for item in account["history"]][-2:] == ["unknown", "connected"]
    assert body["open"]["turns"] == {"count": 0, "oldest_at": None}
    assert body["tasks"]["late"]["count"] == 0


async def test_the_state_of_an_account_is_shown_with_its_cause(web_server: RunningServer) -> None:
    [handle] = web_server.runtime.handles
    shaky = ShakyAdapter(handle.agent_id)
    await web_server.runtime.connect(shaky)
    shaky.status.connected()
    shaky.status.failed(DisconnectCause.LIMITED, "429: hunter2")
    body = await web_server.get("/api/overview")
    account = next(item for item in body["accounts"] if item["platform"] == "telegram")
    assert (account["state"], account["cause"]) == ("degraded", "rate_limited")
    assert account["history"][-1] == {"state": "degraded", "cause": "rate_limited"}
    assert body["headline"]["text"] == "Not connected to any platform"
    assert body["problems"][0]["text"] == "Ada on Telegram is rate limited."
    assert body["problems"][0]["why"] == "The platform limits the request rate."
    assert "hunter2" not in str(body)


@pytest.mark.long
async def test_an_account_is_late_once_eight_messages_would_usually_have_come_in(open_server: ServerFactory) -> None:
    now = datetime(2026, 5, 6, 12, 20, tzinfo=UTC)  # a Wednesday: the weekend is compared with weekends only
    store, hour = InMemoryStore(), now.replace(minute=0)
    usual = [hour - timedelta(days=days, minutes=-5 * part) for days in range(7, 0, -1) for part in range(12)]
    # The hour in which the last message came may count: it is the one before this, or the one before that.
    before = [at - timedelta(hours=hours) for hours in (1, 2) for at in usual]
    last = now - timedelta(minutes=65)
    await store_messages(store, sorted([*usual, *before, last]))
    async with open_server(stores={"Ada": store}, clock=lambda: now) as server:
        [handle] = server.runtime.handles
        shaky = ShakyAdapter(handle.agent_id)
        await server.runtime.connect(shaky)
        shaky.status.connected()
        account = (await server.get("/api/overview"))["accounts"][0]
        assert account["late_since"] is None  # it is connected for a moment only
        arrivals = (await handle.activity.arrivals())["telegram"]
        assert arrivals.last_at == last
        assert arrivals.usual_gap == timedelta(minutes=5)
        assert arrivals.late_since(now - timedelta(days=1), now) == last + timedelta(minutes=40)
        assert arrivals.late_since(now - timedelta(minutes=39), now) is None


async def test_figures_over_time_are_columns(open_server: ServerFactory) -> None:
    store, now = InMemoryStore(), system_clock()
    times = [now - timedelta(minutes=minutes) for minutes in (600, 90, 30, 30, 5)]
    await store_messages(store, times)
    async with open_server(stores={"Ada": store}) as server:
        await server.send("refuse")
        hour = await server.get("/api/metrics")
        assert (hour["step_s"], len(hour["in"])) == (60, 60)
        assert (sum(hour["in"]), sum(hour["replies"])) == (4, 3)
        assert [value for value in hour["p95_ms"] if value] == [2000, 2000]
        assert sum(hour["failures"]["ModelRefused"]) == 1
        day = await server.get("/api/metrics?range=day&platform=telegram")
        assert (day["step_s"], sum(day["in"]), day["failures"]) == (600, 5, {})
        month = await server.get("/api/metrics?range=month&agent=Ada")
        assert (month["step_s"], len(month["in"]), sum(month["in"])) == (21_600, 120, 6)
        assert len(month["spent"]["usd"]) == 144
        await server.get("/api/metrics?range=year", 422)


async def test_spans_that_are_over_are_read_from_the_store_once(open_server: ServerFactory) -> None:
    store, now = InMemoryStore(), system_clock()
    await store_messages(store, [now - timedelta(minutes=30)])
    async with open_server(stores={"Ada": store}) as server:
        asked: list[int] = []
        read = store.activity.buckets

        async def count_spans(start: datetime, step: timedelta, count: int, platform: str = "") -> Any:
            asked.append(count)
            return await read(start, step, count, platform)

        store.activity.buckets = count_spans  # type: ignore[method-assign]  # the real one is called
        first = await server.get("/api/metrics")
        second = await server.get("/api/metrics")
        assert asked[0] == 60
        assert asked[1] <= 3
        assert sum(first["in"]) == sum(second["in"]) == 1


async def test_all_is_not_well_while_a_provider_answers_503(web_server: RunningServer) -> None:
    await web_server.send("Hello")
    assert (await web_server.get("/api/overview"))["headline"]["text"] == "All is well"
    [before] = (await web_server.get("/api/models"))["models"]
    web_server.script.retry_after = 60
    client = await web_server.open_socket()
    await client.send(type="message", text="overload", client_id="c1")
    message_id = (await client.wait_for("ack"))["message_id"]
    while not (await client.wait_for("typing"))["model_busy"]:
        pass
    body = await web_server.get("/api/overview")
    assert (body["headline"]["level"], body["headline"]["text"]) == ("warn", "Running; 1 thing needs attention")
    assert [(item["kind"], item["text"], item["why"]) for item in body["problems"]] == [
        ("model", "scripted is failing.", "503. No other model is available.")
    ]
    [model] = (await web_server.get("/api/models"))["models"]
    assert (model["state"], model["failed"], model["calls"] - before["calls"]) == ("fails", 1, 1)
    await web_server.post(f"/api/messages/{message_id}/stop", None)
    await web_server.send("Hello again")
    assert (await web_server.get("/api/overview"))["headline"]["text"] == "All is well"


async def test_models_are_listed_with_their_work_calls_and_rest(web_server: RunningServer) -> None:
    [model] = (await web_server.get("/api/models"))["models"]
    assert (model["name"], model["state"], model["work"]) == ("script", "unused", ["TEXT_LARGE"])
    await web_server.send("Hello")
    [model] = (await web_server.get("/api/models"))["models"]
    assert (model["name"], model["provider"], model["state"]) == ("scripted", "script", "answers")
    assert model["calls"] >= 1
    [handle] = web_server.runtime.handles
    [agent_runtime] = web_server.runtime.agents
    [client] = next(iter(agent_runtime.agent.models._clients.values()))
    for _ in range(3):
        with pytest.raises(ModelBusy), client.health.guard():
            raise ModelBusy("529: overloaded")
    [model] = (await web_server.get(f"/api/models?agent={handle.agent_id}"))["models"]
    assert (model["state"], model["why"]) == ("rests", "529: overloaded")
    assert model["rests_until"] is not None
    body = await web_server.get("/api/overview")
    assert body["problems"][0]["kind"] == "model"


TOKEN = "1000001:not-a-real-token"


class TwoAccountAdapter(RecordingAdapter):
    """An adapter with two accounts whose status the test sets."""

    platform = "shaky"

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = ConnectionStatus("shaky", "Ada"), ConnectionStatus("shaky", "Bob")

    @property
    def connections(self) -> Sequence[ConnectionStatus]:
        return (self.first, self.second)


async def health(web_server: RunningServer, status: int = 200) -> Any:
    return await web_server.check_response("GET", "/healthz", await web_server.request("GET", "/healthz"), status)


async def test_a_server_with_only_its_page_is_ok(web_server: RunningServer) -> None:
    body = await health(web_server)
    assert (body["status"], list(body["platforms"])) == ("ok", ["web"])
    assert body["platforms"]["web"]["state"] == "connected"


@pytest.mark.failure("C-15")
async def test_the_worst_account_of_a_platform_is_reported(web_server: RunningServer) -> None:
    shaky = TwoAccountAdapter()
    await web_server.runtime.connect(shaky)
    body = await health(web_server)
    assert (body["status"], body["platforms"]["shaky"]["state"]) == ("ok", "connecting")
    shaky.first.connected()
    shaky.second.failed(DisconnectCause.TLS, "the certificate of platform.example has expired: it says 'hunter2'")
    body = await health(web_server)
    assert body["status"] == "degraded"
    assert body["platforms"]["shaky"]["state"] == "degraded"
    assert body["platforms"]["shaky"]["cause"] == "tls"
    assert body["platforms"]["shaky"]["since"] == shaky.second.snapshot.since.isoformat().replace("+00:00", "Z")
    assert "hunter2" not in str(body)
    assert "Bob" not in str(body)
    shaky.second.connected()
    assert (await health(web_server))["status"] == "ok"
    shaky.first.stopped(DisconnectCause.REFUSED, "renew the token")
    body = await health(web_server)
    assert (body["status"], body["platforms"]["shaky"]["state"]) == ("degraded", "off")


async def test_an_adapter_without_status_is_not_reported(web_server: RunningServer) -> None:
    await web_server.runtime.connect(RecordingAdapter())
    assert list((await health(web_server))["platforms"]) == ["web"]


@pytest.mark.failure("C-15")
@pytest.mark.parametrize("fault", [Fault("getUpdates", times=10**6), Fault("getUpdates", 502, "", times=10**6)])
async def test_a_disconnected_platform_is_reported_with_status_200(open_server: ServerFactory, fault: Fault) -> None:
    time_source = TimeSource(sleep=lambda seconds: asyncio.sleep(0))
    async with Emulator() as telegram:
        settings = telegram.settings(telegram.add_bot(TOKEN))
        async with open_server(settings=settings) as web_server:
            limits = Limits(poll_seconds=0)
            await web_server.runtime.connect(
                TelegramAdapter(web_server.runtime.handles, limits=limits, time_source=time_source)
            )
            await wait_for_state(web_server, "connected")
            telegram.faults.append(fault)
            assert (await wait_for_state(web_server, "degraded"))["status"] == "degraded"
            assert (await web_server.send("Hello"))["outcome"] == "answered"
            fault.times = 0
            assert (await wait_for_state(web_server, "connected"))["status"] == "ok"


async def wait_for_state(web_server: RunningServer, state: str) -> Any:
    async with asyncio.timeout(60):
        while (body := await health(web_server))["platforms"]["telegram"]["state"] != state:
            pass
        return body


@pytest.mark.long
async def test_a_held_part_is_counted_and_logged_until_it_is_decided_about(
    open_server: ServerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    time_source = TimeSource(sleep=lambda seconds: asyncio.sleep(0))
    async with Emulator() as telegram:
        settings = telegram.settings(telegram.add_bot(TOKEN))
        async with open_server(settings={**settings, "TELEGRAM_UNCLEAR": "hold"}) as web_server:
            adapter = TelegramAdapter(web_server.runtime.handles, time_source=time_source)
            await web_server.runtime.connect(adapter)
            await wait_for_state(web_server, "connected")
            assert (await health(web_server))["held"] == 0
            telegram.faults.append(Fault("sendMessage", 500, "oops", is_late=True))
            kim = telegram.people.add_user("Kim")
            telegram.people.say(telegram.people.open_private_chat(kim), kim, "Hello")
            async with asyncio.timeout(60):
                while not (body := await health(web_server))["held"]:
                    pass
            assert (body["status"], body["held"]) == ("degraded", 1)
            [part] = (await web_server.get("/api/outbox"))["parts"]
            [error] = [record for record in caplog.records if record.levelname == "ERROR"]
            assert f"bot outbox send {part['id']}" in error.getMessage()
            await web_server.post(f"/api/outbox/{part['id']}/drop", {})
            assert (await health(web_server))["held"] == 0
