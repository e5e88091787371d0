"""Imports characters from SillyTavern and elizaOS, and exports them as elizaOS files or SillyTavern cards."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue

from bot.characters.cards import (
    EXTENSION,
    EXTENSION_FIELDS,
    MAX_FILE_BYTES,
    MAX_PICTURE_BYTES,
    PERSONALITY,
    RESPONSIVENESS,
    SCENARIO,
    TALKATIVENESS,
    CardFile,
    is_card,
    picture_suffix,
    read_card,
    read_card_file,
    read_data_address,
)
from bot.characters.conversion import FIELDS, to_json
from bot.characters.loader import CHARACTER_SUFFIXES, load_character, parse_character, read_character_source
from bot.characters.lorebooks import LOGICS, CardMacros, Fields, is_lorebook, read_lorebook
from bot.characters.source import Format, ImportReport, Node, Note, ReportCollector, SourceText, scan_json
from bot.domain.character import AVATAR_SETTING, Character, KnowledgeItem
from bot.errors import CharacterError

CARD_SPEC: Final = "chara_card_v2"
DEFAULT_ASSET: Final = "ccdefault:"  # of the programs that show a card
PROJECT_FOLDER: Final = "characters"  # of the characters in a project of elizaOS
# Fields that files of other programs have too: package-lock.json, manifest.json, .eslintrc.json, devcontainer.json
_GENERAL_FIELDS: Final = frozenset({"id", "name", "extends", "people", "plugins", "settings", "style", "templates"})
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_EMBEDDED: Final = re.compile(r"^embed(?:d)?ed://")  # the specification writes it with one d


@dataclass(frozen=True, slots=True)
class ImportedCharacter:
    """A character from elsewhere: the text of its file, the report, its picture, and documents to copy beside it.

    `documents` are the paths that its knowledge names, relative to the file that was imported. `secrets` are those of
    it that stood under the name of a variable; the text has none.
    """

    path: Path
    name: str
    text: str
    report: ImportReport
    picture: bytes = b""
    documents: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def picture_name(self) -> str:
        """The name of its picture's file."""
        return file_stem(self.name) + picture_suffix(self.picture)


def import_character(path: Path, lorebooks: Sequence[Path] = ()) -> ImportedCharacter:
    """Return a character file for a SillyTavern card, or for an elizaOS file of either generation.

    The entries of exported `lorebooks` are added to its knowledge. Raises CharacterError.
    """
    source, file, skipped = _read_source(path)
    root, deviations = scan_json(source)
    picture, secrets = b"", dict[str, str]()
    if is_lorebook(root):
        raise CharacterError(f"{path}: a lorebook alone: add it to a character by `import CARD --lorebook {path.name}`")
    if not is_card(root):
        loaded = load_character(path)
        fields, report, secrets = export_character(loaded.character), loaded.report, dict(loaded.secrets)
        picture, problem = _find_own_picture(path, loaded.character.picture_source)
        report = report.with_warnings([Note("picture", 1, problem)] if problem else [])
        settings = fields.get("settings")
        if picture and isinstance(settings, dict):
            settings.pop(AVATAR_SETTING, None)
    else:
        collector = ReportCollector(source)
        for deviation in deviations:
            collector.add_warning(deviation.offset, deviation.path, deviation.message)
        for message in skipped:
            collector.add_warning(0, (), message)
        fields, format = read_card(root, collector)
        picture = _read_picture(file, root, collector)
        collector.raise_problems()
        report = collector.build_report(format)
    for book in lorebooks:
        report = _add_lorebook(fields, book, report)
    if lorebooks:
        others = tuple(note for note in report.ignored if not note.path.endswith("extensions.world"))
        report = replace(report, ignored=others)
    if picture:
        fields["picture"] = file_stem(str(fields["name"])) + picture_suffix(picture)
    text = json.dumps(fields, ensure_ascii=False, indent=2) + "\n"
    loaded = parse_character(text, source=f"the file for {path}")
    report = replace(report, secrets=(*report.secrets, *loaded.report.secrets))
    documents = tuple(item.path or item.directory for item in loaded.character.knowledge if not item.content)
    secrets = {name: value for name, value in {**secrets, **loaded.secrets}.items() if _VARIABLE.fullmatch(name)}
    named = tuple(filter(None, documents))
    return ImportedCharacter(path, loaded.character.name, text, report, picture, named, secrets)


def file_stem(name: str) -> str:
    """Return the name of a character's file, without its ending."""
    return re.sub(r"[^\w-]+", "_", name.lower()).strip("_")[:80] or "character"


def find_characters(folder: Path) -> list[Path]:
    """Return the files of a folder that can be imported, sorted by name; else those of its folder `characters`.

    Raises CharacterError if there are none.
    """
    for place in (folder, folder / PROJECT_FOLDER):
        files = place.iterdir() if place.is_dir() else ()
        paths = sorted(path for path in files if path.suffix.lower() in CHARACTER_SUFFIXES and path.is_file())
        if found := [path for path in paths if _is_importable(path)]:
            return found
    raise CharacterError(
        f"{folder}: no card (JSON, PNG or .charx) and no character file in this folder or in its folder `characters`; "
        "a character that is written in TypeScript cannot be read: write it as JSON"
    )


