"""`bot run`, `bot dev`: start the characters on every configured platform, and reload them when a file changes."""

import asyncio
import logging
import os
import sys
import threading
import time
import webbrowser
from collections import Counter
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit
from uuid import UUID

import typer

import bot.store
from bot.adapter.adapter import Adapter, ConnectionState
from bot.characters import load_character
from bot.cli.characters import (
    WEB,
    CharacterConfig,
    Platform,
    check_settings,
    default_character,
    list_platforms,
    load_character_configs,
    log_as_configured,
    parse_emulators,
    parse_platforms,
    print_notes,
    print_plugin_notices,
    read_local_plugins,
    trusted_plugins,
)
from bot.cli.options import CharacterFiles, announce_start, examples, new_command
from bot.cli.process import shutdown
from bot.cli.process.watchdog import CrashLoop, StartHistory, run_watchdog
from bot.commands.cast import OF_ANOTHER
from bot.concurrency.tasks import BoundedDict, run_isolated
from bot.domain.character import Character
from bot.domain.events import MessageClosed, MessageReceived
from bot.errors import BotError, ConfigError, PluginError
from bot.inbound.agent_handle import AdapterSpec, AgentHandle, EmulatedOutcome, EmulatedPage
from bot.installation import install_command
from bot.plugin_system.loading import bundled_plugins, find_emulator, store_settings
from bot.plugin_system.plugin import find_storage
from bot.plugin_system.trust import PluginSource, reimporting
from bot.receipts import describe_receipt
from bot.runtime.character_reload import AgentConfig
from bot.settings import CoreSettings, Layer, load_settings, secret_fields
from bot.store.ledger import ProcessRole
from bot.store.protocols import Store
from bot.text import translate, translate_message

if TYPE_CHECKING:
    from bot.runtime.runtime import Runtime

logger = logging.getLogger(__name__)
MODEL_SECONDS = 5.0  # for servers on this machine to tell the names of their models
REFUSAL_CHECK_SECONDS = 0.5
LOOPBACK = "127.0.0.1"
MAX_OPEN_MESSAGES = 10_000
STOPPING = "stopping: no new messages are accepted, answers in progress are finished; a second signal exits at once"


@dataclass(frozen=True, slots=True)
class EmulatedRun:
    """The emulators' URLs and pages, a settings layer for each character that points to them, and the data folder."""

    urls: Mapping[str, str]
    layers: tuple[Layer, ...]
    folder: Path
    pages: Mapping[str, EmulatedPage] = field(default_factory=dict)

    def connect_pages(self, handles: Sequence[AgentHandle], adapters: Sequence[Adapter]) -> None:
        """Connect the pages to the running characters: outcomes of messages, and the address that shows receipts."""
        url = next((str(getattr(adapter, "url", "")) for adapter in adapters if adapter.platform == WEB), "")
        for page in self.pages.values():
            page.connect_web("{0.scheme}://{0.netloc}".format(urlsplit(url)) if url else "")
        for handle in handles:
            _follow_outcomes(handle, self.pages)

    def summary_lines(self, configs: Sequence[CharacterConfig]) -> Iterator[str]:
        """Yield what to tell the operator: URLs, which data leaves the machine, where data is stored."""
        for name, url in self.urls.items():
            yield f"{name} is emulated: open {url} to talk"
        local_models = {plugin.name for plugin in bundled_plugins() if plugin.is_on_this_computer}
        models = sorted({name for config in configs for name in config.text_plugins}.difference(local_models))
        if models:
            yield f"nothing leaves this machine except model calls ({', '.join(models)})"
        else:
            yield "nothing leaves this machine; no account and no key is needed"
        yield (f"the bot's own data is not used: this run stores its data in {self.folder} and removes it at the end")


run_app = new_command()


