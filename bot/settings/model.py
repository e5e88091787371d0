"""`SettingsModel`, the base of every group of variables, and the types of its fields.

`SettingCipher`: encrypts secret settings of worlds with a key in the data folder (AES-256-GCM).

Settings about time zones, and about hours of the day in which nothing is sent.
"""

import base64
import binascii
import importlib
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, time, tzinfo
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr, model_validator
from pydantic.fields import FieldInfo

from bot.errors import SettingError

PLACEHOLDERS = frozenset({"changeme", "change_me", "undefined", "null", "none", "secretsalt", "todo", "xxx"})
BASE_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?", re.IGNORECASE)
HOST_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")
NAME_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
ADDRESS_WORDS = frozenset({"ADDRESS", "DIR", "ENDPOINT", "FILE", "HOST", "PATH", "SERVERS", "URI", "URL"})
# Names that no model assigns to an owner belong to the operator if they begin with one of these words,
OPERATOR_PREFIXES = frozenset({"LD", "POSTGRES", "PYTHON", "REGISTRY", "SERVER", "SQL"})
# or contain one of these: a place to connect to or to write to, an authority, a limit.
OPERATOR_WORDS = re.compile(
    "ADDRESS|ADMINS?|BUDGET|CA|CERTS?|COMMAND|DATABASE|DIR|DIRECTORY|DSN|ENDPOINT|FILE|FOLDER|HOSTS?|LIMITS?|MCP"
    "|OPERATORS?|ORIGINS?|OWNERS?|PATH|PORT|PROX(?:Y|IES)|ROLES?|SOCKET|SSL|TLS|UR[IL]S?"
)


def _split_commas(value: object) -> object:
    if not isinstance(value, str):
        return value
    parts = value.strip().removeprefix("[").removesuffix("]").split(",")
    return tuple(part for part in (part.strip().strip("'\"") for part in parts) if part)


def _split_list(value: str) -> object:
    """Return the items of a JSON list, else of a text with commas."""
    with suppress(ValueError):
        if isinstance(items := json.loads(value), list):
            return [text for item in items if (text := item.strip() if isinstance(item, str) else json.dumps(item))]
    return _split_commas(value)


def _is_collection(annotation: Any) -> bool:
    """Return whether a field holds several values, or may hold none at all."""
    if get_origin(annotation) in (Union, UnionType):
        return any(map(_is_collection, get_args(annotation)))
    return (get_origin(annotation) or annotation) in (list, tuple, set, frozenset)