def export_character(character: Character) -> Fields:
    """Return a character as an elizaOS file of the current generation, without its secrets.

    It has the fields that differ from their defaults.
    """
    fields: Fields = character.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"name": fields.pop("name"), **fields}


def export_card(character: Character) -> Fields:
    """Return a character as a SillyTavern card, V2. What a card has no place for is in its extension `greenroom`."""
    name, fields = character.name, export_character(character)
    greetings = list(character.greetings)
    about = fields.get("card")
    card_fields: Mapping[str, Any] = about if isinstance(about, dict) else {}
    bio = [line for line in character.background if not line.startswith((PERSONALITY, SCENARIO))]
    book = [_book_entry(number, item) for number, item in enumerate(character.knowledge) if item.content]
    examples = []
    for conversation in character.message_examples:
        examples.append("<START>")
        for line in conversation:
            speaker = "{{char}}" if line.name in (name, "{{agentName}}") else "{{user}}"
            examples.append(f"{speaker}: {line.content.text}")
    settings = character.settings
    talkativeness = TALKATIVENESS.get(str(settings.get(RESPONSIVENESS, "")))
    budget, depth = settings.get("KEYED_KNOWLEDGE_TOKENS"), settings.get("KEYED_KNOWLEDGE_MESSAGES")
    extensions: Fields = {EXTENSION: {key: fields[key] for key in EXTENSION_FIELDS if key in fields}}
    data: Fields = {
        "name": name,
        "description": "\n\n".join(bio),
        "personality": _line_of(character, PERSONALITY) or ", ".join(character.adjectives),
        "scenario": _line_of(character, SCENARIO),
        "first_mes": greetings[0] if greetings else "",
        "mes_example": "\n".join(examples),
        "creator_notes": str(card_fields.get("creator_notes", "")),
        "system_prompt": character.system,
        "post_history_instructions": "\n\n".join((*character.style.all, *character.final_rules)),
        "alternate_greetings": list[JsonValue](greetings[1:]),
        "tags": card_fields.get("tags", []),
        "creator": str(card_fields.get("creator", "")),
        "character_version": str(card_fields.get("character_version", "")),
        "extensions": extensions,
    }
    if character.group_greetings:
        data["group_only_greetings"] = list[JsonValue](character.group_greetings)
    if talkativeness is not None:
        data["extensions"] = {**extensions, "talkativeness": str(talkativeness)}
    if book:
        limits: Fields = {"token_budget": _number(budget), "scan_depth": _number(depth)}
        recursive = str(settings.get("KEYED_KNOWLEDGE_RECURSIVE", "")).lower() == "true"
        kept = {key: value for key, value in limits.items() if value is not None}
        data["character_book"] = {**kept, "recursive_scanning": recursive, "extensions": {}, "entries": book}
    return {"spec": CARD_SPEC, "spec_version": "2.0", "data": data}


def _read_source(path: Path) -> tuple[SourceText, CardFile | None, list[str]]:
    """Return the text of a file or of the card in it, the file if it holds a card, and what of it cannot be read."""
    file = read_card_file(path)
    if file is None:
        return SourceText(str(path), read_character_source(path)), None, []
    skipped: list[str] = []
    cards = file.read_cards()
    for place, text in cards.items():
        source = SourceText(str(path), text)
        try:
            root, _ = scan_json(source)
        except CharacterError:
            if len(skipped) == len(cards) - 1:
                raise
        else:
            if is_card(root) or len(skipped) == len(cards) - 1:
                return source, file, skipped
        skipped.append(f"the card in {place} cannot be read: another one in the file is used")
    raise AssertionError("the last card is returned, or its error raised")


def _read_picture(file: CardFile | None, root: Node, collector: ReportCollector) -> bytes:
    """Return the picture of a card: the PNG around it, or the main icon in its archive; empty if there is none."""
    assets = _assets_of(root)
    data, used = (b"", {}) if file is not None and file.is_picture else _find_icon(file, assets)
    if file is not None and file.is_picture:
        data = file.data
    left_out = [
        f"{item.get('type', 'file')} {item.get('name') or item.get('uri')}" for item in assets if item is not used
    ]
    if left_out:
        message = f"left out, a character has a single picture: {', '.join(left_out)}"
        collector.add_ignored(0, "assets", message)
    if len(data) > MAX_PICTURE_BYTES:
        collector.add_warning(0, "picture", _describe_size(data))
    return data


