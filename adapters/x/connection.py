"""The connection of one account: signed requests by tweepy's client, error mapping, account check."""

import asyncio
import json as json_format
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Self

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector
from oauthlib.oauth1 import Client  # type: ignore[import-untyped]  # oauthlib has no types
from tweepy.asynchronous import AsyncClient  # type: ignore[import-untyped]  # tweepy has no types
from yarl import URL

import bot.platform as bp
from adapters.x.config import XSettings
from adapters.x.incoming import Page, User, parse_page, parse_user
from adapters.x.rate_limits import AccountState, EndpointLimits, Quota, endpoint_of
from bot import Clock, system_clock
from bot.store import StoreUnavailable
from bot.text import shorten

logger = logging.getLogger(__name__)
API_URL = "https://api.x.com"  # tweepy names the former host, api.twitter.com
Method = Callable[..., Awaitable[Any]]  # of tweepy; sends one request
VERIFIED_KEY = "account"
KEY_CHECKS = bp.Backoff(60.0, 3600.0, jitter=0.0)  # seconds between two checks of refused keys, which X counts
KEYS_REFUSED = "X refuses the keys: put valid ones into `.env` and start again"
PLAN_RETRY_SECONDS = 3600.0  # between two attempts at what the plan, the credits or the app's permissions do not allow
MAX_CLOCK_SKEW = timedelta(minutes=5)  # beyond it X refuses a signature
MAX_RESPONSE_BYTES = 1024 * 1024
MAX_DETAIL_LENGTH = 300
# The types of X's problems that are not about the request itself.
PLAN_PROBLEMS = frozenset({"client-forbidden", "oauth1-permissions", "unsupported-authentication", "usage-capped"})
USAGE_CAP_TITLE = "UsageCapExceeded"
REQUEST_TIMEOUT, CONNECT_TIMEOUT = 30.0, 10.0


