"""SillyTavern cards: what becomes of each part, in JSON and in pictures, there and back."""

import base64
import json
import random
import re
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from bot.characters import Format, load_character, parse_character
from bot.characters.cards import MAX_FILE_BYTES, MAX_PICTURE_BYTES, PNG_SIGNATURE, write_png_card
from bot.characters.exchange import ImportedCharacter, export_card, find_characters, import_character
from bot.characters.lorebooks import list_words
from bot.domain.character import Character, KnowledgeItem
from bot.domain.environment import ChannelType
from bot.domain.ledger import Outcome, Rule
from bot.errors import CharacterError
from bot.models.types import Purpose
from bot.testing import ScriptedModel, model_answer, running_agent
from plugins.knowledge import plugin as knowledge_plugin

BOOK: dict[str, Any] = {
    "scan_depth": 3,
    "token_budget": 300,
    "recursive_scanning": True,
    "entries": [
        {"keys": ["lamp", "light"], "content": "The lamp turns.", "enabled": True, "insertion_order": 10},
        {
            "keys": ["Oslo"],
            "secondary_keys": ["ferry"],
            "selective": True,
            "case_sensitive": True,
            "content": "The ferry to Oslo left with {{user}}.",
        },
        {"keys": [], "content": "@@depth 3\nThere is always fog.", "constant": True},
        {"keys": ["x"], "content": "off", "enabled": False},
        {"keys": ["/a+/"], "content": "pattern", "use_regex": True},
        {"keys": [], "content": "never found"},
        {"keys": ["y"], "content": " "},
    ],
}
DATA: dict[str, Any] = {
    "name": "Seraphine",
    "description": "{{char}} keeps a lighthouse.\nShe is tall.\n\n{{user}} is a guest of <BOT>. {{random:Tea,Coffee}}.",
    "personality": "calm, dry, patient",
    "scenario": "A storm. {{user}} knocks.",
    "first_mes": "*opens* Hello {{user}}, I'm {{char}}.",
    "mes_example": "<START>\n{{user}}: Hi\n{{char}}: Come in.\nNote: it is wet.\n<START>\n{{char}}: Tea?",
    "creator_notes": "made in a storm",
    "system_prompt": "{{original}} Write as {{char}}.",
    "post_history_instructions": "Stay short. {{time_UTC+1}}",
    "alternate_greetings": ["Ahoy {{user}}", ""],
    "tags": ["sea"],
    "creator": "somebody",
    "character_version": "1.2",
    "extensions": {"depth_prompt": {"prompt": "Never shout.", "depth": 4}, "fav": True},
    "character_book": BOOK,
    "unheard_of": 1,
}
V2: dict[str, Any] = {"spec": "chara_card_v2", "spec_version": "2.0", "data": DATA}
V1: dict[str, Any] = {
    "name": "Bell",
    "description": "Rings.",
    "personality": "loud",
    "scenario": "",
    "first_mes": "Ding, {{user}}!",
    "mes_example": "",
}


def save(folder: Path, card: Any, name: str = "card.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(card), encoding="utf-8")
    return path


def imported(folder: Path, card: Any) -> ImportedCharacter:
    return import_character(save(folder, card))


def character_of(item: ImportedCharacter) -> Character:
    return parse_character(item.text).character


def png(*texts: tuple[bytes, bytes], kind: bytes = b"tEXt") -> bytes:
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)), *((kind, k + b"\0" + v) for k, v in texts)]
    chunks += [(b"IDAT", zlib.compress(b"\0\0")), (b"IEND", b"")]
    parts = [struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks]
    return PNG_SIGNATURE + b"".join(parts)


def test_each_part_of_a_card_has_its_field(tmp_path: Path) -> None:
    item = imported(tmp_path, V2)
    character = character_of(item)
    assert item.report.format is Format.CARD_V2
    assert character.name == "Seraphine"
    assert character.bio == (
        "Seraphine keeps a lighthouse. She is tall.",
        "The user is a guest of Seraphine. Tea.",
        "Scenario: A storm. The user knocks.",
    )
    assert character.adjectives == ("calm", "dry", "patient")
    assert character.system == "You are Seraphine. Write as Seraphine."
    assert character.style.all == ()
    assert character.final_rules == ("Stay short. the present time", "Never shout.")
    assert character.greetings == ("*opens* Hello {{user}}, I'm Seraphine.", "Ahoy {{user}}")
    lines = [[(line.name, line.content.text) for line in talk] for talk in character.message_examples]
    assert lines == [[("{{name1}}", "Hi"), ("Seraphine", "Come in.\nNote: it is wet.")], [("Seraphine", "Tea?")]]


def test_a_lorebook_becomes_knowledge_with_its_keys_and_limits(tmp_path: Path) -> None:
    character = character_of(imported(tmp_path, V2))
    lamp, ferry, fog = character.knowledge
    assert (lamp.content, lamp.keys, lamp.order) == ("The lamp turns.", ("lamp", "light"), 10)
    assert (ferry.keys, ferry.secondary_keys, ferry.case_sensitive) == (("Oslo",), ("ferry",), True)
    assert ferry.content == "The ferry to Oslo left with the user."
    assert (fog.content, fog.always, fog.keys) == ("There is always fog.", True, ())
    assert character.settings == {
        "KEYED_KNOWLEDGE_TOKENS": "300",
        "KEYED_KNOWLEDGE_MESSAGES": "3",
        "KEYED_KNOWLEDGE_RECURSIVE": "true",
    }


