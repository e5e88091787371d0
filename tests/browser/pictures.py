"""Make the pictures of the README and of the documentation: `make pictures`."""

import asyncio
import base64
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.browser.conftest import Browser, run_browser
from tests.browser.test_emulated import open_platform, open_room, run_platforms, wait_for_reply, write
from tests.browser.workshop import Workshop, run_workshop

FOLDER = Path(__file__).parents[2] / "docs" / "images"
SIZE: dict[str, Any] = {"width": 1280, "height": 800}
QUESTION = "Can you make a plan for the next three weeks?"
EARLIER = ("Names for a mended teapot", "What does darning wool cost?", "A poem for the button box")
EMULATED = ("@Marlo hello, are you new here?", "@Marlo I found a box of old buttons today")
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
            await wait_for_reply(tab, "Answered: {name} was mentioned")
        await save(tab, "emulated.webp")


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


if __name__ == "__main__":
    asyncio.run(main())
