"""The console adapter connected to a running agent, through pipes."""

import asyncio
import os
import zipfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from adapters.console import spec
from adapters.console.adapter import ConsoleAdapter, save_file
from adapters.console.terminal_io import InteractiveInput, PipedInput
from bot import AgentConfig, Attachment, Character, ConfigError, Content, MediaKind, Outcome, Runtime, Settings
from bot.platform import AdapterSpec, AgentHandle
from bot.plugin_system.loading import find_plugin
from bot.settings import Layer
from bot.testing import Restart, ScriptedModel, StreamedText, model_answer

pytestmark = pytest.mark.usefixtures("nothing_held_back")

HEAD, TAIL = "<response><actions>REPLY</actions><text>", "</text></response>"


@dataclass
class ConsoleSetup:
    """A running console: it reads from `keys` and writes to `screen`."""

    console: ConsoleAdapter
    runtime: Runtime
    screen: int
    keys: int

    def output(self) -> str:
        return os.read(self.screen, 65536).decode()

    async def wait_for_output(self, expected: str) -> str:
        """Read the output until it contains a text; return all of it."""
        text = ""
        async with asyncio.timeout(30):
            while expected not in text:
                text += await asyncio.to_thread(self.output)
        return text


@asynccontextmanager
async def run_console(model: ScriptedModel, *, is_terminal: bool = False) -> AsyncIterator[ConsoleSetup]:
    bootstrap = find_plugin("bootstrap")
    assert bootstrap is not None
    (reading, keys), (screen, writing) = os.pipe(), os.pipe()
    adapters: list[ConsoleAdapter] = []

    def open_adapter(handles: Sequence[AgentHandle]) -> ConsoleAdapter:
        [handle] = handles
        input_lines = InteractiveInput("> ") if is_terminal else PipedInput(reading)
        adapters.append(ConsoleAdapter(handle, input_lines=input_lines, output=writing))
        return adapters[0]

    settings = Settings([Layer("the test", {"AI_NOTICE": "off"})])
    config = AgentConfig(Character(name="Ada"), (bootstrap, model.plugin), settings)
    try:
        async with Runtime([config], [AdapterSpec("console", open_adapter, spec.settings)]) as runtime:
            yield ConsoleSetup(adapters[0], runtime, screen, keys)
    finally:
        for fd in (reading, keys, screen, writing):
            try:
                os.close(fd)
            except OSError:
                continue  # the test has closed it


async def test_a_line_of_input_is_answered_on_the_output() -> None:
    async with run_console(ScriptedModel(model_answer("Good morning."))) as setup:
        os.write(setup.keys, b"hello\n")
        line = await setup.console.read_line()
        assert line == "hello"
        receipt = await setup.console.send_message(line)
        assert setup.output() == "Good morning.\n"
        assert (receipt.outcome, receipt.rule) == (Outcome.ANSWERED, "room type DM")


@pytest.mark.long
async def test_send_message_returns_after_the_reply_is_written() -> None:
    async with run_console(ScriptedModel([model_answer(f"Reply {n}.") for n in range(20)])) as setup:
        for number in range(20):
            await setup.console.send_message(f"Line {number}")
            assert setup.output() == f"Reply {number}.\n"


async def test_files_of_a_command_are_saved_where_only_the_user_can_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with run_console(ScriptedModel()) as setup:
        await setup.console.send_message("hello")
        text, path = (await setup.console.run_command("/export-me")).rsplit("\nsaved as ", 1)
    assert text.startswith("This file contains everything that I store about you")
    with zipfile.ZipFile(path) as archive:
        assert any(b"hello" in archive.read(name) for name in archive.namelist())
    assert (os.path.dirname(path), os.stat(path).st_mode & 0o777) == (str(tmp_path), 0o600)


@pytest.mark.parametrize("name", ["../../x.txt", "..", "a/b\x1b[2J.txt", ""])
def test_a_file_is_saved_in_the_folder_under_a_free_name_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    file = Attachment("1", MediaKind.DOCUMENT, name=name, data=b"new")
    saved = [save_file(file, tmp_path) for _ in range(2)]
    assert len({*tmp_path.iterdir()}) == 2
    assert saved == [f"saved as {path}" for path in sorted(tmp_path.iterdir(), key=lambda path: len(path.name))]
    tmp_path.chmod(0o500)
    assert os.geteuid() == 0 or "cannot be written: " in save_file(file, tmp_path)


async def test_reading_does_not_block_the_loop() -> None:
    async with run_console(ScriptedModel()) as setup:
        waiting = asyncio.create_task(setup.console.read_line())
        await setup.console.send_message("meanwhile")
        assert setup.output() == "Hello.\n"
        os.write(setup.keys, b"at last\n")
        assert await waiting == "at last"


async def test_the_end_of_the_input_is_none() -> None:
    async with run_console(ScriptedModel()) as setup:
        os.close(setup.keys)
        assert await setup.console.read_line() is None


async def test_a_closed_output_ends_the_session() -> None:
    async with run_console(ScriptedModel()) as setup:
        os.close(setup.screen)
        receipt = await setup.console.send_message("hello?")
        [delivery] = await setup.runtime.agents[0].handle.conversations.deliveries(receipt.turn_id or receipt.id)
        assert (delivery.state, "reader of stdout" in delivery.cause) == ("failed", True)
        with pytest.raises(BrokenPipeError):
            await setup.console.read_line()


async def test_model_output_cannot_control_the_terminal() -> None:
    async with run_console(ScriptedModel(model_answer("\x1b[31mred\x1b[0m alert"))) as setup:
        await setup.console.send_message("hi")
        assert setup.output() == "red alert\n"


async def test_an_unprompted_delivery_is_written() -> None:
    async with run_console(ScriptedModel()) as setup:
        receipt = await setup.console.send_message("hi")
        setup.output()
        [delivery] = await setup.runtime.agents[0].handle.conversations.deliveries(receipt.turn_id or receipt.id)
        await setup.console.deliver(replace(delivery, content=Content(text="By the way.")))
        assert setup.output() == "By the way.\n"


async def test_several_characters_are_refused() -> None:
    async with run_console(ScriptedModel()) as setup:
        with pytest.raises(ConfigError, match="one character"):
            spec.open([*setup.runtime.handles, *setup.runtime.handles])


async def test_in_a_terminal_a_reply_is_streamed_once() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([StreamedText(HEAD, "Once upon", gate, " a time.", TAIL)])
    async with run_console(model, is_terminal=True) as setup:
        saying = asyncio.create_task(setup.console.send_message("a story"))
        assert (await setup.wait_for_output("Once upon")).endswith("Ada: Once upon")
        gate.set()
        await saying
        assert setup.output() == " a time.\n"


async def test_in_a_terminal_a_rewritten_reply_starts_a_new_line() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([StreamedText(HEAD, "Once upon", gate, Restart, HEAD, "Well.", TAIL)])
    async with run_console(model, is_terminal=True) as setup:
        saying = asyncio.create_task(setup.console.send_message("a story"))
        await setup.wait_for_output("Once upon")
        gate.set()
        await saying
        assert setup.output() == "\nAda: Well.\n"


async def test_in_a_pipe_a_reply_is_written_at_once() -> None:
    model = ScriptedModel([StreamedText(HEAD, "Once upon", " a time.", TAIL)])
    async with run_console(model) as setup:
        await setup.console.send_message("a story")
        assert setup.output() == "Once upon a time.\n"
