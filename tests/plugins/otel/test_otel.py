"""Telemetry over OTLP, received by a server on the loopback that decodes the protocol."""

import ast
import asyncio
import json
import logging
import re
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from bot import ActionResult, Character, Outcome, Plugin, ProviderResult, Settings, Turn, action, provider
from bot.domain.environment import ChannelType
from bot.events import ModelUsed
from bot.logs import configure_logging
from bot.models import ModelCall, Purpose, TextRequest, TextResult, ToolCall
from bot.platform import DeliveryUnknown, NotSent, Undeliverable, find_log_buffer
from bot.plugin_system.loading import find_plugin, load_plugins
from bot.prompts import Authority
from bot.settings import Layer
from bot.store import InMemoryStore
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from plugins.otel import plugin as otel
from plugins.otel.config import OtelSettings, missing_settings, privacy_statement, read_pairs
from plugins.otel.service import Telemetry
from plugins.otel.traces import Traces, build_ids
from plugins.sql import plugin as sql
from tests.adapters.tls import EXPIRED, GOOD, HOST, behind_tls, trusted
from tests.plugins.bootstrap.obeying import run_due

ROOT = Path(__file__).parents[3]
logger = logging.getLogger("plugins.test_otel")
foreign_logger = logging.getLogger("a_library")
CANARIES = [f"canary{number:04}x" for number in range(1000)]
REQUESTS = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


def read_value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value") or "string_value")


def read_attributes(item: Any) -> dict[str, Any]:
    return {pair.key: read_value(pair.value) for pair in item.attributes}


@dataclass
class Collector:
    """What a receiver of OTLP has got; `status` is what it answers, once `is_answering`."""

    url: str = ""
    status: int = 200
    is_answering: asyncio.Event = field(default_factory=asyncio.Event)
    has_all: asyncio.Event = field(default_factory=asyncio.Event)  # traces and metrics
    bodies: list[bytes] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    async def receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        await self.is_answering.wait()
        assert request.content_type == "application/x-protobuf"
        if self.status == 200:
            self.bodies.append(body)
            self.headers.append(request.headers)
            self.requests.append(REQUESTS[request.path].FromString(body))
            if self.spans and self.metrics:
                self.has_all.set()
        headers = {"Location": request.path} if self.status == 307 else {}
        return web.Response(status=self.status, body=b"", headers=headers, content_type="application/x-protobuf")

    @property
    def spans(self) -> list[Span]:
        requests = [item for item in self.requests if isinstance(item, ExportTraceServiceRequest)]
        groups = [group for item in requests for group in item.resource_spans]
        return [span for group in groups for scope in group.scope_spans for span in scope.spans]

    @property
    def lines(self) -> list[Any]:
        requests = [item for item in self.requests if isinstance(item, ExportLogsServiceRequest)]
        groups = [group for item in requests for group in item.resource_logs]
        return [line for group in groups for scope in group.scope_logs for line in scope.log_records]

    @property
    def metrics(self) -> dict[str, Any]:
        requests = [item for item in self.requests if isinstance(item, ExportMetricsServiceRequest)]
        groups = [group for item in requests for group in item.resource_metrics]
        return {metric.name: metric for group in groups for scope in group.scope_metrics for metric in scope.metrics}

    def find(self, name: str) -> Span:
        [span] = [span for span in self.spans if span.name == name]
        return span


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    collector = Collector()
    collector.is_answering.set()
    app = web.Application(client_max_size=2**24)
    for path in REQUESTS:
        app.router.add_post(path, collector.receive)
    async with TestServer(app) as server:
        collector.url = str(server.make_url("")).rstrip("/")
        yield collector


@asynccontextmanager
async def observed(
    collector: Collector, *plugins: Plugin, settings: Mapping[str, str] | None = None, **details: Any
) -> AsyncIterator[AgentHarness]:
    """Run an agent that exports to the collector; its last data are sent at the end."""
    layer = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "600000", **(settings or {})}
    async with running_agent(otel, *plugins, settings=layer, **details) as harness:
        yield harness


