import asyncio
import json
from typing import Any

from adapters.web.config import Limits

SAY = "/api/agents/ada/messages"


async def read_events(answer: Any) -> list[tuple[str, Any]]:
    """Read a stream to its end."""
    async with asyncio.timeout(30):
        return parse_events(await answer.text())


def parse_events(text: str) -> list[tuple[str, Any]]:
    events = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            events.append((lines["event"], json.loads(lines["data"])))
    return events


async def open_stream(web_server: Any, **body: Any) -> Any:
    return await web_server.request("POST", SAY, headers=web_server.bearer, json={**body, "stream": True})


async def test_a_stream_sends_the_reply_and_ends_with_the_outcome(web_server: Any) -> None:
    answer = await open_stream(web_server, text="Hello", idempotency_key="k1")
    assert answer.content_type == "text/event-stream"
    found = await read_events(answer)
    kinds = [kind for kind, _ in found if kind != "typing"]
    assert kinds == ["reply", "outcome"]
    assert found[0] == ("typing", {"active": True})
    plain = await web_server.send("Hello", idempotency_key="k1")
    assert found[-1] == ("outcome", plain)
    assert [data for kind, data in found if kind == "reply"] == plain["replies"]


async def test_a_stream_of_a_known_message_repeats_its_reply(web_server: Any) -> None:
    plain = await web_server.send("Hello", idempotency_key="k1")
    found = await read_events(await open_stream(web_server, text="Hello", idempotency_key="k1"))
    assert found == [("reply", plain["replies"][0]), ("outcome", plain)]


async def test_a_stream_contains_no_other_messages(web_server: Any) -> None:
    first = asyncio.create_task(open_stream(web_server, text="hold on", room="den"))
    await web_server.script.requested.acquire()
    older = await first
    newer = await read_events(await open_stream(web_server, text="and now", room="den"))
    found = [event for event in await read_events(older) if event[0] != "typing"]
    assert [kind for kind, _ in found] == ["outcome"]
    assert found[0][1]["outcome"] == "superseded"
    assert [kind for kind, _ in newer if kind != "typing"] == ["reply", "outcome"]


async def test_a_wrong_request_is_refused_before_the_stream_begins(web_server: Any) -> None:
    answer = await open_stream(web_server, text="Hello", room="")
    assert (answer.status, answer.content_type) == (422, "application/json")


async def test_a_silent_stream_sends_keep_alive_comments(open_server: Any) -> None:
    async with open_server(limits=Limits(keep_alive_seconds=0.02)) as web_server:
        answer = await open_stream(web_server, text="hold on")
        seen = b""
        while b": still here" not in seen:
            seen += await answer.content.readany()
        web_server.script.released.set()
        assert "event: outcome" in await answer.text()


async def test_a_stream_ends_with_an_error_if_the_bot_stops(web_server: Any) -> None:
    answer = await open_stream(web_server, text="hold on")
    await web_server.script.requested.acquire()
    await web_server.runtime.agents[0].inbox.drain(0.0)
    kind, data = (await read_events(answer))[-1]
    assert (kind, data["error"]["code"]) == ("error", "stopping")
    assert data["error"]["request_id"] == answer.headers["X-Request-Id"]


async def test_a_stream_sends_a_reply_in_pieces(web_server: Any) -> None:
    answer = await open_stream(web_server, text="a story")
    first = b""
    async with asyncio.timeout(30):
        while b"event: piece" not in first:
            first += await answer.content.readuntil(b"\n\n")
    web_server.script.released.set()
    found = [entry for entry in parse_events(first.decode()) + await read_events(answer) if entry[0] != "typing"]
    pieces = [data for kind, data in found if kind == "piece"]
    [reply] = [data for kind, data in found if kind == "reply"]
    assert (pieces[0]["text"], pieces[0]["anew"]) == ("Once upon", True)
    assert {piece["id"] for piece in pieces} == {reply["id"]}
    assert reply["text"].startswith("".join(piece["text"] for piece in pieces))
    assert reply["text"] == "Once upon a time."
    assert found[-1][0] == "outcome"


async def test_no_pieces_are_sent_if_streaming_is_disabled(open_server: Any) -> None:
    async with open_server(settings={"STREAMING": "false"}) as web_server:
        web_server.script.released.set()
        found = await read_events(await open_stream(web_server, text="a story"))
        assert [kind for kind, _ in found if kind != "typing"] == ["reply", "outcome"]
