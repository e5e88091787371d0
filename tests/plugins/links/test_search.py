"""Rules of WEB_SEARCH: what each service is asked, and that an answer cites only what a search has found."""

from typing import Any

import pytest
from aiohttp import web

from bot import ChannelType, Settings
from bot.models import Purpose, TextRequest
from bot.settings import Layer
from bot.testing import ScriptedModel, model_answer
from plugins.links.pages import LinkSettings
from plugins.links.search import build_request
from tests.plugins.links.web import ARTICLE, Web, reading, serve_web

FIRST, SECOND = "http://news.example/bees", "https://honey.example/"
GROUP = ChannelType.GROUP
KEY = "search-key-1234567890"


@pytest.fixture
async def services() -> Any:
    async with serve_web() as found:
        yield found


def answering(text: str, query: str = "bees in town") -> ScriptedModel:
    """Return a model that searches once for each message, and then writes this text."""

    def write(request: TextRequest) -> str:
        if request.purpose is Purpose.SUMMARY:
            return model_answer(text)
        return model_answer("", actions=["WEB_SEARCH"], parameters={"WEB_SEARCH": {"query": query}})

    return ScriptedModel(write)


def results(*urls: str, **details: Any) -> Any:
    """Return the answer of every service to a search that has found these pages."""
    items = [
        {
            "url": url,
            "title": f"Page {number}",
            **dict.fromkeys(("content", "text", "description"), "Bees <b>hum</b> &amp; fly."),
        }
        for number, url in enumerate(urls, 1)
    ]

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"results": items, "web": {"results": items}, **details})

    return answer


@pytest.mark.parametrize(
    ("engine", "path", "header", "sent"),
    [
        ("tavily", "/search", ("Authorization", f"Bearer {KEY}"), {"query": "bees in town", "max_results": 5}),
        (
            "exa",
            "/search",
            ("x-api-key", KEY),
            {"query": "bees in town", "numResults": 5, "contents": {"text": {"maxCharacters": 300}}},
        ),
        (
            "brave",
            "/res/v1/web/search",
            ("X-Subscription-Token", KEY),
            "q=bees in town&count=5&safesearch=strict&text_decorations=false&result_filter=web",
        ),
        ("searxng", "/search", ("Accept", "application/json"), "q=bees in town&format=json"),
    ],
)
async def test_each_service_is_asked_as_it_describes_and_its_results_are_cited(
    services: Web, engine: str, path: str, header: tuple[str, str], sent: Any
) -> None:
    services.pages[path] = results(FIRST, SECOND, costDollars={"total": 0.007})
    model = answering("They hum [2].")
    settings = {"WEB_SEARCH": engine, "WEB_SEARCH_KEY": KEY, "WEB_SEARCH_URL": services.url}
    async with reading(services, model, **settings) as harness:
        receipt = await harness.send("Ada, what do bees do?", kind=GROUP)
        assert harness.texts == [f"They hum [2].\n\n[2] {SECOND}"]
    [request] = services.asked
    [(headers, body)] = services.requests
    assert request.startswith(f"{services.url}{path}")
    assert headers[header[0]] == header[1]
    assert sent == (body or request.partition("?")[2])
    [prompt] = [request.prompt for request in model.requests if request.purpose is Purpose.SUMMARY]
    assert f"[1] Page 1 ({FIRST}): Bees hum & fly." in prompt
    [call] = [call for call in receipt.model_calls if call.type == "WEB_SEARCH"]
    cost = 0.0 if engine == "searxng" else 0.007
    assert (call.model, call.cost) == (engine, cost)


async def test_a_search_is_counted_among_the_costs_at_the_operators_price(services: Web) -> None:
    services.pages["/search"] = results(FIRST)
    settings = {"WEB_SEARCH": "tavily", "WEB_SEARCH_KEY": KEY, "WEB_SEARCH_URL": services.url}
    async with reading(services, answering("Well."), **settings, MODEL_PRICES="tavily=0.008/call") as harness:
        receipt = await harness.send("Ada, what do bees do?", kind=GROUP)
        assert harness.agent.budget.spent_in(receipt.room_id) == 0.008
    [call] = [call for call in receipt.model_calls if call.type == "WEB_SEARCH"]
    assert call.cost == 0.008


def test_a_query_has_no_more_words_than_brave_takes() -> None:
    assert build_request("brave", "bee " * 60, KEY).query == {
        **(build_request("brave", "x", KEY).query or {}),
        "q": " ".join(["bee"] * 50),
    }