async def flush(harness: AgentHarness) -> None:
    await asyncio.to_thread(harness.agent.services[Telemetry].flush)


def check_connected(spans: list[Span], root: Span) -> None:
    """Check that every span has an ancestor in the trace, and that only the root has none."""
    ids = {span.span_id for span in spans}
    assert len(ids) == len(spans)
    assert {span.trace_id for span in spans} == {root.trace_id}
    assert [span.name for span in spans if not span.parent_span_id] == [root.name]
    assert all(span.parent_span_id in ids for span in spans if span.parent_span_id)
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)


@action("LOOK_UP", "Looks something up.")
async def look_up(turn: Turn) -> ActionResult:
    return ActionResult(text="found")


def answer_with_action(request: TextRequest) -> str:
    if request.purpose is Purpose.REPLY:
        return model_answer("Here it is.", actions=("REPLY", "LOOK_UP"))
    return model_answer("RESPOND")


async def test_a_message_is_a_connected_trace_from_its_arrival_to_the_send(collector: Collector) -> None:
    plugin = Plugin("looking", actions=[look_up])
    async with observed(collector, plugin, model=ScriptedModel(answer_with_action)) as harness:
        receipt = await harness.send("Hello")
        await flush(harness)
    assert receipt.outcome is Outcome.ANSWERED
    root = collector.find("process test")
    check_connected(collector.spans, root)
    names = {span.name for span in collector.spans}
    assert {
        "inbox",
        "gate",
        "wait",
        "provider Providers",
        "execute_tool LOOK_UP",
        "commit",
        "outbox",
        "send test",
    } <= names
    assert root.kind == Span.SPAN_KIND_CONSUMER
    assert collector.find("send test").kind == Span.SPAN_KIND_PRODUCER
    assert collector.find("send test").parent_span_id == collector.find("outbox").span_id
    attributes = read_attributes(root)
    assert attributes["greenroom.outcome"] == "answered"
    assert attributes["greenroom.receipt.id"] == str(receipt.id)
    assert attributes["gen_ai.agent.name"] == "Ada"
    assert receipt.turn_id is not None
    ids = build_ids(receipt.turn_id, receipt.turn_id)
    assert (int.from_bytes(root.trace_id), int.from_bytes(root.span_id)) == (ids.trace_id, ids.span_id)
    assert root.start_time_unix_nano == round(receipt.received_at.timestamp() * 1e6) * 1000


async def test_a_model_call_follows_the_conventions_for_generative_models(collector: Collector) -> None:
    async with observed(collector) as harness:
        await harness.send("Hello")
        await flush(harness)
        call = (await harness.agent.store.ledger.receipts(limit=1))[0].model_calls[-1]
    span = collector.find("chat scripted")
    attributes = read_attributes(span)
    assert span.kind == Span.SPAN_KIND_CLIENT
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.provider.name"] == "scripted"
    assert attributes["gen_ai.request.model"] == attributes["gen_ai.response.model"] == "scripted"
    assert attributes["gen_ai.usage.input_tokens"] == call.tokens_in
    assert attributes["gen_ai.usage.output_tokens"] == call.tokens_out
    assert not {"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"} & attributes.keys()


async def test_the_trace_of_a_message_goes_on_after_a_restart(collector: Collector, tmp_path: Path) -> None:
    settings = {"DATABASE_URL": f"sqlite:///{tmp_path / 'bot.sqlite'}"}
    not_now = [NotSent("later", retry_after=3600.0)]
    async with observed(collector, sql, settings=settings, adapter=RecordingAdapter(faults=not_now)) as harness:
        receipt = await harness.submit("Hello")
        await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        await harness.adapter.wait_until_attempted(1)
    assert not [span for span in collector.spans if span.name == "outbox"]
    before = len(collector.spans)
    async with observed(collector, sql, settings=settings) as harness:
        await harness.agent.outbox.drain(5.0)
        await harness.adapter.wait_until_sent(1)
        await harness.agent.outbox.drain(5.0)
    assert len(collector.spans) > before
    check_connected(collector.spans, collector.find("process test"))