def test_the_report_names_what_is_lost(tmp_path: Path) -> None:
    ignored = {note.path: note.message for note in imported(tmp_path, V2).report.ignored}
    entries = "data.character_book.entries"
    assert ignored[f"{entries}[3]"] == "is switched off"
    assert "regular expressions" in ignored[f"{entries}[4].keys"]
    assert "has no keys" in ignored[f"{entries}[5]"]
    assert ignored[f"{entries}[6]"] == "has no text"
    assert ignored["data"] == "{{random}} always has its first alternative here; the others are left out"
    assert ignored["data.unheard_of"] == "has no counterpart here"


@pytest.mark.parametrize(
    "data",
    [
        {"creator_notes_multilingual": {"OPENAI_API_KEY": "sk-strange0123456789abcdef0123456789abcd"}},
        {"tags": {"DISCORD_API_TOKEN": "strange-token-0123456789"}, "creator": {"X_API_KEY": "strange-key-0123456789"}},
        {"extensions": {"greenroom": {"style": {"OPENAI_API_KEY": "sk-strange0123456789abcdef0123456789abcd"}}}},
        {"extensions": {"greenroom": {"topics": {"OPENAI_API_KEY": "sk-strange0123456789abcdef0123456789abcd"}}}},
        {"creator_notes_multilingual": {"en": "sk-strange0123456789abcdef0123456789abcd"}},
    ],
)
def test_a_card_sets_no_variable(tmp_path: Path, data: dict[str, Any]) -> None:
    item = imported(tmp_path, {**V2, "data": {**DATA, **data}})
    path = tmp_path / "imported.json"
    path.write_text(item.text)
    loaded = load_character(path)
    assert [name for name in loaded.secrets if re.fullmatch("[A-Z0-9_]+", name)] == []


def book_of(tmp_path: Path, *entries: dict[str, Any]) -> tuple[list[tuple[str, tuple[str, ...]]], list[str]]:
    """Return the contents and keys that are read of the entries of a lorebook, and what is reported of the others."""
    book = {"entries": [{"content": f"text {number}", **entry} for number, entry in enumerate(entries)]}
    item = imported(tmp_path, {**V2, "data": {**DATA, "character_book": book}})
    notes = (*item.report.ignored, *item.report.warnings)
    return (
        [(entry.content, entry.keys) for entry in character_of(item).knowledge],
        [note.message for note in notes if "character_book" in note.path],
    )


def test_keys_are_regular_expressions_by_their_form(tmp_path: Path) -> None:
    read, notes = book_of(
        tmp_path,
        {"keys": ["oolong", "kettle"], "use_regex": True},
        {"keys": ["/drag.*/i", "wyrm"], "use_regex": True},
        {"keys": ["/fox+/"]},
        {"keys": ["fox+"], "use_regex": True},
        {"keys": ["/a+/"], "use_regex": True, "constant": True},
        {"keys": ["and/or", "why?"]},
    )
    assert read == [
        ("text 0", ("oolong", "kettle")),
        ("text 1", ("wyrm",)),
        ("text 4", ()),
        ("text 5", ("and/or", "why?")),
    ]
    assert sum("regular expressions are not run" in note for note in notes) == 4


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"/\b(king|queen)s?\b/i", ["king", "kings", "queen", "queens"]),
        ("/fox(es)?/", ["fox", "foxes"]),
        (r"/^(?:the )?gr[ae]y\s(wolf|dog)$/gi", ["gray wolf", "gray dog", "grey wolf", "grey dog"]),
        (r"/A\.I\./", ["A.I."]),
        ("/{{char}}('s)?/", ["Seraphine", "Seraphine's"]),
        ("/a|b|/", ["a", "b"]),
    ],
)
def test_a_regular_expression_that_stands_for_a_few_words_is_read_as_these(
    tmp_path: Path, pattern: str, words: list[str]
) -> None:
    [(_, keys)], notes = book_of(tmp_path, {"keys": [pattern]})
    expected = [*words, *(f"the {word}" for word in words)] if "the" in pattern else words
    assert (sorted(keys), notes) == (sorted(expected), [])


@pytest.mark.parametrize(
    "pattern",
    [
        "a.b",
        "a*",
        "a{2}",
        r"\d",
        "[a-z]x",
        "[^a]",
        "(?=x)y",
        "(a",
        "a)",
        "[a",
        "(a|b|c|d)" * 6,
        "a" * 301,
        "a\\",
        "(" * 99,
    ],
)
def test_a_regular_expression_that_stands_for_too_many_words_or_is_broken_is_left_out(pattern: str) -> None:
    assert list_words(pattern) == []


def entries_of(tmp_path: Path, *entries: dict[str, Any], **book: Any) -> tuple[list[KnowledgeItem], list[str]]:
    """Return what is read of the entries of a lorebook, and what is reported as left out of them."""
    listed = [{"content": f"text {number}", "keys": ["key"], **entry} for number, entry in enumerate(entries)]
    item = imported(tmp_path, {**V2, "data": {**DATA, "character_book": {"entries": listed, **book}}})
    left = [note.message for note in item.report.ignored if "character_book" in note.path]
    return list(character_of(item).knowledge), left


