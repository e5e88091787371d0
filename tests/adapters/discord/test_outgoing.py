"""Splitting replies and limiting whom they notify."""

import json
import re
import unicodedata
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.discord.emulator.rest import check_message
from adapters.discord.sending import (
    CHOICE_PREFIX,
    MAX_TEXT_LENGTH,
    build_body,
    build_components,
    has_extras,
    split_reply,
    split_text,
    without_extras,
)
from bot import Attachment, Choice, Content, MediaKind
from bot.platform import Delivery

LINK = "https://example.org/" + "a" * 60
PIECES = st.sampled_from(
    [
        "word ",
        "line\n",
        "\n\n",
        "👨‍👩‍👧‍👦",
        "🇫🇷🇩🇪",
        "é",
        "naïve ",
        LINK + " ",
        "<@123456789012345678> ",
        "x" * 30,
        "```\n",
        "`a` ",
    ]
)


def delivery(content: Content, reply_to: str = "") -> Delivery:
    """Return a delivery."""
    return Delivery(
        "abcdefghijklmnopqrstuvwx",
        uuid4(),
        uuid4(),
        uuid4(),
        "discord",
        "account",
        "1",
        0,
        content,
        datetime.now(UTC),
        reply_to=reply_to,
    )


@pytest.mark.failure("D-16")
@settings(max_examples=80, deadline=None)
@given(st.lists(PIECES, max_size=150).map("".join), st.integers(120, 400))
@example("", 200)
@example("x" * 5000, 200)
def test_no_piece_is_too_long_and_nothing_is_lost(text: str, limit: int) -> None:
    pieces = split_text(text, limit)
    assert all(0 < len(piece) <= limit for piece in pieces)
    bare = re.sub(r"[\s`]", "", "".join(pieces))
    assert bare == re.sub(r"[\s`]", "", text)


@pytest.mark.failure("D-16")
@settings(max_examples=80, deadline=None)
@given(st.lists(PIECES, max_size=150).map("".join), st.integers(120, 400))
def test_no_emoji_mention_or_link_is_broken_and_fences_are_closed(text: str, limit: int) -> None:
    pieces = split_text(text, limit)
    for piece in pieces[1:]:
        assert not unicodedata.category(piece[0]).startswith("M")
        assert piece[0] != "\u200d"
    for whole in (LINK, "<@123456789012345678>", "👨‍👩‍👧‍👦"):
        assert sum(piece.count(whole) for piece in pieces) == text.count(whole)
    if text.count("```") % 2 == 0:
        assert all(piece.count("```") % 2 == 0 for piece in pieces)


@pytest.mark.failure("D-16")
def test_a_text_is_split_at_a_paragraph_then_a_line_then_a_word() -> None:
    assert split_text("a" * 60 + "\n\n" + "b" * 60, 100) == ["a" * 60, "b" * 60]
    assert split_text("a" * 60 + "\n" + "b" * 60, 100) == ["a" * 60, "b" * 60]
    assert split_text("a" * 60 + " " + "b" * 60, 100) == ["a" * 60, "b" * 60]
    assert split_text("a" * 120, 100) == ["a" * 96, "a" * 24]


def test_a_code_block_continues_in_the_next_piece_in_the_same_language() -> None:
    code = "```py\n" + "\n".join(f"line_{number}()" for number in range(20)) + "\n```"
    first, *_ = pieces = split_text(code, 120)
    assert first.startswith("```py\nline_0()")
    assert all(piece.startswith("```py\n") and piece.endswith("\n```") for piece in pieces)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=2, max_size=8), st.integers(1, 30), st.sampled_from(["", "py"]))
def test_no_piece_shows_an_empty_code_block(lengths: list[int], lines: int, language: str) -> None:
    words = [" ".join(["word"] * length) for length in lengths]
    code = f"\n```{language}\n" + "\n".join(f"line_{number}()" for number in range(lines)) + "\n```\n"
    pieces = split_text(code.join(words), 200)
    for piece in pieces:
        _, *blocks = piece.split("```")
        assert all(block.removeprefix(f"{language}\n").strip() for block in blocks[::2])
    assert "\n".join(pieces).count("line_0()") == len(lengths) - 1


SPOILERS = re.compile(r"\|\|(.+?)\|\|", re.DOTALL)


@pytest.mark.failure("D-16")
@pytest.mark.parametrize("inner", ["the gardener did it ", "word", "line\n", "```py\nprint(1)\n```\n"])
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 400), st.integers(1, 300))
def test_a_long_spoiler_is_hidden_in_every_piece(inner: str, before: int, times: int) -> None:
    pieces = split_text("w" * before + f" ||{inner * times}|| seen", 200)
    assert all(len(piece) <= 200 for piece in pieces)
    assert not any("||||" in piece for piece in pieces)
    shown = "".join(SPOILERS.sub("", piece) for piece in pieces)
    assert re.sub(r"\s", "", shown) == "w" * before + "seen"


@pytest.mark.parametrize("length", range(175, 195))
def test_a_piece_at_the_end_of_a_spoiler_is_not_too_long(length: int) -> None:
    text = f" ||```x\n{'c' * length}\n\n\n\n|| seen {'d' * 100}"
    assert all(len(piece) <= 200 for piece in split_text(text, 200))


