"""`bot init`: the set-up by options and by questions, against a model server and platforms on this machine."""

import asyncio
import io
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from adapters.telegram.emulator import start_emulator
from bot.cli.commands.init import ask_text, find_platforms, find_server, find_servers, run_guide, write_variables
from bot.cli.main import entry
from bot.cli.options import program
from bot.cli.process.shutdown import Exit
from bot.errors import SettingError, TemporaryError
from bot.settings import load_settings
from tests.adapters.x.threaded import emulated

Out = pytest.CaptureFixture[str]
DOWN, ENTER, CLEAR_LINE, CONTROL_C = "\x1b[B", "\r", "\x15", "\x03"
PLATFORMS = [spec.name for spec in find_platforms()]  # in the order of the question
NO_PLATFORM = DOWN * len(PLATFORMS) + ENTER
NO_VECTORS = DOWN + ENTER  # no model that finds memories by their meaning
KEY = "the-key-of-the-server"
DEADLINE = 60.0


class ModelHandler(BaseHTTPRequestHandler):
    """Answers as a server with OpenAI's API does; it needs a key if the server has one."""

    def do_GET(self) -> None:
        """List the models."""
        needed = getattr(self.server, "needed_key", "")
        if needed and self.headers.get("Authorization") != f"Bearer {needed}":
            self.reply({"error": {"message": "no"}}, status=401)
        else:
            self.reply({"data": [{"id": "nomic-embed-text"}, {"id": "tiny-1"}, {"id": "large-7"}]})

    def do_POST(self) -> None:
        """Write one word."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if request["model"] == "large-7":
            self.reply({"error": {"message": "out of memory"}}, status=400)
            return
        message = {"role": "assistant", "content": "ready"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": request["model"]}
        self.reply({**answer, "choices": [choice], "usage": usage})

    def reply(self, document: object, *, status: int = 200) -> None:
        """Send a document."""
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def model_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    """Run a model server."""
    monkeypatch.setenv("SERVER_PORT", "0")
    server = ThreadingHTTPServer(("127.0.0.1", 0), ModelHandler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(DEADLINE)
        server.server_close()


@contextmanager
def emulated_telegram() -> Iterator[Mapping[str, str]]:
    """Run an emulated Telegram in another thread; yield the variables of its bot."""
    loop, is_ready, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: dict[str, str] = {}

    async def run_emulator() -> None:
        async with start_emulator(["Robin"]) as emulator:
            found.update(emulator.settings["Robin"])
            is_ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run_emulator(),))
    thread.start()
    try:
        assert is_ready.wait(DEADLINE)
        yield found
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(DEADLINE)
        loop.close()


def port_of(server: ThreadingHTTPServer) -> int:
    return int(server.server_address[1])


@contextmanager
def typed(keys: str) -> Iterator[io.StringIO]:
    """Type these keys; yield what the terminal shows."""
    screen = io.StringIO()
    output = Vt100_Output(screen, lambda: Size(rows=40, columns=120), term="xterm", enable_cpr=False)
    with create_pipe_input() as pipe, create_app_session(pipe, output):
        pipe.send_text(keys)
        yield screen


def answer_questions(keys: str, *ports: int) -> str:
    """Run the guide with these keys; return what the terminal showed."""
    with typed(keys) as screen:
        run_guide(ports)
    return screen.getvalue()


@pytest.mark.parametrize(("keys", "answer"), [("\r", "Ada"), ("Robin\r", "Robin"), ("  \r", "Ada"), ("\x1b", None)])
def test_typing_replaces_what_is_suggested_and_enter_alone_takes_it(keys: str, answer: str | None) -> None:
    with typed(keys) as screen:
        assert ask_text("Its name:", default="Ada") == answer
    assert "Ada" in screen.getvalue()


def test_a_variable_is_changed_where_it_stands_and_every_other_line_stays(workdir: Path) -> None:
    file = workdir / ".env"
    file.write_bytes(b"# mine\nFIRST='1'\n\n  export TOKEN=old # new at Easter\nODD LINE\nLAST=\"two\nlines\"")
    file.chmod(0o644)
    write_variables({"TOKEN": "it's \\ new #1", "ADDED": "x=1", "BLANK": ""}, file)
    assert file.read_text() == (
        "# mine\nFIRST='1'\n\n  export TOKEN='it\\'s \\\\ new #1'\nODD LINE\nLAST=\"two\nlines\"\nADDED='x=1'\n"
    )
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(workdir.iterdir()) == [file]
    assert (load_settings().get("TOKEN"), load_settings().get("LAST")) == ("it's \\ new #1", "two\nlines")


def test_a_file_of_another_system_keeps_its_line_ends_and_a_link_stays_a_link(workdir: Path) -> None:
    target, link = workdir / "target", workdir / ".env"
    target.write_bytes(b"\xef\xbb\xbfA=1\r\nB=2\r\n")
    link.symlink_to(target)
    write_variables({"B": "3", "C": "4"}, link)
    assert link.is_symlink()
    assert target.read_bytes() == b"\xef\xbb\xbfA=1\r\nB=3\r\nC=4\r\n"


def test_a_value_that_no_line_can_hold_is_refused_without_showing_it(workdir: Path) -> None:
    with pytest.raises(SettingError) as refused:
        write_variables({"TOKEN": "secret\nOTHER=1"}, workdir / ".env")
    assert "secret" not in str(refused.value)
    assert not list(workdir.iterdir())


async def test_model_servers_of_this_machine_are_found_with_their_models_for_text(
    model_server: ThreadingHTTPServer,
) -> None:
    [found] = await find_servers([port_of(model_server), 9])
    assert found.models == ("tiny-1", "large-7")
    values = {name: value for name, value in found.variables("tiny-1").items() if value}
    url = f"http://127.0.0.1:{port_of(model_server)}/v1"
    assert values == {"OPENAI_BASE_URL": url, "OPENAI_SMALL_MODEL": "tiny-1", "OPENAI_LARGE_MODEL": "tiny-1"}
    assert (await find_server(url)).models == found.models


async def test_a_server_that_refuses_the_key_is_reported_without_it(model_server: ThreadingHTTPServer) -> None:
    model_server.needed_key = KEY  # type: ignore[attr-defined]
    url = f"http://127.0.0.1:{port_of(model_server)}"
    with pytest.raises(TemporaryError, match="needs a key"):
        await find_server(url)
    with pytest.raises(TemporaryError, match="refuses the key") as refused:
        await find_server(url, "another-key")
    assert "another-key" not in str(refused.value)
    assert (await find_server(url, KEY)).models


def test_without_a_terminal_nothing_is_asked(capsys: Out) -> None:
    assert entry(["init"]) == Exit.USAGE
    assert "--yes" in capsys.readouterr().err


def test_a_value_that_is_wrong_is_refused_before_anything_is_written(workdir: Path, capsys: Out) -> None:
    assert entry(["init", "--yes", "--name", "Robin", "--telegram-token", "not-a-token-at-all"]) == Exit.CONFIG
    output = capsys.readouterr().out
    assert "TELEGRAM_BOT_TOKEN" in output
    assert "not-a-token-at-all" not in output
    assert not list(workdir.iterdir())


@pytest.mark.long
def test_a_model_that_does_not_answer_is_not_written(
    workdir: Path, model_server: ThreadingHTTPServer, capsys: Out
) -> None:
    url = f"http://127.0.0.1:{port_of(model_server)}"
    code = entry(["init", "--yes", "--name", "Robin", "--model-url", url, "--model", "large-7"])
    assert code in (Exit.CONFIG, Exit.TRY_AGAIN)
    assert "out of memory" in capsys.readouterr().out
    assert (workdir / ".env").read_text() == "BOT_CHARACTER=robin.json\n"


@pytest.mark.long
def test_the_guide_offers_a_way_back_writes_each_answer_and_never_shows_a_secret(
    workdir: Path, model_server: ThreadingHTTPServer, capsys: Out
) -> None:
    with emulated_telegram() as telegram:
        (workdir / ".env").write_text(f"TELEGRAM_API_BASE_URL={telegram['TELEGRAM_API_BASE_URL']}\n")
        name = ENTER + CLEAR_LINE + "Robin" + ENTER
        back = DOWN * 8 + ENTER + ENTER  # Back, then the character that is now set
        model = ENTER + ENTER + ENTER  # the server, its first model, and the model for vectors on this computer
        platform = DOWN * PLATFORMS.index("telegram") + ENTER + telegram["TELEGRAM_BOT_TOKEN"] + ENTER + ENTER
        screen = answer_questions(name + back + model + platform, port_of(model_server))
    settings = load_settings()
    assert settings.get("BOT_CHARACTER") == "robin.json"
    assert settings.get("OPENAI_LARGE_MODEL") == "tiny-1"
    assert settings.get("EMBEDDINGS_MODEL") == "multilingual-e5-small"
    assert settings.get("TELEGRAM_BOT_TOKEN") == telegram["TELEGRAM_BOT_TOKEN"]
    output = capsys.readouterr().out
    assert "BotFather" in output
    assert "@robin_bot" in output
    assert telegram["TELEGRAM_BOT_TOKEN"] not in screen + output


@pytest.mark.long
def test_an_interrupted_guide_goes_on_where_it_was(
    workdir: Path, model_server: ThreadingHTTPServer, capsys: Out
) -> None:
    with pytest.raises(KeyboardInterrupt):
        answer_questions(ENTER + CLEAR_LINE + "Robin" + ENTER + CONTROL_C, port_of(model_server))
    assert (workdir / ".env").read_text() == "BOT_CHARACTER=robin.json\n"
    answer_questions(ENTER + ENTER + NO_VECTORS + NO_PLATFORM, port_of(model_server))
    assert "character: Robin (robin.json)" in capsys.readouterr().out
    assert load_settings().get("OPENAI_LARGE_MODEL") == "tiny-1"


def test_a_character_file_that_is_gone_is_chosen_again(
    workdir: Path, model_server: ThreadingHTTPServer, capsys: Out
) -> None:
    (workdir / ".env").write_text("BOT_CHARACTER=gone.json\nOPENAI_API_KEY=not-a-real-key\n")
    answer_questions(ENTER + CLEAR_LINE + "Robin" + ENTER + ENTER + NO_PLATFORM, port_of(model_server))
    assert "there is no file gone.json" in capsys.readouterr().out
    assert (workdir / ".env").read_text() == "BOT_CHARACTER=robin.json\nOPENAI_API_KEY=not-a-real-key\n"


@pytest.mark.long
def test_options_alone_set_up_a_character_a_model_and_a_platform_and_the_doctor_is_content(
    workdir: Path, model_server: ThreadingHTTPServer, capsys: Out
) -> None:
    with emulated_telegram() as telegram:
        options = ["--name", "Robin", "--local-ports", str(port_of(model_server))]
        options += ["--telegram-token", telegram["TELEGRAM_BOT_TOKEN"]]
        options += ["--set", f"TELEGRAM_API_BASE_URL={telegram['TELEGRAM_API_BASE_URL']}"]
        assert entry(["init", "--yes", *options]) == Exit.OK
        written = (workdir / ".env").read_text()
        assert entry(["init", "--yes", *options]) == Exit.OK  # again, as after an interruption
    assert (workdir / ".env").read_text() == written
    assert written.splitlines()[-1] == f"TELEGRAM_BOT_TOKEN={telegram['TELEGRAM_BOT_TOKEN']}"
    output = capsys.readouterr().out
    assert re.search("Start it with: .*bot run", output)
    assert telegram["TELEGRAM_BOT_TOKEN"] not in output


@pytest.mark.long
def test_keys_that_a_platform_refuses_are_not_written(
    workdir: Path, model_server: ThreadingHTTPServer, capsys: Out
) -> None:
    with emulated() as emulator:
        emulator.is_revoked = True
        options = [part for name, value in emulator.environment.items() for part in ("--set", f"{name}={value}")]
        port = str(port_of(model_server))
        assert entry(["init", "--yes", "--name", "Robin", "--local-ports", port, *options]) == Exit.CONFIG
        secret = emulator.environment["X_ACCESS_TOKEN_SECRET"]
    output = capsys.readouterr().out
    assert "x is not connected" in output
    assert secret not in output + (workdir / ".env").read_text()


CARD = {
    "name": "Mara",
    "bio": ["keeper of a lighthouse"],
    "nam": "x",
    "settings": {"voice": {"model": "en"}, "secrets": {"OPENAI_API_KEY": KEY, "SERVER_TOKEN": "of-a-stranger"}},
}


@pytest.fixture
def card(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a character file with keys into another folder; return its path."""
    monkeypatch.setenv("SERVER_PORT", "0")
    (workdir / "cards").mkdir()
    (workdir / "cards/mara.json").write_text(json.dumps(CARD))
    return "cards/mara.json"


