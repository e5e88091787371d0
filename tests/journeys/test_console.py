"""The program in real processes: output and exit codes."""

import asyncio
import json
import os
import pty
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from tests.chaos.program import CommandResult, ForkServer, inherited_variables
from tests.ports import free_port
from tests.trust import trust_code

ROOT = Path(__file__).parents[2]
BOT = (sys.executable, "-m", "bot")
GREETING = "Hello, I'm Marlo."
DEADLINE = 20.0


@dataclass(frozen=True, slots=True)
class BotFolder:
    """A folder to start the program in, with an environment that holds no key of this machine."""

    folder: Path
    environment: Mapping[str, str]
    fork_server: ForkServer
    started: list[asyncio.subprocess.Process] = field(default_factory=list)

    def write(self, name: str, content: object) -> str:
        """Write a file: text as it is, anything else as JSON."""
        text = content if isinstance(content, str) else json.dumps(content)
        (self.folder / name).write_text(text, encoding="utf-8")
        if name.endswith(".py"):
            trust_code(self.folder, self.folder / "data")
        return name

    async def start(self, *arguments: str, **variables: str) -> asyncio.subprocess.Process:
        """Start `bot` with all three streams as pipes."""
        process = await asyncio.create_subprocess_exec(
            *BOT,
            *arguments,
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.started.append(process)
        return process

    async def run(self, *arguments: str, stdin: str | bytes = "", **variables: str) -> CommandResult:
        """Run `bot` to its end on this input; no run may show a traceback."""
        environment = {**self.environment, **variables}
        given = stdin.encode() if isinstance(stdin, str) else stdin
        result = await self.fork_server.run(arguments, self.folder, environment, given)
        assert "Traceback" not in result.err, result.err
        return result


async def ended(process: asyncio.subprocess.Process, stdin: bytes = b"") -> CommandResult:
    async with asyncio.timeout(DEADLINE):
        out, err = await process.communicate(stdin)
    code = process.returncode
    assert code is not None
    result = CommandResult(code, out.decode(), err.decode())
    assert "Traceback" not in result.err, result.err
    return result


async def until(stream: asyncio.StreamReader | None, wanted: str) -> str:
    """Read lines until one contains these words; return it."""
    assert stream is not None
    async with asyncio.timeout(DEADLINE):
        while line := (await stream.readline()).decode():
            if wanted in line:
                return line
    raise AssertionError(f"the process ended without saying {wanted!r}")


@pytest.fixture
async def bot_folder(tmp_path: Path, fork_server: ForkServer) -> AsyncIterator[BotFolder]:
    """Return an empty folder and a clean environment."""
    kept = inherited_variables("PATH", "HOME", "LANG", "SSL_CERT_FILE")
    data = {"BOT_DATA_DIR": str(tmp_path / "data"), "SERVER_PORT": str(free_port()), "PYTHONPATH": str(ROOT)}
    made = BotFolder(tmp_path, kept | data, fork_server)
    yield made
    for process in made.started:
        if process.returncode is None:  # the test has failed before its end
            process.kill()
            await process.communicate()


@pytest.fixture
async def refusing() -> AsyncIterator[str]:
    """Return the address of a model server that accepts no key."""

    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "Incorrect API key provided"}}, status=401)

    async with serving(refuse) as address:
        yield address


class serving:
    """A local model server that answers all requests with one function."""

    def __init__(self, handle: object) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)  # type: ignore[arg-type]  # aiohttp checks it itself
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def __aenter__(self) -> str:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def __aexit__(self, *cause: object) -> None:
        await self._runner.cleanup()


def read_terminal(controller: int) -> str:
    """Return what a program has written to its terminal; empty once it has ended."""
    try:
        return os.read(controller, 4096).decode(errors="replace")
    except OSError:  # how Linux reports that nothing has the terminal open
        return ""


async def talk_in_terminal(bot_folder: BotFolder, *lines: str) -> str:
    """Run `bot chat` in a terminal, write each line once it is asked for, and return what is shown."""
    controller, terminal = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(*BOT, "chat", "-c", "ada.json"),
        cwd=bot_folder.folder,
        env={**bot_folder.environment, "TERM": "dumb", "CONSOLE_USER": "Kim"},
        stdin=terminal,
        stdout=terminal,
        stderr=asyncio.subprocess.DEVNULL,
    )
    bot_folder.started.append(process)
    os.close(terminal)
    shown, waiting = "", list(lines)
    async with asyncio.timeout(2 * DEADLINE):  # a whole conversation, not one line
        while piece := await asyncio.to_thread(read_terminal, controller):
            shown += piece
            while waiting and shown.count("to Ada> ") > len(lines) - len(waiting):
                os.write(controller, f"{waiting.pop(0)}\n".encode())
        assert await process.wait() == 0
    os.close(controller)
    return shown


