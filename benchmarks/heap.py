"""Measure the memory of the Console's pages in Chromium while events come: `python -m benchmarks.heap`.

An hour at a hundred events a second is 360,000 events; they come as fast as RATE says.
"""

import asyncio
import itertools
import logging
import os
import sys
import tempfile
from dataclasses import replace
from typing import Any

from playwright.async_api import async_playwright

from adapters.web.adapter import WebAdapter
from adapters.web.config import WebSettings
from benchmarks.doubles import DiscardingAdapter, StatelessModel
from bot import configure_logging, new_id
from bot.events import MessageClosed
from bot.testing import AgentHarness, running_agent
from tests.browser.conftest import FLAGS, find_browser

EVENTS, RATE = int(os.environ.get("EVENTS", "360000")), int(os.environ.get("RATE", "1000"))
LOOKS, SLICE_SECONDS = 12, 0.1
TOKEN = "a-token-for-the-benchmark"
PAGES = ("console", "console/logs")
logger = logging.getLogger("bot.heap")


async def measure_heap() -> None:
    """Print the heap of each page, after collecting garbage, at equal distances."""
    with tempfile.TemporaryFile() as nowhere, configure_logging(fd=nowhere.fileno()):
        async with (
            running_agent(model=StatelessModel(), adapter=DiscardingAdapter()) as harness,
            WebAdapter([harness.agent_runtime.handle], WebSettings.model_validate({"SERVER_PORT": "0"}), TOKEN) as web,
            async_playwright() as playwright,
        ):
            browser = await playwright.chromium.launch(executable_path=find_browser(), args=list(FLAGS))
            context = await browser.new_context()
            pages = [await _open_page(context, f"http://127.0.0.1:{web.port}/{path}") for path in PAGES]
            await harness.send("Hello")
            print("events", *PAGES, sep="\t")
            for look in range(LOOKS + 1):
                sizes = [f"{await _read_heap(context, page) / 1e6:.2f} MB" for page in pages]
                print(EVENTS * look // LOOKS, *sizes, sep="\t", flush=True)
                if look < LOOKS:
                    await _send_events(harness, EVENTS // LOOKS)
            lines = await pages[1].locator("main ol li, main ul li").count()
            print(f"the log shows {lines} lines")
            await browser.close()


async def _open_page(context: Any, url: str) -> Any:
    page = await context.new_page()
    await page.goto(url)
    token = page.get_by_label("Token")
    await token.or_(page.locator(".side")).first.wait_for()
    if await token.count():
        await token.fill(TOKEN)
        await page.keyboard.press("Enter")
    await page.locator(".side").wait_for(state="attached")
    return page


async def _read_heap(context: Any, page: Any) -> float:
    session = await context.new_cdp_session(page)
    await session.send("HeapProfiler.enable")
    await session.send("HeapProfiler.collectGarbage")
    usage = await session.send("Runtime.getHeapUsage")
    await session.detach()
    return float(usage["usedSize"])


async def _send_events(harness: AgentHarness, count: int) -> None:
    """Close messages and write log lines in turn, at the rate."""
    agent = harness.agent
    [receipt, *_] = await agent.store.ledger.receipts()
    clock = asyncio.get_running_loop().time
    started, numbers = clock(), itertools.count()
    while (number := next(numbers)) < count:
        closed = replace(receipt, id=new_id(), memory_id=new_id())
        agent.events.emit(MessageClosed(agent.id, closed))
        logger.info("message %d was answered in %d ms", number, number % 3000)
        if not number % max(1, int(RATE * SLICE_SECONDS)):
            await asyncio.sleep(max(0.0, started + number / RATE - clock()))
    await asyncio.sleep(2)


if __name__ == "__main__":
    sys.exit(asyncio.run(measure_heap()))