@pytest.mark.long
def test_an_import_is_reported_and_a_key_that_is_found_is_written_to_the_env_file(
    workdir: Path, card: str, capsys: Out
) -> None:
    entry(["init", "--yes", "--import", card, "--local-ports", "1"])
    output = capsys.readouterr().out
    for line in (
        f"{card}: Mara (v1)",
        "warning  line 1: nam: is not a field; did you mean 'name'?",
        "secret   line 1: settings.secrets.OPENAI_API_KEY: removed from the character",
        "ignored  line 1: settings.voice: has no effect",
        "kept     line 1: nam: is not a field of a character; kept unchanged",
        "wrote    mara.json",
        f"SERVER_TOKEN is the operator's: the one of {card} is not used",
        "wrote OPENAI_API_KEY to .env",
    ):
        assert line in output
    assert (workdir / ".env").read_text() == f"OPENAI_API_KEY={KEY}\nBOT_CHARACTER=mara.json\n"
    assert (workdir / ".env").stat().st_mode & 0o077 == 0
    assert KEY not in output + (workdir / "mara.json").read_text()


@pytest.mark.long
@pytest.mark.parametrize(("answer", "is_written"), [(ENTER, True), (DOWN + ENTER, False)])
def test_the_guide_asks_once_whether_a_key_is_written(
    workdir: Path, model_server: ThreadingHTTPServer, card: str, capsys: Out, answer: str, is_written: bool
) -> None:
    with pytest.raises(KeyboardInterrupt):
        answer_questions(DOWN + ENTER + card + ENTER + answer + CONTROL_C, port_of(model_server))
    output = capsys.readouterr().out
    assert f"{card}: Mara (v1)" in output
    assert ("not written: OPENAI_API_KEY" in output) is not is_written
    assert (f"OPENAI_API_KEY={KEY}" in (workdir / ".env").read_text()) is is_written


