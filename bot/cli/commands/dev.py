"""Run characters as `bot run` does, and reload them and the code beside them whenever a file changes."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

import bot.store
from bot.characters import load_character
from bot.cli.characters import (
    CharacterConfig,
    check_settings,
    default_character,
    list_platforms,
    load_character_configs,
    log_as_configured,
    parse_platforms,
    print_notes,
    print_plugin_notices,
    read_local_plugins,
    trusted_plugins,
)
from bot.cli.options import CharacterFiles, examples, new_command
from bot.cli.process.shutdown import (
    WATCHER,
    Changes,
    Stamp,
    exit_on_signal,
    handle_stop_signals,
    never_wait_for_readers,
    print_line,
    print_notice,
    read_stamp,
    wake_on_changes,
)
from bot.errors import BotError, PluginError
from bot.inbound.agent_handle import AdapterSpec
from bot.installation import install_command
from bot.plugin_system.plugin import find_storage
from bot.plugin_system.trust import PluginSource, reimporting
from bot.runtime.character_reload import AgentConfig
from bot.store.protocols import Store


@dataclass(frozen=True, slots=True)
class Version:
    """What the files contained at one time: the characters, the platforms that are on, the code beside them.

    `stamps` has all these files as they were then.
    """

    configs: tuple[CharacterConfig, ...]
    specs: tuple[AdapterSpec, ...]
    sources: tuple[PluginSource, ...]
    stamps: Mapping[Path, Stamp]

    @property
    def folders(self) -> set[Path]:
        """The folders in which a change matters."""
        return {file.resolve().parent for file in self.stamps}

    def is_part(self, path: Path) -> bool:
        """Return whether a file belongs to a character or to its code."""
        locations = (source.location for source in self.sources)
        is_code = any(path == location or path.is_relative_to(location) for location in locations)
        return is_code or path in [config.path.resolve() for config in self.configs]


@dataclass(slots=True)
class DevSession:
    """Runs one version after another; conversations that are only in memory stay between them."""

    files: Sequence[Path]
    only: Collection[str]
    changes: Changes
    _stores: dict[str, Store] = field(default_factory=dict)

    def load(self, last: Version | None = None) -> Version:
        """Load the files; the code that the last version had counts as trusted after a change. Raises BotError."""
        known = {source.location for source in last.sources} if last else set()
        sources: list[PluginSource] = []
        for path in self.files:
            own = read_local_plugins(path, load_character(path))
            if own and known.issuperset(source.location for source in own):
                trusted_plugins().trust(own, path)
            sources += own
        with reimporting():
            configs = [config.require_all_plugins() for config in load_character_configs(self.files)]
            platforms = list_platforms(configs, self.only)
        specs = tuple(platform.spec for platform in platforms if platform.is_on and platform.spec)
        if not specs:
            raise PluginError("no platform is on: `bot run` says why")
        check_settings(configs, specs)
        files = [*(config.path for config in configs), *(source.file for source in sources)]
        files += [Path(module) for source in sources for module in source.modules]
        return Version(tuple(configs), specs, tuple(sources), _read_stamps(files))

    async def run(self, version: Version) -> None:
        """Run a version until files change, then the next one; one that does not start gives way to the last."""
        good: Version | None = None
        while True:
            try:
                next_version = await self._run_version(version, good)
            except (BotError, OSError) as error:
                if good is None or good is version:
                    raise
                print_line(f"the new version does not start: {error}\nthe version before it runs on", allowed="\n")
                # Of the files as they are now only a further change counts.
                next_version, good = replace(good, stamps={**_read_stamps(good.stamps), **version.stamps}), None
            else:
                good = version
            version = next_version

    async def _run_version(self, version: Version, good: Version | None) -> Version:
        from bot.runtime.runtime import Runtime  # here, because help needs no pipeline

        configs = [self._agent_config(config) for config in version.configs]
        async with Runtime(configs, version.specs, is_strict=good is not None) as runtime:
            print_line(f"running: {', '.join(config.name for config in version.configs)}")
            for adapter in runtime.adapters:
                print_line(f"  {adapter.platform:<9} on   {getattr(adapter, 'url', '')}".rstrip())
            return await self._wait_for_next(version)

    async def _wait_for_next(self, version: Version) -> Version:
        """Return what the files contain after a change, also one that was made before the watcher had begun."""
        stamps = version.stamps
        async with aclosing(self.changes(version.folders)) as changes:
            async for paths in changes:
                known, stamps = stamps, await asyncio.to_thread(_read_stamps, stamps)
                if known == stamps and not any(version.is_part(path.resolve()) for path in paths):
                    continue
                try:
                    return await asyncio.to_thread(self.load, version)
                except BotError as error:
                    print_line(f"not reloaded: {error}\nthe version before this change runs on", allowed="\n")
        return await asyncio.Future()  # nothing tells of changes any more: run on

    def _agent_config(self, config: CharacterConfig) -> AgentConfig:
        from bot.cli.operator.program import with_operator_tools

        agent_config = with_operator_tools(config)
        if find_storage(config.plugins) is not None:
            return agent_config
        return replace(agent_config, store=self._stores.setdefault(str(config.path), bot.store.InMemoryStore()))


app = new_command()


@app.command(epilog=examples("bot dev -c mine.json", "bot dev -c mine.json --only web,telegram"))
def dev(
    character: CharacterFiles = None,
    only: Annotated[
        str, typer.Option(metavar="NAMES", help="Platforms, as in web,telegram.", show_default=True)
    ] = "web",
) -> int:
    """Run the character, and reload it and its code when they change."""
    if find_spec(WATCHER) is None:
        raise PluginError(f"`bot dev` needs {WATCHER}, which is not installed: {install_command('testing')}")
    session = DevSession(character or [default_character()], parse_platforms(only), wake_on_changes)
    with exit_on_signal():
        version = session.load()
        print_notes(version.configs)
        print_plugin_notices(version.configs)

        async def run_until_stopped() -> int:
            with handle_stop_signals(lambda: print_notice("stopping")) as stop_request:
                await session.run(version)
            return stop_request.exit_code

        with log_as_configured(version.configs), never_wait_for_readers():
            return asyncio.run(run_until_stopped())


def _read_stamps(files: Iterable[Path]) -> dict[Path, Stamp]:
    return {file: read_stamp(file) for file in files}
