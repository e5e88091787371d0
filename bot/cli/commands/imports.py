"""Import what elizaOS or SillyTavern has stored: characters, people and history."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from bot.characters.exchange import file_stem, import_character
from bot.cli.characters import CharacterConfig, load_character_config
from bot.cli.operator.characters import WrittenCharacter, write_imported
from bot.cli.options import AsJson, CharacterFile, examples, new_group, print_result, working
from bot.cli.running_bot import require_storage, run_with
from bot.errors import CharacterError, ConfigError
from bot.imports import elizaos, sillytavern
from bot.imports.history import History, ImportReport, store_history
from bot.inbound.agent_handle import AdapterSpec
from bot.plugin_system.loading import find_adapters
from bot.plugin_system.plugin import collect_schemas
from bot.text import translate, translate_message

HEADER = ("what", "number", "reason")
HERE = Path()
app = new_group("Import what elizaOS or SillyTavern has stored; nothing of it is answered or sent.")


@app.command("eliza-db", epilog=examples("bot import eliza-db elizaos.sql -c mine.json"))
def import_elizaos(
    source: Annotated[str, typer.Argument(metavar="FILE|URL", help="An SQL dump (pg_dump), or postgresql://….")],
    agent: Annotated[str, typer.Option(metavar="NAME", help="Whose history (default: the character's).")] = "",
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Import rooms, people, messages, facts and relationships of elizaOS 1.x; the bot must not run."""
    config = load_character_config(character)
    with working(translate("reading the database")):
        is_url = source.startswith(("postgres://", "postgresql://"))
        database = asyncio.run(elizaos.read_server(source)) if is_url else elizaos.read_dump(Path(source))
        found = elizaos.choose_agent(database, [agent] if agent else [config.name])
        report = _store(config, elizaos.build_history(database, found, config.agent_config.agent_id))
    return _print(report, {"agent": found["name"]}, [f"{found['name']} of elizaOS is {config.name} here"], as_json)


@app.command("sillytavern", epilog=examples("bot import sillytavern SillyTavern/data/default-user --to characters"))
def import_sillytavern(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a user, such as data/default-user.")],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to write the characters (default: here).")] = HERE,
    as_json: AsJson = False,
) -> int:
    """Import the characters of a user of SillyTavern with their lorebooks and chats; their bots must not run."""
    found = sillytavern.read_folder(folder)
    report, characters, lines = found.report, list[dict[str, object]](), list[str]()
    specs = [spec for spec in find_adapters().values() if isinstance(spec, AdapterSpec)]
    build = next((spec.build_conversation for spec in specs if spec.build_conversation is not None), None)
    if build is None:
        raise ConfigError(
            "no installed adapter can show the chats: install Greenroom with its adapter for the web page"
        )
    for card in found.cards:
        try:
            name = import_character(card.path, card.lorebooks).name
        except CharacterError as error:
            report.left["characters", str(error)] += 1
            continue
        file, written = to / f"{file_stem(name)}.json", list[WrittenCharacter]()
        if file.exists():
            report.left["characters", "their file is there already; it is unchanged"] += 1
        else:
            written = write_imported(card.path, to, card.lorebooks)
            report.taken["characters"] += 1
            report.taken["lorebooks"] += len(card.lorebooks)
        config = load_character_config(file)
        if config.name != name:
            report.left["chats", f"{file} is of another character: name another folder with --to"] += len(card.chats)
            continue
        lost = [note for item in written for note in item.lost()]
        characters.append({"name": name, "file": str(file), "lost": lost})
        lines += [*(f"{name}: {note}" for note in lost), f"{name}: talk to it with: bot chat -c {file}"]
        stored = _store(config, sillytavern.build_history(card, config.agent_config.agent_id, build))
        report.taken += stored.taken
        report.left += stored.left
    document: dict[str, object] = {"characters": characters, "personas": found.personas, "notes": found.notes}
    return _print(report, document, [*lines, *found.notes], as_json)


def _store(config: CharacterConfig, history: History) -> ImportReport:
    agent_id, schemas = config.agent_config.agent_id, collect_schemas(config.plugins)
    opened = require_storage(config).open(agent_id, config.settings, schemas)
    return run_with(config, opened, lambda store: store_history(store, history))


def _print(report: ImportReport, document: dict[str, object], lines: list[str], as_json: bool) -> int:
    rows = [tuple(map(translate_message, row)) for row in report.rows()]
    plain = [f"{what}: {number}{f': {reason}' if reason else ''}" for what, number, reason in rows]
    if not as_json:
        print_result({}, map(translate_message, lines), as_json=False)
    header = [translate(name) for name in HEADER]
    return print_result({**document, **report.to_json()}, plain, as_json=as_json, header=header, rows=rows)