@run_app.command(
    epilog=examples(
        "bot run", "bot run -c mine.json --open", "bot run --only discord,web", "bot run --emulate telegram"
    )
)
def run(
    character: CharacterFiles = None,
    only: Annotated[str, typer.Option(metavar="NAMES", help="Platforms, as in discord,telegram,x,web.")] = "",
    emulate: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Run on platforms emulated on this machine, as in discord,telegram,x: each opens a page on which to "
            "talk; no account is needed, no real platform is connected, and the data is removed at the end.",
        ),
    ] = "",
    role: Annotated[
        str,
        typer.Option(
            metavar="ROLE",
            help="gateway, worker, sender or all, for processes that share a PostgreSQL database; by default BOT_ROLE.",
        ),
    ] = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="End if a service or a platform does not start; by default the others run.")
    ] = False,
    open_page: Annotated[
        bool,
        typer.Option(
            "--open",
            help="Open the web page in the browser, signed in; the token is in the browser's arguments, which other "
            "users of this machine can see.",
        ),
    ] = False,
) -> int:
    """Start the character on every configured platform; without any token, on the web page only."""
    announce_start("the bot")
    with shutdown.exit_on_signal():
        shutdown.raise_file_limit()
        files, names = character or [], parse_platforms(only) if only else []
        if role and role not in set(ProcessRole):
            raise shutdown.UsageError(f"--role: {role!r} is no role: all, gateway, worker or sender")
        run_until_stopped = partial(_run_until_stopped, is_strict=strict, opens_page=open_page)
        if not emulate:
            configs, platforms = _load_configs(files, names, role=role)
            with _track_start(configs, platforms) as start_history:
                return asyncio.run(run_until_stopped(configs, platforms, start_history))
        if role and role != ProcessRole.ALL:
            raise shutdown.UsageError("--emulate runs one process only: remove --role")
        emulated = parse_emulators(emulate)
        emulated_names = [spec.name for spec in emulated]
        if real := [name for name in names if name not in (WEB, *emulated_names)]:
            message = "--emulate connects to no real platform: add it there, or remove it"
            raise shutdown.UsageError(f"--only {','.join(real)}: {message}")
        if names and (missing := [name for name in emulated_names if name not in names]):
            raise shutdown.UsageError(f"--emulate {','.join(missing)}: add it to --only, too")

        async def run_emulated() -> int:
            async with run_emulators(emulated, files) as emulated_run:  # stopped after the adapters
                configs, platforms = _load_configs(files, names, emulated_run)
                with _track_start(configs, platforms) as start_history:
                    return await run_until_stopped(configs, platforms, start_history, emulated_run)

        return asyncio.run(run_emulated())


def _load_configs(
    files: Sequence[Path], only: Sequence[str], emulated_run: EmulatedRun | None = None, role: str = "all"
) -> tuple[list[CharacterConfig], list[Platform]]:
    """Return the characters and the platforms. Raises ConfigError if no platform is on."""
    from bot.runtime.runtime import has_platform  # here, because help needs no pipeline

    urls = emulated_run.urls if emulated_run else {}
    configs = load_character_configs(files, emulated_run.layers if emulated_run else ())
    process_role = ProcessRole(role or configs[0].settings.load(CoreSettings).bot_role)
    configs = [replace(config.with_adapters(tuple(urls)), role=process_role) for config in configs]
    platforms = [
        replace(platform, off_reason=f"the role {process_role} has no part in it")
        if platform.is_on and platform.spec and not has_platform(process_role, platform.spec)
        else platform
        for platform in list_platforms(configs, only, urls)
    ]
    specs = [platform.spec for platform in platforms if platform.is_on and platform.spec]
    if not specs and process_role is not ProcessRole.WORKER:
        raise ConfigError("\n".join(["no platform is on:", *map(_platform_line, platforms)]))
    check_settings(configs, specs)
    return configs, platforms


@contextmanager
def _track_start(configs: Sequence[CharacterConfig], platforms: Sequence[Platform]) -> Iterator[StartHistory]:
    """Configure logging and output, and record the start in the history until the block ends."""
    specs = [platform.spec for platform in platforms if platform.is_on and platform.spec]
    core = configs[0].settings.load(CoreSettings)
    start_history = StartHistory(core.bot_data_dir, limit=core.max_crashed_starts)
    with log_as_configured(configs, specs), shutdown.never_wait_for_readers(), start_history.track_outcome():
        yield start_history


