"""The content filter: what is removed from outgoing texts."""

import pytest

from bot.domain.content import Attachment, Content, MediaKind
from bot.domain.ids import derived_id
from bot.outbound.content_filter import (
    MAX_REPLY_LENGTH,
    LinkPolicy,
    OutgoingFilter,
    filter_outgoing,
    filter_partial_text,
)
from bot.text import REDACTED


def text_of(text: str, *secrets: str) -> str | None:
    content = filter_outgoing(Content(text=text), secrets)
    return content.text if content is not None else None


@pytest.mark.parametrize("text", ["Hello.", "a < b > c", "<b>bold</b>", "{{name}} %s {0}", "Grüße 👋🏽\n\n- eins"])
def test_an_ordinary_text_is_not_changed(text: str) -> None:
    assert text_of(text) == text


@pytest.mark.parametrize("text", ["", "   \n", "\u200b\u2060", "<response></response>", "\0"])
def test_an_empty_text_stays_empty(text: str) -> None:
    assert text_of(text) is None


def test_an_attachment_may_be_sent_without_text() -> None:
    picture = Attachment("a", MediaKind.IMAGE, "https://a/b.png", data=b"png")

    assert filter_outgoing(Content(text="\u200b", attachments=(picture,))) == Content(attachments=(picture,))


@pytest.mark.failure("F-15")
@pytest.mark.parametrize(
    ("leaked", "expected"),
    [
        ("<response><thought>hm</thought><TEXT>Hi</TEXT></response>", "Hi"),
        ("<think>hm</think>Hi", "Hi"),
        ("Hi<|im_end|>\n<|im_start|>user\nmore", "Hi"),
        ('Hi\n<tool_call>\n{"name": "LOOK", "arguments": {}}\n</tool_call>', "Hi"),
        ("<think>hm", None),
    ],
)
def test_markup_of_models_is_removed(leaked: str, expected: str | None) -> None:
    assert text_of(leaked) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Write `<think>` first.",
        "```xml\n<response>ok</response>\n```",
        "Use <output> tags",
        "Close it with </think> here.",
        "<s>old</s> new",
    ],
)
def test_code_and_tags_in_sentences_are_not_changed(text: str) -> None:
    assert text_of(text) == text


@pytest.mark.failure("F-15")
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("[12:04] Ada (you): Hello.", "Hello."),
        ("[12:04] Ada (you): One.\n[12:05] Ada (you): Two.", "One.\nTwo."),
        ("Yes.\n[12:05] Bob (id 2434fe0e): And then?", "Yes.\n[12:05] Bob: And then?"),
        ("See [1] and [12:04] (you): there", "See [1] and [12:04] (you): there"),
    ],
)
def test_headers_of_history_lines_are_removed(written: str, expected: str) -> None:
    assert text_of(written) == expected
    for end in range(len(written)):
        assert "(you" not in filter_partial_text(written[:end]) or "(you" in expected


def test_secrets_are_replaced_in_every_field() -> None:
    assert text_of("it is hunter22hunter22!", "hunter22") == f"it is {REDACTED}{REDACTED}!"
    assert text_of("hunter22", "hunter22", "other-secret") == REDACTED


@pytest.mark.parametrize("order", [1, -1])
def test_a_secret_that_begins_with_another_secret_is_replaced_completely(order: int) -> None:
    secrets = ["sk-12345678", "sk-12345678-abcdefgh"][::order]

    assert text_of("key: sk-12345678-abcdefgh", *secrets) == f"key: {REDACTED}"


def test_a_secret_interrupted_by_removed_text_is_still_found() -> None:
    assert text_of("hun<think>so</think>ter22", "hunter22") == REDACTED
    assert text_of("hun\0ter22", "hunter22") == REDACTED


def test_an_empty_secret_replaces_nothing() -> None:
    assert text_of("Hello.", "") == "Hello."


def test_texts_of_attachments_have_no_secrets() -> None:
    secret = "hunter22"
    leak = Attachment("a", MediaKind.IMAGE, f"https://evil/?q={secret}", "", secret, secret, secret)
    content = filter_outgoing(Content(text="look", attachments=(leak,)), [secret])

    assert content is not None
    assert secret not in repr(content)
    assert content.attachments[0].url == f"https://evil/?q={REDACTED}"


