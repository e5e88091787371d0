"""A server that writes an answer word by word, at a steady speed, one answer after the other."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

from bot.testing import model_answer
from tests.plugins.openai.wire import DONE, delta, finish

WORD = "word"
DECISION = "should say something now"  # in the prompt that asks whether to answer
IGNORE = "<response><reasoning>They talk with each other.</reasoning><action>IGNORE</action></response>"


class WordServer:
    """Answers each request for a reply with `words` words, one every `seconds`; never decides to speak unprompted."""

    def __init__(self, *, words: int, seconds: float) -> None:
        self.url = ""
        self.replies = 0  # requests for a reply
        self.finished = 0  # replies written to their end
        self._words = words
        self._seconds = seconds
        self._slot = asyncio.Lock()

    @property
    def text(self) -> str:
        """The text of each reply."""
        return " ".join(f"{WORD}{number}" for number in range(1, self._words + 1))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Stream an answer."""
        asked = await request.json()
        is_decision = DECISION in json.dumps(asked["messages"])
        self.replies += not is_decision
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        async with self._slot:
            await response.prepare(request)
            for piece in (IGNORE if is_decision else model_answer(self.text)).split(" "):
                await asyncio.sleep(self._seconds)
                await response.write(f"data: {json.dumps(delta(content=f'{piece} '))}\n\n".encode())
            await response.write(f"data: {json.dumps(finish())}\n\n{DONE}".encode())
            self.finished += not is_decision
        return response


@asynccontextmanager
async def run_word_server(*, words: int, seconds: float) -> AsyncIterator[WordServer]:
    """Run a server while the block runs."""
    server = WordServer(words=words, seconds=seconds)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.answer)
    async with TestServer(app) as running:
        server.url = f"{str(running.make_url('')).rstrip('/')}/v1"
        yield server
