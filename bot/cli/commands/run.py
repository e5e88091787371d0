"""Start the character on every configured platform; without any token, on the web page only."""

import asyncio
import logging
import os
import sys
import threading
import time
import webbrowser
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot.adapter.adapter import Adapter
from bot.adapter.connection_status import ConnectionState
from bot.cli.characters import (
    WEB,
    CharacterConfig,
    Platform,
    list_platforms,
    load_character_configs,
    parse_emulators,
    parse_platforms,
    print_notes,
    print_plugin_notices,
    reported_warnings,
)
from bot.cli.emulation import EmulatedRun, run_emulators
from bot.cli.options import CharacterFiles, announce_start, examples, new_command
from bot.cli.process.shutdown import (
    Changes,
    UsageError,
    exit_on_signal,
    handle_stop_signals,
    never_wait_for_readers,
    print_notice,
    raise_file_limit,
    reduce_gc_frequency,
    stop_remaining_tasks,
    wake_regularly,
    watch_files,
)
from bot.cli.process.watchdog import CrashLoop, StartHistory
from bot.concurrency.tasks import run_isolated
from bot.errors import ConfigError
from bot.inbound.agent_handle import AdapterSpec, AgentHandle
from bot.logs import configure_logging
from bot.settings import CoreSettings
from bot.store.work_sharing import ProcessRole
from bot.text import strip_terminal_codes

if TYPE_CHECKING:
    from bot.runtime.runtime import Runtime

logger = logging.getLogger(__name__)
MODEL_SECONDS = 5.0  # for servers on this machine to tell the names of their models
REFUSAL_CHECK_SECONDS = 0.5
STOPPING = "stopping: no new messages are accepted, answers in progress are finished; a second signal exits at once"


app = new_command()


@app.command(
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
        bool, typer.Option("--strict", help="End if a plugin or a platform does not start; by default the others run.")
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
    with exit_on_signal():
        raise_file_limit()
        return _run(character or [], only, emulate, role, is_strict=strict, opens_page=open_page)


def _run(files: Sequence[Path], only_names: str, emulate: str, role: str, *, is_strict: bool, opens_page: bool) -> int:
    only = parse_platforms(only_names) if only_names else []
    if role and role not in set(ProcessRole):
        raise UsageError(f"--role: {role!r} is no role: all, gateway, worker or sender")
    if emulate:
        if role and role != ProcessRole.ALL:
            raise UsageError("--emulate runs one process only: remove --role")
        emulated = parse_emulators(emulate)
        _refuse_contradiction(only, [spec.name for spec in emulated])
        return asyncio.run(_run_emulated(files, only, emulated, is_strict=is_strict, opens_page=opens_page))
    configs, platforms = _load_configs(files, only, role=role)
    with _track_start(configs, platforms) as start_history:
        return asyncio.run(
            _run_until_stopped(configs, platforms, start_history, is_strict=is_strict, opens_page=opens_page)
        )


async def _run_emulated(
    files: Sequence[Path], only: Sequence[str], emulated: Sequence[AdapterSpec], *, is_strict: bool, opens_page: bool
) -> int:
    """Run on emulated platforms; the emulators are stopped after the adapters."""
    async with run_emulators(emulated, files) as emulated_run:
        configs, platforms = _load_configs(files, only, emulated_run)
        with _track_start(configs, platforms) as start_history:
            return await _run_until_stopped(
                configs, platforms, start_history, emulated_run, is_strict=is_strict, opens_page=opens_page
            )


def _refuse_contradiction(only: Sequence[str], emulated: Sequence[str]) -> None:
    real = [name for name in only if name not in (WEB, *emulated)]
    if real:
        raise UsageError(f"--only {','.join(real)}: --emulate connects to no real platform: add it there, or remove it")
    if only and (missing := [name for name in emulated if name not in only]):
        raise UsageError(f"--emulate {','.join(missing)}: add it to --only, too")


def _load_configs(
    files: Sequence[Path], only: Sequence[str], emulated_run: EmulatedRun | None = None, role: str = "all"
) -> tuple[list[CharacterConfig], list[Platform]]:
    """Return the characters and the platforms. Raises ConfigError if no platform is on."""
    configs = load_character_configs(files, emulated_run.layers if emulated_run else ())
    configs = [_with_role(config, role) for config in configs]
    configs = [emulated_run.enable_for(config) for config in configs] if emulated_run else configs
    platforms = list_platforms(configs, only, emulated_run.urls if emulated_run else {})
    process_role = configs[0].agent_config.role
    platforms = [_for_role(platform, process_role) for platform in platforms]
    specs = [platform.spec for platform in platforms if platform.is_on and platform.spec]
    if not specs and process_role is not ProcessRole.WORKER:
        raise ConfigError("\n".join(["no platform is on:", *map(_platform_line, platforms)]))
    for config in configs:
        for spec in specs:
            config.settings.load(spec.settings)
    return configs, platforms


def _with_role(config: CharacterConfig, role: str) -> CharacterConfig:
    """Return the configuration with the role of this process, by default that of BOT_ROLE."""
    chosen = ProcessRole(role or config.settings.load(CoreSettings).bot_role)
    return replace(config, role=chosen)


def _for_role(platform: Platform, role: ProcessRole) -> Platform:
    """Return the platform, off where processes with this role do not connect it."""
    from bot.runtime.runtime import has_platform

    if platform.spec is None or not platform.is_on or has_platform(role, platform.spec):
        return platform
    return replace(platform, off_reason=f"the role {role} has no part in it")


@contextmanager
def _track_start(configs: Sequence[CharacterConfig], platforms: Sequence[Platform]) -> Iterator[StartHistory]:
    """Configure logging and output, and record the start in the history until the block ends."""
    specs = [platform.spec for platform in platforms if platform.is_on and platform.spec]
    secrets = {
        secret
        for config in configs
        for secret in config.secrets | config.settings.secrets(*(spec.settings for spec in specs))
    }
    core = configs[0].settings.load(CoreSettings)
    reported = reported_warnings(configs)
    start_history = StartHistory(core.bot_data_dir, limit=core.max_crashed_starts)
    with (
        configure_logging(level=core.log_level, format=core.log_format, secrets=secrets, reported=reported),
        never_wait_for_readers(),
        start_history.track_outcome(),
    ):
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
    from bot.cli.operator.program import with_operator_tools  # here, because help needs no pipeline
    from bot.cli.process.watchdog import run_watchdog
    from bot.runtime.runtime import Runtime

    def on_stop() -> None:
        start_history.clear()
        print_notice(STOPPING)

    held_back = [platform for platform in platforms if platform.is_on and platform.name != WEB]
    crash_loop = start_history.find_crash_loop() if held_back else None
    if crash_loop is not None:
        platforms = [
            replace(platform, off_reason=str(crash_loop)) if platform in held_back else platform
            for platform in platforms
        ]
    with handle_stop_signals(on_stop) as stop_request, run_watchdog(stop_request):
        if crash_loop is None:
            start_history.record_start()
        specs = [platform.spec for platform in platforms if platform.is_on and platform.spec]
        agent_configs = [with_operator_tools(config) for config in configs]
        cleanup = nullcontext() if emulated_run else stop_remaining_tasks()  # the emulators' tasks must keep running
        async with cleanup, Runtime(agent_configs, specs, is_strict=is_strict) as runtime:
            if emulated_run is not None:
                emulated_run.connect_pages(runtime.handles, runtime.adapters)
                for line in emulated_run.summary_lines(configs):
                    _print_line(line)
            for config, agent_runtime in zip(configs, runtime.agents, strict=True):
                _print_line(_describe(config))
                for name, cause in agent_runtime.inactive.items():
                    _print_line(f"  without the plugin {name}: {cause}")
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
        reduce_gc_frequency()
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
    configs: Sequence[CharacterConfig], handles: Sequence[AgentHandle], wake: Changes = wake_regularly
) -> None:
    """Reload each agent whenever its character's file changes; the agents log what came of it."""
    paths = {config.path: handle for config, handle in zip(configs, handles, strict=True)}
    async with aclosing(watch_files(list(paths), wake)) as changed_files:
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


