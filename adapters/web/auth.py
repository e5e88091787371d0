"""Who may come in: whoever shows the token, or the cookie that the token was exchanged for."""

import hashlib
import hmac
from dataclasses import dataclass
from enum import StrEnum

from aiohttp import web

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
