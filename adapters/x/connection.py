"""Signed HTTP requests, error mapping, account check."""

import asyncio
import json as json_format
import ssl
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientHttpProxyError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    TCPConnector,
)
from tweepy.asynchronous import AsyncClient  # type: ignore[import-untyped]  # it has no types of its own
from yarl import URL

from adapters.x.config import XSettings
from adapters.x.payloads import Page, Person, read_page, read_person
from adapters.x.rate_limits import Budget, Windows, endpoint_of
from adapters.x.state import Notes
from bot import Clock, reached
from bot.platform import Cause, Link, NotSent, Unclear, cause_of
from bot.store import StoreUnavailable

Asked = Coroutine[Any, Any, Any]
NOTE = "account"
UNTIL_MENDED = 3600.0  # what cannot leave before the next start is asked after this often


class Caller:
    """One account's way to X, open while it is entered.

    A call raises NotSent where it was not made or was too much, Unclear where nobody knows, and Refused
    where X does not want it. The first answer that the keys are not valid is the last call made. Where a
    handle is named, nothing is written before X has said, once, that the keys are that account's.
    """

    def __init__(self, settings: XSettings, budget: Budget, notes: Notes, link: Link, clock: Clock) -> None:
        self._is_dry = settings.x_dry_run
        self._handle = settings.handle
        self._checking = asyncio.Lock()
        self._budget = budget
        self._notes = notes
        self._link = link
        self._clock = clock
        self._wire = Wire(settings.x_api_base_url, clock)
        self.stopped = ""
        self.tweepy = AsyncClient(
            consumer_key=_plain(settings.x_api_key),
            consumer_secret=_plain(settings.x_api_secret),
            access_token=_plain(settings.x_access_token),
            access_token_secret=_plain(settings.x_access_token_secret),
            return_type=dict,
        )
        self.tweepy.session = self._wire

    async def __aenter__(self) -> Self:
        await self._wire.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._wire.__aexit__(kind, error, trace)

    @property
    def closed(self) -> dict[str, datetime]:
        """The endpoints that may not be asked now, and until when."""
        return self._wire.windows.closed(self._clock())

    async def read(self, asked: Asked, most: int) -> Page:
        """Read a page of at most so many posts, and count what it cost."""
        try:
            self._check()
            await self._budget.reserve(most)
        except StoreUnavailable as error:
            asked.close()
            raise NotSent(f"what is read cannot be counted: {error}") from error
        except BaseException:
            asked.close()
            raise
        cost = most
        try:
            page = read_page(await self.ask(asked))
            cost = page.count + len(page.others)
        except (NotSent, Refused):
            cost = 0
            raise
        finally:
            await self._budget.give_back(max(most - cost, 0))
        return page

    async def write(self, asked: Asked) -> Any:
        """Make a call that changes something; in a dry run none is made."""
        if self._is_dry:
            asked.close()
            raise NotSent("X_DRY_RUN is on")
        try:
            await self._check_account()
        except BaseException:
            asked.close()
            raise
        return await self.ask(asked)

    async def me(self) -> Person:
        """Ask who we are; that reads no post."""
        person = read_person(await self.ask(self.tweepy.get_me(user_fields=["name", "username"])))
        if person is None:
            raise Unclear("X does not say whose the keys are")
        return person

    async def ask(self, asked: Asked) -> Any:
        """Make a call, and give what X answers."""
        try:
            self._check()
        except NotSent:
            asked.close()
            raise
        try:
            answer = await asked
        except Refused as error:
            if error.status == 401:
                raise self._stop(f"X refuses the keys ({error}): renew them and start again") from error
            if error.status >= 500 or error.status < 400:
                self._link.fails(Cause.PLATFORM, error)
                raise Unclear(str(error)) from error
            self._is_there()
            if error.status == 429:
                raise NotSent(str(error), retry_after=error.retry_after) from error
            raise
        except (NotSent, Unclear) as error:
            if not (isinstance(error, NotSent) and error.retry_after):  # else nothing was asked
                self._link.fails(cause_of(error), error)
            raise
        self._is_there()
        return answer

    async def post_raw(self, route: str, body: dict[str, Any]) -> Any:
        """Ask an endpoint for which tweepy has no method yet."""
        answer = await self.tweepy.request("POST", route, params={}, json=body, user_auth=True)
        return await answer.json()

    async def _check_account(self) -> None:
        """Raise NotSent unless the keys are those of the account that is meant; found once, it is noted."""
        async with self._checking:
            if self._handle and await self._notes.read(NOTE) != self._handle:
                try:
                    person = await self.me()
                except (Refused, Unclear) as error:
                    raise NotSent(f"whose the keys are could not be asked: {error}") from error
                if problem := wrong_account(self._handle, person):
                    raise self._stop(problem)
                await self._notes.jot(NOTE, self._handle)
            self._handle = ""

    def _is_there(self) -> None:
        """Note that X answers; that it refuses the mentions is over only once they are read."""
        if self._link.state.cause is not Cause.REFUSED:
            self._link.stands()

    def _stop(self, problem: str) -> NotSent:
        """Make no further call; what was to be said waits for the next start."""
        self.stopped = problem
        self._link.ends(Cause.REFUSED, problem)
        return NotSent(problem, retry_after=UNTIL_MENDED)

    def _check(self) -> None:
        if self.stopped:
            raise NotSent(self.stopped, retry_after=UNTIL_MENDED)
        if self._budget.is_off:
            off = f"X is switched off: {self._budget.switch} is there"
            self._link.fails(Cause.SWITCHED_OFF, off)
            raise NotSent(off)


