"""A journey through the chat."""

import re
from typing import Any

import pytest

from tests.adapters.web.conftest import TOKEN
from tests.adapters.web.test_files import GALLERY


@pytest.mark.long
async def test_a_person_signs_in_and_has_a_conversation(browser: Any) -> None:
    script = browser.server.script
    tab = await browser.sign_in()
    page = tab.page
    await page.get_by_role("heading", name="Marlo").wait_for()

    await tab.write("**Hello** there")
    await tab.wait_for_text("You said:")
    assert await page.locator(".msg.bot .md strong").inner_text() == "Hello"  # a reply is Markdown
    assert await page.locator(".msg.me .body").inner_text() == "**Hello** there"  # an own message is as it was typed
    await page.wait_for_url(re.compile(r"/c/[0-9a-f]{8}-"))
    await page.locator(".side .item[aria-current=page]", has_text="**Hello** there").wait_for()

    await tab.write("/help")
    await tab.wait_for_text("Only you see this")

    await tab.write("tell a story")
    await tab.wait_for_text("Once upon")
    selected = "document.querySelector('.md .live').firstChild"
    await page.evaluate(f"getSelection().setBaseAndExtent({selected}, 0, {selected}, 4)")
    assert await page.get_by_text("You said:").count() == 1
    assert await page.evaluate("getSelection().toString()") == "Once"  # survives while the reply grows
    script.released.set()
    await tab.wait_for_text("Once upon a time.")

    await page.get_by_role("button", name="Rename").click()
    await page.get_by_label("Title of the conversation").fill("Stories")
    await page.keyboard.press("Enter")
    await page.locator(".side .item", has_text="Stories").wait_for()

    await page.get_by_role("textbox", name="Message to").fill("a draft")
    await page.reload()
    await tab.wait_for_text("Once upon a time.")
    assert await page.get_by_role("textbox", name="Message to").input_value() == "a draft"
    assert await page.get_by_role("heading", level=1).inner_text() == "Stories"

    await page.get_by_role("link", name="New conversation").click()
    await page.get_by_role("heading", name="New conversation").wait_for()
    await page.go_back()
    await tab.wait_for_text("Once upon a time.")

    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_label("Token").wait_for()


@pytest.mark.long
async def test_a_conversation_begins_with_the_first_greeting_of_the_card(open_browser: Any) -> None:
    greetings = ["*looks up* Hello {{user}}, tea or coffee?", "Another one."]
    async with open_browser(character={"greetings": greetings}) as browser:
        tab = await browser.sign_in()
        greeting = tab.page.locator(".greeting")
        await greeting.locator("em", has_text="looks up").wait_for()
        assert await greeting.locator(".body").inner_text() == "looks up Hello you, tea or coffee?"
        await tab.write("Tea, *please*.")
        await tab.wait_for_text("You said:")
        shown = await tab.page.locator(".log .body").all_inner_texts()
        await tab.page.reload()
        await greeting.wait_for()
        assert shown == ["looks up Hello you, tea or coffee?", "Tea, *please*.", "You said: Tea, please."]
        prompt = browser.server.script.prompts[-1]
        assert prompt.rindex("*looks up* Hello guest, tea or coffee?") < prompt.rindex("Tea, *please*.")
        await browser.server.send("Coffee.", agent="marlo", room="api")
        assert "looks up" not in browser.server.script.prompts[-1].partition("# Conversation")[2]


@pytest.mark.long
async def test_a_wrong_token_is_refused_next_to_the_field(browser: Any) -> None:
    tab = await browser.open_tab()
    await tab.open("c/chat-1")
    assert "signin" in tab.page.url
    await tab.page.get_by_label("Token").fill("not-the-token")
    await tab.page.keyboard.press("Enter")
    await tab.page.locator("[aria-invalid=true]").wait_for()
    tab.faults.clear()  # Chromium reports the refused request
    await tab.page.get_by_label("Token").fill(TOKEN)
    await tab.page.keyboard.press("Enter")
    await tab.page.wait_for_url("**/c/chat-1")


@pytest.mark.long
async def test_pictures_are_shown_and_other_files_are_links(open_browser: Any) -> None:
    async with open_browser(GALLERY) as browser:
        browser.server.script.action = "SHOW"
        tab = await browser.sign_in()
        await tab.write("show")
        await tab.page.get_by_role("img", name="a fox").wait_for()
        page = tab.page.get_by_role("link", name="page.html")
        assert "/api/files/" in await page.get_attribute("href")
        link = tab.page.get_by_role("link", name="https://example.org/")
        assert await link.get_attribute("rel") == "noopener noreferrer nofollow"


