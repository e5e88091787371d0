"""`bot import`: history of elizaOS and SillyTavern, from exports that these programs made."""

import asyncio
import json
import lzma
import shutil
import subprocess
import tarfile
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from adapters.web.queries import is_conversation
from bot.characters.cards import CardFile, write_png_card
from bot.cli.characters import CharacterConfig, load_character_config
from bot.cli.main import entry
from bot.cli.running_bot import open_store_for_reading
from bot.domain.environment import MarkedPerson, MarkOrigin, PersonMark, Room
from bot.domain.ids import derived_id
from bot.domain.memory import Memory, MemoryKind, MemoryScope
from bot.imports.elizaos import EXPORT_COMMAND
from bot.imports.history import FORGOTTEN, IMPORTED_KEY, KNOWN, LIVE_ROOM, NOT_READ
from bot.imports.sillytavern import AUTHOR_NOTES, SCRIPTS
from bot.store.protocols import Store
from bot.testing import make_message
from tests.cli.stored_character import FILE, run_with_store, write_character
from tests.postgres import PostgresServer

Out = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]
EXPORTS, PEERS = ROOT / "tests" / "imports", ROOT / ".peers"
DUMP = lzma.decompress((EXPORTS / "elizaos-1.7.2.sql.xz").read_bytes()).decode()
SECRETS = ("sk-eliza-0123456789abcdef", "token-of-the-old-bot", "w4x9-7h3k-22ab-91zz")
ANN, BEN = (derived_id("discord", "user", number) for number in ("501", "502"))


