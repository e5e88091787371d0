"""A character's file over the API: its secrets stay, wrong ones are refused, a saved one is taken up."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from sqlalchemy import Column, Integer, MetaData, Table, func, insert, select

from adapters.web.adapter import WebAdapter
from adapters.web.config import WebSettings
from bot import Agent, Plugin, ProviderResult, Runtime, Turn, provider
from bot.cli.characters import load_character_config
from bot.cli.operator import FOLDER, MAX_VERSIONS, with_operator_tools
from bot.logs import configure_logging
from bot.store import Schema
from tests.adapters.web.conftest import TOKEN, EchoModel, RunningServer, SocketClient

ADA: dict[str, Any] = {"name": "Ada", "bio": ["Counts waves."]}
KEY = "sk-proj-0123456789abcdefghij"
PIN = 481516
PATH = "/api/agents/ada/character"
UNUSED = ("sql", "offline")  # of the bundled plugins that the file would bring


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("BOT_DATA_DIR", "DATABASE_URL", "POSTGRES_URL", "OPENAI_API_KEY", "CONVERSATION_LENGTH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SERVER_PORT", "0")
    monkeypatch.setenv("SERVER_TOKEN", TOKEN)
    write()
    return tmp_path


def write(**changes: Any) -> None:
    Path("ada.json").write_text(json.dumps(ADA | changes, indent=2), encoding="utf-8")


def write_code() -> None:
    Path("mine.py").write_text("raise SystemExit('it ran')\n", encoding="utf-8")


def read_file() -> str:
    return Path("ada.json").read_text(encoding="utf-8")


@asynccontextmanager
async def run_operator_server(*added: Plugin) -> AsyncIterator[RunningServer]:
    """Run a server for the character of `ada.json`, as `bot run` does, with a scripted model and these plugins."""
    script = EchoModel()
    config = load_character_config(Path("ada.json"))
    agent_config = with_operator_tools(config)
    plugins = tuple(plugin for plugin in agent_config.plugins if plugin.name not in UNUSED)
    agent_config = replace(agent_config, plugins=(*plugins, script.plugin, *added))
    async with Runtime([agent_config]) as runtime, ClientSession() as session:
        adapter = WebAdapter(runtime.handles, config.settings.load(WebSettings), TOKEN)
        await runtime.connect(adapter)
        yield RunningServer(runtime, adapter, script, session)


@pytest.fixture
async def server() -> AsyncIterator[RunningServer]:
    async with run_operator_server() as running:
        yield running


async def save(server: RunningServer, text: str, etag: str, status: int = 200) -> Any:
    answer = await server.request("PUT", PATH, headers=server.bearer, json={"text": text, "etag": etag})
    return await server.check_response("PUT", PATH, answer, status)


async def change(server: RunningServer, **changes: Any) -> Any:
    """Save the file with these fields."""
    shown = await server.get(PATH)
    saved = await save(server, json.dumps(json.loads(shown["text"]) | changes, indent=2), shown["etag"])
    saved["needs_restart"] = [name for name in saved["needs_restart"] if name != "PYTEST_CURRENT_TEST"]
    return saved


async def test_the_file_is_shown_with_the_version_that_runs(server: RunningServer) -> None:
    shown = await server.get(PATH)
    assert (shown["file"], json.loads(shown["text"])) == ("ada.json", ADA)
    assert shown["is_writable"]
    assert shown["running_etag"] == shown["etag"]
    write(bio=["Counts gulls."])
    changed = await server.get(PATH)
    assert changed["etag"] != changed["running_etag"] == shown["etag"]


async def test_a_saved_file_is_taken_up_and_the_version_before_it_is_stored(server: RunningServer) -> None:
    before = await server.get(PATH)
    saved = await change(server, bio=["Counts gulls."])
    assert (saved["changed"], saved["needs_restart"], saved["problem"]) == (["bio"], [], "")
    assert saved["running_etag"] == saved["etag"] != before["etag"]
    assert server.runtime.handles[0].character.bio == ("Counts gulls.",)
    assert json.loads(read_file())["bio"] == ["Counts gulls."]
    [version] = (await server.get(f"{PATH}/versions"))["versions"]
    assert version["id"] == before["etag"]
    old = await server.get(f"{PATH}/versions/{version['id']}")
    assert old["text"] == before["text"]
    await server.get(f"{PATH}/versions/{'0' * 16}", 404)


async def test_a_file_that_was_changed_meanwhile_is_not_overwritten(server: RunningServer) -> None:
    shown = await server.get(PATH)
    write(bio=["Somebody else wrote this."])
    answer = await save(server, shown["text"], shown["etag"], 409)
    assert answer["error"]["code"] == "conflict"
    assert "Somebody else wrote this." in read_file()


async def test_a_wrong_file_is_refused_and_the_last_version_runs_on(server: RunningServer) -> None:
    shown = await server.get(PATH)
    for text in ('{"name": "Ada", "bio": {}}', '{"name": "Ada"', "", '{"name": "Ada", "plugins": ["./none"]}'):
        answer = await save(server, text, shown["etag"], 422)
        assert answer["error"]["code"] == "character_refused"
    assert read_file() == json.dumps(ADA, indent=2)
    assert server.runtime.handles[0].character.bio == ("Counts waves.",)


@pytest.mark.long
async def test_secrets_of_the_file_are_not_shown_and_are_kept_when_it_is_saved() -> None:
    write(settings={"secrets": {"OPENAI_API_KEY": KEY, "PIN": PIN}}, system=f"Never say {KEY}.")
    async with run_operator_server() as server:
        shown = await server.get(PATH)
        assert KEY not in json.dumps(shown)
        assert str(PIN) not in shown["text"]
        hidden = json.loads(shown["text"])
        assert hidden["settings"]["secrets"]["OPENAI_API_KEY"].startswith("[secret ")
        assert hidden["system"].startswith("Never say [secret ")
        await change(server, bio=["Counts gulls."])
        assert json.loads(read_file())["settings"]["secrets"] == {"OPENAI_API_KEY": KEY, "PIN": PIN}
        assert json.loads(read_file())["system"] == f"Never say {KEY}."
        [version] = (await server.get(f"{PATH}/versions"))["versions"]
        old = await server.get(f"{PATH}/versions/{version['id']}")
        assert KEY not in json.dumps(old)
        await save(server, old["text"], (await server.get(PATH))["etag"])
        assert json.loads(read_file())["settings"]["secrets"] == {"OPENAI_API_KEY": KEY, "PIN": PIN}


async def test_a_secret_that_the_file_does_not_have_is_refused(server: RunningServer) -> None:
    shown = await server.get(PATH)
    text = json.dumps(ADA | {"settings": {"secrets": {"OPENAI_API_KEY": "[secret 7]"}}})
    answer = await save(server, text, shown["etag"], 422)
    assert "[secret 7] stands for no secret" in answer["error"]["message"]


@pytest.mark.long
async def test_old_versions_are_the_owners_alone_and_at_most_twenty(server: RunningServer, workdir: Path) -> None:
    for number in range(MAX_VERSIONS + 3):
        await change(server, bio=[f"Version {number}."])
    versions = (await server.get(f"{PATH}/versions"))["versions"]
    assert len(versions) == MAX_VERSIONS
    newest = await server.get(f"{PATH}/versions/{versions[0]['id']}")
    assert json.loads(newest["text"])["bio"] == [f"Version {MAX_VERSIONS + 1}."]
    stored = workdir / "data" / FOLDER
    assert {path.stat().st_mode & 0o077 for path in (stored, *stored.rglob("*"))} == {0}


async def test_a_check_names_line_and_column_of_each_error(server: RunningServer) -> None:
    rooms = {"discord": {"rooms": {"1183": {"answers": "menti0ns"}}}}
    checked = await server.post(f"{PATH}/check", {"text": json.dumps(ADA | {"settings": rooms}, indent=2)})
    [error] = checked["errors"]
    assert error["path"] == "settings.discord.rooms.1183" or error["path"].startswith("settings.discord.rooms")
    assert error["line"] == 9
    assert "the answers are usual, mentions, listen, ignore" in error["message"]
    checked = await server.post(f"{PATH}/check", {"text": '{\n "name": "Ada",\n "bio": tru\n}'})
    assert [(error["line"], error["column"]) for error in checked["errors"]] == [(3, 9)]
    checked = await server.post(f"{PATH}/check", {"text": '{"name": "Ada", "topcis": ["tea"]}'})
    assert checked["errors"] == []
    assert "did you mean 'topics'?" in checked["warnings"][0]["message"]
    assert checked["sections"].keys() == {"chat", "feed"}


async def test_code_that_is_not_trusted_is_saved_and_does_not_run(server: RunningServer) -> None:
    write_code()
    saved = await change(server, plugins=["./mine"])
    assert saved["untrusted_code"] == ["./mine"]
    assert "bot character trust" in saved["problem"]
    assert saved["running_etag"] != saved["etag"]
    assert json.loads(read_file())["plugins"] == ["./mine"]
    checked = await server.post(f"{PATH}/check", {"text": read_file()})
    assert (checked["errors"], checked["untrusted_code"]) == ([], ["./mine"])


async def test_a_new_plugin_waits_for_the_next_start(server: RunningServer) -> None:
    saved = await change(server, plugins=["bootstrap", "offline"])
    assert (saved["needs_restart"], saved["problem"]) == (["plugins"], "")


async def test_a_preview_is_the_prompt_of_the_text_that_was_not_saved(server: RunningServer) -> None:
    text = json.dumps(ADA | {"bio": ["Counts gulls."], "system": "You are {{agentName}}, by the sea."})
    preview = await server.post(f"{PATH}/preview", {"text": text, "message": "Who are you?"})
    sections = preview["sections"]
    assert sections[0]["text"].startswith("You are Ada, by the sea.\n")
    assert {section["kind"] for section in sections} == {"character", "actions", "rules", "providers"}
    whole = "\n".join(section["text"] for section in sections)
    assert "Counts gulls." in whole
    assert "Who are you?" in whole
    assert "Counts waves." not in whole
    assert preview["size"] == sum(len(section["text"].encode()) for section in sections)
    assert await server.runtime.handles[0].conversations.rooms() == []


async def test_a_preview_and_a_trial_have_the_empty_tables_of_plugins() -> None:
    table = Table("tally_debts", MetaData(), Column("cents", Integer))

    @provider("TALLY", "Counts the debts.")
    async def count_debts(turn: Turn) -> ProviderResult:
        total = await turn.agent.store.tables.read(lambda db: db.scalar(select(func.count()).select_from(table)))
        return ProviderResult(f"{total} debts are noted.", authors=())

    async def note_debt(agent: Agent) -> None:
        await agent.store.tables.write(lambda db: db.execute(insert(table).values(cents=5)).rowcount)

    tally = Plugin("tally", providers=[count_debts], schema=Schema(table.metadata), init=note_debt)
    async with run_operator_server(tally) as server:
        body = {"text": json.dumps(ADA), "message": "Hi"}
        preview = await server.post(f"{PATH}/preview", body)
        [text] = [section["text"] for section in preview["sections"] if section["name"] == "TALLY"]
        assert text == "0 debts are noted."
        await server.post(f"{PATH}/try", body)
        assert "0 debts are noted." in server.script.prompts[-1]


async def test_a_trial_asks_the_model_and_sends_nothing(server: RunningServer) -> None:
    server.script.action = "MUTE_ROOM"
    tried = await server.post(f"{PATH}/try", {"text": json.dumps(ADA), "message": "Hi"})
    assert (tried["text"], tried["actions"], tried["tokens_in"]) == ("You said: Hi", ["MUTE_ROOM"], 120)
    assert tried["cost"] is None
    assert await server.runtime.handles[0].conversations.receipts() == []
    refused = await server.post(f"{PATH}/try", {"text": json.dumps(ADA), "message": "refuse"}, 503)
    assert refused["error"]["code"] == "model_failed"
    await server.post(f"{PATH}/try", {"text": "{}", "message": "Hi"}, 422)


async def test_an_agent_without_a_file_has_none_to_edit(web_server: RunningServer) -> None:
    assert (await web_server.get(PATH, 404))["error"]["code"] == "not_found"


async def test_plugins_say_why_they_are_off_and_what_they_bring(server: RunningServer) -> None:
    plugins = {plugin["name"]: plugin for plugin in (await server.get("/api/plugins"))["plugins"]}
    assert plugins["bootstrap"]["state"] == "on"
    assert "REPLY" in plugins["bootstrap"]["brings"]["actions"]
    assert plugins["knowledge"]["state"] == "off"
    assert "ada.json" in plugins["knowledge"]["why"]
    assert "ada.json" in plugins["knowledge"]["fix"]


@pytest.mark.long
async def test_settings_show_value_and_origin_and_never_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hunter2hunter2@proxy.example:3128")
    write(settings={"CONVERSATION_LENGTH": 7})
    async with run_operator_server() as server:
        answer = await server.get("/api/settings")
        settings = {item["name"]: item for item in answer["settings"]}
        assert "hunter2" not in json.dumps(answer)
        assert KEY not in json.dumps(answer)
        secret = settings["OPENAI_API_KEY"]
        assert (secret["value"], secret["is_secret"], secret["is_set"]) == (None, True, True)
        assert secret["origin"] == "the environment"
        length = settings["CONVERSATION_LENGTH"]
        assert (length["value"], length["origin"]) == ("7", "the character's settings")
        streaming = settings["STREAMING"]
        assert (streaming["value"], streaming["origin"], streaming["is_set"]) == ("true", "default", False)
        found = (await server.get("/api/settings?q=conversation_length&is_set=true"))["settings"]
        assert [item["name"] for item in found] == ["CONVERSATION_LENGTH"]


async def test_log_lines_are_filtered_and_hold_no_secret(web_server: RunningServer) -> None:
    logger = logging.getLogger("plugins.dice")
    with configure_logging(level="INFO", secrets=[KEY], fd=-1):
        logger.info("the key is %s", KEY)
        logger.warning("the DICE fell off the table")
        logger.debug("not logged")
        for number in range(3):
            logger.info("throw %d", number)
        answer = await web_server.get("/api/logs?q=key")
        assert [line["text"] for line in answer["lines"]] == ["the key is [redacted]"]
        answer = await web_server.get("/api/logs?level=WARNING&q=dice")
        assert [line["text"] for line in answer["lines"]] == ["the DICE fell off the table"]
        page = await web_server.get("/api/logs?q=throw&limit=2")
        assert [line["text"] for line in page["lines"]] == ["throw 2", "throw 1"]
        page = await web_server.get(f"/api/logs?q=throw&limit=2&before={page['next']}")
        assert ([line["text"] for line in page["lines"]], page["next"]) == (["throw 0"], None)
    assert (await web_server.get("/api/logs"))["lines"] == []


async def test_new_lines_of_the_log_are_sent_live(web_server: RunningServer) -> None:
    logger = logging.getLogger("plugins.dice")
    with configure_logging(level="INFO", secrets=[KEY], fd=-1):
        ws = await web_server.session.ws_connect(f"{web_server.origin}/api/ws", headers=web_server.bearer)
        client = SocketClient(ws)
        await client.send(type="subscribe", topics=[{"kind": "log", "level": "warning"}])
        await client.wait_for("subscribed")
        logger.info("not this line")
        await asyncio.to_thread(logger.warning, "the key is %s", KEY)
        frame = await client.wait_for("log")
        assert (frame["level"], frame["logger"], frame["text"]) == ("warning", "plugins.dice", "the key is [redacted]")
        [line] = (await web_server.get("/api/logs?level=WARNING"))["lines"]
        assert line["id"] == str(frame["id"])


async def test_the_checks_run_when_asked_and_their_results_are_kept(server: RunningServer, workdir: Path) -> None:
    before = await server.get("/api/doctor")
    assert (before["ran_at"], before["findings"]) == (None, [])
    (workdir / "data").mkdir(exist_ok=True)
    (workdir / "data").chmod(0o755)
    ran = await server.post("/api/doctor", None)
    by_subject = {finding["subject"]: finding for finding in reversed(ran["findings"])}
    assert {"python", "character", "settings", "data", "plugins", "database", "model", "prompt"} <= by_subject.keys()
    assert by_subject["data"]["state"] == "warn"
    assert "chmod 700" in by_subject["data"]["fix"]
    states = [finding["state"] for finding in ran["findings"]]
    assert states == sorted(states, key=["fail", "warn", "ok"].index)
    assert await server.get("/api/doctor") == ran


async def test_the_checks_name_what_needs_attention_as_the_overview_does(server: RunningServer) -> None:
    server.runtime.inactive["x"] = "the keys are refused"
    [problem] = (await server.get("/api/overview"))["problems"]
    findings = (await server.post("/api/doctor", None))["findings"]
    [finding] = [item for item in findings if item["subject"] == "running"]
    assert (finding["text"], finding["fix"]) == (problem["text"], problem["why"])
    assert (finding["state"], finding["is_outside"]) == ("fail", True)


async def test_a_turn_is_replayed_until_the_character_changes(server: RunningServer) -> None:
    answer = await server.send("Hello there")
    path = f"/api/receipts/{answer['receipt_id']}/replay"
    first, second = await asyncio.gather(server.get(path), server.get(path))
    assert first == second
    assert (first["state"], first["differences"]) == ("equal", [])
    assert first["steps"] == ["decision", "prompt 1 (reply)", "reply 1", "outcome"]
    await change(server, bio=["Counts gulls."])
    changed = await server.get(path)
    assert (changed["state"], changed["steps"]) == ("not replayed", [])
    assert changed["reason"].startswith("another version ran it: its character was ")
    await server.get(f"/api/receipts/{PIN:032}/replay", 404)
