"""Unusable files: one CharacterError with position, field and remedy."""

import re
from pathlib import Path

import pytest

from bot.characters import load_character, parse_character
from bot.errors import CharacterError

LATIN = 'ÿ"'.encode("latin-1")

# What is wrong: the text, the place that the error must name, and words that it must contain.
SYNTAX = {
    "nothing at all": ("", "1:1", ["empty"]),
    "blanks": (" \n\t ", "1:1", ["empty"]),
    "only a mark": ("\ufeff", "1:1", ["empty"]),
    "prose": ("Once upon a time", "1:1", ["bare word"]),
    "yaml": ("name: Ada\nbio: x", "1:1", ["bare word"]),
    "a page of html": ("<!doctype html>", "1:1", ["U+003C"]),
    "an open object": ('{\n  "name": "Ada"\n', "3:1", ["expected '}'", "opened in line 1"]),
    "an open list": ('{"name": "Ada",\n "bio": ["x"', "2:13", ["expected ']'", "opened in line 2"]),
    "a key alone": ('{"name"}', "1:8", ["expected ':'"]),
    "a key without value": ('{"name": }', "1:10", ["expected a value", "'}'"]),
    "no colon": ('{"name" "Ada"}', "1:9", ["expected ':'"]),
    "no comma": ('{\n  "name": "Ada"\n  "bio": "x"\n}', "3:3", ["expected ','", "missing before"]),
    "no comma in a list": ('{"name": "Ada", "bio": ["x" "y"]}', "1:29", ["expected ','"]),
    "two commas": ('{"name": "Ada",, "bio": "x"}', "1:16", ["','"]),
    "two commas in a list": ('{"bio": ["x",,"y"]}', "1:14", ["expected a value"]),
    "a comma first": ('{,"name": "Ada"}', "1:2", ["expected a key"]),
    "a comma alone": ('{"bio": [,]}', "1:10", ["expected a value"]),
    "the wrong bracket": ('{"bio": ["x"}', "1:13", ["expected ',' or ']'"]),
    "one bracket too many": ('{"name": "Ada"}}', "1:16", ["end of the file", "'}'"]),
    "two objects": ('{"name": "Ada"}\n{"name": "Eve"}', "2:1", ["end of the file"]),
    "single quotes": ("{'name': 'Ada'}", "1:2", ["double quotes"]),
    "typographic quotes": ("{“name”: “Ada”}", "1:2", ["double quotes"]),
    "a bare key": ('{name: "Ada"}', "1:2", ["bare word", "double quotes"]),
    "a number for a key": ('{1: "Ada"}', "1:2", ["expected a key"]),
    "an open text": ('{"name": "Ada', "1:10", ["never closed"]),
    "a line break in a text": ('{"name": "Ada\nof the bridge"}', "1:14", ["line break", "\\n"]),
    "a tab in a text": ('{"name": "A\tda"}', "1:12", ["tab", "\\t"]),
    "an unknown escape": ('{"name": "A\\da"}', "1:12", ["escape"]),
    "a windows path": ('{"plugins": ["C:\\plugins"]}', "1:17", ["escape"]),
    "half an escape": ('{"name": "\\u12"}', "1:12", ["hexadecimal"]),
    "a quote inside a text": ('{"name": "A "da" B"}', "1:14", ["bare word"]),
    "NaN": ('{"name": "Ada", "x": NaN}', "1:22", ["NaN", "not JSON"]),
    "Infinity": ('{"x": Infinity}', "1:7", ["Infinity", "not JSON"]),
    "minus Infinity": ('{"x": -Infinity}', "1:7", ["-Infinity", "not JSON"]),
    "undefined": ('{"x": undefined}', "1:7", ["undefined", "not JSON"]),
    "Python's True": ('{"x": True}', "1:7", ["True", "not JSON"]),
    "Python's None": ('{"x": None}', "1:7", ["None", "not JSON"]),
    "a word cut short": ('{"x": tru}', "1:7", ["bare word"]),
    "a leading nought": ('{"x": 007}', "1:7", ["number"]),
    "a plus sign": ('{"x": +1}', "1:7", ["number"]),
    "a hexadecimal number": ('{"x": 0x1F}', "1:7", ["number"]),
    "a bare point": ('{"x": .5}', "1:7", ["number"]),
    "a point at the end": ('{"x": 5.}', "1:7", ["number"]),
    "a minus alone": ('{"x": -}', "1:7", ["expected a value"]),
    "a number without end": ('{"x": ' + "9" * 10_000 + "}", "1:7", ["more than 100 digits"]),
    "a number out of reach": ('{"x": 1e999}', "1:7", ["too large"]),
    "an open comment": ('{"name": "Ada"} /* and', "1:17", ["never closed"]),
    "a slash alone": ('{"name": / "Ada"}', "1:10", ["'/'"]),
    "a hash comment": ('{"name": "Ada"} # Ada', "1:17", ["U+0023"]),
    "a hard space": ('{\u00a0"name": "Ada"}', "1:2", ["U+00A0"]),
    "lists without end": ("[" * 100_000, "1:65", ["64 deep"]),
    "objects without end": ('{"a":' * 100_000, "1:321", ["64 deep"]),
    "too many values": ("[" + "1," * 200_001 + "1]", "1:400000", ["200,000 values"]),
    "lines ended as on Windows": ('{\r\n"name": Ada\r\n}', "2:9", ["bare word"]),
    "lines ended as on old Macs": ('{\r"name": Ada\r}', "2:9", ["bare word"]),
}