@pytest.fixture(params=["sqlite", "postgres"])
def character(request: pytest.FixtureRequest, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write a character whose data is in either database, and the dump beside it."""
    write_character(workdir)
    Path("elizaos.sql").write_text(DUMP)
    if request.param == "sqlite":
        yield
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.database() as name:
        monkeypatch.setenv("DATABASE_URL", server.url(name))
        yield


def run_import(capsys: Out, *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert entry(["import", *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    document["left"] = {(item["what"], item["reason"]): item["count"] for item in document["left"]}
    return document


def import_dump(capsys: Out, source: str = "elizaos.sql") -> dict[str, Any]:
    return run_import(capsys, "eliza-db", source, "-c", FILE)


async def read_rooms(store: Store) -> dict[str, tuple[Room, list[Memory], list[Memory]]]:
    rooms = await store.worlds.rooms()
    facts = MemoryKind.FACT
    return {
        room.name: (room, await store.memories.recent(room.id), await store.memories.recent(room.id, kind=facts))
        for room in rooms
    }


@pytest.mark.long
@pytest.mark.usefixtures("character")
def test_a_dump_of_elizaos_becomes_rooms_people_history_and_facts_of_their_room(capsys: Out) -> None:
    report = import_dump(capsys)
    assert report["taken"] == {"rooms": 2, "people": 2, "messages": 5, "facts": 2, "relationships": 1}
    rooms = run_with_store(read_rooms)
    lounge, messages, facts = rooms["lounge"]
    assert (lounge.platform, lounge.external_id) == ("discord", "1021")
    assert [message.content.text for message in messages] == [
        "Is the lamp lit?\nIt's 'dark'; really;",
        "Since four. I keep it company.",
        "I am allergic to seaweed \\ and to \t tabs.",
    ]
    assert [message.created_at.minute for message in messages] == [1, 2, 3]
    assert [message.entity_id for message in messages] == [ANN, derived_id("agent", "Ada"), BEN]
    assert messages[1].content.in_reply_to == messages[0].id
    assert messages[0].metadata[IMPORTED_KEY]["program"] == "elizaos"
    assert messages[2].content.attachments[0].url == ""
    assert all(fact.scope is MemoryScope.ROOM for fact in [*facts, *rooms["Ann"][2]])
    assert facts[0].metadata["authors"] == sorted([str(ANN), str(BEN)])
    entity = run_with_store(lambda store: store.entities.entities([ANN]))[ANN]
    assert entity.names == ("Ann", 'ann "the" keeper, O\'Hara')
    [relationship] = run_with_store(lambda store: store.entities.relationships(ANN))
    assert (relationship.target_id, relationship.tags, relationship.interactions) == (BEN, ("friends",), 3)


@pytest.mark.long
@pytest.mark.usefixtures("character")
def test_nothing_imported_is_answered_sent_or_makes_anybody_an_admin(capsys: Out) -> None:
    report = import_dump(capsys)
    assert report["left"]["roles", "each platform reports them, and admins grant them here"] == 1
    assert report["left"]["tasks", "they would act: set them again here"] == 1
    counts = run_with_store(lambda store: store.lists.receipts_of([]))
    assert counts == {}
    assert run_with_store(lambda store: store.tasks.tasks()) == []
    for world in run_with_store(lambda store: _worlds(store)):
        assert (world.roles, world.grants, world.settings) == ({}, {}, {})


async def _worlds(store: Store) -> list[Any]:
    return list((await store.worlds.worlds_by_id({room.world_id for room in await store.worlds.rooms()})).values())


@pytest.mark.long
@pytest.mark.usefixtures("character")
def test_a_second_import_adds_nothing(capsys: Out) -> None:
    import_dump(capsys)
    before = run_with_store(read_rooms)
    report = import_dump(capsys)
    assert report["taken"] == {}
    assert report["left"]["messages", KNOWN] == 5
    assert run_with_store(read_rooms) == before


def test_secrets_of_the_database_are_counted_and_stored_nowhere(workdir: Path, capsys: Out) -> None:
    write_character(workdir)
    Path("elizaos.sql").write_text(DUMP)
    report = import_dump(capsys)
    assert report["left"]["secrets", "put them into .env"] == 3
    Path("elizaos.sql").unlink()
    stored = b"".join(path.read_bytes() for path in workdir.rglob("*") if path.is_file())
    assert not [secret for secret in SECRETS if secret.encode() in stored]
    assert all(secret in DUMP for secret in SECRETS)


@pytest.mark.long
def test_people_who_are_not_read_or_were_forgotten_are_not_imported(workdir: Path, capsys: Out) -> None:
    write_character(workdir)
    Path("elizaos.sql").write_text(DUMP)

    async def mark(store: Store) -> None:
        at, origin = datetime.now(UTC), MarkOrigin.PERSON
        await store.marks.save(MarkedPerson(ANN, PersonMark.NOT_READ, "discord", "501", origin, at))

    run_with_store(mark)
    report = import_dump(capsys)
    assert report["left"]["messages", NOT_READ] == 4  # two of hers, and the two answers to them
    assert report["left"]["facts", NOT_READ] == 2  # both may repeat her words
    assert report["taken"] == {"rooms": 2, "people": 1, "messages": 1}
    assert entry(["person", "forget", str(BEN), "--yes", "-c", FILE]) == 0
    report = import_dump(capsys)
    assert report["left"]["messages", FORGOTTEN] == 1
    assert report["taken"] == {}


def test_history_is_not_put_behind_newer_messages_of_a_room(workdir: Path, capsys: Out) -> None:
    write_character(workdir)
    Path("elizaos.sql").write_text(DUMP)

    async def speak(store: Store) -> None:
        inbound = make_message("Live", sent_at=datetime.now(UTC), room="1021", platform="discord")
        await store.worlds.save_world(inbound.world, [inbound.room])
        await store.memories.add([inbound.message])

    run_with_store(speak)
    report = import_dump(capsys)
    assert report["left"]["messages", LIVE_ROOM] == 3
    assert report["taken"]["messages"] == 2


def make_folder(tmp: Path) -> Path:
    with tarfile.open(EXPORTS / "sillytavern-1.19.0.tar.xz") as archive:
        archive.extractall(tmp, filter="data")
    return tmp / "default-user"


def import_folder(capsys: Out, folder: Path) -> dict[str, Any]:
    return run_import(capsys, "sillytavern", str(folder), "--to", "characters")


def test_a_folder_of_sillytavern_becomes_characters_and_conversations_of_the_web_page(
    workdir: Path, capsys: Out
) -> None:
    report = import_folder(capsys, make_folder(workdir / "tavern"))
    assert report["taken"] == {"characters": 1, "lorebooks": 1, "rooms": 1, "people": 1, "messages": 3}
    assert report["characters"] == [{"name": "Wren", "file": "characters/wren.json", "lost": []}]
    assert report["personas"] == ["Mia"]
    assert report["notes"] == ["group Marsh people: Wren, default_Seraphina.png"]
    config = load_character_config(Path("characters/wren.json"))
    assert config.loaded.character.knowledge[0].content == "The heron is called Ash."

    async def read(store: Store) -> None:
        [room] = await store.worlds.rooms()
        assert is_conversation(room)
        messages = await store.memories.recent(room.id)
        people = await store.entities.entities({message.entity_id for message in messages})
        agent_id = config.agent_config.agent_id
        said = [("Mind the reeds, Mia.", 0), ("Where is the heron?", 1), ("On the third post.", 2)]
        assert [(message.content.text, message.created_at.minute) for message in messages] == said
        assert [message.entity_id == agent_id for message in messages] == [True, False, True]
        assert people[messages[1].entity_id].name == "Mia"
        assert await store.lists.receipts_of([message.id for message in messages]) == {}

    asyncio.run(_open(config, read))


async def _open(config: CharacterConfig, work: Callable[[Store], Awaitable[None]]) -> None:
    async with open_store_for_reading(config) as store:
        await work(store)


def test_what_a_card_of_a_folder_lost_is_reported(workdir: Path, capsys: Out) -> None:
    folder = make_folder(workdir / "tavern")
    [picture] = (path for path in folder.glob("characters/*.png") if path.stem == "Wren")
    card = json.loads(next(iter(CardFile("", picture.read_bytes()).read_cards().values())))
    card["data"]["extensions"]["regex_scripts"] = [{"scriptName": "x"}]
    picture.write_bytes(write_png_card(picture.read_bytes(), json.dumps(card).encode()))
    [character] = import_folder(capsys, folder)["characters"]
    [lost] = character["lost"]
    assert lost.startswith("data.extensions.regex_scripts: 1 script left out")


def test_scripts_and_notes_that_are_not_of_a_card_are_counted(workdir: Path, capsys: Out) -> None:
    folder = make_folder(workdir / "tavern")
    settings = json.loads((folder / "settings.json").read_text())
    settings["extension_settings"] = {"regex": [{"scriptName": "x"}, {"scriptName": "y"}]}
    (folder / "settings.json").write_text(json.dumps(settings))
    [chat] = folder.glob("chats/Wren/*.jsonl")
    first, _, rest = chat.read_text().partition("\n")
    chat.write_text(json.dumps({**json.loads(first), "chat_metadata": {"note_prompt": "It rains."}}) + "\n" + rest)
    left = import_folder(capsys, folder)["left"]
    assert (left[SCRIPTS], left[AUTHOR_NOTES]) == (2, 1)


def test_a_second_import_of_a_folder_changes_no_file_and_adds_nothing(workdir: Path, capsys: Out) -> None:
    folder = make_folder(workdir / "tavern")
    import_folder(capsys, folder)
    file = Path("characters/wren.json")
    file.write_text(file.read_text().replace("maps the marsh", "mapped the marsh"))
    report = import_folder(capsys, folder)
    assert report["taken"] == {}
    assert report["left"]["messages", KNOWN] == 3
    assert "mapped the marsh" in file.read_text()


def test_keys_of_a_folder_of_sillytavern_are_counted_and_stored_nowhere(workdir: Path, capsys: Out) -> None:
    folder = make_folder(workdir / "tavern")
    assert "sk-tavern-0123456789abcdef" in (folder / "secrets.json").read_text()
    report = import_folder(capsys, folder)
    assert report["left"]["secrets", "put the keys of models into .env"] == 1
    shutil.rmtree(folder)
    stored = b"".join(path.read_bytes() for path in workdir.rglob("*") if path.is_file())
    assert b"sk-tavern" not in stored


def test_damaged_lines_of_a_chat_are_counted_and_the_others_taken(workdir: Path, capsys: Out) -> None:
    folder = make_folder(workdir / "tavern")
    [chat] = folder.glob("chats/Wren/*.jsonl")
    chat.write_text(chat.read_text() + '\n{"mes": \n[1]\n{"name": "Mia", "is_user": true, "mes": "No time"}')
    report = import_folder(capsys, folder)
    assert report["taken"]["messages"] == 4
    assert report["left"]["messages", "their lines cannot be read"] == 2


def test_a_file_of_another_character_gets_no_chats(workdir: Path, capsys: Out) -> None:
    folder = make_folder(workdir / "tavern")
    Path("characters").mkdir()
    Path("characters/wren.json").write_text('{"name": "Somebody else"}')
    report = import_folder(capsys, folder)
    assert report["taken"] == {}
    assert report["characters"] == []


def test_another_folder_is_explained(workdir: Path, capsys: Out) -> None:
    assert entry(["import", "sillytavern", str(workdir)]) == 78
    assert "name the one with `characters` and `chats`" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize(
    ("package", "script", "made"),
    [
        ("@elizaos/plugin-sql", "make_elizaos_export.mjs", "elizaos.sql"),
        ("sillytavern", "make_sillytavern_folder.mjs", "tavern"),
    ],
)
def test_an_export_made_now_by_the_other_program_is_imported_as_the_stored_file(
    workdir: Path, capsys: Out, package: str, script: str, made: str
) -> None:
    node, modules = shutil.which("node"), PEERS / "node_modules"
    if node is None or not (modules / package).is_dir():
        pytest.skip(f"needs node and the packages that {script} names, installed in .peers")
    write_character(workdir)
    Path("node_modules").symlink_to(modules.resolve())
    shutil.copy(EXPORTS / script, script)
    subprocess.run([node, script, made], check=True, capture_output=True, timeout=200)
    report = import_dump(capsys) if made.endswith(".sql") else import_folder(capsys, Path(made))
    assert report["taken"]["messages"] == (5 if made.endswith(".sql") else 3)


def test_the_command_that_exports_pglite_is_that_of_the_documents() -> None:
    text = (ROOT / "docs" / "from-elizaos.md").read_text()
    assert all(line in text for line in EXPORT_COMMAND.split(", then in the same folder:\n"))


def load_into(server: PostgresServer, name: str) -> None:
    """Run the dump in a database, but for the vectors, whose extension a server may lack."""
    lines = "".join(line for line in DUMP.splitlines(keepends=True) if not line.startswith(("\\", "--")))
    statements = [text for text in lines.split(";\n") if "vector" not in text and "embeddings" not in text]
    server.run(";\n".join(text for text in statements if "EXTENSION" not in text), name)


@pytest.mark.long
def test_a_server_and_its_dump_by_copy_give_what_the_dump_of_pglite_gives(
    workdir: Path, capsys: Out, postgres_server: PostgresServer
) -> None:
    write_character(workdir)
    with postgres_server.database() as name:
        load_into(postgres_server, name)
        url = postgres_server.url(name)
        report = import_dump(capsys, url)
        assert report["taken"] == {"rooms": 2, "people": 2, "messages": 5, "facts": 2, "relationships": 1}
        first = run_with_store(read_rooms)
        dump = postgres_server.dump(name)
    assert "FROM stdin;" in dump
    Path("copied.sql").write_text(dump)
    shutil.rmtree("data")
    assert import_dump(capsys, "copied.sql")["taken"] == report["taken"]
    assert run_with_store(read_rooms).keys() == first.keys()
    assert [item[1:] for item in run_with_store(read_rooms).values()] == [item[1:] for item in first.values()]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"PGDMP\x01", "is no SQL dump in plain text"),
        (b"INSERT INTO public.agents VALUES ('a');\n", "export it with --column-inserts"),
        (b"SELECT 1;\n", "the database has no agents"),
        (b"COPY public.agents (id, name) FROM stdin;\n1\n", "is damaged"),
        (b"\xff\xfe", "is damaged"),
    ],
)
def test_a_file_that_cannot_be_imported_is_explained(workdir: Path, capsys: Out, content: bytes, problem: str) -> None:
    write_character(workdir)
    Path("other.sql").write_bytes(content)
    assert entry(["import", "eliza-db", "other.sql", "-c", FILE]) == 78
    assert problem in capsys.readouterr().err


def test_the_agent_is_chosen_by_name_where_there_are_several(workdir: Path, capsys: Out) -> None:
    write_character(workdir)
    row = next(line for line in DUMP.splitlines(keepends=True) if line.startswith("INSERT INTO public.agents"))
    other = row.replace("'00000000-0000-4000-8000-000000000001'", "'00000000-0000-4000-8000-000000000009'", 1)
    Path("two.sql").write_text(DUMP.replace(row, row + other.replace("'Robin'", "'Wren'", 1), 1))
    assert entry(["import", "eliza-db", "two.sql", "-c", FILE]) == 78
    assert "choose one with --agent" in capsys.readouterr().err
    assert run_import(capsys, "eliza-db", "two.sql", "-c", FILE, "--agent", "robin")["taken"]["messages"] == 5
