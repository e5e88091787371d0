"""Layered settings, `SettingsModel`, field types.

A value is looked for in the character's `settings` and `secrets`, then in the environment, then in
`.env`. A blank value counts as not set.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin

from dotenv import dotenv_values
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from bot.errors import SettingError

PLACEHOLDERS = frozenset({"changeme", "change_me", "undefined", "null", "none", "secretsalt", "todo", "xxx"})
BASE_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?", re.IGNORECASE)
HOST_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")


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


M = TypeVar("M", bound="SettingsModel")
MIN_SECRET_LENGTH = 8
NETWORK_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE")
PROXY_VARIABLES = (*NETWORK_VARIABLES[:2], "https_proxy", "http_proxy")  # both spellings may hold a login
PROXY_PASSWORD = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
CHARACTER_FILE = "the character's"


class SettingsModel(BaseModel):
    """Variables that belong together: the field `server_port` is the variable `SERVER_PORT`.

    A field that is a list, a tuple or a set takes `a,b` as well as a JSON list.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=str.upper, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _split_lists(cls, values: Any) -> Any:
        """Split the texts of fields that hold several values."""
        if isinstance(values, dict):
            texts = {name: values[name] for name in _collection_names(cls) & values.keys()}
            values = values | {name: _split_list(text) for name, text in texts.items() if isinstance(text, str)}
        return values

    def is_default(self, name: str) -> bool:
        """Return whether a field has its default value."""
        return bool(getattr(self, name) == type(self).model_fields[name].default)


@lru_cache(maxsize=256)
def _collection_names(model: type[SettingsModel]) -> frozenset[str]:
    fields = model.model_fields.items()
    return frozenset(field.alias or name for name, field in fields if _is_collection(field.annotation))


class CoreSettings(SettingsModel):
    """The settings of every character, whatever platforms it is connected to."""

    # What a world may choose for itself: no secret, and nothing that concerns another world.
    WORLD_SETTINGS: ClassVar[frozenset[str]] = frozenset(
        {"CONVERSATION_LENGTH", "ON_EDIT", "RESPOND_TO_BOTS", "SHOULD_RESPOND_BYPASS_TYPES"}
    )

    bot_data_dir: Path = Field(Path("data"), description="Where the bot keeps its files.")
    log_level: str = Field("INFO", pattern="(?i)^(DEBUG|INFO|WARNING|ERROR)$", description="How much is logged.")
    log_format: str = Field("text", pattern="^(text|json)$", description="How it is logged: text or json.")
    conversation_length: int = Field(
        20, ge=1, le=500, description="How many of the last messages of a room the model is shown."
    )
    response_timeout: int = Field(
        3_600_000, ge=1000, description="How long one message may take in all, in milliseconds."
    )
    latest_response: str = Field(
        "room",
        pattern="^(room|author|queue)$",
        description="What a newer message does to an answer that is not out yet: `room` (the newer one takes "
        "it over), `author` (only if the same person wrote it), `queue` (nothing; they follow one another).",
    )
    burst_pause: int = Field(
        0,
        ge=0,
        le=10_000,
        description="How long to wait after a message whether more of it comes, in milliseconds; what comes "
        "by then is answered together.",
    )
    streaming: bool = Field(
        True,
        description="Whether a reply is seen while it is written, where the platform can change what was "
        "said; otherwise every reply is sent when it is whole.",
    )
    on_edit: str = Field(
        "ignore",
        pattern="^(ignore|rerun)$",
        description="What the edit of a message that has its outcome already does: `ignore` (it is "
        "remembered), `rerun` (it is answered again, and the old answer changed where the platform can).",
    )
    should_respond_bypass_types: CommaList = Field(
        (), description="Kinds of room in which every message is answered, beside DM, VOICE_DM, SELF and API."
    )
    should_respond_bypass_sources: CommaList = Field(
        (), description="Sources whose every message is answered, beside client_chat, api and postman."
    )
    respond_to_bots: bool = Field(False, description="Whether other bots are answered.")
    link_hosts: HostList = Field(
        (),
        description="Hosts to which links in replies may carry data, such as example.org, with all below it. "
        "A link to another host whose query or path is longer than usual leaves as words that nothing opens. "
        "What the character's file says here does not count.",
    )
    messages_per_person: int | None = Field(
        None,
        ge=0,
        description="How many messages of one person are looked at in a minute, and twice as many at once; "
        "what is more stays unanswered, and costs nothing. 0 for no limit. Unset, it is 10 on Discord, "
        "Telegram and X themselves, and none on the web page, in the terminal and on servers of your own.",
    )
    messages_per_room: int | None = Field(
        None, ge=0, description="The same for each room, all writers together. Unset, it is 60 there."
    )
    messages_per_world: int | None = Field(
        None, ge=0, description="The same for each server or group of rooms; unset, 300 there."
    )
    ignore_basic_capabilities: bool = Field(
        False, description="Whether to leave out the bootstrap plugin (its actions and providers)."
    )
    use_multi_step: bool = Field(
        False, description="Whether an answer may take several rounds, each seeing the last one's results."
    )
    max_multistep_iterations: int = Field(6, ge=1, le=6, description="How many such rounds at most.")
    max_crashed_starts: int = Field(
        3,
        alias="CRASH_LOOP_BOOTS",
        ge=0,
        description="After how many crashed starts within five minutes `bot run` leaves every platform but "
        "the web page off, until those minutes are over; 0 for never.",
    )

    def for_world(self, overrides: Mapping[str, str]) -> "CoreSettings":
        """Return the settings with the choices of a world; raises ValueError for an invalid one.

        Only the names in `WORLD_SETTINGS` may be chosen.
        """
        values = {name: value for name, value in overrides.items() if name in self.WORLD_SETTINGS}
        return CoreSettings.model_validate({**self.model_dump(by_alias=True), **values}) if values else self


