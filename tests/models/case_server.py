"""A loopback model server that plays the case files of tests/data/model_cases, and a room that hears the answer.

A case is a JSON object with a list of answers for each kind of call: `reply`, `decide`, `reflection`, `describe`,
`step`, `emb`, `models`, and `any` for the native endpoints of Anthropic and Gemini. A list is served in order, its last
entry from then on. An entry has `text` (streamed in pieces of `piece` characters) or `message`, `deltas`, `sse` (raw
bytes), or `status`, `headers`, `body` and `type`.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from bot import ActionResult, Character, Plugin, Turn, action
from bot.models import ModelUnavailable, TextRequest
from bot.prompts import Authority
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, running_agent
from plugins.anthropic import plugin as anthropic
from plugins.google import plugin as google
from plugins.openai import plugin as openai

KINDS = {
    "decide": ("Decide whether", "RESPOND, IGNORE or STOP"),
    "reflection": ("Note what is worth remembering",),
    "describe": ("somebody who cannot see it",),
    "step": ("works on a request step by step",),
}
DEFAULTS = {
    "decide": "<response><action>RESPOND</action></response>",
    "reflection": "<response></response>",
    "describe": "<response><title>a quay</title><description>A quay.</description></response>",
}


@dataclass(slots=True)
class Played:
    """What a case has led to: the texts in the room, the action calls, the requests and the notes of the receipts."""

    texts: list[str] = field(default_factory=list)
    drafts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)


class CaseServer:
    """Serves one case; `requests` are the bodies of what it was asked, `kinds` their kinds."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self._case = case
        self._served = Counter[str]()
        self.requests: list[dict[str, Any]] = []
        self.kinds: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request with the next entry of its kind."""
        body = json.loads(await request.read() or b"{}") if request.method == "POST" else {}
        kind = self._kind_of(request.path, body)
        self.requests.append(body)
        self.kinds.append(kind)
        entry = self._next(kind)
        await asyncio.sleep(entry.get("delay", 0))
        if "sse" in entry:
            pieces = [entry["sse"]] if isinstance(entry["sse"], str) else entry["sse"]
            return await _stream(request, pieces, entry.get("gap", 0))
        if "body" in entry or "status" in entry:
            text = entry.get("body", "")
            text = text if isinstance(text, str) else json.dumps(text)
            return web.Response(
                text="[NaN]" if text == "NAN" else text,
                status=entry.get("status", 200),
                headers=entry.get("headers"),
                content_type=entry.get("type", "application/json"),
            )
        return await _complete(request, body, entry)

    def _kind_of(self, path: str, body: Mapping[str, Any]) -> str:
        if path.endswith("/models"):
            return "models"
        if path.endswith("/embeddings"):
            return "emb"
        if "any" in self._case:
            return "any"
        prompt = json.dumps(body.get("messages", ""), ensure_ascii=False)
        return next((kind for kind, phrases in KINDS.items() if all(phrase in prompt for phrase in phrases)), "reply")

    def _next(self, kind: str) -> dict[str, Any]:
        entries = self._case.get(kind)
        if kind == "models" and entries is not None:
            return {"body": entries}
        if entries is None:
            return {"body": {"data": []}} if kind in ("models", "emb") else {"text": DEFAULTS.get(kind, "")}
        entries = entries if isinstance(entries, list) else [entries]
        entry: dict[str, Any] = entries[min(self._served[kind], len(entries) - 1)]
        self._served[kind] += 1
        return entry


async def _stream(request: web.Request, pieces: list[str], gap: float) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece.encode())
        await asyncio.sleep(gap)
    await response.write_eof()
    return response


async def _complete(request: web.Request, body: Mapping[str, Any], entry: Mapping[str, Any]) -> web.StreamResponse:
    message = entry.get("message") or {"role": "assistant", "content": entry.get("text", "")}
    usage = entry.get("usage", {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110})
    finish_reason = entry.get("finish_reason", "stop")
    base = {"id": "c", "created": 1, "model": "m"}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish_reason}
        whole = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
        return web.json_response(whole)
    deltas = entry.get("deltas")
    if deltas is None:
        content = message.get("content")
        size = entry.get("piece", 7)
        if isinstance(content, str):
            rest = {key: value for key, value in message.items() if key != "content"}
            pieces = [content[start : start + size] for start in range(0, len(content), size)]
            deltas = [*([rest] if rest else []), *({"content": piece} for piece in pieces)]
        else:
            deltas = [message]
        for delta in deltas:
            if delta.get("tool_calls"):
                delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(delta["tool_calls"])]
    chunk = {**base, "object": "chat.completion.chunk"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish_reason})
    events = [{**chunk, "choices": [choice]} for choice in choices] + [{**chunk, "choices": [], "usage": usage}]
    return await _stream(request, [*(f"data: {json.dumps(event)}\n\n" for event in events), "data: [DONE]\n\n"], 0)


@asynccontextmanager
async def served(case: Mapping[str, Any]) -> AsyncIterator[tuple[CaseServer, str]]:
    """Serve a case on loopback; yield the server and its URL."""
    server = CaseServer(case)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with TestServer(app) as listening:
        yield server, str(listening.make_url("")).rstrip("/")


def tide_plugin(calls: list[dict[str, Any]]) -> Plugin:
    """Return a plugin with the actions that cases call; `calls` collects the arguments."""
    harmless = Authority.harmless("it only looks something up")

    @action("TELL_TIDE", "Tell when the tide is high in a port.", authority=harmless)
    async def tell_tide(turn: Turn, port: Annotated[str, "the port"]) -> ActionResult:
        calls.append({"name": "TELL_TIDE", "port": port})
        return ActionResult(text=f"high tide in {port}: 7:10")

    @action("CALL_TAXI", "Call a taxi.", authority=harmless)
    async def call_taxi(
        turn: Turn, place: Annotated[str, "where"], seats: Annotated[int, "for how many"] = 1
    ) -> ActionResult:
        calls.append({"name": "CALL_TAXI", "place": place, "seats": seats})
        return ActionResult(text=f"a taxi for {seats} comes to {place}")

    return Plugin("tide", "Tides and taxis.", actions=[tell_tide, call_taxi])


@asynccontextmanager
async def room_on(
    url: str, calls: list[dict[str, Any]], *, native: str = "", is_streamed: bool = False, **settings: str
) -> AsyncIterator[AgentHarness]:
    """Run Marlo on the model server at `url`; `native` is the plugin of a native API."""

    def never(request: TextRequest) -> str:
        raise ModelUnavailable("the second model was called")

    given = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_LARGE_MODEL": "x/y",
        "OPENAI_SMALL_MODEL": "x/y",
        "OPENAI_EMBEDDING_MODEL": "e",
    }
    model_plugin = openai
    if native == "anthropic":
        given = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": url}
        model_plugin = anthropic
    elif native == "google":
        given = {"GOOGLE_GENERATIVE_AI_API_KEY": "k", "GOOGLE_GENERATIVE_AI_BASE_URL": url}
        model_plugin = google
    adapter = RecordingAdapter(can_edit=True, stream_interval=0.01 if is_streamed else None)
    async with running_agent(
        model_plugin,
        tide_plugin(calls),
        model=ScriptedModel(never),
        character=Character(name="Marlo"),
        settings={**given, **settings},
        adapter=adapter,
    ) as harness:
        yield harness


async def play(case: Mapping[str, Any], *, native: str = "", is_streamed: bool = False, **settings: str) -> Played:
    """Ask Marlo when the ferry leaves, on a server that plays the case; return what the room got."""
    played = Played()
    async with served(case) as (server, url):
        async with room_on(url, played.calls, native=native, is_streamed=is_streamed, **settings) as harness:
            receipt = await harness.send("When does the ferry leave?", author="User")
            played.outcomes += [f"{receipt.outcome} {receipt.rule}: {receipt.reason}", *receipt.notes]
            adapter = harness.adapter
            final = {f"sent-{number}": delivery for number, delivery in enumerate(adapter.sent, start=1)}
            final.update({delivery.replaces_external_id: delivery for delivery in adapter.edited})
            played.texts = [delivery.content.text for delivery in final.values()]
            played.drafts = [delivery.content.text for delivery in (*adapter.sent, *adapter.edited)]
        played.requests, played.kinds = server.requests, server.kinds
    return played
