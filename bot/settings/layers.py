"""`Settings`: the variables of one agent in their layers, and how they are read.

A value is looked for in the character's `settings` and `secrets`, then in the environment, then in
`.env`. A blank value counts as not set. The character's file is asked only for variables that a file may set.

`CoreSettings`: the variables of every character.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar
from uuid import UUID

from dotenv.parser import Binding, parse_stream
from pydantic import AfterValidator, ByteSize, Field, ValidationError, ValidatorFunctionWrapHandler, field_validator

from bot.concurrency.tasks import DEFAULT_MEMORY_LIMIT
from bot.errors import SettingError
from bot.settings.model import (
    CommaList,
    HostList,
    SettingsModel,
    TimeZoneName,
    character_settings,
    is_operator_name,
    is_secret_name,
    secret_fields,
)
from bot.user_texts import LANGUAGES, names_ai


def room_setting(name: str, room_id: UUID) -> str:
    """Return the name under which the choice of a room stands among the settings of its world."""
    return f"{name}:{room_id}"


class MinorRule(StrEnum):
    """What may hold for people and rooms that are marked as minors: the AI notice every hour, no romance."""

    NOTICE = "notice"
    NO_ROMANCE = "no-romance"


OFF = "off"
NOTICE_PATTERN = re.compile(r"off|first|hours:([1-9]\d{0,2})")


def _check_notice(value: str) -> str:
    if not NOTICE_PATTERN.fullmatch(value):
        raise ValueError("must be off, first or hours:N, as in hours:3")
    return value


def _check_notice_text(value: str) -> str:
    if value and not names_ai(value):
        raise ValueError("must say that an AI writes, as in: {name} is an AI")
    return value


def _check_minor_rules(value: str) -> str:
    parse_minor_rules(value)
    return value


def parse_minor_rules(value: str | None) -> frozenset[MinorRule]:
    """Return the rules of a value of MINORS; all of them for None. Raises ValueError for an unknown one."""
    if value is None:
        return frozenset(MinorRule)
    names = [name.strip() for name in value.split(",") if name.strip()]
    if names == [OFF]:
        return frozenset()
    if unknown := set(names) - set(MinorRule):
        raise ValueError(f"{min(unknown)!r} is none of the rules {', '.join(MinorRule)}; off is for none of them")
    return frozenset(map(MinorRule, names))


class CoreSettings(SettingsModel):
    """The settings of every character, whatever platforms it is connected to."""

    CHARACTER_SETTINGS = frozenset(
        [
            "CONVERSATION_LENGTH",
            "MEMORY_BYTES",
            "SUMMARIES",
            "LATEST_RESPONSE",
            "BURST_PAUSE",
            "STREAMING",
            "ON_EDIT",
            "SHOULD_RESPOND_BYPASS_TYPES",
            "SHOULD_RESPOND_BYPASS_SOURCES",
            "RESPOND_TO_BOTS",
            "RESPONSIVENESS",
            "REACTIONS",
            "THREADS",
            "IGNORE_BASIC_CAPABILITIES",
            "USE_MULTI_STEP",
            "MAX_MULTISTEP_ITERATIONS",
            "VOICE_REPLIES",
            "TIMEZONE",
            "AI_NOTICE_TEXT",
        ]
    )
    # What a world may choose for itself: no secret, and nothing that concerns another world.
    WORLD_SETTINGS: ClassVar[frozenset[str]] = frozenset(
        {
            "CONVERSATION_LENGTH",
            "ON_EDIT",
            "RESPOND_TO_BOTS",
            "RESPONSIVENESS",
            "SHOULD_RESPOND_BYPASS_TYPES",
            "TIMEZONE",
        }
    )
    ROOM_SETTINGS: ClassVar[frozenset[str]] = frozenset({"RESPONSIVENESS"})  # what a room may choose, too

    bot_data_dir: Path = Field(Path("data"), description="Where the bot keeps its files.")
    bot_character: Path | None = Field(
        None, description="The character's file that commands use without -c; by default the bundled one."
    )
    bot_role: str = Field(
        "all",
        pattern="^(all|gateway|worker|sender)$",
        description="What `bot run` does, where several processes share a PostgreSQL database: `gateway` (take "
        "messages in), `worker` (answer them), `sender` (send the answers), `all`.",
    )
    backup_every: float = Field(
        0, ge=0, description="How many hours lie between two copies of the database that `bot run` makes; 0 for none."
    )
    backup_keep: int = Field(7, ge=1, description="How many of these copies are kept; older ones are deleted.")
    backup_dir: Path | None = Field(
        None, description="The folder of these copies; by default `backups` in BOT_DATA_DIR."
    )
    memory_limit: ByteSize = Field(
        ByteSize(DEFAULT_MEMORY_LIMIT),
        ge=16 * 2**20,
        description="How much memory files, uploads, documents and long or large answers of models may take together, "
        "in bytes or as in 256MiB. What does not fit waits, and what is larger is refused. The rest of the program "
        "takes about 200 MiB.",
    )

    @field_validator("memory_limit", mode="wrap")
    @classmethod
    def _explain_size(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError:
            raise ValueError("must be a size of at least 16MiB, written as in 256MiB") from None

    log_level: str = Field("INFO", pattern="(?i)^(DEBUG|INFO|WARNING|ERROR)$", description="How much is logged.")
    log_format: str = Field("text", pattern="^(text|json)$", description="How it is logged: text or json.")
    bot_language: str = Field(
        "",
        pattern=f"^({'|'.join(LANGUAGES)})?$",
        description=f"The language of texts that no model writes ({', '.join(LANGUAGES)}), for people whose platform "
        "reports none of these; by default that of the computer.",
    )
    timezone: TimeZoneName = Field(
        "UTC",
        description="The time zone of dates and times in prompts, of scheduled tasks and of quiet hours, such as "
        "Europe/Berlin. A character and a world may have another.",
    )
    conversation_length: int = Field(
        20, ge=1, le=500, description="How many of the last messages of a room the model is shown."
    )
    memory_bytes: int = Field(
        600, ge=0, le=20_000, description="How many bytes of each prompt tell what people told before; 0 for none."
    )
    summaries: bool = Field(
        True,
        description="Whether the small model sums up, once in 50 messages, what was said in a room where the bot "
        "answers and the prompt shows only the last messages; and whether people may ask what they missed.",
    )
    private_facts: str = Field(
        "person",
        pattern="^(person|room)$",
        description="Where facts are used that a person told alone with the bot: `person` (wherever they talk with it "
        "alone by the same account of a platform, or on the web with the same token and `user`), `room` (only there).",
    )
    ai_notice: Annotated[str, AfterValidator(_check_notice)] | None = Field(
        None,
        description="When a person reads that an AI writes, in a line before a reply: `off`, `first` (once, before the "
        "first one), `hours:N` (again after N hours of talk). Unset, it is `hours:3` in private chats and `first` in "
        "groups. On X the profile says it, see AI_NOTICE_POSTS.",
    )
    ai_notice_text: Annotated[str, AfterValidator(_check_notice_text)] = Field(
        "",
        max_length=300,
        description="The text of this line, with `{name}` for the character's name; empty for the usual one. It must "
        "say that an AI writes.",
    )
    ai_notice_posts: bool = Field(False, description="Whether each post on X begins with a label that an AI wrote it.")
    minors: Annotated[str, AfterValidator(_check_minor_rules)] = Field(
        "notice,no-romance",
        description="What holds for people and rooms that are marked as minors (`bot person mark`, /minors): `notice` "
        "(AI_NOTICE every hour, whatever else it is), `no-romance`; `off` for neither.",
    )
    age_restricted_rooms: CommaList = Field(
        (),
        description="Where a character whose content is mature may speak beside rooms that their platform restricts to "
        "adults, and the terminal: `platform` or `platform:id of the room`, as in `web,telegram:-1001234`.",
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
    burst_pause: int | None = Field(
        None,
        ge=0,
        le=10_000,
        description="How long to wait after a message whether more of it comes, in milliseconds; what comes "
        "by then is answered together. Unset, it depends on how the person writes: nothing after single messages, at "
        "most 1500 after each of several in a row.",
    )
    replay_keep: int = Field(
        7,
        ge=0,
        le=7,
        description="For how many days `bot replay` can run a turn again, with what it has read and been answered; 0 "
        "stores nothing for it. It is deleted with the messages and people, and with the turn's journal after a week.",
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
        "remembered), `rerun` (it is answered again, and the old answer changed where the platform can). A message "
        "that was ignored and names the bot now is answered either way.",
    )
    should_respond_bypass_types: CommaList = Field(
        (), description="Kinds of room in which every message is answered, beside DM, VOICE_DM, SELF and API."
    )
    should_respond_bypass_sources: CommaList = Field(
        (), description="Sources whose every message is answered, beside client_chat, api and postman."
    )
    responsiveness: str = Field(
        "balanced",
        pattern="^(called|reserved|balanced|lively)$",
        description="How readily the bot speaks in groups without being called: `called` (never), `reserved`, "
        "`balanced`, `lively`. What is not clear from the talk, a small model decides.",
    )
    reactions: int = Field(
        6,
        ge=0,
        description="How many reactions (an emoji at a message) the bot may set in a room within an hour; 0 for none.",
    )
    threads: int = Field(
        2,
        ge=0,
        description="How many threads or topics the bot may open in a room within an hour; 0 for none. For whom: the "
        "instruction `threads` of a room, by default for admins.",
    )
    take_over_reminder: float = Field(
        12.0, gt=0, description="After how many hours the owner is reminded of a take-over that was not given back."
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
    registry_url: str = Field(
        "",
        description="A list of plugins beside the one that comes with Greenroom, for `bot plugin search` and "
        "`bot plugin add`: an https address, or the path of a file.",
    )
    voice_replies: str = Field(
        "voice",
        pattern="^(never|voice|always)$",
        description="Which replies are spoken too, where a model can speak and the platform plays recordings: "
        "`voice` (those to voice messages), `always`, `never`.",
    )
    voice_max_length: int = Field(
        1000,
        ge=1,
        le=4096,
        description="How many characters a reply may have that is spoken; a longer one is only written.",
    )
    max_crashed_starts: int = Field(
        3,
        alias="CRASH_LOOP_BOOTS",
        ge=0,
        description="After how many crashed starts within five minutes `bot run` leaves every platform but "
        "the web page off, until those minutes are over; 0 for never.",
    )

    def for_world(self, overrides: Mapping[str, str], room_ids: Sequence[UUID] = ()) -> "CoreSettings":
        """Return the settings with the choices of a world; raises ValueError for an invalid one.

        Only the names in `WORLD_SETTINGS` may be chosen. With `room_ids`, those of a room and of the rooms around it,
        what is chosen for the first of them that has a choice of its own counts.
        """
        values = {name: value for name, value in overrides.items() if name in self.WORLD_SETTINGS}
        for room_id in reversed(room_ids) if overrides else ():
            chosen = {name: overrides.get(room_setting(name, room_id), "") for name in self.ROOM_SETTINGS}
            values |= {name: value for name, value in chosen.items() if value}
        return CoreSettings.model_validate({**self.model_dump(by_alias=True), **values}) if values else self


def _parse_threshold(entry: str) -> tuple[str, float | None]:
    category, _, score = entry.partition("=")
    return category.strip(), float(score) if score.strip() else None


def _check_thresholds(entries: tuple[str, ...]) -> tuple[str, ...]:
    for entry in entries:
        try:
            category, score = _parse_threshold(entry)
        except ValueError:
            category, score = "", None
        if not category or not (score is None or 0 <= score <= 1):
            raise ValueError(f"{entry!r} is no category with a score from 0 to 1: write it as in hate=0.4")
    return entries


class FilterSettings(SettingsModel):
    """Filters of messages and replies; those of plugins are beside them."""

    CHARACTER_SETTINGS = frozenset()

    filter_words: str = Field(
        "",
        description="Words and phrases that are looked for in messages and replies, separated by commas, or `file:` "
        "and the path of a list with one a line. They are found as whole words in any case, and with letters that "
        "only look like theirs. The admins of a room add others with /filter-words.",
    )
    filter_words_action: str = Field(
        "stop",
        pattern="^(replace|hold|stop)$",
        description="What such a word leads to: `replace` (it is masked), `hold` (the answer waits for a person), "
        "`stop` (a message is not read, a reply not sent).",
    )
    filter_links: str = Field(
        "off",
        pattern="^(off|hold|stop)$",
        description="What a link in a reply leads to whose host is not in LINK_HOSTS: `hold`, `stop` or `off`.",
    )
    filter_max_length: int = Field(
        0, ge=0, description="How many characters a reply has at most, and is cut behind; 0 for no limit of its own."
    )
    filter_max_message_length: int = Field(
        0, ge=0, description="How many characters of a message are read; the rest is cut off. 0 for all of them."
    )
    filter_moderation: str = Field(
        "off",
        pattern="^(off|on)$",
        description="Whether a model for moderation checks messages and replies: `on` needs OPENAI_API_KEY, or "
        "OPENAI_MODERATION_URL and OPENAI_MODERATION_MODEL. Their texts are sent there.",
    )
    filter_moderation_thresholds: Annotated[CommaList, AfterValidator(_check_thresholds)] = Field(
        (),
        description="Which categories of harm count, and from which score between 0 and 1 on, as in "
        "`hate=0.4,violence=0.8`; one without a score counts if the model flags it. Unset, all that it flags count.",
    )
    filter_moderation_action: str = Field(
        "stop",
        pattern="^(hold|stop)$",
        description="What a harmful text leads to: `hold` (the answer waits for a person) or `stop`.",
    )
    filter_moderation_failure: str = Field(
        "open",
        pattern="^(open|closed)$",
        description="What holds if the model does not answer within five seconds: `open` (the text passes) or `closed` "
        "(it is stopped).",
    )

    @property
    def moderation_thresholds(self) -> dict[str, float | None]:
        """The score from which on each category counts, None for what the model flags; empty for all it flags."""
        return dict(map(_parse_threshold, self.filter_moderation_thresholds))


class NetworkSettings(SettingsModel):
    """Standard variables for every outgoing connection."""

    CHARACTER_SETTINGS = frozenset()

    https_proxy: str | None = Field(None, description="The proxy for https addresses, as http://host:port.")
    http_proxy: str | None = Field(None, description="The proxy for http addresses.")
    no_proxy: str | None = Field(None, description="Hosts reached without a proxy, separated by commas.")
    ssl_cert_file: str | None = Field(None, description="Certificates to trust instead of the system's.")


M = TypeVar("M", bound="SettingsModel")
MIN_SECRET_LENGTH = 8
NETWORK_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE")
PROXY_VARIABLES = (*NETWORK_VARIABLES[:2], "https_proxy", "http_proxy")  # both spellings may hold a login
CHOICES = re.compile(r"pattern '\^\(([a-z|]+)\)\$'")
PROXY_PASSWORD = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
CHARACTER_FILE = "the character's"


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
    """Every setting of one agent, looked up by name through its layers.

    `models` declare which variables belong to the operator: these are not looked up in a character's file.
    """

    def __init__(self, layers: Sequence[Layer] = (), models: Sequence[type[SettingsModel]] = (CoreSettings,)) -> None:
        self._all_layers = tuple(layers)
        self._models = tuple(dict.fromkeys(models))
        self._has_character_values = any(layer.values and not layer.is_operator for layer in layers)
        self._layers = tuple(map(self._without_operator_names, layers)) if self._has_character_values else tuple(layers)

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
        return Settings([layer for layer in self._layers if layer.is_operator], self._models)

    def with_models(self, *models: type[SettingsModel]) -> "Settings":
        """Return the settings with further models that declare which variables belong to the operator."""
        is_known = set(models).issubset(self._models) or not self._has_character_values
        return self if is_known else Settings(self._all_layers, (*self._models, *models))

    @property
    def ignored_names(self) -> tuple[str, ...]:
        """The variables that a character's file sets although they belong to the operator."""
        layers = (layer.values for layer in self._all_layers if not layer.is_operator)
        names = dict.fromkeys(name for values in layers for name, value in values.items() if value.strip())
        return tuple(name for name in names if not self._is_character_name(name))

    @property
    def undeclared_names(self) -> tuple[str, ...]:
        """The variables that a character's file sets and none of the models declares."""
        names = (name for layer in self._all_layers if not layer.is_operator for name in layer.values)
        return tuple(
            name for name in dict.fromkeys(names) if not any(name in character_settings(m) for m in self._models)
        )

    def network_environment(self) -> dict[str, str]:
        """Return the proxy and certificate variables that the operator has set."""
        operator = self.operator_only()
        return {name: value for name in NETWORK_VARIABLES if (value := operator.get(name))}

    def with_layer(self, layer: Layer) -> "Settings":
        """Return the settings with a layer above all others."""
        return Settings([layer, *self._all_layers], self._models)

    def with_character_values(self, other: "Settings", names: Collection[str]) -> "Settings":
        """Return the settings with what a character's file says about `names` in `other`."""
        current = {layer.name: layer.values for layer in other._all_layers if not layer.is_operator}
        layers = [
            layer
            if layer.is_operator or layer.name not in current
            else replace(
                layer,
                values={name: value for name, value in layer.values.items() if name not in names}
                | {name: value for name, value in current[layer.name].items() if name in names},
            )
            for layer in self._all_layers
        ]
        return Settings(layers, self._models)

    def load(self, model: type[M]) -> M:
        """Read the variables of a settings model.

        Raises SettingError that names each wrong variable, its layer, and what it must be; the value is never
        shown.
        """
        if self._has_character_values and model not in self._models:
            return self.with_models(model).load(model)
        aliases = [field.alias or name for name, field in model.model_fields.items()]
        values = {alias: value for alias in aliases if (value := self.get(alias)) is not None}
        for alias, other in model.FALLBACKS.items():
            allowed = self if self._is_character_name(alias) else self.operator_only()
            if alias not in values and (value := allowed.get(other)) is not None:
                values[alias] = value
        try:
            return model.model_validate(values)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            raise SettingError("\n".join(self._format_problem(problem) for problem in problems)) from None

    def find_problems(self, models: Iterable[type[SettingsModel]]) -> list[str]:
        """Return what is wrong with the variables of some models, a line each, as the errors of `load` say it."""
        problems: dict[str, None] = {}
        for model in models:
            try:
                self.load(model)
            except SettingError as error:
                problems |= dict.fromkeys(str(error).splitlines())
        return list(problems)

    def secrets(self, *models: type[SettingsModel]) -> frozenset[str]:
        """Return the values that must never be sent, from every layer, whether they are in effect or not.

        They are those of secret fields, of secret-looking names, and of secret layers, and a proxy's
        password.
        """
        secret_names = {item.alias or name for model in models for name, item in secret_fields(model)}
        values = [
            value.strip()
            for layer in self._all_layers
            for name, value in layer.values.items()
            if layer.is_secret or name in secret_names or is_secret_name(name)
        ]
        proxies = (layer.values.get(name, "") for layer in self._all_layers for name in PROXY_VARIABLES)
        values += [match[1] for item in proxies if (match := PROXY_PASSWORD.search(item))]
        return frozenset(value for value in values if len(value) >= MIN_SECRET_LENGTH)

    def _without_operator_names(self, layer: Layer) -> Layer:
        if layer.is_operator:
            return layer
        return replace(
            layer, values={name: layer.values[name] for name in layer.values if self._is_character_name(name)}
        )

    def _is_character_name(self, name: str) -> bool:
        """Return whether a character's file may set a variable: each model that declares it agrees."""
        decisions = [names[name] for names in map(character_settings, self._models) if name in names]
        return all(decisions) if decisions else not is_operator_name(name)

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
        if choices := CHOICES.search(message):
            message = f"must be one of {choices[1].replace('|', ', ')}"
        return f"{name} (in {source}): {message}"


