"""HTTP server, faults, `emulated()`.

It keeps the truth (`world`), writes down every call (`calls`), and fails as it is told (`faults`).
"""

import asyncio
import json
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from adapters.x.emulator.page import XScene
from adapters.x.emulator.rest import Answers, Asked, Keys, Problem, fault_of, nonce_of, token_of
from adapters.x.emulator.state import EmulatedWorld
from adapters.x.rate_limits import endpoint_of
from bot import Clock, system_clock
from bot.platform import Trial
from bot.testing import TalkPage, only_from_here

HOST = "127.0.0.1"
HOSTS = ("api.x.com", "api.twitter.com", "upload.twitter.com")
USERNAME = "greenroom_bot"
PLENTY = (10_000, 900.0)


class Way(StrEnum):
    """How a call goes wrong."""

    REFUSED = "refused"  # with a status, and nothing is done
    LOST = "lost"  # it is done, and then the connection breaks
    CUT = "cut"  # the connection breaks before anything is done
    BROKEN = "broken"  # it is done, and the answer is no JSON
    FAILED = "failed"  # it is done, and the answer is a status
    PASSED = "passed"  # it does not: the fault after it is for the next call


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with the next call of an endpoint, such as `POST /2/tweets`."""

    endpoint: str
    way: Way = Way.REFUSED
    status: int = 503
    body: str = '{"title": "Service Unavailable"}'
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it came in, and the status that it was answered with."""

    endpoint: str
    path: str
    body: dict[str, Any]
    status: int
    at: datetime

    @property
    def is_write(self) -> bool:
        """Whether it would change something."""
        return not self.endpoint.startswith("GET ")


