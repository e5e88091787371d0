"""The guided set-up: asks for a character, a model and platforms, and goes on where an earlier run ended."""

import asyncio
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path

from bot.characters import load_character
from bot.cli.characters import bundled_character, default_character
from bot.cli.operator.characters import write_imported
from bot.cli.options import list_variables, working
from bot.cli.setup.steps import (
    CHARACTER_VARIABLE,
    FoundServer,
    Option,
    ask_secret,
    ask_text,
    check_platform,
    choose,
    create_character,
    failures,
    file_variables,
    find_platforms,
    find_server,
    find_servers,
    finish_import,
    has_model,
    is_accepted,
    is_connected,
    key_variables,
    missing_installations,
    save,
    save_character,
    say,
    show,
    try_model,
)
from bot.errors import BotError, ConfigError, TemporaryError
from bot.inbound.agent_handle import AdapterSpec
from bot.plugin_system.loading import Installation, model_files, model_keys
from bot.settings import load_settings

MAX_LISTED_FILES = 8
MAX_LISTED_MODELS = 3
KEEP, NEW, IMPORT, FILE, KEY, ADDRESS, NONE = "keep", "new", "import", "file:", "key:", "address", "none"
MODEL_FILE, OWN_FILE = "model file", "own file"
SERVER, GO_ON, AGAIN, ANYWAY, OTHER, LATER, NOW = "server:", "go on", "again", "anyway", "other", "later", "now"
MODEL_FILE_HELP = (
    "A file in the format GGUF holds a model; {page} has them.",
    "It takes as much memory as the file is large, and 1 to 2 GB more. Without a GPU, a model of 1 to 4 GB writes",
    "a few words a second; larger ones write better and more slowly.",
)


def asks_to_start() -> bool:
    """Return whether the character is to be started at once."""
    options = [Option("Start it now", NOW), Option("Later", LATER)]
    return choose("What now?", options, has_back=False) == NOW


def asks_to_write(question: str) -> bool:
    """Return whether what was found is to be written."""
    options = [Option("Yes", NOW), Option("No", LATER)]
    return choose(question, options, has_back=False) == NOW


