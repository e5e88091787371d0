"""A journey through the overview of the Console."""

from typing import Any

import pytest

from bot.platform import DisconnectCause
from tests.adapters.web.test_overview import ShakyAdapter


@pytest.mark.long
async def test_the_overview_shows_an_outage_and_its_end_without_a_reload(browser: Any) -> None:
    [handle] = browser.server.runtime.handles
    shaky = ShakyAdapter(handle.agent_id)
    await browser.server.runtime.connect(shaky)
    shaky.status.connected()
    tab = await browser.sign_in("console")
    page = tab.page
    await page.locator(".well p", has_text="All is well").wait_for()
    assert await page.locator(".needs").count() == 0
    await page.locator(".plot svg").first.wait_for()

    shaky.status.failed(DisconnectCause.REFUSED, "401")
    await page.locator(".well p", has_text="Not connected to any platform").wait_for()
    problem = page.locator(".needs li")
    assert "rejects the token" in await problem.inner_text()
    assert await problem.get_by_role("link").count() == 1  # exactly one action

    shaky.status.connected()
    await page.locator(".well p", has_text="All is well").wait_for()

    await page.get_by_role("button", name="Month").click()
    assert "range=month" in page.url
    await page.reload()
    assert await page.get_by_role("button", name="Month").get_attribute("aria-pressed") == "true"
    await browser.server.send("Hello", agent="marlo")
    numbers = page.get_by_role("list", name="Open work").get_by_role("link")
    await numbers.nth(5).wait_for()  # the page has just been loaded again
    assert await numbers.count() == 6
    await page.locator("tr", has_text="scripted").wait_for()  # the model that has answered, by a live update


@pytest.mark.long
async def test_without_a_connection_the_overview_does_not_say_that_all_is_well(browser: Any) -> None:
    tab = await browser.sign_in("console")
    page = tab.page
    await page.locator(".well p", has_text="All is well").wait_for()
    tab.may_lose_connection = True
    await page.context.set_offline(True)
    await page.evaluate("import(new URL('pages/js/stream.js', document.baseURI)).then((m) => m.stream.lost())")
    await page.locator(".well p", has_text="Not connected to the bot").wait_for()
    assert "All is well" not in await page.get_by_role("main").inner_text()
    await page.context.set_offline(False)
    await page.locator(".well p", has_text="All is well").wait_for()


@pytest.mark.long
async def test_the_overview_is_accessible_and_never_scrolls_sideways(browser: Any) -> None:
    [handle] = browser.server.runtime.handles
    shaky = ShakyAdapter(handle.agent_id)
    await browser.server.runtime.connect(shaky)
    shaky.status.failed(DisconnectCause.LIMITED, "429")
    await browser.server.send("refuse", agent="marlo")
    for width in (320, 390, 1024, 1440):
        tab = await browser.sign_in("console", width=width, color_scheme="dark" if width == 390 else "light")
        await tab.page.locator(".plot svg").first.wait_for()
        await tab.page.get_by_role("link", name="Ada").or_(tab.page.get_by_role("link", name="Marlo")).first.wait_for()
        assert not await tab.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert await tab.find_violations() == []
