"""Settings of the server, and its fixed limits."""

from dataclasses import dataclass
from ipaddress import ip_network
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from bot import CommaList, Secret, SettingsModel
from bot.platform import ServerLimits

PLATFORM = "web"
DELETED_NAME = "(deleted)"  # of a room whose conversation was deleted: its title had words of its messages
DELETED_KEY = "deleted"  # in the metadata of a room: its conversation was deleted and nothing was said there since
MIN_TOKEN_LENGTH = 8


def is_usable(token: str) -> bool:
    """Return whether a token is long enough and valid in a header."""
    return len(token) >= MIN_TOKEN_LENGTH and token.isascii() and token.isprintable() and " " not in token


def _check_token(token: SecretStr) -> SecretStr:
    if not is_usable(token.get_secret_value()):
        raise ValueError(f"it must be at least {MIN_TOKEN_LENGTH} ASCII characters without spaces")
    return token


def _check_networks(networks: tuple[str, ...]) -> tuple[str, ...]:
    for network in networks:
        try:
            ip_network(network, strict=False)
        except ValueError:
            raise ValueError(f"{network!r} is neither an address nor a network such as 10.0.0.0/8") from None
    return networks


class WebSettings(SettingsModel):
    """Address and access of the web page and the HTTP API."""

    CHARACTER_SETTINGS = frozenset()

    server_host: str = Field(
        "127.0.0.1", description="The address to listen on: 127.0.0.1 for this machine, 0.0.0.0 for all."
    )
    server_port: int = Field(3000, ge=0, le=65535, description="The port to listen on; 0 for any free one.")
    server_token: Annotated[Secret, AfterValidator(_check_token)] | None = Field(
        None,
        description="The token for the page and the API. If unset, it is created at the first start and "
        "stored in the file server-token in BOT_DATA_DIR.",
    )
    server_allowed_hosts: CommaList = Field(
        (),
        description="Further host names of the server, such as bot.example.org; localhost and SERVER_HOST "
        "are always allowed.",
    )
    server_trusted_proxies: Annotated[CommaList, AfterValidator(_check_networks)] = Field(
        (),
        description="Addresses or networks of the proxies in front of the server, such as 127.0.0.1 or 10.0.0.0/8: "
        "their X-Forwarded-For header names the client, and the limit of connections for each client does not "
        "apply to them.",
    )
    metrics_token: Annotated[Secret, AfterValidator(_check_token)] | None = Field(
        None,
        description="A token that allows nothing but GET /metrics, for Prometheus; tokens that may read allow it too.",
    )


@dataclass(frozen=True, slots=True)
class Limits(ServerLimits):
    """Limits of the server; times in seconds, sizes in bytes."""

    plugin_seconds: float = 30.0
    heartbeat_seconds: float = 20.0
    keep_alive_seconds: float = 15.0
    revocation_seconds: float = 1.0  # until the WebSockets of a revoked token are closed
    max_sockets: int = 200
    max_open_messages: int = 100  # of one token, without its outcome yet; the server's own token has no limit
    max_body_bytes: int = 1024 * 1024
    max_uploads: int = 4  # bodies beyond `max_body_bytes` (files, routes of plugins that allow it) at a time
    upload_seconds: float = 300.0
    max_file_bytes: int = 10 * 2**20  # of one uploaded file; models look at no larger picture
    max_stored_bytes: int = 2 * 2**30  # of all files that were uploaded with one token
    min_free_bytes: int = 200 * 2**20  # of the disk; below it no file is stored
    max_frame_bytes: int = 256 * 1024
    max_backlog_bytes: int = 1024 * 1024
    max_pending_updates: int = 500  # live updates that a connection has not read; then it loads everything again
    max_remembered_updates: int = 1000
    batch_seconds: float = 0.2  # between two batches of live updates for a connection that takes batches
    summary_seconds: float = 1.0  # between two summaries of a topic
    resume_seconds: float = 60.0  # how long live updates are remembered after the last subscription
    account_seconds: float = 1.0  # between two looks at the state of connections