async def test_the_trace_says_that_earlier_attempts_ended_with_their_process(collector: Collector) -> None:
    store, received_at = InMemoryStore(), datetime.now(UTC) - timedelta(minutes=1)
    [event] = await store.ledger.receive([make_message("Hello", sent_at=received_at)], received_at)
    await store.ledger.save_receipts([replace(event.receipt, attempts=2)])
    async with observed(collector, store=store) as harness:
        await harness.agent_runtime.inbox.wait_outcome(event.receipt.id)
        await harness.agent.outbox.drain(5.0)
        await harness.send("Hello again")
        await flush(harness)
        receipt = await store.ledger.receipt(event.receipt.id)
    assert receipt is not None
    assert receipt.claimed_at is not None
    assert receipt.attempts == 3
    events_by_receipt = {
        read_attributes(span)["greenroom.receipt.id"]: [
            (item.name, item.time_unix_nano, read_attributes(item)) for item in span.events
        ]
        for span in collector.spans
        if span.name == "process test"
    }
    at = round(receipt.claimed_at.timestamp() * 1e6) * 1000
    interruption = ("interrupted: the process ended", at, {"greenroom.attempts.interrupted": 2})
    assert events_by_receipt.pop(str(receipt.id)) == [interruption]
    assert list(events_by_receipt.values()) == [[]]


async def test_messages_that_are_answered_together_share_a_trace(collector: Collector) -> None:
    async with observed(collector, settings={"BURST_PAUSE": "200"}) as harness:
        first = await harness.submit("Hello")
        second = await harness.submit("and again")
        outcomes = [(await harness.agent_runtime.inbox.wait_outcome(item.id)).outcome for item in (first, second)]
        await harness.agent.outbox.drain(5.0)
        await flush(harness)
    assert outcomes == [Outcome.SUPERSEDED, Outcome.ANSWERED]
    roots = [span for span in collector.spans if span.name == "process test" and not span.parent_span_id]
    taken_over = [span for span in collector.spans if span.name == "process test" and span.parent_span_id]
    assert [span.parent_span_id for span in taken_over] == [roots[0].span_id]
    check_connected(collector.spans, roots[0])


def write_canaries(harness_words: Iterator[str], count: int) -> str:
    return " ".join(next(harness_words) for _ in range(count))


@pytest.mark.long
async def test_none_of_a_thousand_words_of_messages_names_and_prompts_is_exported(collector: Collector) -> None:
    words = iter(CANARIES)

    @provider("SAYINGS", "Texts of people.")
    async def sayings(turn: Turn) -> ProviderResult:
        raise ValueError(f"cannot read {turn.message.content.text}")

    @action("FAIL", "Fails with the words of people.")
    async def fail(turn: Turn) -> ActionResult:
        logger.warning("cannot look up %s", turn.message.content.text)
        foreign_logger.warning(f"{turn.author.name}: {turn.message.content.text}")
        return ActionResult(success=False, error=turn.message.content.text)

    def answer(request: TextRequest) -> str:
        canaries_found = " ".join(sorted(set(re.findall(r"canary\d{4}x", request.prompt + request.system))))
        if request.purpose is Purpose.SHOULD_RESPOND:
            return f"<response><reasoning>{canaries_found}</reasoning><action>RESPOND</action></response>"
        return model_answer(canaries_found, actions=("REPLY", "FAIL"), thought=canaries_found)

    bio = [write_canaries(words, 50)]
    character = Character.model_validate({"name": "Ada", "bio": bio, "system": write_canaries(words, 50)})
    faults = [Undeliverable(CANARIES[0]), DeliveryUnknown(CANARIES[1])]
    plugin = Plugin("failing", actions=[fail], providers=[sayings])
    with configure_logging(fd=-1):
        async with observed(
            collector,
            plugin,
            model=ScriptedModel(answer),
            character=character,
            adapter=RecordingAdapter(faults=faults, can_edit=True),
        ) as harness:
            for number in range(9):
                author, room, text = write_canaries(words, 10), write_canaries(words, 10), write_canaries(words, 80)
                kind = ChannelType.GROUP if number % 2 else ChannelType.DM
                receipt = await harness.submit(text, author=author, room=room, kind=kind)
                await harness.agent_runtime.inbox.wait_outcome(receipt.id)
            await flush(harness)
    assert next(words, None) is None
    assert len([span for span in collector.spans if span.name == "process test"]) == 9
    assert {"greenroom.messages", "gen_ai.client.token.usage"} <= collector.metrics.keys()
    assert "cannot look up %s" in {line.body.string_value for line in collector.lines}
    everything = b"\n".join(collector.bodies)
    assert [word for word in CANARIES if word.encode() in everything] == []


