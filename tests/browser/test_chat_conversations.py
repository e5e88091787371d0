"""Journeys through conversations of the chat: the list, two tabs, older messages, answers, a killed server."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bot import system_clock
from bot.platform import AccessTokens, TokenScope
from tests.adapters.web.conftest import TOKEN
from tests.adapters.web.test_agents import PICTURE
from tests.browser.conftest import run_browser
from tests.browser.scrolling import check_following
from tests.ports import free_port

pytestmark = pytest.mark.long
ID = re.compile(r"/c/[0-9a-f]{8}-")
# A server that can be killed: its conversations are in a database, and a "story" ends only after the first start.
SERVER = """
from bot.prompts.reply_parser import reader
import asyncio, sys
import tests.adapters.web.conftest as web
from plugins.sql import plugin as sql

reader.HOLD_BACK = 0  # the story is short

class Model(web.EchoModel):
    def __init__(self):
        super().__init__()
        if sys.argv[3] == "again":
            self.released.set()

web.EchoModel = Model

async def main():
    settings = {"SERVER_PORT": sys.argv[1], "DATABASE_URL": sys.argv[2]}
    async with web.run_server(sql, names=("Marlo",), settings=settings):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def begin(tab: Any, text: str) -> str:
    """Begin a conversation and wait for the answer; return its address."""
    await tab.page.get_by_role("link", name="New conversation").click()
    await tab.page.get_by_role("heading", name="New conversation").wait_for()
    await tab.write(text)
    await see(tab, f"You said: {text}")
    await tab.page.wait_for_url(ID)
    return str(tab.page.url)


async def see(tab: Any, text: str) -> Any:
    """Wait for a text in the thread."""
    found = tab.page.locator(".log").get_by_text(text).last
    await found.wait_for()
    return found


async def titles(tab: Any) -> list[str]:
    return [str(text) for text in await tab.page.locator(".side .list .item").all_inner_texts()]


async def wait_for_titles(tab: Any, *expected: str) -> None:
    async with asyncio.timeout(30):
        while await titles(tab) != list(expected):
            await tab.page.locator(".side .list").wait_for()


async def test_conversations_are_searched_renamed_and_deleted_and_two_tabs_agree(browser: Any) -> None:
    first = await browser.sign_in()
    await begin(first, "Mending a kettle")
    boats = await begin(first, "Names for a boat")
    second = await browser.open_tab(context=first.page.context)
    await second.open(boats.removeprefix(f"{browser.server.origin}/"))
    await see(second, "You said: Names for a boat")
    await wait_for_titles(second, "Names for a boat", "Mending a kettle")
    assert await second.page.locator(".side h2").all_inner_texts() == ["Today"]

    await first.page.get_by_role("searchbox", name="Search conversations").fill("KETTLE")
    await wait_for_titles(first, "Mending a kettle")
    await first.page.get_by_role("searchbox", name="Search conversations").fill("zeppelin")
    await first.page.get_by_text("Nothing matches").wait_for()
    await first.page.get_by_role("button", name="Clear the search").click()
    await wait_for_titles(first, "Names for a boat", "Mending a kettle")

    await first.page.get_by_role("button", name="Rename").click()
    await first.page.get_by_label("Title of the conversation").fill("not this")
    await first.page.keyboard.press("Escape")
    assert await first.page.get_by_role("heading", level=1).inner_text() == "Names for a boat"
    await first.page.get_by_role("button", name="Rename").click()
    await first.page.get_by_label("Title of the conversation").fill("Boats")
    await first.page.keyboard.press("Enter")
    for tab in (first, second):
        await wait_for_titles(tab, "Boats", "Mending a kettle")
        await tab.page.get_by_role("heading", level=1, name="Boats").wait_for()
    assert await first.page.evaluate("document.activeElement.id") == "rename"

    await second.page.get_by_role("link", name="Mending a kettle").click()
    await second.write("and another")
    await wait_for_titles(first, "Mending a kettle", "Boats")
    await second.page.go_back()

    await first.page.get_by_role("button", name="More").click()
    await first.page.get_by_role("menuitem", name="Delete the conversation").click()
    dialog = first.page.get_by_role("dialog", name="Delete “Boats”?")
    assert await dialog.get_by_role("button", name="Cancel").evaluate("node => node === document.activeElement")
    await dialog.get_by_role("button", name="Cancel").click()
    assert first.page.url == boats
    await first.page.get_by_role("button", name="More").click()
    await first.page.get_by_role("menuitem", name="Delete the conversation").click()
    await dialog.get_by_role("button", name="Delete").click()
    for tab in (first, second):
        await wait_for_titles(tab, "Mending a kettle")
        await tab.page.get_by_role("heading", name="New conversation").wait_for()
    await first.open(boats.removeprefix(f"{browser.server.origin}/"))
    await first.page.get_by_role("heading", name="There is no such conversation").wait_for()
    first.faults.clear()  # Chromium reports the answer 404