async def _run_until_stopped(
    configs: Sequence[CharacterConfig],
    platforms: Sequence[Platform],
    start_history: StartHistory,
    emulated_run: EmulatedRun | None = None,
    *,
    is_strict: bool,
    opens_page: bool,
) -> int:
    from bot.cli.operator import with_operator_tools  # here, because help needs no pipeline
    from bot.runtime.runtime import Runtime

    def on_stop() -> None:
        start_history.clear()
        shutdown.print_notice(STOPPING)

    held_back = [platform for platform in platforms if platform.is_on and platform.name != WEB]
    crash_loop = start_history.find_crash_loop() if held_back else None
    if crash_loop is not None:
        platforms = [
            replace(platform, off_reason=str(crash_loop)) if platform in held_back else platform
            for platform in platforms
        ]
    with shutdown.handle_stop_signals(on_stop) as stop_request, run_watchdog(stop_request):
        if crash_loop is None:
            start_history.record_start()
        specs = [platform.spec for platform in platforms if platform.is_on and platform.spec]
        agent_configs = [with_operator_tools(config) for config in configs]
        cleanup = (
            nullcontext() if emulated_run else shutdown.stop_remaining_tasks()
        )  # the emulators' tasks must keep running
        async with cleanup, Runtime(agent_configs, specs, is_strict=is_strict) as runtime:
            if emulated_run is not None:
                emulated_run.connect_pages(runtime.handles, runtime.adapters)
                for line in emulated_run.summary_lines(configs):
                    shutdown.print_line(translate_message(line))
            for config, agent_runtime in zip(configs, runtime.agents, strict=True):
                stores = [plugin.name for plugin in config.plugins if plugin.store is not None]
                storage = f"stored by: {stores[0]}" if stores else "stored in memory until the process ends"
                models = ", ".join(config.text_plugins)
                shutdown.print_line(translate_message(f"{config.name}  from {config.path}, model: {models}, {storage}"))
                for name, cause in agent_runtime.inactive.items():
                    shutdown.print_line(translate_message(f"  without the plugin {name}: {cause}"))
            await _print_unlimited_models(configs, runtime)
            _print_platforms(platforms, runtime)
            print_plugin_notices(configs)
            print_notes(configs)
            if opens_page:
                _open_page(runtime)
            connecting = _retry_after_crash_loop(held_back, runtime, crash_loop, start_history)
            await _run_connected(configs, runtime, connecting)
    return stop_request.exit_code


async def _run_connected(
    configs: Sequence[CharacterConfig], runtime: "Runtime", connecting: Coroutine[None, None, None]
) -> None:
    """Take up changes of the characters' files until cancelled; raise ConfigError if no account is accepted."""
    async with asyncio.TaskGroup() as tasks:
        reloading = tasks.create_task(reload_on_change(configs, runtime.handles), name="reload on change")
        await connecting
        shutdown.reduce_gc_frequency()
        if refusals := await _wait_for_refusals(runtime):
            reloading.cancel()
    if refusals:
        raise ConfigError("\n".join(["nothing is connected:", *refusals]))


async def _wait_for_refusals(runtime: "Runtime") -> list[str]:
    """Return why every account of the process is off, as soon as each is; empty once that can no longer happen.

    It can while no account was ever connected, unless there is a page on which people can talk to the character.
    """
    while not any(adapter.serves_clients for adapter in runtime.adapters):
        accounts = runtime.connections()
        if any(account.has_connected for account in accounts):
            break
        has_all = not runtime.inactive and all(adapter.connections for adapter in runtime.adapters)
        if accounts and has_all and all(account.snapshot.state is ConnectionState.OFF for account in accounts):
            return [f"  {account.platform}: {account.label}: {account.off_reason}" for account in accounts]
        await asyncio.sleep(REFUSAL_CHECK_SECONDS)
    return []


async def reload_on_change(
    configs: Sequence[CharacterConfig], handles: Sequence[AgentHandle], wake: shutdown.Changes = shutdown.wake_regularly
) -> None:
    """Reload each agent whenever its character's file changes; the agents log what came of it."""
    paths = {config.path: handle for config, handle in zip(configs, handles, strict=True)}
    async with aclosing(shutdown.watch_files(list(paths), wake)) as changed_files:
        async for path in changed_files:
            await run_isolated(paths[path].reload(), label=f"reloading {path}", timeout=None)


async def _retry_after_crash_loop(
    platforms: Sequence[Platform], runtime: "Runtime", crash_loop: CrashLoop | None, start_history: StartHistory
) -> None:
    """Connect the platforms that were held back by a crash loop, if there was one, once its time is over."""
    if crash_loop is None:
        return
    names = ", ".join(held_platform.name for held_platform in platforms)
    logger.error("%s: not connected: %s", names, crash_loop)
    await asyncio.sleep(max(0.0, crash_loop.retry_at - time.time()))
    start_history.record_start()
    for platform in platforms:
        if platform.spec is not None:
            await runtime.start_adapter(platform.spec)
    _print_platforms(platforms, runtime)