def reject_redirected_key(settings: Settings, *, server: str, key: str) -> None:
    """Raise SettingError where a character's file would send the operator's key to a server of its own.

    `server` and `key` name the variables of the two. It concerns only plugins that let a file set the
    server, in their `CHARACTER_SETTINGS`.
    """
    operator = settings.operator_only()
    has_character_server = settings.get(server) != operator.get(server)
    has_character_key = settings.get(key) != operator.get(key)
    if has_character_server and not has_character_key and key in operator:
        raise SettingError(
            f"{server} (in the character's file) would send your {key} to that server: if you trust it, put "
            f"{server} into .env too; else take it out of the file"
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
    if env_file.is_dir():
        raise SettingError(f"{env_file} is a folder: remove it, and write a file of this name with lines NAME=value")
    if env_file.is_file():
        layers.append(Layer(str(env_file), _read_env_file(env_file)))
    return Settings(layers)


def find_unreadable_lines(env_file: Path = Path(".env")) -> list[int]:
    """Return the numbers of the lines of `.env` that set nothing, because they are not NAME=value."""
    if not env_file.is_file():
        return []
    return [binding.original.line for binding in _parse_env_file(env_file) if binding.error]


def _read_env_file(path: Path) -> dict[str, str]:
    return {binding.key: binding.value or "" for binding in _parse_env_file(path) if binding.key is not None}


def _parse_env_file(path: Path) -> list[Binding]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            return list(parse_stream(file))
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