@pytest.mark.long
async def test_a_terminal_shows_the_first_greeting_of_a_card_where_nothing_was_said(bot_folder: BotFolder) -> None:
    bot_folder.write("ada.json", {"name": "Ada", "bio": "x", "greetings": ["*looks up* Hello {{user}}!", "Other."]})
    assert "Ada: *looks up* Hello Kim!" in await talk_in_terminal(bot_folder, "hello", "/quit")
    assert "looks up" not in await talk_in_terminal(bot_folder, "/quit")
    assert "looks up" not in (await bot_folder.run("chat", "-c", "ada.json", stdin="hello\n")).out


@pytest.mark.long
async def test_piped_input_is_answered_line_by_line_and_stdout_has_nothing_else(bot_folder: BotFolder) -> None:
    result = await bot_folder.run("chat", stdin="hello\n\nmy sister sings in a choir\n")
    assert result.code == 0
    first, second = result.out.splitlines()
    assert first.startswith(GREETING)
    assert "choir" in second
    assert result.err.startswith("offline model: ")
    assert len(result.err.splitlines()) == 1


@pytest.mark.long
async def test_what_stays_wrong_is_reported_at_the_first_start_only(bot_folder: BotFolder) -> None:
    character = {"name": "Ada", "nam": "x", "topicz": ["y"], "knowledge": [{"path": "faq.md"}]}
    mine = bot_folder.write("mine.json", character)
    bot_folder.write(".env", "# mine\nODD LINE\nOPENAI_BASE_URL=http://127.0.0.1:9/v1\n")
    first, second = [await bot_folder.run("chat", "-c", mine, stdin="/help\n") for _ in range(2)]
    warnings = ("line 2", "nam: is not a field", "did you mean 'topics'", "'faq.md': there is no", "no plugin here")
    assert [first.err.count(text) for text in (*warnings, "faq.md does not exist")] == [1] * 6
    assert [second.err.count(text) for text in (*warnings, "faq.md does not exist")] == [0] * 6

    bot_folder.write("mine.json", {**character, "adjectivez": ["z"]})
    third = await bot_folder.run("chat", "-c", mine, stdin="/help\n")
    assert "did you mean 'adjectives'" in third.err
    assert "did you mean 'topics'" not in third.err


async def test_output_printed_by_a_plugin_does_not_mix_with_replies(bot_folder: BotFolder) -> None:
    body = """\
from bot import Plugin, Turn, ProviderResult, provider

@provider("LOUD", "Prints.")
async def loud(turn: Turn) -> ProviderResult:
    print("a plugin's own noise")
    return ProviderResult()

plugin = Plugin("loud", providers=[loud])
"""
    bot_folder.write("loud.py", body)
    result = await bot_folder.run(
        "chat", "-c", bot_folder.write("a.json", {"name": "Ada", "plugins": ["./loud"]}), stdin="hi"
    )
    assert (result.code, len(result.out.splitlines())) == (0, 1)
    assert "a plugin's own noise" in result.err


async def test_an_action_that_blocks_the_event_loop_is_named_on_stderr(bot_folder: BotFolder) -> None:
    body = """\
import asyncio
import logging
import threading

from bot import Agent, Plugin, Turn, action, model
from bot.cli.process import watchdog
from bot.models import ModelType, TextRequest, TextResult

watchdog.POLL_SECONDS, watchdog.BLOCKED_WARNING_SECONDS = 0.01, 0.05
reported = threading.Event()


class Waiter(logging.Handler):
    def emit(self, record):  # an earlier report may just be written
        if "sleepy.py:" in record.getMessage():
            reported.set()


@action("NAP", "Sleep.")
async def nap(turn: Turn) -> None:
    watchdog.logger.addHandler(Waiter())
    await asyncio.sleep(0)  # what blocked the loop before has ended
    assert reported.wait(20)
    await turn.reply("I slept.")


@model(ModelType.TEXT_LARGE)
async def write(agent: Agent, request: TextRequest) -> TextResult:
    return TextResult("<response><actions>NAP</actions><text></text></response>", "mine")


plugin = Plugin("sleepy", actions=[nap], models=[write])
"""
    bot_folder.write("sleepy.py", body)
    character = bot_folder.write("a.json", {"name": "Ada", "plugins": ["./sleepy"]})
    result = await bot_folder.run("chat", "-c", character, stdin="sleep")
    assert (result.code, result.out) == (0, "I slept.\n")
    [line] = [line for line in result.err.splitlines() if "event loop blocked" in line and "sleepy.py:" in line]
    assert "nap (" in line
    assert line.endswith("; the task is action NAP")


