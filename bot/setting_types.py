"""Types of settings: how the text of a variable is read, and what is refused."""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, SecretStr

PLACEHOLDERS = frozenset({"changeme", "change_me", "undefined", "null", "none", "secretsalt", "todo", "xxx"})
BASE_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?", re.IGNORECASE)
HOST = re.compile(r"[\w-]+(?:\.[\w-]+)*")


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    parts = value.strip().removeprefix("[").removesuffix("]").split(",")
    return tuple(part for part in (one.strip().strip("'\"") for one in parts) if part)


def _refuse_nobody(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError("it names nobody and nothing; leave it out to allow all, or say whom")
    return value


def _refuse_placeholder(value: object) -> object:
    text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
    bare = text.strip().lower()
    if (
        bare in PLACEHOLDERS
        or bare.endswith(("...", "…"))
        or (bare.startswith(("your_", "your-")) and bare.endswith(("here", "key", "token")))
    ):
        raise ValueError("it is a placeholder; put the real value, or leave it empty to switch this off")
    return value


def _base_url(value: str) -> str:
    if not BASE_URL.fullmatch(value):
        raise ValueError("it must be an address that begins with http:// or https://, with no login or query")
    return value.rstrip("/")


def _hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    if not all(map(HOST.fullmatch, values)):
        raise ValueError("each must be a host such as example.org, without https:// and without a path")
    return values


Words = Annotated[tuple[str, ...], BeforeValidator(_split)]
Allowed = Annotated[Words, AfterValidator(_refuse_nobody)]  # a list that is set and empty allows nobody
Hosts = Annotated[Words, AfterValidator(_hosts)]
Secret = Annotated[SecretStr, BeforeValidator(_refuse_placeholder)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]  # of a server: paths are added to it
