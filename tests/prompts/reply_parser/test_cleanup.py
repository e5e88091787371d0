"""Wrapping, escapes and invisible characters."""

import re

import pytest

from bot.prompts.reply_parser.field_scanner import (
    MAX_TAGS,
    find_tags,
    fix_surrogates,
    strip_partial_markup,
    unescape_field,
)
from bot.prompts.reply_parser.reader import visible_text

TAG = re.compile(r"<(?:(/?)(a|b)(/?)>|!\[CDATA\[)", re.IGNORECASE)


def test_invisible_characters_are_removed() -> None:
    assert visible_text(" \u200b\ufe0f\u3164\n") == ""
    assert visible_text(" ❤️ ") == "❤️"


def test_surrogates_are_paired_or_replaced() -> None:
    assert fix_surrogates("a\ud83c\udf88b\udf88") == "a🎈b\ufffd"


def test_unescaping_does_not_break_json_strings() -> None:
    assert unescape_field('"&quot;&#10;&lt;"', for_json=True) == '"\\"\\n<"'


@pytest.mark.parametrize("end", ["<", "</", "</tex", "</text ", "</respons", "&", "&am", "&#6", "&#x3c", "<![CDA"])
def test_an_incomplete_closing_sequence_is_removed(end: str) -> None:
    assert strip_partial_markup("a < b" + end, "text") == "a < b"
    assert strip_partial_markup("<![CDATA[a]]", "text") == "<![CDATA[a"


def test_tags_in_cdata_are_text_unless_it_is_unclosed() -> None:
    assert [tag.name for tag in find_tags("<a><![CDATA[<b>]]></A>", TAG)] == ["a", "a"]
    assert [tag.name for tag in find_tags("<a><![CDATA[<b>", TAG)] == ["a", "b"]


def test_tags_are_counted() -> None:
    assert sum(1 for _ in find_tags("<a>" * (MAX_TAGS + 1), TAG)) == MAX_TAGS
