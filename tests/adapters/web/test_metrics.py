"""`GET /metrics`: the figures for Prometheus, who may read them, and the files of deploy/ that use them."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from adapters.web.exposition import MAX_LABEL_VALUES, OTHER, EventCounters, LabelValues
from bot import system_clock
from bot.events import MessageClosed, ModelUsed
from bot.models import ModelCall
from bot.platform import AccessTokens, DocumentFormat, TokenScope, extract_document_text
from bot.store import CostEntry, InMemoryStore, OpenItems, StoreUnavailable
from bot.store.sql.sqlite.memory import ALL_AGENTS
from bot.store.sql.stores.cache_logs_costs import SqlActivity
from bot.testing import AgentHarness
from tests.adapters.web.conftest import TOKEN, RunningServer, ServerFactory

DEPLOY = Path(__file__).parents[3] / "deploy"
METRICS_TOKEN = "a-token-for-figures"
SECRET_WORDS = ("platypus", "Quillon")
USED = re.compile(r"\b((?:greenroom|process)_\w+)(?:\{([^}]*)\})?")
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


async def scrape(server: RunningServer, token: str = TOKEN, **headers: str) -> str:
    answer = await server.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}", **headers})
    assert answer.status == 200
    return await answer.text()


def read_samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(text)
    return {(item.name, frozenset(item.labels.items())): item.value for family in families for item in family.samples}


def find_sample(text: str, name: str, **labels: str) -> float:
    return read_samples(text)[f"greenroom_{name}", frozenset(labels.items())]


async def test_the_figures_count_messages_answers_parts_and_model_calls(web_server: RunningServer) -> None:
    for sent_text in (SECRET_WORDS[0], "silence", "refuse"):
        await web_server.send(sent_text, room=SECRET_WORDS[1])
    text = await scrape(web_server)
    place = {"agent": "Ada", "platform": "web"}
    assert find_sample(text, "messages_received_total", **place) == 3
    outcomes = {labels for (name, labels) in read_samples(text) if name == "greenroom_messages_total"}
    assert {dict(labels)["outcome"] for labels in outcomes} == {"answered", "ignored", "failed"}
    assert find_sample(text, "messages_total", **place, outcome="failed", rule="ModelRefused") == 1
    assert find_sample(text, "answer_seconds_count", **place) == 1
    assert find_sample(text, "answer_seconds_bucket", **place, le="+Inf") == 1
    assert find_sample(text, "deliveries_total", **place, state="sent") >= 1
    model = {"agent": "Ada", "model": "scripted", "purpose": "reply"}
    assert find_sample(text, "model_tokens_total", **model, kind="input") == 240
    assert (
        find_sample(text, "model_call_seconds_count", **model) == find_sample(text, "model_calls_total", **model) == 3
    )
    assert find_sample(text, "platform_state", agent="", platform="web", state="connected") == 1
    assert find_sample(text, "queue_items", agent="Ada", queue="turns") == 0
    assert find_sample(text, "store_up", agent="Ada") == 1
    assert "process_resident_memory_bytes" in text
    assert not [word for word in SECRET_WORDS if word in text]


async def test_the_processor_time_of_reading_documents_is_counted(web_server: RunningServer) -> None:
    before = find_sample(await scrape(web_server), "child_processor_seconds_total")
    assert await extract_document_text(b"<p>Low water", DocumentFormat.HTML) == "Low water\n\n"
    assert find_sample(await scrape(web_server), "child_processor_seconds_total") > before


async def test_markup_that_the_last_check_removes_is_counted(
    web_server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    sent = await web_server.send("Hello")
    agent = web_server.runtime.agents[0].agent
    room = await agent.store.worlds.room(UUID(sent["room_id"]))
    assert room is not None
    reply = await agent.say(room, "<think>a secret plan</think>Hi.")
    text = await scrape(web_server)
    assert reply is not None
    assert reply.content.text == "Hi."
    assert find_sample(text, "markup_removed_total", agent="Ada", dialect="think tags") == 1
    assert "markup of the model was removed from a reply" in caplog.text


async def test_degraded_answers_are_counted_by_their_step(open_server: ServerFactory) -> None:
    async with open_server(settings={"BUDGET_TOKENS": "1000000", "DEGRADE": "1:history"}) as server:
        costs = server.runtime.agents[0].agent.store.costs
        await costs.add([CostEntry(system_clock().date(), "large", tokens_in=20_000)])
        await server.runtime.agents[0].handle.limits.change({}, source="the test")  # which loads the costs
        await server.send("Hello")
        text = await scrape(server)
    assert find_sample(text, "degraded_answers_total", agent="Ada", step="history") == 1


async def test_a_message_is_counted_once_however_often_its_outcome_is_asked_for(agent_harness: AgentHarness) -> None:
    closed: list[MessageClosed] = []
    agent_harness.agent.events.subscribe(MessageClosed, closed.append, at_once=True)
    receipt = await agent_harness.send("Hello")
    assert await agent_harness.agent_runtime.inbox.wait_outcome(receipt.id) == receipt
    assert [event.receipt.id for event in closed] == [receipt.id]


async def test_no_label_names_a_room_a_person_or_a_message(web_server: RunningServer) -> None:
    rooms = [(await web_server.send("Hello", room=f"room-{number}"))["room_id"] for number in range(3)]
    text = await scrape(web_server)
    names = {name for _, labels in read_samples(text) for name, _ in labels}
    allowed = {
        "agent",
        "platform",
        "outcome",
        "rule",
        "state",
        "model",
        "purpose",
        "kind",
        "result",
        "queue",
        "type",
        "dialect",
    }
    assert names <= allowed | {"provider", "le", "version"}
    assert not [room for room in rooms if room in text]


async def test_openmetrics_is_returned_where_it_is_asked_for(web_server: RunningServer) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    text = await scrape(web_server, Accept=accept)
    assert text.endswith("# EOF\n")
    assert "greenroom_store_up" in {family.name for family in parse_openmetrics(text)}


@pytest.mark.long
async def test_a_token_that_may_read_and_the_metrics_token_read_figures(
    open_server: ServerFactory, tmp_path: Path
) -> None:
    tokens = AccessTokens(tmp_path)
    made = {scope: tokens.create(scope, scope, datetime.now(UTC))[1] for scope in TokenScope}
    async with open_server(settings={"METRICS_TOKEN": METRICS_TOKEN}, access_tokens=tokens) as server:
        for token in (TOKEN, METRICS_TOKEN, made[TokenScope.OPERATOR], made[TokenScope.READ_ONLY]):
            await scrape(server, token)
        for path, token, status in (
            ("/metrics", made[TokenScope.CHAT], 403),
            ("/metrics", f"{METRICS_TOKEN}x", 401),
            ("/api/overview", METRICS_TOKEN, 401),
            (f"/api/receipts/{uuid4()}", METRICS_TOKEN, 401),
        ):
            answer = await server.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            assert answer.status == status, path
        signed_in = await server.request("POST", "/api/session", json={"token": METRICS_TOKEN})
        assert signed_in.status == 401


async def test_while_the_store_cannot_be_read_the_figures_say_so(open_server: ServerFactory) -> None:
    class UnreadableActivity(SqlActivity):
        async def open_items(self) -> OpenItems:
            raise StoreUnavailable("the disk is full", cause="disk_full")

    store = InMemoryStore()
    async with open_server(stores={"Ada": store}) as server:
        await server.send("Hello")
        store.activity = UnreadableActivity(store.database, ALL_AGENTS)
        text = await scrape(server)
        assert find_sample(text, "store_up", agent="Ada") == 0
        assert find_sample(text, "messages_received_total", agent="Ada", platform="web") == 1
        assert "greenroom_queue_items{" not in text


async def test_without_the_client_library_nothing_is_counted_and_the_answer_says_what_to_install(
    open_server: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.web.overview_api.LIBRARY", "no_such_library")
    async with open_server() as server:
        subscriptions = server.runtime.agents[0].agent.events._subscriptions.values()
        listeners = [getattr(item.listen, "func", item.listen) for items in subscriptions for item in items]
        assert not [listen for listen in listeners if isinstance(getattr(listen, "__self__", None), EventCounters)]
        answer = await server.request("GET", "/metrics", headers=server.bearer)
        assert answer.status == 404
        assert "[metrics]" in (await answer.json())["error"]["message"]


def test_a_label_has_at_most_a_hundred_values() -> None:
    values = LabelValues()
    found = {values.find(f"rule {number}") for number in range(2 * MAX_LABEL_VALUES)}
    assert len(found) == MAX_LABEL_VALUES + 1
    assert OTHER in found
    assert values.find("rule 7") == "rule 7"


async def test_the_tokens_of_a_call_that_the_provider_did_not_count_are_left_out(agent_harness: AgentHarness) -> None:
    registry, events = CollectorRegistry(), agent_harness.agent.events
    EventCounters(registry).subscribe([agent_harness.agent_runtime.handle])
    for error in ("", "503", "cancelled"):
        call = ModelCall("TEXT_LARGE", "reply", "m", tokens_in=10, is_estimate=bool(error), error=error)
        events.emit(ModelUsed(agent_harness.agent.id, call))
    labels = {"agent": "Ada", "model": "m", "purpose": "reply"}
    names = ("model_calls", "model_failed_calls", "model_unpriced_calls")
    assert [registry.get_sample_value(f"greenroom_{name}_total", labels) for name in names] == [3, 1, 2]
    assert registry.get_sample_value("greenroom_model_tokens_total", {**labels, "kind": "input"}) == 20


def list_expressions() -> Iterator[tuple[str, str]]:
    """Yield the file and text of each expression in deploy/."""
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"]
            yield rule["alert"], rule["expr"]
    dashboard = json.loads((DEPLOY / "grafana" / "greenroom.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


async def test_the_dashboard_and_the_alert_rules_use_figures_and_labels_that_exist(web_server: RunningServer) -> None:
    await web_server.send("Hello")
    families = list(text_string_to_metric_families(await scrape(web_server)))
    labels = {sample.name: set(sample.labels) for family in families for sample in family.samples}
    known = {family.name + suffix for family in families for suffix in SUFFIXES.get(family.type, ())}
    for place, expression in list_expressions():
        assert expression.count("(") == expression.count(")"), place
        for name, selector in USED.findall(expression):
            assert name in known, f"{place} uses {name}, which /metrics does not have"
            used = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector)) - {"job"}
            assert used <= labels.get(name, used), f"{place} selects by {used}"


def test_the_scrape_example_reads_the_path_and_names_the_rules() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    [job] = config["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    assert job["authorization"]["type"] == "Bearer"
    assert all((DEPLOY / "prometheus" / file).exists() for file in config["rule_files"])
