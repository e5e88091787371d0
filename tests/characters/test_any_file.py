"""Any file results in a character or one CharacterError."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.characters import LoadedCharacter, parse_character
from bot.characters.conversion import FIELDS
from bot.characters.source import is_secret_name
from bot.errors import CharacterError

pytestmark = pytest.mark.long

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
KEYS = st.sampled_from([*FIELDS, "user", "content", "text", "all", "action", "path", "examples"]) | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
FILES = st.dictionaries(KEYS, VALUES, max_size=8)
PIECES = st.sampled_from(
    [*'{}[]:,"\\/ \n\t', "//", "/*", "*/", '"name"', '"Ada"', ":", "null", "true", "1", "-", "1e9", "\ufeff", "\ud800"]
)


def _read(text: str) -> LoadedCharacter | None:
    try:
        return parse_character(text)
    except CharacterError as error:
        message = str(error)
    assert message.startswith("<text>:")
    return None


@settings(deadline=None)
@given(VALUES | FILES)
def test_any_json_value_is_a_character_or_a_character_error(value: object) -> None:
    _read(json.dumps(value))


@settings(deadline=None)
@given(FILES)
def test_any_object_with_a_name_keeps_its_unknown_keys(value: dict[str, object]) -> None:
    loaded = _read(json.dumps({**value, "name": "Ada"}, allow_nan=True))

    if loaded is not None:
        assert loaded.character.name == "Ada"
        json.dumps(loaded.to_json())
        assert loaded.report.format_lines() is not None


@settings(deadline=None)
@given(st.text() | st.lists(PIECES, max_size=40).map("".join))
def test_any_text_is_a_character_or_a_character_error(text: str) -> None:
    _read(text)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=8), SCALARS, max_size=6))
def test_valid_json_is_parsed_like_the_json_module_does(value: dict[str, object]) -> None:
    text = json.dumps({"name": "Ada", "settings": {"nested": {f"{key} x": item for key, item in value.items()}}})
    if "NaN" in text or "Infinity" in text or "\\u0000" in text or "\\ud" in text:
        return

    if not any(is_secret_name(f"{key} x") for key in value):
        assert parse_character(text).character.settings == json.loads(text)["settings"]


@settings(deadline=None)
@given(st.text(min_size=1, max_size=60))
def test_an_error_in_a_truncated_file_never_shows_a_secret(value: str) -> None:
    secret = "CANARY" + value
    text = json.dumps({"name": "Ada", "secrets": {"A": secret}, "settings": {"B_KEY": secret}, "bio": []})

    for end in range(0, len(text), 7):
        with pytest.raises(CharacterError) as caught:
            parse_character(text[:end])
        assert "CANARY" not in str(caught.value)


BOMBS: dict[str, Callable[[], str]] = {
    "values": lambda: '{"name": "Ada", "x": [' + "1," * 190_000 + "1]}",
    "keys": lambda: "{" + "".join(f'"namf{number}": 1,' for number in range(90_000)) + '"name": "Ada"}',
    "one key again and again": lambda: '{"name": "Ada"' + ',"a": 1' * 90_000 + "}",
    "a text": lambda: '{"name": "Ada", "bio": "' + "a" * 4_000_000 + '"}',
    "a fault behind a text": lambda: '{"bio": "' + "a" * 4_000_000 + '" "x"}',
    "a fault before a word": lambda: '{"bio": x' + "a" * 4_000_000 + "}",
    "half tokens": lambda: '{"name": "Ada", "bio": "' + "-eyJ" * 900_000 + '"}',
    "half keys": lambda: '{"name": "Ada", "bio": "' + "-----BEGIN PRIVATE KEY-----" * 100_000 + '"}',
    "addresses": lambda: '{"name": "Ada", "bio": "' + "a://b:" * 600_000 + '"}',
    "numbers and colons": lambda: '{"name": "Ada", "bio": "' + "1234567:" * 400_000 + '"}',
    "comments": lambda: '{"name": "Ada"}' + "/**/" * 900_000,
    "slashes": lambda: '{"name": "Ada"}' + "/*" * 1_900_000,
    "line ends": lambda: '{"name": "Ada"' + "\n" * 4_000_000 + "}",
    "a long key": lambda: '{"name": "Ada", "' + "k" * 1_000_000 + '": {"b": [' + "{}," * 90_000 + "{}]}}",
    "secrets": lambda: (
        '{"name": "Ada", "secrets": {' + "".join(f'"K{n}": "v{n}",' for n in range(90_000)) + '"K": "v"}}'
    ),
    "a placeholder": lambda: '{"name": "Ada", "secrets": {"A": "' + "sk-" + "x-" * 90 + '!"}}',
}


@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS.keys())
def test_a_file_designed_to_be_slow_is_read_or_refused(make: Callable[[], str]) -> None:
    _read(make())
