"""What every thread of messages keeps to: Chat, the page of an emulated platform, a room of the Console."""

import asyncio
from typing import Any

IS_AT_END = """(() => { const log = document.querySelector(".log");
  return log.scrollHeight > log.clientHeight && log.scrollHeight - log.scrollTop - log.clientHeight < 2; })()"""
# The browser reports a scroll only with its next frame, when the content may have grown already.
GROW = """(() => { const log = document.querySelector(".log");
  log.scrollTop -= 30; log.scrollTop = log.scrollHeight;
  document.querySelector(".log .msg:last-child").style.paddingBottom = "300px"; })()"""
NEXT_FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
SHRINK = """document.querySelector(".log .msg[style]").style.paddingBottom = "" """


async def wait_for_end(tab: Any) -> None:
    """Wait until the thread, which must be longer than its box, is at its end."""
    async with asyncio.timeout(30):
        while not await tab.page.evaluate(IS_AT_END):
            await tab.page.evaluate(NEXT_FRAME)


async def check_following(tab: Any) -> None:
    """Check that a thread stays at its end while it grows and shrinks."""
    await wait_for_end(tab)
    for change in (GROW, SHRINK, GROW):
        await tab.page.evaluate(change)
        await tab.page.evaluate(NEXT_FRAME)
        assert await tab.page.evaluate(IS_AT_END), change
    await tab.page.evaluate(SHRINK)


async def scroll_up(tab: Any) -> None:
    """Scroll to the beginning as a person does."""
    log = tab.page.locator(".log")
    await log.evaluate("node => { node.scrollTop = 0; }")
    await tab.page.evaluate(NEXT_FRAME)
    assert not await tab.page.evaluate(IS_AT_END)
