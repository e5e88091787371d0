"""Replies as terminal text."""

import pytest

from adapters.console.adapter import format_reply, strip_terminal_codes
from bot import Attachment, Content, MediaKind


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;a title\x07after", "after"),
        ("\x1b]8;;http://evil.example\x1b\\link", "link"),
        ("bell\x07 and\x08 back", "bell and back"),
        ("over\rwritten", "over\nwritten"),
        ("c1 \x9b31m", "c1 31m"),
        ("turned \u202eround", "turned round"),
        ("lone \ud800 half", "lone  half"),
        ("family 👩‍👩‍👧", "family 👩‍👩‍👧"),
    ],
)
def test_control_codes_are_removed(text: str, expected: str) -> None:
    assert strip_terminal_codes(text) == expected


def test_attachments_follow_the_text() -> None:
    picture = Attachment("1", MediaKind.IMAGE, url="https://example.org/a.png", title="A cat")
    content = Content(text="Look:", attachments=(picture, Attachment("2", MediaKind.AUDIO)))
    assert format_reply(content) == "Look:\n[image: A cat] https://example.org/a.png\n[audio]"
