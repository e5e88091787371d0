"""Read the folder of a user of SillyTavern (`data/default-user`): cards, chats, lorebooks, personas and groups.

The formats are those of SillyTavern 1.19; of earlier versions the times of messages are read too. No secret, setting of
a model or extension is read.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from bot.characters.cards import read_card_file
from bot.domain.content import Content
from bot.domain.environment import Entity, Room, World
from bot.domain.ids import derived_id
from bot.domain.memory import Memory, MemoryKind
from bot.errors import CharacterError, ConfigError
from bot.imports.history import IMPORTED_KEY, History, ImportReport
from bot.text import is_blank, sanitize_text, shorten

SOURCE: Final = "sillytavern"
MAX_FILE_BYTES: Final = 200 * 2**20
DEFAULT_PERSONA: Final = "User"
TIME_FORMATS: Final = (
    "%B %d, %Y %I:%M%p",
    "%Y-%m-%d@%Hh%Mm%Ss%fms",
    "%Y-%m-%d@%Hh%Mm%Ss",
    "%Y-%m-%d @%Hh %Mm %Ss %fms",
)
LEFT_FILES: Final = {
    "secrets.json": ("secrets", "put the keys of models into .env"),
    "OpenAI Settings/*.json": ("presets", "models are set by variables here"),
    "TextGen Settings/*.json": ("presets", "models are set by variables here"),
    "QuickReplies/*.json": ("quick replies", "there is no counterpart"),
    "backups/*.jsonl": ("backups of chats", "they repeat the chats"),
}
SCRIPTS: Final = ("scripts that change texts", "FILTER_WORDS or a plugin's filter does that here")
AUTHOR_NOTES: Final = ("author's notes of chats", "what holds in a single room is set there by `/room`")
BuildConversation = Callable[[UUID, str, str, str], tuple[World, Room, Entity]]


@dataclass(frozen=True, slots=True)
class CardOfFolder:
    """A card of the folder: its file, the lorebook that it names and does not contain, and its chats."""

    path: Path
    lorebooks: tuple[Path, ...]
    chats: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class UserFolder:
    """What of a user's folder is imported, the report of what is not, and notes on what belongs together."""

    cards: tuple[CardOfFolder, ...]
    personas: tuple[str, ...]
    report: ImportReport
    notes: tuple[str, ...]


def read_folder(folder: Path) -> UserFolder:
    """Return the contents of a user's folder, or of its only one for a data folder. Raises ConfigError."""
    found = [place for place in (folder, folder / "default-user", folder / "data" / "default-user") if _is_user(place)]
    if not found:
        raise ConfigError(
            f"{folder} is no folder of a user of SillyTavern: name the one with `characters` and `chats` in it, such "
            "as SillyTavern/data/default-user"
        )
    root, report = found[0], ImportReport()
    cards = [_read_card(root, path) for path in sorted((root / "characters").glob("*.png"))]
    settings = _read_json(root / "settings.json")
    powers = settings.get("power_user")
    personas = powers.get("personas") if isinstance(powers, dict) else None
    names = [str(name) for name in personas.values()] if isinstance(personas, dict) else []
    used = {path for card in cards for path in card.lorebooks}
    in_cards = {_card_fields(card.path).get("character_book", {}).get("name") for card in cards}
    for book in sorted((root / "worlds").glob("*.json")):
        if book not in used and book.stem not in in_cards:
            report.left["lorebooks", "no card names them: `bot character import CARD --lorebook FILE`"] += 1
    known = {card.path.stem for card in cards}
    strays = [path for path in sorted((root / "chats").glob("*/*.jsonl")) if path.parent.name not in known]
    report.left["chats", "their character is not in the folder"] += len(strays)
    descriptions = powers.get("persona_descriptions") if isinstance(powers, dict) else None
    report.left["descriptions of personas", "what is known of a person is learnt from what they write"] += sum(
        bool(isinstance(item, dict) and item.get("description"))
        for item in (descriptions.values() if isinstance(descriptions, dict) else ())
    )
    extensions = settings.get("extension_settings")
    scripts = extensions.get("regex") if isinstance(extensions, dict) else None
    report.left[SCRIPTS] += len(scripts) if isinstance(scripts, list) else 0
    for pattern, key in LEFT_FILES.items():
        report.left[key] += len(list(root.glob(pattern)))
    return UserFolder(tuple(cards), tuple(sorted(set(names))), report, tuple(_read_groups(root, cards, report)))


