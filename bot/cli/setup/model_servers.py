"""Models: servers that run on this machine, what a model file needs, and whether a model writes."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yarl import URL

from bot.cli.characters import load_character_config
from bot.cli.doctor.checks import SETTINGS_ADVICE
from bot.cli.doctor.model_checks import ask_model
from bot.errors import BotError, TemporaryError
from bot.inbound.operator_tools import Finding, FindingStatus
from bot.logs import configure_logging
from bot.plugin_system.bundled import (
    ModelServer,
    PluginPurpose,
    bundled_plugins,
    model_files,
    model_keys,
    model_servers,
)
from bot.plugin_system.imports import (
    Installation,
    find_distribution,
    has_extra,
    install_extra,
    install_without_dependencies,
)
from bot.settings import Layer, Settings

if TYPE_CHECKING:
    from aiohttp import ClientResponse

LOOPBACK = "http://127.0.0.1"
LOCAL_TIMEOUT, OTHER_TIMEOUT = 2.0, 15.0
MAX_LIST_BYTES = 4 << 20
MAX_MODELS, MAX_NAME_LENGTH = 200, 200
MODELS_PATH = "/v1/models"
LAYER = "the set-up"


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that answers: its kind, its address without `/v1`, and its models for text."""

    kind: ModelServer
    url: str
    models: tuple[str, ...]

    def variables(self, model: str, key: str = "") -> dict[str, str]:
        """Return the variables that name this server and one of its models; blank where another server was named."""
        values = (
            _cleared_variables()
            | {self.kind.address: f"{self.url}{self.kind.path}"}
            | dict.fromkeys(self.kind.models, model)
        )
        return values | ({self.kind.key: key} if key and self.kind.key else {})


def has_model(settings: Settings) -> bool:
    """Return whether a setting enables a model."""
    return any(plugin.purpose is PluginPurpose.MODEL and plugin.is_enabled(settings) for plugin in bundled_plugins())


def key_variables(name: str, key: str) -> dict[str, str]:
    """Return the variables for the key of a service, which is then used instead of a server named before."""
    return _cleared_variables() | {name: key}


def file_variables(value: str) -> dict[str, str]:
    """Return the variables for a model file on this computer, which is then used instead of a server named before."""
    return _cleared_variables() | {model_files().variable: value}


def missing_installations(value: str) -> list[Installation]:
    """Return what must be installed before a model file is run, or the tiny model that is a package."""
    files = model_files()
    missing = [] if has_extra(files.extra) else [install_extra(files.extra)]
    if value == files.tiny_model and find_distribution(files.tiny_model) is None:
        missing.append(install_without_dependencies(files.tiny_model))
    return missing


def _cleared_variables() -> dict[str, str]:
    names = {variable for kind in model_servers() for variable in (kind.address, *kind.models)}
    return dict.fromkeys([*sorted(names), model_files().variable], "")


def default_ports() -> tuple[int, ...]:
    """Return the ports on which model servers usually are."""
    return tuple(kind.port for kind in model_servers() if kind.port)


async def find_servers(ports: Sequence[int]) -> list[FoundServer]:
    """Return the model servers of this machine on these ports; one that does not answer is left out."""
    kinds = {kind.port: kind for kind in model_servers()}
    urls = [(kinds.get(port, kinds[0]), f"{LOOPBACK}:{port}") for port in dict.fromkeys(ports)]

    async def find(kind: ModelServer, url: str) -> FoundServer | None:
        try:
            return FoundServer(kind, url, await list_models(url, timeout=LOCAL_TIMEOUT))
        except TemporaryError:
            return None

    found = await asyncio.gather(*(find(kind, url) for kind, url in urls))
    return [server for server in found if server is not None]


async def find_server(address: str, key: str = "") -> FoundServer:
    """Return the server at an address, with or without `/v1` at its end. Raises TemporaryError, without the key."""
    try:
        url = URL(address if "://" in address else f"http://{address}")
        is_web = url.scheme in ("http", "https") and bool(url.host) and url.user is None
    except ValueError:
        is_web = False
    if not is_web:
        raise TemporaryError(f"{address!r} is not an address such as http://127.0.0.1:8080/v1")
    root = str(url).rstrip("/").removesuffix("/v1")
    kind = next((kind for kind in model_servers() if kind.port == url.port and not key), model_servers()[-1])
    return FoundServer(kind, root, await list_models(root, key, timeout=OTHER_TIMEOUT))


async def list_models(url: str, key: str = "", *, timeout: float) -> tuple[str, ...]:
    """Return the names of the models for text of a server with OpenAI's API. Raises TemporaryError."""
    import aiohttp  # here, because help needs no HTTP client

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    limits = aiohttp.ClientTimeout(total=timeout)
    is_local = url.startswith(LOOPBACK)
    try:
        async with (
            aiohttp.ClientSession(timeout=limits, trust_env=not is_local) as session,
            session.get(f"{url}{MODELS_PATH}", headers=headers, allow_redirects=False) as response,
        ):
            if response.status in (401, 403):
                raise TemporaryError(f"{url} refuses the key" if key else f"{url} needs a key")
            if response.status != 200:
                raise TemporaryError(f"{url}{MODELS_PATH} answers with status {response.status}")
            return _parse_models(url, await _read(response))
    except TimeoutError:
        raise TemporaryError(f"{url} does not answer within {timeout:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise TemporaryError(f"{url} cannot be reached: {type(error).__name__}") from None


async def _read(response: "ClientResponse") -> bytes:
    """Return the body. Raises ValueError for one that is too long."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_LIST_BYTES:
            raise ValueError("too long")
    return bytes(body)


def _parse_models(url: str, body: bytes) -> tuple[str, ...]:
    try:
        items: Any = json.loads(body)["data"]
        names = [str(item["id"]) for item in items][:MAX_MODELS]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TemporaryError(f"{url}{MODELS_PATH} lists no models: the server there is not a model server") from None
    usable = [name for name in names if name.isprintable() and 0 < len(name) <= MAX_NAME_LENGTH]
    return tuple(dict.fromkeys(name for name in usable if "embed" not in name.lower()))


def try_model(character: Path, values: Mapping[str, str]) -> list[Finding]:
    """Make the model write one word as the character would, with these variables above all others."""
    layer = Layer(LAYER, values, hidden_names=frozenset(values))
    try:
        config = load_character_config(character, layer)
        secrets = {*config.secrets, *_known_secrets(values)}
        with configure_logging(level="ERROR", secrets=secrets):
            return asyncio.run(_try(config.dry_run_config, config.settings))
    except BotError as error:
        return [Finding(FindingStatus.FAIL, "model", str(error), SETTINGS_ADVICE)]


async def _try(agent_config: Any, settings: Settings) -> list[Finding]:
    from bot.runtime.agent_runtime import run_agent  # here, because help needs no pipeline

    async with run_agent(agent_config) as agent_runtime:
        problems = [
            Finding(FindingStatus.FAIL, "plugins", f"{name} cannot be initialized: {cause}", SETTINGS_ADVICE)
            for name, cause in agent_runtime.inactive.items()
        ]
        return [*problems, *await ask_model(agent_runtime.agent, settings)]


def _known_secrets(values: Mapping[str, str]) -> set[str]:
    names = {service.key for service in model_keys()} | {kind.key for kind in model_servers()}
    return {value for name, value in values.items() if name in names and value}