def _find_own_picture(path: Path, source: str) -> tuple[bytes, str]:
    """Return the picture that a character file names, and what is wrong with it; empty for one on the web.

    It is looked for beside the file and, in a project of elizaOS, in the project's folder and its folder `public`.
    """
    if not source or "://" in source:
        return b"", ""
    if (data := read_data_address(source)) is not None:
        return (data, _describe_size(data)) if picture_suffix(data) else (b"", "the picture in the file is damaged")
    folder = path.resolve().parent
    project = folder.parent if folder.name == PROJECT_FOLDER else folder
    for root in dict.fromkeys((folder, project, project / "public")):
        try:
            file = (root / source.lstrip("/")).resolve()
            if not (file.is_relative_to(root) or file.is_relative_to(project)) or not file.is_file():
                continue
            if file.stat().st_size > MAX_FILE_BYTES:
                return b"", f"{source!r} is not copied: it has more than {MAX_FILE_BYTES // 2**20} MiB"
            data = file.read_bytes()
        except (OSError, ValueError) as error:
            return b"", f"{source!r} is not copied: it cannot be read: {error}"
        if not picture_suffix(data):
            return b"", f"{source!r} is not copied: it is no PNG, JPEG, GIF or WebP"
        return data, _describe_size(data)
    return b"", f"{source!r} is not copied: there is no such file in the folder of the character or of its project"


def _describe_size(picture: bytes) -> str:
    """Return what to say of a picture that is too large to be shown; empty for any other."""
    if len(picture) <= MAX_PICTURE_BYTES:
        return ""
    size, limit = len(picture) / 2**20, MAX_PICTURE_BYTES // 2**20
    return f"has {size:.1f} MiB: the web app shows only one of at most {limit} MiB"


def _assets_of(root: Node) -> list[dict[str, JsonValue]]:
    """Return the files that a card of V3 names, but for the default icon."""
    card = to_json(root)
    data = card.get("data") if isinstance(card, dict) else None
    assets = data.get("assets") if isinstance(data, dict) else None
    listed = assets if isinstance(assets, list) else []
    return [item for item in listed if isinstance(item, dict) and item.get("uri") != DEFAULT_ASSET]


def _find_icon(file: CardFile | None, assets: Sequence[Fields]) -> tuple[bytes, Fields]:
    """Return the main icon, of an archive or in the card itself, and which asset it is; empty if none is a picture."""
    names = set(file.list_files()) if file is not None else set()
    icons = [item for item in assets if item.get("type") == "icon"]
    for asset in sorted(icons, key=lambda item: item.get("name") != "main"):
        address = str(asset.get("uri"))
        name = _EMBEDDED.sub("", address)
        picture = file.read(name) if file is not None and name in names else read_data_address(address) or b""
        if picture_suffix(picture):
            return picture, asset
    return b"", {}


def _add_lorebook(fields: Fields, path: Path, report: ImportReport) -> ImportReport:
    """Add the entries of a lorebook to the knowledge; return the report with its notes."""
    source = SourceText(str(path), read_character_source(path))
    root, _ = scan_json(source)
    collector = ReportCollector(source)
    macros = CardMacros(str(fields.get("username") or fields.get("name", "")))
    added = read_lorebook(root, (path.name,), collector, macros)
    macros.report(collector, (path.name,))
    collector.raise_problems()
    if "knowledge" not in added:
        raise CharacterError(f"{path}: no lorebook: it has no entries with a text")
    for key, value in added.items():
        earlier = fields.get(key)
        if isinstance(value, list):
            fields[key] = [*(earlier if isinstance(earlier, list) else []), *value]
        elif isinstance(value, dict):
            fields[key] = {**value, **(earlier if isinstance(earlier, dict) else {})}
    notes = collector.build_report(Format.CARD_V2)
    report = report.with_warnings(notes.warnings)
    return replace(report, mapped=(*report.mapped, *notes.mapped), ignored=(*report.ignored, *notes.ignored))


def _is_importable(path: Path) -> bool:
    try:
        source, file, _ = _read_source(path)
        root, _ = scan_json(source)
    except CharacterError:
        return path.suffix.lower() == ".json"  # to be reported, unlike a picture of something else
    members = root.value if isinstance(root.value, dict) else {}
    is_character = members.keys() <= FIELDS.keys() or not members.keys().isdisjoint(FIELDS.keys() - _GENERAL_FIELDS)
    return file is not None or is_card(root) or ("name" in members and is_character)


def _line_of(character: Character, label: str) -> str:
    """Return the line of the bio that begins with a label, without it."""
    return next((line.removeprefix(label) for line in character.bio if line.startswith(label)), "")


def _book_entry(number: int, item: KnowledgeItem) -> JsonValue:
    return {
        "keys": list[JsonValue](item.keys),
        "secondary_keys": list[JsonValue](item.secondary_keys),
        "content": item.content,
        "extensions": {
            "selectiveLogic": LOGICS.index(item.secondary_logic),
            "probability": item.probability,
            "useProbability": True,
        },
        "enabled": True,
        "insertion_order": item.order,
        "case_sensitive": item.case_sensitive,
        "constant": item.always or not item.keys,
        "selective": bool(item.secondary_keys),
        "id": number,
    }


def _number(value: JsonValue) -> int | None:
    return int(str(value)) if str(value).isdigit() else None
