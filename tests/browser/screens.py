"""Every screen and state of the web app, by name: the address, and what is done there until it is complete."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from tests.browser.workshop import CONVERSATION, INES, SMOKE, Workshop


class Screen(NamedTuple):
    """An address, the text that is there when the screen is complete, and what leads to its state."""

    path: str
    text: str
    prepare: Callable[[Any], Awaitable[None]] | None = None
    is_public: bool = False


async def open_screen(tab: Any, screen: Screen) -> None:
    """Open a screen and wait until it is complete."""
    await tab.open(screen.path)
    if screen.prepare is not None:
        await screen.prepare(tab)
    await tab.page.get_by_text(screen.text).locator("visible=true").first.wait_for()


def _click(role: str, name: str) -> Callable[[Any], Awaitable[None]]:
    async def click(tab: Any) -> None:
        await tab.page.get_by_role(role, name=name).locator("visible=true").first.click()

    return click


def _press(keys: str, wait_for: str) -> Callable[[Any], Awaitable[None]]:
    async def press(tab: Any) -> None:
        await tab.wait_for_text(wait_for)
        await tab.page.keyboard.press(keys)

    return press


async def _break_character(tab: Any) -> None:
    field = tab.page.get_by_role("textbox", name="marlo.json")
    await field.fill((await field.input_value()).replace('"bio"', '"boi"', 1) + "}")


async def _open_details(tab: Any) -> None:
    """Open the prompt and a step of a receipt."""
    await tab.page.get_by_role("button", name="Show the prompt").click()
    await tab.page.locator(".fall button").first.click()
    await tab.page.locator("details summary").first.click()


async def _search_nothing(tab: Any) -> None:
    await tab.page.keyboard.press("Control+k")
    await tab.page.get_by_role("combobox", name="Search a page").fill("zzzz")


async def _search_something(tab: Any) -> None:
    await tab.page.keyboard.press("Control+k")
    await tab.page.get_by_role("combobox", name="Search a page").fill("ines")


async def _forget(tab: Any) -> None:
    await tab.page.get_by_role("button", name="Forget").click()


async def _show_table(tab: Any) -> None:
    await tab.page.get_by_role("button", name="Show as table").first.click()
    await tab.page.locator(".plot-table").wait_for()


async def _correct(tab: Any) -> None:
    await tab.page.get_by_role("button", name="Correct:").first.click()


async def _write_code(tab: Any) -> None:
    await tab.page.locator(".msg.bot .codebox").wait_for()


async def _say_silence(tab: Any) -> None:
    await tab.write("silence, and <b>nothing</b> else")


def list_screens(workshop: Workshop) -> dict[str, Screen]:
    """Return the screens and states of Chat, sign-in and Console."""
    receipts = {text: workshop.receipts[text].id for _, _, text in CONVERSATION}
    answered = receipts["What should I bring for a torn sleeve?"]
    chat = f"c/{workshop.conversation}"
    room, eve = workshop.room(), workshop.person("Eve")
    return {
        "sign-in": Screen("signin", "Enter the token", is_public=True),
        "sign-in, refused": Screen("signin", "Enter the token.", _click("button", "Sign in"), is_public=True),
        "chat, new": Screen("", "New conversation"),
        "chat, conversation": Screen(chat, "Answered in", _write_code),
        "chat, silence": Screen("", "Stayed silent", _say_silence),
        "chat, why": Screen(f"{chat}?why={workshop.plan}", "How it was decided"),
        "chat, missing": Screen(f"c/{room}", "There is no such conversation"),
        "chat, palette": Screen("", "Page", _press("Control+k", "New conversation")),
        "overview": Screen("console", "Failures by cause"),
        "overview, month": Screen("console?range=month", "Failures by cause"),
        "overview, table": Screen("console", "Spent today (UTC)", _show_table),
        "rooms": Screen("console/rooms", "leftovers"),
        "rooms, nothing matches": Screen("console/rooms?q=zzzz", "Nothing matches"),
        "room": Screen(f"console/rooms/{room}", "About seam 3"),
        "room, filtered": Screen(f"console/rooms/{room}?outcome=failed", "can you smell smoke"),
        "room, receipt": Screen(f"console/rooms/{workshop.room(INES)}?message={answered}", "How it was decided"),
        "receipt": Screen(f"console/receipts/{answered}", "How it was decided"),
        "receipt, opened": Screen(f"console/receipts/{answered}", "operators only", _open_details),
        "receipt, failed": Screen(f"console/receipts/{receipts[SMOKE]}", "How it was decided"),
        "receipt, unknown": Screen("console/receipts/none", "Request "),
        "deliveries": Screen("console/deliveries", "blocked by this person"),
        "deliveries, held": Screen("console/deliveries?state=held", "timed out"),
        "deliveries, none": Screen("console/deliveries?state=waiting", "No waiting parts"),
        "control": Screen("console/control", "No drafts are waiting"),
        "costs": Screen("console/costs", "Limits a day"),
        "costs, table": Screen("console/costs", "Limits a day", _show_table),
        "people": Screen("console/people", "Ines"),
        "person": Screen(f"console/people/{eve}", "Talks with"),
        "person, correction": Screen(f"console/people/{eve}", "The fact", _correct),
        "person, forget": Screen(f"console/people/{eve}", "Write Eve to confirm", _forget),
        "knowledge": Screen("console/knowledge", "rules.md"),
        "knowledge, found": Screen(f"console/knowledge?q=who+has+the+key&room={room}", "result"),
        "tasks": Screen("console/tasks", "Order more thread"),
        "tasks, delete": Screen(
            "console/tasks", "It does not run again", _click("button", "Delete: Count the buttons")
        ),
        "character": Screen("console/character", "valid"),
        "character, error": Screen("console/character", "Line ", _break_character),
        "character, versions": Screen("console/character", "No version before", _click("button", "Versions")),
        "rehearsal": Screen("console/rehearsal", "It stays on this computer"),
        "duties": Screen("console/duties", "Referrals to help"),
        "plugins": Screen("console/plugins", "none has a problem"),
        "settings": Screen("console/settings", "BUDGET_USD"),
        "logs": Screen("console/logs", "The irons are on"),
        "doctor": Screen("console/doctor", "last run"),
        "palette": Screen("console", "Page", _press("Control+k", "Spent today")),
        "palette, found": Screen("console/tasks", "telegram", _search_something),
        "palette, nothing": Screen("console/tasks", "Nothing found", _search_nothing),
        "shortcuts": Screen("console/tasks", "Single letters work", _press("?", "Order more thread")),
        "no such page": Screen("console/nothing", "There is no page"),
    }


def list_narrow_screens(workshop: Workshop) -> dict[str, Screen]:
    """Return the states that exist on a phone only."""
    return {
        "chat, menu": Screen(f"c/{workshop.conversation}", "Connected", _click("button", "Conversations")),
        "console, more": Screen("console", "Plugins", _click("button", "More")),
    }