class XConnection:
    """The connection of one account to X, open while its context is entered.

    Calls raise NotSent if nothing was done, DeliveryUnknown if the result is unknown, and RequestRefused if
    X refuses. After a 401 X is asked whose the keys are; if it refuses that too, no call is made but that one,
    with growing pauses of up to an hour, until it succeeds. If X_USERNAME is set, nothing is written before X
    has confirmed, once, that the keys belong to that account.
    """

    def __init__(
        self,
        settings: XSettings,
        quota: Quota,
        state: AccountState,
        status: bp.ConnectionStatus,
        time_source: bp.TimeSource,
        environment: Mapping[str, str],
    ) -> None:
        self._is_dry_run = settings.x_dry_run
        self._expected_username = settings.expected_username
        self._verification_lock = asyncio.Lock()
        self._quota = quota
        self._state = state
        self._status = status
        self._clock = time_source.now
        self._key_check = bp.TokenCheck(status, self._are_keys_accepted, KEYS_REFUSED, time_source, KEY_CHECKS)
        self.tweepy = SigningClient(settings, self._clock, environment)

    async def __aenter__(self) -> Self:
        await self.tweepy.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._key_check.close()
        await self.tweepy.close()

    @property
    def stop_reason(self) -> str:
        """Why no call is made; empty while X accepts the keys."""
        return self._key_check.problem if self._key_check.is_refused else ""

    @property
    def closed_endpoints(self) -> dict[str, datetime]:
        """The endpoints whose limits are used up, and until when."""
        return self.tweepy.limits.closed_endpoints(self._clock())

    async def read_page(self, max_posts: int, method: Method, *arguments: Any, **options: Any) -> Page:
        """Read a page of at most `max_posts` posts and count them."""
        self._check_open()
        try:
            await self._quota.reserve(max_posts)
        except StoreUnavailable as error:
            raise bp.NotSent(f"reads cannot be counted: {error}") from error
        cost = max_posts
        try:
            page = parse_page(await self.send(method, *arguments, **options))
            cost = page.count + len(page.referenced)
        except (bp.NotSent, RequestRefused):
            cost = 0
            raise
        finally:
            await self._quota.release(max(max_posts - cost, 0))
        return page

    async def write(self, method: Method, *arguments: Any, **options: Any) -> Any:
        """Call a method that changes something; raise NotSent in a dry run."""
        if self._is_dry_run:
            raise bp.NotSent("X_DRY_RUN is on")
        await self._verify_account()
        return await self.send(method, *arguments, **options)

    async def read_own_user(self) -> User:
        """Return the account's user; this reads no post."""
        self._check_open()
        try:
            return await self._ask_own_user()
        except RequestRefused as error:
            if error.status == 401:
                self._key_check.refuse()
                raise self._stopped() from error
            raise

    async def send(self, method: Method, *arguments: Any, **options: Any) -> Any:
        """Call a method with these arguments and return X's response."""
        self._check_open()
        try:
            return await self._send(method, *arguments, **options)
        except RequestRefused as error:
            if error.status == 401:
                raise await self._check_keys(error) from error
            raise

    async def _ask_own_user(self) -> User:
        """Return the account's user; raise RequestRefused with the status 401 if X refuses the keys."""
        user = parse_user(await self._send(self.tweepy.get_me, user_fields=["description", "name", "username"]))
        if user is None:
            raise bp.DeliveryUnknown("X does not return whose the keys are")
        return user

    async def _send(self, method: Method, *arguments: Any, **options: Any) -> Any:
        try:
            response = await method(*arguments, **options)
        except RequestRefused as error:
            if error.status == 401:
                self._check_clock(error)
                raise
            if error.status >= 500 or error.status < 400:
                self._status.failed(bp.DisconnectCause.PLATFORM, error)
                raise bp.DeliveryUnknown(str(error)) from error
            self._mark_connected()
            if error.is_of_plan:
                raise NotAllowedNow(str(error), retry_after=error.retry_after or PLAN_RETRY_SECONDS) from error
            if error.status == 429:
                raise bp.NotSent(str(error), retry_after=error.retry_after) from error
            raise
        except (bp.NotSent, bp.DeliveryUnknown) as error:
            if not (isinstance(error, bp.NotSent) and error.retry_after):  # with retry_after, nothing was sent
                self._status.failed(bp.disconnect_cause(error), error)
            raise
        self._mark_connected()
        return response

    def _check_clock(self, error: "RequestRefused") -> None:
        """Raise ClockSkewed if the clocks of X and of this machine differ so much that X refuses any signature."""
        if error.clock_offset is None or abs(error.clock_offset) <= MAX_CLOCK_SKEW:
            return
        minutes, direction = round(abs(error.clock_offset) / timedelta(minutes=1)), "behind"
        if error.clock_offset < timedelta():
            direction = "ahead of"
        problem = f"this machine's clock is {minutes} minutes {direction} X's, so X refuses what it signs ({error})"
        problem = f"{problem}: set the clock, and have it kept right"
        self._status.failed(bp.DisconnectCause.CLOCK, problem)
        raise ClockSkewed(problem) from error

    async def _check_keys(self, refusal: "RequestRefused") -> bp.NotSent:
        """Return the error for a 401: X may refuse the keys, or only this one call."""
        if await self._key_check.confirm():
            return self._stopped()
        problem = f"{refusal}, although X does not refuse the keys"
        self._status.failed(bp.DisconnectCause.PLATFORM, problem)
        return bp.NotSent(problem)

    async def _are_keys_accepted(self) -> bool | None:
        """Return whether X accepts the keys, and they are those of the expected account; None if it cannot be asked."""
        if self._quota.is_off:
            return None
        try:
            user = await self._ask_own_user()
        except RequestRefused as error:
            return False if error.status == 401 else None
        except bp.DeliveryError:
            return None
        return not self._key_check.is_refused or not account_problem(self._expected_username, user)

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
                except (RequestRefused, bp.DeliveryUnknown) as error:
                    raise bp.NotSent(f"the account of the keys could not be verified: {error}") from error
                if problem := account_problem(self._expected_username, user):
                    self._key_check.refuse(problem)
                    raise self._stopped()
                await self._state.write_later(VERIFIED_KEY, self._expected_username)
            self._expected_username = ""

    def _mark_connected(self) -> None:
        """Record that X answers; refused mentions stay reported until they can be read."""
        if self._status.snapshot.cause not in (bp.DisconnectCause.REFUSED, bp.DisconnectCause.FORBIDDEN):
            self._status.connected()

    def _stopped(self) -> bp.NotSent:
        return bp.NotSent(self.stop_reason, retry_after=self._key_check.retry_after)

    def _check_open(self) -> None:
        if self._key_check.is_refused:
            raise self._stopped()
        if self._quota.is_off:
            reason = f"X is switched off: {self._quota.off_switch} is there"
            self._status.failed(bp.DisconnectCause.SWITCHED_OFF, reason)
            raise bp.NotSent(reason)


