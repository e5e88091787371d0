"""JSON objects at any position of an answer."""

import pytest

from bot.prompts.reply_parser.field_scanner import decode_value, find_answer, find_objects, first_object, parse_object


def test_consecutive_objects_are_found_but_not_nested_ones() -> None:
    text = 'a {b} {"c": {"d": 1}} {} {"e": 2,} {"f'
    assert [found.members for found in find_objects(text)] == [{"c": {"d": 1}}, {"e": 2}]


def test_an_object_inside_a_truncated_object_is_not_found() -> None:
    text = '{"a": 1, "b": {"c": {"d": 2}'
    assert [(found.members, found.cut_key, found.is_complete) for found in find_objects(text)] == [
        ({"a": 1}, "b", False)
    ]
    assert first_object(text) == {}


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 10_000, '{"a":' * 100_000, "", "nul", '"'])
def test_objects_that_the_decoder_rejects_are_not_found(text: str) -> None:
    assert decode_value(text) is None


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('{"a": 1, "b": "x",}', {"a": 1, "b": "x"}),
        ('{"a": "say "hi", ok", "b": 2}', {"a": 'say "hi", ok', "b": 2}),
        ('{"a": "back\\\\slash" "}', {"a": 'back\\slash" '}),
        ("{}", {}),
    ],
)
def test_slightly_invalid_objects_are_accepted(text: str, members: dict[str, object]) -> None:
    assert parse_object(text) == members


@pytest.mark.parametrize("text", ["", "prose", '["a"]', '{"a": 1', "{a}"])
def test_other_text_is_not_an_object(text: str) -> None:
    assert parse_object(text) is None


@pytest.mark.parametrize(
    ("text", "is_answer"),
    [
        ('{"text": "a"}', True),
        ('Well: {"x": 1}\n{"TEXT": "a"}', True),
        ('Well: {"text": "a"} is what I sent', False),
        ('Well: {"text": "a", "thought": "b"} is what I say', True),
        ('{"x": "a"}', False),
        ('{"x": "a', True),
        ('{"x', True),
        ("{x}", False),
    ],
)
def test_an_answer_is_distinguished_from_an_example(text: str, is_answer: bool) -> None:
    assert (find_answer(text, ("text", "thought")) is not None) is is_answer


def test_the_beginning_of_a_truncated_string_is_used() -> None:
    found = find_answer('{"thought": "a", "text": "b \\"c\\" \\ud83c', ("text",))
    assert found is not None
    assert (found.members, found.cut_key, found.partial_text) == ({"thought": "a"}, "text", 'b "c" ')
