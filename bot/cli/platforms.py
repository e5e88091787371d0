"""Which platforms are on, and why the others are off."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from bot.adapter.accounts import lists_platform
from bot.characters.elizaos_names import ADAPTER_ALIASES
from bot.cli.characters import CharacterConfig
from bot.cli.process.exit_codes import UsageError
from bot.errors import PluginError
from bot.inbound.agent_handle import AdapterSpec
from bot.plugin_system.loading import adapter_names, find_adapter, find_adapters
from bot.text import suggest

WEB = "web"
CONSOLE = "console"


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform, its adapter if installed, why it is off (empty if it is on), and the emulator's URL."""

    name: str
    spec: AdapterSpec | None
    off_reason: str = ""
    emulator_url: str = ""

    @property
    def is_on(self) -> bool:
        """Whether the platform will be connected."""
        return not self.off_reason


def list_platforms(
    configs: Sequence[CharacterConfig],
    only: Collection[str] = (),
    emulator_urls: Mapping[str, str] = MappingProxyType({}),
) -> list[Platform]:
    """Return the state of every installed platform, and load the adapters of those that are on.

    With `only`, just those are on. With `emulator_urls`, just the emulated platforms and the web page are.
    """
    local = {spec.name: spec for config in configs for spec in config.adapters}
    adapters = {**find_adapters(), **local}
    return [
        _platform(name, adapters[name], configs, only, emulator_urls, is_local=name in local)
        for name in _sort_platforms(adapters)
    ]


def parse_platforms(text: str) -> list[str]:
    """Parse the value of `--only`. Raises UsageError for an unknown platform."""
    available = _sort_platforms(adapter_names())
    if CONSOLE in _split_names(text):
        raise UsageError("--only: use `bot chat` for the console")
    return _check_names(text, available, "--only", "a platform")


def parse_emulators(text: str) -> list[AdapterSpec]:
    """Parse the value of `--emulate`. Raises UsageError for a platform without an emulator."""
    adapters = find_adapters()
    for name in _split_names(text):
        if isinstance(problem := adapters.get(name), str):
            raise PluginError(f"{name} cannot be emulated: {problem}")
    available = {name: spec for name, spec in adapters.items() if isinstance(spec, AdapterSpec) and spec.emulator}
    return [available[name] for name in _check_names(text, list(available), "--emulate", "a platform with an emulator")]


def _sort_platforms(names: Iterable[str]) -> list[str]:
    """Return the platforms that `bot run` connects, the page first."""
    return sorted((name for name in names if name != CONSOLE), key=lambda name: name != WEB)


def _split_names(text: str) -> list[str]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    return list(dict.fromkeys(ADAPTER_ALIASES.get(name, name) for name in names))


def _check_names(text: str, available: Sequence[str], option: str, kind: str) -> list[str]:
    names = _split_names(text)
    for name in names:
        if name not in available:
            hint = suggest(name, available, otherwise=f"available: {', '.join(available)}")
            raise UsageError(f"{option}: {name!r} is not {kind}: {hint}")
    if not names:
        raise UsageError(f"{option} needs one or more of {','.join(available)}")
    return names


def _platform(
    name: str,
    adapter: AdapterSpec | str,
    configs: Sequence[CharacterConfig],
    only: Collection[str],
    emulator_urls: Mapping[str, str],
    *,
    is_local: bool,
) -> Platform:
    spec = adapter if isinstance(adapter, AdapterSpec) else None
    if only and name not in only:
        return Platform(name, spec, f"not among --only {','.join(only)}")
    if emulator_urls and name not in (WEB, *emulator_urls):
        return Platform(name, spec, "not emulated: an emulated run connects to no real platform")
    if spec is None:
        return Platform(name, None, str(adapter))
    if missing := _missing_settings(spec, configs):
        return Platform(name, spec, f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set")
    is_listed = any(lists_platform(config.loaded.character, name) for config in configs)
    if not only and name != WEB and not is_listed:
        return Platform(name, spec, "the character's file names only other platforms (`adapters`)")
    # Imports its libraries now: later it would block the event loop.
    loaded_adapter = adapter if is_local else find_adapter(name)
    if isinstance(loaded_adapter, str):
        return Platform(name, None, loaded_adapter)
    return Platform(name, loaded_adapter, emulator_url=emulator_urls.get(name, ""))


def _missing_settings(spec: AdapterSpec, configs: Sequence[CharacterConfig]) -> list[str]:
    """Return the missing variables of the character that lacks the fewest."""
    lists = [[name for name in spec.needs if name not in config.settings] for config in configs]
    return min(lists, key=len, default=list(spec.needs))