async def test_every_conversation_has_an_address_and_a_draft_and_back_leads_to_the_previous_conversation(
    browser: Any,
) -> None:
    tab = await browser.sign_in()
    first = await begin(tab, "one")
    field = tab.page.get_by_role("textbox", name="Message to")
    await field.fill("a draft of one")
    second = await begin(tab, "two")
    await field.fill("a draft of two")
    await tab.page.go_back()
    await tab.page.get_by_role("heading", name="New conversation").wait_for()
    await tab.page.go_back()
    await see(tab, "You said: one")
    assert (tab.page.url, await field.input_value()) == (first, "a draft of one")
    await tab.page.get_by_role("link", name="two").click()
    await see(tab, "You said: two")
    assert (tab.page.url, await field.input_value()) == (second, "a draft of two")
    await tab.page.reload()
    await see(tab, "You said: two")
    assert await field.input_value() == "a draft of two"


async def test_titles_that_this_browser_kept_are_moved_to_the_server(browser: Any) -> None:
    server = browser.server
    client = await server.open_socket(room="chat-old")
    await client.send_message("hello", "1")
    agent = client.ready["agent"]["id"]
    tab = await browser.sign_in()
    await wait_for_titles(tab, "chat-old")
    stored = f'{{"{agent}/chat-old": {{"title": "An old talk"}}}}'
    await tab.page.evaluate("(text) => localStorage.setItem('greenroom.conversations', text)", stored)
    await tab.page.reload()
    await wait_for_titles(tab, "An old talk")
    assert await tab.page.evaluate("localStorage.getItem('greenroom.conversations')") is None
    await tab.open("c/chat-old")  # an address from before
    await see(tab, "You said: hello")
    await tab.page.get_by_role("heading", level=1, name="An old talk").wait_for()
    assert ID.search(tab.page.url)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an unclosed connection of the test
async def test_older_messages_are_loaded_without_moving_what_is_read(browser: Any) -> None:
    client = await browser.server.open_socket(room="c-long")
    for number in range(70):
        await client.send_message(f"number {number:03}", str(number))
    tab = await browser.sign_in()
    await tab.page.get_by_role("link", name="number 000").click()
    await see(tab, "You said: number 069")
    await check_following(tab)
    log, messages = tab.page.locator(".log"), tab.page.locator(".msg")
    assert await messages.count() == 50
    await log.evaluate("node => node.scrollTop = 400")
    top = """() => { const seen = [...document.querySelectorAll(".msg")]; const log = document.querySelector(".log");
      window.seen ??= seen.find((node) => node.getBoundingClientRect().bottom > log.getBoundingClientRect().top);
      return window.seen.getBoundingClientRect().top; }"""
    before = await tab.page.evaluate(top)
    await messages.nth(139).wait_for(state="attached")
    assert abs(await tab.page.evaluate(top) - before) < 2
    await log.evaluate("node => node.scrollTop = 0")
    await see(tab, "You said: number 000")
    assert await messages.count() == 140
    assert await tab.page.locator(".older").count() == 0
    await client.send_message("one more", "more")
    await tab.page.get_by_role("button", name="2 new messages").click()
    await see(tab, "You said: one more")
    assert await log.evaluate("node => node.scrollHeight - node.scrollTop - node.clientHeight") < 2
    await tab.page.keyboard.press("Alt+ArrowUp")
    assert "You said: one more" in await tab.page.evaluate("document.activeElement.innerText")
    await tab.page.keyboard.press("Alt+ArrowUp")
    assert "one more" in await tab.page.evaluate("document.activeElement.innerText")
    for _ in range(2):
        await tab.page.keyboard.press("Alt+ArrowDown")
    assert await tab.page.evaluate("document.activeElement.id") == "say"


