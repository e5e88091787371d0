"""The Console's page of people in control: drafts, take-overs and filtered texts, on a desktop and with one hand."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.browser.conftest import Browser

pytestmark = pytest.mark.long
PHONE = {"width": 360, "height": 740, "has_touch": True}


@pytest.fixture
async def guarded(open_browser: Any) -> AsyncIterator[Browser]:
    """Run a browser on a bot whose replies wait, and which stops a word."""
    async with open_browser(names=("Ada",), settings={"APPROVAL": "all", "FILTER_WORDS": "gruesome"}) as browser:
        yield browser


def draft_of(tab: Any, text: str) -> Any:
    return tab.page.locator(".draft").filter(has_text=text).first


def waiting_count(tab: Any, count: int) -> Any:
    """Return the number of waiting drafts in the navigation."""
    return tab.page.locator(".side .badge.warn", has_text=str(count))


async def test_a_draft_appears_by_itself_and_is_sent_edited_and_dropped(guarded: Browser) -> None:
    tab = await guarded.enter("console/control")
    await tab.wait_for_text("No drafts are waiting")
    for number in range(3):
        await guarded.server.send(f"Question {number}", room=f"room-{number}")
    await waiting_count(tab, 3).wait_for()
    await draft_of(tab, "Question 0").get_by_role("button", name="Send draft").click()
    await draft_of(tab, "Question 0").get_by_text("Already decided by an operator: sent").wait_for()
    edited = draft_of(tab, "Question 1")
    await edited.get_by_role("button", name="Edit draft").click()
    field = edited.get_by_role("textbox", name="The text that is sent")
    assert await field.input_value() == "You said: Question 1"
    await field.fill("A better answer")
    await edited.get_by_role("button", name="Save").click()
    await edited.get_by_text("revision 2").wait_for()
    await edited.get_by_text("What the character wrote").wait_for()
    await draft_of(tab, "Question 2").get_by_role("button", name="Drop draft").click()
    await waiting_count(tab, 1).wait_for()
    [draft] = (await guarded.server.get("/api/drafts"))["drafts"]
    assert (draft["text"], draft["revision"]) == ("A better answer", 2)


async def test_a_refused_decision_shows_the_reason_and_the_newer_text(guarded: Browser) -> None:
    await guarded.server.send("Hello", room="porch")
    tab = await guarded.enter("console/control")
    [draft] = (await guarded.server.get("/api/drafts"))["drafts"]
    await tab.page.get_by_role("button", name="Send draft").wait_for()
    body = {"status": 409, "json": {"error": {"code": "conflict", "message": "Nothing was changed: another text"}}}
    await tab.page.route("**/send", lambda route: route.fulfill(**body))  # as if another person was faster
    await guarded.server.post(f"/api/drafts/{draft['id']}/edit", {"text": "Good day"})
    await tab.page.get_by_role("button", name="Send draft").click()
    await tab.wait_for_text("Nothing was changed: another text")
    await draft_of(tab, "Good day").get_by_text("revision 2").wait_for()
    tab.faults.clear()  # Chromium reports the answer 409


async def test_a_room_is_taken_over_written_to_and_given_back_on_a_phone(guarded: Browser) -> None:
    await guarded.server.send("Hello", room="porch")
    tab = await guarded.enter("console/control", **PHONE)
    await tab.page.get_by_role("button", name="Take over instead of draft").tap()
    await tab.page.get_by_role("menuitem", name="The room").tap()
    await tab.wait_for_text("Already decided by An operator: dropped")
    await tab.page.get_by_role("button", name="Write as the bot in porch").tap()
    await tab.page.get_by_role("textbox", name="Message as the bot").fill("I see to it.")
    await tab.page.get_by_role("button", name="Send", exact=True).tap()
    await tab.page.get_by_role("button", name="Give back porch").tap()
    await tab.wait_for_text("Nothing is taken over")
    [room] = (await guarded.server.get("/api/rooms"))["rooms"]
    messages = (await guarded.server.get(f"/api/rooms/{room['id']}/messages"))["messages"]
    assert messages[-1]["text"] == "An operator (a person) writes:\nI see to it."


async def test_a_stopped_text_is_listed_without_its_words(guarded: Browser) -> None:
    await guarded.server.send("a gruesome thing", room="porch")
    tab = await guarded.enter("console/control")
    await tab.wait_for_text(": it has a word of FILTER_WORDS")
    assert "gruesome" not in await tab.page.content()
    await draft_of(tab, "it has a word").get_by_role("link", name="Receipt").click()
    await tab.wait_for_text("How it was decided")


async def test_a_draft_is_decided_by_keyboard(guarded: Browser) -> None:
    await guarded.server.send("Hello", room="porch")
    tab = await guarded.enter("console/control")
    await tab.page.get_by_role("button", name="Send draft").focus()
    await tab.page.keyboard.press("Tab")
    await tab.page.keyboard.press("Enter")
    await tab.page.get_by_role("textbox", name="The text that is sent").wait_for()
    await tab.page.keyboard.press("Control+A")  # the field has the focus
    await tab.page.keyboard.type("By hand")
    await tab.page.keyboard.press("Tab")
    await tab.page.keyboard.press("Enter")
    await tab.wait_for_text("Already decided by an operator: sent")
    [sent] = (await guarded.server.get("/api/drafts?state=sent"))["drafts"]
    assert sent["text"] == "By hand"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
async def test_drafts_and_take_overs_have_no_violation_and_never_scroll_sideways(
    guarded: Browser, theme: str, width: int
) -> None:
    for number in range(3):
        await guarded.server.send(f"Question {number} " + "w" * 90, room=f"room-{number}-" + "n" * 60)
    await guarded.server.send("a gruesome thing", room="porch")
    tab = await guarded.enter("console/control", width=width, height=800, color_scheme=theme)
    await draft_of(tab, "Question 0").get_by_role("button", name="Send draft").click()
    await draft_of(tab, "Question 1").get_by_role("button", name="Take over").click()
    await tab.page.get_by_role("menuitem", name="The room").click()
    await draft_of(tab, "Question 2").get_by_role("button", name="Edit draft").click()
    await tab.page.get_by_role("button", name="Write as the bot").click()
    await tab.page.get_by_role("textbox", name="Message as the bot").wait_for()
    assert await tab.find_violations() == []
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_draft_that_replaces_another_is_in_its_place(guarded: Browser) -> None:
    await guarded.server.send("First", room="porch")
    tab = await guarded.enter("console/control")
    await draft_of(tab, "You said: First").wait_for()
    await guarded.server.send("Elsewhere", room="garden")
    await draft_of(tab, "You said: Elsewhere").wait_for()
    for text in ("Second", "Third"):
        await guarded.server.send(text, room="porch")
        await draft_of(tab, f"You said: {text}").wait_for()
    await tab.page.locator(".draft").nth(1).get_by_text("You said: Elsewhere").wait_for()
    await tab.page.locator(".draft").nth(0).get_by_text("You said: Third").wait_for()
    assert await tab.page.get_by_text("Replaced by draft").count() == 0
    await draft_of(tab, "You said: Third").get_by_role("button", name="Send draft").click()
    await draft_of(tab, "You said: Third").get_by_text("Already decided by an operator: sent").wait_for()


async def test_an_operator_sets_instructions_of_a_room_on_a_phone_and_sees_who_set_what(open_browser: Any) -> None:
    async with open_browser(names=("Ada",), character={"rooms": {"porch": {"notes": "Ada is shy here."}}}) as browser:
        await browser.server.send("Hello", room="porch")
        [room] = (await browser.server.get("/api/rooms"))["rooms"]
        tab = await browser.enter(f"console/rooms/{room['id']}", **PHONE)
        await tab.page.get_by_role("button", name="Instructions").tap()
        await tab.wait_for_text("Set in the character's file for porch")
        await tab.page.get_by_role("textbox", name="Language").fill("German")
        await tab.page.get_by_role("button", name="Save").tap()
        await tab.wait_for_text("Set for this room by an operator")
        await tab.page.get_by_role("textbox", name="Length").fill("5")
        await tab.page.get_by_role("button", name="Save").tap()
        await tab.wait_for_text("length: short, medium, long, or a number of characters")
        values = (await browser.server.get(f"/api/rooms/{room['id']}/instructions"))["values"]
        assert {item["key"]: (item["value"], item["origin"]) for item in values} == {
            "notes": ("Ada is shy here.", "file"),
            "language": ("German", "room"),
        }
        tab.faults.clear()  # Chromium reports the answer 422
