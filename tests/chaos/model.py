"""A model provider on this machine: it does what a message's text says, and counts what it was paid for.

Each author is named like the message (`m17`), so that a prompt shows which message is answered. The
text is a command: `hello`, `parts` for a reply in five parts, `do pure keyed` for actions, `quiet` for one
that the small model leaves unanswered, `story` for a reply that is written piece by piece, each when what
came before it was seen.
"""

import asyncio
import json
import re
from collections import Counter
from contextlib import suppress
from itertools import pairwise

from aiohttp import web

from bot.prompts import parse_history
from bot.testing import model_answer
from tests.chaos.wire import Wire, unhurt

TO_WHOM = re.compile(r"The next message is .+'s, to (m\d+)\.")
OPEN = re.compile(r"let one reply answer them all:\n(.*?)\n\n", re.DOTALL)
SUMMED_UP = re.compile(r"now tells (m\d+) how it went")
DECIDED = "should say something now"
REFLECTED = "Note what is worth remembering"
CHECKED = "seem to be in distress or danger"
COMMENTED = "An entry of a news feed."
BEGUN = "Nobody has written here for"
ROOM_SUMMED_UP = "that sum up the whole chat"
READ = re.compile(r"^- link \S+, (\S+), ", re.MULTILINE)
AUTHOR = re.compile(r"^\d+\. \[[^]\n]*\] (m\d+) ", re.MULTILINE)
NAMES_PER_LINE = 25
NAME = re.compile(r"m\d+")
PARTS, PART = 5, 80
STORY = "the story of"
PIECES, SEEN_TIMEOUT = 3, 1.0


class ModelServer:
    """The server; to be entered. `asked` counts calls by what they were for and which message.

    A reply to fewer messages than `least_together` is never finished.
    """

    def __init__(self, wire: Wire) -> None:
        self.asked: Counter[tuple[str, str]] = Counter()
        self.url = ""
        self.least_together = 1
        self._wire = wire
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "ModelServer":
        app = web.Application(middlewares=[unhurt], client_max_size=16 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def calls(self) -> int:
        """How often it was asked at all."""
        return self.asked.total()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        prompt = asked["messages"][-1]["content"]
        purpose, name, text = _spoken(prompt)
        self.asked[purpose, name] += 1
        self._wire.note(purpose)
        if purpose == "reply" and len(NAME.findall(text)) < self.least_together:
            await asyncio.Event().wait()  # until the client disconnects
        if asked.get("stream"):
            return await self._write(request, text)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return web.json_response({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]})

    async def _write(self, request: web.Request, text: str) -> web.StreamResponse:
        """Write an answer: a story piece by piece, any other at once."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        begin = text.index("<text>") + len("<text>") if "<text>" in text else 0
        step = max(1, (len(text) - begin) // PIECES)
        ends = [begin + step * number for number in range(1, PIECES)] if STORY in text else []
        for start, end in pairwise([0, *ends, len(text)]):
            looks = self._looks
            await response.write(_event({"content": text[start:end]}))
            if end < len(text):
                await self._until_seen(looks)
        await response.write(_event({}, "stop") + b"data: [DONE]\n\n")
        return response

    @property
    def _looks(self) -> int:
        return self._wire.seen["post"] + self._wire.seen["edit"]

    async def _until_seen(self, looks: int) -> None:
        with suppress(TimeoutError):  # the bot may have been killed, or it does not stream
            await self._wire.until(lambda: self._looks > looks, seconds=SEEN_TIMEOUT, what="a look at the reply")


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n".encode()


def _spoken(prompt: str) -> tuple[str, str, str]:
    """Return what a prompt is for, about which message, and that message's text."""
    texts_by_name = {line.name: line.text for line in parse_history(prompt) if not line.is_agent}
    if DECIDED in prompt:
        name, text = (
            list(texts_by_name.items())[-1] if texts_by_name else ("none", "")
        )  # a provider may have been too slow
        verdict = "IGNORE" if "quiet" in text else "RESPOND"
        return "decide", name, f"<response><reasoning>so</reasoning><action>{verdict}</action></response>"
    if summed_up := SUMMED_UP.search(prompt):
        return "summary", summed_up[1], f"<response><text>sum of {summed_up[1]}</text></response>"
    if CHECKED in prompt:
        return "care", "none", "YES"
    if REFLECTED in prompt:
        return "reflection", "none", "<response></response>"
    if COMMENTED in prompt:
        return "comment", "none", "Hear, hear."
    if BEGUN in prompt:
        return "begun", list(texts_by_name)[-1], "a new subject"
    if ROOM_SUMMED_UP in prompt:
        return "room summary", "none", _sum_up(prompt.partition("Summary so far:")[2])
    whom = TO_WHOM.search(prompt)
    assert whom is not None, prompt
    taken = OPEN.search(prompt)
    names = [line.name for line in parse_history(taken[1])] if taken else [whom[1]]
    about = "+".join([*names, *(f"the page of {site}" for site in READ.findall(prompt))])
    return "reply", whom[1], _reply(about, texts_by_name.get(whom[1], ""))


def _sum_up(chat: str) -> str:
    """Return whom the summary of a chat names and who has written its messages, each as often as it is there."""
    before, _, messages = chat.partition("Messages:")
    names = NAME.findall(before) + AUTHOR.findall(messages)
    lines = [names[start : start + NAMES_PER_LINE] for start in range(0, len(names), NAMES_PER_LINE)]
    return "\n".join(" ".join(line) for line in lines)


def _reply(names: str, text: str) -> str:
    _, _, wanted = text.partition("do ")
    if wanted:
        return model_answer(f"did {names}", actions=[kind.upper() for kind in wanted.split()])
    if "story" in text:
        return model_answer(f"{STORY} {names}: " + "and then " * 6 + "the end")
    if "parts" in text:
        pieces = [f"part {number} of {names}" for number in range(1, PARTS + 1)]
        return model_answer("".join(piece.ljust(PART, ".") for piece in pieces))
    return model_answer(f"re {names}")