async def test_a_new_answer_is_written_in_the_place_of_the_old_answer(browser: Any) -> None:
    script = browser.server.script
    tab = await browser.sign_in()
    page = tab.page
    await tab.write("tell a story")
    await see(tab, "Once upon")
    await page.get_by_role("button", name="Stop").click()
    await see(tab, "Stopped by you; the reply is incomplete")
    await page.get_by_role("button", name="Regenerate").click()
    await page.locator(".msg.streaming").wait_for()
    assert await page.locator(".msg.bot").count() == 1
    await page.get_by_role("button", name="Stop").wait_for()
    script.released.set()
    await see(tab, "2 of 2")
    await page.get_by_role("button", name="Earlier version").click()
    await see(tab, "1 of 2")
    await page.get_by_role("button", name="Edit and resend").click()
    await page.get_by_label("Edit the message").fill("be silence itself")
    await page.get_by_role("button", name="Send", exact=True).first.click()
    await see(tab, "edited")
    second = await browser.open_tab(context=page.context)
    await second.open(page.url.removeprefix(f"{browser.server.origin}/"))
    await see(second, "be silence itself")


async def test_a_message_without_an_answer_has_the_same_why(browser: Any) -> None:
    tab = await browser.sign_in()
    await tab.write("silence please")
    await see(tab, "Stayed silent: Marlo chose not to answer")
    await tab.page.get_by_role("button", name="Why?").click()
    drawer = tab.page.get_by_role("dialog", name="Why?")
    await drawer.get_by_text("Stayed silent: Marlo chose not to answer").wait_for()
    await tab.page.reload()
    await drawer.get_by_text("How it was decided").wait_for()
    await see(tab, "Stayed silent: Marlo chose not to answer")


async def test_a_busy_model_is_counted_down_in_place(open_browser: Any) -> None:
    async with open_browser() as browser:
        browser.server.script.retry_after = 3
        tab = await browser.sign_in()
        await tab.page.evaluate(
            """() => { window.counted = []; const look = () => {
            const text = document.querySelector(".typing")?.textContent ?? "";
            const seconds = /The model is busy, trying again in (\\d+) s/.exec(text)?.[1];
            if (seconds && seconds !== window.counted.at(-1)) window.counted.push(seconds); };
            new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
            }"""
        )
        await tab.write("overload")
        await see(tab, "You said: overload")
        counted = [int(seconds) for seconds in await tab.page.evaluate("window.counted")]
        assert counted == sorted(counted, reverse=True)
        assert len(counted) >= 2
        assert await tab.page.locator(".typing").count() == 0


async def test_several_characters_have_their_own_conversations_and_faces(open_browser: Any, tmp_path: Path) -> None:
    (tmp_path / "face.png").write_bytes(PICTURE)
    character = {"picture": "face.png", "suggestions": ["What is new?"]}
    async with open_browser(names=("Marlo", "Ines"), character=character, folder=tmp_path) as browser:
        tab = await browser.sign_in()
        face = tab.page.locator(".hello img.face")
        assert await face.evaluate("node => node.decode().then(() => node.naturalWidth)") == 1
        await tab.page.get_by_text("Marlo listens.").wait_for()
        await tab.page.get_by_role("button", name="What is new?").click()
        await see(tab, "You said: What is new?")
        await tab.page.wait_for_url(ID)
        address = tab.page.url
        await tab.page.get_by_role("button", name="Character: Marlo").click()
        await tab.page.get_by_role("menuitemradio", name="Ines").click()
        await tab.page.get_by_text("Ines listens.").wait_for()
        await tab.page.get_by_text("No conversations yet").wait_for()
        await tab.write("good day")
        await see(tab, "You said: good day")
        await tab.page.reload()
        await see(tab, "You said: good day")
        await tab.open(address.removeprefix(f"{browser.server.origin}/"))
        await see(tab, "You said: What is new?")
        await tab.page.get_by_role("button", name="Character: Marlo").wait_for()
        await wait_for_titles(tab, "What is new?")


