"""The chat page and the API speak the language that the browser asks for."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import ClientSession

from bot.user_texts import page_texts
from tests.adapters.web.conftest import SocketClient
from tests.adapters.web.test_json_io import PAGES, loaded_files

# As in lib.js: what a template itself contains.
STATIC_TEXT = re.compile(
    r'(^|>\s*|\s(?:alt|aria-label|hint|label|placeholder|small|text|title)=")([^<>"=]*[a-z][^<>"=]*?)(?="|\s*<|\s*$)'
)
CALL = re.compile(r'\bt\((?:[^()"]*\? )?"([^"]+)"(?: : "([^"]+)")?')
SAME_IN_ALL = {"Greenroom", "bot run", "data/server-token"}
LATER = (
    "chat/thread.js",
    "chat/message.js",
    "chat/room.js",
    "chat/attachments.js",
    "chat/commands.js",
    "chat/recorder.js",
)
SHARED = ("thread.js", "why.js", "waterfall.js", "markdown.js", "dialogs.js", "palette.js")


class Templates:
    """Finds the static parts of the `html` templates of a script, also of those within others."""

    def __init__(self, source: str) -> None:
        self._source = re.sub(r"^\s*(//|\*|/\*\*).*$", "", source, flags=re.MULTILINE)
        self.found: list[list[str]] = []
        position = 0
        while (start := self._source.find("html`", position)) >= 0:
            position = self._read_template(start + 5)

    def _read_template(self, position: int, *, is_html: bool = True) -> int:
        source, parts, begin = self._source, list[str](), position
        while source[position] != "`":
            if source.startswith("${", position):
                parts.append(source[begin:position])
                position = begin = self._read_expression(position + 2)
            else:
                position += 2 if source[position] == "\\" else 1
        if is_html:
            self.found.append([*parts, source[begin:position]])
        return position + 1

    def _read_expression(self, position: int) -> int:
        source, depth = self._source, 0
        while depth or source[position] != "}":
            char = source[position]
            if char in "\"'":
                position = source.index(char, position + 1) + 1
            elif char == "`":
                position = self._read_template(position + 1, is_html=source[position - 4 : position] == "html")
            else:
                depth += (char == "{") - (char == "}")
                position += 1
        return position + 1


def list_texts(source: str) -> Iterator[str]:
    """Yield the English texts of a script that people read."""
    for parts in Templates(source).found:
        for index, part in enumerate(parts):
            for before, text in STATIC_TEXT.findall(part):
                if before or not index:
                    yield " ".join(text.split())
    for texts in CALL.findall(source):
        yield from filter(None, texts)


@pytest.mark.parametrize("language", ["de", "es"])
def test_every_text_of_the_chat_and_sign_in_pages_is_translated(language: str) -> None:
    scripts = {path for name in ("index.html", "signin.html") for path in loaded_files(PAGES / name)}
    scripts |= {PAGES / "js" / name for name in (*LATER, *SHARED)}
    own = [path for path in scripts if path.suffix == ".js" and "vendor" not in path.parts and path.name != "theme.js"]
    texts = {text for path in own for text in list_texts(path.read_text(encoding="utf-8"))}
    assert len(texts) > 100
    assert sorted(texts - set(page_texts(language)) - SAME_IN_ALL) == []
    assert not any(re.search('["<>]', text) for text in page_texts(language).values())


async def test_the_pages_are_in_the_language_of_the_browser(web_server: Any) -> None:
    german = {"Accept-Language": "de-AT,de;q=0.9,en;q=0.5"}
    async with ClientSession(web_server.origin, headers=german) as session:
        async with session.get("/signin") as response:
            page = await response.text()
        assert '<html lang="de">' in page
        assert "<title>Anmelden · Greenroom</title>" in page
        assert "Diese Seite braucht JavaScript." in page
        async with session.get("/pages/texts/de.json") as response:
            assert (await response.json())["Send"] == "Senden"
        async with session.get("/console", headers=web_server.bearer) as response:
            assert '<html lang="en">' in await response.text()  # it has no translation


async def test_commands_and_their_answers_are_in_the_language_of_the_person(web_server: Any) -> None:
    greetings = {"de-DE": "Hallo, ich bin Ada.", "es-MX": "Hola, soy Ada.", "fr": "Hello, I am Ada."}
    for language, greeting in greetings.items():
        body = {"text": "/start", "user": language, "room": language}
        reply = await web_server.post("/api/agents/ada/messages", body, **{"Accept-Language": language})
        assert reply["replies"][0]["text"].startswith(greeting)


async def test_a_page_names_its_language_to_the_socket(web_server: Any) -> None:
    async with web_server.session.ws_connect(
        f"{web_server.origin}/api/ws?language=es", headers=web_server.bearer
    ) as ws:
        client = SocketClient(ws)
        await client.send(type="hello", agent="ada", room="lobby", user="Kim")
        await client.wait_for("ready")
        await client.send(type="command", text="/start", client_id="c1")
        assert (await client.wait_for("shown"))["text"].startswith("Hola, soy Ada.")
