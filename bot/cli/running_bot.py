"""Reads the store beside a running bot; HTTP client to it."""

import http.client
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from bot.cli.characters import Part
from bot.cli.platforms import PAGE
from bot.errors import ConfigError, TryAgain
from bot.inbound.agent_handle import AdapterSpec
from bot.plugin_system.loading import find_adapter
from bot.plugin_system.plugin import storage_of
from bot.settings import CoreSettings
from bot.store.protocols import Store
from bot.store.storage import Storage

DEADLINE = 10.0
TOKEN_FILE = "server-token"
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Reply:
    """What was answered; `problem` is the sentence that a refusal comes with."""

    status: HTTPStatus
    body: Mapping[str, Any]

    @property
    def problem(self) -> str:
        """Why there is nothing else in it."""
        error = self.body.get("error")
        return str(error.get("message", self.status)) if isinstance(error, Mapping) else str(self.status)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Where a running bot listens, and the token that opens it."""

    host: str
    port: int
    token: str

    def post(self, path: str, body: Any = None, *, deadline: float = DEADLINE) -> Reply:
        """Ask for something to be done; raises TryAgain where no bot answers."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=deadline)
        headers = {"Authorization": f"Bearer {self.token}"}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        try:
            connection.request("POST", path, data, headers)
            answer = connection.getresponse()
            told = json.loads(answer.read())
            status = HTTPStatus(answer.status)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TryAgain(f"no bot answers at {self} ({error})") from None
        finally:
            connection.close()
        return Reply(status, told if isinstance(told, Mapping) else {})

    def __str__(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def neighbour_of(part: Part) -> Neighbour:
    """Find where the process that runs a character listens; raises ConfigError where that is not known."""
    spec = find_adapter(PAGE)
    if not isinstance(spec, AdapterSpec):
        raise ConfigError(spec)
    values = part.settings.load(spec.settings).model_dump()
    host, port, token = str(values["server_host"]), int(values["server_port"]), values["server_token"]
    if not port:
        raise ConfigError(
            "SERVER_PORT is 0, which is any: set it to the one that the running bot has printed"
        )
    if token is not None:
        return Neighbour(ANY_ADDRESS.get(host, host), port, token.get_secret_value())
    file = part.settings.load(CoreSettings).bot_data_dir / TOKEN_FILE
    try:
        kept = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"the token of its server cannot be read from {file}: {error.strerror}") from None
    return Neighbour(ANY_ADDRESS.get(host, host), port, kept)


def kept_by(part: Part) -> Storage:
    """Find what keeps a character's store; raises ConfigError where nothing outlives the process."""
    storage = storage_of(part.plugins)
    if storage is None:
        raise ConfigError(
            f"{part.name} ({part.path}) is kept in memory alone: name the plugin sql in its file, or set "
            "DATABASE_URL"
        )
    return storage


@asynccontextmanager
async def looked_into(part: Part) -> AsyncIterator[Store]:
    """Open a character's store for reading alone; it may be in use."""
    async with kept_by(part).look(part.blueprint.agent_id, part.settings) as store:
        yield store
