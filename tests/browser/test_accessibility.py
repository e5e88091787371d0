"""Every screen and state passes axe-core in both themes, narrow and wide, and never scrolls sideways."""

from typing import Any

import pytest

from tests.browser.screens import list_narrow_screens, list_screens, open_screen

pytestmark = pytest.mark.long
WIDTHS = (320, 360, 390, 768, 1024, 1280, 1440, 1920)
WIDE_FONT = (
    """:root { --sans: "DejaVu Sans", sans-serif !important; --mono: "DejaVu Sans Mono", monospace !important; }"""
)
# What is wider than its box, other than regions that are made to scroll (they are named and focusable).
FIND_WIDE = """() => {
  const mayScroll = ".scroll-x, .tw, pre, .code-text, .plot-table, textarea, input, select, .cut, .vh, svg *";
  const wide = [...document.querySelectorAll("*")].filter((node) => node.scrollWidth > node.clientWidth + 1
    && !node.matches(mayScroll) && ["auto", "scroll"].includes(getComputedStyle(node).overflowX));
  if (document.documentElement.scrollWidth > innerWidth) wide.push(document.documentElement);
  return wide.map((node) => `${node.localName}.${node.className} ${node.scrollWidth} > ${node.clientWidth}`);
}"""


async def open_tab(browser: Any, screen: Any, **options: Any) -> Any:
    return await (browser.open_tab(**options) if screen.is_public else browser.enter(screen.path, **options))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
async def test_no_screen_has_a_violation(workshop: Any, visitor: Any, theme: str, width: int) -> None:
    signed_in = await visitor.enter(width=width, height=844, color_scheme=theme)
    stranger = await visitor.open_tab(width=width, height=844, color_scheme=theme)
    found: dict[str, list[str]] = {}
    screens = list_screens(workshop) | (list_narrow_screens(workshop) if width < 760 else {})
    for name, screen in screens.items():
        tab = stranger if screen.is_public else signed_in
        await open_screen(tab, screen)
        if violations := await tab.find_violations():
            found[name] = violations
        if name in {"receipt, unknown", "chat, missing"}:
            tab.faults.clear()  # Chromium reports the answer 404
    assert found == {}


async def test_no_screen_scrolls_sideways(workshop: Any, visitor: Any) -> None:
    signed_in = await visitor.enter(width=1440)
    stranger = await visitor.open_tab(width=1440)
    found: dict[str, list[str]] = {}
    for name, screen in list_screens(workshop).items():
        tab = stranger if screen.is_public else signed_in
        await tab.page.set_viewport_size({"width": 1440, "height": 900})
        await open_screen(tab, screen)
        for font in ("", WIDE_FONT):
            await tab.page.evaluate(
                """(css) => { const sheet = new CSSStyleSheet(); sheet.replaceSync(css);
                document.adoptedStyleSheets = [sheet]; }""",
                font,
            )
            for width in WIDTHS:
                await tab.page.set_viewport_size({"width": width, "height": 900})
                await tab.page.evaluate(
                    "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
                )
                if wide := await tab.page.evaluate(FIND_WIDE):
                    found[f"{name}, {width}{', wide font' if font else ''}"] = wide
        tab.faults[:] = [fault for fault in tab.faults if "404" not in fault]
    assert found == {}
