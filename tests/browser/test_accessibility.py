"""Every screen of the chat passes axe-core in both themes, on a phone and on a wide screen."""

from typing import Any

import pytest

REPLY = "## Plan\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- one\n\n```python\nprint(1)\n```"


@pytest.mark.long
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
async def test_the_chat_has_no_violation(browser: Any, theme: str, width: int) -> None:
    tab = await browser.open_tab(width=width, color_scheme=theme, bypass_csp=True)
    await tab.open("signin")
    assert await tab.find_violations() == []
    await tab.sign_in()
    await tab.page.get_by_role("heading", name="Marlo").wait_for()
    assert await tab.find_violations() == []
    await tab.write(REPLY)
    await tab.page.locator(".msg.bot .codebox").wait_for()
    assert await tab.find_violations() == []
    assert await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
