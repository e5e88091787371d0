"""Searching the web by Tavily, Exa, Brave or a SearXNG server, each after its published description."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from bot import Agent, BotError
from bot.platform import describe_client_error, find_network, read_bounded
from bot.text import sanitize_text, shorten
from plugins.links.pages import LinkSettings

MAX_RESULTS, MAX_SNIPPET_LENGTH, MAX_TITLE_LENGTH, MAX_URL_LENGTH = 5, 300, 100, 500
MAX_ANSWER_BYTES = 2**20
MAX_BRAVE_WORDS = 50  # in a query; one with more is refused
TIMEOUT = 10.0  # seconds
PUBLIC_HOST = re.compile(r"(?:[\w-]+\.)+(?!local$|internal$|localhost$|home$|lan$)[a-z][\w-]+\.?", re.IGNORECASE)
ADDRESSES = {"tavily": "https://api.tavily.com", "exa": "https://api.exa.ai", "brave": "https://api.search.brave.com"}


@dataclass(frozen=True, slots=True)
class Found:
    """One result of a search."""

    url: str
    title: str
    snippet: str


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent to a service: with a body it is a POST."""

    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str] | None = None
    body: Mapping[str, Any] | None = None


def build_request(engine: str, query: str, key: str) -> Request:
    """Return the request of a search."""
    if engine == "tavily":
        body = {"query": query, "max_results": MAX_RESULTS}
        return Request("/search", {"Authorization": f"Bearer {key}"}, body=body)
    if engine == "exa":
        text = {"text": {"maxCharacters": MAX_SNIPPET_LENGTH}}
        return Request(
            "/search", {"x-api-key": key}, body={"query": query, "numResults": MAX_RESULTS, "contents": text}
        )
    if engine == "brave":
        return Request(
            "/res/v1/web/search",
            {"X-Subscription-Token": key},
            {
                "q": " ".join(query.split()[:MAX_BRAVE_WORDS]),
                "count": str(MAX_RESULTS),
                "safesearch": "strict",
                "text_decorations": "false",
                "result_filter": "web",
            },
        )
    return Request("/search", {"Authorization": f"Bearer {key}"} if key else {}, {"q": query, "format": "json"})


def parse_results(answer: Any, engine: str) -> list[Found]:
    """Return the results of an answer that lead to public hosts. Raises BotError for an answer of another form."""
    try:
        items = (answer.get("web") or {}).get("results", []) if engine == "brave" else answer["results"]
        snippets = {"exa": "text", "brave": "description"}
        found = []
        for item in items:
            url, snippet = str(item["url"]), str(item.get(snippets.get(engine, "content")) or "")
            if is_public(url):
                title = _clean(str(item.get("title") or ""), MAX_TITLE_LENGTH)
                found.append(Found(url, title, _clean(snippet, MAX_SNIPPET_LENGTH)))
        return found[:MAX_RESULTS]
    except (AttributeError, KeyError, TypeError):
        raise BotError(f"what {engine} answered is no list of results") from None


def _clean(text: str, length: int) -> str:
    """Return a title or a snippet as one line without the marks of HTML: Brave highlights and escapes."""
    return shorten(" ".join(sanitize_text(unescape(re.sub(r"</?\w+>", "", text))).split()), length)


def is_public(url: str) -> bool:
    """Return whether a URL may be shown as a result: http or https, without a login, to a host with a public name."""
    try:
        target = urlsplit(url)
        host = target.hostname or ""
    except ValueError:
        return False
    is_plain = url.isprintable() and len(url) <= MAX_URL_LENGTH and not re.search(r"[\s<>()\[\]\"'`]", url)
    return (
        is_plain
        and target.scheme in ("http", "https")
        and "@" not in target.netloc
        and bool(PUBLIC_HOST.fullmatch(host))
    )


def read_cost(answer: Mapping[str, Any], engine: str) -> float | None:
    """Return what a search has cost in US dollars: nothing with searxng, and where the service says so, as Exa does."""
    if engine == "searxng":
        return 0.0
    cost = answer.get("costDollars")
    total = cost.get("total") if isinstance(cost, Mapping) else None
    return float(total) if isinstance(total, int | float) else None


async def search_web(agent: Agent, query: str) -> tuple[Sequence[Found], float | None]:
    """Return the results of a search and its cost in US dollars. Raises BotError with what has failed."""
    settings = agent.settings.load(LinkSettings)
    engine, key = settings.web_search, settings.web_search_key
    base = settings.web_search_url or ADDRESSES[engine]
    request = build_request(engine, query, key.get_secret_value() if key is not None else "")
    network = find_network(base, agent.settings.network_environment())
    method = "GET" if request.body is None else "POST"
    try:
        async with (
            network.open_session(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session,
            session.request(
                method,
                f"{base}{request.path}",
                params=request.query,
                json=request.body,
                headers={"Accept": "application/json", **request.headers},
                allow_redirects=False,
            ) as response,
        ):
            body = await read_bounded(response, MAX_ANSWER_BYTES)
            status = response.status
    except TimeoutError:
        raise BotError(f"{engine} did not answer within {TIMEOUT:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise BotError(f"{engine} cannot be reached: {describe_client_error(error)}") from None
    if status != 200:
        hint = "; check WEB_SEARCH_KEY" if status in (401, 403) else ""
        hint = "; switch the format json on in its settings.yml" if status == 403 and engine == "searxng" else hint
        raise BotError(f"{engine} answered {status}{hint}")
    try:
        answer = json.loads(body or b"")
    except ValueError:
        raise BotError(f"what {engine} answered is no JSON, or larger than {MAX_ANSWER_BYTES} bytes") from None
    return parse_results(answer, engine), read_cost(answer, engine)
