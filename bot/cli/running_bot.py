"""Access next to a running bot: HTTP client of its server, and its store opened for reading."""

import http.client
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from bot.cli.characters import CharacterConfig
from bot.cli.platforms import WEB
from bot.errors import ConfigError, TemporaryError
from bot.http import UploadedFile
from bot.inbound.agent_handle import AdapterSpec
from bot.plugin_system.loading import find_adapter
from bot.plugin_system.plugin import find_storage
from bot.settings import CoreSettings
from bot.store.protocols import Store
from bot.store.storage import Storage

TIMEOUT_SECONDS = 10.0
TOKEN_FILE = "server-token"
LOOPBACK_BY_WILDCARD = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class HttpReply:
    """The response of the running bot."""

    status: HTTPStatus
    body: Mapping[str, Any]

    @property
    def problem(self) -> str:
        """The message of an error response, or the HTTP status."""
        error = self.body.get("error")
        return str(error.get("message", self.status)) if isinstance(error, Mapping) else str(self.status)


@dataclass(frozen=True, slots=True)
class RunningBot:
    """Address and token of a running bot's server."""

    host: str
    port: int
    token: str

    def get(self, path: str, *, timeout: float = TIMEOUT_SECONDS) -> HttpReply:
        """Send a GET request and return the response. Raises TemporaryError if no bot answers."""
        return self._request("GET", path, None, timeout)

    def post(self, path: str, body: Any = None, *, timeout: float = TIMEOUT_SECONDS) -> HttpReply:
        """Send a POST request and return the response. Raises TemporaryError if no bot answers."""
        return self._request("POST", path, body, timeout)

    def send(
        self, method: str, path: str, body: Any = None, file: UploadedFile | None = None, *, timeout: float
    ) -> HttpReply:
        """Send a request, with a body as JSON or a file as a form; raises TemporaryError if no bot answers."""
        return self._request(method, path, body, timeout, file)

    def _request(
        self, method: str, path: str, body: Any, timeout: float, file: UploadedFile | None = None
    ) -> HttpReply:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        headers = {"Authorization": f"Bearer {self.token}"}
        data = None
        if file is not None:
            headers["Content-Type"], data = _build_form(file)
        elif body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            document = json.loads(response.read())
            status = HTTPStatus(response.status)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TemporaryError(f"no bot answers at {self} ({error})") from None
        finally:
            connection.close()
        return HttpReply(status, document if isinstance(document, Mapping) else {})

    def __str__(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def _build_form(file: UploadedFile) -> tuple[str, bytes]:
    """Return the content type and the body of a form with one file."""
    boundary = uuid4().hex
    name = re.sub(r'[\x00-\x1f\x7f"\\]', "_", file.name)
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{file.field_name}"; filename="{name}"\r\n'
    head += f"Content-Type: {file.content_type}\r\n\r\n"
    body = head.encode("utf-8", "replace") + file.data + f"\r\n--{boundary}--\r\n".encode()
    return f"multipart/form-data; boundary={boundary}", body


def find_running_bot(config: CharacterConfig, access_token: str = "") -> RunningBot:
    """Return the server of the process that runs a character, to be called with a token, by default its own.

    Raises ConfigError if it is unknown.
    """
    spec = find_adapter(WEB)
    if not isinstance(spec, AdapterSpec):
        raise ConfigError(spec)
    values = config.settings.load(spec.settings).model_dump()
    host, port, token = str(values["server_host"]), int(values["server_port"]), values["server_token"]
    if not port:
        raise ConfigError("SERVER_PORT is 0 (any free port): set it to the port that the running bot printed")
    if access_token or token is not None:
        return RunningBot(LOOPBACK_BY_WILDCARD.get(host, host), port, access_token or token.get_secret_value())
    file = config.settings.load(CoreSettings).bot_data_dir / TOKEN_FILE
    try:
        stored_token = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"the token of its server cannot be read from {file}: {error.strerror}") from None
    return RunningBot(LOOPBACK_BY_WILDCARD.get(host, host), port, stored_token)


def require_storage(config: CharacterConfig) -> Storage:
    """Return a character's storage. Raises ConfigError if its data is in memory only."""
    storage = find_storage(config.plugins)
    if storage is None:
        raise ConfigError(
            f"{config.name} ({config.path}) is stored in memory only: name the plugin sql in its file, or "
            "set DATABASE_URL"
        )
    return storage


@asynccontextmanager
async def open_store_for_reading(config: CharacterConfig) -> AsyncIterator[Store]:
    """Open a character's store for reading; another process may be using it."""
    async with require_storage(config).open_read_only(config.agent_config.agent_id, config.settings) as store:
        yield store
