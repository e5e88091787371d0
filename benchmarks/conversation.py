"""Measure the model calls of a group conversation: how many, their bytes, and the share of a common prefix.

The messages and model answers are recorded; the prompts are the current ones.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import takewhile

from benchmarks.figures import Row
from bot import ChannelType, Content
from bot.characters import load_character
from bot.cli.characters import default_character
from bot.models import Purpose, TextRequest
from bot.platform import MentionContext
from bot.testing import AgentHarness, ManualClock, ScriptedModel, model_answer, running_agent

LONG_REPLY = "Good point, I would try the smaller one first and see how it goes."
SECONDS_BETWEEN = 20  # two messages; the recording has no times


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A message with the recorded decision and reply of the models."""

    author: str
    text: str
    is_reply: bool
    decision: str
    reply: str


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A model call: its purpose, its bytes, the bytes that the previous call began with too, and its characters."""

    purpose: Purpose
    size: int
    shared: int
    characters: int


class RecordedModel(ScriptedModel):
    """Returns the recorded decision or reply of the current message."""

    def __init__(self) -> None:
        self.message: RecordedMessage | None = None
        super().__init__(self._answer)

    def _answer(self, request: TextRequest) -> str:
        assert self.message is not None
        if request.purpose is Purpose.SHOULD_RESPOND:
            return f"<response><action>{self.message.decision}</action></response>"
        if request.purpose is Purpose.REPLY:
            return model_answer(self.message.reply)
        return ""


def measure_conversation() -> list[Row]:
    """Run the conversation, and count its calls."""
    messages = load_recording()
    calls = asyncio.run(run_conversation(messages))
    answered = [replace(message, is_reply=True, reply=message.reply or LONG_REPLY) for message in messages]
    characters = sum(call.characters for call in asyncio.run(run_conversation(answered)))
    text = f"{characters / len(answered):,.0f} characters of prompt a message"
    return [*_rows(len(messages), calls), ("the same, every message answered", text)]


def load_recording() -> list[RecordedMessage]:
    """Load the recording."""
    content = files("benchmarks").joinpath("conversation.json").read_text(encoding="utf-8")
    return [
        RecordedMessage(
            entry["from"],
            entry["text"],
            entry.get("is_reply", False),
            entry.get("decision", "RESPOND"),
            entry.get("reply", ""),
        )
        for entry in json.loads(content)
    ]


async def run_conversation(messages: Sequence[RecordedMessage]) -> list[RecordedCall]:
    """Send all messages to the default character with bootstrap; return the model calls."""
    model = RecordedModel()
    character = load_character(default_character()).character
    clock = ManualClock()
    async with running_agent(model=model, character=character, clock=clock.now) as harness:
        for message in messages:
            model.message = message
            clock.advance(SECONDS_BETWEEN)
            await _send(harness, message)
    return list(_calls_of(model.requests))


async def _send(harness: AgentHarness, message: RecordedMessage) -> None:
    content = Content(text=message.text, source="test", mention=MentionContext(is_reply=message.is_reply))
    await harness.send(content, author=message.author, room="greenroom", kind=ChannelType.GROUP)


def _calls_of(requests: Sequence[TextRequest]) -> Iterator[RecordedCall]:
    previous: dict[Purpose, bytes] = {}
    for request in requests:
        prompt = (request.system + request.prompt).encode()
        yield RecordedCall(
            request.purpose,
            len(prompt),
            _common_prefix_length(previous.get(request.purpose, b""), prompt),
            len(request.system) + len(request.prompt),
        )
        previous[request.purpose] = prompt


def _common_prefix_length(first: bytes, second: bytes) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _rows(messages: int, calls: Sequence[RecordedCall]) -> Iterator[Row]:
    counts = Counter(call.purpose.value for call in calls)
    purposes = ", ".join(f"{count} {purpose}" for purpose, count in counts.most_common())
    total, shared = sum(call.size for call in calls), sum(call.shared for call in calls)
    replies = [call for call in calls if call.purpose is Purpose.REPLY]
    first, last = replies[0].size, replies[-1].size
    yield f"a group's {messages} messages", f"{len(calls) / messages:.2f} model calls a message ({purposes})"
    yield ("prompt bytes", f"{total / messages:,.0f} a message; an answer's: {first:,} at first, {last:,} at last")
    total_percent, reply_percent = 100 * shared / total, 100 * _shared_fraction(replies)
    yield (
        "the same beginning as the prompt before",
        f"{total_percent:.0f} % of all bytes, {reply_percent:.0f} % of an answer's",
    )


def _shared_fraction(calls: Sequence[RecordedCall]) -> float:
    return sum(call.shared for call in calls[1:]) / sum(call.size for call in calls[1:])