def test_a_key_of_an_imported_file_replaces_none_that_is_set(workdir: Path, card: str, capsys: Out) -> None:
    (workdir / ".env").write_text("OPENAI_API_KEY=my-own-key-here\n")
    entry(["init", "--yes", "--import", card, "--local-ports", "1"])
    assert f"OPENAI_API_KEY is set already: the one of {card} is not used" in capsys.readouterr().out
    assert (workdir / ".env").read_text() == "OPENAI_API_KEY=my-own-key-here\nBOT_CHARACTER=mara.json\n"


@pytest.mark.parametrize("layout", ["on the path", "in the folder", "another program on the path", "a module"])
def test_the_command_that_starts_the_bot_is_a_command_that_a_shell_finds(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    python, script, other = workdir / "venv/bin/python", workdir / "venv/bin/bot", workdir / "other/bot"
    for file in (python, other) if layout == "a module" else (python, script, other):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\n")
        file.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.setattr("sys.argv", ["-m"])
    folders = {"on the path": "venv/bin", "in the folder": "none"}
    monkeypatch.setenv("PATH", str(workdir / folders.get(layout, "other")))
    expected = {"on the path": "bot", "a module": f"{python} -m bot"}
    assert program() == expected.get(layout, "venv/bin/bot")


def test_the_price_of_a_model_on_this_machine_is_no_warning(
    workdir: Path, model_server: ThreadingHTTPServer, capsys: Out
) -> None:
    options = ["--name", "Robin", "--model-url", f"http://127.0.0.1:{port_of(model_server)}", "--model", "tiny-1"]
    entry(["init", "--yes", *options])
    output = capsys.readouterr().out
    assert output.count("tiny-1: your own server, without a price") == 2  # tried by the set-up, and by the doctor
    assert "MODEL_PRICES=" not in output
