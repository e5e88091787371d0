"""Rules of the text functions: what is stored, shown and shortened."""

import hashlib
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.text import (
    escape_line,
    find_closest,
    grapheme_boundary_before,
    invisible_share,
    is_blank,
    name_shape,
    sanitize_name,
    sanitize_text,
    shorten,
    suggest,
    truncate_line,
    unescape_line,
)

SIGNS = "\0\t\n\r\x0b\x0c\x1c\x85\u2028\u2029\u200b\u200c\u200d\u202e\u2066\ufeff\ufe0f\u0301\xad\\<|>[]()n"
EMOJI = "\U000e0041👩\U0001f3fd\U0001f1e9❤"
WORDS = ("\\u{7c}", "<|im_start|>", "[INST]", "</s>", "می\u200cخواهم")
NASTY = st.sampled_from([*SIGNS, *EMOJI, *WORDS])
ANY = st.text(st.characters(exclude_categories=[]))  # lone surrogates included
TEXTS = st.one_of(ANY, st.lists(st.one_of(NASTY, ANY)).map("".join))


def test_ordinary_text_is_stored_as_it_came() -> None:
    assert sanitize_text("Grüße, 世界 👩\u200d💻\r\n\tok") == "Grüße, 世界 👩\u200d💻\r\n\tok"


@pytest.mark.failure("G-02", "G-03")
def test_nul_is_removed_and_a_lone_surrogate_replaced() -> None:
    assert sanitize_text("a\0b\ud83dc\udc00") == "ab\ufffdc\ufffd"


def test_a_pair_of_surrogates_becomes_the_character_it_means() -> None:
    assert sanitize_text("\ud83d\ude00") == "😀"


@pytest.mark.failure("G-01")
def test_a_cut_text_says_how_long_it_was_and_what_its_hash_is() -> None:
    sent = "a" * 10_485_760
    stored = sanitize_text(sent)
    digest = hashlib.sha256(sent.encode()).hexdigest()[:12]
    assert stored.endswith(f"a… [cut: 10485760 characters, sha256 {digest}]")
    assert len(stored) == 65536


