"""What the pages Plugins, Settings and Doctor cost the running program."""

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession

from bot.plugin_system.loading import bundled_plugins
from tests.chaos.program import inherited_variables
from tests.ports import free_port

TOKEN = "a-token-for-the-tests"
DEADLINE = 60.0
ANSWER_SECONDS = 0.5
USED = {"bootstrap", "offline"}
SETTINGS = {"OPENAI_SMALL_MODEL": "gpt-5-mini", "WEATHER_CITY": "Graz"}  # of plugins that are off


def install_plugin(folder: Path) -> None:
    """Write a distribution with a plugin that leaves a file when it is imported."""
    (folder / "weather_plugin.py").write_text("open('imported', 'w').close()\nraise ImportError('broken')\n")
    package = folder / "weather-1.dist-info"
    package.mkdir()
    metadata = "Metadata-Version: 2.1\nName: weather\nVersion: 1.2\nSummary: Tells the weather.\n"
    (package / "METADATA").write_text(metadata)
    (package / "entry_points.txt").write_text("[greenroom.plugins]\nweather = weather_plugin\n")


def cpu_seconds(process_id: int) -> float:
    """Return the CPU time of a process and of its children, which does not depend on what else the machine does."""
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


async def read_pages(session: ClientSession, origin: str, process_id: int) -> dict[str, Any]:
    """Return what the API says to each page when first asked; each must take less than half a second."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                await (await session.get(f"{origin}/healthz")).read()
                break
            except ClientError:
                await asyncio.sleep(0.05)  # until another process listens
    answers, slow = {}, {}
    for name in ("plugins", "settings", "doctor"):
        started = cpu_seconds(process_id)
        answers[name] = await (await session.get(f"{origin}/api/{name}")).json()
        if (seconds := cpu_seconds(process_id) - started) > ANSWER_SECONDS:
            slow[name] = seconds
    assert slow == {}
    answers["checks"] = await (await session.post(f"{origin}/api/doctor", headers={"Origin": origin})).json()
    return answers


@pytest.mark.long
async def test_the_pages_answer_within_half_a_second_and_import_no_plugin_that_is_off(tmp_path: Path) -> None:
    install_plugin(tmp_path)
    character = {"name": "Ada", "plugins": ["bootstrap"], "settings": SETTINGS}
    (tmp_path / "ada.json").write_text(json.dumps(character), encoding="utf-8")
    port = free_port()
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    environment = {**inherited_variables(), "SERVER_TOKEN": TOKEN, "SERVER_PORT": str(port), "PYTHONPATH": path}
    with (tmp_path / "imports").open("wb") as imports:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "importtime", "-m", "bot", "run", "-c", "ada.json", "--only", "web"),
            cwd=tmp_path,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=imports,
        )
        try:
            async with ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
                answers = await read_pages(session, f"http://127.0.0.1:{port}", process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()
    imported = set(re.findall(r"\| +plugins\.(\w+)\.", (tmp_path / "imports").read_text("utf-8")))
    assert imported & {row.name for row in bundled_plugins()} == USED
    assert not (tmp_path / "imported").exists()

    plugins = {item["name"]: item for item in answers["plugins"]["plugins"]}
    assert {name for name, item in plugins.items() if item["state"] == "on"} == USED
    assert {item["state"] for name, item in plugins.items() if name not in USED} == {"off"}
    assert plugins["openai"]["why"].startswith("a setting is missing: set OPENAI_API_KEY")
    assert "TEXT_LARGE" in plugins["openai"]["brings"]["models"]
    assert "OPENAI_API_KEY" in plugins["openai"]["settings"]
    weather = plugins["weather"]
    assert (weather["package"], weather["version"], weather["description"]) == ("weather", "1.2", "Tells the weather.")
    assert weather["why"] == "ada.json does not name it among its plugins"

    variables = {item["name"]: item for item in answers["settings"]["settings"]}
    assert variables["OPENAI_API_KEY"]["is_secret"]
    small = variables["OPENAI_SMALL_MODEL"]
    assert (small["value"], small["origin"], small["part"]) == (
        "gpt-5-mini",
        "the character's settings",
        "openai plugin",
    )
    assert variables["OLLAMA_API_ENDPOINT"]["meaning"]
    assert [item["text"] for item in answers["checks"]["findings"] if item["subject"] == "plugins"]
