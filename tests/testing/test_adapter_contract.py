"""The contract of adapters: the example obeys it, and each rule finds the adapter that breaks it."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot import Content
from bot.cli.commands.plugin import render_adapter
from bot.platform import Adapter, AgentHandle, ConnectionState, Delivery, DeliveryUnknown, DisconnectCause, NotSent
from bot.plugin_system.loading import load_local_adapter
from bot.testing import AgentHarness, check_adapter_contract, running_agent
from bot.testing.adapter_contract import RULES

EXAMPLES = Path(__file__).parents[2] / "examples"
SPEC = load_local_adapter("./line_chat", EXAMPLES)
LineChat: Any = sys.modules[SPEC.settings.__module__].LineChatAdapter


async def problems_of(rule: str, adapter: type[Adapter]) -> Sequence[str]:
    """Return what is wrong with the example where it is replaced by this adapter."""

    def open_adapter(handles: Sequence[AgentHandle]) -> Adapter:
        return adapter(handles[0])  # type: ignore[call-arg]  # as the example's

    return list(await RULES[rule](replace(SPEC, open=open_adapter)))


@pytest.mark.long
async def test_the_example_obeys_the_contract_in_less_than_140_lines() -> None:
    results = await check_adapter_contract(SPEC)
    assert len(results) == len(RULES)
    assert not [result for result in results if result.problems or result.skipped]
    assert len((EXAMPLES / "line_chat" / "__init__.py").read_text(encoding="utf-8").splitlines()) < 140


def test_the_example_is_what_a_new_adapter_looks_like() -> None:
    texts = {path.name: text for path, text in render_adapter("line_chat").items()}
    for name in ("__init__.py", "emulator.py"):
        assert (EXAMPLES / "line_chat" / name).read_text(encoding="utf-8") == texts[name]


async def test_messages_in_another_order_are_a_problem() -> None:
    class Swapping(LineChat):  # type: ignore[misc]
        waiting: dict[str, Any] | None = None

        async def _read(self, line: dict[str, Any]) -> None:
            if line.get("event") == "event-1" and self.waiting is None:
                self.waiting = line
                return
            await super()._read(line)
            if line.get("event") == "event-2" and self.waiting:
                await super()._read(self.waiting)

    [problem] = await problems_of("messages are stored in their order", Swapping)
    assert "were stored as ['Message 2', 'Message 1'" in problem


async def test_new_ids_for_an_event_that_is_delivered_again_are_a_problem() -> None:
    class Renaming(LineChat):  # type: ignore[misc]
        count = 0

        async def _read(self, line: dict[str, Any]) -> None:
            if line["type"] == "message":
                self.count += 1
                event, line = line["event"], {**line, "id": str(self.count), "event": f"new-{self.count}"}
                await super()._read(line)
                self._send(type="got", event=event)
                return
            await super()._read(line)

    problems = await problems_of("an event that is delivered twice is answered once", Renaming)
    assert "was stored 2 times" in problems[0]
    assert "got 2 answers" in problems[1]


async def test_an_acknowledgement_before_the_message_is_stored_is_a_problem() -> None:
    class Hasty(LineChat):  # type: ignore[misc]
        async def _read(self, line: dict[str, Any]) -> None:
            if line["type"] == "message":
                self._send(type="got", event=line["event"])
            await super()._read(line)

    problems = await problems_of("a message is acknowledged once it is stored", Hasty)
    assert problems[0] == "it was acknowledged before it was stored"


@pytest.mark.long
async def test_a_text_that_is_cut_is_a_problem() -> None:
    class Cutting(LineChat):  # type: ignore[misc]
        def split_content(self, content: Content) -> list[Content]:
            return [replace(content, text=content.text[:400])]

    [problem] = await problems_of("a long answer arrives completely and in order", Cutting)
    assert "parts that do not make it up" in problem


@pytest.mark.parametrize("method", ["deliver", "reconcile"])
async def test_an_ambiguous_send_that_is_reported_as_not_sent_is_a_problem(method: str) -> None:
    class Careless(LineChat):  # type: ignore[misc]
        async def deliver(self, delivery: Delivery) -> str:
            try:
                return str(await super().deliver(delivery))
            except DeliveryUnknown:
                if method == "deliver":
                    raise NotSent("perhaps") from None
                raise

        async def reconcile(self, delivery: Delivery) -> str:
            raise NotSent("never looked")

    [problem] = await problems_of("a part that arrived without an answer is not shown twice", Careless)
    assert problem == "it was shown 2 times"


async def test_an_edit_that_is_taken_for_a_new_message_is_a_problem() -> None:
    class Forgetful(LineChat):  # type: ignore[misc]
        async def _read(self, line: dict[str, Any]) -> None:
            if line.get("revision"):
                line = {**line, "id": "another", "revision": 0}
            await super()._read(line)

    [problem] = await problems_of("an edited message replaces the first one", Forgetful)
    assert "is stored as ['Helo', 'Hello']" in problem


async def test_an_edit_that_sends_a_second_message_is_a_problem() -> None:
    class Repeating(LineChat):  # type: ignore[misc]
        async def edit(self, delivery: Delivery) -> str:
            return str(await self._ask(delivery, type="say", room=delivery.target, files={}))

    problems = await problems_of("the bot's own messages can be edited and deleted", Repeating)
    assert "edited to 'Second.' twice, there is ['First.', 'Second.']" in problems[0]


async def test_a_file_that_does_not_arrive_is_a_problem() -> None:
    class Losing(LineChat):  # type: ignore[misc]
        def split_content(self, content: Content) -> list[Content]:
            return [Content(text=content.text)]

        async def _read(self, line: dict[str, Any]) -> None:
            await super()._read({**line, "files": {}} if "files" in line else line)

    problems = await problems_of("files arrive in both directions", Losing)
    assert [problem for problem in problems if "a received file was stored as []" in problem]
    assert [problem for problem in problems if "a file was sent as []" in problem]


async def test_what_a_platform_does_not_have_is_not_tested() -> None:
    class Plain(LineChat):  # type: ignore[misc]
        can_edit = False

    with pytest.raises(NotImplementedError):
        await problems_of("the bot's own messages can be edited and deleted", Plain)


async def test_an_adapter_that_cannot_connect_is_a_problem_of_each_rule() -> None:
    class Silent(LineChat):  # type: ignore[misc]
        async def __aenter__(self) -> "Silent":
            raise OSError("no cable")

    spec = replace(SPEC, open=lambda handles: Silent(handles[0]))
    results = await check_adapter_contract(spec)
    assert {problem for result in results for problem in result.problems} == {"OSError: no cable"}


class LineServer:
    """A server that only sends lines; `received` has what the adapter has sent."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.connections: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.put_nowait(writer)
        while line := await reader.readline():
            self.received.put_nowait(json.loads(line))
        writer.close()


