"""GENERATE_IMAGE from the request to the picture on the platform, with the real provider client."""

import base64
import json
from pathlib import Path

import pytest

from bot import MediaKind, MemoryKind, derived_id
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import RecordingAdapter, running_agent
from plugins.openai import plugin
from tests.plugins.loopback import Answer, Asked, loopback
from tests.plugins.openai.wire import KEY, completion

PNG = b"\x89PNG\r\n\x1a\nnot much of a picture"
SUBJECT = {"subject": "a steam engine"}
CALL = {"id": "call-1", "type": "function", "function": {"name": "GENERATE_IMAGE", "arguments": json.dumps(SUBJECT)}}
TAGS = (
    "<response><actions>REPLY,GENERATE_IMAGE</actions><parameters><GENERATE_IMAGE>"
    f"{json.dumps(SUBJECT)}</GENERATE_IMAGE></parameters><text>Here it comes.</text></response>"
)


@pytest.mark.parametrize("by_function", [True, False], ids=["function", "tags"])
async def test_a_requested_picture_is_generated_stored_and_sent(by_function: bool, tmp_path: Path) -> None:
    def answering(asked: Asked) -> Answer:
        if asked.path == "/v1/images/generations":
            return Answer({"created": 1, "data": [{"b64_json": base64.b64encode(PNG).decode()}]})
        if asked.json["model"] == "small":
            return Answer(completion("An old engine in the fog, in ink."))
        if by_function:
            return Answer(completion("Here it comes.", "tool_calls", tool_calls=[CALL]))
        return Answer(completion(TAGS))

    settings = {"OPENAI_LARGE_MODEL": "large", "OPENAI_SMALL_MODEL": "small", "OPENAI_IMAGE_MODEL": "painter"}
    agent_id = derived_id("agent", "Ada")
    async with loopback() as api, OpenFiles().open_store(tmp_path / "greenroom.db", agent_id) as store:
        api.answers = answering
        settings |= {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{api.url}/v1"}
        settings |= {"OPENAI_TOOLS": str(by_function)}
        adapter = RecordingAdapter()
        async with running_agent(plugin, settings=settings, store=store, adapter=adapter) as harness:
            receipt = await harness.send("Ada, draw me a steam engine")
        offered = [tool["function"]["name"] for request in api.asked for tool in (request.json or {}).get("tools", ())]
        assert ("GENERATE_IMAGE" in offered) is by_function
        [drawn] = [request for request in api.asked if request.path == "/v1/images/generations"]
        assert drawn.json["prompt"] == "An old engine in the fog, in ink."
        [picture] = adapter.sent  # it is the answer: the text that promised it is not sent
        [shown] = picture.content.attachments
        assert (shown.kind, shown.data, shown.content_type) == (MediaKind.IMAGE, PNG, "image/png")
        assert receipt.turn_id is not None
        made = await store.memories.by_turn(receipt.turn_id)
        [kept] = [memory for memory in made if memory.kind is MemoryKind.MESSAGE and memory.content.attachments]
        assert (kept.content.attachments[0].data, kept.content.attachments[0].description) == (PNG, "a steam engine")
