"""Hostile texts are served as data, rendered as text, and escaped in the log."""

import asyncio
import json
import shutil
from collections.abc import Sequence
from itertools import product
from pathlib import Path
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
WORDS = [frame.replace("{}", one) for frame, one in product(AROUND, (*SCRIPTS, *ADDRESSES))]

# The parts of a browser's document that the page's modules use; the result is written as JSON.
DOCUMENT = """
class Node {
  constructor(tag) { this.tag = tag; this.nodes = []; this.dataset = {}; }
  append(...all) { this.nodes.push(...all.map((one) => (one instanceof Node ? one : String(one)))); }
  set textContent(text) { this.nodes = [String(text)]; }
}
globalThis.document = {
  createElement: (tag) => new Node(tag),
  createTextNode: (text) => String(text),
};
const { render, link } = await import(process.argv[1]);
let given = "";
for await (const chunk of process.stdin) given += chunk;
const shown = JSON.parse(given).map((words) => {
  const root = new Node("div");
  render(words, root);
  root.append(link(words, words));
  return root;
});
console.log(JSON.stringify(shown));
"""


def count_nodes(root: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [node for node in root["nodes"] if isinstance(node, dict)]
    return [root, *(depth_of_child for node in inner for depth_of_child in count_nodes(node))]


NEEDS_NODE = pytest.mark.skipif(shutil.which("node") is None, reason="there is no JavaScript here to run the page with")


async def render_in_page(pages: Path, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Render these texts with the page's module; return the nodes of each."""
    module = "data:text/javascript," + "".join(f"%{byte:02x}" for byte in (pages / "markup.js").read_bytes())
    node = await asyncio.create_subprocess_exec(
        *("node", "--input-type=module", "-e", DOCUMENT, module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(90):
            out, _ = await node.communicate(json.dumps(texts).encode())
    finally:
        if node.returncode is None:
            node.kill()
            await node.wait()
    output: list[dict[str, Any]] = json.loads(out)
    return output


@pytest.mark.failure("N-12")
@NEEDS_NODE
async def test_the_page_renders_hostile_text_as_text_and_links_only_to_http(pages: Path) -> None:
    shown = await render_in_page(pages, WORDS)
    assert len(shown) == len(WORDS) > 200
    for words, root in zip(WORDS, shown, strict=True):
        for one in count_nodes(root):
            assert one["tag"] in {"div", "a", "code", "pre"}, words
            assert set(one) <= {"tag", "nodes", "dataset", "href", "rel", "target", "tabIndex"}, words
            assert one.get("href", "https:").startswith(("https:", "http:")), words
            if one["tag"] == "a":
                assert (one["rel"], one["target"]) == ("noopener noreferrer nofollow", "_blank")


@pytest.mark.failure("N-12")
@NEEDS_NODE
async def test_a_very_long_url_does_not_block_the_page(pages: Path) -> None:
    tails = (")", ")]", ").", ".", "(", "[)", "~*")
    words = [f"https://a.example/{tail * (32_000 // len(tail))}" for tail in tails for _ in range(8)]
    words += [f"{one}x" for one in words]
    assert len(await render_in_page(pages, words)) == len(words)


@NEEDS_NODE
async def test_punctuation_after_a_url_is_not_part_of_it(pages: Path) -> None:
    links = {
        "https://a.example/x.": "https://a.example/x",
        "(https://a.example/x)": "https://a.example/x",
        "https://a.example/x_(y)": "https://a.example/x_(y)",
        "(https://a.example/x_(y)).": "https://a.example/x_(y)",
        "[https://a.example/x]?!": "https://a.example/x",
        "https://a.example/x)].)": "https://a.example/x",
        "https://a.example/x/": "https://a.example/x/",
    }
    for expected, root in zip(links.values(), await render_in_page(pages, list(links)), strict=True):
        assert next(one["nodes"] for one in count_nodes(root) if one["tag"] == "a") == [expected]


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
        assert [one["text"] for one in (await listed.json())["messages"]] == [words, f"You said: {words}"]
        for one in (answer, listed):
            assert one.content_type == "application/json"
            assert one.headers["X-Content-Type-Options"] == "nosniff"
            assert "script-src 'self'" in one.headers["Content-Security-Policy"]


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
