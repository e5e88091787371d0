"""The Console shows who speaks in a room of an account that several characters share, and changes it by keyboard."""

from typing import Any

import pytest

from bot import Room, World
from bot.platform import AgentHandle, Cast

pytestmark = pytest.mark.long
PHONE = {"width": 360, "height": 740}


async def locate(handle: AgentHandle, world: World, room: Room) -> tuple[World, Room]:
    """Return the place as it is: the rooms of the test are those of the first character."""
    return world, room


async def test_an_operator_adds_a_character_and_removes_it_by_keyboard_on_a_narrow_screen(open_browser: Any) -> None:
    async with open_browser(names=("Ada", "Bruno", "Clara")) as browser:
        Cast("web", browser.server.runtime.handles, locate)
        await browser.server.send("Hello", room="porch")
        [room] = (await browser.server.get("/api/rooms"))["rooms"]
        tab = await browser.enter(f"console/rooms/{room['id']}", **PHONE)
        page = tab.page
        opener = page.get_by_role("button", name="Characters")
        await opener.focus()
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Who speaks in porch").wait_for()
        bruno, ada = (page.get_by_role("checkbox", name=name) for name in ("Bruno", "Ada"))
        assert await ada.is_checked()
        await ada.focus()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Space")
        await tab.wait_for_text("Bruno speaks here now")
        assert await bruno.evaluate("(node) => node === document.activeElement")
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        await page.keyboard.press("Shift+Tab")
        await page.keyboard.press("Space")
        await tab.wait_for_text("Bruno answers where the account is mentioned")
        members = (await browser.server.get(f"/api/rooms/{room['id']}/cast"))["members"]
        assert [item["name"] for item in members] == ["Bruno"]
        await page.keyboard.press("Tab")
        await page.keyboard.press("Space")  # where no other speaks, the first does
        await tab.wait_for_text("Ada answers where the account is mentioned")
        assert await ada.is_checked()
        assert not await bruno.is_checked()
        await page.keyboard.press("Escape")
        assert await opener.evaluate("(node) => node === document.activeElement")
