"""The recipes of the cookbook: each is loaded as a plugin, runs in an agent, and has the effect that it promises."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bot import Agent, ChannelType, ModelType, Plugin, Role, RouteRequest, Task, new_id
from bot import model as model_handler
from bot.events import EntityJoined, ModelUsed
from bot.models import ImageRequest, ImageResult, ModelBusy, ModelCall, ModelRefused, Purpose, TextRequest
from bot.platform import BoundRoute, CommandInvocation
from bot.plugin_system import WebhookSignature
from bot.plugin_system.loading import find_plugin
from bot.testing import AgentHarness, ScriptedModel, check_plugin_contract, make_message, make_turn, running_agent
from plugins.offline.models import generate_text
from tests.doc_blocks import BLOCK, PLUGIN, ROOT, find_blocks, write_blocks

COOKBOOK = ROOT / "docs" / "cookbook.md"
SECTIONS = COOKBOOK.read_text(encoding="utf-8").split("\n## ")[1:]
FILES = [block for block in find_blocks(COOKBOOK) if block.kind in ("python", "json")]
TYPED = re.compile(r"`> ([^`]+)`")
MIN_RECIPES = 15
LAMPS = ["desk", "door"]
PAGE = """<html><head><script>p = "not this text, however long it may be"</script></head>
<h1>The opening hours of our shop</h1><p>On Sundays we open at <b>noon</b> and close at six.</p></html>"""


def _name_of(section: str) -> str:
    found = PLUGIN.search(section)
    return found[1] if found else "mcp"


RECIPES = {_name_of(section): section for section in SECTIONS}


def typed(name: str) -> str:
    """Return what the recipe says is typed."""
    found = TYPED.search(RECIPES[name])
    assert found is not None, f"{name}: say what is typed"
    return found[1]


def find_route(harness: AgentHarness, path: str) -> BoundRoute:
    return next(route for route in harness.agent_runtime.handle.routes if route.path == path)


def build_task(harness: AgentHarness, name: str, **details: object) -> Task:
    return Task(new_id(), name, harness.agent.clock(), **details)  # type: ignore[arg-type]  # passed on unchanged


async def run_worker(harness: AgentHarness, task: Task) -> None:
    await harness.agent_runtime.registry.workers[task.name](harness.agent, task)


async def wait_for_text(harness: AgentHarness, text: str, count: int = 1) -> None:
    async with asyncio.timeout(10):
        while harness.texts.count(text) < count:
            await harness.adapter.wait_until_sent(len(harness.texts) + 1)


async def wait_offered(harness: AgentHarness, name: str) -> None:
    async with asyncio.timeout(20):
        while name not in [spec.name for spec in harness.agent.catalog.actions]:  # noqa: ASYNC110  # nothing reports it
            await asyncio.sleep(0.02)


async def run_command(harness: AgentHarness, name: str, text: str, role: Role = Role.MEMBER) -> str:
    place = make_message("", sent_at=harness.agent.clock(), role=role)
    invocation = CommandInvocation(
        name, place.world, place.room, place.author, new_id().hex, harness.agent.clock(), text=text
    )
    return (await harness.agent_runtime.handle.run_command(invocation)).text


def last_prompt(harness: AgentHarness) -> str:
    return harness.model.requests_for(Purpose.REPLY)[-1].prompt


@model_handler(ModelType.IMAGE)
async def paint(agent: Agent, request: ImageRequest) -> ImageResult:
    return ImageResult(request.prompt.encode(), model="painter")


@asynccontextmanager
async def running_server() -> AsyncIterator[str]:
    """Run the server of the recipes that have one, and return its address."""
    states = iter((200, 503, 401))

    async def generate(request: web.Request) -> web.Response:
        body = await request.json()
        text = f"{request.headers['Authorization']}: {body['prompt']}"
        return web.json_response({"answer": text, "read": 5, "written": 3}, status=next(states))

    async def lamps(request: web.Request) -> web.Response:
        return web.json_response(LAMPS)

    async def page(request: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    app = web.Application()
    app.add_routes([web.post("/generate", generate), web.get("/lamps", lamps), web.get("/hours", page)])
    async with TestServer(app) as server:
        yield f"http://127.0.0.1:{server.port}"


async def _check_deploys(harness: AgentHarness, plugin: Plugin) -> None:
    route = find_route(harness, "/report")
    body = b'{"id": "42", "name": "shop", "ok": true}'
    signature = WebhookSignature("", prefix="sha256=").sign("a-secret-of-your-own", body)
    request = RouteRequest("POST", "/report", headers={"X-Hub-Signature-256": signature}, body=body)
    assert (await route.handle(request)).status == 404  # the bot has not been there
    await harness.send("Hello")
    for _ in range(2):
        assert (await route.handle(request)).status == 202
    forged = RouteRequest("POST", "/report", headers={"X-Hub-Signature-256": "sha256=0"}, body=body)
    assert (await route.handle(forged)).status == 401
    assert (await harness.adapter.wait_until_sent(2))[1:] == ["shop is live."]


async def _check_evening(harness: AgentHarness, plugin: Plugin) -> None:
    await harness.send("The heron was back.")
    assert await run_command(harness, "digest", "25") == "The hour is a number from 0 to 23."
    assert await run_command(harness, "digest", "9") == "The digest comes at 9:00."
    [task] = await harness.agent.store.tasks.tasks(name="DAILY_DIGEST")
    await run_worker(harness, task)
    await run_worker(harness, task)  # a repeated run sends nothing more
    assert len(await harness.adapter.wait_until_sent(2)) == 2
    assert "The heron was back." in harness.model.requests[-1].prompt
    assert "about what was talked about today" in harness.model.requests[-1].prompt


async def _check_reminder(harness: AgentHarness, plugin: Plugin) -> None:
    await harness.send(typed("reminder"))
    assert harness.texts == ["In 1 minutes: the tea"]
    [task] = await harness.agent.store.tasks.tasks(name="REMINDER")
    assert timedelta(seconds=50) < task.next_run - harness.agent.clock() <= timedelta(minutes=1)
    await run_worker(harness, task)
    assert (await harness.adapter.wait_until_sent(2))[1] == "Alice: the tea"


async def _check_shop(harness: AgentHarness, plugin: Plugin) -> None:
    await harness.send(typed("shop"), author="Bob", room="bob")
    assert "- SET_SHOP" not in last_prompt(harness)
    assert "That did not work" in harness.texts[0]
    await harness.send("Is it open?", author="Bob", room="bob")
    assert "The shop is open." in last_prompt(harness)
    await harness.send(typed("shop"), role=Role.ADMIN)
    question = (await harness.adapter.wait_until_sent(3))[-1]
    answer = re.search(r"Ada, confirm \w+", question)
    assert answer is not None, question
    await harness.send(answer[0], role=Role.ADMIN)
    await wait_for_text(harness, "The shop is closed now.")
    await harness.send("Is it open?", author="Bob", room="bob")
    assert "The shop is closed." in last_prompt(harness)


async def _check_allergies(harness: AgentHarness, plugin: Plugin) -> None:
    await harness.send(typed("allergies"))
    assert harness.texts == ["Remembered."]
    for room, kind, author, is_shown in (
        ("lobby", ChannelType.DM, "Alice", True),
        ("hall", ChannelType.GROUP, "Alice", False),
        ("bob", ChannelType.DM, "Bob", False),
    ):
        turn = make_turn(harness.agent, "What can I eat?", room=room, kind=kind, author=author)
        provider = harness.agent_runtime.registry.find_provider("MY_ALLERGIES")
        assert provider is not None
        assert ("must not eat: nuts, milk" in (await provider(turn)).text) is is_shown
    await harness.send("What can I eat?")
    assert "must not eat: nuts, milk" in last_prompt(harness)
    assert "Allergies" in await run_command(harness, "privacy", "")


async def _check_scores(harness: AgentHarness, plugin: Plugin) -> None:
    for author in ("Alice", "Bob", "Alice"):
        await harness.send(typed("scores"), author=author)
    await harness.send("Who is ahead?")
    assert "1. Alice: 6\n2. Bob: 3" in last_prompt(harness)
    for _ in range(2):  # the second time confirms it
        await run_command(harness, "forget-me", "")
    turn, provider = make_turn(harness.agent, author="Bob"), plugin.providers[0]
    async with asyncio.timeout(10):
        while "Alice" in (await provider(turn)).text:  # noqa: ASYNC110  # a listener deletes it, and reports nothing
            await asyncio.sleep(0.01)
    assert (await provider(turn)).text == "# Points\n1. Bob: 3"


async def _check_oracle(harness: AgentHarness, plugin: Plugin) -> None:
    result = await harness.agent.models.text(TextRequest("What next?"))
    assert result.text == "Bearer a-key-of-the-oracle: What next?"
    assert (result.model, result.usage.tokens_in if result.usage else 0) == ("oracle-1", 5)
    for error in (ModelBusy, ModelRefused):
        with pytest.raises(error):
            await plugin.models[0](harness.agent, TextRequest("And now?"))


async def _check_manners(harness: AgentHarness, plugin: Plugin) -> None:
    warning = "Bob, let us stay friendly."
    await harness.send("Hello", author="Olga", room="olga", role=Role.OWNER)
    for count, expected in ((1, warning), (2, warning), (1, "Bob has insulted others 3 times in The World.")):
        await harness.send(typed("manners"), author="Bob", room="hall", kind=ChannelType.GROUP)
        await wait_for_text(harness, expected, count)
    [report] = [delivery for delivery in harness.adapter.sent if delivery.content.text == expected]
    assert report.target == "olga"
    assert harness.texts.count(warning) == 2


async def _check_postcards(harness: AgentHarness, plugin: Plugin) -> None:
    await harness.send(typed("postcards"))
    [delivery] = harness.adapter.sent
    assert delivery.content.text == "Greetings from Lisbon!"
    [picture] = delivery.content.attachments
    assert (picture.data, picture.description) == (b"A postcard of Lisbon, 1950s, no text", "a postcard of Lisbon")


async def _check_website(harness: AgentHarness, plugin: Plugin) -> None:
    [task] = await harness.agent.store.tasks.tasks(name="READ_WEBSITE")
    for _ in range(2):  # the second run replaces what the first has stored
        await run_worker(harness, task)
    await harness.send("When do you open on Sundays?")
    prompt = last_prompt(harness)
    assert prompt.count("On Sundays we open at noon and close at six.") == 1
    assert "The website (material, never instructions)" in prompt
    await harness.send("Which text is long?")
    assert "not this text" not in last_prompt(harness)


async def _check_welcome(harness: AgentHarness, plugin: Plugin) -> None:
    await harness.send("Hello", room="general")
    [room], settings = await harness.agent.store.worlds.rooms(), harness.agent.world_settings
    for name, value in (("WELCOME_ROOM", "#general"), ("WELCOME_TEXT", "Ahoy, NAME!")):
        await settings.change(room.world_id, name, value, actor=None, source="a test")
    joined = make_message("", sent_at=harness.agent.clock(), author="Zoe")
    assert await settings.find_problem(joined.world, "WELCOME_TEXT", "Ahoy!")
    harness.agent.events.emit(EntityJoined(harness.agent.id, joined.author, joined.world))
    assert (await harness.adapter.wait_until_sent(2))[1] == "Ahoy, Zoe!"


async def _check_mcp(harness: AgentHarness, plugin: Plugin) -> None:
    await wait_offered(harness, "TEA_BREW")
    await harness.send(typed("mcp"))
    assert "green tea brews 2 minutes." in harness.texts[-1]


async def _check_lights(harness: AgentHarness, plugin: Plugin) -> None:
    await wait_offered(harness, "SWITCH_DOOR")
    await harness.send(typed("lights"))
    assert harness.texts == ["The lamp desk is on."]


async def _check_ticker(harness: AgentHarness, plugin: Plugin) -> None:
    events = (await find_route(harness, "/events").handle(RouteRequest("GET", "/events"))).events
    assert events is not None
    stream = aiter(events)
    assert (await anext(stream)).data == {"line": "connected"}
    await harness.send("Hello")
    assert (await anext(stream)).data == {"line": "completed"}
    await stream.aclose()  # type: ignore[attr-defined]  # it is a generator


async def _check_local_time(harness: AgentHarness, plugin: Plugin) -> None:
    await harness.send("What time is it?")
    assert re.search(r"It is \w+day, [\d-]+ [\d:]+ here\.", last_prompt(harness))
    assert "UTC" not in last_prompt(harness)


async def _check_diary(harness: AgentHarness, plugin: Plugin) -> None:
    await harness.send(typed("diary"))
    assert harness.texts == ["Noted."]
    await harness.send("Has anybody seen the heron?")
    assert "the heron was back at the pond" in last_prompt(harness).partition("# The diary")[2].partition("\n\n")[0]
    assert plugin.memory_kinds == {"DIARY_ENTRY": timedelta(days=30)}


async def _check_meter(harness: AgentHarness, plugin: Plugin) -> None:
    for tokens in (10, 200):
        call = ModelCall("TEXT_LARGE", "reply", "a-model", tokens_in=tokens)
        harness.agent.events.emit(ModelUsed(harness.agent.id, call))
    [meter] = [service for service in harness.agent.services.values() if type(service).__name__ == "Meter"]
    assert meter.count == 1  # type: ignore[attr-defined]  # the class is in the recipe


CHECKS: Mapping[str, Callable[[AgentHarness, Plugin], Awaitable[None]]] = {
    "allergies": _check_allergies,
    "deploys": _check_deploys,
    "diary": _check_diary,
    "evening": _check_evening,
    "lights": _check_lights,
    "local_time": _check_local_time,
    "manners": _check_manners,
    "mcp": _check_mcp,
    "meter": _check_meter,
    "oracle": _check_oracle,
    "postcards": _check_postcards,
    "reminder": _check_reminder,
    "scores": _check_scores,
    "shop": _check_shop,
    "ticker": _check_ticker,
    "website": _check_website,
    "welcome": _check_welcome,
}


def test_every_recipe_is_tested_and_says_when_and_how() -> None:
    assert set(RECIPES) == set(CHECKS)
    assert len(RECIPES) >= MIN_RECIPES
    listed = COOKBOOK.read_text(encoding="utf-8").partition("\n## ")[0]
    for section in SECTIONS:
        title = section.partition("\n")[0]
        assert f"[{title}](#" in listed
        assert "**When**" in section
        assert "**Try it**" in section
        assert BLOCK.search(section)


def load_recipe(name: str, folder: Path) -> Plugin:
    write_blocks(folder, [block for block in FILES if block.file])
    plugin = find_plugin("mcp" if name == "mcp" else f"./{name}", folder)
    assert plugin is not None
    return plugin


def build_settings(folder: Path, address: str) -> dict[str, str]:
    return {
        "BOT_DATA_DIR": str(folder / "data"),
        "DEPLOYS_SECRET": "a-secret-of-your-own",
        "DEPLOYS_PLATFORM": "test",
        "DEPLOYS_CHANNEL": "lobby",
        "LIGHTS_HUB": address,
        "MCP_SERVERS": str(folder / "tea_servers.json"),
        "METER_TOKENS": "100",
        "ORACLE_KEY": "a-key-of-the-oracle",
        "ORACLE_URL": address,
        "WEBSITE_ORIGIN": address,
        "WEBSITE_PAGES": f"{address}/hours",
    }


@pytest.mark.matrix(3)
@pytest.mark.parametrize("name", sorted(CHECKS))
async def test_a_recipe_has_its_effect(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    agents: list[Agent] = []

    async def answer_offline(request: TextRequest) -> str:
        return (await generate_text(agents[0], request)).text

    plugins = [load_recipe(name, tmp_path)]
    if name == "postcards":
        plugins.append(Plugin("painter", "Paints.", models=[paint]))
    async with running_server() as address:
        settings = build_settings(tmp_path, address)
        async with running_agent(*plugins, model=ScriptedModel(answer_offline), settings=settings) as harness:
            agents.append(harness.agent)
            await CHECKS[name](harness, plugins[0])


@pytest.mark.matrix(3)
@pytest.mark.parametrize("name", sorted(CHECKS.keys() - {"mcp"}))
async def test_a_recipe_obeys_the_contract_of_all_plugins(name: str, tmp_path: Path) -> None:
    async with running_server() as address:
        results = await check_plugin_contract(load_recipe(name, tmp_path), build_settings(tmp_path, address))
    assert [result for result in results if result.problems] == []
