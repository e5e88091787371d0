"""`bot character`, `bot import`: check, trust, write, import and export character files, and import history."""

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bot.characters import load_character
from bot.characters.exchange import file_stem, import_character
from bot.cli.characters import (
    CharacterConfig,
    format_sections,
    load_character_config,
    read_local_plugins,
    trusted_plugins,
)
from bot.cli.operator import CheckResult, WrittenCharacter, check_file, write_exported, write_imported, write_starter
from bot.cli.options import AsJson, Output, examples, new_group, print_json, working
from bot.cli.process.shutdown import Exit, UsageError, print_line, print_notice
from bot.cli.running_bot import open_store, run_with
from bot.errors import CharacterError, ConfigError, PluginError
from bot.imports import elizaos, sillytavern
from bot.imports.history import History, ImportReport, store_history
from bot.inbound.agent_handle import AdapterSpec
from bot.plugin_system.loading import find_adapters
from bot.plugin_system.trust import TrustedPlugin, TrustedPlugins, find_location, read_plugin_source
from bot.text import translate, translate_message

DEFAULT_NAME, HERE = "Ada", Path()


character_app = new_group(
    "Check character files, trust the code that they bring, write a new one, import and export them."
)
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="A character's file.")]


@character_app.command(epilog=examples("bot character check mine.json", "bot character check characters/*.json --json"))
def check(files: Files, as_json: AsJson = False) -> int:
    """Show what is used of each file and what is wrong."""
    results = [check_file(path) for path in files]
    is_fine = not any(result.error for result in results)
    if as_json:
        print_json({"ok": is_fine, "characters": [result.to_json() for result in results]})
    else:
        for result in results:
            _print_result(result)
    return Exit.OK if is_fine else Exit.CONFIG


@character_app.command(epilog=examples("bot character trust mine.json", "bot character trust --list"))
def trust(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE...", help="A character's file, or a plugin alone.")
    ] = None,
    is_list: Annotated[bool, typer.Option("--list", help="List what is trusted and whether it has changed.")] = False,
    revoke: Annotated[Path | None, typer.Option(metavar="FILE", help="Trust it no longer.")] = None,
) -> int:
    """Trust the code that a file names by its path, until it changes."""
    if (bool(files) + (revoke is not None) + is_list) != 1:
        raise UsageError("name a character's file, or use --list, or --revoke FILE")
    trusted = trusted_plugins()
    if is_list:
        _print_trusted(trusted.entries())
    if revoke is not None:
        ended = trusted.revoke(revoke)
        if not ended:
            raise PluginError(f"{revoke}: none of its code was trusted; `bot character trust --list` shows what is")
        for entry in ended:
            print_line(f"no longer trusted: {entry.plugin}")
    for path in files or ():
        _trust(path, trusted)
    return Exit.OK


@character_app.command(epilog=examples("bot character new mine.json --name Robin"))
def new(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="File to write (default: NAME.json).")] = None,
    name: Annotated[str, typer.Option(help=f"Its name (default: the file's, else {DEFAULT_NAME}).")] = "",
) -> int:
    """Write a small character file to start from, and three scenes that show what it does."""
    name = " ".join(name.split())
    name = name or (file.stem.replace("_", " ").replace("-", " ").title() if file else DEFAULT_NAME)
    file = file or Path(f"{file_stem(name)}.json")
    folder = write_starter(file, name)
    print(f"wrote {file}; talk to it with: bot chat -c {file}")
    print(f"wrote 3 scenes of it; run them with: bot scene run {folder}")
    return Exit.OK


@character_app.command(
    "import", epilog=examples("bot character import card.png", "bot character import ./cards --to characters")
)
def import_characters(
    path: Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="A card (JSON, PNG, charx), a file or a folder.")],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to write (default: here).")] = HERE,
    lorebook: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A lorebook to add to its knowledge.")
    ] = None,
) -> Output:
    """Write a character file for a SillyTavern card or an elizaOS file, and report what was lost."""
    characters, lines = [], list[str]()
    for item in write_imported(path, to, lorebook or ()):
        imported = item.imported
        report = {"report": imported.report.to_json(), "plugins": item.plugins}
        characters.append({"path": imported.path, "name": imported.name, "files": item.files, **report})
        lines += item.format_lines()
        if names := ", ".join(sorted(imported.secrets)):
            command = f"bot init --import {shlex.quote(str(imported.path))}"
            lines.append(f"  not written: {names}: put them into .env; `{command}` does that")
        lines.append(f"  talk to it with: bot chat -c {shlex.quote(str(item.files[0]))}")
    return Output({"characters": characters}, lines)


