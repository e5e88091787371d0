"""Check character files, or write a new one to start from."""

import argparse
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.characters import LoadedCharacter, load_character, parse_character
from bot.cli.characters import is_foreign, settings_of
from bot.cli.process.exit_codes import Exit
from bot.cli.process.shutdown import aside
from bot.errors import CharacterError, ConfigError, SettingError
from bot.logs import harmless
from bot.plugin_system.loading import load_plugins

DEFAULT_NAME = "Ada"


@dataclass(frozen=True, slots=True)
class Checked:
    """What checking one file gave: a character and notes on its plugins, or what is wrong."""

    path: Path
    loaded: LoadedCharacter | None = None
    plugins: tuple[str, ...] = ()
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Give the result as JSON."""
        if self.loaded is None:
            return {"path": str(self.path), "ok": False, "error": self.error}
        return {**self.loaded.to_json(), "ok": not self.error, "plugins": self.plugins, "error": self.error}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="check|new")
    check = verbs.add_parser("check", help="tell what of each file is used, and what is wrong with it")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE")
    check.add_argument("--json", action="store_true", help="print the result as JSON")
    new = verbs.add_parser("new", help="write a small character to start from")
    new.add_argument("file", nargs="?", type=Path, metavar="FILE", help="where to (default: the name, .json)")
    new.add_argument("--name", default="", help=f"its name (default: as the file, else {DEFAULT_NAME})")


def run(args: argparse.Namespace) -> int:
    """Check, or write."""
    if args.verb == "new":
        return _write(args.file, " ".join(args.name.split()))
    results = [_checked(path) for path in args.files]
    is_fine = not any(result.error for result in results)
    if args.json:
        told = {"ok": is_fine, "characters": [result.to_json() for result in results]}
        print(json.dumps(told, ensure_ascii=False, indent=2))
    else:
        for result in results:
            _tell(result)
    return Exit.OK if is_fine else Exit.CONFIG


def _checked(path: Path) -> Checked:
    try:
        loaded = load_character(path)
    except CharacterError as error:
        return Checked(path, error=str(error))
    try:
        return Checked(path, loaded, tuple(_plugin_notes(path, loaded)))
    except ConfigError as error:
        return Checked(path, loaded, error=f"{path}: {error}")


def _plugin_notes(path: Path, loaded: LoadedCharacter) -> Iterator[str]:
    """Look for the plugins that are named; those of the file's own folder are not run for a check."""
    own = [name for name in loaded.character.plugins if name.startswith((".", "/", "~"))]
    for name in own:
        place = path.resolve().parent / Path(name).expanduser()
        if not place.exists() and not place.with_name(f"{place.name}.py").exists():
            yield f"{name}: there is no such file or folder"
    others = tuple(name for name in loaded.character.plugins if name not in own)
    character = loaded.character.model_copy(update={"plugins": others})
    with suppress(SettingError):  # the settings of this machine are no matter of the file
        settings = settings_of(loaded)
        yield from load_plugins(character, settings, folder=path.parent, is_foreign=is_foreign(loaded)).notes


def _tell(result: Checked) -> None:
    if result.loaded is not None and not result.error:
        report = result.loaded.report
        print(harmless(f"{result.path}: ok: {result.loaded.character.name} ({report.format})"))
        for line in (*report.lines(), *(f"plugin   {note}" for note in result.plugins)):
            print(harmless(f"  {line}"))
    else:
        aside(harmless(f"bot: {result.error}", keep="\n"))


def _write(path: Path | None, name: str) -> int:
    name = name or (path.stem.replace("_", " ").replace("-", " ").title() if path else DEFAULT_NAME)
    path = path or Path(re.sub(r"[^\w-]+", "_", name.lower()).strip("_") or "character").with_suffix(".json")
    text = json.dumps(_beginning(name), ensure_ascii=False, indent=2) + "\n"
    parse_character(text, source=str(path))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CharacterError(f"{path}: it exists already and is left as it is; name another file") from None
    except OSError as error:
        raise CharacterError(f"{path}: cannot be written: {error.strerror or error}") from None
    print(f"wrote {path}; talk to it with: bot chat -c {path}")
    return Exit.OK


def _beginning(name: str) -> dict[str, Any]:
    """A whole character in few lines, every part of it to be replaced."""
    return {
        "name": name,
        "system": f"You are {name}. Answer briefly and honestly; say so when you do not know something.",
        "bio": [
            f"{name} has just moved in and is curious about everybody.",
            f"{name} used to repair clocks and still cannot pass one that is wrong.",
        ],
        "topics": ["clocks and what makes them stop", "small repairs", "the people next door"],
        "adjectives": ["curious", "patient", "dry"],
        "messageExamples": [
            [
                {"name": "{{name1}}", "content": {"text": "What are you up to?"}},
                {
                    "name": name,
                    "content": {"text": "Listening to a clock. It says it is fine. It is not."},
                },
            ]
        ],
        "postExamples": ["A stopped clock is right twice a day. Try that with a fast one."],
        "style": {
            "all": ["Short, plain sentences.", "No emoji, no exclamation marks."],
            "chat": ["Answer first, then perhaps one question back."],
            "post": ["One thought, complete in itself."],
        },
    }