async def test_a_number_or_link_that_no_search_has_found_is_no_citation(services: Web) -> None:
    services.pages["/search"] = results(FIRST)
    text = "They hum [1], and dance [7] (https://evil.example/).\n[1] https://evil.example/dance"
    settings = {"WEB_SEARCH": "searxng", "WEB_SEARCH_URL": services.url}
    async with reading(services, answering(text), **settings) as harness:
        await harness.send("Ada, what do bees do?", kind=GROUP)
        shown = f"They hum [1], and dance [7] (https://evil.example/).\n\n[1] {FIRST}"
        assert harness.texts == [shown]


async def test_results_that_lead_to_closed_addresses_are_left_out(services: Web) -> None:
    closed = (
        *("http://127.0.0.1/admin", "http://localhost/x", "http://[::1]/", "http://printer.local/", "http://10.0.0.1/"),
        *("http://user@news.example/", "javascript:alert(1)", "http://2130706433/", "http://a.example/\nforged line"),
    )
    services.pages["/search"] = results(*closed, FIRST)
    settings = {"WEB_SEARCH": "searxng", "WEB_SEARCH_URL": services.url}
    async with reading(services, answering("[1] [2] [3]"), **settings) as harness:
        await harness.send("Ada, what do bees do?", kind=GROUP)
        assert harness.texts == [f"[1] [2] [3]\n\n[1] {FIRST}"]


@pytest.mark.long
async def test_a_page_that_a_search_has_found_may_be_read_in_that_room_alone(services: Web) -> None:
    services.pages |= {"/search": results(FIRST), FIRST: ARTICLE.format(more="")}
    calls = ["WEB_SEARCH", "READ_LINK", "READ_LINK"]

    def write(request: TextRequest) -> str:
        if request.purpose is not Purpose.REPLY:
            return model_answer("Done.")
        name = calls.pop(0)
        return model_answer(
            "", actions=[name], parameters={name: {"query": "x"} if name == "WEB_SEARCH" else {"url": FIRST}}
        )

    settings = {"WEB_SEARCH": "searxng", "WEB_SEARCH_URL": services.url}
    async with reading(services, ScriptedModel(write), **settings) as harness:
        await harness.send("Ada, search", kind=GROUP)
        await harness.send("Ada, read it", kind=GROUP, room="another")
        assert services.pages_asked()[1:] == []
        await harness.send("Ada, read it", kind=GROUP)
        assert services.pages_asked()[1:] == [FIRST]
        assert harness.texts[-1] == "Done.\n\n(read: Town News (news.example))"


async def test_no_secret_is_searched_for_and_no_room_searches_without_end(services: Web) -> None:
    services.pages["/search"] = results(FIRST)
    settings = {"WEB_SEARCH": "tavily", "WEB_SEARCH_KEY": KEY, "WEB_SEARCH_URL": services.url, "WEB_SEARCH_LIMIT": "1"}
    async with reading(services, answering("Well.", f"who owns {KEY}"), **settings) as harness:
        receipt = await harness.send("Ada, search for your key", kind=GROUP)
        assert "the words to search for contain a secret" in str(receipt.notes)
    async with reading(services, answering("Well."), **settings) as harness:
        await harness.send("Ada, search", kind=GROUP)
        receipt = await harness.send("Ada, search again", kind=GROUP)
        assert "no more searches are made in this room in this hour" in str(receipt.notes)
    assert len(services.asked) == 1


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (web.Response(status=403), "answered 403; switch the format json on"),
        (web.Response(status=302, headers={"Location": "http://127.0.0.1/"}), "answered 302"),
        (b"<html>", "is no JSON"),
        (b"[1]", "is no list of results"),
        (b'{"results": [{"url": "http://a.example", "title": "x"}, 7]}', "is no list of results"),
        (b" " * (2**20 + 1), "larger than"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_reported(services: Web, answer: Any, problem: str) -> None:
    services.pages["/search"] = answer
    settings = {"WEB_SEARCH": "searxng", "WEB_SEARCH_URL": services.url}
    async with reading(services, answering("It did not work."), **settings) as harness:
        receipt = await harness.send("Ada, search", kind=GROUP)
        assert problem in str(receipt.notes)
        assert harness.texts == ["It did not work."]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"LINKS": "20"}, ""),
        ({"LINKS": "0"}, "set LINKS=20"),
        ({"WEB_SEARCH": "tavily"}, "needs WEB_SEARCH_KEY"),
        ({"WEB_SEARCH": "searxng"}, "needs WEB_SEARCH_URL"),
        ({"WEB_SEARCH": "brave", "WEB_SEARCH_KEY": KEY}, ""),
    ],
)
def test_missing_settings_are_named(settings: dict[str, str], problem: str) -> None:
    found = Settings([Layer("the test", settings)]).load(LinkSettings).find_problem()
    assert problem in found
    assert bool(problem) == bool(found)
