"""What scripts rely on: the keys of what every command prints with `--json`."""

import asyncio
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import pytest
import typer

from bot.cli.characters import load_character_config
from bot.cli.commands.doctor import watch_running_bot
from bot.cli.main import app, entry
from bot.runtime.runtime import Runtime
from bot.store.sql.core.schema import VERSION
from bot.store.sql.storage import SqlStorage
from tests.cli.test_cli_reload import running_bot
from tests.contracts.snapshot import check_snapshot, describe_shape
from tests.contracts.test_command_line import list_commands
from tests.contracts.test_databases import fill_sqlite, rows_of_schema

Out = pytest.CaptureFixture[str]
ALICE, FACT = "00000000-0000-7000-8000-0000000000a1", "00000000-0000-7000-8000-000000000120"  # of rows.json
CHARACTER = {"name": "Ada", "plugins": ["sql", "bootstrap", "offline", "knowledge"]}
CARD = {"spec": "chara_card_v2", "spec_version": "2.0", "data": {"name": "Eve", "description": "A gardener."}}
OLD_CHARACTER = {
    "name": "Eve",
    "bio": "Eve grows ferns.",
    "clients": ["discord"],
    "modelProvider": "openai",
    "lore": ["Her ferns are old."],
    "plugins": ["@elizaos/plugin-unknown"],
    "settings": {"secrets": {"OPENAI_API_KEY": "sk-a-key-for-tests"}, "voice": {"model": "en"}},
    "somethingElse": 1,
}
# In this order: some remove what earlier ones show.
COMMANDS = (
    "character import card.json --to imported",
    "import eliza-db robin.sql -c ada.json",
    "import sillytavern default-user --to imported",
    "settings -c ada.json",
    "doctor -c ada.json",
    "token new --scope chat --name page -c ada.json",
    "token list -c ada.json",
    "token revoke page -c ada.json",
    "why -c ada.json",
    "why --costs --days 3660 -c ada.json",
    "rehearse ada.json --room lobby --since 2020-01-01 --no-model -c ada.json",
    "voice -c ada.json",
    "inbox list -c ada.json",
    "care report --since 2026-01-01 -c ada.json",
    "rooms list -c ada.json",
    "rooms set lobby language German -c ada.json",
    "rooms show lobby -c ada.json",
    "rooms unset lobby language -c ada.json",
    "drafts list -c ada.json",
    "drafts edit 111111111111 ferns -c ada.json",
    "drafts send 111111111111 --revision 3 -c ada.json",
    "drafts drop 222222222222 -c ada.json",
    "rooms take-over lobby -c ada.json",
    "rooms give-back lobby -c ada.json",
    "outbox list -c ada.json",
    "outbox send d-2 -c ada.json",
    "outbox drop d-2 -c ada.json",
    "knowledge add notes.md -c ada.json",
    "knowledge list -c ada.json",
    "knowledge search water -c ada.json",
    "knowledge delete notes.md -c ada.json",
    f"memory list {ALICE} -c ada.json",
    "memory search ferns -c ada.json",
    f"memory why {FACT} -c ada.json",
    "memory explain ferns --room lobby -c ada.json",
    f"memory correct {FACT} moss -c ada.json",
    f"memory delete {FACT} -c ada.json",
    f"person show {ALICE} -c ada.json",
    f"person mark {ALICE} --minor -c ada.json",
    f"person export {ALICE} alice.zip -c ada.json",
    f"person ignore {ALICE} -c ada.json",
    "person ignored -c ada.json",
    f"person read {ALICE} -c ada.json",
    f"person forget {ALICE} --yes -c ada.json",
    "db upgrade -c ada.json",
    "db check -c ada.json",
    "db backup copy.db -c ada.json",
    "db restore copy.db -c ada.json",
    "db check --repair -c ada.json",
    "plugin list -c ada.json",
    "plugin search search",
    "plugin show knowledge",
    "plugin check knowledge",
    "scene run scene.yaml",
)
FAILING = ("character check old.json missing.json",)  # they print what they found, and exit with 78
NOT_REPLAYED = ("replay 00000000-0000-7000-8000-000000000209 -c ada.json",)  # these exit with 3
RUNNING = ("reload -c ada.json", "doctor --watch", "cluster -c ada.json", "cluster drain")  # beside a running bot


