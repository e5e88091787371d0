"""Tests of text to video; run them with: bot plugin test ./text_to_video --trust"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer
from text_to_video import MODEL, plugin, text_to_video

from bot.testing import AgentHarness, ScriptedModel, check_plugin_contract, make_turn, model_answer, running_agent

CALL = model_answer(actions=["TEXT_TO_VIDEO"], parameters={"description": "dolphins jumping"})
VIDEO = "https://v3.fal.media/files/dolphins.mp4"


class Queue:
    """fal.ai's queue on this computer: each state is given once, the last one again."""

    def __init__(self, *states: str) -> None:
        self.states, self.asked = list(states), Counter[str]()
        self.app = web.Application()
        self.app.router.add_post(f"/{MODEL}", self._queue)
        self.app.router.add_get(f"/{MODEL}/requests/{{id}}/status", self._state)
        self.app.router.add_get(f"/{MODEL}/requests/{{id}}", self._result)

    async def _queue(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Key secret-key"
        self.asked[(await request.json())["prompt"]] += 1
        return web.json_response({"request_id": "764cabcf-b745"})

    async def _state(self, request: web.Request) -> web.Response:
        return web.json_response({"status": self.states.pop(0) if len(self.states) > 1 else self.states[0]})

    async def _result(self, request: web.Request) -> web.Response:
        return web.json_response({"video": {"url": VIDEO}})


@asynccontextmanager
async def drawing(queue: Queue, then: str = "Enjoy it.") -> AsyncIterator[AgentHarness]:
    """Run an agent beside the queue."""
    async with TestServer(queue.app) as server:
        settings = {
            "FAL_KEY": "secret-key",
            "FAL_URL": str(server.make_url("/")).rstrip("/"),
            "FAL_POLL_SECONDS": "0.01",
        }
        model = ScriptedModel([CALL, model_answer(then)])
        async with running_agent(plugin, model=model, settings=settings) as harness:
            yield harness


async def test_the_video_is_sent_once_it_is_done() -> None:
    queue = Queue("IN_QUEUE", "IN_PROGRESS", "COMPLETED")
    async with drawing(queue) as harness:
        await harness.send("Make a video: dolphins jumping")
        assert harness.texts[0] == f"Here is your video: {VIDEO}"
    assert queue.asked == {"dolphins jumping": 1}


async def test_an_action_that_runs_again_pays_for_no_second_video() -> None:
    queue = Queue("COMPLETED")
    async with drawing(queue) as harness:
        turn = make_turn(harness.agent, "Make a video: dolphins jumping")
        for _ in range(2):
            await text_to_video(turn, "dolphins jumping")
    assert queue.asked == {"dolphins jumping": 1}


async def test_what_the_service_refuses_is_reported() -> None:
    async with drawing(Queue("FAILED"), then="I could not make it.") as harness:
        await harness.send("Make a video: dolphins jumping")
        assert harness.texts == ["I could not make it."]


async def test_the_plugin_obeys_the_contract_of_all_plugins() -> None:
    assert [result for result in await check_plugin_contract(plugin) if result.problems] == []