class Guide:
    """The questions in their order. Each answer is written as soon as it is checked; what is written is the state."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports

    def run(self) -> None:
        """Ask until all steps are done. Raises KeyboardInterrupt, and ConfigError if `.env` cannot be written."""
        steps: list[Callable[[], bool]] = [self._choose_character, self._choose_model, self._connect_platforms]
        index = self._first_open_step()
        while index < len(steps):
            index = index + 1 if steps[index]() else max(index - 1, 0)

    def _first_open_step(self) -> int:
        settings = load_settings()
        if CHARACTER_VARIABLE not in settings:
            return 0
        try:
            path = default_character()
            say(f"character: {load_character(path).character.name} ({path})")
        except ConfigError as error:
            say(f"{error}")
            return 0
        if not has_model(settings):
            return 1
        say("model: set")
        return 2

    def _choose_character(self) -> bool:
        example = bundled_character()
        options = []
        current = load_settings().get(CHARACTER_VARIABLE)
        if current and Path(current).is_file():
            options.append(Option(f"Keep {current}", KEEP))
        options += [
            Option("Write a new character", NEW),
            Option("Import a SillyTavern card or an elizaOS file", IMPORT),
            *(Option(f"Use {path}", f"{FILE}{path}") for path in _character_files()),
            Option(f"Use the example, {load_character(example).character.name}", f"{FILE}{example}"),
        ]
        answer = choose("Which character?", options, has_back=False)
        if answer is None or answer == KEEP:
            return answer == KEEP
        try:
            path = self._character_path(answer)
            if path is not None:
                save_character(path)
        except BotError as error:
            say(f"{error}")
            return self._choose_character()
        return True if path is not None else self._choose_character()

    def _character_path(self, answer: str) -> Path | None:
        if answer == NEW:
            name = ask_text("Its name:", default="Ada")
            return create_character(name) if name else None
        if answer == IMPORT:
            source = ask_text("The file, JSON, PNG or .charx, or a folder:")
            if not source:
                return None
            written = write_imported(Path(source).expanduser(), Path())
            finish_import(written, confirm=asks_to_write)
            files = [item.files[0] for item in written]
            if len(files) == 1:
                return files[0]
            chosen = choose("Which of them?", [Option(str(path), str(path)) for path in files])
            return Path(chosen) if chosen else None
        return Path(answer.removeprefix(FILE))

    def _choose_model(self) -> bool:
        with working("looking for model servers on this machine"):
            servers = asyncio.run(find_servers(self._ports))
        options = [Option("Keep the model that is set", KEEP)] if has_model(load_settings()) else []
        for index, server in enumerate(servers):
            names = ", ".join(server.models[:MAX_LISTED_MODELS]) or "no model for text"
            more = ", …" if len(server.models) > MAX_LISTED_MODELS else ""
            title = f"{server.kind.title[:1].upper()}{server.kind.title[1:]} at {server.url}: {names}{more}"
            options.append(Option(title, f"{SERVER}{index}"))
        options.append(Option("A model file on this computer, without a key or another program", MODEL_FILE))
        options += [Option(f"A key of {service.title}", f"{KEY}{service.key}") for service in model_keys()]
        options.append(Option("A server at another address", ADDRESS))
        options.append(Option("None yet: the built-in offline model, patterns without a language model", NONE))
        answer = choose("Which model writes the answers?", options)
        if answer is None or answer in (KEEP, NONE):
            return answer is not None
        values = self._model_variables(answer, servers)
        if values is None:
            return self._choose_model()
        with working("trying the model"):
            findings = try_model(default_character(), values)
        show(findings)
        if failures(findings):
            return self._choose_model()
        save(values)
        return True

    def _model_variables(self, answer: str, servers: Sequence[FoundServer]) -> dict[str, str] | None:
        if answer == MODEL_FILE:
            file = self._ask_model_file()
            return file_variables(file) if file else None
        for service in model_keys():
            if answer == f"{KEY}{service.key}":
                say(f"Make a key at {service.page} and copy it.")
                key = ask_secret(f"{service.key} (not shown):")
                return key_variables(service.key, key) if key else None
        key = ""
        if answer == ADDRESS:
            found, key = self._ask_server()
            if found is None:
                return None
        else:
            found = servers[int(answer.removeprefix(SERVER))]
        if not found.models:
            say(f"{found.url} has no model for text: load one there, then choose it again")
            return None
        model = choose("Which of its models?", [Option(name, name) for name in found.models])
        return found.variables(model, key) if model else None

    def _ask_model_file(self) -> str | None:
        """Return a model file, or the name of the tiny model, for which all is installed; None to go back."""
        files = model_files()
        for line in MODEL_FILE_HELP:
            say(line.format(page=files.page))
        options = [
            Option("A file that is on this computer", OWN_FILE),
            Option(f"The tiny model of the package {files.tiny_model}: 98 MB, to see that all works", files.tiny_model),
        ]
        answer = choose("Which model?", options)
        if answer is None:
            return None
        file = answer
        if answer == OWN_FILE:
            path = ask_text("The file, as in models/qwen3-4b-q4_k_m.gguf:")
            if not path:
                return None
            file = str(Path(path).expanduser().absolute())
        return file if _install(missing_installations(file)) else None

    def _ask_server(self) -> tuple[FoundServer | None, str]:
        """Return the server at an address that is asked for, and its key; None to go back."""
        address = ask_text("Its address:", default="http://127.0.0.1:8080/v1")
        key = ""
        while address:
            try:
                with working("asking the server"):
                    return asyncio.run(find_server(address, key)), key
            except TemporaryError as error:
                say(f"{error}")
            options = [Option("Enter a key", KEY), Option("Enter another address", OTHER), Option("Try again", AGAIN)]
            answer = choose("What now?", options)
            if answer is None:
                break
            if answer == KEY:
                key = ask_secret("The key (not shown):") or ""
            elif answer == OTHER:
                address = ask_text("Its address:", default=address)
        return None, ""

    def _connect_platforms(self) -> bool:
        specs = {spec.name: spec for spec in find_platforms()}
        while True:
            settings = load_settings()
            connected = [name for name, spec in specs.items() if is_connected(spec, settings)]
            options = [Option("Go on", GO_ON)] if connected else []
            for name in specs:
                note = " (is set; enter it again)" if name in connected else ""
                options.append(Option(f"{name.capitalize()}{note}", name))
            if not connected:
                options.append(Option("None yet: the web page only", GO_ON))
            answer = choose("Which platform shall be connected?", options)
            if answer is None or answer == GO_ON:
                return answer == GO_ON
            self._connect(specs[answer])

    def _connect(self, spec: AdapterSpec) -> None:
        """Ask for what a platform needs until it takes it, and write it."""
        for number, step in enumerate(spec.setup_steps, 1):
            say(f"  {number}. {step}")
        values = self._ask_needs(spec)
        while values is not None:
            findings = check_platform(spec, default_character(), values)
            show(findings)
            accepted = is_accepted(findings)
            if accepted and not failures(findings):
                save(values)
                return
            options = [Option("Check again", AGAIN), Option("Enter it again", OTHER)]
            if accepted:
                options.append(Option("Write it, and correct the rest later", ANYWAY))
            answer = choose("What now?", options)
            if answer == ANYWAY:
                save(values)
            if answer in (ANYWAY, None):
                return
            values = values if answer == AGAIN else self._ask_needs(spec)

    def _ask_needs(self, spec: AdapterSpec) -> dict[str, str] | None:
        """Return the variables that a platform needs; None to go back."""
        values = {}
        secret_names = {variable.name for variable in list_variables(spec.settings) if variable.is_secret}
        for name in spec.needs:
            value = ask_secret(f"{name} (not shown):") if name in secret_names else ask_text(f"{name}:")
            if value is None:
                return None
            values[name] = value
        return values


def _install(installations: Sequence[Installation]) -> bool:
    """Run installers if the operator wants that; return whether all is installed."""
    if not installations:
        return True
    say("It needs packages that are not installed:")
    for installation in installations:
        say(f"  {installation}")
    options = [Option("Install them now", NOW), Option("Later: run these commands, then `bot init` again", LATER)]
    if choose("What now?", options) != NOW:
        return False
    for installation in installations:
        if (code := installation.run()) != 0:
            say(f"the installer ended with exit code {code}: nothing is changed")
            return False
    importlib.invalidate_caches()
    return True


def _character_files() -> list[Path]:
    """Return the files of this folder that are characters."""
    found = []
    for path in sorted(Path().glob("*.json")):
        try:
            character = load_character(path).character
        except ConfigError:
            continue
        if character.bio or character.system:
            found.append(path)
    return found[:MAX_LISTED_FILES]
