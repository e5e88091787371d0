"""Journeys of an operator through the Console, on one bot with data for every page."""

import asyncio
import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot import Outcome
from bot.platform import DeliveryState, TokenScope
from tests.adapters.web.conftest import TOKEN
from tests.browser.scrolling import check_following, scroll_up, wait_for_end
from tests.browser.workshop import INES, MENDING, SMOKE, compose

pytestmark = pytest.mark.long
ACTIONS = ("Send", "Drop", "Save", "Forget", "Export", "Correct:", "Delete", "Run now:", "Pause:", "Resume:", "Add")
# The parts of the names of variables in elements, each with the number of lines on which it stands.
LIST_PARTS_OF_NAMES = """(elements) => elements.flatMap((element) => {
  const found = [], walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT), range = new Range();
  while (walker.nextNode()) {
    for (const part of walker.currentNode.data.matchAll(/[A-Z]{2,}_?/g)) {
      range.setStart(walker.currentNode, part.index);
      range.setEnd(walker.currentNode, part.index + part[0].length);
      found.push([part[0], new Set([...range.getClientRects()].map((rect) => rect.top)).size]);
    }
  }
  return found;
})"""


async def test_a_problem_leads_to_its_cause(visitor: Any) -> None:
    tab = await visitor.enter("console")
    problems = tab.page.get_by_role("list", name="What needs attention")
    await problems.get_by_role("link", name="held").click()
    await tab.page.get_by_text("timed out: it is unknown whether it arrived").first.wait_for()
    await tab.page.go_back()
    await problems.get_by_role("link", name="rate limited").click()
    await tab.page.get_by_text("is cut off from telegram (rate_limited)").first.wait_for()
    await tab.page.go_back()
    await tab.page.get_by_role("region", name="Silences by rule").get_by_role("link", name="the model refused").click()
    await tab.page.get_by_role("heading", level=1, name="Failed: the model refused").wait_for()
    assert "400: the request was refused" in await tab.page.get_by_role("main").inner_text()


async def find_everywhere(page: Any, text: str) -> None:
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Search a page").and_(page.locator(":focus")).fill(text)


async def test_ctrl_k_finds_people_by_name_and_messages_by_text(visitor: Any) -> None:
    tab = await visitor.enter("console/tasks")
    page = tab.page
    await page.get_by_text("Order more thread").wait_for()
    await find_everywhere(page, "torn sleeve")
    await page.get_by_role("option", name="Ines: What should I bring for a torn sleeve").click()
    await page.get_by_role("heading", level=1, name="Answered").wait_for()
    await find_everywhere(page, "ine")
    await page.get_by_role("option", name="Ines").filter(has=page.get_by_text("telegram", exact=True)).click()
    await page.get_by_role("heading", level=1, name="Ines").wait_for()


async def test_ctrl_k_finds_their_conversations_for_a_token_for_chats(workshop: Any, visitor: Any) -> None:
    tab = await visitor.enter("", token=workshop.tokens[TokenScope.CHAT])
    page = tab.page
    await tab.write("The kettle is cold")
    await tab.wait_for_text("You said: The kettle")
    await tab.open("")
    await page.get_by_role("link", name="The kettle is cold").wait_for()
    await find_everywhere(page, "kettle")
    await page.get_by_role("option", name="The kettle is cold").click()
    await tab.wait_for_text("You said: The kettle")
    await find_everywhere(page, "torn sleeve")
    await page.get_by_text("Nothing found").wait_for()


async def test_a_room_leads_to_a_model_call_in_three_clicks(visitor: Any) -> None:
    tab = await visitor.enter("console/rooms")
    await tab.page.get_by_role("link", name="mending").click()
    await tab.page.get_by_role("link", name="who has the key this week").click()
    await tab.page.get_by_role("region", name="Receipt, text").get_by_role("button", name="claude-sonnet").first.click()
    await tab.page.get_by_text("2,480 tokens in").wait_for()
    assert "message=" in tab.page.url
    await tab.page.reload()  # what is open is part of the address
    await tab.page.get_by_text("How it was decided").wait_for()
    await tab.page.get_by_role("link", name="Open", exact=True).click()
    await tab.page.get_by_role("heading", level=1, name="Answered: Marlo was called by name").wait_for()
    await tab.page.get_by_role("button", name="Show the prompt").click()
    await tab.page.get_by_text("CHARACTER").first.wait_for()


