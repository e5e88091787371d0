"""Requests of the client-server API for one account, and the exceptions that their failures are."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from aiohttp import ClientResponse, ClientTimeout
from yarl import URL

import bot.platform as bp
from adapters.matrix.config import MatrixSettings
from bot.text import shorten

Json = dict[str, Any]
MAX_RESPONSE_BYTES, MAX_FILE_BYTES = 100 * 1024 * 1024, 50 * 1024 * 1024
CONNECT_TIMEOUT, REQUEST_TIMEOUT, UPLOAD_TIMEOUT = 10.0, 30.0, 50.0
MAX_DETAIL_LENGTH = 200
MAX_RETRY_SECONDS = 3600.0
CLIENT, MEDIA, UPLOAD = "/_matrix/client/v3", "/_matrix/client/v1/media/download", "/_matrix/media/v3/upload"


class Refused(bp.Undeliverable):
    """The homeserver refused a request: its status and its code, such as M_FORBIDDEN."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"the homeserver refuses it with {status} {code}: {detail}")
        self.status, self.code = status, code

    @property
    def is_about_token(self) -> bool:
        """Whether the access token is not accepted."""
        return self.status == 401


class MatrixClient:
    """The HTTP session of one account. Each request is made once: the caller decides whether to repeat it.

    Requests raise NotSent if nothing was done, DeliveryUnknown if the result is unknown, and Refused if the homeserver
    refuses.
    """

    def __init__(self, settings: MatrixSettings, environment: Mapping[str, str]) -> None:
        self.url = settings.matrix_homeserver or ""
        token = settings.matrix_token.get_secret_value() if settings.matrix_token else ""
        headers = {"Authorization": f"Bearer {token}"}
        self.session = bp.PlatformSession(self.url, environment, "the homeserver", headers=headers)

    async def get(
        self, path: str, parameters: Mapping[str, str] | None = None, seconds: float = REQUEST_TIMEOUT
    ) -> Json:
        """Return the JSON object at a path below the API's root, such as `sync`."""
        return await self._call("GET", f"{CLIENT}/{path}", seconds, params=parameters)

    async def find(self, path: str) -> Json | None:
        """Return the JSON object at a path; None if there is none, or the account may not read it."""
        try:
            return await self.get(path)
        except Refused as error:
            if error.is_about_token:
                raise
            return None

    async def post(self, path: str, body: Json, **parameters: str) -> Json:
        """Post a JSON object."""
        return await self._call("POST", f"{CLIENT}/{path}", json=body, params=parameters)

    async def put(self, path: str, body: Json, *, label: str = "") -> Json:
        """Send a JSON object by PUT; with a `label`, between the crash points of that name."""
        if not label:
            return await self._call("PUT", f"{CLIENT}/{path}", json=body)
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        return await self._call("PUT", f"{CLIENT}/{path}", data=bp.write_body(data, label), headers=headers)

    async def upload(self, data: bytes, name: str, content_type: str) -> str:
        """Upload a file and return its `mxc:` address; no user sees it until an event names it."""
        headers, params = {"Content-Type": content_type or "application/octet-stream"}, {"filename": name}
        response = await self._call("POST", UPLOAD, UPLOAD_TIMEOUT, data=data, headers=headers, params=params)
        if not isinstance(address := response.get("content_uri"), str):
            raise bp.NotSent("the homeserver returned no address of the file")
        return address

    async def download(self, server: str, media_id: str) -> bytes:
        """Return a file; redirects are not followed, because the request has the token."""
        return await self._fetch("GET", f"{MEDIA}/{path_of(server, media_id)}", UPLOAD_TIMEOUT, MAX_FILE_BYTES)

    async def _call(self, method: str, path: str, seconds: float = REQUEST_TIMEOUT, **options: Any) -> Json:
        if (values := _parse(await self._fetch(method, path, seconds, MAX_RESPONSE_BYTES, **options))) is None:
            raise bp.DeliveryUnknown("the response is not a JSON object")
        return values

    async def _fetch(self, method: str, path: str, seconds: float, max_bytes: int, **options: Any) -> bytes:
        url = URL(f"{self.url.rstrip('/')}{path}", encoded=True)
        options["timeout"] = ClientTimeout(total=seconds, connect=CONNECT_TIMEOUT)
        response, body = await self.session.fetch(method, url, max_bytes, **options)
        if body is None:
            raise bp.DeliveryUnknown(f"the response is larger than {max_bytes} bytes")
        if response.status != 200:
            raise _error_of(response, body)
        return body


def _parse(body: bytes) -> Json | None:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _error_of(response: ClientResponse, body: bytes) -> bp.DeliveryError:
    """Return the exception for a response that is not 200."""
    values, status = _parse(body) or {}, response.status
    code = shorten(str(values.get("errcode") or "without a code"), MAX_DETAIL_LENGTH)
    detail = shorten(str(values.get("error") or response.reason or ""), MAX_DETAIL_LENGTH)
    if status == 429:
        return bp.NotSent("the homeserver limits the rate", retry_after=_retry_after(response, values))
    if status >= 500:
        return bp.DeliveryUnknown(f"the homeserver responds with {status}: {detail}")
    return Refused(status, code, detail)


def _retry_after(response: ClientResponse, values: Json) -> float:
    """Return the seconds that the homeserver asks to wait; it names them in the body, newer ones in a header too."""
    try:
        milliseconds = values.get("retry_after_ms")
        seconds = float(response.headers.get("Retry-After", "1") if milliseconds is None else milliseconds / 1000)
    except (ValueError, TypeError):
        seconds = 1.0
    return min(max(seconds, 0.1), MAX_RETRY_SECONDS)


def path_of(*parts: str) -> str:
    """Return a path of these parts, each escaped."""
    return "/".join(quote(part, safe="") for part in parts)
