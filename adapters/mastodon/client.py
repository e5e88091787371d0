"""The server's HTTP API: the endpoints in use, rate limits, and the stream of events."""

import json
import logging
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import quote

from aiohttp import ClientError, ClientResponse, ClientTimeout, FormData
from pydantic import BaseModel, ValidationError
from yarl import URL

import bot.platform as bp
from adapters.mastodon.config import MastodonSettings
from adapters.mastodon.incoming import Account, Instance, Media, Status, Thread
from bot import Attachment, Clock
from bot.text import shorten

logger = logging.getLogger(__name__)
PayloadT = TypeVar("PayloadT", bound=BaseModel)
Query = Mapping[str, str] | list[tuple[str, str]]
REQUEST_TIMEOUT, UPLOAD_TIMEOUT, CONNECT_TIMEOUT = 20.0, 50.0, 10.0
STREAM_TIMEOUT = 90.0  # Mastodon sends something every fifteen seconds
MAX_RESPONSE_BYTES = 8 << 20
MAX_LINE_BYTES = 1 << 20  # of an event of the stream
MAX_DETAIL_LENGTH = 200
MAX_DESCRIPTION_LENGTH = 1500
DEFAULT_WAIT = timedelta(minutes=5)  # Mastodon's usual window, if a 429 does not say
NOTIFICATION_TYPES = ("mention", "favourite", "reblog", "follow_request")
PAGE_SIZE = 40