async def test_a_room_shows_what_happens_and_is_filtered(workshop: Any, visitor: Any) -> None:
    tab = await visitor.enter(f"console/rooms/{workshop.room()}")
    await tab.page.get_by_text("About seam 33").wait_for()
    await workshop.hear("Marlo, are the irons cold?", "Tom")
    await tab.wait_for_text("You said: Marlo, are the irons cold?")
    await tab.page.get_by_label("Outcome").select_option("failed")
    await tab.page.get_by_text("About seam 33").wait_for(state="detached")
    await tab.wait_for_text(SMOKE)
    await tab.page.go_back()
    await tab.page.get_by_text("About seam 33").wait_for()


async def test_a_room_opens_at_its_newest_message_and_follows_new_ones(workshop: Any, visitor: Any) -> None:
    tab = await visitor.enter(f"console/rooms/{workshop.room()}")
    await tab.page.locator(".log .msg").first.wait_for()
    await check_following(tab)
    await workshop.hear("Is there tea?", "Tom")
    await tab.page.locator(".log .msg", has_text="Is there tea?").first.wait_for()
    await wait_for_end(tab)
    await scroll_up(tab)
    await workshop.hear("Is there milk?", "Tom")
    await tab.page.get_by_role("button", name=re.compile(r"\d new messages? ↓")).click()
    await wait_for_end(tab)


async def test_a_reply_stands_as_markdown_under_the_message_that_it_answers(workshop: Any, visitor: Any) -> None:
    tab = await visitor.enter(f"console/rooms/{workshop.room()}")
    await tab.page.locator(".log .msg").first.wait_for()
    released = asyncio.Event()
    answering = asyncio.Event()

    async def wait() -> None:
        answering.set()
        await released.wait()

    workshop.script.wait = wait
    slow = asyncio.create_task(workshop.hear("Marlo, **where** is [the key](https://example.org/key)?", "Eve"))
    await answering.wait()
    workshop.script.wait = None
    between = compose("I have to go now.", "Tom", MENDING, "between")
    [event] = await workshop.store.ledger.receive([between], between.message.created_at)
    await workshop.store.ledger.save_receipts([replace(event.receipt, outcome=Outcome.IGNORED, rule="IGNORE")])
    released.set()
    await slow
    reply = tab.page.locator(".log .msg.own", has_text="You said: Marlo, where is the key")
    await reply.wait_for()
    for _ in range(2):
        before = await reply.evaluate("node => node.previousElementSibling.innerText")
        assert "where is the key" in before
        assert "Answered: Marlo was called by name" in before
        assert await reply.locator("strong").inner_text() == "where"
        assert await reply.locator(".md a").get_attribute("href") == "https://example.org/key"
        await tab.page.reload()
        await reply.wait_for()


@pytest.mark.parametrize(("width", "left_over"), [(1440, 60), (390, 40)])
async def test_the_messages_of_a_room_use_its_width(workshop: Any, visitor: Any, width: int, left_over: int) -> None:
    tab = await visitor.enter(f"console/rooms/{workshop.room()}", width=width)
    await tab.page.locator(".log .msg .body").last.wait_for()
    room = await tab.page.locator(".log").evaluate("node => node.getBoundingClientRect().right")
    message = await tab.page.locator(".log .msg").last.evaluate("node => node.getBoundingClientRect().right")
    assert width - room < 2
    assert room - message < left_over