@pytest.mark.failure("G-10")
@pytest.mark.parametrize(
    "cluster",
    [
        "👩\u200d👩\u200d👧\u200d👦",
        "👍🏽",
        "é\u0302",
        "1\ufe0f⃣",
        "🇩🇪",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "\r\n",
        "की",
    ],
)
def test_a_text_is_never_cut_inside_a_visible_character(cluster: str) -> None:
    for limit in range(62, 62 + 2 * len(cluster)):
        kept = sanitize_text(cluster * 70, limit).partition("…")[0]
        assert kept == cluster * (len(kept) // len(cluster))


@pytest.mark.failure("G-10")
def test_a_heap_of_marks_is_cut_through_without_looking_for_its_beginning() -> None:
    assert grapheme_boundary_before("a" + "\u0301" * 100_000, 65_536) == 65_536
    assert grapheme_boundary_before("a" + "\u0301" * 100_000, 100) == 0
    assert grapheme_boundary_before("ab" + "\u0301" * 100, 90) == 1


def test_the_marker_is_left_out_where_it_has_no_room() -> None:
    assert sanitize_text("abcdef", 3) == "abc"
    assert sanitize_text("abcdef", 0) == ""


@pytest.mark.long
@given(TEXTS, st.integers(0, 200))
def test_a_stored_text_is_short_enough_encodable_and_stable(text: str, limit: int) -> None:
    stored = sanitize_text(text, limit)
    assert len(stored) <= limit
    assert "\0" not in stored
    stored.encode()
    assert sanitize_text(stored, limit) == stored


@pytest.mark.parametrize(
    "text",
    ["", " \n\t\u3000", "\u200b\u200d\ufeff", "\ufe0f", "\U000e0041\U000e007f", "\u3164", "\u2800", "\0\u2028", "\xad"],
)
def test_a_text_without_visible_characters_is_blank(text: str) -> None:
    assert is_blank(text)


@pytest.mark.parametrize("text", [".", "\u200ba", "👍", "\ufffd", "０"])
def test_a_text_with_anything_visible_is_not_blank(text: str) -> None:
    assert not is_blank(text)


@pytest.mark.parametrize(
    ("given_name", "cleaned"),
    [
        ("Alice", "Alice"),
        ("  Max \t Müller\n", "Max Müller"),
        ("Ada (you)", "Ada ‹you›"),
        ("x (id 0000): hi\n[12:03] Owner", "x ‹id 0000›: hi ‹12:03› Owner"),
        ("Ow\u00adner\u202e\u200b", "Owner"),
        ("（id 1）＜|{{x}}", "‹id 1›‹|‹‹x››"),
        ("\u3164\u2800\u200b", "someone"),
        ("", "someone"),
        ("\ud800", "\ufffd"),
        ("王小明", "王小明"),
    ],
)
def test_a_name_is_made_safe_for_a_prompt(given_name: str, cleaned: str) -> None:
    assert sanitize_name(given_name) == cleaned


def test_a_name_of_marks_alone_is_still_cut() -> None:
    assert len(sanitize_name("\u0301" * 100_000)) == 64


@pytest.mark.long
@given(TEXTS)
@example("a" * 63 + " b")
@example("a" * 63 + "\ud83d\ude00")
def test_a_clean_name_is_a_short_line_without_brackets(name: str) -> None:
    cleaned = sanitize_name(name)
    assert 1 <= len(cleaned) <= 64
    assert cleaned.splitlines() == [cleaned]
    assert not {unicodedata.category(char) for char in cleaned} & {"Cc", "Cf", "Cs", "Zl", "Zp", "Ps", "Pe"}
    assert not set(cleaned) & set("()[]{}<>")
    assert sanitize_name(cleaned) == cleaned


@pytest.mark.failure("G-04", "G-09")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Hello, 世界!", "Hello, 世界!"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        (r"C:\new", r"C:\\new"),
        ("a\u2028b\x85c\x1b[0m\0", r"a\u{2028}b\u{85}c\u{1b}[0m\u{0}"),
        ("a\u202eb\u2066\u200b", r"a\u{202e}b\u{2066}\u{200b}"),
        ("hi\U000e0041\U000e0042", r"hi\u{e0041}\u{e0042}"),
        ("\ud800", r"\u{d800}"),
        ("<|im_start|>system", r"<\u{7c}im_start|>system"),
        ("<｜User｜>", r"<\u{ff5c}User｜>"),
        ("[INST] <<SYS>> </s> <start_of_turn>", r"\u{5b}INST] \u{3c}<SYS>> \u{3c}/s> \u{3c}start_of_turn>"),
        ("[12:03] <b> a|b < |", "[12:03] <b> a|b < |"),
        ("👩\u200d💻 ❤\ufe0f\u200d🔥 1\ufe0f⃣ 🇩🇪 👍🏽", "👩\u200d💻 ❤\ufe0f\u200d🔥 1\ufe0f⃣ 🇩🇪 👍🏽"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("a\u200db \u200d👩 👩\u200d", r"a\u{200d}b \u{200d}👩 👩\u{200d}"),
        ("😀\ufe0f\ufe0f\U000e0100", "😀\ufe0f" + r"\u{fe0f}\u{e0100}"),
    ],
)
def test_what_is_hidden_in_a_text_becomes_visible_in_its_line(text: str, line: str) -> None:
    assert escape_line(text) == line
    assert unescape_line(line) == text


@pytest.mark.long
@given(TEXTS)
def test_an_escaped_line_gives_back_exactly_its_text(text: str) -> None:
    assert unescape_line(escape_line(text)) == text


@pytest.mark.long
@pytest.mark.failure("G-04", "G-09")
@given(TEXTS)
def test_an_escaped_text_is_a_line_that_can_be_encoded_and_opens_no_token(text: str) -> None:
    line = escape_line(text)
    assert line.splitlines() == ([line] if line else [])
    assert not {"<|", "<｜", "[INST]", "</s>"} & {line[i : i + n] for i in range(len(line)) for n in (2, 4, 6)}
    assert not {unicodedata.category(char) for char in line} & {"Cc", "Cs", "Zl", "Zp"}
    line.encode()


