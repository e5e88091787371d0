"""`bot person`: the export and the deletion of what is stored about a person."""

import asyncio
import json
import os
import sys
import zipfile
from asyncio.subprocess import PIPE
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters.web import spec as web
from adapters.web.adapter import WebAdapter
from bot.cli.characters import load_character_config
from bot.cli.main import entry
from bot.domain.content import Attachment, MediaKind
from bot.domain.environment import Component
from bot.domain.ids import new_id
from bot.domain.ledger import CostEntry
from bot.runtime.runtime import Runtime
from bot.settings import Layer
from bot.store.protocols import Store
from bot.testing import make_message
from tests.cli.stored_character import FILE, answer_messages, run_with_store, write_character

Out = pytest.CaptureFixture[str]
FILES = {
    *("README.txt", "person.json", "contacts.json", "relationships.json", "messages.jsonl", "facts.jsonl"),
    *("replies.jsonl", "drafts.jsonl", "receipts.jsonl", "costs.json", "tasks.json", "log.jsonl"),
}
PERSON = make_message("", sent_at=datetime.now(UTC)).author


@pytest.fixture(autouse=True)
def character(workdir: Path) -> None:
    write_character(workdir)


def add_details() -> None:
    async def add(store: Store) -> None:
        contact = Component(new_id(), PERSON.id, "contact", {"mail": "kim@example.org"})
        await store.entities.save_component(contact)
        day = datetime.now(UTC).date()
        await store.costs.add([CostEntry(day, "m", person_id=PERSON.id, calls=2, cost=0.5)])
        await store.logs.log("command", {"command": "privacy", "allowed": True}, entity_id=PERSON.id)
        await store.logs.log("command", {"command": "ask", "allowed": True}, entity_id=new_id())

    run_with_store(add)


