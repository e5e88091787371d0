"""A thousand hostile texts on every page: as names, titles, messages, files, documents, tasks and log lines."""

import json
import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from playwright.async_api import TimeoutError

from bot import (
    Attachment,
    Component,
    Content,
    MediaKind,
    Memory,
    MemoryKind,
    Outcome,
    Plugin,
    Relationship,
    Task,
    Turn,
    action,
    derived_id,
    system_clock,
)
from bot.platform import DeliveryState, DisconnectCause
from bot.prompts import Authority
from bot.store import CostEntry
from tests.adapters.web.test_websocket import WORDS
from tests.browser.workshop import Workshop, compose

pytestmark = [pytest.mark.long, pytest.mark.failure("N-12"), pytest.mark.timeout(900)]
PAYLOADS = json.loads((Path(__file__).parents[1] / "data" / "script_payloads.json").read_text())["payloads"]
TEXTS = [text for text in dict.fromkeys((*PAYLOADS, *WORDS)) if text.strip()]
IN_CHAT = 25  # messages of one conversation
PICTURE = b"""<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(2)</script>
<foreignObject><body xmlns="http://www.w3.org/1999/xhtml" onload="alert(3)"/></foreignObject></svg>"""
# Reports every way in which a text could show that it runs.
RECORD = """() => {
  const report = (what) => console.error(`a script ran: ${what}`);
  for (const name of ["alert", "confirm", "prompt", "print", "open"]) {
    window[name] = () => report(name);
  }
  Function.prototype.constructor = new Proxy(Function, {
    apply: () => report("Function"), construct: () => (report("Function"), {}) });
}"""
# What is in the document that could do something, whether or not it has.
FIND_ACTIVE = """() => [...document.querySelectorAll("*")].flatMap((node) => {
  const isAddress = /^(href|src|action|formaction|data|xlink:href|poster|ping|srcset)$/;
  const isSafe = /^(https?:|mailto:|[./#]|$)/;
  const isOwn = ["link", "script", "base"].includes(node.localName);
  const found = [...node.attributes].filter(({ name, value }) => name.startsWith("on") || name === "srcdoc"
    || (name === "style" && node.id !== "say") || (isAddress.test(name) && !isSafe.test(value) && !isOwn));
  const foreign = ["iframe", "frame", "object", "embed", "applet", "portal", "meta", "base", "style", "math"];
  const isForeign = foreign.includes(node.localName) && !node.closest("head");
  const isScript = node.localName === "script" && !(node.getAttribute("src") ?? "").startsWith("pages/");
  return found.length || isForeign || isScript ? [node.outerHTML.slice(0, 200)] : [];
})"""


def say(text: str) -> str:
    """Return an answer of the model that is the text itself, as thought and as reply."""
    return f"<response><thought>{escape(text)}</thought><actions>REPLY</actions><text>{escape(text)}</text></response>"


def on_a_line(text: str, length: int) -> str:
    """Return a text without what the API refuses in a name."""
    return "".join(sign for sign in text if sign.isprintable())[:length] or "nameless"


async def store_hostile(workshop: Workshop) -> None:
    """Use each text once as everything that a person, a model or a file can name."""
    workshop.script.say = say
    store, server, now = workshop.store, workshop.server, system_clock()
    eve, room = workshop.person("Eve"), workshop.room()
    [handle] = server.runtime.handles
    for number, text in enumerate(TEXTS):
        author, name, title = TEXTS[number - 1], TEXTS[number - 2], TEXTS[number - 3]
        place = ("telegram", name, name) if number % 5 == 0 else ("telegram", "hostile", "one room")
        message = compose(text, author, place, f"hostile-{number}")
        files = (Attachment("1", MediaKind.LINK, url="https://a.example/", name=title, title=title, text=text),)
        content = Content(text, source="telegram", attachments=files if number % 7 == 0 else ())
        message = replace(message, message=replace(message.message, content=content))
        if number % 17:  # stored as closed; every 17th is answered and its parts fail
            [event] = await store.ledger.receive([message], now)
            await store.ledger.save_receipts(
                [replace(event.receipt, outcome=Outcome.IGNORED, reason=text, rule="IGNORE", notes=(text,))]
            )
            continue
        receipt = await handle.wait_outcome((await handle.submit(message)).id)
        for part in await store.ledger.deliveries(turn_id=receipt.turn_id) if receipt.turn_id else ():
            await store.ledger.save_delivery(replace(part, state=DeliveryState.FAILED, cause=text))
    for number in range(0, len(TEXTS), IN_CHAT):
        identity, _ = await workshop.converse(*TEXTS[number : number + IN_CHAT])
        workshop.receipts[f"chat {number // IN_CHAT}"] = identity
    where = {"entity_id": eve, "room_id": room, "world_id": derived_id("discord", "Mending circle")}
    await store.memories.add(
        [
            Memory(derived_id("hostile", text), MemoryKind.FACT, content=Content(text), created_at=now, **where)
            for text in TEXTS
        ]
    )
    contact = {f"{number} {text}"[:60]: text for number, text in enumerate(TEXTS[:200])}
    await store.entities.save_component(Component(derived_id("hostile"), eve, "contact", contact, source_entity_id=eve))
    for text in TEXTS[:10]:
        await store.entities.save_relationship(Relationship(eve, derived_id("telegram", text), (text,), 3))
    for text in TEXTS[:150]:
        await store.tasks.save_task(Task(derived_id("hostile", text), "CHORE", now.replace(year=2099), text[:200]))
    days = [CostEntry(now.date(), text[:200], room, eve, 1, 10, 0, 1, 0.01, purpose=text[:60]) for text in TEXTS[:200]]
    await store.costs.add(days)
    for number, text in enumerate(TEXTS[:80]):
        document = {"name": on_a_line(f"{number} {text}", 200), "text": text}
        answer = await server.request("POST", "/plugins/knowledge/documents", headers=server.bearer, json=document)
        assert answer.status in {201, 422}, await answer.text()
    workshop.accounts["discord"].status.failed(DisconnectCause.REFUSED, TEXTS[0])
    workshop.script.say = None


