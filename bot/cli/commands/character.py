"""Check character files, trust the code that they bring, write a new one, import and export them."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bot.characters import load_character
from bot.characters.exchange import file_stem
from bot.cli.characters import format_sections, read_local_plugins, trusted_plugins
from bot.cli.operator.characters import CheckResult, check_file, write_exported, write_imported, write_starter
from bot.cli.options import AsJson, examples, new_group, print_json
from bot.cli.process.shutdown import Exit, UsageError, print_notice
from bot.errors import PluginError
from bot.plugin_system.trust import TrustedPlugin, TrustedPlugins, find_location, read_plugin_source
from bot.text import strip_terminal_codes

DEFAULT_NAME, HERE = "Ada", Path()


app = new_group("Check character files, trust the code that they bring, write a new one, import and export them.")
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="A character's file.")]


@app.command(epilog=examples("bot character check mine.json", "bot character check characters/*.json --json"))
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


@app.command(epilog=examples("bot character trust mine.json", "bot character trust --list"))
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
        print("\n".join(strip_terminal_codes(f"no longer trusted: {entry.plugin}") for entry in ended))
    for path in files or ():
        _trust(path, trusted)
    return Exit.OK


@app.command(epilog=examples("bot character new mine.json --name Robin"))
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


@app.command("import", epilog=examples("bot character import card.png", "bot character import ./cards --to characters"))
def import_characters(
    path: Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="A card (JSON, PNG, charx), a file or a folder.")],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to write (default: here).")] = HERE,
    lorebook: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A lorebook to add to its knowledge.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Write a character file for a SillyTavern card or an elizaOS file, and report what was lost."""
    written = write_imported(path, to, lorebook or ())
    if as_json:
        characters = [
            {
                "path": str(item.imported.path),
                "name": item.imported.name,
                "files": list(map(str, item.files)),
                "report": item.imported.report.to_json(),
                "plugins": item.plugins,
            }
            for item in written
        ]
        print_json({"characters": characters})
        return Exit.OK
    for item in written:
        print("\n".join(item.format_lines()))
        if names := ", ".join(sorted(item.imported.secrets)):
            command = f"bot init --import {shlex.quote(str(item.imported.path))}"
            print(strip_terminal_codes(f"  not written: {names}: put them into .env; `{command}` does that"))
        print(strip_terminal_codes(f"  talk to it with: bot chat -c {shlex.quote(str(item.files[0]))}"))
    return Exit.OK


@app.command(epilog=examples("bot character export mine.json", "bot character export mine.json --picture face.png"))
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
    print(strip_terminal_codes(f"wrote {written}"))
    return Exit.OK


def _print_result(result: CheckResult) -> None:
    if result.loaded is not None and not result.error:
        report = result.loaded.report
        print(strip_terminal_codes(f"{result.path}: ok: {result.loaded.character.name} ({report.format})"))
        for line in (*report.format_lines(), *(f"plugin   {note}" for note in result.plugins)):
            print(strip_terminal_codes(f"  {line}"))
        command = f"bot character trust {shlex.quote(str(result.path))}"
        for source in result.code:
            state = "trusted" if source in result.trusted_code else f"runs only after `{command}`"
            print(strip_terminal_codes(f"  code     {source.name}: {source.location}, {source.summary}: {state}"))
        for line in format_sections(result.sections):
            print(strip_terminal_codes(f"  prompt   {line}"))
    else:
        print_notice(f"bot: {result.error_text}", allowed="\n")


def _trust(path: Path, trusted: TrustedPlugins) -> None:
    if find_location(path) is not None or path.is_dir():
        sources, character, owner = [read_plugin_source(path, str(path))], None, "any character in its folder"
    else:
        sources, character, owner = read_local_plugins(path, load_character(path)), path, str(path)
    trusted.trust(sources, character)
    if not sources:
        print(strip_terminal_codes(f"{path} brings no code: there is nothing to trust"))
    for source in sources:
        print(strip_terminal_codes(f"trusted for {owner}: {source.name}: {source.location}, {source.summary}"))


def _print_trusted(entries: Sequence[TrustedPlugin]) -> None:
    for entry in entries:
        try:
            has_changed = read_plugin_source(Path(entry.plugin), entry.plugin).digest != entry.sha256
            state = "changed: not run before it is trusted again" if has_changed else "unchanged"
        except PluginError as error:
            state = str(error)
        owner = entry.character or "any character in its folder"
        print(strip_terminal_codes(f"{entry.plugin} for {owner}: {entry.summary}: {state}"))
    if not entries:
        print("no code is trusted but that of installed plugins")