@pytest.mark.long
def test_an_export_holds_everything_of_the_person_and_a_deletion_leaves_nothing(workdir: Path, capsys: Out) -> None:
    answer_messages("My cat is Tom", "Good night")
    add_details()
    capsys.readouterr()
    assert entry(["person", "export", PERSON.name, "copy.zip", "-c", FILE, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["items"]["messages.jsonl"] == 2
    assert (workdir / "copy.zip").stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(workdir / "copy.zip") as archive:
        assert set(archive.namelist()) == FILES
        messages = [json.loads(line)["text"] for line in archive.read("messages.jsonl").splitlines()]
        assert messages == ["Good night", "My cat is Tom"]
        assert len(archive.read("replies.jsonl").splitlines()) == 2
        assert [json.loads(line)["outcome"] for line in archive.read("receipts.jsonl").splitlines()] == ["answered"] * 2
        assert json.loads(archive.read("contacts.json"))[0]["data"] == {"mail": "kim@example.org"}
        assert json.loads(archive.read("costs.json"))[0]["usd"] == 0.5
        assert json.loads(archive.read("person.json"))["names"] == [PERSON.name]
        logged = [json.loads(line)["details"] for line in archive.read("log.jsonl").splitlines()]
        assert logged == [{"command": "privacy", "allowed": True}]
    assert entry(["person", "forget", str(PERSON.id), "--yes", "-c", FILE]) == 0
    assert ": messages 2, replies 2, " in capsys.readouterr().out
    assert entry(["person", "export", str(PERSON.id), "empty.zip", "-c", FILE, "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    del items["person.json"]
    assert items.pop("receipts.jsonl") == 2  # without texts: redelivered messages are recognised
    assert {name for name, number in items.items() if number} <= {"contacts.json"}  # the mark of the wish
    with zipfile.ZipFile(workdir / "empty.zip") as archive:
        assert not any(b"Tom" in archive.read(name) or b"kim@" in archive.read(name) for name in archive.namelist())


@pytest.mark.long
def test_a_person_whom_an_operator_ignores_is_hidden_until_they_are_read_again(workdir: Path, capsys: Out) -> None:
    answer_messages("My cat is Tom")
    assert entry(["person", "ignore", PERSON.name, "-c", FILE]) == 0
    assert "not read, because an operator has set it" in capsys.readouterr().out
    assert entry(["person", "export", PERSON.name, "copy.zip", "-c", FILE]) == 0
    with zipfile.ZipFile(workdir / "copy.zip") as archive:
        assert not any(b"Tom" in archive.read(name) for name in archive.namelist())
    capsys.readouterr()
    assert entry(["person", "ignored", "-c", FILE]) == 0
    assert f"{PERSON.id}  {PERSON.platform} {PERSON.external_id}  an operator has set it" in capsys.readouterr().out
    assert entry(["person", "read", PERSON.name, "-c", FILE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": str(PERSON.id), "ignored_by": []}


@pytest.mark.long
async def test_a_person_is_forgotten_through_the_bot_that_runs(workdir: Path) -> None:
    await asyncio.to_thread(answer_messages, "My cat is Tom")
    config = load_character_config(Path(FILE), Layer("the test", {"SERVER_PORT": "0"}))
    async with Runtime([config.agent_config], [web]) as runtime:
        [adapter] = runtime.adapters
        assert isinstance(adapter, WebAdapter)
        environment = {**os.environ, "SERVER_PORT": str(adapter.port), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "bot", "person", "forget", PERSON.name, "--yes", "-c", FILE]
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=PIPE, stderr=PIPE)
        out, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert b": messages 1, replies 1" in out
        assert not (await runtime.agents[0].agent.store.memories.of_entity(PERSON.id)).memories


def test_an_export_overwrites_nothing_and_an_unknown_person_is_named(workdir: Path, capsys: Out) -> None:
    answer_messages("one")
    (workdir / "copy.zip").write_bytes(b"mine")
    assert entry(["person", "export", PERSON.name, "copy.zip", "-c", FILE]) == 78
    assert "copy.zip exists already" in capsys.readouterr().err
    assert (workdir / "copy.zip").read_bytes() == b"mine"
    assert entry(["person", "export", "Nobody Known", "-c", FILE]) == 2
    assert "'Nobody Known' is no stored person" in capsys.readouterr().err


def test_without_a_terminal_nothing_is_deleted_unless_it_is_confirmed_by_an_option(capsys: Out) -> None:
    answer_messages("one")
    assert entry(["person", "forget", PERSON.name, "-c", FILE]) == 2
    assert "add --yes" in capsys.readouterr().err


def test_of_several_people_of_the_same_name_none_is_guessed(capsys: Out) -> None:
    answer_messages("one")

    async def add(store: Store) -> None:
        other = make_message("", sent_at=datetime.now(UTC), author=f"{PERSON.name} the second").author
        await store.entities.save_entities([type(other)(other.id, other.platform, other.external_id, (PERSON.name,))])

    run_with_store(add)
    assert entry(["person", "export", PERSON.name, "-c", FILE]) == 2
    assert f"2 people are called {PERSON.name!r}" in capsys.readouterr().err


@pytest.mark.parametrize("command", [("person", "export"), ("person", "forget", "--yes"), ("memory", "list")])
def test_the_character_itself_is_no_person(capsys: Out, command: tuple[str, ...]) -> None:
    answer_messages("one")
    agent_id = load_character_config(Path(FILE)).agent_config.agent_id
    for name in ("Ada", str(agent_id)):
        assert entry([*command, name, "-c", FILE]) == 2
        assert f"{name!r} is no stored person" in capsys.readouterr().err

    async def count(store: Store) -> int:
        return len((await store.memories.of_entity(agent_id)).memories)

    assert run_with_store(count) == 1


def test_files_that_were_uploaded_are_in_the_export(workdir: Path) -> None:
    answer_messages("one")
    url = f"upload:web/{'a' * 32}"

    async def attach(store: Store) -> None:
        [memory] = (await store.memories.of_entity(PERSON.id)).memories
        files = (Attachment("1", MediaKind.DOCUMENT, url=url, name="../my notes.txt"),)
        await store.memories.add([replace(memory, content=replace(memory.content, attachments=files))])

    run_with_store(attach)
    folder = workdir / "data" / "uploads" / "web"
    folder.mkdir(parents=True)
    (folder / ("a" * 32)).write_bytes(b"the notes")
    assert entry(["person", "export", PERSON.name, "copy.zip", "-c", FILE]) == 0
    with zipfile.ZipFile(workdir / "copy.zip") as archive:
        [name] = [name for name in archive.namelist() if name.startswith("uploads/")]
        assert (name, archive.read(name)) == ("uploads/1-_my notes.txt", b"the notes")


@pytest.mark.long
def test_show_tells_when_a_person_got_the_notice_and_how_they_are_marked(
    capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AI_NOTICE", "first")
    answer_messages("one")
    assert entry(["person", "mark", PERSON.name, "--minor", "-c", FILE]) == 0
    assert "marked as a minor" in capsys.readouterr().out
    assert entry(["person", "show", PERSON.name, "-c", FILE, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["messages"], shown["answered"], shown["marks"]) == (1, 1, ["minor"])
    assert (shown["notice"]["room"], shown["notice"]["state"]) == ("lobby", "sent")
    assert entry(["person", "show", PERSON.name, "-c", FILE]) == 0
    assert "in lobby (sent)" in capsys.readouterr().out
    assert entry(["person", "mark", PERSON.name, "--no-minor", "-c", FILE]) == 0
    assert entry(["person", "show", PERSON.name, "-c", FILE]) == 0
    assert "marked as           nothing" in capsys.readouterr().out


def test_show_tells_that_a_person_never_got_the_notice(capsys: Out) -> None:
    answer_messages("one")
    assert entry(["person", "show", PERSON.name, "-c", FILE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notice"] is None


@pytest.mark.long
async def test_a_minor_is_marked_through_the_bot_that_runs(workdir: Path) -> None:
    await asyncio.to_thread(answer_messages, "Hello")
    config = load_character_config(Path(FILE), Layer("the test", {"SERVER_PORT": "0"}))
    async with Runtime([config.agent_config], [web]) as runtime:
        [adapter] = runtime.adapters
        assert isinstance(adapter, WebAdapter)
        environment = {**os.environ, "SERVER_PORT": str(adapter.port), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "bot", "person", "mark", PERSON.name, "--minor", "-c", FILE]
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=PIPE, stderr=PIPE)
        _, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert runtime.agents[0].agent.store.marks.minors == {PERSON.id}