def _describe(config: CharacterConfig) -> str:
    stores = [plugin.name for plugin in config.plugins if plugin.store is not None]
    storage_text = f"stored by: {stores[0]}" if stores else "stored in memory until the process ends"
    return f"{config.name}  from {config.path}, model: {', '.join(config.text_plugins)}, {storage_text}"


async def _print_unlimited_models(configs: Sequence[CharacterConfig], runtime: "Runtime") -> None:
    """Print on which models limits in dollars have no effect; a server that does not tell its model is passed over."""
    from bot.cli.doctor.model_checks import find_unlimited_models  # here, because help needs no pipeline

    for config, agent_runtime in zip(configs, runtime.agents, strict=True):
        with suppress(TimeoutError):
            async with asyncio.timeout(MODEL_SECONDS):
                for finding in await find_unlimited_models(agent_runtime.agent, config.settings):
                    print_notice(strip_terminal_codes(f"{config.name}: {finding.message}: {finding.advice}"))


def _print_platforms(platforms: Sequence[Platform], runtime: "Runtime") -> None:
    connected = {adapter.platform: adapter for adapter in runtime.adapters}
    for platform in platforms:
        shown_platform = replace(platform, off_reason=platform.off_reason or runtime.inactive.get(platform.name, ""))
        _print_line(_platform_line(shown_platform, connected.get(platform.name)))


def _open_page(runtime: "Runtime") -> None:
    """Open the web page in a browser with windows, if there is one; say so if there is not."""
    url = next((adapter.url for adapter in runtime.adapters if adapter.platform == WEB and hasattr(adapter, "url")), "")
    if not url:
        _print_line("--open: the web page is off, nothing was opened")
    elif not _has_browser():
        _print_line("--open: no browser was found on this machine; open the address above yourself")
    else:  # a thread of its own, because some browsers keep their caller waiting until they are closed
        threading.Thread(target=_start_browser, args=(url,), name="browser", daemon=True).start()


def _has_browser() -> bool:
    """Return whether a browser can show a window; one that would take over the terminal does not count."""
    shows_windows = sys.platform in {"darwin", "win32", "cygwin"} or any(
        os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    )
    with suppress(webbrowser.Error):
        return shows_windows and webbrowser.get() is not None
    return False


def _start_browser(url: str) -> None:
    with suppress(webbrowser.Error, OSError):
        if webbrowser.open(url):
            return
    _print_line("--open: the browser did not start; open the address above yourself")


def _platform_line(platform: Platform, adapter: Adapter | None = None) -> str:
    if not platform.is_on:
        return f"  {platform.name:<9} off  {platform.off_reason}"
    details = f"emulated: {platform.emulator_url}" if platform.emulator_url else getattr(adapter, "url", "")
    return f"  {platform.name:<9} on   {details or _connection_summary(adapter)}".rstrip()


def _connection_summary(adapter: Adapter | None) -> str:
    """Return the states of accounts that are not connected yet; the log has the causes."""
    links = adapter.connections if adapter is not None else ()
    states = (link.snapshot.state for link in links if link.snapshot.state is not ConnectionState.CONNECTED)
    return ", ".join(dict.fromkeys(states))


def _print_line(line: str) -> None:
    with suppress(OSError):  # stdout may be closed; the bot runs on
        print(strip_terminal_codes(line), flush=True)