@pytest.mark.parametrize("place", ["extensions", "entry"])
@pytest.mark.parametrize(("number", "logic"), [(0, "any"), (1, "not all"), (2, "none"), (3, "all")])
def test_the_logic_of_secondary_keys_is_kept(tmp_path: Path, place: str, number: int, logic: str) -> None:
    asked = {"selectiveLogic": number}
    entry = {"secondary_keys": ["tame", "old"], **(asked if place == "entry" else {"extensions": asked})}
    [read], left = entries_of(tmp_path, entry)
    assert (read.secondary_keys, read.secondary_logic, left) == (("tame", "old"), logic, [])


def test_a_text_that_would_be_shown_where_it_must_not_be_is_left_out(tmp_path: Path) -> None:
    entry = {"secondary_keys": ["/tame.*/", "old"], "extensions": {"selectiveLogic": 2}}
    read, left = entries_of(tmp_path, entry)
    assert read == []
    assert any("would be shown where its secondary keys say that it must not be" in message for message in left)


@pytest.mark.parametrize(
    ("asked", "probability"),
    [({"probability": 40}, 40), ({"probability": 40, "useProbability": False}, 100), ({"probability": 100}, 100)],
)
def test_the_probability_of_an_entry_is_kept_where_it_is_used(
    tmp_path: Path, asked: dict[str, Any], probability: int
) -> None:
    [read], left = entries_of(tmp_path, {"extensions": asked})
    assert (read.probability, left) == (probability, [])


def test_an_entry_that_is_never_shown_is_left_out(tmp_path: Path) -> None:
    never: dict[str, Any] = {"extensions": {"probability": 0, "useProbability": True}}
    read, left = entries_of(tmp_path, never, {"content": "@@dont_activate\nhidden"})
    assert (read, left) == ([], ["is switched off"] * 2)


def test_an_entry_that_is_found_by_its_meaning_becomes_knowledge_without_keys(tmp_path: Path) -> None:
    [read], _ = entries_of(tmp_path, {"keys": [], "extensions": {"vectorized": True}})
    assert (read.content, read.keys, read.always) == ("text 0", (), False)


def test_the_decorators_of_an_entry_are_read_where_they_have_a_counterpart(tmp_path: Path) -> None:
    read, left = entries_of(
        tmp_path,
        {"content": "@@activate\n@@dont_activate\nAlways."},
        {"content": "@@additional_keys ferry, boat\nWith a boat."},
        {"content": "@@exclude_keys storm\nIn calm weather."},
        {"content": "@@some_program 4\n@@@exclude_keys fog\nIn clear weather."},
        {"content": "@@exclude_keys fog\n@@@activate\nAlso then."},
        {"content": "@@depth 2\n@@role system\nBelow."},
        {"content": "@@keep_activate_after_match\nStays."},
        {"content": "@@of_mars 3\nElsewhere."},
    )
    assert [(item.content, item.always, item.secondary_keys, item.secondary_logic) for item in read] == [
        ("Always.", True, (), "any"),
        ("With a boat.", False, ("ferry", "boat"), "any"),
        ("In calm weather.", False, ("storm",), "none"),
        ("In clear weather.", False, ("fog",), "none"),
        ("Also then.", False, ("fog",), "none"),
        ("Below.", False, (), "any"),
        ("Stays.", False, (), "any"),
        ("Elsewhere.", False, (), "any"),
    ]
    reported = {message.partition(" of ")[0] for message in left}
    assert reported == {"@@depth", "@@role", "@@keep_activate_after_match", "@@of_mars"}


ASKED: dict[str, Any] = {
    "sticky": 2,
    "cooldown": 3,
    "delay": 1,
    "group": "weather",
    "position": 4,
    "scan_depth": 2,
    "match_whole_words": False,
    "prevent_recursion": True,
    "triggers": ["continue"],
    "automation_id": "x",
    "ignore_budget": True,
    "match_scenario": True,
}
USUAL: dict[str, Any] = {
    "sticky": 0,
    "cooldown": None,
    "delay": 0,
    "group": "",
    "position": 1,
    "depth": 4,
    "scan_depth": None,
    "match_whole_words": None,
    "prevent_recursion": False,
    "triggers": [],
    "automation_id": "",
    "ignore_budget": False,
    "match_scenario": False,
    "role": 0,
    "display_index": 1,
    "group_weight": 100,
    "outlet_name": "",
    "probability": 100,
    "useProbability": True,
}


@pytest.mark.parametrize("name", ASKED)
def test_what_an_entry_asks_for_and_does_not_get_is_reported_once(tmp_path: Path, name: str) -> None:
    asked: dict[str, Any] = {"extensions": {**USUAL, name: ASKED[name]}}
    read, left = entries_of(tmp_path, asked, asked, {"extensions": USUAL}, recursive_scanning=True)
    assert len(read) == 3
    [message] = left
    assert " of 2 entries: " in message


def test_recursion_is_reported_only_where_there_is_some(tmp_path: Path) -> None:
    _, left = entries_of(tmp_path, {"extensions": {"prevent_recursion": True}})
    assert left == []


def test_macros_in_macros_are_replaced_from_the_inside(tmp_path: Path) -> None:
    item = imported(
        tmp_path, {**V2, "data": {**DATA, "first_mes": "Roll {{random:{{char}},x}}. {{// note {{user}} }}"}}
    )
    assert character_of(item).greetings[0] == "Roll Seraphine."


