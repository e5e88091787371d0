"""What the set-up does once it knows an answer: write it down, or check it live first.

Questions in the terminal: lists for the arrow keys, lines with a default, hidden lines; Escape goes back.

Write variables into `.env`: atomically, readable by its owner only, every other line as it was.

Models: servers that run on this machine, what a model file needs, and whether a model writes.
"""

import asyncio
import io
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dotenv.parser import Binding, parse_stream
from yarl import URL

from bot.characters import load_character
from bot.characters.exchange import file_stem
from bot.cli.characters import ENV_FILE, Platform, load_character_config
from bot.cli.doctor.checks import SETTINGS_ADVICE, check_accounts, finding_lines
from bot.cli.doctor.model_checks import ask_model
from bot.cli.operator.characters import WrittenCharacter, write_starter
from bot.cli.options import (
    CORE_GROUPS,
    find_adapter_groups,
    find_settings_groups,
    known_variables,
    list_variables,
    working,
)
from bot.errors import BotError, CharacterError, SettingError, TemporaryError
from bot.inbound.agent_handle import AdapterSpec
from bot.inbound.operator_tools import Finding, FindingStatus
from bot.logs import configure_logging
from bot.plugin_system.loading import (
    Installation,
    ModelServer,
    PluginPurpose,
    bundled_plugins,
    find_adapter,
    find_adapters,
    find_distribution,
    has_extra,
    install_extra,
    install_without_dependencies,
    model_files,
    model_keys,
    model_servers,
)
from bot.settings import Layer, Settings, load_settings
from bot.text import strip_terminal_codes, suggest

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from questionary import Question


BACK = "Back"
KEYS = "(arrow keys, Enter; Escape goes back)"
Check = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Option:
    """An entry of a list: what is shown, and the value that is returned for it."""

    title: str
    value: str


def choose(question: str, options: Sequence[Option], *, default: str = "", has_back: bool = True) -> str | None:
    """Return the value of the chosen option; None to go back."""
    import questionary

    choices = [questionary.Choice(strip_terminal_codes(option.title), option.value) for option in options]
    if has_back:
        choices.append(questionary.Choice(BACK, BACK))
    known = default if default in [option.value for option in options] else None
    answer = _ask(questionary.select(question, choices, default=known, instruction=KEYS))
    return None if answer == BACK else answer


def ask_text(question: str, *, default: str = "", check: Check | None = None) -> str | None:
    """Return a line; None to go back. `check` returns what is wrong with an answer, empty if nothing is.

    The `default` is shown until something is typed, and is the answer to Enter alone.
    """
    import questionary

    shown = [("fg:ansibrightblack", default)]
    answer = _ask(questionary.text(question, validate=_validator(check, default), placeholder=shown))
    return answer if answer is None else answer.strip() or default


def ask_secret(question: str) -> str | None:
    """Return a line of which only asterisks are shown; None to go back."""
    import questionary

    answer = _ask(questionary.password(question, validate=_validator(None)))
    return answer if answer is None else answer.strip()


def _validator(check: Check | None, default: str = "") -> Callable[[str], bool | str]:
    def validate(text: str) -> bool | str:
        answer = text.strip() or default
        if not answer:
            return "An answer is needed; Escape goes back."
        return (check(answer) if check else "") or True

    return validate


def _ask(question: "Question") -> str | None:
    """Ask, with Escape for the way back. Raises KeyboardInterrupt for Control-C."""
    from prompt_toolkit.key_binding import KeyBindings, merge_key_bindings

    going_back = KeyBindings()

    @going_back.add("escape", eager=True)
    def go_back(event: Any) -> None:
        event.app.exit(result=None)

    application = question.application
    own_bindings = [application.key_bindings] if application.key_bindings is not None else []
    application.key_bindings = merge_key_bindings([*own_bindings, going_back])
    answer: str | None = question.unsafe_ask()
    return answer


NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLAIN_VALUE = re.compile(r"[A-Za-z0-9_./:@%+,-]*")
BYTE_ORDER_MARK = "\ufeff"


