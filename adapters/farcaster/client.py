"""The HTTP API of a hub (Snapchain node): the endpoints in use, and what their answers mean."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import ClientTimeout

import bot.platform as bp
from adapters.farcaster.config import FarcasterSettings
from adapters.farcaster.incoming import NO_USER, Cast, User, read_user
from adapters.farcaster.messages import CastId
from bot.text import shorten

REQUEST_TIMEOUT, CONNECT_TIMEOUT = 20.0, 10.0
MAX_RESPONSE_BYTES = 8 << 20
MAX_DETAIL_LENGTH = 200
PAGE_SIZE = 100
LIMIT_SECONDS = 60.0  # if a 429 does not say how long it lasts
DUPLICATE = re.compile(r"duplicate|already been merged", re.IGNORECASE)
# A hub answers every failure of its own with 400 too.
TRANSIENT = re.compile(r"unavailable|internal|rate.?limit|mempool|time.?out|not ready", re.IGNORECASE)
Json = dict[str, Any]


class RequestRefused(Exception):
    """The hub refused a request with this status; the text is its explanation."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"the hub says {status}: {detail}" if detail else f"the hub says {status}")
        self.status = status
        self.is_duplicate = bool(DUPLICATE.search(detail))  # the hub has the message
        self.is_final = status == 400 and not TRANSIENT.search(detail)  # about what was sent, not about who sends


class HubClient:
    """The client of one account, which sends while its `session` is open.

    Calls raise NotSent if nothing was sent or the hub limits requests, RequestRefused if it refuses, and
    DeliveryUnknown if the result is unknown.
    """

    def __init__(self, settings: FarcasterSettings, environment: Mapping[str, str]) -> None:
        self._hub = settings.farcaster_hub
        headers = {"User-Agent": "Greenroom"} | ({"x-api-key": settings.api_key} if settings.api_key else {})
        timeout = ClientTimeout(total=REQUEST_TIMEOUT, sock_connect=CONNECT_TIMEOUT)
        self.session = bp.PlatformSession(self._hub, environment, self._hub, headers=headers, timeout=timeout)

    async def page(self, name: str, query: Mapping[str, str], token: str = "") -> tuple[Sequence[Any], str]:
        """Return a page of messages, newest first, and the token of the next one; empty if there is none."""
        paging = {"reverse": "true", "pageSize": str(PAGE_SIZE)} | ({"pageToken": token} if token else {})
        answer = await self._call("GET", name, query={**paging, **query})
        messages, following = answer.get("messages"), answer.get("nextPageToken")
        return messages if isinstance(messages, list) else [], following if isinstance(following, str) else ""

    async def cast(self, cast_id: CastId) -> Cast | None:
        """Return a cast; None if the hub does not have it, or it cannot be read."""
        try:
            answer = await self._call("GET", "castById", query={"fid": str(cast_id.fid), "hash": cast_id.hash})
            return Cast.model_validate(answer)
        except RequestRefused as error:
            if error.is_final or error.status == 404:
                return None
            raise
        except ValueError:
            return None

    async def user(self, fid: int) -> User:
        """Return the names of an account; without them where the hub has none."""
        try:
            answer = await self._call("GET", "userDataByFid", query={"fid": str(fid)})
        except RequestRefused as error:
            if error.is_final or error.status == 404:
                return NO_USER
            raise
        return read_user(answer.get("messages"))

    async def submit(self, body: bytes) -> None:
        """Submit a signed message, which the hub takes once, however often it gets it."""
        await self._call("POST", "submitMessage", body=body, label="send")

    async def validate(self, body: bytes) -> bool:
        """Return whether the hub would take a signed message, without submitting it."""
        return (await self._call("POST", "validateMessage", body=body)).get("valid") is True

    async def _call(
        self,
        method: str,
        name: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        label: str = "",
    ) -> Json:
        """Return the JSON object that answers; `label` names the crash points around the body of the request."""
        headers: dict[str, str] = {}
        if body is not None:
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(len(body))}
        data = None if body is None else bp.write_body(body, label)
        response, answer = await self.session.fetch(
            method, f"{self._hub}/v1/{name}", MAX_RESPONSE_BYTES, params=query, data=data, headers=headers
        )
        return _read_answer(response.status, response.headers.get("Retry-After", ""), answer)


def _read_answer(status: int, retry_after: str, answer: bytes | None) -> Json:
    """Return the object of an answer; raise for one that is no success."""
    if status == 429:
        raise bp.NotSent(
            "the hub allows no more requests for now",
            retry_after=float(retry_after) if retry_after.isdecimal() else LIMIT_SECONDS,
        )
    if status >= 500:
        raise bp.DeliveryUnknown(f"the hub says {status}")
    try:
        read = json.loads(answer or b"")
    except ValueError:
        read = None
    if not 200 <= status < 300:
        fields = [read.get(name) for name in ("error", "errorDetail", "message")] if isinstance(read, dict) else []
        detail = ": ".join(str(field) for field in fields if field)
        raise RequestRefused(status, shorten(detail, MAX_DETAIL_LENGTH))
    if not isinstance(read, dict):
        raise bp.DeliveryUnknown("what the hub answers is no JSON object, or too large")
    return read
