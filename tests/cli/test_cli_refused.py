"""`bot run` ends where every account is refused, and runs on where that may pass or something else is connected."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapters.discord.emulator import Emulator, Fault
from adapters.telegram.emulator import Emulator as TelegramEmulator
from adapters.x.emulator import Emulator as XEmulator

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
X_KEYS = {
    "X_API_KEY": "only-for-tests",
    "X_API_SECRET": "only-for-tests",
    "X_ACCESS_TOKEN": "99-only-for-tests",
    "X_ACCESS_TOKEN_SECRET": "only-for-tests",
}


@asynccontextmanager
async def running(only: str, environment: Mapping[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot", "run", "--only", only),
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def refused(only: str, environment: Mapping[str, str]) -> str:
    """Run the program, which must end with 78; return its last error message."""
    async with running(only, environment) as process, asyncio.timeout(60):
        _, errors = await process.communicate()
        text = errors.decode()
        assert process.returncode == 78, text
        assert "Traceback" not in text
        return text[text.index("nothing is connected:") :]


async def test_a_wrong_token_of_discord_ends_the_program_with_the_reason() -> None:
    async with Emulator() as discord:
        output = await refused("discord", {"DISCORD_API_TOKEN": "wrong", "DISCORD_API_BASE_URL": discord.url})
    assert "set DISCORD_API_TOKEN" in output


async def test_refused_intents_end_the_program_with_the_reason() -> None:
    async with Emulator() as discord:
        discord.add_bot("Ada", "only-for-tests")
        discord.gateway.allowed_intents = 0
        output = await refused("discord", {"DISCORD_API_TOKEN": "only-for-tests", "DISCORD_API_BASE_URL": discord.url})
    assert "Message Content Intent" in output


async def test_where_every_platform_is_refused_each_reason_is_given() -> None:
    async with Emulator() as discord, TelegramEmulator() as telegram:
        environment = {
            "DISCORD_API_TOKEN": "wrong",
            "DISCORD_API_BASE_URL": discord.url,
            "TELEGRAM_BOT_TOKEN": "4711:wrong-and-only-for-tests-abcdefghijk",
            "TELEGRAM_API_BASE_URL": telegram.url,
        }
        output = await refused("discord,telegram", environment)
    assert "DISCORD_API_TOKEN" in output
    assert "TELEGRAM_BOT_TOKEN" in output


async def test_refused_keys_of_x_end_the_program_with_the_reason() -> None:
    async with XEmulator() as x:
        output = await refused("x", {**X_KEYS, "X_API_BASE_URL": x.url})
    assert "X refuses the keys" in output


@pytest.mark.parametrize(("status", "body"), [(401, "<html>log in</html>"), (403, "<html>denied</html>"), (503, {})])
async def test_what_may_pass_is_tried_again(status: int, body: object) -> None:
    async with Emulator() as discord:
        discord.add_bot("Ada", "only-for-tests")
        discord.faults.append(Fault("GET .*/users/@me$", status, body, times=2))
        environment = {"DISCORD_API_TOKEN": "only-for-tests", "DISCORD_API_BASE_URL": discord.url}
        async with running("discord", environment) as process, asyncio.timeout(60):
            await discord.recorder.wait_until(lambda: discord.recorder.counts["ready"] > 0)
            assert process.returncode is None


async def test_a_refused_platform_does_not_end_what_another_platform_does() -> None:
    async with Emulator() as discord, TelegramEmulator() as telegram:
        discord.add_bot("Ada", "only-for-tests")
        environment = {
            "DISCORD_API_TOKEN": "only-for-tests",
            "DISCORD_API_BASE_URL": discord.url,
            "TELEGRAM_BOT_TOKEN": "4711:wrong-and-only-for-tests-abcdefghijk",
            "TELEGRAM_API_BASE_URL": telegram.url,
        }
        async with running("discord,telegram", environment) as process, asyncio.timeout(60):
            assert process.stderr is not None
            while b"is off telegram" not in await process.stderr.readline():
                pass
            await discord.recorder.wait_until(lambda: discord.recorder.counts["ready"] > 0)
            assert process.returncode is None