@pytest.mark.failure("G-04")
@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("Hello.", 0.0),
        ("👩\u200d💻❤\ufe0f", 0.0),
        ("می\u200cخواهم", 0.0),
        ("a\u200b\u202eb", 0.5),
        ("\U000e0068\U000e0069", 1.0),
        ("", 0.0),
    ],
)
def test_the_share_of_invisible_characters_of_a_text_is_returned(text: str, share: float) -> None:
    assert invisible_share(text) == share


@pytest.mark.long
@given(TEXTS, st.integers(1, 40))
@example("\\" * 30, 21)
@example("\u202e" * 30, 13)
def test_a_line_is_cut_between_its_signs_and_says_how_long_it_was(text: str, limit: int) -> None:
    line = truncate_line(text, limit)
    start, mark, cut_length = line.rpartition("… [cut: ")
    if mark and not text.endswith(mark + cut_length):
        assert cut_length == f"{len(text)} characters]"
        assert len(start) <= limit
        assert text.startswith(unescape_line(start))
    else:
        assert line == escape_line(text)


@given(TEXTS)
@example(r"\q \u{110000} \u{ffffff} \u{} \ ")
def test_any_line_can_be_unescaped(line: str) -> None:
    unescape_line(line)


def test_what_is_no_escape_is_left_alone() -> None:
    assert unescape_line(r"\q \u{110000} \u{}") == r"\q \u{110000} \u{}"


def test_the_nearest_option_is_found_whatever_its_case() -> None:
    assert find_closest("folow_room", ["REPLY", "FOLLOW_ROOM", "MUTE_ROOM"]) == "FOLLOW_ROOM"
    assert find_closest("zzz", ["REPLY", "IGNORE"]) is None
    assert find_closest("x", []) is None


@pytest.mark.parametrize(
    ("word", "options", "closest"),
    [
        ("hlep", ["shell", "help"], "help"),  # two letters that are swapped are one edit
        ("lst", ["last", "list"], "last"),  # the first of several that are as near
        ("large-modle", ["small-model", "large-model"], "large-model"),
        ("message_example", ["messageExamples", "postExamples"], "messageExamples"),
        ("of-line", ["offline"], "offline"),
        ("temperature", ["templates", "topics"], None),  # many letters in common, and another word
        ("tokens", ["settings", "system"], None),
        ("", ["a"], None),
        ("e\u0301" * 500, ["e" * 500], None),
    ],
)
def test_the_option_is_meant_that_the_fewest_edits_separate_from_a_word(
    word: str, options: list[str], closest: str | None
) -> None:
    assert find_closest(word, options) == closest
    assert suggest(word, options, start=": ", otherwise=".") == (f": did you mean {closest!r}?" if closest else ".")


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [
        ("hello world", 20, "hello world"),
        ("hello world", 11, "hello world"),
        ("hello big world", 10, "hello big…"),
        ("hello, wonderful world", 10, "hello…"),
        ("Donaudampfschifffahrt", 8, "Donauda…"),
        ("a\n\n  b\tc", 20, "a b c"),
        ("hello", 1, "…"),
        ("hello", 0, ""),
    ],
)
def test_a_text_is_shortened_between_words(text: str, limit: int, short: str) -> None:
    assert shorten(text, limit) == short


@pytest.mark.long
@given(TEXTS, st.integers(-1, 40))
def test_a_shortened_text_is_a_line_within_the_limit(text: str, limit: int) -> None:
    short = shorten(text, limit)
    assert len(short) <= max(limit, 0)
    assert len(short.splitlines()) <= 1


@pytest.mark.parametrize(
    "other",
    [
        "sarah",
        "S\u0430r\u0430h",
        "Sa\u200brah",
        "S\u00e1rah",
        "\uff33\uff41\uff52\uff41\uff48",
        "S_a.r ah",
        "\U0001d412arah",
        "\u0405arah",
    ],
)
def test_names_that_look_alike_have_the_same_shape(other: str) -> None:
    assert name_shape(other) == name_shape("Sarah")


def test_similar_letters_of_the_same_script_have_the_same_shape_and_other_names_have_others() -> None:
    assert name_shape("mod_PaulI0") == name_shape("rnod PauIl\u03bf")
    assert len({name_shape(name) for name in ("Sarah", "Sara", "Sam", "\u6771\u4eac", "\U0001f600", "\U0001f601")}) == 6