@dataclass(frozen=True, slots=True)
class Layer:
    """One place in which settings stand; `name` is shown to the operator.

    Where it `is_secret`, every value is a secret. A layer that is not `is_operator` comes from the
    character's file, which a stranger may have written. `hidden_names` are not looked up in lower layers.
    """

    name: str
    values: Mapping[str, str] = field(repr=False)
    is_secret: bool = False
    is_operator: bool = True
    hidden_names: frozenset[str] = frozenset()


class Settings:
    """Every setting of one agent, looked up by name through its layers."""

    def __init__(self, layers: Sequence[Layer] = ()) -> None:
        self._layers = tuple(layers)

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return a value, or the default where none is set."""
        match = self._find(name)
        return match[1] if match else default

    def require(self, name: str) -> str:
        """Return a value; raises SettingError that says where to set it."""
        match = self._find(name)
        if match is None:
            raise SettingError(f"{name} is not set: put it in .env, the environment or the character's secrets")
        return match[1]

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for layer in self._layers for name in layer.values if name in self))

    def source_of(self, name: str) -> str:
        """Return the name of the layer that a value comes from; empty where it is not set."""
        layer = self.layer_of(name)
        return layer.name if layer is not None else ""

    def layer_of(self, name: str) -> Layer | None:
        """Return the layer that a value comes from; None where it is not set."""
        match = self._find(name)
        return match[0] if match is not None else None

    def operator_only(self) -> "Settings":
        """Return the settings without the character's file, which a stranger may have written."""
        return Settings([layer for layer in self._layers if layer.is_operator])

    def network_environment(self) -> dict[str, str]:
        """Return the proxy and certificate variables that the operator has set."""
        operator = self.operator_only()
        return {name: value for name in NETWORK_VARIABLES if (value := operator.get(name))}

    def with_layer(self, layer: Layer) -> "Settings":
        """Return the settings with a layer above all others."""
        return Settings([layer, *self._layers])

    def load(self, model: type[M]) -> M:
        """Read the variables of a settings model.

        Raises SettingError that names each wrong variable, its layer, and what it must be; the value is never
        shown.
        """
        aliases = [field.alias or name for name, field in model.model_fields.items()]
        values = {alias: value for alias in aliases if (value := self.get(alias)) is not None}
        try:
            return model.model_validate(values)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            raise SettingError("\n".join(self._format_problem(problem) for problem in problems)) from None

    def secrets(self, *models: type[SettingsModel]) -> frozenset[str]:
        """Return the values that must never be sent, from every layer, whether they are in effect or not.

        They are those of secret fields, of secret-looking names, and of secret layers, and a proxy's
        password.
        """
        secret_names = {item.alias or name for model in models for name, item in secret_fields(model)}
        values = [
            value.strip()
            for layer in self._layers
            for name, value in layer.values.items()
            if layer.is_secret or name in secret_names or is_secret_name(name)
        ]
        proxies = (layer.values.get(name, "") for layer in self._layers for name in PROXY_VARIABLES)
        values += [match[1] for item in proxies if (match := PROXY_PASSWORD.search(item))]
        return frozenset(value for value in values if len(value) >= MIN_SECRET_LENGTH)

    def _find(self, name: str) -> tuple[Layer, str] | None:
        for layer in self._layers:
            if value := layer.values.get(name, "").strip():
                return layer, value
            if name in layer.hidden_names:
                return None
        return None

    def _format_problem(self, problem: Any) -> str:
        name = ".".join(map(str, problem["loc"])) or "settings"
        source = self.source_of(name.split(".")[0]) or "the settings"
        message = problem["msg"].removeprefix("Value error, ")
        return f"{name} (in {source}): {message}"


def reject_redirected_key(settings: Settings, *, server: str, key: str) -> None:
    """Raise SettingError where a character's file would send the operator's key to a server of its own.

    `server` and `key` name the variables of the two.
    """
    operator = settings.operator_only()
    has_character_server = settings.get(server) != operator.get(server)
    has_character_key = settings.get(key) != operator.get(key)
    if has_character_server and not has_character_key and key in operator:
        raise SettingError(
            f"{server} (in the character's file) would send your {key} to that server: if you trust it, put "
            f"{server} into .env too; else take it out of the file"
        )


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


def load_settings(
    character: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    env_file: Path = Path(".env"),
) -> Settings:
    """Read the layers: the character's settings and secrets, the environment, `.env`."""
    layers = [
        Layer(f"{CHARACTER_FILE} settings", _scalar_values(character or {}), is_operator=False),
        Layer(f"{CHARACTER_FILE} secrets", dict(secrets or {}), is_secret=True, is_operator=False),
        Layer("the environment", dict(os.environ if environment is None else environment)),
    ]
    if env_file.is_file():
        layers.append(Layer(str(env_file), _read_env_file(env_file)))
    return Settings(layers)


def _read_env_file(path: Path) -> dict[str, str]:
    try:
        values = dotenv_values(path, interpolate=False, encoding="utf-8-sig")
        return {name: value or "" for name, value in values.items()}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: cannot be read as text in UTF-8: {error}") from None


def _scalar_values(values: Mapping[str, Any]) -> dict[str, str]:
    result: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, bool):
            result[name] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            result[name] = str(value)
        elif isinstance(value, list) and all(isinstance(item, str | int) for item in value):
            result[name] = ",".join(map(str, value))
    return result