@asynccontextmanager
async def connected(
    server: LineServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[AgentHarness, asyncio.StreamWriter, Any]]:
    """Run the example against a server; yield the first connection's writer and the adapter too."""
    monkeypatch.setattr(sys.modules[LineChat.__module__], "RETRY_SECONDS", 0.0)
    listening = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    settings = {"LINE_CHAT_PORT": str(listening.sockets[0].getsockname()[1])}
    async with (
        asyncio.timeout(20),
        listening,
        running_agent(settings=settings) as harness,
        SPEC.open([harness.agent_runtime.handle]) as adapter,
    ):
        yield harness, await server.connections.get(), adapter


MESSAGE = {"type": "message", "id": "1", "event": "e1", "room": "q", "user": "kim", "text": "hi", "revision": 0}


async def test_a_line_that_the_example_cannot_read_is_recorded_and_the_next_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = LineServer()
    async with connected(server, monkeypatch) as (harness, writer, adapter):
        for line in (MESSAGE, ["no", "object"], {"type": "done"}, {**MESSAGE, "event": "e2", "files": {}}):
            writer.write(json.dumps(line).encode() + b"\n")
        assert await server.received.get() == {"type": "got", "event": "e2"}
        causes = [event.cause for event in await harness.agent.store.ledger.unreadable_events()]
        assert sorted(causes)[:2] == ["KeyError: 'files'", "KeyError: 'id'"]
        assert len(causes) == 3
        assert [status.snapshot.state for status in adapter.connections] == [ConnectionState.CONNECTED]


@pytest.mark.parametrize("data", [b"no JSON\n", b"x" * 100_000 + b"\n", b"\xff\n"])
async def test_the_example_reports_a_connection_that_it_cannot_use_and_connects_again(
    monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    server = LineServer()
    async with connected(server, monkeypatch) as (_, writer, adapter):
        writer.write(data)
        await server.connections.get()
        [status] = adapter.connections
        assert DisconnectCause.PLATFORM in [snapshot.cause for snapshot in status.history() if snapshot]
