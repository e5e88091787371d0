"""Filters over HTTP, the live connection and the metrics."""

import asyncio

import pytest

from bot import Agent, ModelType, Plugin, model
from bot.models import TextRequest, TextResult
from bot.testing import model_answer
from tests.adapters.web.conftest import run_server
from tests.adapters.web.test_metrics import find_sample, scrape

WORDS = {"FILTER_WORDS": "xyzzy"}


async def test_a_stopped_message_has_no_reply_and_its_receipt_says_why() -> None:
    async with run_server(settings=WORDS) as server:
        sent = await server.send("say xyzzy")
        assert sent["replies"] == []
        receipt = await server.get(f"/api/receipts/{sent['receipt_id']}")
        assert (receipt["outcome"], receipt["rule"]) == ("ignored", "filter")
        assert receipt["reason"] == "filter WORDS stopped the text: it has a word of FILTER_WORDS"
        assert receipt["deliveries"] == []


async def test_what_filters_do_is_counted_by_filter() -> None:
    async with run_server(settings={**WORDS, "FILTER_WORDS_ACTION": "replace"}) as server:
        sent = await server.send("say xyzzy")
        assert sent["replies"][0]["text"] == "You said: say ***"
        labels = {"agent": "Ada", "filter": "WORDS", "outcome": "replaced"}
        assert find_sample(await scrape(server), "texts_filtered_total", direction="in", **labels) == 1


@pytest.mark.long
@pytest.mark.parametrize(("settings", "is_streamed"), [({}, True), (WORDS, False)])
async def test_a_reply_that_is_checked_is_not_shown_while_it_is_written(
    settings: dict[str, str], *, is_streamed: bool
) -> None:
    released = asyncio.Event()

    @model(ModelType.TEXT_LARGE, priority=10)
    async def write(agent: Agent, request: TextRequest) -> TextResult:
        assert request.sink is not None
        await request.sink.write("<response><actions>REPLY</actions><text>Once upon")
        await released.wait()
        return TextResult(model_answer("Once upon a time."), "scripted")

    async with run_server(Plugin("writer", "Writes.", models=[write]), settings=settings) as server:
        client = await server.open_socket()
        if is_streamed:
            await client.send(type="message", text="tell me", client_id="c1")
            assert (await client.wait_for("draft"))["text"] == "Once upon"
            return
        released.set()
        frames = await client.send_message("tell me", "c1")
        assert [frame["text"] for frame in frames if frame["type"] == "message"] == ["Once upon a time."]
        assert "draft" not in {frame["type"] for frame in frames}
