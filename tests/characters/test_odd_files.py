"""Files with deviations: each loads, and the report lists what was changed."""

import json
from pathlib import Path

import pytest

from bot.characters import Note, load_character, parse_character, read_character_source
from bot.characters.source import ImportReport
from bot.domain.character import Character
from bot.domain.ids import derived_id

NAME = '"name": "Ada"'


def _notes(report: ImportReport) -> list[str]:
    return [f"{section} {note}" for section, notes in report.sections().items() for note in notes]


# What is odd: the text, the beginning of the note about it, and the field's value.
ODD = {
    "a mark": ("\ufeff{" + NAME + "}", "warnings line 1: the file begins with a byte order mark", "name", "Ada"),
    "a comment": ("{ // who\n" + NAME + "}", "warnings line 1: comments", "name", "Ada"),
    "two comments": (
        "{ /* who\n*/" + NAME + "} // so",
        "warnings line 1: comments are not JSON; they are ignored (2",
        "name",
        "Ada",
    ),
    "a comma at the end": ("{\n" + NAME + ",\n}", "warnings line 2: a comma before '}'", "name", "Ada"),
    "a comma in a list": ("{" + NAME + ', "bio": ["x",]}', "warnings line 1: a comma before ']'", "bio", ("x",)),
    "a key twice": (
        '{"name": "Eve",\n' + NAME + "}",
        "warnings line 2: name: appears twice, in lines 1 and 2",
        "name",
        "Ada",
    ),
    "a key twice within": (
        "{" + NAME + ', "style": {"all": ["a"],\n\n"all": ["b"]}}',
        "warnings line 3: style.all: appears twice, in lines 1 and 3",
        "style.all",
        ("b",),
    ),
    "two spellings": (
        "{" + NAME + ', "postExamples": ["a"], "post_examples": ["b"]}',
        "warnings line 1: post_examples: appears twice",
        "post_examples",
        ("b",),
    ),
    "bio as text": ("{" + NAME + ',\n"bio": "x"}', "mapped line 2: bio: text read as a list of one", "bio", ("x",)),
    "lore as text": ("{" + NAME + ',\n"lore": "x"}', "mapped line 2: lore: text read as a list of one", "lore", ("x",)),
    "topics as text": ("{" + NAME + ', "topics": "x"}', "mapped line 1: topics: text", "topics", ("x",)),
    "adjectives as text": ("{" + NAME + ', "adjectives": "x"}', "mapped line 1: adjectives", "adjectives", ("x",)),
    "an empty text as list": ("{" + NAME + ', "topics": ""}', "mapped line 1: topics: text", "topics", ()),
    "style.all as text": (
        "{" + NAME + ', "style": {"all": "x"}}',
        "mapped line 1: style.all: text",
        "style.all",
        ("x",),
    ),
    "style as text": (
        "{" + NAME + ', "style": "x"}',
        "mapped line 1: style: text read as style.all",
        "style.all",
        ("x",),
    ),
    "style as list": (
        "{" + NAME + ', "style": ["x"]}',
        "mapped line 1: style: a list read as style.all",
        "style.all",
        ("x",),
    ),
    "a number for a name": ('{"name": 42}', "mapped line 1: name: a number read as text", "name", "42"),
    "true for a name": ('{"name": true}', "mapped line 1: name: true or false read as text", "name", "true"),
    "numbers as topics": (
        "{" + NAME + ', "topics": ["a", 1, false, null, 2.5]}',
        "mapped line 1: topics: 4 of 5 entries are not text",
        "topics",
        ("a", "1", "false", "2.5"),
    ),
    "shared as text": (
        "{" + NAME + ', "knowledge": [{"path": "a", "shared": "True"}]}',
        "mapped line 1: knowledge[0].shared: text read as true or false",
        "knowledge.0.shared",
        True,
    ),
    "knowledge of nothing": (
        "{" + NAME + ', "knowledge": [{"shared": true}]}',
        "warnings line 1: knowledge[0]: has neither content, path nor directory",
        "knowledge.0.shared",
        True,
    ),
    "an id of its own": (
        "{" + NAME + ', "id": "ada-1"}',
        "warnings line 1: id: is not a UUID",
        "id",
        derived_id("character", "ada-1"),
    ),
    "half a character": ('{"name": "A\\ud83dda"}', "warnings line 1: half a character", "name", "A\ufffdda"),
    "a NUL": ('{"name": "A\\u0000da"}', "warnings line 1: half a character (\\ud800…) or NUL", "name", "A\ufffdda"),
    "a flat conversation": (
        "{" + NAME + ', "messageExamples": [{"name": "a", "content": {"text": "Hi"}}]}',
        "mapped line 1: messageExamples: a list of lines read as one conversation",
        "message_examples.0.0.content.text",
        "Hi",
    ),
    "one knowledge": ("{" + NAME + ', "knowledge": "x"}', "mapped line 1: knowledge: text", "knowledge.0.content", "x"),
    "a near key": (
        "{" + NAME + ',\n"messageExample": []}',
        "warnings line 2: messageExample: is not a field; did you mean 'messageExamples'?",
        "messageExample",
        [],
    ),
    "a key in capitals": (
        "{" + NAME + ', "BIO": "x"}',
        "warnings line 1: BIO: is not a field; did you mean 'bio'?",
        "BIO",
        "x",
    ),
    "a near key of style": (
        "{" + NAME + ', "style": {"chats": ["x"]}}',
        "warnings line 1: style.chats: is not a field; did you mean 'chat'?",
        "style.chats",
        ["x"],
    ),
    "an unknown key": ("{" + NAME + ', "zodiac": "crab"}', "kept line 1: zodiac: is not a field", "zodiac", "crab"),
    "a key of no name": ("{" + NAME + ', "": 1}', 'kept line 1: [""]: is not a field', "", 1),
    "an unknown helper": (
        "{" + NAME + ', "templates": {"t": "{{shout name}}"}}',
        "warnings line 1: templates.t: {{shout name}} means nothing here",
        "templates.t",
        "{{shout name}}",
    ),
}


