"""Web pages as texts: each URL is read at most once a day, within limits, where the site's robots.txt allows it.

Transcripts of videos on YouTube, by the library youtube-transcript-api, where it is installed.
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.robotparser import RobotFileParser
from uuid import UUID

from pydantic import Field

from bot import Agent, BotError, Secret, Service, SettingsModel, Turn
from bot.platform import BaseUrl, BoundedDict, DocumentFormat, FetchError, SlidingWindow, find_network
from bot.text import sanitize_text

logger = logging.getLogger(__name__)
VIDEO = re.compile(
    r"https?://(?:(?:www\.|m\.)?youtube\.com/(?:watch\?(?:[^#\s]*&)?v=|shorts/|live/)|youtu\.be/)([\w-]{11})(?![\w-])"
)
YOUTUBE = "https://www.youtube.com/"
TRANSCRIPT_TIMEOUT = 5.0  # seconds, for each of its three requests
CAPTION_LANGUAGES = ("en", "de", "es", "fr", "pt", "it", "ja", "ko", "zh", "ru", "hi", "ar")


def find_video(url: str) -> str:
    """Return the id of the video at a URL of YouTube; empty for any other."""
    found = VIDEO.match(url)
    return found[1] if found is not None else ""


async def read_transcript(video: str, environment: Mapping[str, str], origin: str = YOUTUBE) -> str:
    """Return what is said in a video, one line a caption; empty where it has no captions or the library is missing.

    The library has its own HTTP client: it gets a session that reaches `origin` alone, with the operator's proxy.
    """
    if find_spec("youtube_transcript_api") is None:
        return ""
    return await asyncio.to_thread(_fetch_transcript, video, environment, origin)


def _fetch_transcript(video: str, environment: Mapping[str, str], origin: str) -> str:
    library, requests = import_module("youtube_transcript_api"), import_module("requests")
    with _build_youtube_session(environment, origin) as session:
        try:
            transcripts = library.YouTubeTranscriptApi(http_client=session).list(video)
            try:
                found = transcripts.find_transcript(CAPTION_LANGUAGES)
            except library.NoTranscriptFound:
                found = next(iter(transcripts))
            return "\n".join(snippet.text for snippet in found.fetch())
        except (
            library.CouldNotRetrieveTranscript,
            requests.RequestException,
            StopIteration,
            KeyError,
            ValueError,
        ) as error:
            logger.info("no transcript of the video %s: %s", video, type(error).__name__)
            return ""


def _build_youtube_session(environment: Mapping[str, str], origin: str = YOUTUBE) -> Any:
    """Return a session of `requests` that sends what is meant for YouTube to `origin`, and nothing anywhere else."""
    requests = import_module("requests")
    network = find_network(origin, environment)

    class Guarded(requests.adapters.HTTPAdapter):  # type: ignore[misc,name-defined]  # imported when it is needed
        def send(self, request: Any, **details: Any) -> Any:
            if not request.url.startswith(YOUTUBE):
                raise requests.RequestException("a transcript is read from www.youtube.com alone")
            request.url = origin + request.url.removeprefix(YOUTUBE)
            return super().send(request, **{**details, "timeout": TRANSCRIPT_TIMEOUT})

    session = requests.Session()
    session.trust_env = False
    session.max_redirects = 3
    session.proxies = {"https": network.proxy, "http": network.proxy} if network.proxy else {}
    session.verify = environment.get("SSL_CERT_FILE") or True
    for scheme in ("http://", "https://"):
        session.mount(scheme, Guarded())
    return session


USER_AGENT = "Greenroom"  # of the agent's fetcher; robots.txt may name it
MAX_PAGE_BYTES, MAX_ROBOTS_BYTES = 2 * 2**20, 512 * 1024
PAGE_COPIES = 3  # in memory: as received, as sent to the process that reads it, and its text
PAGE_TIMEOUT = 10.0  # seconds, for robots.txt, the page and its text together
MAX_TEXT_LENGTH, MAX_TITLE_LENGTH = 20_000, 200
KEEP_PAGE, KEEP_FAILURE = timedelta(days=1), timedelta(minutes=10)
MAX_SITES, MAX_ROOMS = 500, 10_000  # of which the rules and the numbers are at hand
HOUR = 3600.0
Engine = Literal["", "tavily", "exa", "brave", "searxng"]


class LinkSettings(SettingsModel):
    """The variables of reading links and of searching the web."""

    CHARACTER_SETTINGS = frozenset({"LINKS"})

    links: int = Field(
        0, ge=0, le=1000, description="How many posted links a character reads per room and hour; 0 reads none."
    )
    web_search: Engine = Field("", description="The service that searches the web; without one there is no search.")
    web_search_key: Secret | None = Field(None, description="The key of that service; searxng needs none.")
    web_search_url: BaseUrl | None = Field(
        None, description="The address of searxng, or of another server with the API of the service."
    )
    web_search_limit: int = Field(
        20, ge=1, le=10_000, description="How many times a character searches the web per room and hour."
    )

    def find_problem(self) -> str:
        """Return which variables are missing; empty if the plugin can work."""
        if self.web_search == "searxng" and self.web_search_url is None:
            return "WEB_SEARCH=searxng needs WEB_SEARCH_URL, the address of the server"
        if self.web_search not in ("", "searxng") and self.web_search_key is None:
            return f"WEB_SEARCH={self.web_search} needs WEB_SEARCH_KEY"
        return "" if self.links or self.web_search else "set LINKS=20 to read posted links, or WEB_SEARCH"

    def describe_privacy(self) -> str:
        """Return what other servers learn."""
        read = (
            "Pages whose links people post are read, so their servers see this server's address. " if self.links else ""
        )
        return f"{read}Words to search the web for go to {self.web_search}." if self.web_search else read.strip()


@dataclass(frozen=True, slots=True)
class Page:
    """What was read at a URL; without a text `problem` says why."""

    url: str
    site: str
    title: str = ""
    text: str = ""
    problem: str = ""


def has_library(name: str) -> bool:
    """Return whether a library of the extra `links` is installed, without importing it."""
    return find_spec(name) is not None


def site_of(url: str) -> str:
    """Return the host of a URL without `www.`."""
    return (urlsplit(url).hostname or "").removeprefix("www.")


class LinkReader(Service):
    """Reads pages for one agent, and counts what each room has asked for."""

    capability = "It reads pages of the web."

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._robots = BoundedDict[str, tuple[float, RobotFileParser]](MAX_SITES)
        self._used = BoundedDict[tuple[str, UUID], SlidingWindow](MAX_ROOMS)

    def may_use(self, what: str, room_id: UUID, limit: int) -> bool:
        """Return whether a room may have one more of something in this hour, and count it."""
        window, now = self._used.setdefault((what, room_id), SlidingWindow(limit, HOUR)), self.agent.clock().timestamp()
        window.limit = limit
        if window.count_spare(now) <= 0:
            return False
        window.reserve(now, now)
        return True

    async def read(self, turn: Turn, url: str) -> Page:
        """Return the page at a URL: as it was read in the last day, else read now, within the room's limit."""
        cache, key = turn.agent.store.cache, f"links/page/{sha256(url.encode()).hexdigest()}"
        if (stored := await cache.get(key)) is not None:
            return Page(**stored)
        if not self.may_use("links", turn.room.id, turn.agent.settings.load(LinkSettings).links):
            return Page(url, site_of(url), problem="no more pages are read in this room in this hour")
        try:
            async with turn.agent.memory.hold(PAGE_COPIES * MAX_PAGE_BYTES), asyncio.timeout(PAGE_TIMEOUT):
                page = await self._read(turn, url)
        except TimeoutError:
            page = Page(url, site_of(url), problem=f"it took longer than {PAGE_TIMEOUT:g} s")
        except BotError as error:
            page = Page(url, site_of(url), problem=str(error))
        keep = KEEP_FAILURE if page.problem else KEEP_PAGE
        await cache.set(key, asdict(page), expires_at=turn.agent.clock() + keep)
        return page

    async def _read(self, turn: Turn, url: str) -> Page:
        if not await self._is_allowed(turn, url):
            raise FetchError("robots.txt of the site does not allow it")
        body = await turn.agent.fetcher.get(url, max_bytes=MAX_PAGE_BYTES)
        if urlsplit(body.url).netloc != urlsplit(url).netloc and not await self._is_allowed(turn, body.url):
            raise FetchError("robots.txt of the site to which it leads does not allow it")
        kind, title, site, text = DocumentFormat.of(body.content_type), "", "", ""
        if kind is DocumentFormat.HTML:
            data = body.text().encode() if body.charset else body.body
            found = await turn.agent.document_reader.read(data, DocumentFormat.PAGE, owner=turn.author.id)
            title, site, text = [*found.split("\n\n", 2), "", ""][:3]
        elif kind is not None:
            text = await turn.agent.document_reader.read(body.body, kind, owner=turn.author.id)
        elif body.is_text:
            text = body.text()
        if video := find_video(url):
            text = await read_transcript(video, turn.agent.settings.network_environment()) or text
        host = site_of(body.url)
        return Page(
            url,
            f"{sanitize_text(site, MAX_TITLE_LENGTH)} ({host})" if site else host,
            sanitize_text(title or urlsplit(body.url).path.rpartition("/")[2] or host, MAX_TITLE_LENGTH),
            sanitize_text(text.strip(), MAX_TEXT_LENGTH),
            "" if text.strip() else f"it is {body.content_type or 'of no known type'} without text",
        )

    async def _is_allowed(self, turn: Turn, url: str) -> bool:
        """Return whether the site lets this program read a URL: without a robots.txt it does, with a broken one not."""
        target, now = urlsplit(url), turn.agent.clock().timestamp()
        origin = f"{target.scheme}://{target.netloc}"
        known = self._robots.get(origin)
        if known is None or known[0] < now - KEEP_PAGE.total_seconds():
            rules, lines = RobotFileParser(), ["User-agent: *", "Allow: /"]
            try:
                body = await turn.agent.fetcher.get(f"{origin}/robots.txt", max_bytes=MAX_ROBOTS_BYTES)
                lines = body.text().splitlines()
            except FetchError as error:
                if error.status is None or not 400 <= error.status < 500:
                    raise FetchError(f"its robots.txt cannot be read ({error})") from None
            await asyncio.to_thread(rules.parse, lines)
            self._robots[origin] = known = (now, rules)
        return await asyncio.to_thread(known[1].can_fetch, USER_AGENT, url)


def result_key(room_id: UUID, url: str) -> str:
    """Return the key in the agent's cache that says that a search for a room has found a URL."""
    return f"links/found/{room_id}/{sha256(url.encode()).hexdigest()}"