async def test_the_receipt_of_a_command_is_listed_as_that_of_a_command(visitor: Any) -> None:
    tab = await visitor.enter("console")
    origin = visitor.server.origin
    answer = await tab.page.context.request.post(
        f"{origin}/api/agents/marlo/messages", data={"text": "/polish", "user": "Tom"}, headers={"Origin": origin}
    )
    assert answer.ok
    await tab.page.goto(f"{origin}/console/receipts")
    row = tab.page.get_by_role("row").filter(has_text="Refused: /polish: there is no such command")
    await row.filter(has_text="Tom: command").wait_for()
    await row.get_by_role("link", name="Refused: /polish").click()
    await tab.page.get_by_text("How it was decided").wait_for()
    assert "The message was deleted" not in await tab.page.get_by_role("main").inner_text()


async def test_undelivered_parts_are_sent_and_dropped(workshop: Any, visitor: Any) -> None:
    texts = [f"Marlo, question {number}?" for number in (1, 2, 3)]
    for text in texts:
        await workshop.hear(text, "Ines", INES)
        await workshop.hold(text, DeliveryState.UNKNOWN, "timed out")
    tab = await visitor.enter("console/deliveries?state=held")
    page = tab.page
    send, drop = (page.get_by_role("button", name=name, exact=True) for name in ("Send", "Drop"))
    await page.get_by_role("checkbox", name=texts[0]).check()
    await send.click()
    await tab.wait_for_text("1 part queued, sent in order")
    await page.locator("tr", has_text=texts[0]).get_by_text("sent", exact=True).wait_for()
    assert f"You said: {texts[0]}" in workshop.accounts["telegram"].texts[-1]
    for text in texts[1:]:
        await page.get_by_role("checkbox", name=text).check()
    await drop.click()
    dialog = page.get_by_role("dialog", name="Drop 2 parts?")
    await dialog.get_by_role("button", name="Cancel").click()
    await drop.click()
    await dialog.get_by_role("button", name="Drop").click()
    await page.locator("tr", has_text=texts[2]).get_by_text("a person dropped it").first.wait_for()
    listed = (await workshop.server.get("/api/outbox?state=held"))["parts"]
    assert not [part for part in listed if "question" in part["text"]]


async def test_costs_are_downloaded_and_limits_changed(workshop: Any, visitor: Any) -> None:
    tab = await visitor.enter("console/costs")
    page = tab.page
    async with page.expect_download() as started:
        await page.get_by_role("button", name="CSV").click()
    path = await (await started.value).path()
    rows = list(csv.reader(Path(path).read_text(encoding="utf-8").splitlines()))  # noqa: ASYNC240  # a small file
    assert "claude-sonnet-4-6" in str(rows)
    field = page.get_by_role("textbox", name="Each room, dollars")
    await field.fill("1.5")
    await page.get_by_role("button", name="Save").click()
    await tab.wait_for_text("Saved; the limits count from now on")
    limits = (await workshop.server.get("/api/limits"))["limits"]
    assert {item["name"]: item["value"] for item in limits}["BUDGET_USD_PER_ROOM"] == 1.5
    await field.fill("")
    await page.get_by_role("button", name="Save").click()
    await page.get_by_text("set here").wait_for(state="detached")
    await page.get_by_role("button", name="7 days").click()
    assert "from=" in page.url


@pytest.mark.parametrize("width", [1200, 390])
async def test_bars_of_limits_are_aligned_and_names_of_variables_break_at_underscores(visitor: Any, width: int) -> None:
    tab = await visitor.enter("console/costs", width=width, height=900)
    rows = tab.page.locator(".limit-row")
    await rows.first.wait_for()
    names = await rows.evaluate_all(LIST_PARTS_OF_NAMES)
    assert ["BUDGET_", 1] in names
    assert [name for name, lines in names if lines > 1] == []
    bars = await tab.page.locator(".limit-row .meter").evaluate_all(
        "(bars) => bars.map((bar) => [bar.getBoundingClientRect().left, bar.getBoundingClientRect().right])"
    )
    assert len(bars) == 6
    assert all(bar == bars[0] for bar in bars)


async def test_a_long_page_has_a_single_scrollbar(visitor: Any) -> None:
    tab = await visitor.enter("console/doctor", width=1200, height=900)
    await tab.page.locator(".page .vh").first.wait_for(state="attached")
    height, visible = await tab.page.evaluate(
        "() => [document.documentElement.scrollHeight, document.documentElement.clientHeight]"
    )
    assert height == visible