def _reject_empty(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError("it is empty; leave it out to allow all, or list names")
    return value


def _reject_placeholder(value: object) -> object:
    text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
    lowered = text.strip().lower()
    if (
        lowered in PLACEHOLDERS
        or lowered.endswith(("...", "…"))
        or (lowered.startswith(("your_", "your-")) and lowered.endswith(("here", "key", "token")))
    ):
        raise ValueError("it is a placeholder; put the real value, or leave it empty to switch this off")
    return value


def _check_base_url(value: str) -> str:
    if not BASE_URL.fullmatch(value):
        raise ValueError("it must be an address that begins with http:// or https://, with no login or query")
    return value.rstrip("/")


def _check_hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    if not all(map(HOST_NAME.fullmatch, values)):
        raise ValueError("each must be a host such as example.org, without https:// and without a path")
    return values


CommaList = Annotated[tuple[str, ...], BeforeValidator(_split_commas)]
AllowList = Annotated[CommaList, AfterValidator(_reject_empty)]  # a list that is set and empty is refused
HostList = Annotated[CommaList, AfterValidator(_check_hosts)]
Secret = Annotated[SecretStr, BeforeValidator(_reject_placeholder)]
BaseUrl = Annotated[str, AfterValidator(_check_base_url)]  # of a server: paths are added to it


class SettingsModel(BaseModel):
    """Variables that belong together: the field `server_port` is the variable `SERVER_PORT`.

    A field that is a list, a tuple or a set takes `a,b` as well as a JSON list.

    A character's file, which a stranger may have written, sets only the variables in `CHARACTER_SETTINGS`;
    all others belong to the operator. For a model without that declaration (of a plugin, written before it
    existed) `is_operator_name` decides. A variable in `FALLBACKS` that is not set has the value of the variable named
    there.
    """

    CHARACTER_SETTINGS: ClassVar[frozenset[str] | None] = None
    FALLBACKS: ClassVar[Mapping[str, str]] = {}

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=str.upper, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _split_lists(cls, values: Any) -> Any:
        """Split the texts of fields that hold several values."""
        if isinstance(values, dict):
            texts = {name: values[name] for name in _collection_names(cls) & values.keys()}
            values = values | {name: _split_list(text) for name, text in texts.items() if isinstance(text, str)}
        return values

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a declaration of variables that the model does not have."""
        unknown = (cls.CHARACTER_SETTINGS or frozenset()) - {
            item.alias or name for name, item in cls.model_fields.items()
        }
        if unknown:
            raise TypeError(f"{cls.__name__}: CHARACTER_SETTINGS names no field: {', '.join(sorted(unknown))}")

    def is_default(self, name: str) -> bool:
        """Return whether a field has its default value."""
        return bool(getattr(self, name) == type(self).model_fields[name].default)


@lru_cache(maxsize=256)
def _collection_names(model: type[SettingsModel]) -> frozenset[str]:
    fields = model.model_fields.items()
    return frozenset(field.alias or name for name, field in fields if _is_collection(field.annotation))


@lru_cache(maxsize=256)
def character_settings(model: type[SettingsModel]) -> Mapping[str, bool]:
    """Return the variables of a model, and whether a character's file may set each."""
    declared = model.CHARACTER_SETTINGS
    aliases = {item.alias or name: item for name, item in model.model_fields.items()}
    if declared is not None:
        return {alias: alias in declared for alias in aliases}
    return {alias: not (is_operator_name(alias) or _is_place(item)) for alias, item in aliases.items()}


@lru_cache(maxsize=1024)
def is_operator_name(name: str) -> bool:
    """Return whether a variable that no model assigns to an owner belongs to the operator, judged by its name."""
    words = [word.upper() for word in NAME_WORDS.findall(name)]
    return not words or words[0] in OPERATOR_PREFIXES or any(map(OPERATOR_WORDS.fullmatch, words))


def address_variables(model: type[SettingsModel]) -> list[str]:
    """Return the variables of a model that name servers to connect to, or files."""
    aliases = {item.alias or name.upper(): item for name, item in model.model_fields.items()}
    return [name for name, item in aliases.items() if _is_place(item) or ADDRESS_WORDS.intersection(name.split("_"))]


def _is_place(item: FieldInfo) -> bool:
    """Return whether a field holds the address of a server or the path of a file."""
    checks = (getattr(check, "func", None) for check in item.metadata)
    return "Path" in str(item.annotation) or any(check is _check_base_url for check in checks)


def secret_fields(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a settings model that hold secrets, with their names."""
    for name, info in model.model_fields.items():
        if "SecretStr" in str(info.annotation):
            yield name, info


def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name holds a secret."""
    upper = name.upper()
    return upper.endswith(("_KEY", "TOKEN", "SECRET", "PASSWORD", "APIKEY", "_SALT", "_DSN")) or upper in (
        "DATABASE_URL",
        "POSTGRES_URL",
    )


logger = logging.getLogger(__name__)

KEY_FILE = "settings.key"
KEY_BYTES, NONCE_BYTES = 32, 12
PREFIX = "aes-256-gcm:"  # of every encrypted value
MAX_KEY_FILE_BYTES = 1024


class SettingCipher:
    """Encrypts texts, each for one purpose: a text that was encrypted for another is not decrypted."""

    def __init__(self, key: bytes) -> None:
        self._cipher: Any = _load_library()(key)

    @classmethod
    def open(cls, data_folder: Path) -> Self:
        """Return the cipher with the key of a data folder, which is created if there is none.

        Raises SettingError if the key cannot be read or stored, and where the library is not installed.
        """
        path = data_folder / KEY_FILE
        _load_library()  # before a key is created
        try:
            data_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                _write_key(path)
            key = _read_key(path)
        except OSError as error:
            raise SettingError(
                f"BOT_DATA_DIR: the key for secret settings cannot be stored in {path}: {error.strerror or error}; "
                "choose another folder"
            ) from None
        if len(key) != KEY_BYTES:
            raise SettingError(
                f"{path} contains no key: restore it from a backup; or remove it, and set the secret settings of "
                "worlds anew"
            )
        return cls(key)

    def encrypt(self, text: str, purpose: str) -> str:
        """Return a text encrypted for a purpose."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        encrypted: bytes = self._cipher.encrypt(nonce, text.encode(), purpose.encode())
        return PREFIX + base64.urlsafe_b64encode(nonce + encrypted).decode()

    def decrypt(self, text: str, purpose: str) -> str | None:
        """Return the text; None if it was not encrypted for this purpose with this key."""
        if not is_encrypted(text):
            return None
        try:
            data = base64.urlsafe_b64decode(text.removeprefix(PREFIX))
            decrypted: bytes = self._cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], purpose.encode())
            return decrypted.decode()
        except (binascii.Error, ValueError, importlib.import_module("cryptography.exceptions").InvalidTag):
            return None


def is_encrypted(text: str) -> bool:
    """Return whether a stored text is an encrypted one."""
    return text.startswith(PREFIX)


def _load_library() -> Any:
    """Return the class of the library's AES-GCM; raises SettingError where it is not installed."""
    try:
        return importlib.import_module("cryptography.hazmat.primitives.ciphers.aead").AESGCM
    except ModuleNotFoundError:
        raise SettingError(
            "a plugin declares a secret setting of worlds, and cryptography is not installed, which encrypts it: "
            "install the extra `secrets`"
        ) from None


def _read_key(path: Path) -> bytes:
    """Read the key, following no symbolic link; other users cannot read it from now on."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        if os.name == "posix" and stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077:
            os.fchmod(descriptor, 0o600)
            logger.warning("%s was readable by others: set the secret settings of worlds anew, with a new key", path)
        text = file.read(MAX_KEY_FILE_BYTES)
    try:
        return base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        return b""


def _write_key(path: Path) -> None:
    """Write a new key atomically; the key of another process that was faster stays."""
    temporary_path = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(temporary_path, path)
        except FileExistsError:
            return
    finally:
        temporary_path.unlink()


PATTERN = re.compile(r"(\d{1,2}:\d\d)[-–](\d{1,2}:\d\d)")
MESSAGE = "it must look like 22:30-07:00"


def is_quiet(hours: str, zone: str, now: datetime) -> bool:
    """Return whether a time is within hours as `QuietHours` has them, in a time zone; never if there are none."""
    if not hours:
        return False
    start, end = _parse(hours)
    local = now.astimezone(ZoneInfo(zone)).time()
    return start <= local < end if start <= end else local >= start or local < end


def _parse(hours: str) -> tuple[time, time]:
    """Return start and end; raises ValueError."""
    match = PATTERN.fullmatch(hours.replace(" ", ""))
    if match is None:
        raise ValueError(MESSAGE)
    try:
        start, end = (time.fromisoformat(text.rjust(5, "0")) for text in match.groups())
    except ValueError:
        raise ValueError(MESSAGE) from None
    return start, end


def _check_hours(hours: str) -> str:
    if hours:
        _parse(hours)
    return hours


def _check_zone(name: str) -> str:
    if find_time_zone(name) is None:
        raise ValueError("it is no time zone: it must look like Europe/Berlin")
    return name


@lru_cache(maxsize=256)
def find_time_zone(name: str) -> tzinfo | None:
    """Return the time zone of a name such as Europe/Berlin; None where there is none."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


QuietHours = Annotated[str, AfterValidator(_check_hours)]
TimeZoneName = Annotated[str, AfterValidator(_check_zone)]
