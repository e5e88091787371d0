"""A person who looks for a cause: opens the overview, clicks what is visible, and reads."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tests.browser.conftest import Browser, run_browser
from tests.browser.situations.running import Click, Group, Situation

MAX_CLICKS = 3
READ_MS = 10_000  # on a machine that runs other tests too
ITEMS = "main li, main tr, main p"
# The shortest visible text that contains the sentence and, if it is given, what it is about; spaces as one.
FIND = """([sentence, about, items]) => {
  const read = (node) => node.checkVisibility() ? (node.innerText ?? "").replace(/\\s+/g, " ").trim() : "";
  const nodes = about ? document.querySelectorAll(items) : document.querySelectorAll("main, main *");
  const found = [...nodes].map(read).filter((text) => text.includes(sentence) && text.includes(about));
  return found.sort((one, other) => one.length - other.length)[0] ?? "";
}"""


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of looking for the cause of a situation: the text that was found, empty if it was not."""

    situation: Situation
    clicks: int
    text: str
    problem: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it was found with as many clicks as are allowed."""
        return bool(self.text) and self.clicks <= MAX_CLICKS


async def look_for_causes(group: Group) -> AsyncIterator[Finding]:
    """Bring the situations of a group about, and look for the cause of each from the overview."""
    async with group.open() as running, run_browser(running.server) as browser:
        tab = await sign_in(browser)
        for situation in group.situations:
            yield await look_for(tab.page, running.server.origin, situation)


async def sign_in(browser: Browser) -> Any:
    """Return a tab that shows the overview."""
    tab = await browser.sign_in("console", width=1440, height=900)
    tab.page.set_default_timeout(READ_MS)
    return tab


async def look_for(page: Any, origin: str, situation: Situation) -> Finding:
    """Return what is shown after the clicks of a situation."""
    problem, clicks = "", 0
    try:
        await page.goto(f"{origin}/console")
        await page.locator(".well p").first.wait_for()
        for click in situation.clicks:
            clicks += await follow(page, click)
        found = await page.wait_for_function(FIND, arg=[situation.cause, situation.about, ITEMS])
        return Finding(situation, clicks, await found.json_value())
    except Exception as error:  # of the browser: the finding says so, and the next situation is looked at
        problem = str(error).partition("\n")[0]
        problem += " | " + " ".join((await page.locator("main").inner_text()).split())[:1500]
    return Finding(situation, clicks, "", problem)


async def follow(page: Any, click: Click) -> int:
    """Click what is visible and has this name, after asking for the whole list if need be; return the clicks."""
    name = re.compile(re.escape(click.name), re.IGNORECASE)
    target = page.get_by_role(click.role, name=name).locator("visible=true").first
    whole = page.get_by_role("button", name="Show all").locator("visible=true").first
    await target.or_(whole).first.wait_for()
    clicks = 1
    if not await target.count():
        await whole.click()
        clicks += 1
    await target.click()
    return clicks