@character_app.command(
    epilog=examples("bot character export mine.json", "bot character export mine.json --picture face.png")
)
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A character's file.")],
    card: Annotated[bool, typer.Option("--card", help="As a SillyTavern card (V2).")] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="As a card inside a copy of this picture.")
    ] = None,
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write.")] = None,
) -> int:
    """Write a character as an elizaOS file or a SillyTavern card."""
    written = write_exported(file, to, is_card=card, picture=picture)
    print_line(f"wrote {written}")
    return Exit.OK


def _print_result(result: CheckResult) -> None:
    if result.loaded is not None and not result.error:
        report = result.loaded.report
        print_line(f"{result.path}: ok: {result.loaded.character.name} ({report.format})")
        for line in (*report.format_lines(), *(f"plugin   {note}" for note in result.plugins)):
            print_line(f"  {line}")
        command = f"bot character trust {shlex.quote(str(result.path))}"
        for source in result.code:
            state = "trusted" if source in result.trusted_code else f"runs only after `{command}`"
            print_line(f"  code     {source.name}: {source.location}, {source.summary}: {state}")
        for line in format_sections(result.sections):
            print_line(f"  prompt   {line}")
    else:
        print_notice(f"bot: {result.error_text}", allowed="\n")
        for line in result.loaded.report.format_lines() if result.loaded is not None else ():
            print_line(f"  {line}")


def _trust(path: Path, trusted: TrustedPlugins) -> None:
    if find_location(path) is not None or path.is_dir():
        sources, character, owner = [read_plugin_source(path, str(path))], None, "any character in its folder"
    else:
        sources, character, owner = read_local_plugins(path, load_character(path)), path, str(path)
    trusted.trust(sources, character)
    if not sources:
        print_line(f"{path} brings no code: there is nothing to trust")
    for source in sources:
        print_line(f"trusted for {owner}: {source.name}: {source.location}, {source.summary}")


def _print_trusted(entries: Sequence[TrustedPlugin]) -> None:
    for entry in entries:
        try:
            has_changed = read_plugin_source(Path(entry.plugin), entry.plugin).digest != entry.sha256
            state = "changed: not run before it is trusted again" if has_changed else "unchanged"
        except PluginError as error:
            state = str(error)
        owner = entry.character or "any character in its folder"
        print_line(f"{entry.plugin} for {owner}: {entry.summary}: {state}")
    if not entries:
        print("no code is trusted but that of installed plugins")


HEADER = ("what", "number", "reason")
import_app = new_group("Import what elizaOS or SillyTavern has stored; nothing of it is answered or sent.")


@import_app.command("eliza-db", epilog=examples("bot import eliza-db elizaos.sql -c mine.json"))
def import_elizaos(
    config: CharacterConfig,
    source: Annotated[str, typer.Argument(metavar="FILE|URL", help="An SQL dump (pg_dump), or postgresql://….")],
    agent: Annotated[str, typer.Option(metavar="NAME", help="Whose history (default: the character's).")] = "",
) -> Output:
    """Import rooms, people, messages, facts and relationships of elizaOS 1.x; the bot must not run."""
    with working(translate("reading the database")):
        is_url = source.startswith(("postgres://", "postgresql://"))
        database = asyncio.run(elizaos.read_server(source)) if is_url else elizaos.read_dump(Path(source))
        found = elizaos.choose_agent(database, [agent] if agent else [config.name])
        report = _store(config, elizaos.build_history(database, found, config.agent_id))
    return _report(report, {"agent": found["name"]}, [f"{found['name']} of elizaOS is {config.name} here"])


@import_app.command(
    "sillytavern", epilog=examples("bot import sillytavern SillyTavern/data/default-user --to characters")
)
def import_sillytavern(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a user, such as data/default-user.")],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to write the characters (default: here).")] = HERE,
) -> Output:
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
        stored = _store(config, sillytavern.build_history(card, config.agent_id, build))
        report.taken += stored.taken
        report.left += stored.left
    document: dict[str, object] = {"characters": characters, "personas": found.personas, "notes": found.notes}
    return _report(report, document, [*lines, *found.notes])


def _store(config: CharacterConfig, history: History) -> ImportReport:
    return run_with(config, open_store(config), lambda store: store_history(store, history))


def _report(report: ImportReport, document: dict[str, object], before: list[str]) -> Output:
    rows = [tuple(map(translate_message, row)) for row in report.rows()]
    plain = [f"{what}: {number}{f': {reason}' if reason else ''}" for what, number, reason in rows]
    header = [translate(name) for name in HEADER]
    return Output({**document, **report.to_json()}, plain, header, rows, before=map(translate_message, before))