@pytest.fixture(autouse=True)
def character(workdir: Path) -> None:
    """Write a character with rows in every table, and the files that the commands read."""
    for name, document in (("ada", CHARACTER), ("card", CARD), ("old", OLD_CHARACTER)):
        (workdir / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    (workdir / "scene.yaml").write_text("character: ada.json\nsteps: [{join: Ben}]\n", encoding="utf-8")
    (workdir / "notes.md").write_text("Water ferns daily.", encoding="utf-8")
    exports = Path(__file__).parents[1] / "imports"
    (workdir / "robin.sql").write_bytes(lzma.decompress((exports / "elizaos-1.7.2.sql.xz").read_bytes()))
    with tarfile.open(exports / "sillytavern-1.19.0.tar.xz") as archive:
        archive.extractall(workdir, filter="data")
    assert entry(["db", "upgrade", "-c", "ada.json"]) == 0
    fill_sqlite(workdir / "data" / "greenroom.db", rows_of_schema(VERSION))


def run(capsys: Out, command: str, code: int = 0) -> Any:
    """Run a command; return the shape of the JSON that it prints."""
    capsys.readouterr()
    assert entry([*command.split(), "--json"]) == code, capsys.readouterr().err
    return describe_shape(json.loads(capsys.readouterr().out))


def test_every_command_prints_json_with_the_recorded_keys(capsys: Out) -> None:
    shapes = {command: run(capsys, command) for command in COMMANDS}
    shapes |= {command: run(capsys, command, 78) for command in FAILING}
    shapes |= {command: run(capsys, command, 3) for command in NOT_REPLAYED}
    check_snapshot("json_output.json", shapes)


def test_every_command_with_json_output_is_recorded() -> None:
    offered = {
        name.removeprefix("bot ")
        for name, command in list_commands(typer.main.get_command(app))
        if any("--json" in parameter.opts for parameter in command.params)
    }
    commands = (*COMMANDS, *FAILING, *NOT_REPLAYED, *RUNNING)
    assert [name for name in offered if not any(f"{command} ".startswith(f"{name} ") for command in commands)] == []


async def test_commands_with_a_running_bot_print_json_with_the_recorded_keys(
    capsys: Out, monkeypatch: pytest.MonkeyPatch, workdir: Path
) -> None:
    async with running_bot(monkeypatch) as runtime:
        (workdir / "ada.json").write_text(json.dumps(CHARACTER | {"bio": "Grows ferns.", "adapters": ["web"]}))
        shapes = {"reload": await asyncio.to_thread(run, capsys, "reload -c ada.json")}
        shapes["doctor --watch"] = await asyncio.to_thread(watch, capsys, runtime)
    check_snapshot("json_output_running.json", shapes)


def watch(capsys: Out, runtime: Runtime) -> Any:
    """Return the shape of the lines of `bot doctor --watch` while a platform fails and recovers."""
    causes = iter(["the keys are refused", ""])

    def sleep(seconds: float) -> None:
        cause = next(causes, None)
        if cause is None:
            raise KeyboardInterrupt
        runtime.inactive.clear()
        runtime.inactive.update({"x": cause} if cause else {})

    capsys.readouterr()
    assert watch_running_bot(load_character_config(Path("ada.json")), as_json=True, sleep=sleep) == 0
    return describe_shape([json.loads(line) for line in capsys.readouterr().out.splitlines()])


async def test_commands_about_processes_print_json_with_the_recorded_keys(
    capsys: Out, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    monkeypatch.setenv("POSTGRES_URL", postgres_url)
    config = load_character_config(Path("ada.json")).agent_config
    async with SqlStorage().open(config.agent_id, config.settings) as store:
        assert store.sharing is not None
        await store.sharing.join()
        [member] = (await store.sharing.members.find())[0]
        shapes = {
            "cluster": await asyncio.to_thread(run, capsys, "cluster -c ada.json"),
            "cluster drain": await asyncio.to_thread(run, capsys, f"cluster drain {member.number} -c ada.json"),
        }
    check_snapshot("json_output_processes.json", shapes)