async def test_content_is_exported_where_it_is_switched_on(collector: Collector) -> None:
    settings = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    with configure_logging(fd=-1):
        async with observed(
            collector, settings=settings, model=ScriptedModel(model_answer("Fine, Quillon"))
        ) as harness:
            await harness.send("How is the platypus?")
            await flush(harness)
    call = read_attributes(collector.find("chat scripted"))
    assert "platypus" in call["gen_ai.input.messages"]
    [answer] = json.loads(call["gen_ai.output.messages"])
    assert (answer["role"], answer["finish_reason"]) == ("assistant", "stop")
    assert "Fine, Quillon" in answer["parts"][0]["content"]
    assert read_attributes(collector.find("send test"))["greenroom.delivery.text"] == "Fine, Quillon"
    assert any("answered" in line.body.string_value for line in collector.lines)


async def test_the_exported_answer_of_a_model_names_the_functions_that_it_calls(collector: Collector) -> None:
    settings = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    answer = TextResult("", tool_calls=(ToolCall("IGNORE", {"reason": "the platypus"}),))
    model = ScriptedModel(lambda _: answer, can_call_tools=True)
    async with observed(collector, settings=settings, model=model) as harness:
        await harness.send("Hello")
        await flush(harness)
    [message] = json.loads(read_attributes(collector.find("chat scripted"))["gen_ai.output.messages"])
    part = {"type": "tool_call", "name": "IGNORE", "arguments": {"reason": "the platypus"}}
    assert message == {"role": "assistant", "parts": [part], "finish_reason": "tool_call"}


async def test_a_line_of_the_log_names_the_trace_of_its_message(collector: Collector) -> None:
    with configure_logging(fd=-1):
        async with observed(collector) as harness:
            await harness.send("Hello")
            await flush(harness)
    root = collector.find("process test")
    [line] = [item for item in collector.lines if item.body.string_value.startswith("message %s: ")]
    assert (line.trace_id, line.span_id) == (root.trace_id, root.span_id)
    assert line.severity_text == "INFO"


async def test_a_text_that_is_no_unicode_is_exported_all_the_same(collector: Collector) -> None:
    async with observed(collector, settings={"OTEL_METRICS_EXPORTER": "none"}) as harness:
        harness.agent.events.emit(ModelUsed(harness.agent.id, ModelCall("TEXT_LARGE", "reply", "half a \ud800")))
    assert read_attributes(collector.find("chat half a ?"))["gen_ai.request.model"] == "half a ?"


async def test_two_agents_of_a_process_export_a_line_once() -> None:
    received: list[str] = []
    with configure_logging(fd=-1):
        buffer = find_log_buffer()
        assert buffer is not None
        end_first = buffer.subscribe(lambda line: received.append("first"), name="otel")
        buffer.subscribe(lambda line: received.append("second"), name="otel")
        logger.warning("a line")
        end_first()
        logger.warning("another line")
    assert received == ["first", "second"]


async def test_metrics_count_messages_tokens_and_durations(collector: Collector) -> None:
    async with observed(collector) as harness:
        await harness.send("Hello")
        await flush(harness)
    metrics = collector.metrics
    [point] = metrics["greenroom.messages"].sum.data_points
    assert read_attributes(point)["greenroom.outcome"] == "answered"
    assert point.as_int == 1
    assert metrics["gen_ai.client.operation.duration"].histogram.data_points[0].count == 1
    kinds = {
        read_attributes(item)["gen_ai.token.type"]
        for item in metrics["gen_ai.client.token.usage"].histogram.data_points
    }
    assert kinds == {"input", "output"}