def test_a_card_of_the_first_version_has_its_parts_at_the_top(tmp_path: Path) -> None:
    item = imported(tmp_path, V1)
    character = character_of(item)
    assert (item.report.format, character.name, item.report.ignored) == (Format.CARD_V1, "Bell", ())
    assert character.bio == ("Rings.", "Personality: loud")
    assert character.message_examples[0][1].content.text == "Ding, {{name1}}!"  # the greeting shows how it talks


def test_a_card_of_the_third_version_is_called_by_its_nickname(tmp_path: Path) -> None:
    data = {**V1, "nickname": "Ding", "group_only_greetings": ["Hello all"], "first_mes": "I am {{char}}."}
    item = imported(tmp_path, {"spec": "chara_card_v3", "spec_version": "3.0", "data": data})
    assert item.report.format is Format.CARD_V3
    assert (character_of(item).greetings, character_of(item).username) == (("I am Ding.",), "Ding")


async def test_a_character_that_is_called_by_the_nickname_of_its_card_answers(tmp_path: Path) -> None:
    card = {"spec": "chara_card_v3", "spec_version": "3.0", "data": {**V1, "nickname": "Little Ding"}}
    async with running_agent(character=character_of(imported(tmp_path, card))) as harness:
        called = await harness.send("little ding, are you there?", kind=ChannelType.GROUP)
        other = await harness.send("Bing, are you there?", kind=ChannelType.GROUP)
    assert (called.outcome, called.rule) == (Outcome.ANSWERED, Rule.NAME_CALLED)
    assert other.rule != Rule.NAME_CALLED


def test_a_card_of_empty_lines_is_read_line_by_line(tmp_path: Path) -> None:
    item = imported(tmp_path, {**V2, "data": {**DATA, "mes_example": "\n" * 300_000 + "<START>\n{{char}}: Tea?"}})
    assert [line.content.text for line in character_of(item).message_examples[0]] == ["Tea?"]


def test_the_lines_of_a_character_with_a_nickname_are_its_own(tmp_path: Path) -> None:
    talk = "{{user}}: Full?\nBell: My full name.\nDing: My short one.\n{{char}}: Mine."
    data = {**V1, "nickname": "Ding", "mes_example": talk}
    character = character_of(imported(tmp_path, {"spec": "chara_card_v3", "spec_version": "3.0", "data": data}))
    assert [line.name for line in character.message_examples[0]] == ["{{name1}}", "Bell", "Bell", "Bell"]


def talk_of(tmp_path: Path, examples: str) -> tuple[list[list[tuple[str, str]]], list[str]]:
    """Return the lines of the conversations in a card's examples, and what the report says of them."""
    item = imported(tmp_path, {**V2, "data": {**DATA, "mes_example": examples}})
    talks = character_of(item).message_examples
    notes = [note.message for note in item.report.mapped if note.path == "data.mes_example"]
    return [[(line.name, line.content.text) for line in talk] for talk in talks], notes


@pytest.mark.parametrize(
    ("examples", "talks"),
    [
        ("The storm howls.\n{{user}}: Hi", [[("Seraphine", "The storm howls."), ("{{name1}}", "Hi")]]),
        ("*She nods.* Come in.\n\nSit.", [[("Seraphine", "*She nods.* Come in.\n\nSit.")]]),
        ("Rain.\n<START>\n{{char}}: Tea?", [[("Seraphine", "Rain.")], [("Seraphine", "Tea?")]]),
    ],
)
def test_text_before_the_first_speaker_of_an_example_is_the_characters(
    tmp_path: Path, examples: str, talks: list[list[tuple[str, str]]]
) -> None:
    read, notes = talk_of(tmp_path, examples)
    assert read == talks
    assert any("text before the first speaker" in note for note in notes)


@pytest.mark.parametrize(
    "examples",
    [
        "{{user}}：Hi\n{{char}}：\u3000Come in.",
        "<USER> : Hi\n <BOT>: Come in.",
        "You: Hi\nSeraphine: Come in.",
        "<START>{{user}}: Hi\n{{char}}: Come in.",
    ],
)
def test_the_speakers_of_examples_are_recognised_in_every_usual_form(tmp_path: Path, examples: str) -> None:
    read, notes = talk_of(tmp_path, examples)
    assert read == [[("{{name1}}", "Hi"), ("Seraphine", "Come in.")]]
    assert notes == ["read as 1 messageExamples"]


def test_the_newer_card_in_a_picture_is_read_and_the_picture_kept(tmp_path: Path) -> None:
    old, new = json.dumps(V1).encode(), json.dumps(V2).encode()
    data = png((b"chara", base64.b64encode(old)), (b"ccv3", base64.b64encode(new)))
    path = tmp_path / "card.png"
    path.write_bytes(data)
    item = import_character(path)
    assert (item.name, item.picture, character_of(item).picture) == ("Seraphine", data, "seraphine.png")