def test_marks_in_code_hide_nothing() -> None:
    code = "```sh\n" + "make || exit\n" * 20 + "```"
    assert all(piece.startswith("```sh\n") and piece.endswith("\n```") for piece in split_text(code, 100))


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("~~~py\nprint(1)\n~~~\nDone.", "```py\nprint(1)\n```\nDone."),
        ("````md\n```py\nx\n```\n````", "```md\n`\u200b``py\nx\n`\u200b``\n```"),
        ("~~~~\n~~~\n~~~~", "```\n~~~\n```"),
        ("````\ncut off", "```\ncut off"),
        ("~~~ so tired", "~~~ so tired"),
        ("```\n~~~\n```\n~~~", "```\n~~~\n```\n~~~"),
        ("```py\nx = 1```\n~~~\ny\n~~~", "```py\nx = 1```\n```\ny\n```"),
        ("  ~~~ python title=a\n  x\n  ~~~", "  ```python\n  x\n  ```"),
    ],
)
def test_fences_are_written_as_discord_shows_them(written: str, shown: str) -> None:
    [part] = split_reply(Content(text=written))
    assert part.text == shown


def test_a_long_block_between_tildes_is_code_in_every_part() -> None:
    code = "~~~py\n" + "\n".join(f"line_{number}()" for number in range(500)) + "\n~~~"
    parts = split_reply(Content(text=code))
    assert len(parts) > 1
    assert all(part.text.startswith("```py\n") and part.text.endswith("\n```") for part in parts)


@pytest.mark.failure("F-17")
@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1, max_size=6000))
@example("```" * 800)
@example("||**__~~`" * 500)
def test_discord_accepts_every_part_of_any_text(text: str) -> None:
    for part in split_reply(Content(text=text)):
        if part.text:
            check_message(build_body(delivery(part), []).json, has_files=False)


@pytest.mark.failure("F-16", "O-07")
def test_a_text_notifies_only_mentioned_users_seen_in_the_channel() -> None:
    text = "@everyone @here <@&111111111111111111> " + " ".join(f"<@{n}>" for n in range(10, 20))
    body = build_body(delivery(Content(text=text)), [str(n) for n in range(12, 20)]).json
    assert body["allowed_mentions"] == {"parse": [], "users": ["12", "13", "14"], "roles": [], "replied_user": False}
    assert body["content"] == text


def test_the_nonce_is_the_deliverys_own_id_and_is_enforced() -> None:
    body = build_body(delivery(Content(text="Aye."), reply_to="123"), []).json
    assert (body["nonce"], body["enforce_nonce"]) == ("abcdefghijklmnopqrstuvwx", True)
    assert body["message_reference"] == {"message_id": "123", "fail_if_not_exists": False}
    assert body["allowed_mentions"]["replied_user"] is True
    json.dumps(body)


def test_files_and_choices_go_with_the_last_part_and_links_with_the_text() -> None:
    picture = Attachment("1", MediaKind.IMAGE, url="https://example.org/a.png")
    paper = Attachment("2", MediaKind.DOCUMENT, url="https://example.org/a.pdf")
    own = Attachment("3", MediaKind.AUDIO, name="song.ogg", data=b"song")
    made = split_reply(Content(text="word " * 700, attachments=(picture, paper, own), choices=(Choice("Yes", "y"),)))
    assert [bool(part.attachments) for part in made] == [False, True]
    assert "https://example.org/a.pdf" in made[-1].text
    body = build_body(delivery(made[-1]), [])
    assert body.json["embeds"] == [{"image": {"url": "https://example.org/a.png"}}]
    assert [attachment["filename"] for attachment in body.json["attachments"]] == ["song.ogg"]
    assert has_extras(body)
    plain = without_extras(body).json
    assert set(plain) == {"content", "allowed_mentions", "nonce", "enforce_nonce"}
    assert "song.ogg" in plain["content"]


def test_files_after_a_full_part_get_a_part_of_their_own() -> None:
    own = Attachment("3", MediaKind.AUDIO, name="song.ogg", data=b"song")
    made = split_reply(Content(text="x" * MAX_TEXT_LENGTH, attachments=(own,)))
    assert [(len(part.text), len(part.attachments)) for part in made] == [(MAX_TEXT_LENGTH, 0), (0, 1)]


def test_more_than_ten_files_go_with_further_parts_and_choices_with_the_last() -> None:
    files = tuple(Attachment(str(n), MediaKind.IMAGE, data=b"png") for n in range(23))
    made = split_reply(Content(text="Look.", attachments=files, choices=(Choice("Yes", "y"),)))
    assert [(part.text, len(part.attachments), len(part.choices)) for part in made] == [
        ("Look.", 10, 0),
        ("", 10, 0),
        ("", 3, 1),
    ]


def test_few_choices_are_buttons_and_many_a_list() -> None:
    few = build_components([Choice(str(n), f"v{n}") for n in range(5)])
    assert [component["custom_id"] for component in few[0]["components"]] == [f"{CHOICE_PREFIX}v{n}" for n in range(5)]
    [select] = build_components([Choice(str(n), f"v{n}") for n in range(25)])[0]["components"]
    assert [entry["value"] for entry in select["options"]] == [f"v{n}" for n in range(25)]