@pytest.mark.long
async def test_invalid_bytes_and_an_endless_line_are_handled(bot_folder: BotFolder) -> None:
    result = await bot_folder.run("chat", stdin=b"\xff\xfe\x00\x9b31m\n" + b"word " * 2_000_000 + b"\nhello\n")
    assert result.code == 0
    assert len(result.out.splitlines()) == 3


async def test_empty_input_ends_the_chat(bot_folder: BotFolder) -> None:
    result = await bot_folder.run("chat")
    assert (result.code, result.out) == (0, "")


@pytest.mark.long
async def test_without_stdin_and_stdout_the_chat_ends(bot_folder: BotFolder) -> None:
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        f"exec {sys.executable} -m bot chat <&- >&-",
        cwd=bot_folder.folder,
        env=dict(bot_folder.environment),
        stderr=asyncio.subprocess.PIPE,
    )
    bot_folder.started.append(process)
    result = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert process.returncode == 0
    assert b"Traceback" not in result[1]


@pytest.mark.long
async def test_a_closed_output_pipe_ends_the_chat_quietly(bot_folder: BotFolder) -> None:
    process = await bot_folder.start("chat")
    assert process.stdin is not None
    process.stdin.write(b"hello\n")
    await until(process.stdout, GREETING)
    process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]  # as `head -1` does
    result = await ended(process, b"are you there?\nhello?\n")
    assert result.code == 0


CHAT_SIGNALS = [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 0, marks=pytest.mark.long)]
RUN_SIGNALS = [pytest.param(signal.SIGINT, 130, marks=pytest.mark.long), (signal.SIGTERM, 0)]
BROKEN: Mapping[str, tuple[object, str]] = {
    "missing": (None, "character.json: no such file"),
    "not JSON": ('{"name": "Ada",\n', "character.json:"),
    "no name": ({}, "character.json:"),
    "unknown plugin": ({"name": "A", "plugins": ["ofline"]}, "plugin 'ofline' is not known: did you mean 'offline'?"),
    "circle": ({"name": "A", "plugins": ["./hen", "./egg"]}, "plugins require each other in a circle: "),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_an_unusable_character_is_a_single_message_and_exit_code_78(bot_folder: BotFolder, case: str) -> None:
    content, message = BROKEN[case]
    for own, other in (("hen", "egg"), ("egg", "hen")):
        body = f"from bot import Plugin\nplugin = Plugin({own!r}, requires=[{other!r}])\n"
        bot_folder.write(f"{own}.py", body)
    if content is not None:
        bot_folder.write("character.json", content)
    result = await bot_folder.run("chat", "-c", "character.json", stdin="hello\n")
    assert (result.code, result.out) == (78, "")
    assert result.err.startswith(f"bot: {message}")


@pytest.mark.long
async def test_a_refused_key_is_reported_on_stderr_and_the_room_gets_a_single_apology(
    bot_folder: BotFolder, refusing: str
) -> None:
    result = await bot_folder.run("chat", stdin="a\nb\n", OPENAI_BASE_URL=refusing, OPENAI_API_KEY="sk-" + "wrong" * 5)
    assert result.code == 78
    assert result.out == "Sorry, I can't answer just now. Please try again in a little while.\n"
    assert result.err.count(" refused the key in OPENAI_API_KEY (401)") == 3
    assert "wrongwrong" not in result.err


@pytest.mark.long
async def test_an_unreachable_model_server_is_exit_code_75(bot_folder: BotFolder) -> None:
    port = free_port()
    unreachable = f"http://127.0.0.1:{port}/v1"
    result = await bot_folder.run("chat", stdin="a\n", OPENAI_BASE_URL=unreachable)
    assert result.code == 75
    assert f"bot: not answered: openai: cannot connect to 127.0.0.1:{port}: " in result.err
    assert "trying again" not in result.err


@pytest.mark.long
async def test_a_busy_model_is_reported_on_stderr_while_it_is_called_again(bot_folder: BotFolder) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "overloaded"}}, status=503, headers={"retry-after": "0"})

    async with serving(refuse) as address:
        result = await bot_folder.run("chat", stdin="a\n", OPENAI_BASE_URL=address, MODEL_RETRIES="1")
    assert result.code == 75
    assert result.err.count("bot: the model is busy, trying again") == 1
    assert "bot: not answered: openai: 127.0.0.1:" in result.err


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), CHAT_SIGNALS, ids=["SIGINT", "SIGTERM"])
async def test_a_signal_while_waiting_for_input_ends_the_chat(bot_folder: BotFolder, number: int, code: int) -> None:
    process = await bot_folder.start("chat")
    assert process.stdin is not None
    process.stdin.write(b"hello\n")
    await until(process.stdout, GREETING)
    process.send_signal(number)
    async with asyncio.timeout(DEADLINE):
        assert await process.wait() == code  # though stdin is still open
    assert process.stderr is not None
    assert b"Traceback" not in await process.stderr.read()