@pytest.mark.parametrize("broken", [b"{", b"b2x", base64.b64encode(b'{"spec": "chara_ca')])
def test_next_to_a_broken_card_in_a_picture_the_other_card_is_read(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "card.png"
    path.write_bytes(png((b"chara", base64.b64encode(json.dumps(V1).encode())), (b"ccv3", broken)))
    item = import_character(path)
    assert item.name == "Bell"
    assert "the card in ccv3 cannot be read" in item.report.warnings[0].message


def archive(tmp_path: Path, card: dict[str, Any], **files: bytes) -> Path:
    path = tmp_path / "card.charx"
    with ZipFile(path, "w", ZIP_DEFLATED) as target:
        target.writestr("card.json", json.dumps(card))
        for name, data in files.items():
            target.writestr(f"assets/{name}", data)
    return path


def test_a_charx_archive_is_read_with_its_main_icon(tmp_path: Path) -> None:
    assets = [
        {"type": "icon", "uri": "embeded://assets/sad", "name": "sad", "ext": "png"},
        {"type": "icon", "uri": "embeded://assets/main", "name": "main", "ext": "jpg"},
        {"type": "background", "uri": "ccdefault:", "name": "main", "ext": "png"},
    ]
    card = {"spec": "chara_card_v3", "spec_version": "3.0", "data": {**V2["data"], "assets": assets}}
    item = import_character(archive(tmp_path, card, sad=png(), main=b"\xff\xd8\xff of a JPEG"))
    assert (item.name, item.picture_name, character_of(item).picture) == ("Seraphine", "seraphine.jpg", "seraphine.jpg")
    assert item.picture == b"\xff\xd8\xff of a JPEG"
    assert [note.message for note in item.report.ignored if note.path == "assets"] == [
        "left out, a character has a single picture: icon sad"
    ]


def test_an_archive_that_is_none_or_would_be_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "card.charx"
    path.write_bytes(b"PK\x03\x04 and nothing more")
    with pytest.raises(CharacterError, match="a damaged archive"):
        import_character(path)
    with ZipFile(path, "w") as target:
        target.writestr("notes.txt", "x")
    with pytest.raises(CharacterError, match=r"no card\.json"):
        import_character(path)
    with ZipFile(path, "w", ZIP_DEFLATED) as target:
        target.writestr("card.json", b" " * (MAX_FILE_BYTES + 1))
    with pytest.raises(CharacterError, match="32 MiB"):
        import_character(path)


def test_a_picture_that_is_too_large_to_be_shown_is_named(tmp_path: Path) -> None:
    path = tmp_path / "card.png"
    path.write_bytes(png((b"chara", base64.b64encode(json.dumps(V1).encode())), (b"x", b"y" * MAX_PICTURE_BYTES)))
    [note] = import_character(path).report.warnings
    assert "at most 2 MiB" in note.message


def test_a_card_is_written_into_a_picture_in_place_of_its_earlier_card(tmp_path: Path) -> None:
    path = tmp_path / "card.png"
    path.write_bytes(write_png_card(png((b"chara", b"b2xk"), (b"Title", b"A face")), json.dumps(V1).encode()))
    assert import_character(path).name == "Bell"
    assert path.read_bytes().count(b"tEXtchara") == 1
    assert b"A face" in path.read_bytes()


ENCODED = base64.b64encode(json.dumps({**V1, "description": "Rings? Ünd ÿ."}).encode())
URL_SAFE = bytes.maketrans(b"+/", b"-_")
IN_CHUNKS = {
    "zTXt": (b"zTXt", b"\0" + zlib.compress(ENCODED)),
    "iTXt": (b"iTXt", b"\0\0en\0Charakter\0" + ENCODED),
    "compressed iTXt": (b"iTXt", b"\1\0\0\0" + zlib.compress(ENCODED)),
    "JSON in iTXt": (b"iTXt", b"\0\0\0\0" + base64.b64decode(ENCODED)),
    "base64 without padding": (b"tEXt", ENCODED.rstrip(b"=")),
    "base64 of URLs in lines": (b"tEXt", base64.encodebytes(base64.b64decode(ENCODED)).translate(URL_SAFE)),
}


@pytest.mark.parametrize(("kind", "text"), IN_CHUNKS.values(), ids=IN_CHUNKS)
@pytest.mark.parametrize("keyword", [b"chara", b"ccv3"])
def test_a_card_is_read_from_every_kind_of_text_chunk(tmp_path: Path, keyword: bytes, kind: bytes, text: bytes) -> None:
    assert ENCODED.endswith(b"=")
    path = tmp_path / "card.png"
    path.write_bytes(png((keyword, text), kind=kind))
    assert character_of(import_character(path)).bio[0] == "Rings? Ünd ÿ."
    path.write_bytes(write_png_card(path.read_bytes(), json.dumps({**V1, "name": "Gong"}).encode()))
    assert import_character(path).name == "Gong"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (png((b"Title", b"x")), "without a character card"),
        (png((b"chara", b"b2xkA")), "is damaged"),
        (png((b"chara", b"\0 no zlib"), kind=b"zTXt"), "is damaged"),
        (png((b"chara", b"\0" + zlib.compress(b" " * (MAX_FILE_BYTES + 1))), kind=b"zTXt"), "is damaged"),
        (png((b"chara", base64.b64encode(b"{"))), "expected"),
        (PNG_SIGNATURE + b"\xff" * 40, "without a character card"),
        (b"{}", "name"),
        (b'{"spec": "chara_card_v2", "data": {"first_mes": "x"}}', "every character has a name"),
        (b'{"spec": "chara_card_v2", "data": 3}', "expected an object"),
        (b'{"first_mes": {}, "name": "x"}', "expected text"),
    ],
)
def test_what_is_no_card_is_refused_with_the_reason(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "card.png"
    path.write_bytes(content)
    with pytest.raises(CharacterError, match=message):
        import_character(path)


def test_a_card_that_is_named_as_a_character_says_how_to_import_it(tmp_path: Path) -> None:
    picture = tmp_path / "card.png"
    picture.write_bytes(png((b"chara", base64.b64encode(json.dumps(V1).encode()))))
    for path in (save(tmp_path, V2), picture):
        with pytest.raises(CharacterError, match="bot character import"):
            load_character(path)


def test_an_exported_card_is_imported_as_the_same_character(tmp_path: Path) -> None:
    first = character_of(imported(tmp_path, V2)).model_copy(update={"topics": ("tides",), "username": "sera"})
    again = character_of(imported(tmp_path, export_card(first)))
    assert again == first


def test_the_elizaos_characters_survive_a_card_but_for_what_it_cannot_hold(tmp_path: Path) -> None:
    original = load_character(Path("characters/default.json")).character
    again = character_of(imported(tmp_path, export_card(original)))
    assert again.model_dump(exclude={"message_examples"}) == original.model_dump(exclude={"message_examples"})


def test_entries_of_an_exported_lorebook_are_added(tmp_path: Path) -> None:
    entry = {"key": ["reef"], "keysecondary": [], "content": "Mind the reef.", "order": 7, "disable": False}
    book = save(tmp_path, {"entries": {"0": entry, "1": {**entry, "disable": True}}}, "book.json")
    item = import_character(save(tmp_path, V1), [book])
    assert [(k.content, k.keys, k.order) for k in character_of(item).knowledge] == [("Mind the reef.", ("reef",), 7)]
    newer = save(tmp_path, {"spec": "lorebook_v3", "data": {"entries": [{"keys": ["x"], "content": "Y."}]}}, "new.json")
    assert character_of(import_character(save(tmp_path, V1), [newer])).knowledge[0].content == "Y."
    with pytest.raises(CharacterError, match="no lorebook"):
        import_character(save(tmp_path, V1), [save(tmp_path, {"entries": {}}, "empty.json")])
    for path in (book, newer):
        with pytest.raises(CharacterError, match=f"a lorebook alone: add it .* --lorebook {path.name}"):
            import_character(path)


def test_the_files_of_a_folder_that_can_be_imported_are_found(tmp_path: Path) -> None:
    card, plain = save(tmp_path, V2, "a.json"), save(tmp_path, {"name": "Robin"}, "b.json")
    save(tmp_path, {"entries": {}}, "book.json")
    (tmp_path / "photo.png").write_bytes(png())
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    assert find_characters(tmp_path) == [card, plain]
    (tmp_path / "empty").mkdir()
    with pytest.raises(CharacterError, match="no card"):
        find_characters(tmp_path / "empty")


def test_of_a_project_of_elizaos_the_characters_are_found_and_no_other_file(tmp_path: Path) -> None:
    save(tmp_path, {"name": "my-agent", "version": "1.0.0", "scripts": {}}, "package.json")
    save(tmp_path, {"compilerOptions": {}}, "tsconfig.json")
    save(tmp_path, {"name": "my-agent", "lockfileVersion": 3, "packages": {}}, "package-lock.json")
    save(tmp_path, {"name": "my/agent", "type": "project", "require": {}}, "composer.json")
    save(tmp_path, {"name": "My agent", "short_name": "Agent", "icons": []}, "manifest.json")
    save(tmp_path, {"name": "agent", "image": "node", "settings": {}, "extends": "x"}, "devcontainer.json")
    save(tmp_path, {"name": "agent", "style": "dist/agent.css", "files": []}, "parts.json")
    with pytest.raises(CharacterError, match="TypeScript"):
        find_characters(tmp_path)
    (tmp_path / "characters").mkdir()
    character = save(tmp_path / "characters", {"name": "Robin", "bio": ["x"]}, "robin.json")
    assert find_characters(tmp_path) == [character]


@pytest.mark.long
def test_no_card_makes_the_reader_fail_otherwise_than_with_a_reason(tmp_path: Path) -> None:
    chance = random.Random(5)
    values: list[Any] = [None, "", "x", "{{user}}: {{char", 0, 1.5, True, [], ["x", 3], {}, {"entries": [{}, 1, None]}]
    values += [{"0": {"keys": 3, "content": ["x"]}}, {"greenroom": {"style": 3}}, "{{random}}{{}}<USER>{{//x}}"]
    for _ in range(300):
        data = {key: chance.choice(values) if chance.random() < 0.3 else value for key, value in DATA.items()}
        if isinstance(data["character_book"], dict) and chance.random() < 0.5:
            entry = {
                key: chance.choice(values) for key in ("keys", "content", "enabled", "selective", "insertion_order")
            }
            data["character_book"] = {"entries": [entry], "scan_depth": chance.choice(values)}
        with suppress(CharacterError):
            assert character_of(imported(tmp_path, {**V2, "data": data})).name


@pytest.mark.parametrize("tag", ["nsfw", "NSFW", "18+"])
def test_a_card_with_a_tag_for_adults_starts_as_mature(tmp_path: Path, tag: str) -> None:
    item = imported(tmp_path, V2 | {"data": DATA | {"tags": ["sea", tag]}})
    assert character_of(item).content == "mature"
    (tmp_path / "again").mkdir()
    again = imported(tmp_path / "again", export_card(character_of(item)))
    assert character_of(again).content == "mature"


def test_a_card_without_such_a_tag_is_general(tmp_path: Path) -> None:
    assert character_of(imported(tmp_path, V2)).content == "general"


def read_macros(tmp_path: Path, text: str) -> tuple[str, list[str]]:
    """Return the text of the system prompt for that of a card, and what is reported of its macros."""
    report = (item := imported(tmp_path, {**V2, "data": {"name": "Bell", "system_prompt": text}})).report
    notes = [note.message for note in (*report.ignored, *report.mapped) if note.message.startswith("{{")]
    return character_of(item).system, notes


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("{{ char }}, <BOT>, {{CHARIFNOTGROUP}} and {{ user }}", "Bell, Bell, Bell and the user"),
        ("a {{// a comment}}b{{//}}\nlong\n{{///}} c{{trim}}{{noop}}{{hidden_key:x}}", "a b c"),
        ("a{{newline}}b{{space}}c {{reverse:olleh}}", "a\nb c hello"),
        ("{{original}}", "You are Bell."),
    ],
)
def test_macros_that_mean_the_same_here_are_replaced_without_a_note(tmp_path: Path, text: str, read: str) -> None:
    assert read_macros(tmp_path, text) == (read, [])


