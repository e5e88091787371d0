"""The web app by keyboard alone: a journey through both parts, and a ring that shows every stop of the Tab key."""

from typing import Any

import pytest

from tests.adapters.web.conftest import TOKEN
from tests.browser.screens import list_screens, open_screen

pytestmark = pytest.mark.long
MOST_STOPS = 70  # of one screen; a list of rooms repeats itself
# Describes the element with the focus, and says what is wrong with the ring around it.
DESCRIBE_FOCUS = """() => {
  const node = document.activeElement;
  if (!node || node === document.body) return { name: "", problem: "" };
  const text = node.getAttribute("aria-label") ?? node.labels?.[0]?.textContent ?? node.textContent;
  const name = `${node.localName} ${text.replace(/\\s+/g, " ").trim().slice(0, 60)}`;
  const style = getComputedStyle(node);
  const box = node.getBoundingClientRect();
  const form = node.closest(".composer form");
  if (form) return { name, problem: getComputedStyle(form).boxShadow === "none" ? "no ring around the form" : "" };
  const width = parseFloat(style.outlineWidth);
  if (style.outlineStyle === "none" || width < 2) return { name, problem: "no ring" };
  if (!box.width || !box.height) return { name, problem: "no size" };
  const reach = parseFloat(style.outlineOffset) + width;
  const ring = { top: box.top - reach, left: box.left - reach, bottom: box.bottom + reach, right: box.right + reach };
  const clip = { top: 0, left: 0, bottom: innerHeight, right: innerWidth };
  for (let outer = node.parentElement; outer; outer = outer.parentElement) {
    if (getComputedStyle(outer).overflow === "visible") continue;
    const edge = outer.getBoundingClientRect();
    Object.assign(clip, { top: Math.max(clip.top, edge.top), left: Math.max(clip.left, edge.left),
      bottom: Math.min(clip.bottom, edge.bottom), right: Math.min(clip.right, edge.right) });
  }
  const shown = [ring.top >= clip.top - 1, ring.left >= clip.left - 1,
    ring.bottom <= clip.bottom + 1, ring.right <= clip.right + 1];
  if (ring.bottom < clip.top || ring.top > clip.bottom) return { name, problem: "out of sight" };
  return { name, problem: shown.filter(Boolean).length < 2 ? `ring cut off, shown: ${shown}` : "" };
}"""


async def tab_to(tab: Any, name: str, *, key: str = "Tab") -> None:
    """Press Tab until the element with this name has the focus; every stop has a ring."""
    stops = []
    for _ in range(150):
        await tab.page.keyboard.press(key)
        stop = await tab.page.evaluate(DESCRIBE_FOCUS)
        assert not stop["problem"], stop
        stops.append(stop["name"])
        if name in stop["name"]:
            return
    raise AssertionError(f"{name!r} is not among {stops}")


async def focused(tab: Any) -> str:
    return str((await tab.page.evaluate(DESCRIBE_FOCUS))["name"])


async def test_a_journey_by_keyboard_alone(workshop: Any, visitor: Any) -> None:
    tab = await visitor.open_tab(width=1440, height=900)
    page, keyboard = tab.page, tab.page.keyboard
    await tab.open()
    await page.get_by_label("Token").wait_for()
    await keyboard.type(TOKEN)  # the field has the focus already
    await keyboard.press("Enter")
    await page.get_by_role("textbox", name="Message to").wait_for()
    await keyboard.type("What do you mend?")
    await keyboard.press("Enter")
    await tab.wait_for_text("You said: What do you mend?")
    await page.get_by_role("button", name="Why?").wait_for()

    await tab_to(tab, "Why?", key="Shift+Tab")
    await keyboard.press("Enter")
    await page.get_by_text("How it was decided").wait_for()
    assert await focused(tab) == "h2 Why?"
    await tab_to(tab, "Model calls")
    await keyboard.press("Escape")
    await page.get_by_role("dialog", name="Why?").wait_for(state="detached")
    await page.wait_for_function("() => document.activeElement.textContent === 'Why?'")  # the focus is back

    await tab_to(tab, "New conversation", key="Shift+Tab")
    await keyboard.press("Enter")
    await page.get_by_role("heading", name="New conversation").wait_for()
    await tab_to(tab, "a Console")
    await keyboard.press("Enter")
    await page.get_by_role("heading", name="Overview").wait_for()
    await page.get_by_text("Failures by cause").wait_for()

    await keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Search a page").wait_for()
    await keyboard.type("deliv")
    await page.get_by_role("option", name="Deliveries").wait_for()
    await keyboard.press("ArrowDown")
    await keyboard.press("ArrowUp")
    await keyboard.press("Enter")
    await page.get_by_role("heading", level=1, name="Deliveries").wait_for()
    await keyboard.press("g")
    await keyboard.press("t")
    await page.get_by_text("Order more thread").wait_for()
    await keyboard.press("?")
    await page.get_by_text("Single letters work").wait_for()
    await keyboard.press("Escape")
    await page.get_by_role("dialog").wait_for(state="detached")

    await tab_to(tab, "Delete: Order more thread")
    await keyboard.press("Enter")
    await page.get_by_role("dialog", name="Delete the task").wait_for()
    assert await focused(tab) == "button Cancel"  # the default
    await keyboard.press("Escape")
    await page.get_by_role("dialog").wait_for(state="detached")
    assert "Delete: Order more thread" in await focused(tab)

    await keyboard.press("g")
    await keyboard.press("p")
    await page.get_by_role("link", name="Eve", exact=True).wait_for()
    await keyboard.press("j")
    await keyboard.press("j")
    await keyboard.press("k")
    await keyboard.press("Enter")
    await page.get_by_text("What is known").wait_for()
    await tab_to(tab, "Sign out")
    await keyboard.press("Enter")
    await page.get_by_label("Token").wait_for()


async def test_messages_of_a_conversation_are_reached_by_alt_and_arrows_with_a_ring(
    workshop: Any, visitor: Any
) -> None:
    tab = await visitor.enter(f"c/{workshop.conversation}")
    await tab.page.get_by_text("Answered in").first.wait_for()
    await tab.page.get_by_role("log").focus()
    for key, text in (("ArrowUp", "Here is a plan"), ("ArrowUp", "Can you make a plan"), ("ArrowDown", "Here is")):
        await tab.page.keyboard.press(f"Alt+{key}")
        stop = await tab.page.evaluate(DESCRIBE_FOCUS)
        assert text in stop["name"]
        assert not stop["problem"], stop


@pytest.mark.parametrize("width", [390, 1440])
async def test_every_stop_of_the_tab_key_has_a_ring(workshop: Any, visitor: Any, width: int) -> None:
    signed_in = await visitor.enter(width=width, height=844)
    stranger = await visitor.open_tab(width=width, height=844)
    found: dict[str, list[Any]] = {}
    for name, screen in list_screens(workshop).items():
        tab = stranger if screen.is_public else signed_in
        await open_screen(tab, screen)
        ends = 0  # the page is left at its end; the next stop is its first
        for _ in range(MOST_STOPS):
            await tab.page.keyboard.press("Tab")
            stop = await tab.page.evaluate(DESCRIBE_FOCUS)
            ends += not stop["name"]
            if ends == 2:
                break
            if stop["problem"]:
                found.setdefault(name, []).append(stop)
        tab.faults[:] = [fault for fault in tab.faults if "404" not in fault]
    assert found == {}