MEANING = {
    "a list": ("[1]", "1:1", ["expected an object", "a list"]),
    "a text": ('"Ada"', "1:1", ["expected an object", "text"]),
    "null": ("null", "1:1", ["expected an object", "null"]),
    "a number": ("42", "1:1", ["expected an object", "a number"]),
    "no name": ('{"bio": "x"}', "1:1", ["name: is missing"]),
    "nearly a name": ('{"Name": "Ada"}', "1:1", ["name: is missing", "'Name'"]),
    "an empty name": ('{"name": " "}', "1:10", ["name: is empty"]),
    "no name to speak of": ('{"name": null}', "1:10", ["name: is empty"]),
    "a list of names": ('{"name": ["Ada"]}', "1:10", ["name: expected text, found a list"]),
    "bio": ('{"name": "Ada",\n "bio": {}}', "2:9", ["bio: expected a list of texts, found an object"]),
    "a list in topics": ('{"name": "Ada", "topics": ["a", []]}', "1:33", ["topics[1]: expected text"]),
    "plugins": ('{"name": "Ada", "plugins": [{}]}', "1:29", ["plugins[0]: is an object without a name"]),
    "clients": ('{"name": "Ada", "clients": {}}', "1:28", ["clients: expected a list of texts"]),
    "style": ('{"name": "Ada", "style": 3}', "1:26", ["style: expected an object, found a number"]),
    "style.chat": ('{"name": "Ada", "style": {"chat": {}}}', "1:35", ["style.chat: expected a list of texts"]),
    "settings": ('{"name": "Ada", "settings": []}', "1:29", ["settings: expected an object, found a list"]),
    "secrets": ('{"name": "Ada", "secrets": "x"}', "1:28", ["secrets: expected an object, found text"]),
    "more secrets": ('{"name": "Ada", "settings": {"secrets": [1]}}', "1:41", ["settings.secrets: expected an object"]),
    "templates": ('{"name": "Ada", "templates": ["x"]}', "1:30", ["templates: expected an object"]),
    "a template": ('{"name": "Ada", "templates": {"x": []}}', "1:36", ["templates.x: expected text"]),
    "an open section": (
        '{"name": "Ada", "templates": {"x": "\\n{{#if y}}"}}',
        "1:36",
        ["templates.x", "line 2, column 1"],
    ),
    "an open tag": ('{"name": "Ada", "templates": {"my own": "{{y"}}', "1:41", ['templates["my own"]', "column 1"]),
    "examples": ('{"name": "Ada", "messageExamples": "Hi"}', "1:36", ["messageExamples: expected a list of conv"]),
    "an example": ('{"name": "Ada", "messageExamples": ["Hi"]}', "1:37", ["messageExamples[0]: expected a list of"]),
    "a line": ('{"name": "Ada", "messageExamples": [["Hi"]]}', "1:38", ["messageExamples[0][0]: expected an object"]),
    "no speaker": ('{"name": "Ada", "messageExamples": [[{"content": {}}]]}', "1:38", ["[0][0].name: is missing"]),
    "no content": ('{"name": "Ada", "messageExamples": [[{"user": "a"}]]}', "1:38", ["[0][0].content: is missing"]),
    "a text for content": (
        '{"name": "Ada", "messageExamples": [[\n{"user": "a", "content": {}},\n{"user": "b", "content": "Hi"}\n]]}',
        "3:26",
        ["messageExamples[0][1].content: expected an object, found text"],
    ),
    "said in numbers": (
        '{"name": "Ada", "messageExamples": [[{"name": "a", "content": {"text": {}}}]]}',
        "1:72",
        ["messageExamples[0][0].content.text: expected text, found an object"],
    ),
    "knowledge": ('{"name": "Ada", "knowledge": {"path": "x"}}', "1:30", ["knowledge: expected a list"]),
    "a path": ('{"name": "Ada", "knowledge": [{"path": {}}]}', "1:40", ["knowledge[0].path: expected text"]),
    "shared": ('{"name": "Ada", "knowledge": [{"shared": "no"}]}', "1:42", ["knowledge[0].shared: expected true"]),
    "a model": ('{"name": "Ada", "modelProvider": []}', "1:34", ["modelProvider: expected text, found a list"]),
    "client settings": ('{"name": "Ada", "clientConfig": "x"}', "1:33", ["clientConfig: expected an object"]),
    "an id": ('{"name": "Ada", "id": {}}', "1:23", ["id: expected text, found an object"]),
}


