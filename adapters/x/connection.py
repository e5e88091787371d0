"""The connection of one account: signed requests, error mapping, account check."""

import asyncio
import json as json_format
import ssl
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
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
from yarl import URL

from adapters.x.config import XSettings
from adapters.x.payloads import Page, User, parse_page, parse_user
from adapters.x.rate_limits import EndpointLimits, Quota, endpoint_of
from adapters.x.signing import SigningClient
from adapters.x.state import AccountState
from bot import Clock, crash_point
from bot.platform import ConnectionStatus, DeliveryUnknown, DisconnectCause, NotSent, disconnect_cause
from bot.store import StoreUnavailable
from bot.text import shorten

PendingCall = Coroutine[Any, Any, Any]
VERIFIED_KEY = "account"
STOPPED_RETRY_SECONDS = 3600.0  # retry interval of deliveries that cannot leave before the next start
MAX_RESPONSE_BYTES = 1024 * 1024
MAX_DETAIL_LENGTH = 300
REQUEST_TIMEOUT, CONNECT_TIMEOUT = 30.0, 10.0


class XConnection:
    """The connection of one account to X, open while its context is entered.

    Calls raise NotSent if nothing was done, DeliveryUnknown if the result is unknown, and RequestRefused if
    X refuses. After the first 401 no further call is made. If X_USERNAME is set, nothing is written before X
    has confirmed, once, that the keys belong to that account.
    """

    def __init__(
        self, settings: XSettings, quota: Quota, state: AccountState, status: ConnectionStatus, clock: Clock
    ) -> None:
        self._is_dry_run = settings.x_dry_run
        self._expected_username = settings.expected_username
        self._verification_lock = asyncio.Lock()
        self._quota = quota
        self._state = state
        self._status = status
        self._clock = clock
        self._transport = HttpTransport(settings.x_api_base_url, clock)
        self.stop_reason = ""
        self.tweepy = SigningClient(
            consumer_key=_secret_text(settings.x_api_key),
            consumer_secret=_secret_text(settings.x_api_secret),
            access_token=_secret_text(settings.x_access_token),
            access_token_secret=_secret_text(settings.x_access_token_secret),
            return_type=dict,
        )
        self.tweepy.session = self._transport

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    @property
    def closed_endpoints(self) -> dict[str, datetime]:
        """The endpoints whose limits are used up, and until when."""
        return self._transport.limits.closed_endpoints(self._clock())

    async def read_page(self, call: PendingCall, max_posts: int) -> Page:
        """Read a page of at most `max_posts` posts and count them."""
        with closing(call):
            self._check_open()
            try:
                await self._quota.reserve(max_posts)
            except StoreUnavailable as error:
                raise NotSent(f"reads cannot be counted: {error}") from error
            cost = max_posts
            try:
                page = parse_page(await self.send(call))
                cost = page.count + len(page.referenced)
            except (NotSent, RequestRefused):
                cost = 0
                raise
            finally:
                await self._quota.release(max(max_posts - cost, 0))
            return page

    async def write(self, call: PendingCall) -> Any:
        """Send a call that changes something; raise NotSent in a dry run."""
        with closing(call):
            if self._is_dry_run:
                raise NotSent("X_DRY_RUN is on")
            await self._verify_account()
            return await self.send(call)

    async def read_own_user(self) -> User:
        """Return the account's user; this reads no post."""
        user = parse_user(await self.send(self.tweepy.get_me(user_fields=["name", "username"])))
        if user is None:
            raise DeliveryUnknown("X does not return whose the keys are")
        return user

    async def send(self, call: PendingCall) -> Any:
        """Send a call and return X's response."""
        try:
            self._check_open()
        except NotSent:
            call.close()
            raise
        try:
            response = await call
        except RequestRefused as error:
            if error.status == 401:
                raise self._stop(f"X refuses the keys ({error}): renew them and start again") from error
            if error.status >= 500 or error.status < 400:
                self._status.failed(DisconnectCause.PLATFORM, error)
                raise DeliveryUnknown(str(error)) from error
            self._mark_connected()
            if error.status == 429:
                raise NotSent(str(error), retry_after=error.retry_after) from error
            raise
        except (NotSent, DeliveryUnknown) as error:
            if not (isinstance(error, NotSent) and error.retry_after):  # with retry_after, nothing was sent
                self._status.failed(disconnect_cause(error), error)
            raise
        self._mark_connected()
        return response

    async def post_raw(self, route: str, body: dict[str, Any]) -> Any:
        """Call an endpoint for which tweepy has no method."""
        response = await self.tweepy.request("POST", route, json=body)
        return await response.json()

    async def _verify_account(self) -> None:
        """Raise NotSent unless the keys belong to the expected account; a confirmed account is stored."""
        async with self._verification_lock:
            if self._expected_username and await self._state.read(VERIFIED_KEY) != self._expected_username:
                try:
                    user = await self.read_own_user()
                except (RequestRefused, DeliveryUnknown) as error:
                    raise NotSent(f"the account of the keys could not be verified: {error}") from error
                if problem := account_problem(self._expected_username, user):
                    raise self._stop(problem)
                await self._state.write_later(VERIFIED_KEY, self._expected_username)
            self._expected_username = ""

    def _mark_connected(self) -> None:
        """Record that X answers; refused mentions stay reported until they can be read."""
        if self._status.snapshot.cause not in (DisconnectCause.REFUSED, DisconnectCause.FORBIDDEN):
            self._status.connected()

    def _stop(self, problem: str) -> NotSent:
        """Stop all further calls; deliveries wait for the next start."""
        self.stop_reason = problem
        self._status.stopped(DisconnectCause.REFUSED, problem)
        return NotSent(problem, retry_after=STOPPED_RETRY_SECONDS)

    def _check_open(self) -> None:
        if self.stop_reason:
            raise NotSent(self.stop_reason, retry_after=STOPPED_RETRY_SECONDS)
        if self._quota.is_off:
            reason = f"X is switched off: {self._quota.off_switch} is there"
            self._status.failed(DisconnectCause.SWITCHED_OFF, reason)
            raise NotSent(reason)