def build_history(card: CardOfFolder, agent_id: UUID, build_conversation: BuildConversation) -> History:
    """Return the chats of a card as private conversations; of each message the chosen text."""
    history = History()
    for path in card.chats:
        lines, persona = _read_chat(path, history.report), DEFAULT_PERSONA
        spoken = [line for line in lines if line.get("is_user")]
        if not spoken:
            history.report.left["chats", "nobody wrote in them"] += 1
            continue
        persona = shorten(" ".join(str(spoken[-1].get("name") or DEFAULT_PERSONA).split()), 64)
        key = f"{path.parent.name}/{path.name}"
        world, room, person = build_conversation(agent_id, derived_id(SOURCE, key).hex, path.stem, persona)
        history.worlds[world.id], history.rooms[room.id] = world, room
        history.people[person.id] = person
        history.members[room.id].add(person.id)
        at = datetime.fromtimestamp(path.stat().st_mtime, UTC) - timedelta(seconds=len(lines))
        for number, line in enumerate(lines):
            at = _parse_time(line.get("send_date")) or at + timedelta(seconds=1)
            text = sanitize_text(str(line.get("mes") or ""))
            if line.get("is_system") or is_blank(text):
                history.report.left["messages", "they are of the program, hidden or empty"] += 1
                continue
            author_id = person.id if line.get("is_user") else agent_id
            content, memory_id = Content(text, source=room.platform), derived_id(agent_id, SOURCE, key, str(number))
            metadata = {IMPORTED_KEY: {"program": SOURCE, "id": f"{key}#{number}"}}
            history.memories.append(
                Memory(memory_id, MemoryKind.MESSAGE, author_id, room.id, world.id, content, at, metadata=metadata)
            )
    return history


def _is_user(folder: Path) -> bool:
    return (folder / "characters").is_dir() and (folder / "chats").is_dir()


def _read_card(root: Path, path: Path) -> CardOfFolder:
    fields = _card_fields(path)
    extensions, book = fields.get("extensions"), fields.get("character_book")
    named = str(extensions.get("world") or "") if isinstance(extensions, dict) else ""
    lorebook = root / "worlds" / f"{named}.json"
    is_missing = not (isinstance(book, dict) and book.get("entries"))
    is_used = named and is_missing and lorebook.parent == root / "worlds" and lorebook.is_file()
    chats = sorted((root / "chats" / path.stem).glob("*.jsonl"))
    return CardOfFolder(path, (lorebook,) if is_used else (), tuple(chats))


def _card_fields(path: Path) -> dict[str, Any]:
    """Return the fields of the card in a picture; none where it cannot be read, which its import reports."""
    with suppress(CharacterError, ValueError):
        if (file := read_card_file(path)) is not None:
            for text in file.read_cards().values():
                card = json.loads(text)
                data = card.get("data", card) if isinstance(card, dict) else None
                if isinstance(data, dict):
                    return data
    return {}


def _read_groups(root: Path, cards: list[CardOfFolder], report: ImportReport) -> Iterator[str]:
    names = {card.path.name: str(_card_fields(card.path).get("name") or card.path.stem) for card in cards}
    for path in sorted((root / "groups").glob("*.json")):
        group = _read_json(path)
        listed = group.get("members")
        members = [names.get(str(member), str(member)) for member in (listed if isinstance(listed, list) else ())]
        report.left["groups", "each character is a bot of its own here: run them in one room, as noted"] += 1
        yield f"group {group.get('name') or path.stem}: {', '.join(members)}"
    chats = list((root / "group chats").glob("*.jsonl"))
    report.left["chats of groups", "several characters speak in them, and a history is of one"] += len(chats)


def _read_json(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        if path.stat().st_size <= MAX_FILE_BYTES:
            value = json.loads(path.read_bytes())
            return value if isinstance(value, dict) else {}
    return {}


def _read_chat(path: Path, report: ImportReport) -> list[dict[str, Any]]:
    """Return the messages of a chat, without its first line, which describes it."""
    lines: list[dict[str, Any]] = []
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError
        texts = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        report.left["chats", "their files cannot be read"] += 1
        return lines
    for text in filter(str.strip, texts):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if isinstance(line, dict) and "mes" in line:
            lines.append(line)
        elif isinstance(line, dict) and "chat_metadata" in line:
            metadata = line["chat_metadata"]
            report.left[AUTHOR_NOTES] += bool(isinstance(metadata, dict) and metadata.get("note_prompt"))
        else:
            report.left["messages", "their lines cannot be read"] += 1
    return lines


def _parse_time(value: Any) -> datetime | None:
    """Return a time of any version of SillyTavern, in UTC where it names no zone; None for anything else."""
    text = str(value or "").strip()
    with suppress(ValueError, OverflowError, OSError):
        if re.fullmatch(r"\d+", text):
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    for format in TIME_FORMATS:
        with suppress(ValueError):
            return datetime.strptime(text, format).replace(tzinfo=UTC)
    return None
