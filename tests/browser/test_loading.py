"""What is loaded first, signing in and out, and the app behind a path prefix of a proxy."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession, WSMsgType, web

from tests.adapters.web.conftest import TOKEN

pytestmark = pytest.mark.long
BUDGET = 120 * 1024  # bytes of the first load of either part, uncompressed
OVERVIEW_BUDGET = 160 * 1024  # with the modules of the overview and its plots
HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "content-encoding", "keep-alive", "upgrade"}


async def hold(route: Any) -> None:
    """Leave a request without an answer."""


async def measure(tab: Any, path: str, text: str) -> int:
    """Return the bytes of the files that a page has loaded when it shows a text, uncompressed."""
    responses: list[Any] = []
    tab.page.on("response", lambda response: responses.append(response))
    await tab.open(path)
    await tab.page.get_by_text(text).locator("visible=true").first.wait_for()
    files = {answer.url: answer for answer in responses if "/api/" not in answer.url and answer.ok}
    return sum([len(await answer.body()) for answer in files.values()])


@pytest.mark.parametrize(
    ("path", "text"), [("", "New conversation"), ("console", "Search everything"), ("signin", "Enter")]
)
async def test_the_first_load_of_each_part_stays_within_its_budget(visitor: Any, path: str, text: str) -> None:
    tab = await visitor.enter(None)
    for module in ("console/overview.js", "chat/attachments.js"):  # what is loaded after the first paint
        await tab.page.route(f"**/js/{module}", hold)
    assert BUDGET / 4 < await measure(tab, path, text) <= BUDGET


async def test_the_overview_is_complete_with_at_most_160_kilobytes(visitor: Any) -> None:
    assert await measure(await visitor.enter(None), "console", "Failures by cause") <= OVERVIEW_BUDGET


async def test_the_overview_is_painted_after_two_requests(visitor: Any) -> None:
    tab = await visitor.enter("signin")
    released, asked = asyncio.Event(), []

    async def hold(route: Any) -> None:
        asked.append(route.request.url.partition("/api/")[2])
        if not asked[-1].startswith("session"):
            await released.wait()
        await route.continue_()

    await tab.page.route("**/api/**", hold)
    await tab.open("console")
    async with tab.page.expect_request("**/api/overview") as request:
        pass
    await tab.page.get_by_text("Search everything").wait_for()
    assert "/api/overview" in (await request.value).url
    assert {*asked} - {"drafts?limit=1"} == {"overview", "session"}  # the count in the navigation is not waited for
    released.set()
    await tab.page.get_by_text("Spent today (UTC)").wait_for()


async def test_a_person_signs_in_by_link_and_out(workshop: Any, visitor: Any) -> None:
    tab = await visitor.open_tab()
    await tab.open(f"console/tasks?token={TOKEN}")
    await tab.page.get_by_text("Order more thread").wait_for()
    assert TOKEN not in tab.page.url
    other = await visitor.open_tab(context=tab.page.context)
    await other.open("console/people")
    await other.page.get_by_role("link", name="Eve", exact=True).wait_for()
    await tab.page.get_by_role("button", name="Sign out").click()
    await tab.page.get_by_label("Token").wait_for()
    await other.open("console/people?q=Eve")
    await other.page.get_by_label("Token").fill(TOKEN)
    await other.page.keyboard.press("Enter")
    await other.page.get_by_role("link", name="Eve", exact=True).wait_for()  # it comes back to where it was
    assert other.page.url.endswith("console/people?q=Eve")


@asynccontextmanager
async def run_proxy(origin: str, prefix: str) -> AsyncIterator[str]:
    """Run a reverse proxy that removes a prefix during the block; yield its address."""
    async with ClientSession(auto_decompress=False) as session:

        async def forward(request: web.Request) -> web.StreamResponse:
            url = origin + request.raw_path.removeprefix(prefix)
            headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await _join(request, url, headers)
            answer = await session.request(
                request.method, url, headers=headers, data=await request.read(), allow_redirects=False
            )
            kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP]
            response = web.Response(status=answer.status, body=await answer.read())
            for name, value in kept:
                response.headers.add(name, value)
            return response

        async def _join(request: web.Request, url: str, headers: dict[str, str]) -> web.StreamResponse:
            front = web.WebSocketResponse()
            await front.prepare(request)
            own = {name: value for name, value in headers.items() if not name.lower().startswith("sec-websocket")}
            async with session.ws_connect(url, headers=own) as back, asyncio.TaskGroup() as group:
                group.create_task(_copy(front, back))
                group.create_task(_copy(back, front))
            return front

        async def _copy(source: Any, target: Any) -> None:
            async for message in source:
                if message.type is WSMsgType.TEXT:
                    await target.send_str(message.data)
            await target.close()

        app = web.Application()
        app.router.add_route("*", f"{prefix}/{{tail:.*}}", forward)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}{prefix}"
        finally:
            await runner.cleanup()


async def test_the_app_works_behind_a_path_prefix(workshop: Any, visitor: Any) -> None:
    async with run_proxy(workshop.server.origin, "/bots/marlo") as base:
        tab = await visitor.open_tab()
        page = tab.page
        await page.goto(f"{base}/console/people?q=Eve")
        await page.get_by_label("Token").fill(TOKEN)
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="Eve", exact=True).click()
        await page.get_by_text("What is known").wait_for()
        assert page.url.startswith(f"{base}/console/people/")
        await page.go_back()
        await page.get_by_role("link", name="Eve", exact=True).wait_for()
        await page.keyboard.press("Control+k")
        await page.get_by_role("combobox", name="Search a page").fill("doctor")
        await page.get_by_role("option", name="Doctor").click()
        await page.wait_for_url(f"{base}/console/doctor")
        await page.get_by_role("link", name="Tasks").click()
        await page.get_by_text("Order more thread").wait_for()
        await page.get_by_role("link", name="Chat", exact=True).click()
        await tab.write("Is there a prefix?")
        await tab.wait_for_text("You said: Is there a prefix?")
        assert page.url.startswith(f"{base}/c/")
        await page.reload()
        await tab.wait_for_text("You said: Is there a prefix?")
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_label("Token").wait_for()
        assert page.url.startswith(f"{base}/signin")
        await visitor.close_tabs()


# Draws a text whose module is loaded by another one after it was drawn, and before its effects run.
LOADED_BETWEEN = """async () => {
  const [{ html, render, useLayoutEffect }, { lazy, Markdown }] = await Promise.all(
    ["lib", "thread"].map((name) => import(new URL(`pages/js/${name}.js`, document.baseURI))));
  const part = lazy(() => new Promise(() => {}));
  const module = { draw: (box, text) => box.append(text, ", formatted") };
  const Other = () => void useLayoutEffect(() => { part.module = module; }, []);
  const draw = (loaded, ...details) => loaded.draw(...details);
  const box = document.createElement("div");
  document.body.append(box);
  render(html`<${Markdown} text="hello" part=${part} draw=${draw} /><${Other} />`, box);
  for (let frame = 0; frame < 5; frame += 1) await new Promise((done) => requestAnimationFrame(done));
  return box.textContent;
}"""


async def test_a_text_is_formatted_by_a_module_that_was_loaded_after_it_was_drawn(visitor: Any) -> None:
    tab = await visitor.enter("signin")
    assert await tab.page.evaluate(LOADED_BETWEEN) == "hello, formatted"
