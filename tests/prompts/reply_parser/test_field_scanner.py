"""Where the fields of an answer begin and end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.prompts.reply_parser.field_scanner import (
    MAX_CHARS,
    Field,
    build_shape,
    code_spans,
    scan_fields,
    scan_tag_by_tag,
    strip_last_tags,
    strip_partial_tag,
)

SHAPE = build_shape(("thought",), lists=("actions",), items=("action",), arguments=("params",), message=("text",))


@pytest.mark.parametrize(
    ("raw", "fields"),
    [
        ("<text>a</text>", [Field("text", "a")]),
        ("<TEXT id='1'>a</Text >", [Field("text", "a")]),
        ("<text/><thought>b</thought>", [Field("text", ""), Field("thought", "b")]),
        ("<textual>a</textual><text>b</text>", [Field("text", "b")]),
        ("<thought>a</thought> b</thought><text>c</text>", [Field("thought", "a</thought> b"), Field("text", "c")]),
        ("<thought>a</thought> b</thought> c", [Field("thought", "a</thought> b")]),
        ("<thought>a<text>b</text>", [Field("thought", "a", is_closed=False), Field("text", "b")]),
        ("<actions>A<text>b</text>", [Field("actions", "A", is_closed=False), Field("text", "b")]),
        ("<actions><action>A</action></actions>", [Field("actions", "<action>A</action>")]),
        ("<action>A</action><action>B</action>", [Field("action", "A"), Field("action", "B")]),
        ("<params><A><text>b</text></A></params>", [Field("params", "<A><text>b</text></A>")]),
        ("<params><A><text>b", [Field("params", "<A><text>b", is_closed=False, is_cut=True)]),
        ("<text>a</te", [Field("text", "a", is_closed=False, is_cut=True)]),
        ("<text>a</response>", [Field("text", "a", is_closed=False)]),
        ("<text><![CDATA[</text><actions>]]></text>", [Field("text", "<![CDATA[</text><actions>]]>")]),
    ],
)
def test_each_field_ends_by_the_rule_of_its_kind(raw: str, fields: list[Field]) -> None:
    found = scan_fields(raw, SHAPE)
    assert found is not None
    assert found.fields == fields


@pytest.mark.parametrize("raw", ["", "prose", "a <text> in prose", "</text>", "say <response> first", "<b>x</b>"])
def test_prose_has_no_structure(raw: str) -> None:
    assert scan_fields(raw, SHAPE) is None


def test_text_outside_the_fields_is_returned_separately() -> None:
    found = scan_fields("before <response>a <thought>t</thought> b</response> c", SHAPE)
    assert found is not None
    assert (found.before, found.prose, found.is_ended) == ("before", "a  b c", True)


@pytest.mark.parametrize(
    ("raw", "is_quoted"),
    [
        ("<response><thought>a</thought> b <actions>C</actions>", True),
        ("<response><thought>a<actions>C</actions>", True),
        ("<response><thought>a</thought> b <actions>C</actions></response>", False),
        ("<response><thought>a</thought><actions>C</actions>", False),
        ("<response><actions>C</actions><text>a</text> b", False),
    ],
)
def test_actions_after_an_unclosed_text_may_be_quoted(raw: str, is_quoted: bool) -> None:
    found = scan_fields(raw, SHAPE)
    assert found is not None
    assert found.may_quote is is_quoted


@pytest.mark.parametrize(
    ("raw", "kept"),
    [("a <tex", "a "), ("a </respon", "a "), ("a <text id='x", "a "), ("<", ""), ("a <", "a <"), ("a <b", "a <b")],
)
def test_an_incomplete_tag_is_removed(raw: str, kept: str) -> None:
    assert strip_partial_tag(raw, SHAPE) == kept


def test_closing_tags_are_removed_only_at_the_end() -> None:
    assert strip_last_tags("a </text> b</text>\n</response>\n```", SHAPE) == "a </text> b"


NAMES = st.sampled_from(["response", "output", "thought", "actions", "action", "params", "text", "other"])
BODIES = st.sampled_from(["", " ", "Hello", "A, B", "a\nb", "```", "{}", "&lt;", "]]>", "<", "<text>", "</text>"])


@pytest.mark.long
@given(st.lists(st.tuples(NAMES, BODIES)), st.sampled_from(["", "\n", " so ", "```"]), st.booleans())
def test_a_regular_answer_is_read_tag_by_tag(written: list[tuple[str, str]], between: str, is_ended: bool) -> None:
    inside = "".join(f"<{name}>{body}</{name}>{between}" for name, body in written)
    raw = f"<response>{inside}{'</response>' if is_ended else ''}"
    assert scan_fields(raw, SHAPE) == scan_tag_by_tag(raw, SHAPE)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a\n```py\nb\n```\nc", ["```py\nb\n```"]),
        ("~~~\nb\n~~~~ \nc", ["~~~\nb\n~~~~ "]),
        ("````\n```\n````", ["````\n```\n````"]),
        ("````\nb\n```", []),
        ("```\nb\n~~~", []),
        ("```a`\nb\n```", []),
        ("a ```\nb\n```", []),
        ("> <text>```\n> b\n> ```", ["```\n> b\n> ```"]),
        ("```\n```\n```\n```", ["```\n```", "```\n```"]),
        ("````\n```\nb\n```", ["```\nb\n```"]),
        ("`a` ``b`` ```\nc", ["`a`", "``b``"]),
    ],
)
def test_code_is_a_fence_that_a_later_line_closes_or_within_backticks(text: str, code: list[str]) -> None:
    assert [text[start:end] for start, end in code_spans(text)] == code


@pytest.mark.failure("F-09")
@pytest.mark.parametrize("piece", ["~", "```x\n", ">~~~x\n", "```x\n\n"])
def test_fences_without_an_end_are_looked_for_once(piece: str) -> None:
    assert list(code_spans(piece * (MAX_CHARS // len(piece)))) == []
