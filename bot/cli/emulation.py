"""Run characters on emulated platforms, with a temporary data folder."""

import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bot.characters import load_character
from bot.cli.characters import CharacterConfig, default_character
from bot.inbound.agent_handle import AdapterSpec, EmulatedPlatform
from bot.plugin_system.bundled import PluginPurpose, bundled_names, store_settings
from bot.plugin_system.loading import find_emulator
from bot.settings import Layer, load_settings, secret_fields

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class EmulatedRun:
    """The emulators' URLs, a settings layer for each character that points to them, and the data folder."""

    urls: Mapping[str, str]
    layers: tuple[Layer, ...]
    folder: Path

    def enable_for(self, config: CharacterConfig) -> CharacterConfig:
        """Return the configuration with the emulated platforms added to the character's adapters."""
        return config.with_adapters(tuple(self.urls))

    def summary_lines(self, configs: Sequence[CharacterConfig]) -> Iterator[str]:
        """Yield what to tell the operator: URLs, which data leaves the machine, where data is stored."""
        for name, url in self.urls.items():
            yield f"{name} is emulated: open {url} to talk"
        local_models = bundled_names(PluginPurpose.FALLBACK_MODEL)
        models = sorted({name for config in configs for name in config.text_plugins}.difference(local_models))
        if models:
            yield f"nothing leaves this machine except model calls ({', '.join(models)})"
        else:
            yield "nothing leaves this machine; no account and no key is needed"
        yield (f"the bot's own data is not used: this run stores its data in {self.folder} and removes it at the end")


@asynccontextmanager
async def run_emulators(specs: Sequence[AdapterSpec], files: Sequence[Path]) -> AsyncIterator[EmulatedRun]:
    """Run emulators for the characters of these files (default: the bundled one) during the block."""
    names = _unique_names([load_character(path).character.name for path in files or [default_character()]])
    bypass_proxy()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="greenroom-", ignore_cleanup_errors=True))
        emulators = {spec.name: await stack.enter_async_context(find_emulator(spec)(names)) for spec in specs}
        layers = tuple(_settings_layer(name, specs, emulators, folder) for name in names)
        urls = {name: emulator.url for name, emulator in emulators.items()}
        yield EmulatedRun(urls, layers, Path(folder))


def bypass_proxy(environment: MutableMapping[str, str] = os.environ) -> None:
    """Exclude the loopback address from every proxy."""
    existing_hosts = environment.get("no_proxy") or load_settings(environment=environment).get("NO_PROXY") or ""
    if existing_hosts != "*":
        environment["NO_PROXY"] = environment["no_proxy"] = f"{LOOPBACK},{existing_hosts}".strip(",")


def _settings_layer(
    name: str, specs: Sequence[AdapterSpec], emulators: Mapping[str, EmulatedPlatform], folder: str
) -> Layer:
    """Return a character's settings layer; it hides the real accounts and databases."""
    values = {"BOT_DATA_DIR": folder}
    hidden_names = {*values, *store_settings()}
    for spec in specs:
        values.update(emulators[spec.name].settings[name])
        hidden_names.update(
            spec.needs, (field_info.alias or field for field, field_info in secret_fields(spec.settings))
        )
    return Layer("the emulated run", values, hidden_names=frozenset({*values, *hidden_names}))


def _unique_names(names: Sequence[str]) -> list[str]:
    """Return the names with a number appended to those that occur more than once."""
    counts = Counter(names)
    return [
        name if counts[name] == 1 else f"{name} {names[: index + 1].count(name)}" for index, name in enumerate(names)
    ]
