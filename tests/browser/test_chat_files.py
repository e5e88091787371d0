"""Files in the chat: by button, paste and drop, their limits, long texts, recordings, and the menu of commands."""

import os
import struct
import zipfile
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.web.config import Limits
from bot import Plugin, model
from bot.models import ImageDescriptionRequest, ModelType, TextResult, TranscriptionRequest
from tests.browser.conftest import Browser, BrowserPage, browse

pytestmark = pytest.mark.long

PASTE = """([kind, value]) => {
  const data = new DataTransfer();
  if (kind === "text") data.setData("text/plain", value);
  else data.items.add(new File([Uint8Array.from(value)], kind, { type: "image/png" }));
  const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
  document.getElementById("say").dispatchEvent(event);
  return event.defaultPrevented;
}"""
DROP = """(names) => {
  const data = new DataTransfer();
  for (const name of names) data.items.add(new File(["dropped " + name], name, { type: "text/plain" }));
  for (const type of ["dragenter", "dragover", "drop"]) {
    const target = document.querySelector(".log");
    target.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
  }
}"""
HIDDEN_NAME = "<img src=x onerror=alert(1)>.txt"


def draw_picture(size: int = 160) -> bytes:
    """Return a PNG with a diagonal."""
    rows = b"".join(
        b"\0" + b"".join(bytes((40, 120, 90) if abs(x - y) < 12 else (220, 230, 224)) for x in range(size))
        for y in range(size)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


PICTURE = draw_picture()


@model(ModelType.TRANSCRIPTION)
async def listen(agent: Any, request: TranscriptionRequest) -> TextResult:
    return TextResult("where are the parcels", "ear")


@model(ModelType.IMAGE_DESCRIPTION)
async def look(agent: Any, request: ImageDescriptionRequest) -> TextResult:
    return TextResult("<title>Line</title><description>A green diagonal.</description>", "eye")


SENSES = Plugin("senses", models=[listen, look])


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[Browser]:
    limits = Limits(max_file_bytes=200_000)
    async with browse(SENSES, settings={"BOT_DATA_DIR": str(tmp_path)}, limits=limits) as running:
        yield running


async def take_picture(tab: BrowserPage, name: str) -> None:
    """Store a picture of the page in the folder that PICTURES names, to look at it."""
    folder = os.environ.get("PICTURES")
    if not folder:
        return
    for width, height in ((390, 844), (1024, 768), (1440, 900)):
        await tab.page.set_viewport_size({"width": width, "height": height})
        for theme in ("light", "dark"):
            await tab.page.emulate_media(color_scheme=theme)
            await tab.page.screenshot(path=f"{folder}/{name}-{width}-{theme}.png")
    await tab.page.emulate_media(color_scheme="light")
    await tab.page.set_viewport_size({"width": 1280, "height": 800})


async def choose_files(tab: BrowserPage, *files: tuple[str, str, bytes]) -> None:
    """Add files by the button."""
    async with tab.page.expect_file_chooser() as choosing:
        await tab.page.get_by_role("button", name="Add files").click()
    chooser = await choosing.value
    await chooser.set_files([{"name": name, "mimeType": kind, "buffer": data} for name, kind, data in files])


async def wait_for_chips(tab: BrowserPage, *texts: str) -> None:
    for text in texts:
        await tab.page.locator(".tray .file", has_text=text).first.wait_for()
    await tab.page.locator(".tray progress").first.wait_for(state="detached")


async def test_files_are_added_by_button_paste_and_drop_and_are_shown_in_the_message(chat: Browser) -> None:
    tab = await chat.enter()
    page = tab.page
    await choose_files(tab, ("line.png", "image/png", PICTURE), ("notes.txt", "text/plain", b"Bring bread."))
    assert await page.evaluate(PASTE, ["pasted.png", list(PICTURE)])
    await page.evaluate(DROP, ["one.md", HIDDEN_NAME])
    await wait_for_chips(tab, "line.png", "notes.txt", "pasted.png", "one.md", HIDDEN_NAME)
    await page.get_by_role("button", name="Remove one.md").click()
    await page.locator(".tray .file", has_text="one.md").wait_for(state="detached")
    assert await tab.find_violations() == []
    await take_picture(tab, "tray")
    await page.keyboard.press("Enter")  # without a text
    await tab.wait_for_text("You said:")
    assert await page.locator(".tray .file").count() == 0
    mine = page.locator(".msg.me")
    assert await mine.locator("img.pic").count() == 2
    assert await mine.locator(".file", has_text="notes.txt").get_by_text("12 B").count() == 1
    assert await mine.locator(".file", has_text=HIDDEN_NAME).count() == 1
    await page.locator('.msg.me img[alt="A green diagonal."]').first.wait_for()
    assert await page.evaluate("[...document.querySelectorAll('.pic')].every((image) => image.naturalWidth === 160)")
    assert await tab.find_violations() == []
    await take_picture(tab, "message")
    await page.reload()
    await page.locator(".msg.me img.pic").first.wait_for()
    assert (await page.locator(".side .item").first.inner_text()).startswith("line.png")


async def test_a_person_downloads_what_is_kept_of_them(chat: Browser) -> None:
    tab = await chat.enter()
    await tab.write("My favourite colour is teal")
    await tab.wait_for_text("You said: My favourite")
    await tab.write("/export-me")
    async with tab.page.expect_download() as download:
        await tab.page.get_by_role("link", name="export-me").click()
    assert await tab.find_violations() == []
    await take_picture(tab, "export")
    file = await download.value
    with zipfile.ZipFile(await file.path()) as archive:
        assert any(b"teal" in archive.read(name) for name in archive.namelist())
    assert file.suggested_filename.endswith(".zip")


async def test_a_long_name_of_a_file_makes_no_page_wider(chat: Browser) -> None:
    for width in (390, 1440):
        tab = await chat.enter(width=width)
        await choose_files(tab, (f"{'x' * 300}.txt", "text/plain", b"long"))
        await tab.page.locator(".tray .file").wait_for()
        await tab.page.get_by_role("button", name="Send", exact=True).click()
        await tab.page.locator(".msg.me .file").last.wait_for()
        assert (
            await tab.page.evaluate(
                "(() => { const log = document.querySelector('.log'); return log.scrollWidth - log.clientWidth; })()"
            )
            == 0
        )


async def test_a_file_that_is_too_large_is_named_with_the_limit_before_anything_is_sent(chat: Browser) -> None:
    tab = await chat.enter()
    page = tab.page
    uploads: list[str] = []
    page.on("request", lambda request: uploads.append(request.url) if request.url.endswith("/api/files") else None)
    await choose_files(tab, ("film.mp4", "video/mp4", bytes(1_200_000)))
    await page.locator(".tray .refused", has_text="1.2 MB, the limit is 200 KB").wait_for()
    await page.get_by_role("textbox", name="Message to").fill("look at this")
    await page.keyboard.press("Enter")
    await page.get_by_text("Remove film.mp4").wait_for()
    assert (await page.locator(".msg").count(), uploads) == (0, [])
    await take_picture(tab, "refused")
    await choose_files(tab, *[(f"{number}.txt", "text/plain", b"text") for number in range(11)])
    await page.get_by_text("At most 10 files a message. Not added: 9.txt, 10.txt").wait_for()
    assert await tab.find_violations() == []
    await page.get_by_role("button", name="Remove film.mp4").click()
    await page.get_by_role("button", name="Send").click()
    await tab.wait_for_text("You said: look at this")


async def test_an_upload_that_failed_is_tried_again_and_chips_outlive_a_reload(chat: Browser) -> None:
    tab = await chat.enter()
    page = tab.page
    tab.may_lose_connection = True
    await page.route("**/api/files", lambda route: route.abort("connectionreset"))
    await choose_files(tab, ("notes.txt", "text/plain", b"Bring bread."))
    await page.locator(".tray .refused", has_text="the connection was lost").wait_for()
    await page.unroute("**/api/files")
    await page.get_by_role("button", name="Try again").click()
    await wait_for_chips(tab, "12 B")
    await page.reload()
    await wait_for_chips(tab, "notes.txt")
    await page.get_by_role("button", name="Send").click()
    await page.locator(".msg.me .file", has_text="notes.txt").wait_for()
    await tab.wait_for_text("You said:")


async def test_a_message_sent_during_an_upload_waits_for_it(chat: Browser) -> None:
    tab = await chat.enter()
    page = tab.page
    held: list[Any] = []
    await page.route("**/api/files", lambda route: held.append(route))
    await choose_files(tab, ("notes.txt", "text/plain", b"Bring bread."))
    await page.get_by_role("textbox", name="Message to").fill("with a file")
    await page.keyboard.press("Enter")
    await page.get_by_text("Sends when the files are uploaded").wait_for()
    assert await page.locator(".msg").count() == 0
    await held[0].continue_()
    await tab.wait_for_text("You said: with a file")
    await page.locator(".msg.me .file", has_text="notes.txt").wait_for()


async def test_a_long_pasted_text_becomes_a_file_and_can_be_put_back(chat: Browser) -> None:
    tab = await chat.enter()
    page = tab.page
    field = page.get_by_role("textbox", name="Message to")
    await field.fill("Read this: ")
    assert not await page.evaluate(PASTE, ["text", "x" * 4000])
    text = "\n".join(f"line {number} of a long text" for number in range(214))
    assert await page.evaluate(PASTE, ["text", text])
    await wait_for_chips(tab, "Pasted text, 214 lines")
    assert await field.input_value() == "Read this: "
    await take_picture(tab, "pasted")
    await page.get_by_role("button", name="Undo").click()
    assert await field.input_value() == f"Read this: {text}"
    assert await page.locator(".tray .file").count() == 0
    await field.fill("Read this.")
    await page.evaluate(PASTE, ["text", text])
    await wait_for_chips(tab, "Pasted text, 214 lines")
    await page.keyboard.press("Enter")
    await page.locator(".msg.me .file", has_text="Pasted text.txt").wait_for()
    [room] = (await chat.server.get("/api/rooms"))["rooms"]
    messages = (await chat.server.get(f"/api/rooms/{room['id']}/messages"))["messages"]
    [file] = next(message for message in messages if message["attachments"])["attachments"]
    stored = await chat.server.request("GET", file["url"], headers=chat.server.bearer)
    assert await stored.text() == text  # nothing is cut


async def test_a_voice_message_is_recorded_played_and_understood(chat: Browser) -> None:
    tab = await chat.enter()
    page = tab.page
    record = page.get_by_role("button", name="Record a voice message")
    await record.click()
    await page.get_by_role("button", name="Cancel").click()
    await record.wait_for()
    assert await page.locator(".tray .file").count() == 0
    await record.click()
    await page.locator(".recording .num", has_text="0:01").wait_for()
    await take_picture(tab, "recording")
    assert await tab.find_violations() == []
    await page.get_by_role("button", name="Done").click()
    await wait_for_chips(tab, "Voice message")
    await page.keyboard.press("Enter")
    await page.locator(".msg.me .sound", has_text="where are the parcels").wait_for()
    await page.locator(".msg.me audio").evaluate("(node) => { node.muted = true; return node.play(); }")
    await page.wait_for_function("() => document.querySelector('.msg.me audio').currentTime > 0")
    assert await tab.find_violations() == []
    await take_picture(tab, "voice")


async def test_without_a_model_that_understands_recordings_there_is_no_button_for_them(tmp_path: Path) -> None:
    async with browse(settings={"BOT_DATA_DIR": str(tmp_path)}) as running:
        tab = await running.enter()
        await tab.page.get_by_role("button", name="Add files").wait_for()
        assert await tab.page.get_by_role("button", name="Record a voice message").count() == 0


async def test_a_slash_opens_the_commands_and_the_keyboard_chooses_a_command(chat: Browser) -> None:
    tab = await chat.enter()
    page = tab.page
    field = page.get_by_role("textbox", name="Message to")
    await field.press_sequentially("/")
    options = page.get_by_role("option")
    await options.first.wait_for()
    assert await tab.find_violations() == []
    await take_picture(tab, "commands")
    await field.press_sequentially("h")
    await page.get_by_role("option", name="/help").wait_for()
    await page.keyboard.press("Escape")
    await options.first.wait_for(state="detached")
    await field.fill("/")
    await options.first.wait_for()
    names = [text.split()[0] for text in await options.all_inner_texts()]
    assert await page.locator("[role=option][aria-selected=true]").count() == 1
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    assert await field.input_value() == f"{names[1]} "
    await field.fill("/help")
    await page.get_by_role("option", name="/help").wait_for()
    await page.keyboard.press("Enter")
    await tab.wait_for_text("Only you see this")


async def test_on_a_phone_enter_breaks_the_line(chat: Browser) -> None:
    tab = await chat.enter(width=390, height=844, has_touch=True, is_mobile=True)
    field = tab.page.get_by_role("textbox", name="Message to")
    await field.tap()
    await tab.page.keyboard.type("one")
    await tab.page.keyboard.press("Enter")
    await tab.page.keyboard.type("two")
    assert await field.input_value() == "one\ntwo"
    await tab.page.get_by_role("button", name="Send").tap()
    await tab.wait_for_text("You said:")
