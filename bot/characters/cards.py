"""Reads SillyTavern character cards, V1 to V3, as the fields of a character file.

The formats: the character card specifications V2 (`chara_card_v2`) and V3 (`chara_card_v3`).

Character cards inside other files: in the text chunks `chara` and `ccv3` of a PNG, and in a .charx archive.

The formats: the character card specifications V2 and V3, and the PNG specification for tEXt, zTXt and iTXt.
"""

import base64
import binascii
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from pydantic import JsonValue

from bot.characters.conversion import FieldReader, is_empty, to_json
from bot.characters.lorebooks import OTHER_PERSON, CardMacros, Fields, read_lorebook
from bot.characters.source import Format, KeyPath, Node, ReportCollector
from bot.domain.character import ContentRating
from bot.errors import CharacterError

PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
ARCHIVE_SIGNATURE: Final = b"PK\x03\x04"
MAX_FILE_BYTES: Final = 32 * 1024 * 1024  # of a picture or an archive, and of a file in one
MAX_ARCHIVE_FILES: Final = 10_000
MAX_PICTURE_BYTES: Final = 2 * 1024 * 1024  # of the picture that the web app shows
CARD_NAME: Final = "card.json"

_CHUNKS: Final = (b"ccv3", b"chara")  # the newer format first
_TEXT_CHUNKS: Final = (b"tEXt", b"zTXt", b"iTXt")
_NOT_BASE64: Final = re.compile(rb"[^A-Za-z0-9+/]")
_DATA_ADDRESS: Final = re.compile(r"data:image/[\w.+-]+(?:;[\w=.+-]+)*;base64,", re.IGNORECASE)
_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_ENTRY_SIGNATURE: Final = b"PK\x01\x02"  # of a file in the list at the end of an archive
_ENCRYPTED: Final = 1
_PICTURE_SIGNATURES: Final = ((PNG_SIGNATURE, ".png"), (b"\xff\xd8\xff", ".jpg"), (b"GIF8", ".gif"))