async def test_a_chat_token_has_its_conversations_with_their_receipts(open_browser: Any, tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    secrets = {
        scope: tokens.create(name, scope, system_clock())[1]
        for scope, name in ((TokenScope.CHAT, "eve"), (TokenScope.READ_ONLY, "viewer"))
    }
    async with open_browser(access_tokens=tokens) as browser:
        operator = await browser.sign_in()
        secret = await begin(operator, "the operator's")
        eve = await browser.enter(token=secrets[TokenScope.CHAT])
        await eve.page.get_by_text("Connected · eve").wait_for()
        await eve.page.get_by_text("No conversations yet").wait_for()
        await eve.write("mine")
        await see(eve, "You said: mine")
        await wait_for_titles(eve, "mine")
        await eve.page.reload()
        await see(eve, "You said: mine")
        await eve.page.get_by_role("button", name="Why?").click()
        drawer = eve.page.get_by_role("dialog", name="Why?")
        await drawer.get_by_text("How it was decided").wait_for()
        assert await drawer.get_by_text("The prompt as it was sent").count() == 0
        assert await titles(operator) == ["the operator's"]
        await eve.open(secret.removeprefix(f"{browser.server.origin}/"))
        await eve.page.get_by_role("heading", name="There is no such conversation").wait_for()
        eve.faults.clear()  # Chromium reports the answer 404
        viewer = await browser.enter(token=secrets[TokenScope.READ_ONLY])
        await viewer.page.get_by_role("link", name="the operator's").click()
        await see(viewer, "You said: the operator's")
        for name in ("Rename", "More", "Regenerate", "Edit and resend", "Send"):
            assert await viewer.page.get_by_role("button", name=name, exact=True).count() == 0


@asynccontextmanager
async def run_process(port: int, folder: Path, start: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a server of its own, killed at the end of the block."""
    database = f"sqlite:///{folder / 'bot.db'}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER, str(port), database, start),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_killed_server_loses_nothing_that_was_written(tmp_path: Path) -> None:
    port = free_port()
    server: Any = SimpleNamespace(origin=f"http://127.0.0.1:{port}")
    async with run_process(port, tmp_path, "first") as process, run_browser(server) as browser:
        tab = await browser.enter(token=TOKEN)
        await begin(tab, "hello")
        await tab.write("tell a story")
        await see(tab, "Once upon")
        field = tab.page.get_by_role("textbox", name="Message to")
        await field.fill("being typed")
        tab.may_lose_connection = True
        process.kill()
        await process.wait()
        await see(tab, "Interrupted; waits for the connection")
        await field.press_sequentially(" meanwhile")
        await field.press("Enter")
        await see(tab, "Waits for the connection")
        await tab.page.get_by_role("button", name="Edit and resend").first.click()
        await tab.page.get_by_label("Edit the message").fill("hello again")
        await tab.page.get_by_role("button", name="Send", exact=True).first.click()
        await tab.page.get_by_text("There is no connection").wait_for()
        assert await tab.page.get_by_label("Edit the message").input_value() == "hello again"
        await field.fill("a draft")
        async with run_process(port, tmp_path, "again"):
            await tab.page.evaluate(
                "import(new URL('pages/js/stream.js', document.baseURI)).then((m) => m.stream.retry())"
            )
            await see(tab, "Once upon a time.")
            await see(tab, "You said: being typed meanwhile")
            assert await tab.page.locator(".msg.bot", has_text="Once upon").count() == 1
            assert await tab.page.locator(".msg.me", has_text="being typed meanwhile").count() == 1
            assert await field.input_value() == "a draft"
            await tab.page.get_by_role("button", name="Send", exact=True).first.click()
            await see(tab, "You said: hello again")


async def test_a_conversation_that_begins_without_a_connection_is_sent_when_it_is_back(browser: Any) -> None:
    tab = await browser.sign_in()
    await tab.page.wait_for_load_state("networkidle")  # the thread is loaded soon after the page
    tab.may_lose_connection = True
    await tab.page.context.set_offline(True)
    await tab.page.evaluate("import(new URL('pages/js/stream.js', document.baseURI)).then((m) => m.stream.lost())")
    await tab.write("first words")
    await see(tab, "Waits for the connection")
    await wait_for_titles(tab, "first words")
    await tab.page.context.set_offline(False)
    await see(tab, "You said: first words")
    await tab.page.wait_for_url(ID)
    await wait_for_titles(tab, "first words")