@pytest.mark.matrix(3)
@pytest.mark.failure("K-02")
@pytest.mark.parametrize(("text", "place", "words"), SYNTAX.values(), ids=SYNTAX.keys())
def test_a_syntax_error_names_its_position_and_cause(text: str, place: str, words: list[str]) -> None:
    with pytest.raises(CharacterError) as caught:
        parse_character(text, source="ada.json")

    message = str(caught.value)
    assert message.startswith(f"ada.json:{place}: ")
    assert all(word in message for word in words), message


@pytest.mark.failure("K-02")
@pytest.mark.parametrize(("text", "place", "words"), MEANING.values(), ids=MEANING.keys())
def test_an_invalid_value_names_its_position_and_field(text: str, place: str, words: list[str]) -> None:
    with pytest.raises(CharacterError) as caught:
        parse_character(text, source="ada.json")

    message = str(caught.value)
    assert message.startswith(f"ada.json:{place}: ")
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.failure("K-02")
def test_the_invalid_line_is_shown_with_a_caret_below() -> None:
    with pytest.raises(CharacterError) as caught:
        parse_character('{\n\t"name": Ada\n}', source="ada.json")

    assert str(caught.value).splitlines()[1:] == ['     "name": Ada', "             ^"]


def test_of_a_long_line_only_the_part_around_the_error_is_shown() -> None:
    with pytest.raises(CharacterError) as caught:
        parse_character('{"bio": "' + "word " * 5000 + '" x, ' + '"more": 1,' * 500 + "}")

    _, line, caret = str(caught.value).splitlines()
    assert len(line) < 140
    assert line[caret.index("^")] == "x"


def test_terminal_control_characters_are_not_shown() -> None:
    with pytest.raises(CharacterError) as caught:
        parse_character('{"a": "\u202e\x7f\x9b" x}')

    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", str(caught.value)) is None


def test_all_errors_of_a_file_are_reported_together_in_order() -> None:
    text = '{\n"topics": {},\n"bio": [[]],\n"style": true}'

    with pytest.raises(CharacterError) as caught:
        parse_character(text, source="a.json")

    places = [line.split(": ")[:2] for line in str(caught.value).splitlines()]
    assert places == [
        ["a.json:1:1", "name"],
        ["a.json:2:11", "topics"],
        ["a.json:3:9", "bio[0]"],
        ["a.json:4:10", "style"],
    ]


