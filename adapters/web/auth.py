"""Authentication by token or cookie, and the token file."""

import hashlib
import hmac
import logging
import os
import secrets
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from aiohttp import web

from adapters.web.config import is_usable
from bot import SettingError

logger = logging.getLogger(__name__)

COOKIE_MAX_AGE = 30 * 24 * 3600
TOKEN_FILE = "server-token"
MAX_TOKEN_FILE_BYTES = 4096


class CredentialKind(StrEnum):
    """How a credential was sent."""

    BEARER = "bearer"
    LINK = "link"
    COOKIE = "cookie"


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential of a request."""

    kind: CredentialKind
    value: str


class TokenAuth:
    """Checks the token, and a cookie whose name and value are derived from it.

    So a changed token invalidates the cookie, and bots on other ports of one machine, which share cookies,
    do not overwrite each other's.
    """

    def __init__(self, token: str) -> None:
        self._key = token.encode()
        self.cookie_name = f"greenroom-{self._derive(b'cookie name')[:12]}"
        self._cookie = self._derive(b"cookie value")

    def read_credential(self, request: web.Request) -> Credential | None:
        """Return the credential of a request, or None."""
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return Credential(CredentialKind.BEARER, value.strip())
        if request.path == "/" and "token" in request.query:
            return Credential(CredentialKind.LINK, request.query["token"])
        cookie = request.cookies.get(self.cookie_name)
        return None if cookie is None else Credential(CredentialKind.COOKIE, cookie)

    def is_valid(self, credential: Credential) -> bool:
        """Return whether a credential is valid, in constant time."""
        expected = self._cookie.encode() if credential.kind is CredentialKind.COOKIE else self._key
        value = credential.value.encode("utf-8", "surrogateescape")
        return hmac.compare_digest(_digest(value), _digest(expected))

    def set_cookie(self, response: web.Response) -> None:
        """Set the cookie, so that the browser needs the token only once."""
        response.set_cookie(
            self.cookie_name, self._cookie, max_age=COOKIE_MAX_AGE, path="/", httponly=True, samesite="Strict"
        )

    def _derive(self, purpose: bytes) -> str:
        return hmac.new(self._key, b"greenroom " + purpose, hashlib.sha256).hexdigest()


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


def load_or_create_token(folder: Path) -> str:
    """Return the token stored in a folder; create it and the folder if it does not exist.

    Raises SettingError if the file cannot be read or written, or contains no usable token.
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
            f"BOT_DATA_DIR: the server's token cannot be stored in {path}: {error.strerror or error}; choose "
            "another folder, or set SERVER_TOKEN"
        ) from None
    if not is_usable(token):
        raise SettingError(f"{path} contains no usable token: remove the file, and a new one is created")
    return token


def _read_token(path: Path) -> str:
    try:
        # Follow no symbolic link, and do not block on a pipe.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            os.fchmod(descriptor, 0o600)
            logger.warning("%s was readable by others; remove it and start again for a new token", path)
        return file.read(MAX_TOKEN_FILE_BYTES).decode("utf-8", "replace").strip()


def _write_token(path: Path, token: str) -> None:
    """Write the token file atomically; keep the file of another process that was faster."""
    temporary_path = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(f"{token}\n".encode())
            file.flush()
            os.fsync(descriptor)
        if path.exists() and path.stat().st_size == 0:
            path.unlink()  # left by a start that crashed before writing
        try:
            os.link(temporary_path, path)
        except FileExistsError:
            return
    finally:
        temporary_path.unlink()
