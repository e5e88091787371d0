"""A real browser on a real server with a scripted model; what the browser complains of fails the test."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bot import Plugin
from tests.adapters.web.conftest import TOKEN, RunningServer, run_server
from tests.browser.workshop import Workshop, run_workshop

AXE = Path(__file__).parents[2] / ".peers" / "node_modules" / "axe-core" / "axe.min.js"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-default-apps"),
    *("--disable-sync", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),
)
# Chromium's advice about password forms is no fault of the page: the sign-in form has no user name.
ADVICE = "Password forms should have"
EXPECTED_LOSS = (
    *("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "ERR_INTERNET_DISCONNECTED"),
    "WebSocket connection to",
)

REPORT_CSP = """addEventListener("securitypolicyviolation",
  (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`))"""


def find_browser() -> str | None:
    """Return the path of the system's Chromium; `CHROMIUM` names another one."""
    return os.environ.get("CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


class BrowserPage:
    """A tab, and everything that it must not do: errors in the console, CSP reports, requests to other hosts."""

    def __init__(self, page: Any, server: RunningServer) -> None:
        self.page, self.server = page, server
        self.faults: list[str] = []
        self.may_lose_connection = False
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", self._on_request)

    def _on_console(self, message: Any) -> None:
        is_expected = ADVICE in message.text or (
            self.may_lose_connection and any(text in message.text for text in EXPECTED_LOSS)
        )
        if message.type in {"error", "warning"} and not is_expected:
            self.faults.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Any) -> None:
        url = urlsplit(request.url)
        if url.scheme not in {"data", "blob"} and url.hostname != "127.0.0.1":
            self.faults.append(f"request to another host: {request.url}")

    async def open(self, path: str = "") -> None:
        await self.page.goto(f"{self.server.origin}/{path}")

    async def sign_in(self, path: str = "") -> None:
        """Open the page as a stranger and sign in with the token."""
        await self.open(path)
        await self.page.get_by_label("Token").fill(TOKEN)
        await self.page.keyboard.press("Enter")
        await self.page.locator(".side").wait_for(state="attached")

    async def write(self, text: str) -> None:
        await self.page.get_by_role("textbox", name="Message to").fill(text)
        await self.page.keyboard.press("Enter")

    async def wait_for_text(self, text: str, *, exact: bool = False) -> Any:
        found = self.page.get_by_text(text, exact=exact).last
        await found.wait_for()
        return found

    async def find_violations(self) -> list[str]:
        """Return what axe-core finds, best practices included."""
        if not AXE.exists():
            pytest.skip("axe-core is not here: `make axe` downloads it")
        result = await self.page.evaluate(AXE.read_text() + "; axe.run(document, {resultTypes: ['violations']})")
        return [f"{item['id']}: {item['nodes'][0]['html']}" for item in result["violations"]]


class Browser:
    """A browser with tabs on one server."""

    def __init__(self, browser: Any, server: RunningServer) -> None:
        self._browser, self.server = browser, server
        self.pages: list[BrowserPage] = []

    async def open_tab(
        self, *, width: int = 1280, height: int = 800, context: Any = None, **options: Any
    ) -> BrowserPage:
        """Open a tab in a context of its own, or in that of another tab."""
        shared = context or await self._browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", **options
        )
        shared.set_default_timeout(40_000)  # of a machine that runs other tests too
        if context is None:
            await shared.add_init_script(REPORT_CSP)
        page = BrowserPage(await shared.new_page(), self.server)
        self.pages.append(page)
        return page

    async def sign_in(self, path: str = "", **options: Any) -> BrowserPage:
        page = await self.open_tab(**options)
        await page.sign_in(path)
        return page

    async def enter(self, path: str | None = "", *, token: str = TOKEN, **options: Any) -> BrowserPage:
        """Open a tab that is signed in already; faster than by the page."""
        page = await self.open_tab(**options)
        await page.page.context.request.post(
            f"{self.server.origin}/api/session", data={"token": token}, headers={"Origin": self.server.origin}
        )
        if path is not None:
            await page.open(path)
        return page

    async def close_tabs(self) -> None:
        """Close all tabs; what they complained of fails the test."""
        closed, self.pages = self.pages, []
        for context in {page.page.context for page in closed}:
            await context.close()
        assert [fault for page in closed for fault in page.faults] == []


@asynccontextmanager
async def run_browser(server: RunningServer) -> AsyncIterator[Browser]:
    """Run the system's Chromium during the block; skip the test without one."""
    playwright = pytest.importorskip("playwright.async_api", reason="Playwright is not installed: `make test` does it")
    path = find_browser()
    if path is None:
        pytest.skip("there is no Chromium here: install Debian's package chromium, or name one by CHROMIUM")
    async with playwright.async_playwright() as started:
        process = await started.chromium.launch(executable_path=path, args=list(FLAGS))
        browser = Browser(process, server)
        try:
            yield browser
        finally:
            async with asyncio.timeout(20):
                await process.close()
    faults = [fault for page in browser.pages for fault in page.faults]
    assert faults == []


@asynccontextmanager
async def browse(*plugins: Plugin, **details: Any) -> AsyncIterator[Browser]:
    """Run a server for Marlo with these plugins, and a browser for it."""
    async with run_server(*plugins, **{"names": ("Marlo",), **details}) as server, run_browser(server) as running:
        yield running


@pytest.fixture(autouse=True)
def show_drafts_whole(nothing_held_back: None) -> None:
    """Show texts while they are written to their end."""


@pytest.fixture
def open_browser() -> Callable[..., AbstractAsyncContextManager[Browser]]:
    return browse


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with browse() as running:
        yield running


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Run the tests of a module in one event loop, in which their bot and browser run."""
    return "asyncio"


@pytest.fixture(scope="module")
async def workshop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    """Run one bot with data for every page, for all tests of a module."""
    async with run_workshop(tmp_path_factory.mktemp("workshop")) as running:
        yield running


@pytest.fixture(scope="module")
async def workshop_browser(workshop: Workshop) -> AsyncIterator[Browser]:
    async with run_browser(workshop.server) as running:
        yield running


@pytest.fixture
async def visitor(workshop_browser: Browser) -> AsyncIterator[Browser]:
    """Return the browser of the workshop; its tabs are closed after the test, which fails if one complained."""
    yield workshop_browser
    await workshop_browser.close_tabs()