async def test_headers_names_and_attributes_are_those_of_the_settings(collector: Collector) -> None:
    settings = {
        "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20abc,X-Tenant=two",
        "OTEL_SERVICE_NAME": "ada-at-home",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        "OTEL_METRICS_EXPORTER": "none",
    }
    async with observed(collector, settings=settings) as harness:
        await harness.send("Hello")
        await flush(harness)
    assert collector.headers[0]["Authorization"] == "Bearer abc"
    assert collector.headers[0]["X-Tenant"] == "two"
    [request, *_] = collector.requests
    resource = read_attributes(request.resource_spans[0].resource)
    assert resource["service.name"] == "ada-at-home"
    assert resource["deployment.environment.name"] == "test"
    assert not collector.metrics


@pytest.mark.long
async def test_a_share_of_traces_is_exported_whole_or_not_at_all(collector: Collector) -> None:
    async with observed(collector, settings={"OTEL_TRACES_SAMPLER_ARG": "0.5"}) as harness:
        receipts = [await harness.send("Hello", room=f"room {number}") for number in range(12)]
        await flush(harness)
    by_trace: dict[bytes, list[Span]] = {}
    for span in collector.spans:
        by_trace.setdefault(span.trace_id, []).append(span)
    assert 0 < len(by_trace) < len(receipts)
    for spans in by_trace.values():
        check_connected(spans, next(span for span in spans if span.name == "process test"))