def wrong_account(handle: str, person: Person) -> str:
    """Say that the keys are of another account than the one that is named; blank where they are not."""
    if not handle or person.username.casefold() == handle:
        return ""
    return f"X_USERNAME is {handle}, but the keys are those of @{person.username}: nothing is read or written"


def _plain(secret: Any) -> str:
    return secret.get_secret_value() if secret is not None else ""


MOST = 1024 * 1024
DEADLINE, CONNECT_DEADLINE = 30.0, 10.0


class Refused(Exception):
    """X has answered, and what it says is not what was asked for; `detail` is its reason for people."""

    def __init__(self, status: int, detail: str, retry_after: float | None = None) -> None:
        super().__init__(f"X says {status}: {detail}" if detail else f"X says {status}")
        self.status = status
        self.detail = detail
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, as tweepy reads one."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    async def read(self) -> bytes:
        """Give the body."""
        return self.body

    async def json(self) -> Any:
        """Give the body as JSON; raises Unclear where it is none: what was asked for may have been done."""
        try:
            return json_format.loads(self.body)
        except ValueError:
            raise Unclear(f"X says {self.status}, and what it says cannot be read") from None


class Wire:
    """Carries requests as a session does, one connection each: one that cannot be made has sent nothing.

    Raises NotSent where surely nothing has left or X has said that it is too much, Refused where X
    refuses, and Unclear where nobody knows. An endpoint whose window is used up is not asked at all.
    """

    def __init__(self, base_url: str, clock: Clock) -> None:
        self._base = base_url
        self._clock = clock
        self._stack = AsyncExitStack()
        self._session: ClientSession | None = None
        self.windows = Windows()

    async def __aenter__(self) -> Self:
        connector = TCPConnector(force_close=True, ssl=ssl.create_default_context())
        timeout = ClientTimeout(total=DEADLINE, sock_connect=CONNECT_DEADLINE)
        session = ClientSession(connector=connector, timeout=timeout, trust_env=True)
        session._retry_connection = False  # aiohttp's own second try has the first one's nonce: X says 401
        self._session = await self._stack.enter_async_context(session)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session = None
        await self._stack.aclose()

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str | URL,
        *,
        params: Mapping[str, str] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Answer]:
        """Send one request, and give the whole answer where it is a good one."""
        meant = URL(url).update_query(params) if params else URL(url)
        endpoint = endpoint_of(method, meant.path)
        if wait := self.windows.wait(endpoint, self._clock()):
            raise NotSent(f"X takes no more of {endpoint} for now", retry_after=wait)
        answer = await self._sent(method, meant, json, dict(headers or {}))
        self.windows.note(endpoint, answer.status, answer.headers, self._clock())
        if not 200 <= answer.status < 300:
            wait = self.windows.wait(endpoint, self._clock())
            raise Refused(answer.status, _detail(answer.body), wait or None)
        yield answer

    async def _sent(self, method: str, url: URL, json: Any, headers: dict[str, str]) -> Answer:
        if self._session is None:
            raise NotSent("X is not connected")
        if self._base:  # the signature is for X, whatever the way goes by
            headers["Host"] = url.host or ""
            url = URL(self._base + url.raw_path_qs, encoded=True)
        body = None if json is None else json_format.dumps(json).encode()
        if body is not None:
            headers["Content-Length"] = str(len(body))
        data = None if body is None else _written(body)
        try:
            async with self._session.request(
                method, url, data=data, headers=headers, allow_redirects=False
            ) as response:
                return Answer(
                    response.status, response.reason or "", response.headers, await _bounded(response)
                )
        except (ClientConnectorError, ClientHttpProxyError, ConnectionTimeoutError) as error:
            raise NotSent(f"no connection to X: {error}") from error
        except (ClientError, TimeoutError, OSError) as error:
            raise Unclear(f"{type(error).__name__} {error}".strip()) from error


async def _written(body: bytes) -> AsyncIterator[bytes]:
    """Give the body; whoever asks for more has written it, and the length says that it is all."""
    reached("send.pre_write")
    yield body
    reached("send.post_write")


async def _bounded(response: ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MOST:
            raise Unclear(f"X says {response.status} and more than {MOST} bytes")
    return bytes(body)


def _detail(body: bytes) -> str:
    """Find X's reason in a refusal, in whichever of its forms."""
    try:
        told = json_format.loads(body)
    except ValueError:
        return ""
    if not isinstance(told, Mapping):
        return ""
    errors = told.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else {}
    first = first if isinstance(first, Mapping) else {}
    found = told.get("detail") or first.get("message") or told.get("title") or ""
    return str(found)[:300]
