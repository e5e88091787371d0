"""Calls a tool again and again while its server and the bot are killed; counts what arrived twice.

`python -m tests.plugins.mcp.campaign --calls 1000 --kills 100`. The server ends itself before and after it has
recorded a call, by chance; the bot, a fork of this process with a SQLite file, is killed while calls are under
way, and started again until each message has its outcome. Every call may not be repeated (effect unsafe).
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bot import Character, Outcome, Settings, derived_id
from bot.models import Purpose, TextRequest
from bot.platform import Backoff
from bot.settings import Layer
from bot.testing import ScriptedModel, model_answer, running_agent
from plugins.mcp import connection, plugin
from plugins.sql import plugin as sql
from tests.plugins.mcp.servers import RawServer, describe_tool

MAX_AT_ONCE = 8
MAX_STARTS = 10_000
ASKED = re.compile(r"please record (k\d+)\.")


@dataclass(frozen=True)
class Verdict:
    """What a campaign has found; `repeated` and `wrong` must be empty."""

    calls: int
    kills: int
    deaths: int
    recorded: int
    unknown: int
    repeated: list[str]
    wrong: list[str]
    seconds: float


def run_campaign(folder: Path, *, calls: int, kills: int, seed: int = 1, death_rate: float = 0.05) -> Verdict:
    """Carry out a campaign in a folder and return the verdict."""
    chance, started = random.Random(seed), time.monotonic()
    server = RawServer(folder)
    server.offer(describe_tool("record", "key"))
    server.config["env"] |= {"DEATH_RATE": str(death_rate), "DEATHS": str(folder / "deaths.txt")}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"raw": server.config}}), encoding="utf-8")
    kills_left = kills
    for _ in range(MAX_STARTS):
        done = _read(folder / "done.txt")
        if len(done) >= calls:
            break
        steps = chance.randrange(1, max(2, 2 * (calls - len(done)) // (kills_left + 1))) if kills_left else 0
        if _run_bot(folder, calls, kill_after=steps, delay=chance.random() * 0.05):
            kills_left -= 1
    return _judge(folder, server, calls, kills - kills_left, time.monotonic() - started)


def _read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def _run_bot(folder: Path, calls: int, *, kill_after: int, delay: float) -> bool:
    """Run the bot in a fork, and kill it after that many outcomes; return whether it was killed."""
    reading, writing = os.pipe()
    process_id = os.fork()
    if process_id == 0:
        os.close(reading)
        code = 1
        try:
            asyncio.run(_process_all(folder, calls, writing))
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb", buffering=0) as progress:
        seen = 0
        while progress.read(1):
            seen += 1
            if seen == kill_after:
                time.sleep(delay)
                os.kill(process_id, signal.SIGKILL)
                os.waitpid(process_id, 0)
                return True
    _, status = os.waitpid(process_id, 0)
    assert status == 0, f"the bot ended with status {status}"
    return False


async def _process_all(folder: Path, calls: int, progress: int) -> None:
    """Send a message for each call without an outcome, and wait for its outcome; runs in the fork."""
    connection.BACKOFF = Backoff(0.02, 0.1)  # type: ignore[misc]  # so that the campaign does not wait
    settings = Settings([Layer("the campaign", {"DATABASE_URL": f"sqlite:///{folder / 'bot.db'}"})])
    finished = set(_read(folder / "done.txt"))
    places = asyncio.Semaphore(MAX_AT_ONCE)

    def answer(request: TextRequest) -> str:
        if request.purpose is Purpose.REPLY:
            return model_answer(actions=("RAW_RECORD",), parameters={"key": ASKED.findall(request.prompt)[-1]})
        key = ASKED.findall(request.prompt)[-1]
        results = (("outcome unknown", "unknown"), ("nothing was done", "nothing"), (f"recorded {key}", "recorded"))
        found = next((name for text, name in results if text in request.prompt), "other")
        with (folder / "told.txt").open("a", encoding="utf-8") as file:
            file.write(f"{key}={found}\n")
        return model_answer(found)

    async with (
        sql.store.open(derived_id("campaign"), settings) as store,  # type: ignore[union-attr]
        running_agent(
            plugin,
            character=Character(name="Ada"),
            model=ScriptedModel(answer),
            store=store,
            settings={"MCP_SERVERS": str(folder / "mcp.json")},
        ) as agent_harness,
    ):

        async def ask(key: str) -> None:
            async with places:
                receipt = await agent_harness.send(f"please record {key}.", room=key, message_id=key)
            assert receipt.outcome is Outcome.ANSWERED, receipt
            with (folder / "done.txt").open("a", encoding="utf-8") as file:
                file.write(f"{key}\n")
            os.write(progress, b".")

        async with asyncio.TaskGroup() as tasks:
            for number in range(calls):
                if f"k{number}" not in finished:
                    tasks.create_task(ask(f"k{number}"))


def _judge(folder: Path, server: RawServer, calls: int, kills: int, seconds: float) -> Verdict:
    recorded = Counter(server.recorded())
    outcomes = dict(line.split("=") for line in _read(folder / "told.txt"))
    wrong = [key for key, found in outcomes.items() if found == "other"]
    wrong += [key for key, found in outcomes.items() if found == "recorded" and not recorded[key]]
    wrong += [key for key, found in outcomes.items() if found == "nothing" and recorded[key]]
    wrong += [f"k{number}" for number in range(calls) if f"k{number}" not in outcomes]
    return Verdict(
        calls=calls,
        kills=kills,
        deaths=len(_read(folder / "deaths.txt")),
        recorded=len(recorded),
        unknown=sum(found == "unknown" for found in outcomes.values()),
        repeated=[key for key, count in recorded.items() if count > 1],
        wrong=wrong,
        seconds=seconds,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one campaign and print what was found; 1 if a call was repeated or reported wrongly."""
    parser = argparse.ArgumentParser(prog="python -m tests.plugins.mcp.campaign", description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=100, help="of the bot")
    parser.add_argument("--death-rate", type=float, default=0.05, help="chance of the server's end before, and after")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="mcp-") as folder:
        verdict = run_campaign(
            Path(folder), calls=given.calls, kills=given.kills, seed=given.seed, death_rate=given.death_rate
        )
    sys.stdout.write(
        f"{verdict.calls} calls, {verdict.kills} kills of the bot, {verdict.deaths} deaths of the server, "
        f"{verdict.seconds:.0f} s: {verdict.recorded} carried out, {verdict.unknown} told as unknown, "
        f"{len(verdict.repeated)} repeated, {len(verdict.wrong)} told wrongly\n"
    )
    for key in (*verdict.repeated[:5], *verdict.wrong[:5]):
        sys.stdout.write(f"  {key}\n")
    return 1 if verdict.repeated or verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
