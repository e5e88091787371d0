"""`bot run --emulate`: emulated platforms, isolated from real accounts and data."""

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, ClientTimeout

from bot.cli.characters import list_platforms, load_character_config, parse_emulators
from bot.cli.commands.run import EmulatedRun, bypass_proxy, run_emulators
from bot.cli.main import entry
from bot.cli.process.shutdown import UsageError
from bot.inbound.agent_handle import AdapterSpec
from bot.plugin_system.loading import find_adapters
from bot.settings import Layer, Settings

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
DEADLINE = 120.0
REAL = {
    "DISCORD_API_TOKEN": "a-real-discord-token",
    "DISCORD_API_BASE_URL": "https://discord.example",
    "CHANNEL_IDS": "1234567890",
    "TELEGRAM_BOT_TOKEN": "4711:a-real-telegram-token",
    "TELEGRAM_API_BASE_URL": "https://telegram.example",
    "TELEGRAM_ALLOWED_CHATS": "-100123",
    "TELEGRAM_WEBHOOK_URL": "https://hook.example",
    "TELEGRAM_WEBHOOK_SECRET": "a-real-webhook-secret",
    "X_API_KEY": "a-real-x-api-key",
    "X_API_SECRET": "a-real-x-api-secret",
    "X_ACCESS_TOKEN": "99-a-real-x-access-token",
    "X_ACCESS_TOKEN_SECRET": "a-real-x-access-token-secret",
    "X_API_BASE_URL": "https://x.example",
    "X_TARGET_USERS": "somebody_real",
    "X_DRY_RUN": "true",
    "DATABASE_URL": "sqlite:///real.db",
    "POSTGRES_URL": "postgresql://real.example/bot",
}
PLATFORMS = ("discord", "telegram", "x")


def character(folder: Path, name: str = "Ada", **more: object) -> Path:
    path = folder / f"{name}{len(list(folder.glob('*.json')))}.json"
    path.write_text(json.dumps({"name": name, **more}), encoding="utf-8")
    return path