@pytest.mark.parametrize(
    ("text", "read", "note"),
    [
        ("Likes {{random::tea, hot::milk}}.", "Likes tea, hot.", "{{random}} always has its first alternative"),
        (r"Likes {{pick:tea\, hot,milk}}.", "Likes tea, hot.", "{{random}} always has its first alternative"),
        ("It is {{time}}.", "It is the present time.", "{{time}} is written as 'the present time'"),
        ("It is {{datetimeformat DD.MM.}}.", "It is the present date and time.", "{{datetimeformat}} is written"),
        ("Mind {{description}}.", "Mind the description of Bell.", "{{description}} is written as"),
        ("Mood: {{getvar::mood}}.", "Mood: .", "{{getvar}} is left out: there are no variables here"),
        ("{{#if x}}A{{else}}B{{/if}}", "AB", "{{if}} is left out, and the texts of all its cases stay"),
        ("{{outlet::x}}.", ".", "{{outlet}} has no counterpart here and is left out"),
        ('{{setvar::x::{"a": 1}}}Hi.', "Hi.", "{{setvar}} is left out"),
        ("{{a{{b{{c{{d{{e{{f{{g}}}}}}}}}}}}}}.", ".", "{{g}} has no counterpart"),
        ("Open {{ braces", "Open  braces", ""),
    ],
)
def test_macros_without_a_counterpart_are_never_left_in_a_text(tmp_path: Path, text: str, read: str, note: str) -> None:
    found, notes = read_macros(tmp_path, text)
    assert found == read
    assert any(message.startswith(note) for message in notes) or not note