async def _print_unlimited_models(configs: Sequence[CharacterConfig], runtime: "Runtime") -> None:
    """Print on which models limits in dollars have no effect; a server that does not tell its model is passed over."""
    from bot.cli.model_checks import find_unlimited_models  # here, because help needs no pipeline

    for config, agent_runtime in zip(configs, runtime.agents, strict=True):
        with suppress(TimeoutError):
            async with asyncio.timeout(MODEL_SECONDS):
                for finding in await find_unlimited_models(agent_runtime.agent, config.settings):
                    shutdown.print_notice(f"{config.name}: {finding.message}: {finding.advice}")


def _print_platforms(platforms: Sequence[Platform], runtime: "Runtime") -> None:
    connected = {adapter.platform: adapter for adapter in runtime.adapters}
    for platform in platforms:
        shown_platform = replace(platform, off_reason=platform.off_reason or runtime.inactive.get(platform.name, ""))
        shutdown.print_line(translate_message(_platform_line(shown_platform, connected.get(platform.name))))


def _open_page(runtime: "Runtime") -> None:
    """Open the web page in a browser with windows, if there is one; say so if there is not."""
    url = next((adapter.url for adapter in runtime.adapters if adapter.platform == WEB and hasattr(adapter, "url")), "")

    def start_browser() -> None:
        with suppress(webbrowser.Error, OSError):
            if webbrowser.open(url):
                return
        shutdown.print_line(translate("--open: the browser did not start; open the address above yourself"))

    if not url:
        shutdown.print_line(translate("--open: the web page is off, nothing was opened"))
    elif not _has_browser():
        shutdown.print_line(translate("--open: no browser was found on this machine; open the address above yourself"))
    else:  # a thread of its own, because some browsers keep their caller waiting until they are closed
        threading.Thread(target=start_browser, name="browser", daemon=True).start()


def _has_browser() -> bool:
    """Return whether a browser can show a window; one that would take over the terminal does not count."""
    shows_windows = sys.platform in {"darwin", "win32", "cygwin"} or any(
        os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    )
    with suppress(webbrowser.Error):
        return shows_windows and webbrowser.get() is not None
    return False


def _platform_line(platform: Platform, adapter: Adapter | None = None) -> str:
    if not platform.is_on:
        return f"  {platform.name:<9} off  {platform.off_reason}"
    details = f"emulated: {platform.emulator_url}" if platform.emulator_url else getattr(adapter, "url", "")
    links = adapter.connections if adapter is not None else ()  # the log has the causes
    states = (link.snapshot.state for link in links if link.snapshot.state is not ConnectionState.CONNECTED)
    return f"  {platform.name:<9} on   {details or ', '.join(dict.fromkeys(states))}".rstrip()


@asynccontextmanager
async def run_emulators(specs: Sequence[AdapterSpec], files: Sequence[Path]) -> AsyncIterator[EmulatedRun]:
    """Run emulators for the characters of these files (default: the bundled one) during the block."""
    characters = [load_character(path).character for path in files or [default_character()]]
    names = [character.name for character in characters]
    for name, count in Counter(names).items():
        for number in range(1, count + 1) if count > 1 else ():
            names[names.index(name)] = f"{name} {number}"
    bypass_proxy()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="greenroom-", ignore_cleanup_errors=True))
        urls, pages = dict[str, str](), dict[str, EmulatedPage]()
        values = {name: {"BOT_DATA_DIR": folder} for name in names}
        for spec in specs:
            is_shared = _share_account(spec, characters)
            emulator = await stack.enter_async_context(find_emulator(spec)(names[:1] if is_shared else names))
            urls[spec.name] = emulator.url
            if (page := getattr(emulator, "page", None)) is not None:
                pages[spec.name] = page
            for name in names:
                values[name] |= emulator.settings[names[0] if is_shared else name]
        # The real accounts and databases are hidden.
        hidden = {*store_settings(), *(name for spec in specs for name in (*spec.needs, *_secret_names(spec)))}
        layers = [Layer("the emulated run", own, hidden_names=frozenset({*own, *hidden})) for own in values.values()]
        yield EmulatedRun(urls, tuple(layers), Path(folder), pages)


def _secret_names(spec: AdapterSpec) -> Iterator[str]:
    return (field_info.alias or name for name, field_info in secret_fields(spec.settings))


def _share_account(spec: AdapterSpec, characters: Sequence[Character]) -> bool:
    """Return whether the characters share an account of a platform, by the environment or the file of each."""
    if not spec.faces_setting:
        return False
    is_set = bool(load_settings().get(spec.faces_setting))
    return is_set or all(character.settings.get(spec.faces_setting) for character in characters)


