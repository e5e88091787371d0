"""Conversion of Markdown to Telegram texts: nothing is lost, nothing exceeds the limits."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.telegram.outgoing import (
    DUPLICATE_NOTICE,
    MAX_CAPTION_LENGTH,
    MAX_TEXT_LENGTH,
    FormattedText,
    build_plain_text,
    build_text,
    limit_mentions,
    parse_markdown,
    split_reply,
    split_text,
    upload_method_of,
    utf16_length,
    with_duplicate_notice,
)
from bot import Attachment, Choice, Content, MediaKind

MARKDOWN = st.lists(
    st.sampled_from(["**", "*", "_", "`", "```\n", "~~", "[x](", ")", "# ", "- ", "> ", "|", "\n", "a", "😀", " "])
    | st.text(max_size=6),
    max_size=60,
).map("".join)


def marks(markdown: str) -> list[tuple[str, str, str]]:
    result = parse_markdown(markdown)
    return [(item.kind, result.text[item.start : item.end], item.detail) for item in result.spans]


def test_links_to_user_ids_are_not_sent() -> None:
    assert parse_markdown("[you](tg://user?id=4711)") == FormattedText("you (tg://user?id=4711)")


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("**bold** and _italic_", "bold and italic"),
        ("# Title\n\nbody", "Title\n\nbody"),
        ("- one\n- two\n  - three", "• one\n• two\n  • three"),
        ("3. three\n4. four", "3. three\n4. four"),
        ("a\nb\n\nc", "a\nb\n\nc"),
        ("Text:\n- a\n- b", "Text:\n• a\n• b"),
        ("snake_case_word * 5 < 6", "snake_case_word * 5 < 6"),
        ("<b>hi</b> &amp; <script>", "<b>hi</b> & <script>"),
        ("*unclosed and [broken](", "*unclosed and [broken]("),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("[x](javascript:alert)", "[x](javascript:alert)"),
        ("[x](notes.txt)", "x (notes.txt)"),
        ("#", "#"),
        ("", ""),
    ],
)
def test_markdown_becomes_plain_text(markdown: str, text: str) -> None:
    assert parse_markdown(markdown).text == text


def test_formatting_becomes_entities() -> None:
    assert marks("**a `b` c**") == [("bold", "a ", ""), ("code", "b", ""), ("bold", " c", "")]
    assert marks("```py\nx = 1\n```") == [("pre", "x = 1", "py")]
    assert marks("[here](https://example.com/?a=b)") == [("text_link", "here", "https://example.com/?a=b")]
    assert marks("> said\n> > twice") == [("blockquote", "said\ntwice", "")]
    assert marks("~~gone~~") == [("strikethrough", "gone", "")]


@given(st.text(alphabet="Ab é1.-=#+>:!)' \n\t\u00a0", max_size=60))
def test_text_without_markdown_is_what_the_parser_makes_of_it(text: str) -> None:
    parsed = parse_markdown(f"{text}\n\n*end*")  # which is never taken as plain
    assert parse_markdown(f"{text}\n\nend").text == parsed.text


@pytest.mark.failure("F-16", "O-07")
def test_a_part_notifies_at_most_three_known_users() -> None:
    people = {"ann", "bea", "carl", "dora"}
    [part] = split_reply(Content(text="**@eve** @Ann, @ann @bea @carl @dora: write to ann@example.com"))
    limited = limit_mentions(part, people)
    assert limited.text == "＠eve @Ann, @ann @bea @carl ＠dora: write to ann@example.com"
    assert build_text(limited).entities == build_text(part).entities
    assert build_plain_text(limited).text == "**＠eve** @Ann, @ann @bea @carl ＠dora: write to ann@example.com"


def test_names_in_code_and_links_are_left_unchanged() -> None:
    [part] = split_reply(Content(text="`@property` https://example.com/@eve (@eve)"))
    assert limit_mentions(part, ()).text == "@property https://example.com/@eve (＠eve)"


@pytest.mark.long
@pytest.mark.failure("F-17")
@given(MARKDOWN)
def test_every_entity_lies_within_the_text(markdown: str) -> None:
    result = parse_markdown(markdown)
    assert all(0 <= item.start < item.end <= len(result.text) for item in result.spans)
    for part in split_reply(Content(text=markdown)):
        letter = build_text(part)
        assert utf16_length(letter.text) <= MAX_TEXT_LENGTH
        assert all(
            item.offset >= 0 and item.offset + item.length <= utf16_length(letter.text) for item in letter.entities
        )


@pytest.mark.failure("D-16")
@given(st.text(alphabet="ab \n.😀👨‍👩‍👧é\u0301🇩🇪", max_size=400), st.integers(min_value=20, max_value=60))
def test_a_split_text_keeps_its_limit_and_loses_only_white_space(text: str, limit: int) -> None:
    cut = list(split_text(FormattedText(text), limit))
    assert all(utf16_length(item.text) <= limit for item in cut)
    assert "".join("".join(item.text.split()) for item in cut) == "".join(text.split())


@pytest.mark.failure("D-16")
@pytest.mark.parametrize("sign", ["😀", "👨‍👩‍👧", "🇩🇪", "👍🏽", "e\u0301"])
def test_no_grapheme_is_split(sign: str) -> None:
    text = sign * 300
    assert all(len(item.text) % len(sign) == 0 for item in split_text(FormattedText(text), 101))


@pytest.mark.failure("D-16")
def test_split_code_is_code_in_both_parts() -> None:
    code = "\n".join(f"line {number}" for number in range(1000))
    cut = split_reply(Content(text=f"Look:\n```py\n{code}\n```"))
    assert len(cut) > 1
    assert [{item.type for item in build_text(part).entities} for part in cut] == [{"pre"}] * len(cut)


def test_the_duplicate_notice_always_fits() -> None:
    [first, *_] = split_reply(Content(text="x" * 9000))
    assert utf16_length(build_text(with_duplicate_notice(first)).text) == 4096
    assert build_text(with_duplicate_notice(first)).text.startswith(DUPLICATE_NOTICE)


def test_the_plain_fallback_contains_the_whole_text() -> None:
    [short] = split_reply(Content(text="**a** [b](https://c.example)"))
    assert build_plain_text(short).text == "**a** [b](https://c.example)"
    long = split_reply(Content(text="word " * 1000 + "[b](https://c.example)"))
    assert build_plain_text(long[-1]).text.endswith("b (https://c.example)")


def test_a_single_file_carries_the_text_as_its_caption() -> None:
    files = tuple(Attachment(str(number), MediaKind.IMAGE, data=b"x") for number in range(3))
    [item] = split_reply(Content(text="A boat.", attachments=files[:1]))
    assert (item.text, len(item.attachments)) == ("A boat.", 1)
    several = split_reply(Content(text="Boats.", attachments=files))
    assert [(part.text, len(part.attachments)) for part in several] == [("Boats.", 0), ("", 1), ("", 1), ("", 1)]
    long = split_reply(Content(text="x" * (MAX_CAPTION_LENGTH + 1), attachments=files[:1]))
    assert [len(part.attachments) for part in long] == [0, 1]


def test_choices_are_on_the_last_part_only() -> None:
    choices = (Choice("Yes", "1"),)
    cut = split_reply(Content(text="word " * 2000, choices=choices))
    assert [part.choices for part in cut] == [()] * (len(cut) - 1) + [choices]


def test_a_link_attachment_is_written_into_the_text() -> None:
    link = Attachment("1", MediaKind.LINK, url="https://example.com")
    [part] = split_reply(Content(text="See:", attachments=(link,)))
    assert (part.text, part.attachments) == ("See:\nhttps://example.com", ())


def test_a_recording_is_a_voice_message_only_in_a_supported_format() -> None:
    assert upload_method_of(Attachment("1", MediaKind.AUDIO, content_type="audio/ogg; codecs=opus")) == "voice"
    assert upload_method_of(Attachment("1", MediaKind.AUDIO, content_type="audio/mpeg")) == "audio"


@pytest.mark.long
def test_a_long_text_without_breaks_is_split_quickly() -> None:
    chance = random.Random(1)
    text = "".join(chance.choice("ab 😀*_`[]()\n>#-|~") for _ in range(32_000))
    assert split_reply(Content(text=text))
