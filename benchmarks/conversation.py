"""Measure what a group's conversation asks of the models: how often, with how many bytes, how many anew.

The conversation is a recorded one, with what the models decided and said in it; the prompts are ours.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import takewhile

from benchmarks.figures import Row
from bot import ChannelType, Content
from bot.characters import load_character
from bot.cli.characters import default_character
from bot.models import Purpose, TextRequest
from bot.platform import MentionContext
from bot.testing import ScriptedModel, Stage, answer, on_stage


@dataclass(frozen=True, slots=True)
class Line:
    """One message, and what the models made of it: whether to answer, if they were asked, and the answer."""

    author: str
    text: str
    is_reply: bool
    decision: str
    reply: str


@dataclass(frozen=True, slots=True)
class Asked:
    """One model call: what for, and how much of it begins like the call before it for the same."""

    purpose: Purpose
    size: int
    shared: int


class Recorded(ScriptedModel):
    """Decides and answers as in the recording, message by message."""

    def __init__(self) -> None:
        self.line: Line | None = None
        super().__init__(self._say)

    def _say(self, request: TextRequest) -> str:
        assert self.line is not None
        if request.purpose is Purpose.SHOULD_RESPOND:
            return f"<response><action>{self.line.decision}</action></response>"
        if request.purpose is Purpose.REPLY:
            return answer(self.line.reply)
        return ""


def conversed() -> list[Row]:
    """Have the conversation, and count."""
    lines = recorded()
    calls = asyncio.run(conversation(lines))
    return list(_rows(len(lines), calls))


def recorded() -> list[Line]:
    """Read the recording."""
    content = files("benchmarks").joinpath("conversation.json").read_text(encoding="utf-8")
    return [
        Line(
            one["from"],
            one["text"],
            one.get("is_reply", False),
            one.get("decision", "RESPOND"),
            one.get("reply", ""),
        )
        for one in json.loads(content)
    ]


async def conversation(lines: Sequence[Line]) -> list[Asked]:
    """Say it all to the default character with bootstrap, and list what the models were asked."""
    model = Recorded()
    character = load_character(default_character()).character
    async with on_stage(model=model, character=character) as stage:
        for line in lines:
            model.line = line
            await _say(stage, line)
    return list(_asked(model.requests))


async def _say(stage: Stage, line: Line) -> None:
    content = Content(text=line.text, source="test", mention=MentionContext(is_reply=line.is_reply))
    await stage.say(content, author=line.author, room="greenroom", kind=ChannelType.GROUP)


def _asked(requests: Sequence[TextRequest]) -> Iterator[Asked]:
    before: dict[Purpose, bytes] = {}
    for request in requests:
        prompt = (request.system + request.prompt).encode()
        yield Asked(request.purpose, len(prompt), _shared(before.get(request.purpose, b""), prompt))
        before[request.purpose] = prompt


def _shared(first: bytes, second: bytes) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _rows(messages: int, calls: Sequence[Asked]) -> Iterator[Row]:
    counts = Counter(call.purpose.value for call in calls)
    told = ", ".join(f"{count} {purpose}" for purpose, count in counts.most_common())
    total, shared = sum(call.size for call in calls), sum(call.shared for call in calls)
    replies = [call for call in calls if call.purpose is Purpose.REPLY]
    first, last = replies[0].size, replies[-1].size
    yield f"a group's {messages} messages", f"{len(calls) / messages:.2f} model calls a message ({told})"
    yield (
        "prompt bytes",
        f"{total / messages:,.0f} a message; an answer's: {first:,} at first, {last:,} at last",
    )
    whole, theirs = 100 * shared / total, 100 * _share(replies)
    yield (
        "the same beginning as the prompt before",
        f"{whole:.0f} % of all bytes, {theirs:.0f} % of an answer's",
    )


def _share(calls: Sequence[Asked]) -> float:
    return sum(call.shared for call in calls[1:]) / sum(call.size for call in calls[1:])
