"""Settings of the server, and its fixed limits."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from bot import CommaList, Secret, SettingsModel

MIN_TOKEN_LENGTH = 8


def is_usable(token: str) -> bool:
    """Return whether a token is long enough and valid in a header."""
    return len(token) >= MIN_TOKEN_LENGTH and token.isascii() and token.isprintable() and " " not in token


def _check_token(token: SecretStr) -> SecretStr:
    if not is_usable(token.get_secret_value()):
        raise ValueError(f"it must be at least {MIN_TOKEN_LENGTH} ASCII characters without spaces")
    return token


class WebSettings(SettingsModel):
    """Address and access of the web page and the HTTP API."""

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


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the server; times in seconds, sizes in bytes."""

    header_seconds: float = 10.0
    body_seconds: float = 30.0
    write_seconds: float = 60.0
    plugin_seconds: float = 30.0
    heartbeat_seconds: float = 20.0
    keep_alive_seconds: float = 15.0
    max_guesses: int = 10
    max_connections: int = 300
    max_sockets: int = 200
    max_body_bytes: int = 1024 * 1024
    max_frame_bytes: int = 256 * 1024
    max_backlog_bytes: int = 1024 * 1024