@pytest.mark.long
async def test_what_is_written_without_a_connection_is_sent_when_it_is_back(browser: Any) -> None:
    tab = await browser.sign_in()
    await tab.write("first")
    await tab.wait_for_text("You said: first")
    tab.may_lose_connection = True
    await tab.page.context.set_offline(True)
    await tab.page.evaluate("import(new URL('pages/js/stream.js', document.baseURI)).then((m) => m.stream.lost())")
    await tab.wait_for_text("Not connected", exact=True)
    await tab.write("second")
    await tab.wait_for_text("Waits for the connection", exact=True)
    await tab.page.locator(".banner").wait_for()
    await tab.page.context.set_offline(False)
    await tab.wait_for_text("You said: second")
    assert await tab.page.locator(".msg.bot", has_text="You said: second").count() == 1


@pytest.mark.long
async def test_a_phone_has_the_list_behind_a_button_and_enter_breaks_the_line(browser: Any) -> None:
    tab = await browser.sign_in(width=390, height=844, has_touch=True, is_mobile=True)
    field = tab.page.get_by_role("textbox", name="Message to")
    await field.fill("one")
    await field.press("Enter")
    await field.press_sequentially("two")
    assert await field.input_value() == "one\ntwo"
    await tab.page.get_by_role("button", name="Send").click()
    await tab.wait_for_text("You said: one")
    await tab.page.get_by_role("button", name="Conversations").click()
    await tab.page.get_by_role("link", name="New conversation").click()
    await tab.page.get_by_role("heading", name="New conversation").wait_for()
    assert await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.long
async def test_an_answer_is_stopped_repeated_explained_and_a_message_is_edited(browser: Any) -> None:
    script = browser.server.script
    tab = await browser.sign_in()
    page = tab.page
    await tab.write("tell a story")
    await tab.wait_for_text("Once upon")
    await page.get_by_role("button", name="Stop").click()
    await tab.wait_for_text("the reply is incomplete")
    script.released.set()
    await page.get_by_role("button", name="Regenerate").click()
    await tab.wait_for_text("Once upon a time.")
    await page.get_by_role("button", name="Earlier version").click()
    await page.get_by_text("1 of 2").wait_for()

    await tab.write("hello")
    await tab.wait_for_text("You said: hello")
    await page.get_by_role("button", name="Why?").last.click()
    await page.get_by_role("dialog", name="Why?").get_by_text("Answered").first.wait_for()
    assert "?why=" in page.url
    await page.keyboard.press("Escape")
    await page.get_by_role("dialog", name="Why?").wait_for(state="detached")

    await page.get_by_role("button", name="Edit and resend").last.click()
    await page.get_by_label("Edit the message").fill("good evening")
    await page.get_by_role("button", name="Send", exact=True).first.click()
    await tab.wait_for_text("You said: good evening")


@pytest.mark.long
async def test_the_line_under_a_reply_tells_the_outcome_with_its_cause(open_browser: Any) -> None:
    async with open_browser(settings={"BUDGET_TOKENS_PER_ROOM": "300"}) as browser:
        tab = await browser.sign_in()
        outcome_line = tab.page.locator(".msg .under .said")
        await tab.write("refuse this")
        await tab.page.locator(".msg.bot .said.bad", has_text="Failed: the model refused").wait_for()
        assert await outcome_line.all_inner_texts() == ["Failed: the model refused"]  # not also under the message
        await tab.write("hello")
        await tab.wait_for_text("Answered in")
        await tab.write("once more")
        await outcome_line.nth(2).wait_for()
        await tab.write("and again")
        await outcome_line.nth(3).wait_for()
        line = tab.page.locator(".msg.bot .said", has_text="today's limit of 300 tokens is used up")
        await line.wait_for()
        shown = await outcome_line.all_inner_texts()
        await tab.page.reload()
        await line.wait_for()
        assert await outcome_line.all_inner_texts() == shown
        assert "Answered" not in shown[-1]


@pytest.mark.long
async def test_the_ai_notice_stands_before_the_first_reply_also_when_the_page_is_read_again(open_browser: Any) -> None:
    notice = "Marlo is an AI character. No human writes these messages."
    async with open_browser(settings={"AI_NOTICE": "first"}) as browser:
        tab = await browser.sign_in()
        await tab.write("Hello")
        await tab.wait_for_text("You said:")
        lines = tab.page.locator(".log .msg")
        for _ in range(2):
            texts = await lines.all_inner_texts()
            assert [notice in text for text in texts] == [False, True, False]
            await tab.page.reload()
            await tab.wait_for_text("You said:")
