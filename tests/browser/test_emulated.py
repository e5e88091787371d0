"""Journeys through the pages of emulated platforms, with real adapters behind them."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.adapters.web.conftest import TOKEN
from tests.browser.conftest import Browser, run_browser
from tests.browser.scrolling import check_following, scroll_up, wait_for_end
from tests.cli.test_cli_emulate import character, pages, start_emulated_bot

pytestmark = pytest.mark.long
PICTURE = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
NOTES = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"Buy oil for the lamp."}


@pytest.fixture(scope="module")
async def platforms(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Browser, dict[str, str]]]:
    async with run_platforms(tmp_path_factory.mktemp("emulated")) as running:
        yield running


@asynccontextmanager
async def run_platforms(
    folder: Path, names: Sequence[str] = ("Marlo",), **variables: str
) -> AsyncIterator[tuple[Browser, dict[str, str]]]:
    """Run characters on all emulated platforms, and a browser; yields it with the addresses of the pages."""
    files = [word for name in names for word in ("-c", str(character(folder, name)))]
    args = (*files, "--emulate", "discord,telegram,x")
    async with start_emulated_bot(*args, SERVER_PORT="0", SERVER_TOKEN=TOKEN, **variables) as (_, lines):
        origin = re.search(r"http://127\.0\.0\.1:\d+(?=/\?token)", "\n".join(lines))
        assert origin is not None
        server: Any = SimpleNamespace(origin=origin[0])
        async with run_browser(server) as browser:
            yield browser, pages(lines)


async def open_platform(platforms: tuple[Browser, dict[str, str]], name: str, **options: Any) -> Any:
    """Open a platform's page in a tab that is signed in to the web page."""
    browser, urls = platforms
    tab = await browser.enter("signin", **options)
    await tab.page.goto(urls[name])
    await tab.page.locator("#say").wait_for()
    return tab


async def write(tab: Any, text: str) -> None:
    await tab.page.locator("#say").fill(text)
    await tab.page.keyboard.press("Enter")


async def add(tab: Any, kind: str, name: str) -> None:
    await tab.page.get_by_role("button", name=re.compile("^New (room or )?person")).click()
    if kind:
        await tab.page.get_by_role("dialog").get_by_role("button", name=kind, exact=True).click()
    await tab.page.get_by_label("Name").fill(name)
    await tab.page.keyboard.press("Enter")
    await tab.page.get_by_role("dialog").wait_for(state="detached")


async def open_room(tab: Any, name: str) -> None:
    await tab.page.get_by_role("link", name=name, exact=True).click()
    await tab.page.get_by_role("heading", level=1, name=name, exact=True).wait_for()


async def wait_for_reply(tab: Any, outcome: str) -> None:
    await tab.page.locator(".outcome", has_text=outcome).last.wait_for()
    await tab.page.locator(".msg:not(.theirs):not(.typing) .body").last.wait_for()


async def test_a_discord_channel_has_people_threads_files_and_receipts(platforms: Any) -> None:
    tab = await open_platform(platforms, "discord")
    page = tab.page
    await write(tab, "hello")
    await wait_for_reply(tab, "Answered: it was a direct message")
    await open_room(tab, "#general")
    await page.get_by_label("Who writes").select_option(label="Robin")
    await page.locator("input[type=file]").set_input_files([NOTES])
    await write(tab, "@Marlo **bold** __under__ ||secret||\n-# small\n> quoted\nbelow\n| a | b |\n|---|---|\n| 1 | 2 |")
    await wait_for_reply(tab, "Answered: Marlo was mentioned")
    text = page.locator(".msg.theirs .body").last
    shown = [await text.locator(tag).count() for tag in ("strong", "u", ".spoiler", "small", "table")]
    assert shown == [1, 1, 1, 1, 0]  # Discord has no tables
    assert (await text.locator("blockquote").inner_text()).strip() == "quoted"
    async with page.expect_download() as download:
        await page.get_by_role("link", name="notes.txt").click()
    assert (await (await download.value).path()).read_bytes() == NOTES["buffer"]
    await page.get_by_role("button", name="Why?").last.click()
    await page.get_by_role("dialog").get_by_text("How it was decided").wait_for()
    await page.get_by_role("button", name="Show the prompt").click()
    await page.get_by_role("dialog").locator(".sections summary").first.wait_for()
    await page.keyboard.press("Escape")

    message = page.locator(".msg.theirs").last
    await message.get_by_role("button", name="React").click()
    await page.get_by_role("menuitem", name="🎉").click()
    await message.get_by_role("button", name="🎉, 1").wait_for()
    await message.get_by_role("button", name="Edit").click()
    await page.get_by_label("Edit the message").fill("@Marlo hello once more")
    await page.get_by_role("button", name="Save").click()
    await message.get_by_text("edited").wait_for()

    await add(tab, "Person", "Ines")
    await open_room(tab, "Marlo and Ines")
    await open_room(tab, "#general")
    await add(tab, "Thread of this channel", "act two")
    await page.get_by_role("heading", level=1, name="#general, thread: act two").wait_for()
    await page.get_by_label("Who writes").select_option(label="Ines")
    await write(tab, "only between us")
    await page.locator(".msg.theirs", has_text="Ines").get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await page.get_by_text("only between us").wait_for(state="detached")
    await page.go_back()
    await page.get_by_role("heading", level=1, name="#general", exact=True).wait_for()