@pytest.fixture(scope="module")
async def hostile(workshop: Workshop) -> Workshop:
    await store_hostile(workshop)
    return workshop


async def check(tab: Any, path: str, *, more: int = 0) -> None:
    """Open a page, show all of its list, and look for what could run."""
    await tab.open(path)
    await tab.page.evaluate(RECORD)
    await tab.page.locator("main h1, main h2").first.wait_for(state="attached")
    await tab.page.wait_for_load_state("networkidle")
    for _ in range(more):
        button = tab.page.get_by_role("button", name="Show more").or_(tab.page.get_by_role("button", name="Show older"))
        if not await button.count():
            break
        with suppress(TimeoutError):  # the last page of the list may have come meanwhile, and the button gone
            await button.first.click(timeout=5000)
        await tab.page.wait_for_load_state("networkidle")
    await tab.page.evaluate("() => document.querySelectorAll('main details').forEach((node) => { node.open = true; })")
    assert await tab.page.evaluate(FIND_ACTIVE) == [], path


async def test_there_are_enough_texts() -> None:
    assert len(TEXTS) > 1000
    assert len(set(PAYLOADS)) >= 500


async def test_nothing_runs_on_any_page_of_the_console(hostile: Workshop, visitor: Any) -> None:
    tab = await visitor.enter("console", width=1440)
    tab.page.on("dialog", lambda dialog: tab.faults.append(f"a dialog: {dialog.message}"))
    tab.page.on("popup", lambda popup: tab.faults.append(f"a window: {popup.url}"))
    await check(tab, "console")
    room = derived_id("telegram", "hostile", "one room")
    receipts = (await hostile.server.get("/api/receipts?limit=200"))["receipts"]
    await check(tab, "console/rooms", more=5)
    await check(tab, f"console/rooms/{room}", more=20)
    await check(tab, "console/deliveries", more=5)
    await check(tab, "console/costs")
    await check(tab, "console/people", more=25)
    await check(tab, f"console/people/{hostile.person('Eve')}", more=25)
    await check(tab, "console/knowledge?q=script")
    await check(tab, "console/tasks", more=5)
    for page in ("plugins", "settings", "doctor"):
        await check(tab, f"console/{page}")
    for receipt in receipts[::8]:
        await check(tab, f"console/receipts/{receipt['id']}")
        if await (button := tab.page.get_by_role("button", name="Show the prompt")).count():
            await button.click()
            await tab.page.locator(".sections").first.wait_for()
            assert await tab.page.evaluate(FIND_ACTIVE) == []


async def test_nothing_runs_on_the_page_of_the_log_while_it_is_written(hostile: Workshop, visitor: Any) -> None:
    tab = await visitor.enter("console/logs?level=WARNING")
    await tab.page.evaluate(RECORD)
    await tab.page.get_by_role("log").wait_for()
    for text in TEXTS:
        logging.getLogger("hostile").warning("%s", text)
    logging.getLogger("hostile").warning("the last line")
    await tab.wait_for_text("the last line")
    assert await tab.page.evaluate(FIND_ACTIVE) == []


async def test_nothing_runs_in_the_search_of_everything(hostile: Workshop, visitor: Any) -> None:
    tab = await visitor.enter("console/tasks")
    await tab.page.evaluate(RECORD)
    await tab.page.get_by_text("Order more thread").wait_for()
    await tab.page.keyboard.press("Control+k")
    for word in ("script", "onerror", "alert", "javascript", "svg"):
        await tab.page.get_by_role("combobox", name="Search a page").fill(word)
        await tab.page.get_by_role("option").nth(3).wait_for()
        assert await tab.page.evaluate(FIND_ACTIVE) == []


async def test_nothing_runs_in_any_conversation(hostile: Workshop, visitor: Any) -> None:
    tab = await visitor.enter("")
    for number in range(len(TEXTS) // IN_CHAT):
        await tab.open(f"c/{hostile.receipts[f'chat {number}']}")
        await tab.page.evaluate(RECORD)
        await tab.page.locator(".msg").nth(2 * IN_CHAT - 8).wait_for(state="attached")
        assert await tab.page.evaluate(FIND_ACTIVE) == [], number
    await tab.page.get_by_role("button", name="Why?").last.click()
    await tab.page.get_by_text("How it was decided").wait_for()
    assert await tab.page.evaluate(FIND_ACTIVE) == []


@action("SHOW", "Show a picture.", authority=Authority.harmless("a test"))
async def show(turn: Turn) -> None:
    files = [
        Attachment(str(number), MediaKind.IMAGE, content_type="image/svg+xml", name=on_a_line(name, 60), data=PICTURE)
        for number, name in enumerate(PAYLOADS[:8])
    ]
    await turn.reply(Content("Here.", attachments=tuple(files)))


async def test_a_picture_with_scripts_shows_and_runs_nothing(open_browser: Any) -> None:
    async with open_browser(Plugin("gallery", actions=[show])) as browser:
        browser.server.script.action = "SHOW"
        tab = await browser.sign_in()
        await tab.page.evaluate(RECORD)
        await tab.write("show")
        await tab.wait_for_text("Here.")
        files = tab.page.locator(".msg.bot .files > *")
        await files.nth(7).wait_for()
        assert await tab.page.evaluate(FIND_ACTIVE) == []