def write_variables(values: Mapping[str, str], path: Path) -> None:
    """Set variables in the file, which is created if need be; a blank value stands for a variable that is not set.

    A variable that the file has is changed where it stands, others are appended. Raises SettingError, without the
    value, for one that no line can hold, and for a file that cannot be read or written.
    """
    for name, value in values.items():
        if not NAME.fullmatch(name):
            raise SettingError(f"{name!r} is not the name of a variable: use letters, digits and _")
        if not value.isprintable():
            raise SettingError(f"the value of {name} has characters that {path} cannot hold: copy it again")
    path = path.resolve()  # a link stays a link
    text = _change_lines(_read_env_file(path), values)
    temporary_path = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with os.fdopen(os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        temporary_path.replace(path)
    except OSError as error:
        temporary_path.unlink(missing_ok=True)
        raise SettingError(f"{path}: cannot be written: {error.strerror or error}") from None


def _read_env_file(path: Path) -> str:
    try:
        return path.read_bytes().decode() if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: cannot be read as text in UTF-8: {error}") from None


def _change_lines(text: str, values: Mapping[str, str]) -> str:
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    newline = "\r\n" if "\r\n" in text else "\n"
    bindings = list(parse_stream(io.StringIO(text.removeprefix(mark), newline="")))
    places = {binding.key: index for index, binding in enumerate(bindings) if binding.key in values}  # the last counts
    parts = [binding.original.string for binding in bindings]
    for name, index in places.items():
        parts[index] = _changed_line(bindings[index], str(name), values[str(name)], newline)
    result = "".join(parts)
    new_lines = [f"{name}={_quote(value)}{newline}" for name, value in values.items() if name not in places and value]
    if new_lines and result and not result.endswith("\n"):
        result += newline
    return mark + result + "".join(new_lines)


def _changed_line(binding: Binding, name: str, value: str, newline: str) -> str:
    """Return the line with another value; what stands before it stays, and so does one that has the value already."""
    if binding.value == value:
        return binding.original.string
    original = binding.original.string
    start = original[: len(original) - len(original.lstrip())]
    export = "export " if original.lstrip().startswith("export") else ""
    return f"{start}{export}{name}={_quote(value)}{newline}"


def _quote(value: str) -> str:
    if PLAIN_VALUE.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


LOOPBACK = "http://127.0.0.1"
LOCAL_TIMEOUT, OTHER_TIMEOUT = 2.0, 15.0
MAX_LIST_BYTES = 4 << 20
MAX_MODELS, MAX_NAME_LENGTH = 200, 200
MODELS_PATH = "/v1/models"
LAYER = "the set-up"


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that answers: its kind, its address without `/v1`, and its models for text."""

    kind: ModelServer
    url: str
    models: tuple[str, ...]

    def variables(self, model: str, key: str = "") -> dict[str, str]:
        """Return the variables that name this server and one of its models; blank where another server was named."""
        values = (
            _cleared_variables()
            | {self.kind.address: f"{self.url}{self.kind.path}"}
            | dict.fromkeys(self.kind.models, model)
        )
        return values | ({self.kind.key: key} if key and self.kind.key else {})


def has_model(settings: Settings) -> bool:
    """Return whether a setting enables a model."""
    return any(plugin.purpose is PluginPurpose.MODEL and plugin.is_enabled(settings) for plugin in bundled_plugins())


def key_variables(name: str, key: str) -> dict[str, str]:
    """Return the variables for the key of a service, which is then used instead of a server named before."""
    return _cleared_variables() | {name: key}


def file_variables(value: str) -> dict[str, str]:
    """Return the variables for a model file on this computer, which is then used instead of a server named before."""
    return _cleared_variables() | {model_files().variable: value}


def missing_installations(value: str) -> list[Installation]:
    """Return what must be installed before a model file is run, or the tiny model that is a package."""
    files = model_files()
    missing = [] if has_extra(files.extra) else [install_extra(files.extra)]
    if value == files.tiny_model and find_distribution(files.tiny_model) is None:
        missing.append(install_without_dependencies(files.tiny_model))
    return missing


def _cleared_variables() -> dict[str, str]:
    names = {variable for kind in model_servers() for variable in (kind.address, *kind.models)}
    return dict.fromkeys([*sorted(names), model_files().variable], "")


def default_ports() -> tuple[int, ...]:
    """Return the ports on which model servers usually are."""
    return tuple(kind.port for kind in model_servers() if kind.port)


async def find_servers(ports: Sequence[int]) -> list[FoundServer]:
    """Return the model servers of this machine on these ports; one that does not answer is left out."""
    kinds = {kind.port: kind for kind in model_servers()}
    urls = [(kinds.get(port, kinds[0]), f"{LOOPBACK}:{port}") for port in dict.fromkeys(ports)]

    async def find(kind: ModelServer, url: str) -> FoundServer | None:
        try:
            return FoundServer(kind, url, await list_models(url, timeout=LOCAL_TIMEOUT))
        except TemporaryError:
            return None

    found = await asyncio.gather(*(find(kind, url) for kind, url in urls))
    return [server for server in found if server is not None]


async def find_server(address: str, key: str = "") -> FoundServer:
    """Return the server at an address, with or without `/v1` at its end. Raises TemporaryError, without the key."""
    try:
        url = URL(address if "://" in address else f"http://{address}")
        is_web = url.scheme in ("http", "https") and bool(url.host) and url.user is None
    except ValueError:
        is_web = False
    if not is_web:
        raise TemporaryError(f"{address!r} is not an address such as http://127.0.0.1:8080/v1")
    root = str(url).rstrip("/").removesuffix("/v1")
    kind = next((kind for kind in model_servers() if kind.port == url.port and not key), model_servers()[-1])
    return FoundServer(kind, root, await list_models(root, key, timeout=OTHER_TIMEOUT))


async def list_models(url: str, key: str = "", *, timeout: float) -> tuple[str, ...]:
    """Return the names of the models for text of a server with OpenAI's API. Raises TemporaryError."""
    import aiohttp  # here, because help needs no HTTP client

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    limits = aiohttp.ClientTimeout(total=timeout)
    is_local = url.startswith(LOOPBACK)
    try:
        async with (
            aiohttp.ClientSession(timeout=limits, trust_env=not is_local) as session,
            session.get(f"{url}{MODELS_PATH}", headers=headers, allow_redirects=False) as response,
        ):
            if response.status in (401, 403):
                raise TemporaryError(f"{url} refuses the key" if key else f"{url} needs a key")
            if response.status != 200:
                raise TemporaryError(f"{url}{MODELS_PATH} answers with status {response.status}")
            return _parse_models(url, await _read_response(response))
    except TimeoutError:
        raise TemporaryError(f"{url} does not answer within {timeout:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise TemporaryError(f"{url} cannot be reached: {type(error).__name__}") from None


async def _read_response(response: "ClientResponse") -> bytes:
    """Return the body. Raises ValueError for one that is too long."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_LIST_BYTES:
            raise ValueError("too long")
    return bytes(body)


def _parse_models(url: str, body: bytes) -> tuple[str, ...]:
    try:
        items: Any = json.loads(body)["data"]
        names = [str(item["id"]) for item in items][:MAX_MODELS]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TemporaryError(f"{url}{MODELS_PATH} lists no models: the server there is not a model server") from None
    usable = [name for name in names if name.isprintable() and 0 < len(name) <= MAX_NAME_LENGTH]
    return tuple(dict.fromkeys(name for name in usable if "embed" not in name.lower()))


def try_model(character: Path, values: Mapping[str, str]) -> list[Finding]:
    """Make the model write one word as the character would, with these variables above all others."""
    layer = Layer(LAYER, values, hidden_names=frozenset(values))
    try:
        config = load_character_config(character, layer)
        secrets = {*config.secrets, *_known_secrets(values)}
        with configure_logging(level="ERROR", secrets=secrets):
            return asyncio.run(_try(config.dry_run_config, config.settings))
    except BotError as error:
        return [Finding(FindingStatus.FAIL, "model", str(error), SETTINGS_ADVICE)]


async def _try(agent_config: Any, settings: Settings) -> list[Finding]:
    from bot.runtime.agent_runtime import run_agent  # here, because help needs no pipeline

    async with run_agent(agent_config) as agent_runtime:
        problems = [
            Finding(FindingStatus.FAIL, "plugins", f"{name} cannot be initialized: {cause}", SETTINGS_ADVICE)
            for name, cause in agent_runtime.inactive.items()
        ]
        return [*problems, *await ask_model(agent_runtime.agent, settings)]


def _known_secrets(values: Mapping[str, str]) -> set[str]:
    names = {service.key for service in model_keys()} | {kind.key for kind in model_servers()}
    return {value for name, value in values.items() if name in names and value}


CHARACTER_VARIABLE = "BOT_CHARACTER"


def say(text: str) -> None:
    """Print a line of the set-up."""
    print(strip_terminal_codes(text), flush=True)


def show(findings: Sequence[Finding]) -> None:
    """Print what a check found."""
    for finding in findings:
        print("\n".join(finding_lines(finding)), flush=True)


def save(values: Mapping[str, str]) -> None:
    """Write variables to `.env`, and say which; values are not printed. Raises SettingError."""
    write_variables(values, ENV_FILE)
    if names := [name for name, value in values.items() if value]:
        say(f"wrote {', '.join(names)} to {ENV_FILE}")
    for name, value in values.items():
        if os.environ.get(name, value) != value:
            say(f"note: {name} is also set in the environment, which takes precedence over {ENV_FILE}")


def save_character(path: Path) -> None:
    """Make a file the character that commands use. Raises ConfigError for one that cannot be used."""
    character = load_character(path).character
    save({CHARACTER_VARIABLE: str(path)})
    say(f"{character.name} is the character now; edit {path} to change it")


def finish_import(written: Sequence[WrittenCharacter], *, confirm: Callable[[str], bool]) -> None:
    """Print what was imported; write the keys that stood in the files to `.env` if that is confirmed.

    A variable that is set keeps its value, and one of the operator is not taken from a character's file.
    """
    known = known_variables((), find_settings_groups()[0]) if any(item.imported.secrets for item in written) else {}
    for item in written:
        for line in item.format_lines():
            say(line)
        settings, values = load_settings(), dict[str, str]()
        for name, value in item.imported.secrets.items():
            if name in settings:
                say(f"{name} is set already: the one of {item.imported.path} is not used")
            elif (variable := known.get(name)) is None or variable.is_character_setting:
                values[name] = value
            else:
                say(f"{name} is the operator's: the one of {item.imported.path} is not used")
        names = ", ".join(values)
        if values and confirm(f"{item.imported.path} holds {names}. Write to {ENV_FILE}, where only you can read it?"):
            save(values)
        elif values:
            say(f"not written: {names}; without it in {ENV_FILE} nothing uses it")


def create_character(name: str) -> Path:
    """Return the file of a new character, or the one that an earlier run wrote. Raises CharacterError."""
    name = " ".join(name.split())
    path = Path(f"{file_stem(name)}.json")
    if not path.exists():
        write_starter(path, name)
        say(f"wrote {path}")
    elif load_character(path).character.name != name:
        raise CharacterError(f"{path}: the file exists and is another character's; choose another name")
    return path


def find_platforms() -> list[AdapterSpec]:
    """Return the platforms that a person can connect, by name."""
    specs = [spec for spec in find_adapters().values() if isinstance(spec, AdapterSpec) and spec.setup_steps]
    return sorted(specs, key=lambda spec: spec.name)


def is_connected(spec: AdapterSpec, settings: Settings) -> bool:
    """Return whether everything that a platform needs is set."""
    return all(name in settings for name in spec.needs)


def check_platform(spec: AdapterSpec, character: Path, values: Mapping[str, str]) -> list[Finding]:
    """Ask a platform about the account behind these variables, without any visible effect there."""
    adapter = find_adapter(spec.name)
    if isinstance(adapter, str):
        return [Finding(FindingStatus.FAIL, "account", adapter, "install it, then run `bot init` again")]
    layer = Layer(LAYER, values, hidden_names=frozenset(values))
    try:
        config = load_character_config(character, layer)
        secrets = config.secrets | config.settings.secrets(adapter.settings)
        with configure_logging(level="ERROR", secrets=secrets), working(f"asking {spec.name}"):
            return list(check_accounts(config, [Platform(spec.name, adapter)]))
    except BotError as error:
        return [Finding(FindingStatus.FAIL, "account", f"{spec.name}: {error}", SETTINGS_ADVICE)]


def is_accepted(findings: Sequence[Finding]) -> bool:
    """Return whether the server or platform answered and took what it was given, perhaps with problems left."""
    return any(finding.status is not FindingStatus.FAIL for finding in findings)


def failures(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that must be corrected."""
    return [finding for finding in findings if finding.status is FindingStatus.FAIL]


def check_values(values: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is wrong with values, before anything is written."""
    groups = [*CORE_GROUPS, *find_adapter_groups()[0]]
    if not values.keys() <= known_variables((), groups).keys():
        groups, _ = find_settings_groups()  # imports every plugin
    settings = load_settings().with_layer(Layer(LAYER, values))
    for group in groups:
        if any(variable.name in values for variable in list_variables(group.model)):
            try:
                settings.load(group.model)
            except BotError as error:
                yield Finding(FindingStatus.FAIL, "settings", str(error), SETTINGS_ADVICE)
    known = known_variables((), groups)
    for name in values:
        if name not in known:
            hint = suggest(name, known)
            yield Finding(FindingStatus.WARN, "settings", f"{name} is a variable of no installed part", hint)