@pytest.mark.parametrize(
    ("dice", "lowest", "highest"), [("1d6", 1, 6), ("d20", 1, 20), ("4", 1, 4), ("2d6+10", 12, 22)]
)
def test_dice_are_rolled_once_at_the_import(tmp_path: Path, dice: str, lowest: int, highest: int) -> None:
    found, [note] = read_macros(tmp_path, f"{{{{roll:{dice}}}}}")
    assert lowest <= int(found) <= highest
    assert note == f"{{{{roll:{dice}}}}} was rolled once, for good: {found}"


def test_a_greeting_with_alternatives_becomes_several_greetings(tmp_path: Path) -> None:
    data = {"first_mes": "{{random:Hi,Hello,Ahoy}} {{user}}, {{pick:tea,milk}}?", "alternate_greetings": ["Yes?"]}
    item = imported(tmp_path, {**V2, "data": {"name": "Bell", **data}})
    assert character_of(item).greetings == ("Hi {{user}}, tea?", "Hello {{user}}, milk?", "Ahoy {{user}}, tea?", "Yes?")
    assert item.report.ignored == ()


@pytest.mark.long
def test_the_braces_of_a_hostile_card_are_read_in_a_time_that_grows_with_its_length(tmp_path: Path) -> None:
    for piece in ("{{", "{{//}}", "}}", "{{random:", "{{a}", "{{{", "{{//}}{{", "{{user}}"):
        text, _ = read_macros(tmp_path, piece * 20_000)
        assert "{{" not in text


def test_the_greetings_of_groups_are_kept_for_them(tmp_path: Path) -> None:
    item = imported(tmp_path, {**V2, "data": {**DATA, "group_only_greetings": ["Ahoy all, says {{char}}."]}})
    assert character_of(item).group_greetings == ("Ahoy all, says Seraphine.",)
    assert any(note.path == "data.group_only_greetings" for note in item.report.mapped)
    assert export_card(character_of(item))["data"]["group_only_greetings"] == ["Ahoy all, says Seraphine."]


@pytest.mark.parametrize(
    ("talkativeness", "level"),
    [("0", "called"), (0.25, "reserved"), ("0.5", None), (0.7, None), ("0.9", "lively"), ("often", None), (None, None)],
)
def test_talkativeness_decides_how_readily_the_character_speaks(
    tmp_path: Path, talkativeness: Any, level: str | None
) -> None:
    for data in ({"extensions": {"talkativeness": talkativeness}}, {"talkativeness": talkativeness}):
        item = imported(tmp_path, {**V2, "data": {"name": "Bell", **data}})
        assert character_of(item).settings.get("RESPONSIVENESS") == level
        assert any("RESPONSIVENESS" in note.message for note in item.report.mapped) == (level is not None)


