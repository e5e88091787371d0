"""Hostile texts are served as data and escaped in the log; tests/browser has what a browser makes of them."""

from itertools import product
from typing import Any

import pytest

from bot.text import strip_terminal_codes

SCRIPTS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<style>@import'//evil.example'</style>",
    "<base href=//evil.example/>",
    "<form action=//evil.example><button>",
    "<a href=javascript:alert(1)>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
)
ADDRESSES = (
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:x",
    "file:///etc/passwd",
    "//evil.example",
    'https://a.example/"onmouseover=alert(1)',
    "https://a.example/'><script>alert(1)</script>",
    "http://[::1",
    "https://",
    "https://javascript:alert(1)@a.example",
)
AROUND = ("{}", "`{}`", "```\n{}\n```", "```html\n{}", "[{}]({})", "![x]({})", "<{}>", "**{}**", "\u202e{}", "{}\0")
WORDS = [frame.replace("{}", text) for frame, text in product(AROUND, (*SCRIPTS, *ADDRESSES))]


@pytest.mark.failure("N-12")
async def test_names_and_messages_are_served_unchanged_as_json(web_server: Any) -> None:
    for words in SCRIPTS:
        answer = await web_server.request(
            "POST",
            "/api/agents/ada/messages",
            headers=web_server.bearer,
            json={"text": words, "user": words[:64], "room": words},
        )
        assert (await answer.json())["room"] == words
        path = f"/api/rooms/{(await answer.json())['room_id']}/messages"
        listed = await web_server.request("GET", path, headers=web_server.bearer)
        assert [message["text"] for message in (await listed.json())["messages"]] == [words, f"You said: {words}"]
        for served in (answer, listed):
            assert served.content_type == "application/json"
            assert served.headers["X-Content-Type-Options"] == "nosniff"
            assert "script-src 'self'" in served.headers["Content-Security-Policy"]


@pytest.mark.failure("N-12")
@pytest.mark.parametrize(
    "words",
    [
        "\x1b[31mred",
        "\x1b]0;title\x07",
        "\x1b]8;;http://evil.example\x1b\\link",
        "\x9b2J",
        "\x1bP1$r\x1b\\",
        "a\rb",
        "a\nERROR forged",
        "\u202eevil",
        "\x08\x08\x08ok",
    ],
)
def test_logged_text_cannot_control_the_terminal(words: str) -> None:
    shown = strip_terminal_codes(words)
    assert shown.isprintable()
    assert "\x1b" not in shown