def account_problem(expected_username: str, user: User) -> str:
    """Return the problem if the keys belong to another account than X_USERNAME; empty if not."""
    if not expected_username or user.username.casefold() == expected_username:
        return ""
    return f"X_USERNAME is {expected_username}, but the keys are those of @{user.username}: nothing is read or written"


def _secret_text(secret: Any) -> str:
    return secret.get_secret_value() if secret is not None else ""


class RequestRefused(Exception):
    """X refused a request; `detail` is its explanation."""

    def __init__(self, status: int, detail: str, retry_after: float | None = None) -> None:
        super().__init__(f"X says {status}: {detail}" if detail else f"X says {status}")
        self.status = status
        self.detail = detail
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response, with the interface that tweepy expects."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    async def read(self) -> bytes:
        """Return the body."""
        return self.body

    async def json(self) -> Any:
        """Return the body as JSON; raise DeliveryUnknown if it is none: the call may have succeeded."""
        try:
            return json_format.loads(self.body)
        except ValueError:
            raise DeliveryUnknown(f"X says {self.status} with a body that cannot be read") from None


class HttpTransport:
    """Sends requests for tweepy, one connection each, so that a failed connection means nothing was sent.

    Raises NotSent if nothing was sent or X limits requests, RequestRefused if X refuses, DeliveryUnknown if
    the result is unknown. An endpoint whose limit is used up is not called.
    """

    def __init__(self, base_url: str, clock: Clock) -> None:
        self._base_url = base_url
        self._clock = clock
        self._stack = AsyncExitStack()
        self._session: ClientSession | None = None
        self.limits = EndpointLimits()

    async def __aenter__(self) -> Self:
        connector = TCPConnector(force_close=True, ssl=ssl.create_default_context())
        timeout = ClientTimeout(total=REQUEST_TIMEOUT, sock_connect=CONNECT_TIMEOUT)
        session = ClientSession(connector=connector, timeout=timeout, trust_env=True)
        session._retry_connection = False  # aiohttp's retry would repeat the nonce, which X answers with 401
        self._session = await self._stack.enter_async_context(session)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session = None
        await self._stack.aclose()

    @asynccontextmanager
    async def request(
        self, method: str, url: URL, *, json: Any = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[HttpResponse]:
        """Send one request and yield its complete response."""
        endpoint = endpoint_of(method, url.path)
        if wait := self.limits.wait_seconds(endpoint, self._clock()):
            raise NotSent(f"X allows no more calls of {endpoint} for now", retry_after=wait)
        response = await self._send(method, url, json, dict(headers or {}))
        self.limits.update(endpoint, response.status, response.headers, self._clock())
        if not 200 <= response.status < 300:
            wait = self.limits.wait_seconds(endpoint, self._clock())
            raise RequestRefused(response.status, _error_detail(response.body), wait or None)
        yield response

    async def _send(self, method: str, url: URL, json: Any, headers: dict[str, str]) -> HttpResponse:
        if self._session is None:
            raise NotSent("X is not connected")
        if self._base_url:  # the signature is made for X's own host
            headers["Host"] = url.host or ""
            url = URL(self._base_url + url.raw_path_qs, encoded=True)
        body = None if json is None else json_format.dumps(json).encode()
        if body is not None:
            headers["Content-Length"] = str(len(body))
        data = None if body is None else _write_body(body)
        try:
            async with self._session.request(
                method, url, data=data, headers=headers, allow_redirects=False
            ) as response:
                return HttpResponse(
                    response.status, response.reason or "", response.headers, await _read_bounded(response)
                )
        except (ClientConnectorError, ClientHttpProxyError, ConnectionTimeoutError) as error:
            raise NotSent(f"no connection to X: {error}") from error
        except (ClientError, TimeoutError, OSError) as error:
            raise DeliveryUnknown(f"{type(error).__name__} {error}".strip()) from error


async def _write_body(body: bytes) -> AsyncIterator[bytes]:
    """Yield the body; resuming after it means that the body was written."""
    crash_point("send.pre_write")
    yield body
    crash_point("send.post_write")


async def _read_bounded(response: ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MAX_RESPONSE_BYTES:
            raise DeliveryUnknown(f"X says {response.status} with more than {MAX_RESPONSE_BYTES} bytes")
    return bytes(body)


def _error_detail(body: bytes) -> str:
    """Return X's explanation of an error, in any of its formats: the detail of each error, or the title."""
    try:
        payload = json_format.loads(body)
    except ValueError:
        return ""
    if not isinstance(payload, Mapping):
        return ""
    errors = payload.get("errors")
    problems = [payload, *(errors if isinstance(errors, list) else [])]
    details = [
        str(problem.get("detail") or problem.get("message") or "")
        for problem in problems
        if isinstance(problem, Mapping)
    ]
    return shorten(" ".join(dict.fromkeys(filter(None, details))) or str(payload.get("title") or ""), MAX_DETAIL_LENGTH)