class Emulator:
    """X, for one account or more; while it is entered, `environment` leads a bot to the first.

    `limits` says how often an account may call an endpoint in how many seconds; `monthly_reads` how many
    posts may be read in a month. `faults` are used up one after another. Beside this machine's names it
    may be called by `hosts`, as one does whom a proxy leads here.
    """

    def __init__(
        self,
        *,
        clock: Clock = system_clock,
        username: str = USERNAME,
        limits: dict[str, tuple[int, float]] | None = None,
        monthly_reads: int | None = None,
        port: int = 0,
        hosts: Iterable[str] = HOSTS,
    ) -> None:
        self._clock = clock
        self.limits = dict(limits or {})
        self.monthly_reads = monthly_reads
        self.world = EmulatedWorld(clock)
        self._accounts: dict[str, Keys] = {}
        self._bots: dict[str, str] = {}
        self.user_id = self.add_account(username).user_id
        self.calls: list[Call] = []
        self.faults: deque[Fault] = deque()
        self.reads: Counter[str] = Counter()  # by month
        self.renewed_at: Callable[[datetime], str] | None = None  # in place of the windows' own word
        self.is_revoked = False
        self._answers = Answers(self.world)
        self._port, self._hosts = port, hosts
        self._windows: dict[tuple[str, str], tuple[datetime, int]] = {}
        self._nonces: set[str] = set()
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[only_from_here(self._hosts)], client_max_size=16 * 1024 * 1024)
        app.router.add_routes(TalkPage(XScene(self.world, self._bots)).routes())
        app.router.add_route("*", "/2/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, self._port)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://{HOST}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def add_account(self, username: str) -> Keys:
        """Give somebody keys, with which a bot may speak in their name."""
        keys = Keys(self.world.person(username))
        self._accounts[keys.token] = keys
        self._bots[keys.user_id] = username
        return keys

    def environment_of(self, keys: Keys) -> dict[str, str]:
        """Give the variables with which a bot takes this for X, and itself for this account."""
        return {
            "X_API_BASE_URL": self.url,
            "X_API_KEY": keys.api_key,
            "X_API_SECRET": keys.api_secret,
            "X_ACCESS_TOKEN": keys.token,
            "X_ACCESS_TOKEN_SECRET": keys.token_secret,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the first account."""
        return self.environment_of(next(iter(self._accounts.values())))

    @property
    def writes(self) -> list[Call]:
        """Every call that would have changed something."""
        return [one for one in self.calls if one.is_write]

    @property
    def said(self) -> list[str]:
        """What the bot has posted, oldest first."""
        return [one.text for one in self.world.by(self.user_id)]

    def say(self, username: str, text: str, *, answers: str = "", quotes: str = "") -> str:
        """Have somebody post something; gives back its id."""
        made = self.world.post(self.world.person(username), text, answers=answers, quotes=quotes)
        return made.id

    def fail(self, *faults: Fault) -> None:
        """Have the next calls of these endpoints go wrong."""
        self.faults.extend(faults)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, looking after each call."""
        async with self._changed:
            await self._changed.wait_for(is_so)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        endpoint = endpoint_of(request.method, request.path)
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            body = {}
        fault = next((one for one in self.faults if one.endpoint == endpoint), None)
        if fault is not None:
            self.faults.remove(fault)
        if fault is not None and fault.way in (Way.REFUSED, Way.CUT):
            status, told, headers = fault.status, fault.body, dict(fault.headers)
        else:
            status, told, headers = self._answered(request, endpoint, body)
        if fault is not None and fault.way in (Way.BROKEN, Way.FAILED):
            status, told = (status, "<html>") if fault.way is Way.BROKEN else (fault.status, fault.body)
        self.calls.append(Call(endpoint, request.path_qs, body, status, self._clock()))
        try:
            if fault is not None and fault.way in (Way.CUT, Way.LOST) and request.transport is not None:
                request.transport.abort()
            return web.Response(status=status, text=told, headers=headers, content_type="application/json")
        finally:
            async with self._changed:
                self._changed.notify_all()

    def _answered(
        self, request: web.Request, endpoint: str, body: dict[str, Any]
    ) -> tuple[int, str, dict[str, str]]:
        try:
            user_id = self._caller(request)
        except Problem as problem:
            return problem.status, json.dumps(problem.body), {}
        try:
            headers = self._counted((user_id, endpoint))
            asked = Asked(user_id, request.path, dict(request.query), body)
            status, told = self._answers.answer(endpoint, asked)
            self._count_reads(told)
        except Problem as problem:
            headers = self._headers((user_id, endpoint)) if problem.status == 429 else {}
            return problem.status, json.dumps(problem.body), headers
        return status, json.dumps(told), headers

    def _caller(self, request: web.Request) -> str:
        """Tell which account calls; raises Problem where that is not certain."""
        header = request.headers.get("Authorization", "")
        url = f"https://{request.headers.get('Host', '')}{request.raw_path}"
        keys = self._accounts.get(token_of(header))
        fault = fault_of(request.method, url, header, keys) if keys else "the keys are not known"
        if self.is_revoked:
            fault = "the token was revoked"
        if not fault and nonce_of(header) in self._nonces:
            fault = "the nonce was used before"
        if fault or keys is None:
            raise Problem(401, "Unauthorized", fault)
        self._nonces.add(nonce_of(header))
        return keys.user_id

    def _counted(self, window: tuple[str, str]) -> dict[str, str]:
        limit, seconds = self.limits.get(window[1], PLENTY)
        now = self._clock()
        until, used = self._windows.get(window, (now, 0))
        if until <= now:
            until, used = now + timedelta(seconds=seconds), 0
        self._windows[window] = (until, used + 1)
        if used >= limit:
            raise Problem(429, "Too Many Requests", "Too Many Requests")
        return self._headers(window)

    def _headers(self, window: tuple[str, str]) -> dict[str, str]:
        limit, _ = self.limits.get(window[1], PLENTY)
        until, used = self._windows.get(window, (self._clock(), 0))
        reset = self.renewed_at(until) if self.renewed_at else str(int(until.timestamp()) + 1)
        return {
            "x-rate-limit-limit": str(limit),
            "x-rate-limit-remaining": str(max(limit - used, 0)),
            "x-rate-limit-reset": reset,
        }

    def _count_reads(self, told: dict[str, Any]) -> None:
        month = self._clock().strftime("%Y-%m")
        listed = told.get("data")
        cost = len(listed) if isinstance(listed, list) else 0
        cost += len(told.get("includes", {}).get("tweets", []))
        if self.monthly_reads is not None and cost and self.reads[month] + cost > self.monthly_reads:
            raise Problem(429, "UsageCapExceeded", "Usage cap exceeded: Monthly product cap")
        self.reads[month] += cost


LONGEST_HANDLE = 15
# What counts here: the people are others, reading costs nothing, what is written is to be seen, and whoever
# tries something out does not wait a minute for the next look at the mentions (the shortest pause is 5 s).
HERE = {
    "X_TARGET_USERS": "",
    "X_DRY_RUN": "",
    "X_POLL_INTERVAL": "5",
    "X_MONTHLY_READS": "100000",
    "X_MONTHLY_POSTS": "100000",
    "X_POST_DAILY_CAP": "100000",
}


@asynccontextmanager
async def emulated(names: Sequence[str], *, port: int = 0) -> AsyncIterator[Trial]:
    """Put up an X with these characters and two people, as long as the block lasts.

    `settings` are to be put over those of each character; the page is for whoever wants to talk there.
    """
    handles = _handles(names)
    async with Emulator(username=handles[0] if handles else "nobody", port=port) as emulator:
        accounts = {name: emulator.add_account(one) for name, one in zip(names, handles, strict=True)}
        for person in ("robin", "kim"):
            emulator.world.person(person)
        settings = {name: {**HERE, **emulator.environment_of(keys)} for name, keys in accounts.items()}
        yield Trial(f"{emulator.url}/", settings)


def _handles(names: Sequence[str]) -> list[str]:
    """Make a handle of each name, no two alike."""
    found: list[str] = []
    for name in names:
        handle = re.sub(r"\W+", "_", name.casefold(), flags=re.ASCII).strip("_")[:LONGEST_HANDLE] or "bot"
        while handle in found:
            handle = f"{handle[: LONGEST_HANDLE - 2]}_{len(found)}"
        found.append(handle)
    return found