@asynccontextmanager
async def start_emulated_bot(*args: str, **environment: str) -> AsyncIterator[tuple[Process, list[str]]]:
    """Start the program on emulated platforms; return it with the lines it prints at the start."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot", "run", *args),
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=PIPE,
        stderr=PIPE,
    )
    lines: list[str] = []
    try:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE):
            while not lines or not lines[-1].startswith("  x "):
                line = await process.stdout.readline()
                assert line, (lines, process.stderr and (await process.stderr.read()).decode())
                lines.append(line.decode().rstrip())
        yield process, lines
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def pages(lines: Sequence[str]) -> dict[str, str]:
    urls = (re.fullmatch(r"(\w+) is emulated: open (\S+) to talk", line) for line in lines)
    return {output_line[1]: output_line[2] for output_line in urls if output_line}


async def wait_for_reply(http: ClientSession, page: str, room: str = "") -> list[dict[str, Any]]:
    async with http.get(f"{page}page/shown", params={"place": room}) as answer:
        state: Mapping[str, Any] = await answer.json()
    return list(state["said"])


async def say(http: ClientSession, page: str, text: str) -> None:
    """Send a message in the first room of the page; return the reply."""
    while not await wait_for_reply(http, page):
        async with http.post(f"{page}page/say", json={"text": text}) as answer:
            assert answer.status == 200 or "not connected yet" in (await answer.json())["problem"]


async def test_open_shows_the_signed_in_page_in_the_browser_and_says_where_there_is_none(workdir: Path) -> None:
    browser, pipe = workdir / "browser", workdir / "opened"
    os.mkfifo(pipe)
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {pipe}\n', encoding="utf-8")
    browser.chmod(0o755)
    args = ("-c", str(character(workdir)), "--emulate", "x", "--only", "web,x", "--open")
    environment = {"SERVER_PORT": "0", "SERVER_TOKEN": "a-token-to-open", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    async with start_emulated_bot(*args, **environment, BROWSER=str(browser)), asyncio.timeout(DEADLINE):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=a-token-to-open", await asyncio.to_thread(pipe.read_text))
    async with start_emulated_bot(*args, **environment, BROWSER="") as (process, _lines):
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE):
            assert b"no browser was found on this machine" in await process.stdout.readline()


async def test_a_character_answers_on_every_emulated_page_and_leaves_no_data(workdir: Path) -> None:
    file = character(workdir, adapters=["web"], settings={"secrets": {"DISCORD_API_TOKEN": "the-files-token"}})
    args = ("-c", str(file), "--emulate", "discord,telegram,x", "--only", "discord,telegram,x")
    async with start_emulated_bot(*args, **REAL, HTTP_PROXY="http://127.0.0.1:9") as (process, lines):
        urls = pages(lines)
        assert list(urls) == list(PLATFORMS)
        assert lines[3] == "nothing leaves this machine; no account and no key is needed"
        folder = re.search(r"stores its data in (\S+) and removes", lines[4])
        assert folder is not None
        assert os.listdir(folder[1])
        assert all(f"emulated: {url}" in "\n".join(lines) for url in urls.values())
        assert process.stderr is not None
        stderr = ""
        async with ClientSession(timeout=ClientTimeout(DEADLINE)) as http, asyncio.timeout(DEADLINE):
            for name, text in {"discord": "hello", "telegram": "hello", "x": "@ada hello"}.items():
                await say(http, urls[name], text)
            while stderr.count(": answered:") < len(PLATFORMS):
                stderr += (await process.stderr.readline()).decode()
            for url in urls.values():
                while not (await wait_for_reply(http, url))[-1]["is_bot"]:
                    pass
            process.send_signal(signal.SIGTERM)
            stderr += (await process.stderr.read()).decode()
            assert await process.wait() == 0, stderr
    assert "Traceback" not in stderr
    assert not [value for value in REAL.values() if value in stderr and value != "true"]
    assert os.path.basename(folder[1]) not in os.listdir(os.path.dirname(folder[1]))
    assert os.listdir(workdir) == [file.name]


async def test_real_settings_are_hidden(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))  # where the proxies are, too
    file = character(workdir)
    found = find_adapters()
    specs = [spec for name in PLATFORMS if isinstance(spec := found[name], AdapterSpec)]
    real = Settings([Layer("the environment", REAL)])
    async with run_emulators(specs, [file]) as harness:
        covered = real.with_layer(harness.layers[0])
        values = {name: covered.get(name) for name in REAL}
        for spec in specs:
            covered.load(spec.settings)
    assert not {value for value in values.values() if value} & set(REAL.values())
    assert all(covered.get(name) is None for name in ("DATABASE_URL", "POSTGRES_URL", "CHANNEL_IDS"))
    assert {str(values[f"{name}_API_BASE_URL"])[:17] for name in ("DISCORD", "TELEGRAM", "X")} == {"http://127.0.0.1:"}
    assert covered.get("BOT_DATA_DIR") == str(harness.folder)


async def test_several_characters_have_separate_accounts(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    files = [character(workdir), character(workdir, "Bo"), character(workdir)]
    for spec in (
        adapter for adapter in find_adapters().values() if isinstance(adapter, AdapterSpec) and adapter.emulator
    ):
        async with run_emulators([spec], files) as harness:
            accounts = {layer.values[spec.needs[-1]] for layer in harness.layers}
            tokens = {tuple(layer.values[name] for name in spec.needs) for layer in harness.layers}
        assert len(tokens) == 3, (spec.name, accounts)


@pytest.mark.parametrize(("name", "value"), [("DISCORD_FACES", "webhook"), ("TELEGRAM_FACES", "name")])
@pytest.mark.parametrize("is_in_file", [False, True])
async def test_characters_that_share_an_account_share_the_emulated_account(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, is_in_file: bool
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, **({} if is_in_file else {name: value})})
    more = {"settings": {name: value}} if is_in_file else {}
    files = [character(workdir, "Ada", **more), character(workdir, "Bo", **more)]
    [spec] = [item for item in find_adapters().values() if isinstance(item, AdapterSpec) and item.faces_setting == name]
    async with run_emulators([spec], files) as harness:
        tokens = {tuple(layer.values[needed] for needed in spec.needs) for layer in harness.layers}
    assert len(harness.layers) == 2
    assert len(tokens) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "web",
            "'web' is not a platform with an emulator: available: discord, farcaster, mastodon, matrix, telegram, x",
        ),
        ("discrod", "did you mean 'discord'"),
        (",", "--emulate needs one or more of discord,farcaster,mastodon,matrix,telegram,x"),
    ],
)
def test_a_platform_without_an_emulator_is_a_usage_error(text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=re.escape(expected)):
        parse_emulators(text)


@pytest.mark.parametrize(
    ("only", "expected"), [("telegram", "connects to no real platform"), ("web", "add it to --only")]
)
def test_contradicting_only_and_emulate_options_are_refused(
    only: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry(["run", "--emulate", "discord", "--only", only]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "127.0.0.1"),
        ({"NO_PROXY": "intranet.example"}, "127.0.0.1,intranet.example"),
        ({"no_proxy": "lower.example", "NO_PROXY": "upper.example"}, "127.0.0.1,lower.example"),
    ],
)
def test_the_loopback_address_bypasses_proxies(before: dict[str, str], after: str) -> None:
    environment = {**before}
    bypass_proxy(environment)
    assert environment == {"NO_PROXY": after, "no_proxy": after}


def test_an_emulated_run_names_the_called_model(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-only-for-tests")
    lines = list(EmulatedRun({}, (), workdir).summary_lines([load_character_config(character(workdir))]))
    assert lines[0] == "nothing leaves this machine except model calls (openai)"


def test_an_emulated_run_turns_real_platforms_off(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in REAL.items():
        monkeypatch.setenv(name, value)
    found = list_platforms([load_character_config(character(workdir))], emulator_urls={"x": "http://127.0.0.1:1/"})
    assert [platform.name for platform in found if platform.is_on] == ["web", "x"]
    assert {platform.off_reason for platform in found if not platform.is_on} == {
        "not emulated: an emulated run connects to no real platform"
    }