def test_at_most_twenty_errors_are_listed() -> None:
    with pytest.raises(CharacterError) as caught:
        parse_character('{"name": "Ada", "bio": [' + "[]," * 49 + "[]]}", source="a.json")

    lines = str(caught.value).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "a.json: and 30 more"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ["1:1", "empty"]),
        (b"\x89PNG\r\n\x1a\n\x00\x00", ["1:1", "not UTF-8", "0x89"]),
        (b'{"name": "A\x00da"}', ["1:12", "binary"]),
        (b"\x00" * 64, ["1:1", "binary"]),
        (b'{\n"name": "' + LATIN + b"}", ["2:10", "not UTF-8", "0xff"]),
        ('{"name": "Ada"}'.encode("utf-16"), ["1:1", "UTF-16", "save it as UTF-8"]),
    ],
)
def test_a_file_that_is_not_utf8_is_reported_with_a_remedy(tmp_path: Path, data: bytes, words: list[str]) -> None:
    path = tmp_path / "ada.json"
    path.write_bytes(data)

    with pytest.raises(CharacterError) as caught:
        load_character(path)

    assert all(word in str(caught.value) for word in [str(path), *words]), str(caught.value)


@pytest.mark.failure("K-02")
def test_a_file_that_is_too_large_is_rejected_without_reading(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(50 * 1024 * 1024)

    with pytest.raises(CharacterError, match=r"huge\.json: 50\.0 MiB; .* at most 4 MiB"):
        load_character(path)


def test_a_text_that_is_too_large_is_rejected() -> None:
    with pytest.raises(CharacterError, match="at most 4 MiB"):
        parse_character(" " * (4 * 1024 * 1024 + 1))


def test_the_error_for_a_missing_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(CharacterError, match=r"nobody\.json: no such file"):
        load_character(tmp_path / "nobody.json")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(CharacterError, match="a folder"):
        load_character(tmp_path)


def test_the_error_for_an_unreadable_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json" / "b.json"
    path.parent.write_text("{}", encoding="utf-8")

    with pytest.raises(CharacterError, match=r"b\.json: cannot be read"):
        load_character(path)


def test_the_error_for_an_impossible_file_name_shows_it() -> None:
    with pytest.raises(CharacterError, match="cannot be read"):
        load_character(Path("a\x00.json"))


def test_an_error_next_to_a_secret_does_not_show_it() -> None:
    broken = [
        '{"secrets": {"FOO": "CANARY" "x"}}',
        '{"secrets": {"FOO": "CANARY\n}}',
        '{"secrets": {"FOO": "CANARY',
        '{"secrets": {"FOO": CANARY}}',
        '{"secrets": {"FOO": CANARY-1 "CANARY"}}',
        '{"settings": {"A_KEY": "CANARY"CANARY"}}',
        '{"settings": {"A_KEY": "x"}, "bio": "y" "settings": {"A_KEY": "CANARY"}}',
        '{"bio": "y" "secrets": {"FOO": "CANARY"}}',
        "{'secrets': {'FOO': 'CANARY'}}",
        '{"name": "Ada" secrets: {"FOO": "CANARY"}}',
        '{"secrets": {"FOO": "CANARY"}, "bio": [}',
        '{"secrets": {\n"FOO": "CANARY"}, "bio": [}',
        '{"bio": "the key is sk-CANARYCANARYCANARY" x}',
        '{"bio" x "the key is sk-CANARYCANARYCANARY"}',
        '{"secrets": "CANARY", "bio": {}}',
        '{"secrets": ["CANARY"], "settings": {"secrets": "CANARY"}}',
        '{"settings": {"secrets": {"FOO": 99, "FOO": "CANARY\\q"}}}',
    ]
    for text in broken:
        with pytest.raises(CharacterError) as caught:
            parse_character(text)

        assert "CANARY" not in str(caught.value), str(caught.value)
