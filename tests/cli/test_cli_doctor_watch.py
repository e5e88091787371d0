"""`bot doctor` with a running bot, and `bot doctor --watch`: what needs attention there, as it changes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapters.web import spec as web
from adapters.web.adapter import WebAdapter
from bot.cli.characters import CharacterConfig, load_character_config
from bot.cli.commands.doctor import check_running_bot, watch_running_bot
from bot.errors import ConfigError
from bot.runtime.runtime import Runtime
from bot.settings import Layer

Out = pytest.CaptureFixture[str]


@asynccontextmanager
async def running_bot() -> AsyncIterator[tuple[Runtime, CharacterConfig]]:
    """Run a character with its server; return the configuration with which a command finds it."""
    await asyncio.to_thread(Path("ada.json").write_text, '{"name": "Ada"}', encoding="utf-8")
    config = load_character_config(Path("ada.json"), Layer("the test", {"SERVER_PORT": "0"}))
    async with Runtime([config.agent_config], [web]) as runtime:
        [adapter] = runtime.adapters
        assert isinstance(adapter, WebAdapter)
        yield runtime, load_character_config(Path("ada.json"), Layer("the test", {"SERVER_PORT": str(adapter.port)}))


async def test_the_findings_name_what_needs_attention_at_the_running_bot(workdir: Path) -> None:
    async with running_bot() as (runtime, config):
        [finding] = await asyncio.to_thread(lambda: list(check_running_bot(config)))
        assert (finding.status, finding.message) == ("ok", "the bot runs, and nothing needs attention")
        runtime.inactive["x"] = "the keys are refused"
        [finding] = await asyncio.to_thread(lambda: list(check_running_bot(config)))
        assert (finding.status, finding.message, finding.advice) == ("fail", "X is off.", "The keys are refused.")
    assert list(check_running_bot(config)) == []


@pytest.mark.parametrize("as_json", [True, False])
async def test_what_begins_and_what_is_over_is_printed_once(workdir: Path, capsys: Out, as_json: bool) -> None:
    async with running_bot() as (runtime, config):
        looks = iter(["", "the keys are refused", "the keys are refused", ""])

        def sleep(seconds: float) -> None:
            cause = next(looks, None)
            if cause is None:
                raise KeyboardInterrupt
            runtime.inactive.clear()
            runtime.inactive.update({"x": cause} if cause else {})

        assert await asyncio.to_thread(watch_running_bot, config, as_json=as_json, sleep=sleep) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    if as_json:
        assert [json.loads(line)["kind"] for line in lines] == ["began", "over"]
        assert json.loads(lines[0])["key"] == "account:x"
    else:
        assert lines[0].endswith("began  X is off. The keys are refused.")


async def test_a_bot_that_does_not_answer_is_reported_and_a_bot_that_cannot_be_asked_is_refused(
    workdir: Path, capsys: Out
) -> None:
    async with running_bot() as (_, config):
        pass

    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    assert watch_running_bot(config, sleep=stop) == 0
    assert "no bot answers at http://127.0.0.1" in capsys.readouterr().out
    nowhere = load_character_config(Path("ada.json"), Layer("the test", {"SERVER_PORT": "0"}))
    with pytest.raises(ConfigError, match="SERVER_PORT is 0"):
        watch_running_bot(nowhere, sleep=stop)
