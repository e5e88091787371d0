"""Nested answers, as used by reflection and settings."""

import pytest

from bot.prompts.reply_parser.field_scanner import MAX_DEPTH, TagTree
from bot.prompts.reply_parser.reader import parse_tag_tree


@pytest.mark.parametrize(
    ("raw", "tree"),
    [
        ("<a><b>1</b><b>2</b><c>3</c></a>", {"a": {"b": ["1", "2"], "c": "3"}}),
        ("<a><b>1</b><b>2</b><b><c>3</c></b></a>", {"a": {"b": ["1", "2", {"c": "3"}]}}),
        ("Sure: <response> so <x>1</x></response> bye <x>2</x>", {"x": "1"}),
        ("<output><response><a>1</a></response></output>", {"a": "1"}),
        ("<think>x</think>```xml\n<a>1</a>\n```", {"a": "1"}),
        ("<a></a><b/><c> &lt;<![CDATA[<d>]]> </c>", {"a": "", "b": "", "c": "<<d>"}),
        ("<claim>likes <b>cats</b> & <em>dogs</em></claim>", {"claim": "likes <b>cats</b> & <em>dogs</em>"}),
        ("I <i>do</i> like that", "I <i>do</i> like that"),
        ("<claim>uses <Component> a lot</claim>", {"claim": "uses <Component> a lot"}),
        ('<a>{"x": "<y>1</y>"}</a>', {"a": '{"x": "<y>1</y>"}'}),
        ("<sourceEntityId>7</SOURCEENTITYID>", {"sourceEntityId": "7"}),
        ("</x><x>1</b></x>", {"x": "1</b>"}),
        ("just prose", "just prose"),
        ("", ""),
        ('{"a": ["x", 1, 1.5, true, null, {"b": []}]}', {"a": ["x", "1", "1.5", "true", "", {"b": []}]}),
        ('["a", "b"]', ["a", "b"]),
        ('Sure: {"a": "1"}', {"a": "1"}),
        ('{"a": {"b": "1"', '{"a": {"b": "1"'),
    ],
)
def test_tags_and_json_are_parsed_to_a_tree(raw: str, tree: TagTree) -> None:
    assert parse_tag_tree(raw) == tree


def test_a_truncated_value_is_omitted() -> None:
    fact = "<response><facts><fact><claim>a</claim><type>fact</type></fact><fact><claim>does n"
    assert parse_tag_tree(fact) == {"facts": {"fact": {"claim": "a", "type": "fact"}}}
    assert parse_tag_tree("<response><facts><fact>does n") == {}


def test_tags_nested_too_deeply_are_text() -> None:
    raw = "<a>" * 100 + "x" + "</a>" * 100
    tree, depth = parse_tag_tree(raw), 0
    while isinstance(tree, dict):
        tree, depth = tree["a"], depth + 1
    assert depth == MAX_DEPTH
    assert tree == "<a>" * (100 - MAX_DEPTH) + "x" + "</a>" * (100 - MAX_DEPTH)


def test_json_nested_too_deeply_is_omitted() -> None:
    tree, depth = parse_tag_tree('{"a":' * 100 + '"x"' + "}" * 100), 0
    while isinstance(tree, dict):
        tree, depth = tree["a"], depth + 1
    assert (tree, depth) == ("", MAX_DEPTH)
