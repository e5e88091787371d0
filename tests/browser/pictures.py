"""Make the pictures of the README and of the documentation: `make pictures`."""

import asyncio
import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.browser.conftest import Browser, run_browser
from tests.browser.test_emulated import add, open_platform, open_room, run_platforms, wait_for_reply, write
from tests.browser.workshop import Workshop, run_workshop
from tests.plugins.links.test_search import results
from tests.plugins.links.web import serve_web

FOLDER = Path(__file__).parents[2] / "docs" / "images"
SIZE: dict[str, Any] = {"width": 1280, "height": 800}
QUESTION = "Can you make a plan for the next three weeks?"
EARLIER = ("Names for a mended teapot", "What does darning wool cost?", "A poem for the button box")
EMULATED = ("@Marlo hello, are you new here?", "@Marlo I found a box of old buttons today")
SMALL: dict[str, Any] = {"width": 900, "height": 640}
LINK, FEED = "http://news.example/bees", "http://news.example/rss"
CALLS: dict[str, dict[str, dict[str, str]]] = {  # by words of the prompt
    "remind me tomorrow": {"REMIND_ME": {"what": "the key of the workshop", "at": "tomorrow 09:00"}},
    "buy honey": {"WEB_SEARCH": {"query": "honey market hours"}},
}
TALKS = {  # who writes what in the group of a picture, and what is to be seen then
    "reminders": (
        ("Robin", "@marlo_bot remind me tomorrow at nine of the key of the workshop", "I will."),
        ("Robin", "/reminders", "1."),
    ),
    "feeds": (("Kim", f"/feed add {FEED} every 2h", "I follow"), ("Kim", "/feed list", "1. Town News")),
    "summary": (
        ("Ines", "who opens the workshop on Saturday?", "who opens"),
        ("Tom", "I do, the key is with me", "the key is"),
        ("Eve", "then I bring wool for all of us", "then I bring"),
        ("Robin", "/summary 2h", "Tom opens it"),
    ),
}
FACES = {
    "Ada": "The lamp is lit, and the tide turns at nine.",
    "Bruno": "I left it with the harbour master at noon. She has the key.",
    "Clara": "Two loaves are put aside for you. Bring a bag!",
}
ASKED = {"Bruno": "Bruno, where is my parcel?", "Clara": "Clara, is there bread left?", "Ada": "Ada, when is low tide?"}
MODEL_SECONDS = 1.2


async def make_pictures(workshop: Workshop, browser: Browser) -> None:
    """Write the pictures of Chat and Console, in WebP."""
    workshop.accounts["telegram"].status.connected()
    chat = await browser.enter("", **SIZE, color_scheme="light")
    for text in EARLIER:
        await chat.write(text)
        await chat.wait_for_text(f"You said: {text}")
        await chat.open("")
    workshop.script.seconds = MODEL_SECONDS
    await chat.write(QUESTION)
    await chat.page.locator(".msg.bot .codebox .hljs-keyword").first.wait_for()
    await chat.page.get_by_role("button", name="Why?").click()
    await chat.page.get_by_text("How it was decided").wait_for()
    await chat.page.locator(".log").evaluate("(node) => { node.scrollTop = 0; }")
    await save(chat, "chat.webp")
    console = await browser.enter("console", **SIZE, color_scheme="dark")
    await console.page.get_by_text("Messages and replies a minute").wait_for()
    await save(console, "console.webp")


async def make_emulated_picture(folder: Path) -> None:
    """Write the picture of a channel on the emulated Discord."""
    async with run_platforms(folder) as platforms:
        tab = await open_platform(platforms, "discord", **SIZE, color_scheme="light")
        await open_room(tab, "#general")
        await tab.page.get_by_label("Who writes").select_option(label="Robin")
        for text in EMULATED:
            await write(tab, text)
            await wait_for_reply(tab, "Answered: Marlo was mentioned")
        await save(tab, "emulated.webp")