async def test_telegram_has_groups_topics_replies_and_pictures(platforms: Any) -> None:
    tab = await open_platform(platforms, "telegram")
    page = tab.page
    await write(tab, "hello")
    await wait_for_reply(tab, "Answered: it was a direct message")
    await add(tab, "Group", "Quay")
    await page.get_by_role("heading", level=1, name="Quay").wait_for()
    await add(tab, "Topic of this group", "lamps")
    await page.get_by_role("heading", level=1, name="Quay, topic: lamps").wait_for()
    await write(tab, "@marlo_bot see https://example.org")
    await wait_for_reply(tab, "Answered: Marlo was mentioned")
    assert await page.locator(".msg.theirs .body .named").inner_text() == "@marlo_bot"
    assert await page.locator(".msg.theirs .body a").get_attribute("rel") == "noopener noreferrer nofollow"
    await page.locator(".msg:not(.theirs)").last.get_by_role("button", name="Reply to Marlo").click()
    await page.locator("input[type=file]").set_input_files(
        [{"name": "lamp.png", "mimeType": "image/png", "buffer": PICTURE}]
    )
    await write(tab, "and this")
    await page.locator(".msg.theirs", has_text="and this").locator("img.pic").wait_for()
    await wait_for_reply(tab, "Answered: it was a reply")


async def test_a_post_on_x_becomes_a_conversation(platforms: Any) -> None:
    tab = await open_platform(platforms, "x")
    page = tab.page
    await add(tab, "", "Tom Tinker")
    await page.get_by_label("Who writes").select_option(label="@tom_tinker")
    await write(tab, "@marlo hello from the #quay")
    await wait_for_reply(tab, "Answered: Marlo was mentioned")
    assert await page.locator(".msg.theirs .named").all_inner_texts() == ["@marlo", "#quay"]
    await page.locator(".msg.theirs").get_by_role("button", name="React with ♥").click()
    await page.get_by_role("button", name="♥, 1").wait_for()
    await page.get_by_role("link", name="@marlo hello from the #quay").click()
    await page.get_by_role("heading", level=1, name="@marlo hello from the #quay").wait_for()
    await write(tab, "thank you")
    await page.locator(".msg.theirs", has_text="thank you").locator(".replied", has_text="@marlo").wait_for()


async def test_a_room_opens_at_its_newest_message_follows_new_ones_and_shows_own_ones(platforms: Any) -> None:
    tab = await open_platform(platforms, "discord")
    page = tab.page
    await add(tab, "Person", "Tilda")
    await add(tab, "Channel", "long")
    await page.get_by_role("heading", level=1, name="#long").wait_for()
    people = page.get_by_label("Who writes")
    await people.select_option(label="Robin")
    robin = await people.input_value()
    place = await page.evaluate("new URL(location.href).searchParams.get('room')")
    say = """([place, person, text]) => fetch(new URL("page/say", document.baseURI), { method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ place, person, text, answers: "", files: "" }) })"""
    for number in range(40):
        await page.evaluate(say, [place, robin, f"**message** {number}\n- one\n- two\n```python\nprint({number})\n```"])
        await page.locator(".msg .body", has_text=f"message {number}").wait_for()
        if number > 5:
            await wait_for_end(tab)
    await check_following(tab)
    await page.reload()
    await page.locator(".msg .body", has_text="message 39").wait_for()
    await check_following(tab)
    await scroll_up(tab)
    await people.select_option(label="Tilda")
    await page.evaluate(say, [place, robin, "from somebody else"])
    await page.get_by_role("button", name="1 new message ↓").wait_for()
    assert await page.locator(".log").evaluate("node => node.scrollTop") < 2
    await write(tab, "my own words")
    await page.locator(".msg", has_text="my own words").wait_for()
    await wait_for_end(tab)


async def test_without_the_sign_in_of_the_web_page_receipts_are_refused_with_the_way_to_it(platforms: Any) -> None:
    browser, urls = platforms
    tab = await browser.open_tab()
    await tab.page.goto(urls["discord"])
    await write(tab, "hello")
    await tab.page.get_by_role("button", name="Why?").last.click()
    await tab.page.get_by_role("dialog").get_by_text("open the link with the token").wait_for()
    tab.faults.clear()  # Chromium reports the answer 403


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
async def test_no_page_of_a_platform_has_a_violation_or_scrolls_sideways(
    platforms: Any, theme: str, width: int
) -> None:
    for name in ("discord", "telegram", "x"):
        tab = await open_platform(platforms, name, width=width, height=844, color_scheme=theme)
        await write(tab, f"@marlo hello, {theme} {width}")
        await tab.page.locator(".msg.theirs .body").last.wait_for()
        assert await tab.find_violations() == [], name
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        if width < 760:
            await tab.page.get_by_role("button", name="Rooms").click()
            assert await tab.find_violations() == [], name
            await tab.page.keyboard.press("Escape")
        await tab.page.get_by_role("button", name="Reply to").first.click()
        await tab.page.get_by_role("button", name="Do not reply").wait_for()
        assert await tab.find_violations() == [], name
