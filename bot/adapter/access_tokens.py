"""Access tokens with a scope for the web server; stored hashed in the data folder, one file for each."""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from bot.errors import ConfigError
from bot.files import replace_file
from bot.text import suggest

FOLDER = "access-tokens"
MAX_FILE_BYTES = 4096
MAX_NAME_LENGTH = 64
ID_PATTERN = re.compile(r"[0-9a-f]{16}")


class TokenScope(StrEnum):
    """What the holder of a token may do."""

    OPERATOR = "operator"  # everything, as with the server's own token
    READ_ONLY = "read_only"  # see everything, change nothing
    CHAT = "chat"  # have conversations of its own, under a fixed user, and see nothing else


@dataclass(frozen=True, slots=True)
class AccessToken:
    """What is stored of a token: neither the token nor its cookie can be found out from it."""

    id: str
    name: str
    scope: TokenScope
    created_at: datetime
    token_hash: str
    cookie_hash: str

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Return the token that a file contains. Raises ValueError, KeyError or TypeError if it contains none."""
        return cls(
            id=str(document["id"]),
            name=str(document["name"]),
            scope=TokenScope(document["scope"]),
            created_at=datetime.fromisoformat(document["created_at"]),
            token_hash=str(document["token_hash"]),
            cookie_hash=str(document["cookie_hash"]),
        )

    def to_json(self) -> dict[str, str]:
        """Return the content of its file."""
        return {
            "id": self.id,
            "name": self.name,
            "scope": self.scope.value,
            "created_at": self.created_at.isoformat(),
            "token_hash": self.token_hash,
            "cookie_hash": self.cookie_hash,
        }


def token_cookie(token: str) -> str:
    """Return the value of the cookie that stands for a token: the token's id and a hash of the token."""
    return f"{_token_id(token)}.{hmac.new(token.encode(), b'greenroom access cookie', hashlib.sha256).hexdigest()}"


class AccessTokens:
    """The tokens in a data folder. Each read is one of the file: another process creates and revokes them."""

    def __init__(self, data_folder: Path) -> None:
        self._folder = data_folder / FOLDER

    def create(self, name: str, scope: TokenScope, created_at: datetime) -> tuple[AccessToken, str]:
        """Store a new token; return it with its text, which is stored nowhere. Raises ConfigError."""
        text = secrets.token_urlsafe(32)
        token_id = _token_id(text)
        name = name or f"{scope.value}-{token_id[:4]}"
        if len(name) > MAX_NAME_LENGTH or not name.isprintable():
            raise ConfigError(f"the name of a token has at most {MAX_NAME_LENGTH} printable characters")
        if any(name in (token.id, token.name) for token in self.list()):
            raise ConfigError(f"there is a token named {name!r}: choose another name, or revoke it first")
        token = AccessToken(token_id, name, scope, created_at, _hash(text), _hash(token_cookie(text)))
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(token)
        except OSError as error:
            raise ConfigError(f"the token cannot be stored in {self._folder}: {error.strerror or error}") from None
        return token, text

    def list(self) -> Sequence[AccessToken]:
        """Return the tokens, the oldest first; damaged files are left out. Raises ConfigError."""
        try:
            ids = [path.stem for path in self._folder.glob("*.json")]
        except OSError as error:
            raise ConfigError(f"{self._folder} cannot be read: {error.strerror or error}") from None
        tokens = [token for token_id in ids if (token := self.find(token_id)) is not None]
        return sorted(tokens, key=lambda token: (token.created_at, token.id))

    def revoke(self, id_or_name: str) -> AccessToken:
        """Remove a token, also in a running bot, and return it. Raises ConfigError if there is none."""
        tokens = self.list()
        for token in tokens:
            if id_or_name in (token.id, token.name):
                try:
                    self._path(token.id).unlink(missing_ok=True)
                except OSError as error:
                    raise ConfigError(f"{self._path(token.id)} cannot be removed: {error.strerror or error}") from None
                return token
        hint = suggest(id_or_name, [token.name for token in tokens], otherwise="`bot token list` shows them")
        raise ConfigError(f"there is no token {id_or_name!r}: {hint}")

    def find(self, token_id: str) -> AccessToken | None:
        """Return a token by its id; None if there is none, it was revoked, or its file cannot be read."""
        if not ID_PATTERN.fullmatch(token_id):
            return None
        try:
            with self._path(token_id).open("rb") as file:
                token = AccessToken.from_json(json.loads(file.read(MAX_FILE_BYTES)))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return token if token.id == token_id else None

    def find_by_text(self, text: str) -> AccessToken | None:
        """Return the token with this text."""
        token = self.find(_token_id(text))
        return token if token is not None and hmac.compare_digest(token.token_hash, _hash(text)) else None

    def find_by_cookie(self, cookie: str) -> AccessToken | None:
        """Return the token for which a cookie stands."""
        token = self.find(cookie.partition(".")[0])
        return token if token is not None and hmac.compare_digest(token.cookie_hash, _hash(cookie)) else None

    def _path(self, token_id: str) -> Path:
        return self._folder / f"{token_id}.json"

    def _write(self, token: AccessToken) -> None:
        replace_file(self._path(token.id), json.dumps(token.to_json()).encode())


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _token_id(text: str) -> str:
    return _hash(text)[:16]