async def test_the_costs_say_how_answers_degrade_and_why(workshop: Any, visitor: Any) -> None:
    limits = workshop.server.runtime.agents[0].handle.limits
    await limits.change({"BUDGET_TOKENS": 1}, source="the test")
    tab = await visitor.enter("console/costs")
    note = tab.page.get_by_text("Everywhere until midnight UTC: no answers, since")
    await note.wait_for()
    assert "of BUDGET_TOKENS is used" in await note.inner_text()
    await limits.change({"BUDGET_TOKENS": None}, source="the test")
    await tab.page.reload()
    await tab.page.get_by_text("Limits a day").wait_for()
    assert not await note.count()


async def test_facts_are_corrected_and_a_person_is_forgotten(workshop: Any, visitor: Any) -> None:
    tab = await visitor.enter("console/people")
    page = tab.page
    await page.get_by_role("link", name="Eve", exact=True).click()
    await page.get_by_role("button", name="Correct: Has a key").click()
    await page.get_by_label("The fact").fill("Has two keys to the workshop.")
    await page.get_by_role("button", name="Save").click()
    await page.get_by_text("Has two keys to the workshop.").wait_for()
    await page.get_by_role("button", name="Delete: Prefers linen").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await page.get_by_text("Prefers linen").wait_for(state="detached")
    async with page.expect_download() as started:
        await page.get_by_role("link", name="Export").click()
    assert (await started.value).suggested_filename == "Eve.jsonl"
    await page.get_by_role("button", name="Do not read").click()
    await page.get_by_text("not read (operator)").wait_for()
    await page.get_by_role("button", name="Read again").click()
    await page.get_by_text("not read (operator)").wait_for(state="detached")

    await page.goto(f"{workshop.server.origin}/console/people?q=Tom")
    await page.get_by_role("link", name="Tom", exact=True).click()
    await page.get_by_role("button", name="Forget").click()
    dialog = page.get_by_role("dialog", name="Forget Tom?")
    await dialog.get_by_role("textbox").fill("Tim")
    await page.keyboard.press("Enter")
    assert await dialog.count() == 1  # another name forgets no person
    await dialog.get_by_role("textbox").fill("Tom")
    await dialog.get_by_role("button", name="Forget").click()
    await tab.wait_for_text("Forgotten: ")
    assert (await workshop.server.get("/api/people?q=Tom"))["people"] == []


async def test_knowledge_is_searched_and_documents_are_added(visitor: Any, tmp_path: Path) -> None:
    tab = await visitor.enter("console/knowledge")
    page = tab.page
    await page.get_by_role("searchbox", name="Question").fill("who unplugs the irons")
    await page.get_by_text("Whoever leaves last unplugs").wait_for()
    (tmp_path / "buttons.txt").write_text("The button box stands under the window.", encoding="utf-8")
    await page.get_by_label("Files to add").set_input_files(str(tmp_path / "buttons.txt"))
    await page.get_by_role("button", name="Delete buttons.txt").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await page.get_by_text("buttons.txt").wait_for(state="detached")


async def test_tasks_are_run_paused_resumed_and_deleted(visitor: Any) -> None:
    tab = await visitor.enter("console/tasks")
    page = tab.page
    await page.get_by_role("button", name="Pause: Ask who takes the key").click()
    row = page.locator("tr", has_text="Ask who takes the key")
    await row.get_by_text("paused").wait_for()
    await page.get_by_role("button", name="Resume: Ask who takes the key").click()
    await row.get_by_text("paused").wait_for(state="detached")
    await page.get_by_role("button", name="Run now: Remind the circle").click()
    await tab.wait_for_text("It runs now")
    await page.get_by_role("button", name="Delete: Order more thread").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await page.get_by_text("Order more thread").wait_for(state="detached")
    await page.get_by_role("button", name="Failed").click()
    await page.get_by_text("Nothing matches").wait_for()


