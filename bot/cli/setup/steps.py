"""What the set-up does once it knows an answer: write it down, or check it live first."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bot.characters import load_character
from bot.characters.exchange import file_stem
from bot.cli.characters import ENV_FILE, load_character_config
from bot.cli.doctor.account_checks import check_accounts
from bot.cli.doctor.checks import SETTINGS_ADVICE, finding_lines
from bot.cli.operator.character_exchange import WrittenCharacter, write_starter
from bot.cli.platforms import Platform
from bot.cli.setup.env_file import write_variables
from bot.cli.setup.model_servers import LAYER
from bot.cli.terminal_style import working
from bot.cli.variables import CORE_GROUPS, find_adapter_groups, find_settings_groups, known_variables, list_variables
from bot.errors import BotError, CharacterError
from bot.inbound.agent_handle import AdapterSpec
from bot.inbound.operator_tools import Finding, FindingStatus
from bot.logs import configure_logging
from bot.plugin_system.loading import find_adapter, find_adapters
from bot.settings import Layer, Settings, load_settings
from bot.text import strip_terminal_codes, suggest

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