class RequestRefused(Exception):
    """The server refused a request with this status; the text is its explanation."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"Mastodon says {status}: {detail}" if detail else f"Mastodon says {status}")
        self.status = status


class UnreadableAnswer(bp.DeliveryUnknown):
    """The server answered what cannot be read."""


class MastodonClient:
    """One account's client, which sends while its `session` is open.

    Calls raise NotSent if nothing was sent or the server limits requests, RequestRefused if it refuses, and
    DeliveryUnknown if the result is unknown. An endpoint whose limit is used up is not called.
    """

    def __init__(self, settings: MastodonSettings, environment: Mapping[str, str], clock: Clock) -> None:
        self._server, self._clock = settings.mastodon_server, clock
        headers = {"Authorization": f"Bearer {settings.token}", "User-Agent": "Greenroom"}
        self.session = bp.PlatformSession(
            self._server, environment, self._server, headers=headers, read_bufsize=MAX_LINE_BYTES
        )
        self._limited_until: dict[str, datetime] = {}  # by method and kind of object

    async def own_account(self) -> Account:
        """Return the account of the token."""
        return _parse(Account, await self.call("GET", "/api/v1/accounts/verify_credentials"))

    async def instance(self) -> Instance:
        """Return the server's name, version and limits."""
        return _parse(Instance, await self.call("GET", "/api/v2/instance"))

    async def notifications(self, min_id: str | None) -> list[Any]:
        """Return the notifications that follow one, newest first: the next ones; without it, the latest."""
        query = [("types[]", name) for name in NOTIFICATION_TYPES] + [("limit", str(PAGE_SIZE))]
        page = await self.call("GET", "/api/v1/notifications", query=query + ([("min_id", min_id)] if min_id else []))
        return page if isinstance(page, list) else []

    async def status(self, status_id: str) -> Status:
        """Return a post."""
        return _parse(Status, await self.call("GET", f"/api/v1/statuses/{quote_id(status_id)}"))

    async def thread(self, status_id: str) -> Thread:
        """Return the posts above and below a post."""
        return _parse(Thread, await self.call("GET", f"/api/v1/statuses/{quote_id(status_id)}/context"))

    async def own_posts(self, account_id: str, max_id: str) -> list[Status]:
        """Return the latest posts of the own account that are older than one, newest first."""
        query = {"limit": str(PAGE_SIZE), "exclude_reblogs": "true"} | ({"max_id": max_id} if max_id else {})
        page = await self.call("GET", f"/api/v1/accounts/{quote_id(account_id)}/statuses", query=query)
        return [_parse(Status, item) for item in page] if isinstance(page, list) else []

    async def create_status(self, body: Mapping[str, Any], key: str) -> str:
        """Publish a post, once for a key; return its id."""
        return _parse(Status, await self.call("POST", "/api/v1/statuses", body=body, label="send", key=key)).id

    async def edit_status(self, status_id: str, body: Mapping[str, Any]) -> None:
        """Replace a post."""
        await self.call("PUT", f"/api/v1/statuses/{quote_id(status_id)}", body=body, label="edit")

    async def delete_status(self, status_id: str) -> None:
        """Delete a post; one that is gone already is deleted too."""
        try:
            await self.call("DELETE", f"/api/v1/statuses/{quote_id(status_id)}")
        except RequestRefused as error:
            if error.status != 404:
                raise

    async def set_favourite(self, status_id: str, *, is_set: bool) -> None:
        """Favourite a post, or take that back; repeating it has no effect."""
        name = "favourite" if is_set else "unfavourite"
        await self.call("POST", f"/api/v1/statuses/{quote_id(status_id)}/{name}", label="react")

    async def accept_follower(self, account_id: str) -> None:
        """Accept the request of an account to follow."""
        await self.call("POST", f"/api/v1/follow_requests/{quote_id(account_id)}/authorize")

    async def upload(self, file: Attachment) -> str:
        """Upload a file; return its id. The server may still be processing it: see `is_processed`."""
        form = FormData(default_to_multipart=True)
        form.add_field("file", file.data, filename=file.name or file.id, content_type=file.content_type or None)
        form.add_field("description", shorten(file.description, MAX_DESCRIPTION_LENGTH))
        return _parse(Media, await self.call("POST", "/api/v2/media", form=form)).id

    async def is_processed(self, media_id: str) -> bool:
        """Return whether an uploaded file can be posted."""
        return (await self._request("GET", f"/api/v1/media/{quote_id(media_id)}"))[0] != 206

    async def stream(self, url: str) -> AsyncGenerator[tuple[str, str], None]:
        """Yield the events of the account: their names and data. The first one, `open`, says that it is connected."""
        target = URL(url or self._server).with_scheme(URL(self._server).scheme)  # never without TLS if that has it
        timeout = ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=STREAM_TIMEOUT)
        try:
            async with self.session.request("GET", target / "api/v1/streaming/user", timeout=timeout) as response:
                if response.status != 200:
                    raise RequestRefused(response.status, "no stream of events")
                yield "open", ""
                name = ""
                async for raw in response.content:
                    field, _, value = raw.decode("utf-8", "replace").rstrip("\r\n").partition(":")
                    if field == "event":
                        name = value.strip()
                    elif field == "data":
                        yield name, value.strip()
        except (ClientError, TimeoutError, OSError, ValueError) as error:  # ValueError: a line that is too long
            raise bp.DeliveryUnknown(f"the stream of events broke: {bp.describe_client_error(error)}") from error

    async def call(self, method: str, path: str, **options: Any) -> Any:
        """Send one request with the options of `_request` and return the JSON of its answer."""
        _, answer = await self._request(method, path, **options)
        try:
            return json.loads(answer) if answer else None
        except ValueError:
            raise UnreadableAnswer("Mastodon answers with what is no JSON") from None

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        form: FormData | None = None,
        label: str = "",
        key: str = "",
    ) -> tuple[int, bytes]:
        """Return status and body of an answer; `label` names the crash points around the body of the request."""
        endpoint, now = f"{method} {path.split('/')[3]}", self._clock()
        if (until := self._limited_until.get(endpoint, now)) > now:
            raise bp.NotSent(f"Mastodon allows no more calls of {endpoint} for now", retry_after=_seconds(until - now))
        url, headers = f"{self._server}{path}", {"Idempotency-Key": key} if key else {}
        data: Any = form
        if body is not None:
            encoded = json.dumps(body).encode()
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(encoded))}
            data = bp.write_body(encoded, label)
        timeout = ClientTimeout(total=UPLOAD_TIMEOUT if form else REQUEST_TIMEOUT, sock_connect=CONNECT_TIMEOUT)
        response, answer = await self.session.fetch(
            method, url, MAX_RESPONSE_BYTES, params=query, data=data, headers=headers, timeout=timeout
        )
        self._note_limit(endpoint, response)
        self._check(response, answer)
        return response.status, answer or b""

    def _check(self, response: ClientResponse, answer: bytes | None) -> None:
        """Raise for an answer that is no success."""
        if answer is None:
            raise UnreadableAnswer(f"Mastodon says {response.status} with more than {MAX_RESPONSE_BYTES} bytes")
        if response.status >= 500:
            raise bp.DeliveryUnknown(f"Mastodon says {response.status}")
        if response.status == 429:
            wait = _reset_of(response, self._clock()) - self._clock()
            raise bp.NotSent("Mastodon allows no more calls for now", retry_after=_seconds(wait))
        if not 200 <= response.status < 300:
            raise RequestRefused(response.status, _detail_of(answer))

    def _note_limit(self, endpoint: str, response: ClientResponse) -> None:
        if response.status == 429 or response.headers.get("X-RateLimit-Remaining") == "0":
            self._limited_until[endpoint] = _reset_of(response, self._clock())


def _reset_of(response: ClientResponse, now: datetime) -> datetime:
    """Return when the limit of an answer is over, at most an hour from now."""
    try:
        reset = datetime.fromisoformat(response.headers.get("X-RateLimit-Reset", ""))
        return min(max(reset, now), now + timedelta(hours=1))
    except (ValueError, TypeError):  # TypeError: it has no time zone
        return now + DEFAULT_WAIT


def quote_id(part: str) -> str:
    """Return an id as a part of a path."""
    return quote(part, safe="")


def _seconds(wait: timedelta) -> float:
    return max(wait.total_seconds(), 1.0)


def _detail_of(answer: bytes) -> str:
    try:
        payload = json.loads(answer)
    except ValueError:
        return ""
    detail = payload.get("error_description") or payload.get("error") if isinstance(payload, dict) else ""
    return shorten(str(detail or ""), MAX_DETAIL_LENGTH)


def _parse(model: type[PayloadT], answer: Any) -> PayloadT:
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise UnreadableAnswer(
            f"Mastodon's {model.__name__} cannot be read: {problem['loc']} {problem['msg']}"
        ) from None
