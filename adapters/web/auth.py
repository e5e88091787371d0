"""Authentication by token or cookie, and the token file."""

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from aiohttp import web

from adapters.web.config import is_usable
from adapters.web.json_io import HttpProblem
from bot import Clock, SettingError, system_clock
from bot.platform import AccessTokens, TokenScope, token_cookie

logger = logging.getLogger(__name__)

COOKIE_PREFIX = "greenroom-"
COOKIE_MAX_AGE = 30 * 24 * 3600
LINK_LIFETIME = timedelta(hours=1)
EXPIRES_PATTERN = re.compile(r"[0-9]{1,12}")
TOKEN_FILE = "server-token"
OWNER_PREFIX = "token:"
OWNED_ROOM = re.compile(rf"({OWNER_PREFIX}[^:]+):")
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


class Access(StrEnum):
    """What a request needs; every route declares one."""

    PUBLIC = "public"  # no token
    ANY = "any"
    READ = "read"
    CHAT = "chat"
    METRICS = "metrics"  # a token that may read, or METRICS_TOKEN
    SIGNED = "signed"  # any token, or a signature in the address
    CHANGE = "change"

    def allows(self, scope: TokenScope) -> bool:
        """Return whether a token of this scope is enough."""
        return scope is TokenScope.OPERATOR or self in ALLOWED_BY_SCOPE[scope]


ALLOWED_BY_SCOPE = {
    TokenScope.READ_ONLY: (Access.PUBLIC, Access.ANY, Access.SIGNED, Access.READ, Access.METRICS),
    TokenScope.CHAT: (Access.PUBLIC, Access.ANY, Access.SIGNED, Access.CHAT),
}


@dataclass(frozen=True, slots=True)
class Grant:
    """What a valid token allows. The server's own token has the scope `operator` and no id."""

    scope: TokenScope = TokenScope.OPERATOR
    token_id: str = ""
    name: str = ""
    tokens: AccessTokens | None = None

    @property
    def owner(self) -> str:
        """Whose rooms the token has: those of a chat token begin with it; blank for the rooms of all others."""
        return f"{OWNER_PREFIX}{self.token_id}" if self.scope is TokenScope.CHAT else ""

    @property
    def is_active(self) -> bool:
        """Whether the token has not been revoked since."""
        return self.tokens is None or self.tokens.find(self.token_id) is not None

    def require(self, access: Access) -> None:
        """Raise HttpProblem if the token's scope does not allow this, or the token was revoked."""
        if not self.is_active:
            raise HttpProblem(401, "unauthorized", "the token was revoked", {"WWW-Authenticate": "Bearer"})
        if not access.allows(self.scope):
            raise HttpProblem(403, "forbidden", f"a token of the scope {self.scope} does not allow this")


def find_owner(room_name: str) -> str:
    """Return whose room this is by its name, as `Grant.owner`."""
    match = OWNED_ROOM.match(room_name)
    return match[1] if match else ""


# What the token of the current request allows; not set for a request without a token.
GRANT: ContextVar[Grant] = ContextVar("grant")