@pytest.mark.parametrize("status", [307, 400])
async def test_a_refusal_of_a_signal_is_logged_once_and_delays_no_message(
    collector: Collector, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    collector.status = status
    async with observed(collector, settings={"OTEL_METRICS_EXPORTER": "none"}) as harness:
        for _ in range(3):
            receipt = await harness.send("Hello")
            assert receipt.outcome is Outcome.ANSWERED
            await flush(harness)
        collector.status = 200
        await harness.send("Hello")
        await flush(harness)
    texts = [record.getMessage() for record in caplog.records if "collector" in record.getMessage()]
    assert [("does not take traces" in text, "again" in text) for text in texts] == [(True, False), (False, True)]
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


async def test_a_collector_that_does_not_answer_delays_the_stop_by_two_seconds_at_most(
    collector: Collector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugins.otel.service.STOP_SECONDS", 0.01)
    collector.is_answering.clear()
    async with observed(collector) as harness:
        await harness.send("Hello")
    assert "did not take the last data within 0.01 s" in caplog.text
    collector.is_answering.set()
    for thread in [item for item in threading.enumerate() if item.name == "greenroom-telemetry"]:
        await asyncio.to_thread(thread.join)


@pytest.mark.long
async def test_traces_and_metrics_are_sent_after_the_delays_of_the_settings(collector: Collector) -> None:
    delays = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
    async with observed(collector, settings=delays) as harness:
        await harness.send("Hello")
        await collector.has_all.wait()


async def test_a_netrc_file_replaces_none_of_the_headers(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login ada password hunter2\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    async with observed(collector, settings={"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20abc"}) as harness:
        await harness.send("Hello")
    assert {headers["Authorization"] for headers in collector.headers} == {"Bearer abc"}


@pytest.mark.parametrize(("certificate", "seconds", "is_taken"), [(GOOD, "10", True), (EXPIRED, "0.5", False)])
async def test_a_collector_is_reached_through_the_proxy_and_with_the_certificates_of_the_environment(
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    certificate: str,
    seconds: str,
    is_taken: bool,
) -> None:
    async with behind_tls(int(collector.url.rpartition(":")[2]), tmp_path, certificate) as way:
        monkeypatch.setenv("HTTPS_PROXY", way.proxy)
        monkeypatch.setenv("SSL_CERT_FILE", trusted(tmp_path, certificate))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", seconds)  # too little for another attempt
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"https://{HOST}", "OTEL_METRICS_EXPORTER": "none"}
        async with observed(collector, settings=settings) as harness:
            await harness.send("Hello")
            await flush(harness)
    assert set(way.asked) == {f"{HOST}:443"}
    assert bool(collector.spans) is is_taken


async def test_a_failed_message_has_the_status_error(collector: Collector) -> None:
    def fail(request: TextRequest) -> str:
        raise ValueError("broken")

    async with observed(collector, model=ScriptedModel(fail)) as harness:
        receipt = await harness.send("Hello")
        await flush(harness)
    assert receipt.outcome is Outcome.FAILED
    assert collector.find("process test").status.code == Status.STATUS_CODE_ERROR


async def test_the_model_call_of_a_confirmed_action_is_a_trace_of_its_own(collector: Collector) -> None:
    @action("SEND_GIFT", "Send a gift.", authority=Authority.confirmed())
    async def send_gift(turn: Turn) -> None:
        """Send it."""

    def write(request: TextRequest) -> str:
        is_closing = request.purpose is Purpose.SUMMARY
        return model_answer("It is sent.") if is_closing else model_answer("", actions=["SEND_GIFT"])

    gifts = Plugin("gifts", "Sends gifts.", actions=[send_gift])
    async with observed(collector, gifts, model=ScriptedModel(write)) as harness:
        await harness.send("Send Sarah a gift")
        await harness.send("yes")
        await run_due(harness)
        await flush(harness)
    calls = [read_attributes(span) for span in collector.spans if span.kind == Span.SPAN_KIND_CLIENT]
    assert [call["greenroom.model.purpose"] for call in calls].count(Purpose.SUMMARY) == 1


async def test_without_an_endpoint_nothing_listens() -> None:
    loaded = load_plugins(Character(name="Ada"), Settings([Layer("test", {})]), folder=ROOT)
    assert "otel" not in {plugin.name for plugin in loaded.plugins}
    async with running_agent() as harness:
        names = [item.name for items in harness.agent.events._subscriptions.values() for item in items]
        assert not [name for name in names if Traces.__name__ in name]


def test_an_endpoint_loads_the_plugin_for_every_character() -> None:
    settings = Settings([Layer("test", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, is_operator=True)])
    assert "otel" in {plugin.name for plugin in load_plugins(Character(name="Ada"), settings, folder=ROOT).plugins}
    assert find_plugin("otel") is not None


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "is not set"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, ""),
    ],
)
def test_what_is_missing_is_reported(values: dict[str, str], reason: str) -> None:
    missing = missing_settings(Settings([Layer("test", values)]))
    assert reason in missing
    assert bool(missing) == bool(reason)


def test_without_the_sdk_the_bot_starts_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugins.otel.config.LIBRARIES", ("no_such_package.sdk",))
    missing = missing_settings(Settings([Layer("test", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})]))
    assert "[otel]" in missing


def test_people_are_shown_where_their_words_go() -> None:
    values = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://otel.example.org"}
    assert privacy_statement(Settings([Layer("test", values)])) == ""
    values["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "true"
    assert "otel.example.org" in privacy_statement(Settings([Layer("test", values)]))


def test_headers_that_are_no_pairs_are_refused() -> None:
    assert read_pairs(["a=b%20c", " d = e "]) == {"a": "b c", "d": "e"}
    with pytest.raises(ValueError, match="name=value"):
        read_pairs(["token"])
    assert not OtelSettings.CHARACTER_SETTINGS


@pytest.mark.long
def test_every_line_of_the_log_has_a_constant_template() -> None:
    wrong = []
    methods = {"debug", "info", "warning", "error", "exception", "critical"}
    for path in (path for package in ("bot", "adapters", "plugins") for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            is_logging = isinstance(node.func.value, ast.Name) and node.func.value.id == "logger"
            if is_logging and node.func.attr in methods and not isinstance(node.args[0], ast.Constant):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong, f"the template of a line is exported, so it may hold no values: {wrong}"