def account_problem(expected_username: str, user: User) -> str:
    """Return the problem if the keys belong to another account than X_USERNAME; empty if not."""
    if not expected_username or user.username.casefold() == expected_username:
        return ""
    return f"X_USERNAME is {expected_username}, but the keys are those of @{user.username}: nothing is read or written"


def _secret_text(secret: Any) -> str:
    return secret.get_secret_value() if secret is not None else ""


class ClockSkewed(bp.NotSent):
    """X refused a signature because the clock of this machine is wrong."""


class NotAllowedNow(bp.NotSent):
    """The plan, the credits or the app's permissions do not allow a call; that may change at any time."""


class RequestRefused(Exception):
    """X refused a request; `detail` is its explanation.

    `is_of_plan` tells that not the request is wrong: the plan, the credits or the app's permissions do not allow it.
    `clock_offset` is how far X's clock is ahead of this machine's; None if X does not say.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        retry_after: float | None = None,
        *,
        is_of_plan: bool = False,
        clock_offset: timedelta | None = None,
    ) -> None:
        super().__init__(f"X says {status}: {detail}" if detail else f"X says {status}")
        self.status = status
        self.detail = detail
        self.retry_after = retry_after
        self.is_of_plan = is_of_plan
        self.clock_offset = clock_offset


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response, with the method that tweepy calls."""

    status: int
    body: bytes = field(repr=False)

    async def json(self) -> Any:
        """Return the body as JSON; raise DeliveryUnknown if it is none: the call may have succeeded."""
        try:
            return json_format.loads(self.body)
        except ValueError:
            raise bp.DeliveryUnknown(f"X says {self.status} with a body that cannot be read") from None