async def answer(request: web.Request) -> web.Response:
    """Answer as a model that does what the pictures of docs/abilities.md show."""
    asked = str(await request.json())
    text = "<text>I would like to meet the keeper. Honey on Saturdays!</text>"
    if "numbered line below" in asked:
        text = (
            "1: Ines asked who opens the workshop on Saturday.\n2: Tom opens it and has the key.\n3: Eve brings wool."
        )
    elif "should say something now" in asked:
        text = "<reasoning>They talk with each other.</reasoning><action>IGNORE</action>"
    elif "REMIND_ME: ok" in asked:
        text = "<text>I will.</text>"
    elif "WEB_SEARCH: ok" in asked:
        text = "<text>In the market hall, on Saturdays between nine and noon [1].</text>"
    elif call := next((call for words, call in CALLS.items() if words in asked), None):
        [name] = call
        text = f"<text></text><actions>{name}</actions><parameters>{json.dumps(call)}</parameters>"
    content = f"<response>{text}</response>" if text.startswith("<") else text
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return web.json_response({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


async def show_page(request: web.Request) -> web.Response:
    """Serve the page of the picture, as plain text."""
    return web.Response(text="Mrs Miller, who keeps the bees of the old mill, sells honey on Saturdays.")


async def make_pictures_of_abilities(folder: Path) -> None:
    """Write the pictures of docs/abilities.md, with a model and sites on the loopback."""
    items = "".join(f"<item><title>Bees, part {number}</title></item>" for number in range(3))
    feed = f'<rss version="2.0"><channel><title>Town News</title>{items}</channel></rss>'
    async with serve_web() as found:
        found.pages |= {LINK: show_page, "/search": results(LINK), "/v1/chat/completions": answer}
        found.pages[FEED] = feed
        model = {"OPENAI_BASE_URL": f"{found.url}/v1", "OPENAI_SMALL_MODEL": "m", "OPENAI_LARGE_MODEL": "m"}
        search = {"WEB_SEARCH": "searxng", "WEB_SEARCH_URL": found.url, "LINKS": "20", "STREAMING": "false"}
        others = {"REMINDERS": "20", "FEEDS": "10", "TIMEZONE": "Europe/Berlin", "AI_NOTICE": "off"}
        proxy = {"HTTP_PROXY": found.url, "NO_PROXY": "127.0.0.1"}
        async with run_platforms(folder, **model, **search, **others, **proxy) as platforms:
            for name, text, shown in (
                ("links", f"@Marlo what do you think of {LINK} ?", "(read: news.example)"),
                ("search", "@Marlo when can I buy honey?", "[1] http"),
            ):
                tab = await open_platform(platforms, "discord", **SMALL, color_scheme="light")
                await open_room(tab, "#general")
                await tab.page.get_by_label("Who writes").select_option(label="Robin")
                await write(tab, text)
                await tab.page.locator(".msg .body", has_text=shown).last.wait_for()
                await save(tab, f"{name}.webp")
            await make_pictures_of_commands(platforms)


async def make_pictures_of_commands(platforms: Any) -> None:
    """Write the pictures of reminders, feeds and summaries: on Telegram, where a command is a message."""
    tab = await open_platform(platforms, "telegram", **SMALL, color_scheme="light")
    people = tab.page.get_by_label("Who writes")
    for name, texts in TALKS.items():
        await add(tab, "Group", name.capitalize())
        await tab.page.get_by_role("heading", level=1, name=name.capitalize()).wait_for()
        for person, text, shown in texts:
            if person not in await people.locator("option").all_inner_texts():
                await add(tab, "Person", person)
                await open_room(tab, name.capitalize())
            await people.select_option(label=person)
            await write(tab, text)
            await tab.page.locator(".msg .body", has_text=shown).last.wait_for()
        await save(tab, f"{name}.webp")


async def make_faces_picture(folder: Path) -> None:
    """Write the picture of docs/faces.md: three characters on one account of the emulated Discord."""

    async def answer(request: web.Request) -> web.Response:
        asked = await request.json()
        name = next((name for name in FACES if f"You are {name}," in asked["messages"][0]["content"]), "")
        message = {"role": "assistant", "content": f"<response><text>{FACES.get(name, '')}</text></response>"}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        return web.json_response({**body, "choices": [{"index": 0, "message": message}]})

    async with serve_web() as found:
        found.pages["/v1/chat/completions"] = answer
        model = {"OPENAI_BASE_URL": f"{found.url}/v1", "OPENAI_SMALL_MODEL": "m", "OPENAI_LARGE_MODEL": "m"}
        variables = {**model, "STREAMING": "false", "AI_NOTICE": "off", "DISCORD_FACES": "webhook"}
        async with run_platforms(folder, names=tuple(FACES), **variables) as platforms:
            tab = await open_platform(platforms, "discord", width=1000, height=1300, color_scheme="light")
            await open_room(tab, "#general")
            for name in tuple(FACES)[1:]:
                await write(tab, f"/cast add {name}")
                await tab.page.get_by_text(f", {name}.").wait_for()
            await tab.page.get_by_label("Who writes").select_option(label="Robin")
            for name, text in ASKED.items():
                await write(tab, text)
                await wait_for_reply(tab, f"Answered: {name} was mentioned")
            await save(tab, "faces.webp")


async def save(tab: Any, name: str) -> None:
    """Save what a tab shows."""
    await tab.page.mouse.move(0, 0)
    session = await tab.page.context.new_cdp_session(tab.page)
    shot = await session.send("Page.captureScreenshot", {"format": "webp", "quality": 85})
    path = FOLDER / name
    await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))
    sys.stdout.write(f"{path.relative_to(FOLDER.parents[1])}: {path.stat().st_size // 1024} KB\n")


async def main() -> None:
    """Run the bot and the browser, and make the pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        async with run_workshop(Path(folder)) as workshop, run_browser(workshop.server) as browser:
            await make_pictures(workshop, browser)
        await make_emulated_picture(Path(folder))
        await make_pictures_of_abilities(Path(folder))
        await make_faces_picture(Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
