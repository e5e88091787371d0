"""The console connected to a running agent, through pipes instead of a terminal."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from adapters.console import spec
from adapters.console.adapter import ConsoleAdapter
from adapters.console.terminal_io import PipedLines, TypedLines
from bot import Blueprint, Character, ConfigError, Content, Outcome, Runtime, Settings
from bot.platform import AdapterSpec, Door
from bot.plugin_system.loading import find_plugin
from bot.testing import Pieces, Restart, ScriptedModel, answer

HEAD, TAIL = "<response><actions>REPLY</actions><text>", "</text></response>"


@dataclass
class Desk:
    """A console at work: what it reads comes from `keys`, what it writes is in `paper`."""

    console: ConsoleAdapter
    runtime: Runtime
    paper: int
    keys: int

    def written(self) -> str:
        return os.read(self.paper, 65536).decode()

    async def until_written(self, words: str) -> str:
        """Read until these words stand on the paper; gives all that came with them."""
        text = ""
        async with asyncio.timeout(30):
            while words not in text:
                text += await asyncio.to_thread(self.written)
        return text


@asynccontextmanager
async def at_desk(model: ScriptedModel, *, is_terminal: bool = False) -> AsyncIterator[Desk]:
    bootstrap = find_plugin("bootstrap")
    assert bootstrap is not None
    (reading, keys), (paper, writing) = os.pipe(), os.pipe()
    opened: list[ConsoleAdapter] = []

    def open_desk(doors: Sequence[Door]) -> ConsoleAdapter:
        [door] = doors
        lines = TypedLines("> ") if is_terminal else PipedLines(reading)
        opened.append(ConsoleAdapter(door, lines=lines, output=writing))
        return opened[0]

    plan = Blueprint(Character(name="Ada"), (bootstrap, model.plugin), Settings())
    try:
        async with Runtime([plan], [AdapterSpec("console", open_desk, spec.settings)]) as runtime:
            yield Desk(opened[0], runtime, paper, keys)
    finally:
        for fd in (reading, keys, paper, writing):
            try:
                os.close(fd)
            except OSError:
                continue  # the test has closed it


async def test_a_line_read_is_answered_on_the_output() -> None:
    async with at_desk(ScriptedModel(answer("Good morning."))) as desk:
        os.write(desk.keys, b"hello\n")
        line = await desk.console.read()
        assert line == "hello"
        receipt = await desk.console.say(line)
        assert desk.written() == "Good morning.\n"
        assert (receipt.outcome, receipt.rule) == (Outcome.ANSWERED, "room type DM")


async def test_a_reply_is_written_before_saying_is_over() -> None:
    async with at_desk(ScriptedModel([answer(f"Reply {n}.") for n in range(20)])) as desk:
        for number in range(20):
            await desk.console.say(f"Line {number}")
            assert desk.written() == f"Reply {number}.\n"


async def test_reading_does_not_hold_up_the_loop() -> None:
    async with at_desk(ScriptedModel()) as desk:
        waiting = asyncio.create_task(desk.console.read())
        await desk.console.say("meanwhile")
        assert desk.written() == "Hello.\n"
        os.write(desk.keys, b"at last\n")
        assert await waiting == "at last"


async def test_the_end_of_the_input_is_told() -> None:
    async with at_desk(ScriptedModel()) as desk:
        os.close(desk.keys)
        assert await desk.console.read() is None


async def test_where_nobody_reads_the_talk_ends() -> None:
    async with at_desk(ScriptedModel()) as desk:
        os.close(desk.paper)
        receipt = await desk.console.say("hello?")
        [delivery] = await desk.runtime.residents[0].door.records.deliveries(receipt.turn_id or receipt.id)
        assert (delivery.state, "nobody reads" in delivery.cause) == ("failed", True)
        with pytest.raises(BrokenPipeError):
            await desk.console.read()


async def test_what_a_model_writes_cannot_colour_the_terminal() -> None:
    async with at_desk(ScriptedModel(answer("\x1b[31mred\x1b[0m alert"))) as desk:
        await desk.console.say("hi")
        assert desk.written() == "red alert\n"


async def test_something_said_unasked_is_written_too() -> None:
    async with at_desk(ScriptedModel()) as desk:
        receipt = await desk.console.say("hi")
        desk.written()
        [delivery] = await desk.runtime.residents[0].door.records.deliveries(receipt.turn_id or receipt.id)
        await desk.console.deliver(replace(delivery, content=Content(text="By the way.")))
        assert desk.written() == "By the way.\n"


async def test_the_console_is_for_one_character() -> None:
    async with at_desk(ScriptedModel()) as desk:
        with pytest.raises(ConfigError, match="one character"):
            spec.open([*desk.runtime.doors, *desk.runtime.doors])


async def test_at_a_terminal_a_reply_is_seen_as_it_is_written_and_once() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([Pieces(HEAD, "Once upon", gate, " a time.", TAIL)])
    async with at_desk(model, is_terminal=True) as desk:
        saying = asyncio.create_task(desk.console.say("a story"))
        assert (await desk.until_written("Once upon")).endswith("Ada: Once upon")
        gate.set()
        await saying
        assert desk.written() == " a time.\n"


async def test_at_a_terminal_what_is_written_anew_stands_on_a_line_of_its_own() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([Pieces(HEAD, "Once upon", gate, Restart, HEAD, "Well.", TAIL)])
    async with at_desk(model, is_terminal=True) as desk:
        saying = asyncio.create_task(desk.console.say("a story"))
        await desk.until_written("Once upon")
        gate.set()
        await saying
        assert desk.written() == "\nAda: Well.\n"


async def test_in_a_pipe_a_reply_is_written_once_and_whole() -> None:
    model = ScriptedModel([Pieces(HEAD, "Once upon", " a time.", TAIL)])
    async with at_desk(model) as desk:
        await desk.console.say("a story")
        assert desk.written() == "Once upon a time.\n"
        assert [request.sink for request in model.requests] == [None]