class SigningClient(AsyncClient):  # type: ignore[misc]  # tweepy has no types
    """tweepy's endpoints at API_URL; every request is signed with OAuth 1.0a and sent on a connection of its own.

    So a failed connection means that nothing was sent. Calls raise NotSent if nothing was sent or X limits requests,
    RequestRefused if X refuses, DeliveryUnknown if the result is unknown. An endpoint whose limit is used up is not
    called.
    """

    def __init__(self, settings: XSettings, clock: Clock, environment: Mapping[str, str]) -> None:
        super().__init__(
            consumer_key=_secret_text(settings.x_api_key),
            consumer_secret=_secret_text(settings.x_api_secret),
            access_token=_secret_text(settings.x_access_token),
            access_token_secret=_secret_text(settings.x_access_token_secret),
            return_type=dict,
        )
        self.session: ClientSession | None = None
        self._base_url, self._clock = settings.x_api_base_url, clock
        self._network = bp.find_network(self._base_url or API_URL, environment)
        self.limits = EndpointLimits()

    async def open(self) -> None:
        """Open the HTTP session."""
        connector = TCPConnector(force_close=True, ssl=self._network.certificates)
        timeout = ClientTimeout(total=REQUEST_TIMEOUT, sock_connect=CONNECT_TIMEOUT)
        session = self.session = ClientSession(connector=connector, timeout=timeout, proxy=self._network.proxy)
        session._retry_connection = False  # aiohttp's retry would repeat the nonce, which X answers with 401

    async def close(self) -> None:
        """Close the HTTP session."""
        session, self.session = self.session, None
        if session is not None:
            await session.close()

    async def request(
        self,
        method: str,
        route: str,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        user_auth: bool = True,  # tweepy passes it; there is no other way here
    ) -> HttpResponse:
        """Send one request and return its complete response."""
        endpoint = endpoint_of(method, route)
        if wait := self.limits.wait_seconds(endpoint, self._clock()):
            raise bp.NotSent(f"X allows no more calls of {endpoint} for now", retry_after=wait)
        response, body = await self._send(
            method, str(URL(API_URL + route).with_query(sorted((params or {}).items()))), json
        )
        problems, now = _problems_in(body), self._clock()
        is_of_plan = _is_of_plan(response.status, problems)
        if not is_of_plan:  # its wait is not that of the endpoint
            self.limits.update(endpoint, response.status, response.headers, now)
        if not 200 <= response.status < 300:
            raise RequestRefused(
                response.status,
                _error_detail(problems),
                self.limits.wait_seconds(endpoint, now) or None,
                is_of_plan=is_of_plan,
                clock_offset=_clock_offset(response.headers),
            )
        return HttpResponse(response.status, body)

    async def _send(self, method: str, url: str, json: Any) -> tuple[ClientResponse, bytes]:
        """Sign and send a request; return its response and the body."""
        if self.session is None:
            raise bp.NotSent("X is not connected")
        headers, data = {"User-Agent": self.user_agent}, None
        if json is not None:
            encoded = json_format.dumps(json).encode()
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(encoded))}
            data = bp.write_body(encoded, "send")
        signer = Client(self.consumer_key, self.consumer_secret, self.access_token, self.access_token_secret)
        url, headers, _ = signer.sign(url, method, headers=headers)
        if self._base_url:  # the signature is made for X's own host
            headers["Host"] = URL(API_URL).host or ""
            url = self._base_url + url.removeprefix(API_URL)
        path, mark, query = url.partition("?")
        target = URL(f"{path}{mark}{query.replace(':', '%3A')}", encoded=True)  # as signed: aiohttp leaves colons
        try:
            async with self.session.request(
                method, target, data=data, headers=headers, allow_redirects=False
            ) as response:
                body = await bp.read_bounded(response, MAX_RESPONSE_BYTES)
        except bp.NOT_SENT_ERRORS as error:
            raise bp.NotSent(f"no connection to X: {bp.describe_client_error(error)}") from error
        except (ClientError, TimeoutError, OSError) as error:
            raise bp.DeliveryUnknown(f"{type(error).__name__} {error}".strip()) from error
        if body is None:
            raise bp.DeliveryUnknown(f"X says {response.status} with more than {MAX_RESPONSE_BYTES} bytes")
        return response, body


def _problems_in(body: bytes) -> list[Mapping[str, Any]]:
    """Return what X explains about an error, in any of its formats: the body, and each of its errors."""
    try:
        payload = json_format.loads(body)
    except ValueError:
        return []
    if not isinstance(payload, Mapping):
        return []
    errors = payload.get("errors")
    problems = [payload, *(errors if isinstance(errors, list) else [])]
    return [problem for problem in problems if isinstance(problem, Mapping)]


def _error_detail(problems: Sequence[Mapping[str, Any]]) -> str:
    """Return the detail of each error, or the title."""
    details = [str(problem.get("detail") or problem.get("message") or "") for problem in problems]
    titles = [str(problem.get("title") or "") for problem in problems[:1]]
    return shorten(" ".join(dict.fromkeys(filter(None, details))) or "".join(titles), MAX_DETAIL_LENGTH)


def _is_of_plan(status: int, problems: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether X does not allow a call because of the plan, the credits or the app's permissions."""
    if status == 402:
        return True
    if status not in (403, 429):
        return False
    types = {str(problem.get("type") or "").rpartition("/")[2] for problem in problems}
    return not PLAN_PROBLEMS.isdisjoint(types) or any(problem.get("title") == USAGE_CAP_TITLE for problem in problems)


def _clock_offset(headers: Mapping[str, str]) -> timedelta | None:
    """Return how far the clock of a response is ahead of the one that requests are signed by; None without a date."""
    try:
        sent_at = parsedate_to_datetime(headers.get("Date", ""))
    except ValueError:
        return None
    return sent_at - system_clock() if sent_at.tzinfo is not None else None