class TokenAuth:
    """Checks tokens and their cookies: the server's token, and the access tokens with a scope.

    Name and value of a cookie are derived from its token. So a changed or revoked token invalidates the cookie,
    and bots on other ports of one machine, which share cookies, do not overwrite each other's.
    """

    def __init__(
        self,
        token: str,
        access_tokens: AccessTokens | None = None,
        *,
        metrics_token: str = "",
        clock: Clock = system_clock,
    ) -> None:
        self._key = token.encode()
        self._metrics_token = metrics_token.encode()
        self._clock = clock
        self._access_tokens = access_tokens
        self.cookie_name = f"{COOKIE_PREFIX}{self._derive(b'cookie name')[:12]}"
        self._cookie = self._derive(b"cookie value")

    def read_credential(self, request: web.Request, *, is_page: bool = False) -> Credential | None:
        """Return the credential of a request, or None; of several cookies, a valid one.

        The address of a page may contain the token.
        """
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return Credential(CredentialKind.BEARER, value.strip())
        if is_page and "token" in request.query:
            return Credential(CredentialKind.LINK, request.query["token"])
        cookies = list(_own_cookies(request.cookies).values())
        return next((cookie for cookie in cookies if self.find_grant(cookie)), cookies[0] if cookies else None)

    def find_grant(self, credential: Credential) -> Grant | None:
        """Return what a credential allows, None for an invalid one; its value is compared in constant time."""
        is_cookie = credential.kind is CredentialKind.COOKIE
        value = credential.value.encode("utf-8", "surrogatepass")
        if hmac.compare_digest(_digest(value), _digest(self._cookie.encode() if is_cookie else self._key)):
            return Grant()
        if self._access_tokens is None:
            return None
        find = self._access_tokens.find_by_cookie if is_cookie else self._access_tokens.find_by_text
        token = find(value.decode("utf-8", "replace"))
        return None if token is None else Grant(token.scope, token.id, token.name, self._access_tokens)

    def sign_path(self, path: str) -> tuple[str, datetime]:
        """Return a path with a signature by which it needs no token, and when the signature expires."""
        expires_at = self._clock().replace(microsecond=0) + LINK_LIFETIME
        expires = str(int(expires_at.timestamp()))
        return f"{path}?expires={expires}&signature={self._sign(path, expires)}", expires_at

    def is_signed(self, request: web.Request) -> bool:
        """Return whether the address of a request has a signature that has not expired."""
        expires, signature = request.query.get("expires", ""), request.query.get("signature", "")
        if not (signature and EXPIRES_PATTERN.fullmatch(expires)):
            return False
        expected = self._sign(request.path, expires).encode()
        return hmac.compare_digest(_digest(signature.encode("utf-8", "surrogatepass")), _digest(expected)) and (
            int(expires) > self._clock().timestamp()
        )

    def has_metrics_token(self, request: web.Request) -> bool:
        """Return whether a request has the token for the figures, which allows nothing else."""
        credential = self.read_credential(request)
        if credential is None or credential.kind is not CredentialKind.BEARER or not self._metrics_token:
            return False
        value = credential.value.encode("utf-8", "surrogatepass")
        return hmac.compare_digest(_digest(value), _digest(self._metrics_token))

    def set_cookie(
        self, response: web.Response, grant: Grant, credential: Credential, cookies: Mapping[str, str]
    ) -> None:
        """Set the cookie, so that the browser needs the token only once; remove other tokens' from `cookies`."""
        name, value = self.cookie_name, self._cookie
        if grant.token_id:
            name, value = f"{COOKIE_PREFIX}{grant.token_id}", token_cookie(credential.value)
        for other, cookie in _own_cookies(cookies).items():
            if other != name and self.find_grant(cookie):
                response.del_cookie(other)
        response.set_cookie(name, value, max_age=COOKIE_MAX_AGE, path="/", httponly=True, samesite="Strict")

    def remove_cookies(self, response: web.Response, cookies: Mapping[str, str]) -> None:
        """Remove the cookies of this server's tokens; those of other bots on the same host stay."""
        for name, cookie in _own_cookies(cookies).items():
            if self.find_grant(cookie):
                response.del_cookie(name, path="/")

    def _sign(self, path: str, expires: str) -> str:
        return self._derive(f"link {expires} {path}".encode("utf-8", "surrogatepass"))

    def _derive(self, purpose: bytes) -> str:
        return hmac.new(self._key, b"greenroom " + purpose, hashlib.sha256).hexdigest()


def _own_cookies(cookies: Mapping[str, str]) -> dict[str, Credential]:
    return {
        name: Credential(CredentialKind.COOKIE, value)
        for name, value in cookies.items()
        if name.startswith(COOKIE_PREFIX)
    }


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
