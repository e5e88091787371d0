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

COOKIE_AGE = 30 * 24 * 3600


class Kind(StrEnum):
    """In which way a credential is shown."""

    BEARER = "bearer"
    LINK = "link"
    COOKIE = "cookie"


@dataclass(frozen=True, slots=True)
class Credential:
    """What a request shows to be let in."""

    kind: Kind
    value: str


class Lock:
    """Knows the token, and a cookie's name and value that are derived from it.

    A changed token so changes the cookie too, and bots on other ports of one machine, which share
    their cookies, do not overwrite each other's.
    """

    def __init__(self, token: str) -> None:
        self._key = token.encode()
        self.cookie_name = f"greenroom-{self._derived(b'cookie name')[:12]}"
        self._cookie = self._derived(b"cookie value")

    def shown(self, request: web.Request) -> Credential | None:
        """Find the credential of a request; None where it shows none."""
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return Credential(Kind.BEARER, value.strip())
        if request.path == "/" and "token" in request.query:
            return Credential(Kind.LINK, request.query["token"])
        cookie = request.cookies.get(self.cookie_name)
        return None if cookie is None else Credential(Kind.COOKIE, cookie)

    def opens(self, credential: Credential) -> bool:
        """Tell whether a credential is right, in a time that does not depend on how wrong it is."""
        expected = self._cookie.encode() if credential.kind is Kind.COOKIE else self._key
        given = credential.value.encode("utf-8", "surrogateescape")
        return hmac.compare_digest(_digest(given), _digest(expected))

    def give_cookie(self, response: web.Response) -> None:
        """Let the browser come back without the token."""
        response.set_cookie(
            self.cookie_name, self._cookie, max_age=COOKIE_AGE, path="/", httponly=True, samesite="Strict"
        )

    def _derived(self, purpose: bytes) -> str:
        return hmac.new(self._key, b"greenroom " + purpose, hashlib.sha256).hexdigest()


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


NAME = "server-token"
LARGEST = 4096


def kept_token(folder: Path) -> str:
    """Read the token kept in a folder; made there, with the folder, where there is none yet.

    Raises SettingError where the file cannot be read or written, or holds no token.
    """
    path = folder / NAME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        token = _read(path)
        if not token:
            _write(path, secrets.token_urlsafe(32))
            token = _read(path)
    except OSError as error:
        raise SettingError(
            f"BOT_DATA_DIR: the server's token cannot be kept in {path}: {error.strerror or error}; choose "
            "another folder, or set SERVER_TOKEN"
        ) from None
    if not is_usable(token):
        raise SettingError(f"{path} holds no usable token: remove the file, and a new one is made")
    return token


def _read(path: Path) -> str:
    try:
        # Neither a link that leads elsewhere nor a pipe that never ends.
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return ""
    with os.fdopen(fd, "rb") as file:
        mode = os.fstat(fd).st_mode
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            os.fchmod(fd, 0o600)
            logger.warning("%s could be read by others; remove it and start again for a new token", path)
        return file.read(LARGEST).decode("utf-8", "replace").strip()


def _write(path: Path, token: str) -> None:
    """Put a token in place as a whole; where another process was faster, its token stands."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(f"{token}\n".encode())
            file.flush()
            os.fsync(fd)
        if path.exists() and path.stat().st_size == 0:
            path.unlink()  # a start that died before it had written anything
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink()


WINDOW, PAUSE, MOST_KNOWN = 60.0, 300.0, 1024


def household(address: str | None) -> str:
    """Name who has an address: one line to the net has 2^64 of IPv6, and could guess from each of them."""
    try:
        found = IPv6Address((address or "").partition("%")[0])
    except ValueError:
        return address or ""
    return str(found.ipv4_mapped or IPv6Network((found, 64), strict=False))


@dataclass(slots=True)
class _Record:
    wrong: deque[float] = field(default_factory=deque)
    shut_until: float = 0.0


class Throttle:
    """Counts wrong guesses by client: `most` of them within a minute shut a client out for five minutes.

    `clock` is monotonic, in seconds. At most 1024 clients are remembered, the latest ones.
    """

    def __init__(self, most: int = 10, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._records: OrderedDict[Hashable, _Record] = OrderedDict()

    def wait(self, client: Hashable) -> float:
        """Tell how many seconds a client is still shut out."""
        record = self._records.get(client)
        return max(0.0, record.shut_until - self._clock()) if record else 0.0

    def count(self, client: Hashable) -> None:
        """Note a wrong guess."""
        now = self._clock()
        record = self._records.setdefault(client, _Record())
        self._records.move_to_end(client)
        record.wrong.append(now)
        while record.wrong[0] < now - WINDOW:
            record.wrong.popleft()
        if len(record.wrong) >= self._most:
            record.shut_until = now + PAUSE
            record.wrong.clear()
        while len(self._records) > MOST_KNOWN:
            self._records.popitem(last=False)