@pytest.mark.long
async def test_the_first_interrupt_stops_the_answer_and_keeps_the_chat(bot_folder: BotFolder) -> None:
    asked = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if "think long" in json.dumps((await request.json())["messages"][-1]):
            asked.set()
            await asyncio.Event().wait()
        message = {"role": "assistant", "content": "Low water is at six."}
        return web.json_response({"model": "m", "choices": [{"message": message, "finish_reason": "stop"}]})

    screen, terminal = pty.openpty()
    async with serving(answer) as address:
        process = await asyncio.create_subprocess_exec(
            *(*BOT, "chat"),
            cwd=bot_folder.folder,
            env={**bot_folder.environment, "TERM": "dumb", "OPENAI_BASE_URL": address, "OPENAI_LARGE_MODEL": "m"}
            | {"OPENAI_SMALL_MODEL": "m", "STREAMING": "false", "CONVERSATION_LENGTH": "1"},
            stdin=terminal,
            stdout=terminal,
            stderr=asyncio.subprocess.PIPE,
        )
        bot_folder.started.append(process)
        os.close(terminal)
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(screen, "rb", buffering=0)
        )
        async with asyncio.timeout(DEADLINE):
            await reader.readuntil(b"to Marlo> ")
            os.write(screen, b"think long\n")
            await asked.wait()
            process.send_signal(signal.SIGINT)
            await reader.readuntil(b"I have stopped.")
            await reader.readuntil(b"to Marlo> ")
            os.write(screen, b"when is low water?\n")
            await reader.readuntil(b"Low water is at six.")
            await reader.readuntil(b"to Marlo> ")
            process.send_signal(signal.SIGINT)  # no answer is in progress: this ends the chat
            assert await process.wait() == 130
        transport.close()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("target", ["run", "chat", "init"])
async def test_make_says_that_the_program_starts_before_it_does(tmp_path: Path, target: str) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("python", "bot"):
        (tmp_path / ".venv/bin" / name).write_text("#!/bin/sh\nread line\n")
        (tmp_path / ".venv/bin" / name).chmod(0o700)
    (tmp_path / ".venv/.installed").touch()
    process = await asyncio.create_subprocess_exec(
        *("make", target), cwd=tmp_path, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    line = await until(process.stdout, "Starting")  # the program itself still waits for a line
    assert line.startswith("Starting the ")
    await process.communicate(b"\n")


@pytest.mark.long
@pytest.mark.parametrize("command", ["run", "chat"])
async def test_a_command_says_on_a_terminal_that_it_starts_before_it_reads_anything(
    bot_folder: BotFolder, command: str
) -> None:
    screen, terminal = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(*BOT, command, "-c", "gone.json"), cwd=bot_folder.folder, env=bot_folder.environment, stderr=terminal
    )
    bot_folder.started.append(process)
    os.close(terminal)
    async with asyncio.timeout(DEADLINE):
        assert await process.wait() == 78
    lines = os.read(screen, 1000).decode().splitlines()
    os.close(screen)
    assert [lines[0].startswith("starting the "), lines[1]] == [True, "bot: gone.json: no such file"]