def test_the_extensions_of_a_card_that_are_left_out_are_reported(tmp_path: Path) -> None:
    extensions = {
        "fav": True,
        "world": "Velm",
        "regex_scripts": [{"scriptName": "x"}, {"scriptName": "y"}],
        "chub": {"id": 1},
        "risuai": {"triggerscript": []},
        "empty": {},
        "depth_prompt": {"prompt": "", "depth": 4, "role": "system"},
    }
    item = imported(tmp_path, {**V2, "data": {"name": "Bell", "extensions": extensions}})
    left = {note.path: note.message for note in item.report.ignored}
    assert left.keys() == {"data.extensions", "data.extensions.regex_scripts", "data.extensions.world"}
    assert left["data.extensions"].endswith("left out: chub, risuai")
    assert left["data.extensions.regex_scripts"].startswith("2 scripts left out")
    assert "--lorebook" in left["data.extensions.world"]


def test_what_a_lorebook_loses_that_is_added_to_a_card_is_reported(tmp_path: Path) -> None:
    entry = {"key": ["reef"], "content": "Mind the reef. {{outlet::x}}", "sticky": 3}
    book = save(tmp_path, {"entries": {"0": entry}}, "book.json")
    card = {**V2, "data": {"name": "Bell", "extensions": {"world": "book"}}}
    left = [note.message for note in import_character(save(tmp_path, card), [book]).report.ignored]
    assert [message.partition(" ")[0] for message in sorted(left)] == ["sticky", "{{outlet}}"]


def test_the_picture_in_the_address_of_an_icon_is_that_of_the_character(tmp_path: Path) -> None:
    address = f"data:image/png;base64,{base64.b64encode(png()).decode()}"
    assets = [{"type": "icon", "uri": address, "name": "main", "ext": "png"}]
    item = imported(tmp_path, {"spec": "chara_card_v3", "spec_version": "3.0", "data": {**DATA, "assets": assets}})
    assert (item.picture, character_of(item).picture) == (png(), "seraphine.png")


def test_what_another_person_says_in_an_example_is_not_the_characters(tmp_path: Path) -> None:
    read, _ = talk_of(tmp_path, "{{random_user_1}}: Hi {{random_user_2}}\n{{char}}: Come in.")
    assert read == [[("{{name2}}", "Hi another person"), ("Seraphine", "Come in.")]]


def test_what_is_new_in_a_character_survives_a_card(tmp_path: Path) -> None:
    keyed = KnowledgeItem(content="x", keys=("a",), secondary_keys=("b",), secondary_logic="none", probability=30)
    first = Character(
        name="Bell",
        final_rules=("Never shout.",),
        group_greetings=("Ahoy.",),
        style={"all": ("Short.",)},
        settings={"RESPONSIVENESS": "lively"},
        knowledge=(keyed,),
    )
    again = character_of(imported(tmp_path, export_card(first)))
    for field in ("final_rules", "group_greetings", "style", "settings", "knowledge"):
        assert getattr(again, field) == getattr(first, field)


MIRA: dict[str, Any] = {
    "name": "Mira Valen",
    "nickname": "Mira",
    "description": "{{char}} carries {{random::a compass::coins}}. {{// short}}\n\nIt is {{time}}. {{getvar::mood}}",
    "scenario": "{{if {{getvar::x}}}}A storm.{{/if}} {{user}} knocks.",
    "first_mes": '*{{char}} nods.* {{random:Evening,Morning}}, {{ user }}. {{roll:1d6}} coins. {{setvar::a::{"b": 1}}}',
    "mes_example": "<START>\n{{user}}: Where to?\n{{char}}: Anywhere, {{user}}, {{pick:now,then}}.",
    "system_prompt": "{{original}} {{personality}} {{unheard_of}}",
    "post_history_instructions": "[Never speak for {{user}}.] {{original}}",
    "extensions": {"depth_prompt": {"prompt": "{{char}} limps. {{weekday}}", "depth": 4, "role": "system"}},
    "character_book": {"entries": [{"keys": ["knock"], "content": "{{user}} has the key of {{outlet::x}}."}]},
}


async def test_no_macro_of_a_card_is_in_a_prompt_a_greeting_or_an_answer(tmp_path: Path) -> None:
    card = {"spec": "chara_card_v3", "spec_version": "3.0", "data": MIRA}
    character = character_of(imported(tmp_path, card))
    model = ScriptedModel(model_answer("Hello {{user}}, says {{char}}."))
    async with running_agent(knowledge_plugin, model=model, character=character) as harness:
        await harness.send("I knock", author="Alice")
        [request] = model.requests_for(Purpose.REPLY)
    assert harness.texts == ["Hello Alice, says Mira Valen."]
    assert "{{" not in request.prompt + request.system
    for text in ("Mira carries a compass.", "Mira limps.", "[Never speak for the user.]", "The user has the key"):
        assert text in request.prompt
    assert request.prompt.index("I knock") < request.prompt.index("Mira limps.")
    assert all("{{" not in character.address(greeting, "Alice") for greeting in character.greetings)
    assert character.greet("Alice").startswith("*Mira nods.* Evening, Alice.")


def test_the_name_of_a_character_has_no_macro(tmp_path: Path) -> None:
    item = imported(tmp_path, {**V2, "data": {**DATA, "name": "{{user}}'s Aunt", "nickname": "Aunt {{char}}"}})
    assert (item.name, character_of(item).username) == ("The user's Aunt", "Aunt The user's Aunt")