async def test_a_character_is_edited_with_its_errors_shown_and_taken_up(workshop: Any, visitor: Any) -> None:
    tab = await visitor.enter("console/character")
    page = tab.page
    editor = page.get_by_role("textbox", name="marlo.json")
    before = await editor.input_value()
    assert "sk-proj" not in before
    save = page.get_by_role("button", name="Save")
    await editor.fill(before.replace('"bio": [', '"bio": {'))
    await page.get_by_role("button", name="Line ").first.click()
    assert await save.get_attribute("aria-disabled") == "true"
    await editor.fill(before.replace("who has the key", "who has the scissors"))
    await page.get_by_text("valid", exact=True).wait_for()
    await save.click()
    await tab.wait_for_text("Saved; taken up: bio")
    assert "scissors" in workshop.server.runtime.handles[0].character.bio[0]
    await page.get_by_role("textbox", name="Try it with a message").fill("What do you know?")
    await page.get_by_role("button", name="Try").click()
    await tab.wait_for_text("with this file, not saved")
    await page.get_by_role("button", name="Versions").click()
    await page.get_by_role("button", name="Open", exact=True).click()
    await page.wait_for_function("() => document.querySelector('textarea').value.includes('who has the key')")
    assert json.loads(await editor.input_value())["bio"] == json.loads(before)["bio"]


async def test_plugins_settings_log_and_doctor_say_what_is_on_set_logged_and_wrong(workshop: Any, visitor: Any) -> None:
    tab = await visitor.enter("console/plugins")
    page = tab.page
    await page.get_by_text("none has a problem").wait_for()
    await page.locator(".check", has_text="knowledge").locator("summary").first.click()
    await page.get_by_role("link", name="Settings").first.click()
    await page.get_by_role("searchbox", name="Search variables").fill("SERVER_TOKEN")
    await page.locator("tr", has_text="SERVER_TOKEN").get_by_text("set, not shown").wait_for()
    assert TOKEN not in await page.content()
    await page.get_by_role("link", name="Log", exact=True).click()
    await page.get_by_text("The irons are on since nine o'clock").wait_for()
    await workshop.hear("Marlo, is it logged?", "Ines", INES)
    await page.get_by_text("answered: every message in a room of type DM").first.wait_for()
    await page.get_by_label("From which level").select_option("WARNING")
    await page.get_by_text("answered: every message in a room of type DM").wait_for(state="detached")
    await page.get_by_role("link", name="Doctor").click()
    await page.get_by_text("last run").wait_for()
    await page.get_by_role("button", name="Run again").click()
    await page.get_by_text("The bot runs.").or_(page.get_by_text("Nothing to correct.")).wait_for()


async def test_a_read_only_token_sees_everything_and_changes_nothing(workshop: Any, visitor: Any) -> None:
    tab = await visitor.enter("console", token=workshop.tokens[TokenScope.READ_ONLY])
    page = tab.page
    await page.get_by_text("Read-only").wait_for()
    answered = workshop.receipts["What should I bring for a torn sleeve?"].id
    shown = {
        "": "Silences by rule",
        "/rooms": "mending",
        f"/rooms/{workshop.room()}": "About seam 3",
        f"/receipts/{answered}": "How it was decided",
        "/deliveries": "All",
        "/costs": "Limits a day",
        "/people": "Ines",
        f"/people/{workshop.person('Eve')}": "What is known",
        "/knowledge": "Documents",
        "/tasks": "Remind the circle",
        "/character": "Only an operator",
        "/plugins": "Only an operator",
        "/settings": "Only an operator",
        "/logs": "Only an operator",
        "/doctor": "Only an operator",
    }
    for path, text in shown.items():
        await tab.open(f"console{path}")
        await page.get_by_text(text).locator("visible=true").first.wait_for()
        main = page.get_by_role("main")
        for name in ACTIONS:
            found = main.get_by_role("button", name=name, exact=not name.endswith(":")).or_(
                main.get_by_role("link", name=name, exact=True)
            )
            assert await found.count() == 0, (path, name)
    await tab.open(f"c/{workshop.conversation}")
    await page.get_by_text("This token is read-only").wait_for()
    await page.get_by_text("Answered in").first.wait_for()
    assert await page.get_by_role("textbox", name="Message to").count() == 0