@pytest.mark.long
async def test_a_second_signal_ends_the_process_immediately(bot_folder: BotFolder) -> None:
    asked = asyncio.Event()

    async def think(request: web.Request) -> web.Response:
        asked.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]  # it never answers

    async with serving(think) as address:
        process = await bot_folder.start("chat", OPENAI_BASE_URL=address)
        assert process.stdin is not None
        process.stdin.write(b"hello\n")
        async with asyncio.timeout(DEADLINE):
            await asked.wait()
        process.send_signal(signal.SIGINT)
        await until(process.stderr, "a second Ctrl-C exits at once")
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(DEADLINE):
            assert await process.wait() == 130


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), RUN_SIGNALS, ids=["SIGINT", "SIGTERM"])
async def test_run_reports_active_platforms_and_stops_at_a_signal(
    bot_folder: BotFolder, number: int, code: int
) -> None:
    bot_folder.write("bob.json", {"name": "Bob"})
    bot_folder.write("ada.json", {"name": "Ada"})
    process = await bot_folder.start("run", "-c", "ada.json", "-c", "bob.json")
    introduced = await until(process.stdout, "Ada")
    assert "ada.json, model: offline" in introduced
    assert "stored by: sql" in introduced
    await until(process.stdout, "Bob")
    line = await until(process.stdout, "web")
    assert line.split()[:2] == ["web", "on"]
    assert f"http://127.0.0.1:{bot_folder.environment['SERVER_PORT']}/" in line
    for name in ("discord", "telegram", "x"):
        assert (await until(process.stdout, f"  {name} ")).split()[1] == "off"
    process.send_signal(number)
    result = await ended(process)
    assert result.code == code
    assert "stopping: " in result.err


@pytest.mark.long
async def test_run_reports_an_unavailable_platform(bot_folder: BotFolder) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    process = await bot_folder.start(
        "run", DISCORD_API_TOKEN=f"{'a' * 24}.bcdefg.{'h' * 38}", DISCORD_API_BASE_URL=address
    )
    line = await until(process.stdout, "  discord ")
    assert line.split()[1:] in (["on", "connecting"], ["on", "degraded"])
    process.send_signal(signal.SIGTERM)
    assert (await ended(process)).code == 0


async def test_run_on_a_port_in_use_names_the_setting(bot_folder: BotFolder) -> None:
    with socket.create_server(("127.0.0.1", int(bot_folder.environment["SERVER_PORT"]))):
        result = await bot_folder.run("run")
    assert result.code == 78
    assert result.err.splitlines()[-1].startswith("bot: ")
    assert "SERVER_PORT" in result.err


async def test_run_without_any_usable_platform_reports_why(bot_folder: BotFolder) -> None:
    result = await bot_folder.run("run", "--only", "telegram")
    assert (result.code, result.out) == (78, "")
    assert "bot: no platform is on:" in result.err
    assert "telegram  off  " in result.err


async def test_a_wrong_option_is_a_usage_error(bot_folder: BotFolder) -> None:
    result = await bot_folder.run("run", "--only", "telegran")
    assert (result.code, result.err) == (2, "bot: --only: 'telegran' is not a platform: did you mean 'telegram'?\n")


@pytest.mark.long
@pytest.mark.parametrize(
    ("prices", "warned"), [("", ["my-large", "my-small"]), ("my-small=1/2", ["my-large"]), ("my-*=0", [])]
)
async def test_run_says_at_start_on_which_models_a_budget_in_dollars_has_no_effect(
    bot_folder: BotFolder, refusing: str, prices: str, warned: list[str]
) -> None:
    bot_folder.write("ada.json", {"name": "Ada"})
    models = {"OPENAI_BASE_URL": refusing, "OPENAI_LARGE_MODEL": "my-large", "OPENAI_SMALL_MODEL": "my-small"}
    budget = {"BUDGET_USD": "1", "MODEL_PRICES": prices} if prices else {"BUDGET_USD": "1"}
    process = await bot_folder.start("run", "-c", "ada.json", **models, **budget)
    await until(process.stdout, "  web ")
    process.send_signal(signal.SIGTERM)
    lines = (await ended(process)).err.splitlines()
    warnings_printed = [line for line in lines if "limits in dollars have no effect on it (BUDGET_USD)" in line]
    assert sorted(line.split()[4] for line in warnings_printed) == warned
    assert all(f"MODEL_PRICES={line.split()[4]}=IN/OUT" in line for line in warnings_printed)


async def test_in_a_terminal_too_a_person_who_asked_for_it_is_not_read(bot_folder: BotFolder) -> None:
    lines = "/ignore-me\nmy zebracorn\n/ignore-me off\nmy sister sings in a choir\n"
    result = await bot_folder.run("chat", stdin=lines)
    assert result.code == 0
    assert "Commands still work" in result.out
    assert "choir" in result.out
    assert "zebracorn" not in result.out + result.err
    assert find_files(bot_folder.folder, b"zebracorn") == []


def find_files(folder: Path, data: bytes) -> list[Path]:
    """Return the files that hold some data."""
    return [path for path in folder.rglob("*") if path.is_file() and data in path.read_bytes()]
