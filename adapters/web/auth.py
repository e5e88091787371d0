"""Token, cookie, guess limit."""

import hashlib
import hmac
import logging
import os
import secrets
import stat
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path

from aiohttp import web

from adapters.web.config import is_usable
from bot import SettingError

logger = logging.getLogger(__name__)

COOKIE_MAX_AGE = 30 * 24 * 3600


class CredentialKind(StrEnum):
    """In which way a credential is shown."""

    BEARER = "bearer"
    LINK = "link"
    COOKIE = "cookie"


@dataclass(frozen=True, slots=True)
class Credential:
    """What a request shows to be let in."""

    kind: CredentialKind
    value: str


class TokenAuth:
    """Knows the token, and a cookie's name and value that are derived from it.

    A changed token so changes the cookie too, and bots on other ports of one machine, which share
    their cookies, do not overwrite each other's.
    """

    def __init__(self, token: str) -> None:
        self._key = token.encode()
        self.cookie_name = f"greenroom-{self._derive(b'cookie name')[:12]}"
        self._cookie = self._derive(b"cookie value")

    def read_credential(self, request: web.Request) -> Credential | None:
        """Find the credential of a request; None where it shows none."""
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return Credential(CredentialKind.BEARER, value.strip())
        if request.path == "/" and "token" in request.query:
            return Credential(CredentialKind.LINK, request.query["token"])
        cookie = request.cookies.get(self.cookie_name)
        return None if cookie is None else Credential(CredentialKind.COOKIE, cookie)

    def is_valid(self, credential: Credential) -> bool:
        """Tell whether a credential is right, in a time that does not depend on how wrong it is."""
        expected = self._cookie.encode() if credential.kind is CredentialKind.COOKIE else self._key
        value = credential.value.encode("utf-8", "surrogateescape")
        return hmac.compare_digest(_digest(value), _digest(expected))

    def set_cookie(self, response: web.Response) -> None:
        """Let the browser come back without the token."""
        response.set_cookie(
            self.cookie_name, self._cookie, max_age=COOKIE_MAX_AGE, path="/", httponly=True, samesite="Strict"
        )

    def _derive(self, purpose: bytes) -> str:
        return hmac.new(self._key, b"greenroom " + purpose, hashlib.sha256).hexdigest()


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


TOKEN_FILE = "server-token"
MAX_TOKEN_FILE_BYTES = 4096


def load_or_create_token(folder: Path) -> str:
    """Read the token kept in a folder; made there, with the folder, where there is none yet.

    Raises SettingError where the file cannot be read or written, or holds no token.
    """
    path = folder / TOKEN_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        token = _read_token(path)
        if not token:
            _write_token(path, secrets.token_urlsafe(32))
            token = _read_token(path)
    except OSError as error:
        raise SettingError(
            f"BOT_DATA_DIR: the server's token cannot be kept in {path}: {error.strerror or error}; choose "
            "another folder, or set SERVER_TOKEN"
        ) from None
    if not is_usable(token):
        raise SettingError(f"{path} holds no usable token: remove the file, and a new one is made")
    return token


def _read_token(path: Path) -> str:
    try:
        # Neither a link that leads elsewhere nor a pipe that never ends.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            os.fchmod(descriptor, 0o600)
            logger.warning("%s could be read by others; remove it and start again for a new token", path)
        return file.read(MAX_TOKEN_FILE_BYTES).decode("utf-8", "replace").strip()


def _write_token(path: Path, token: str) -> None:
    """Put a token in place as a whole; where another process was faster, its token stands."""
    temporary_path = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(f"{token}\n".encode())
            file.flush()
            os.fsync(descriptor)
        if path.exists() and path.stat().st_size == 0:
            path.unlink()  # a start that died before it had written anything
        try:
            os.link(temporary_path, path)
        except FileExistsError:
            return
    finally:
        temporary_path.unlink()


WINDOW_SECONDS, BLOCK_SECONDS, MAX_CLIENTS = 60.0, 300.0, 1024


def client_network(address: str | None) -> str:
    """Name who has an address: one line to the net has 2^64 of IPv6, and could guess from each of them."""
    try:
        ip_address = IPv6Address((address or "").partition("%")[0])
    except ValueError:
        return address or ""
    return str(ip_address.ipv4_mapped or IPv6Network((ip_address, 64), strict=False))


@dataclass(slots=True)
class _GuessRecord:
    failures: deque[float] = field(default_factory=deque)
    blocked_until: float = 0.0


class GuessLimiter:
    """Counts wrong guesses by client: `most` of them within a minute shut a client out for five minutes.

    `clock` is monotonic, in seconds. At most 1024 clients are remembered, the latest ones.
    """

    def __init__(self, max_guesses: int = 10, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_guesses = max_guesses
        self._clock = clock
        self._records: OrderedDict[Hashable, _GuessRecord] = OrderedDict()

    def blocked_seconds(self, client: Hashable) -> float:
        """Tell how many seconds a client is still shut out."""
        record = self._records.get(client)
        return max(0.0, record.blocked_until - self._clock()) if record else 0.0

    def record_failure(self, client: Hashable) -> None:
        """Note a wrong guess."""
        now = self._clock()
        record = self._records.setdefault(client, _GuessRecord())
        self._records.move_to_end(client)
        record.failures.append(now)
        while record.failures[0] < now - WINDOW_SECONDS:
            record.failures.popleft()
        if len(record.failures) >= self._max_guesses:
            record.blocked_until = now + BLOCK_SECONDS
            record.failures.clear()
        while len(self._records) > MAX_CLIENTS:
            self._records.popitem(last=False)