def _follow_outcomes(handle: AgentHandle, pages: Mapping[str, EmulatedPage]) -> None:
    """Show the pages the outcome of each message that this character receives."""
    places: BoundedDict[UUID, tuple[str, str, str]] = BoundedDict(MAX_OPEN_MESSAGES)

    def note_place(event: MessageReceived) -> None:
        room, message = event.room, event.message
        if room.platform in pages:
            places[message.id] = (room.platform, room.external_id, message.external_id)

    def show_outcome(event: MessageClosed) -> None:
        receipt, name = event.receipt, handle.character.name
        if receipt.rule != OF_ANOTHER and (place := places.get(receipt.memory_id)) is not None:
            platform, room, message = place
            headline = describe_receipt(receipt, name)
            outcome = EmulatedOutcome.build(receipt, headline, room=room, message=message, agent=name)
            pages[platform].show_outcome(outcome)

    handle.subscribe(MessageReceived, note_place)
    handle.subscribe(MessageClosed, show_outcome)


def bypass_proxy(environment: MutableMapping[str, str] = os.environ) -> None:
    """Exclude the loopback address from every proxy."""
    existing_hosts = environment.get("no_proxy") or load_settings(environment=environment).get("NO_PROXY") or ""
    if existing_hosts != "*":
        environment["NO_PROXY"] = environment["no_proxy"] = f"{LOOPBACK},{existing_hosts}".strip(",")


@dataclass(frozen=True, slots=True)
class Version:
    """What the files contained at one time: the characters, the platforms that are on, the code beside them.

    `stamps` has all these files as they were then.
    """

    configs: tuple[CharacterConfig, ...]
    specs: tuple[AdapterSpec, ...]
    sources: tuple[PluginSource, ...]
    stamps: Mapping[Path, shutdown.Stamp]

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
    changes: shutdown.Changes
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
                shutdown.print_line(
                    f"the new version does not start: {error}\nthe version before it runs on", allowed="\n"
                )
                # Of the files as they are now only a further change counts.
                next_version, good = replace(good, stamps={**_read_stamps(good.stamps), **version.stamps}), None
            else:
                good = version
            version = next_version

    async def _run_version(self, version: Version, good: Version | None) -> Version:
        from bot.runtime.runtime import Runtime  # here, because help needs no pipeline

        configs = [self._agent_config(config) for config in version.configs]
        async with Runtime(configs, version.specs, is_strict=good is not None) as runtime:
            shutdown.print_line(f"running: {', '.join(config.name for config in version.configs)}")
            for adapter in runtime.adapters:
                shutdown.print_line(f"  {adapter.platform:<9} on   {getattr(adapter, 'url', '')}".rstrip())
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
                    shutdown.print_line(f"not reloaded: {error}\nthe version before this change runs on", allowed="\n")
        return await asyncio.Future()  # nothing tells of changes any more: run on

    def _agent_config(self, config: CharacterConfig) -> AgentConfig:
        from bot.cli.operator import with_operator_tools

        agent_config = with_operator_tools(config)
        if find_storage(config.plugins) is not None:
            return agent_config
        return replace(agent_config, store=self._stores.setdefault(str(config.path), bot.store.InMemoryStore()))


dev_app = new_command()


@dev_app.command(epilog=examples("bot dev -c mine.json", "bot dev -c mine.json --only web,telegram"))
def dev(
    character: CharacterFiles = None,
    only: Annotated[
        str, typer.Option(metavar="NAMES", help="Platforms, as in web,telegram.", show_default=True)
    ] = "web",
) -> int:
    """Run the character, and reload it and its code when they change."""
    if find_spec(shutdown.WATCHER) is None:
        raise PluginError(f"`bot dev` needs {shutdown.WATCHER}, which is not installed: {install_command('testing')}")
    session = DevSession(character or [default_character()], parse_platforms(only), shutdown.wake_on_changes)
    with shutdown.exit_on_signal():
        version = session.load()
        print_notes(version.configs)
        print_plugin_notices(version.configs)

        async def run_until_stopped() -> int:
            with shutdown.handle_stop_signals(lambda: shutdown.print_notice("stopping")) as stop_request:
                await session.run(version)
            return stop_request.exit_code

        with log_as_configured(version.configs), shutdown.never_wait_for_readers():
            return asyncio.run(run_until_stopped())


def _read_stamps(files: Iterable[Path]) -> dict[Path, shutdown.Stamp]:
    return {file: shutdown.read_stamp(file) for file in files}