def _value(character: Character, path: str) -> object:
    value: object = character
    for step in path.split("."):
        if isinstance(value, tuple):
            value = value[int(step)]
        elif isinstance(value, dict):
            value = value[step]
        else:
            extra = getattr(value, "model_extra", None) or {}
            value = extra[step] if step in extra else getattr(value, step)
    return value


@pytest.mark.parametrize(("text", "note", "path", "value"), ODD.values(), ids=ODD.keys())
def test_unambiguous_deviations_are_accepted_and_reported(text: str, note: str, path: str, value: object) -> None:
    loaded = parse_character(text)

    assert _value(loaded.character, path) == value
    assert any(line.startswith(note) for line in _notes(loaded.report)), _notes(loaded.report)


def test_null_is_read_as_an_empty_list_or_object_without_a_note() -> None:
    fields = ["bio", "topics", "messageExamples", "postExamples", "knowledge", "plugins", "adapters"]
    fields += ["style", "settings", "secrets", "templates", "system", "username", "id"]

    loaded = parse_character("{" + NAME + "".join(f', "{field}": null' for field in fields) + "}")

    assert loaded.character == Character(name="Ada")
    assert _notes(loaded.report) == []


def test_an_empty_system_prompt_is_accepted() -> None:
    loaded = parse_character("{" + NAME + ', "system": ""}')

    assert loaded.character.system == ""
    assert _notes(loaded.report) == []


@pytest.mark.parametrize("key", ["model_config", "model_fields", "copy", "__class__", "__dict__", "self", "__init__"])
def test_a_key_with_a_python_attribute_name_is_an_ordinary_key(key: str) -> None:
    loaded = parse_character(json.dumps({"name": "Ada", key: 1}))

    assert (loaded.character.model_extra or {})[key] == 1
    assert loaded.character.model_dump()["name"] == "Ada"


def test_the_number_of_suggestions_is_limited() -> None:
    keys = {f"names{number}": number for number in range(2000)}

    loaded = parse_character(json.dumps({"name": "Ada", **keys}))

    assert len(loaded.report.kept) == 2000
    assert len(loaded.report.warnings) <= 40


def test_notes_are_ordered_by_line() -> None:
    text = '{\n"zodiac": 1, // c\n"clients": [],\n"apples": 2,\n"modelProvider": "openai",\n"name": "Ada",\n}'

    report = parse_character(text).report

    assert [note.line for note in report.mapped] == [3]
    assert [note.line for note in report.ignored] == [5]
    assert [note.line for note in report.kept] == [2, 4]
    assert [note.line for note in report.warnings] == [2, 6]


def test_the_report_has_a_line_per_note_with_the_most_important_first() -> None:
    report = parse_character('{\n"clients": ["twitter"],\n"name": "Ada",\n}').report

    assert report.format_lines() == [
        "warning  line 3: a comma before '}' is not JSON; it is ignored",
        "mapped   line 2: clients: read as adapters: x",
    ]


def test_the_json_report_has_all_sections() -> None:
    report = parse_character('{"clients": ["twitter"], "name": "Ada"}').report

    assert json.loads(json.dumps(report.to_json())) == {
        "format": "v0",
        "mapped": [{"path": "clients", "line": 1, "what": "read as adapters: x"}],
        "kept": [],
        "ignored": [],
        "warnings": [],
        "secrets": [],
    }
    assert report.mapped == (Note("clients", 1, "read as adapters: x"),)


def test_a_file_and_its_text_are_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "ada.json"
    path.write_text('{"name": "Åda", "zodiac": 1}', encoding="utf-8")

    loaded = load_character(path)

    assert loaded.path == path
    assert loaded.character == parse_character(read_character_source(path)).character
    assert loaded.to_json()["name"] == "Åda"
    assert loaded.to_json()["path"] == str(path)


def test_a_note_has_no_terminal_control_characters() -> None:
    parts = {"clients": ["\x1b[2J\n" + "x" * 5000], "templates": {"\x1b": "{{\x1b[2J x}}"}, "\x1b[2J": 1}

    report = parse_character(json.dumps({"name": "Ada", **parts})).report

    assert len(report.format_lines()) == 3
    assert all(line.isprintable() and len(line) < 500 for line in report.format_lines())
