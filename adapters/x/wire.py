"""The way of tweepy's signed requests to X, or to another server that speaks its protocol."""

import json as json_format
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
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
from yarl import URL

from adapters.x.windows import Windows, endpoint_of
from bot import Clock, NotSent, Unclear, reached

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