def test_the_length_of_a_text_is_limited() -> None:
    text = text_of("x" * (MAX_REPLY_LENGTH + 1))

    assert text is not None
    assert len(text) == MAX_REPLY_LENGTH
    assert text.endswith("x…")
    assert text_of("x" * MAX_REPLY_LENGTH) == "x" * MAX_REPLY_LENGTH


def test_characters_that_cannot_be_stored_are_removed() -> None:
    assert text_of("cut in the middle of \ud83d") == "cut in the middle of \ufffd"
    assert text_of("a\0b") == "ab"


def test_other_fields_of_a_reply_are_not_changed() -> None:
    content = Content(text=" Hello. ", thought="hm", actions=("REPLY",), source="test", metadata={"a": 1})
    found = filter_outgoing(content)

    assert found == Content(text="Hello.", thought="hm", actions=("REPLY",), source="test", metadata={"a": 1})


SECRETS = ("hunter22", "hunter22-longer", "22-other-secret")


@pytest.mark.parametrize(
    "text",
    [
        "it is hunter22 and hunter22-longer, and hunter2 is none",
        "hunter22-other-secret",
        "hunter22-long and more",
        "hunt<thought>er22</thought> is one too",
        "ends in 22-other-secre",
    ],
)
def test_a_draft_never_shows_part_of_a_secret(text: str) -> None:
    whole = text_of(text, *SECRETS) or ""
    for end in range(len(text) + 1):
        seen = filter_partial_text(text[:end], SECRETS)
        assert whole.startswith(seen)
        assert not any(secret in seen for secret in SECRETS)


def test_a_text_that_cannot_become_a_secret_is_not_delayed() -> None:
    assert filter_partial_text("Hello the", SECRETS) == "Hello the"
    assert filter_partial_text("Hello hunter2", SECRETS) == "Hello"
    assert filter_partial_text("Hello hunter2!", SECRETS) == "Hello hunter2!"


@pytest.mark.failure("F-18")
def test_a_draft_shows_a_link_only_when_complete() -> None:
    links, link = LinkPolicy(), "https://evil.test/?" + "d" * 80
    text = f"look: {link} there"
    seen = {filter_partial_text(text[:end], (), links) for end in range(len(text) + 1)}

    assert not any("https://" in item for item in seen)
    assert "look: hxxps://evil[.]test/?" + "d" * 80 in seen
    assert filter_partial_text("as on page 3.", (), links) == "as on page 3."


def test_an_incomplete_tag_is_not_shown_in_a_draft() -> None:
    assert filter_partial_text("a <b> c <thou") == "a <b> c"
    assert filter_partial_text("\u200b") == ""


@pytest.mark.parametrize(
    ("written", "expected"),
    [("<thi<think>a</think>nk>b</think>Hi", "Hi"), ("<<think>a</think>think>b</think>Hi", "Hi")],
)
def test_markup_that_a_removal_leaves_is_removed_too(written: str, expected: str) -> None:
    assert text_of(written) == expected


def test_markup_nested_without_end_is_removed_in_time() -> None:
    text = text_of("<thi" * 3000 + "<think>a</think>" + "nk>" * 3000 + " Hi")
    assert text is None or "<think>" not in text


def test_a_secret_in_two_messages_of_a_room_is_redacted_in_the_second() -> None:
    outgoing, room = OutgoingFilter(["hunter22-longer"]), derived_id("room")
    first, second = (outgoing.filter(Content(text=text), room)[0] for text in ("it is hunter22", "-longer, is it not"))
    assert first is not None
    assert second is not None
    assert (first.text, second.text) == ("it is hunter22", f"{REDACTED}, is it not")
    assert outgoing.filter_partial("-longer, is", room) == "-longer, is"  # the room was sent something else since
    elsewhere, _ = outgoing.filter(Content(text="-longer"), derived_id("another room"))
    assert elsewhere == Content(text="-longer")