@dataclass(frozen=True, slots=True)
class CardFile:
    """The bytes of a PNG or a .charx archive that holds a card."""

    name: str
    data: bytes

    @property
    def is_picture(self) -> bool:
        """Whether it is a PNG and not an archive."""
        return self.data.startswith(PNG_SIGNATURE)

    def read_cards(self) -> dict[str, str]:
        """Return the JSON texts of its cards by their places, the preferred one first. Raises CharacterError."""
        if not self.is_picture:
            return {CARD_NAME: self.read(CARD_NAME).decode("utf-8", "replace")}
        encoded = {key.lower(): text for key, text in _text_chunks(self.data)}
        cards = {}
        for key in _CHUNKS:
            if key in encoded:
                is_json = encoded[key].lstrip().startswith(b"{")
                text = encoded[key] if is_json else _decode_base64(encoded[key])
                cards[key.decode()] = text.decode("utf-8", "replace")
        if not cards:
            advice = "export the character again as PNG or JSON"
            raise CharacterError(f"{self.name}: a picture without a character card: {advice}")
        if not any(cards.values()):
            raise CharacterError(f"{self.name}: the card in the picture is damaged: export the character again")
        return cards

    def list_files(self) -> list[str]:
        """Return the names of the files in an archive. Raises CharacterError."""
        with self._open() as archive:
            return [name for name in archive.namelist() if not name.endswith("/")]

    def read(self, name: str) -> bytes:
        """Return a file of an archive. Raises CharacterError if there is none, or if it is encrypted or too large."""
        with self._open() as archive:
            try:
                entry = archive.getinfo(name)
            except KeyError:
                raise CharacterError(f"{self.name}: there is no {name} in this archive") from None
            if entry.flag_bits & _ENCRYPTED or entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise CharacterError(f"{self.name}: {name} is encrypted, or compressed in another way than usual")
            if entry.file_size > MAX_FILE_BYTES:
                raise CharacterError(f"{self.name}: {name} has more than {MAX_FILE_BYTES // 2**20} MiB")
            try:
                with archive.open(entry) as file:
                    return file.read(MAX_FILE_BYTES)
            except (BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
                raise CharacterError(f"{self.name}: {name} is damaged: {error}") from None

    def _open(self) -> ZipFile:
        if self.data.count(_ENTRY_SIGNATURE) > MAX_ARCHIVE_FILES:
            raise CharacterError(f"{self.name}: an archive of more than {MAX_ARCHIVE_FILES} files")
        try:
            return ZipFile(BytesIO(self.data))
        except (BadZipFile, NotImplementedError, ValueError, struct.error) as error:
            raise CharacterError(f"{self.name}: a damaged archive: {error}: export the character again") from None


def read_card_file(path: Path) -> CardFile | None:
    """Return a PNG or an archive; None for any other file, also one that cannot be read. Raises CharacterError."""
    begin = data = b""
    with suppress(OSError), path.open("rb") as file:  # reading it as text says what is wrong
        begin = file.read(len(PNG_SIGNATURE))
        if begin == PNG_SIGNATURE or begin.startswith(ARCHIVE_SIGNATURE):
            data = begin + file.read(MAX_FILE_BYTES)
    if not data and begin.startswith(PNG_SIGNATURE[:4]):
        raise CharacterError(f"{path}: a damaged PNG picture: export the character again")
    if len(data) > MAX_FILE_BYTES:
        kind = "a picture" if data.startswith(PNG_SIGNATURE) else "an archive"
        raise CharacterError(f"{path}: {kind} of more than {MAX_FILE_BYTES // 2**20} MiB")
    return CardFile(str(path), data) if data else None


def picture_suffix(data: bytes) -> str:
    """Return the ending of a file with this picture; empty for anything else than a PNG, JPEG, GIF or WebP."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return ".webp"
    return next((suffix for signature, suffix in _PICTURE_SIGNATURES if data.startswith(signature)), "")


def read_data_address(source: str) -> bytes | None:
    """Return the bytes in an address such as `data:image/png;base64,…`; None for any other address."""
    prefix = _DATA_ADDRESS.match(source)
    return _decode_base64(source[prefix.end() :].encode()) if prefix else None


def write_png_card(picture: bytes, card: bytes) -> bytes:
    """Return a PNG with a card in it, instead of the one that it held. Raises CharacterError if it is no PNG."""
    if not picture.startswith(PNG_SIGNATURE):
        raise CharacterError("the picture is not a PNG: convert it first")
    pieces = [PNG_SIGNATURE]
    for kind, content, whole in _chunks(picture):
        if kind == b"IEND":
            text = b"chara\0" + base64.b64encode(card)
            checksum = binascii.crc32(b"tEXt" + text)
            pieces.append(struct.pack(">I", len(text)) + b"tEXt" + text + struct.pack(">I", checksum))
        if not (kind in _TEXT_CHUNKS and content.partition(b"\0")[0].lower() in _CHUNKS):
            pieces.append(whole)
    return b"".join(pieces)


def _decode_base64(encoded: bytes) -> bytes:
    """Return what base64 of either alphabet holds, padded or not; empty if it is none."""
    digits = _NOT_BASE64.sub(b"", encoded.translate(_URL_SAFE))
    try:
        return base64.b64decode(digits + b"=" * (-len(digits) % 4))
    except binascii.Error:
        return b""


def _text_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keyword and text of each text chunk of a PNG; the text is empty if it cannot be decompressed."""
    for kind, content, _ in _chunks(data):
        if kind not in _TEXT_CHUNKS:
            continue
        keyword, _, text = content.partition(b"\0")
        is_compressed = kind == b"zTXt"
        if is_compressed:
            text = text[1:]  # without the compression method
        elif kind == b"iTXt":
            is_compressed = text[:1] == b"\1"
            text = text[2:].partition(b"\0")[2].partition(b"\0")[2]  # without language and translated keyword
        yield keyword, _decompress(text) if is_compressed else text


def _decompress(data: bytes) -> bytes:
    """Return the decompressed data; empty if it is damaged, or larger than a file may be."""
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(data, MAX_FILE_BYTES)
    except zlib.error:
        return b""
    return text if decompressor.eof else b""


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield type, content and all bytes of each chunk of a PNG; a truncated one ends it."""
    offset = len(PNG_SIGNATURE)
    while offset + 12 <= len(data):
        [length] = struct.unpack_from(">I", data, offset)
        end = offset + 12 + length
        if end > len(data):
            return
        yield data[offset + 4 : offset + 8], data[offset + 8 : end - 4], data[offset:end]
        offset = end


EXTENSION: Final = "greenroom"  # the extension of a card that holds fields which a card has no place for
EXTENSION_FIELDS: Final = ("username", "topics", "postExamples", "style", "finalRules", "suggestions", "content")
PERSONALITY, SCENARIO = "Personality: ", "Scenario: "  # begin those lines of a bio
MATURE_TAGS: Final = frozenset({"nsfw", "r18", "18+"})
MAX_ADJECTIVES_LENGTH: Final = 300
RESPONSIVENESS: Final = "RESPONSIVENESS"
# The setting for a `talkativeness` (in groups, 0 to 1) of at most this; for one in between it is not set.
TALKATIVENESS: Final[Mapping[str, float]] = {"called": 0.05, "reserved": 0.35, "lively": 1.0}
USUAL_TALKATIVENESS: Final = 0.7

_CARD_FORMATS: Final[Mapping[str, Format]] = {"chara_card_v2": Format.CARD_V2, "chara_card_v3": Format.CARD_V3}
_V1_KEYS: Final = frozenset({"first_mes", "mes_example", "char_greeting", "example_dialogue"})
_ABOUT_CARD: Final = (
    "creator",
    "creator_notes",
    "creator_notes_multilingual",
    "creatorcomment",
    "character_version",
    "tags",
    "source",
    "creation_date",
    "modification_date",
)
_READ_KEYS: Final = frozenset(
    {*_ABOUT_CARD, "name", "nickname", "description", "personality", "scenario", "first_mes", "mes_example"}
    | {"system_prompt", "post_history_instructions", "alternate_greetings", "character_book", "extensions"}
    | {"char_name", "char_persona", "char_greeting", "world_scenario", "example_dialogue", "metadata", "spec_version"}
    | {"group_only_greetings", "talkativeness", "avatar", "chat", "create_date", "fav", "spec"}
    | {"assets"}  # see `exchange`
)
# Extensions that say nothing of the character: whether it is a favourite, where it is from, how a program lists it.
_SILENT_EXTENSIONS: Final = frozenset({"fav", "pygmalion_id", "github_repo", "source_url", "display_name", "full_path"})
_READ_EXTENSIONS: Final = frozenset({EXTENSION, "depth_prompt", "talkativeness", "regex_scripts", "world"})
EMPTY: Final = Node(None, 0, 0)
_LANGUAGE: Final = re.compile(r"[a-z]{2,3}(?:-[A-Za-z]{2,4})?")
_START: Final = re.compile(r"<START>", re.IGNORECASE)
_SPEAKER: Final = re.compile(
    r"[ \t]*(\{\{(?:user|char|bot|random_user_\d)\}\}|<(?:USER|BOT|CHAR)>|[^\n:：{}]{1,60})[:：][ \t\u3000]*",
    re.IGNORECASE,
)


def is_card(root: Node) -> bool:
    """Return whether a file is a card and not a character file."""
    members = root.value if isinstance(root.value, dict) else {}
    spec = members.get("spec")
    is_known = spec is not None and isinstance(spec.value, str) and spec.value.startswith("chara_card_v")
    return is_known or ("bio" not in members and not _V1_KEYS.isdisjoint(members))


def read_card(root: Node, collector: ReportCollector) -> tuple[Fields, Format]:
    """Return the fields of a character file for a card, and the version of its format.

    The report of `collector` tells what became of each part of the card.
    """
    reader = FieldReader(collector)
    members = reader.mapping(root, ())
    path: KeyPath = ()
    format = Format.CARD_V1
    if "data" in members and "spec" in members:
        format = _CARD_FORMATS.get(str(members["spec"].value), Format.CARD_V3)
        path = ("data",)
        members = reader.mapping(members["data"], path)
    return _CardConversion(collector, reader, path, members).convert(root), format


class _CardConversion:
    """The conversion of one card: of its members, which stand at `path` of the file."""

    def __init__(
        self, collector: ReportCollector, reader: FieldReader, path: KeyPath, members: Mapping[str, Node]
    ) -> None:
        self._collector, self._reader = collector, reader
        self._path, self._members = path, members
        self._name = self._full_name = ""  # a nickname is what {{char}} stands for
        self._macros = CardMacros()

    def convert(self, root: Node) -> Fields:
        name = CardMacros().replace(self._text("name", "char_name"), root.offset)
        self._full_name = name
        self._name = CardMacros(name).replace(self._text("nickname"), root.offset) or name
        if not name:
            self._collector.add_problem(root.offset, (*self._path, "name"), "is missing; every character has a name")
            return {}
        self._macros = CardMacros(self._name)
        fields: Fields = {"name": name, **self._read_prompts(), **self._read_talk(), **self._read_extension()}
        if level := self._read_talkativeness():
            fields["settings"] = {RESPONSIVENESS: level}
        self._report_extensions()
        if self._name != name:
            fields["username"] = self._name
            self._note_mapped("read as username: a second name that people may call", "nickname")
        if "character_book" in self._members:
            path = (*self._path, "character_book")
            book = read_lorebook(self._members["character_book"], path, self._collector, self._macros)
            settings = [part for part in (fields.get("settings"), book.get("settings")) if isinstance(part, dict)]
            fields |= book
            if settings:
                fields["settings"] = {name: value for part in settings for name, value in part.items()}
        about = {key: _plain(to_json(node)) for key, node in self._members.items() if key in _ABOUT_CARD}
        about = {key: value for key, value in about.items() if value not in (None, "", [], {})}
        if self._has_mature_tag():
            fields["content"] = ContentRating.MATURE.value
            self._note_mapped("read as content: mature, so the character speaks only where adults are", "tags")
        if about:
            fields["card"] = about
            self._collector.add_preserved(root.offset, self._path, f"kept as card, without effect: {', '.join(about)}")
        for key, node in self._members.items():
            if key not in _READ_KEYS and not is_empty(node):
                self._collector.add_ignored(node.key_offset, (*self._path, key), "has no counterpart here")
        self._macros.report(self._collector, self._path)
        return fields

    def _has_mature_tag(self) -> bool:
        tags = to_json(self._members["tags"]) if "tags" in self._members else []
        return isinstance(tags, list) and any(str(tag).strip().lower() in MATURE_TAGS for tag in tags)

    def _read_prompts(self) -> Fields:
        fields: Fields = {}
        system = self._text("system_prompt").replace("{{original}}", f"You are {self._macros.char_name}.")
        if system := self._replace_macros("system_prompt", system):
            fields["system"] = system
            self._note_mapped("read as system", "system_prompt")
        bio = self._paragraphs("description", "char_persona")
        self._note_mapped("read as bio, a line for each paragraph", "description", "char_persona")
        personality = self._replace_macros("personality", self._text("personality"))
        words = [word.strip(" .") for word in personality.split(",")]
        if len(words) > 1 and len(personality) <= MAX_ADJECTIVES_LENGTH and all(len(word) <= 40 for word in words):
            fields["adjectives"] = [word for word in words if word]
            self._note_mapped("read as adjectives", "personality")
        elif personality:
            bio.append(f"{PERSONALITY}{personality}")
            self._note_mapped("added to bio", "personality")
        if scenario := " ".join(self._paragraphs("scenario", "world_scenario")):
            bio.append(f"{SCENARIO}{scenario}")
            self._note_mapped("added to bio", "scenario", "world_scenario")
        if bio:
            fields["bio"] = list[JsonValue](bio)
        if rules := self._read_final_rules():
            fields["finalRules"] = list[JsonValue](rules)
        return fields

    def _read_final_rules(self) -> list[str]:
        """Return what stands behind the last messages, or between them: the instructions and the character's note."""
        if "style" in self._extension(EXTENSION):  # an export of this program, which has them in its extension
            return []
        rules = self._paragraphs("post_history_instructions")
        self._note_mapped("read as finalRules, which stand after the conversation", "post_history_instructions")
        note = self._extension("depth_prompt")
        prompt = note["prompt"].value if "prompt" in note else ""
        if isinstance(prompt, str) and (rule := self._replace_macros("extensions", prompt)):
            rules.append(" ".join(rule.split()))
            self._note_extension("depth_prompt", "read as finalRules, which stand after the conversation, at no depth")
        return rules

    def _read_talk(self) -> Fields:
        fields: Fields = {}
        nodes = self._members.get("alternate_greetings")
        texts = [self._text("first_mes", "char_greeting")]
        texts += self._reader.texts(nodes, (*self._path, "alternate_greetings")) if nodes else ()
        greetings = self._read_greetings("first_mes", texts)
        if greetings:
            fields["greetings"] = list[JsonValue](greetings)
            self._note_mapped("read as greetings, of which /start sends one", "first_mes", "char_greeting")
        nodes = self._members.get("group_only_greetings")
        texts = list(self._reader.texts(nodes, (*self._path, "group_only_greetings")) if nodes else ())
        if of_groups := self._read_greetings("group_only_greetings", texts):
            fields["groupGreetings"] = list[JsonValue](of_groups)
            message = "read as groupGreetings, of which /start sends one in a room of several people"
            self._note_mapped(message, "group_only_greetings")
        examples = list(self._read_examples(self._text("mes_example", "example_dialogue")))
        if examples:
            self._note_mapped(f"read as {len(examples)} messageExamples", "mes_example", "example_dialogue")
        elif greetings:
            opening = self._replace_macros("first_mes", greetings[0].replace("{{user}}", "{{name1}}"), "{{name1}}")
            examples = [[_line("{{name1}}", "Hello!"), _line(self._full_name, opening)]]
        if examples:
            fields["messageExamples"] = list[JsonValue](examples)
        return fields

    def _read_greetings(self, key: str, texts: Iterable[str]) -> list[str]:
        """Return greetings with a placeholder for the person; one with alternatives in it as several."""
        node = self._members.get(key)
        offset = node.key_offset if node else 0
        variants = [variant for text in texts for variant in self._macros.vary(text, offset, "{{user}}")]
        return [text for text in dict.fromkeys(variants) if text]

    def _read_examples(self, text: str) -> Iterator[JsonValue]:
        """Yield the conversations of a card, which `<START>` separates; lines without a speaker continue the last.

        Those before the first speaker are the character's own, as narration is.
        """
        leading_count = 0
        for block in _START.split(text):
            lines: list[tuple[str, list[str]]] = []
            for line in block.strip().splitlines():
                speaker = _SPEAKER.match(line)
                if speaker and (name := self._speaker(speaker[1])):
                    lines.append((name, [line[speaker.end() :]]))
                elif lines:
                    lines[-1][1].append(line)
                else:
                    leading_count += 1
                    lines.append((self._full_name, [line]))
            conversation: list[JsonValue] = [
                _line(name, words)
                for name, parts in lines
                if (words := self._replace_macros("mes_example", "\n".join(parts), "{{name1}}"))
            ]
            if conversation:
                yield conversation
        if leading_count:
            message = f"text before the first speaker is read as {self._full_name}'s, in {leading_count} examples"
            self._note_mapped(message, "mes_example", "example_dialogue")

    def _speaker(self, label: str) -> str:
        """Return the name of a speaker of an example; empty if the label is only a part of a text."""
        word = label.strip("{}<> ").lower()
        if word in ("char", "bot", self._name.lower(), self._full_name.lower()):
            return self._full_name
        if word.startswith(OTHER_PERSON):
            return "{{name2}}"
        return "{{name1}}" if word in ("user", "you") else ""

    def _read_extension(self) -> Fields:
        """Return the fields that an export of this program wrote into the card."""
        own = self._extension(EXTENSION)
        fields: Fields = {key: _plain(to_json(own[key])) for key in EXTENSION_FIELDS if key in own and key != "style"}
        style = to_json(own["style"]) if "style" in own else None
        if isinstance(style, dict):
            fields["style"] = {place: _plain(style[place]) for place in ("all", "chat", "post") if place in style}
        return {key: value for key, value in fields.items() if value is not None}

    def _read_talkativeness(self) -> str:
        """Return the value of RESPONSIVENESS for how often a card's character speaks unasked; empty for the usual."""
        extensions = self._extensions()
        node = extensions.get("talkativeness") or self._members.get("talkativeness")
        try:
            share = float(str(node.value)) if node is not None else USUAL_TALKATIVENESS
        except ValueError:
            return ""
        level = next((name for name, highest in TALKATIVENESS.items() if share <= highest), "")
        if not level or (level == "lively" and share <= USUAL_TALKATIVENESS):
            return ""
        message = f"{share:.0%} read as settings.{RESPONSIVENESS}: {level}"
        if "talkativeness" in extensions:
            self._note_extension("talkativeness", message)
        else:
            self._note_mapped(message, "talkativeness")
        return level

    def _report_extensions(self) -> None:
        """Report the extensions that have no counterpart here."""
        path, others = (*self._path, "extensions"), list[str]()
        for name, node in self._extensions().items():
            if name == "regex_scripts" and isinstance(node.value, tuple) and node.value:
                number = f"{len(node.value)} {'script' if len(node.value) == 1 else 'scripts'}"
                message = (
                    f"{number} left out, which would change texts: FILTER_WORDS or a plugin's filter does that here"
                )
                self._collector.add_ignored(node.key_offset, (*path, name), message)
            elif name == "world" and node.value and is_empty(self._members.get("character_book", EMPTY)):
                message = f"the lorebook {str(node.value)[:60]!r} is not in the card: add it by --lorebook FILE"
                self._collector.add_ignored(node.key_offset, (*path, name), message)
            elif name not in _READ_EXTENSIONS | _SILENT_EXTENSIONS and not is_empty(node) and node.value is not False:
                others.append(name[:40])
        if others:
            message = f"data and scripts of other programs are left out: {', '.join(others)}"
            self._collector.add_ignored(self._members["extensions"].key_offset, path, message)

    def _extensions(self) -> Mapping[str, Node]:
        node = self._members.get("extensions")
        return node.value if node is not None and isinstance(node.value, dict) else {}

    def _note_extension(self, name: str, message: str) -> None:
        node = self._extensions()[name]
        self._collector.add_mapped(node.key_offset, (*self._path, "extensions", name), message)

    def _extension(self, name: str) -> Mapping[str, Node]:
        found = self._extensions().get(name)
        return found.value if found and isinstance(found.value, dict) else {}

    def _text(self, *keys: str) -> str:
        """Return the text of the first of the keys that the card has."""
        for key in keys:
            if key in self._members and (text := self._reader.text(self._members[key], (*self._path, key))):
                return text.replace("\r\n", "\n")
        return ""

    def _paragraphs(self, *keys: str) -> list[str]:
        text = self._replace_macros(keys[0], self._text(*keys))
        return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]

    def _replace_macros(self, key: str, text: str, user: str = "the user") -> str:
        node = self._members.get(key)
        return self._macros.replace(text, node.key_offset if node else 0, user)

    def _note_mapped(self, message: str, *keys: str) -> None:
        """Report what was read from the first of the keys that the card has."""
        for key in keys:
            if (node := self._members.get(key)) is not None and not is_empty(node):
                self._collector.add_mapped(node.key_offset, (*self._path, key), message)
                return


def _line(name: str, text: str) -> Fields:
    return {"name": name, "content": {"text": text}}


def _plain(value: JsonValue) -> JsonValue:
    """Return a text, a number or a list of them; of translations those by language; None for anything else."""
    if isinstance(value, list):
        return [item for item in value if isinstance(item, str | int | float)]
    if isinstance(value, dict):
        return {key: text for key, text in value.items() if _LANGUAGE.fullmatch(key) and isinstance(text, str)} or None
    return value
