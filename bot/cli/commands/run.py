"""Start the character on every platform that is configured; without any token, on the web page alone."""

import argparse
import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from bot.adapter.adapter import Adapter
from bot.adapter.connection_status import Standing
from bot.cli.characters import Part, add_character_option, read_parts, tell_notes
from bot.cli.emulation import Stage, staged
from bot.cli.platforms import PAGE, Platform, named_emulators, named_platforms, survey
from bot.cli.process.crash_loop import Boots, CrashLoop
from bot.cli.process.exit_codes import UsageError
from bot.cli.process.limits import allow_many_files, look_seldom
from bot.cli.process.shutdown import aside, ending_at_once, stoppable, swept
from bot.cli.process.watchdog import watching
from bot.errors import ConfigError
from bot.inbound.agent_handle import AdapterSpec
from bot.logs import harmless, logging_to_stderr
from bot.runtime.runtime import Runtime
from bot.settings import CoreSettings

logger = logging.getLogger(__name__)
STOPPING = "stopping: nothing more is taken in, what is under way is finished; again ends at once"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_character_option(parser, several=True)
    parser.add_argument("--only", metavar="NAMES", default="", help="platforms, as in discord,telegram,x,web")
    parser.add_argument(
        "--emulate",
        metavar="NAMES",
        default="",
        help="try the character out on platforms that are put up on this machine, as in discord,telegram,x: "
        "each opens a page on which to talk with it; no account is needed, nothing real is connected, and "
        "what is said is forgotten at the end",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="do not start at all where a plugin or a platform does not; otherwise the others run without it",
    )


def run(args: argparse.Namespace) -> int:
    """Run until a signal comes."""
    with ending_at_once():
        allow_many_files()
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    only = named_platforms(args.only) if args.only else []
    files = args.character or []
    if args.emulate:
        emulated = named_emulators(args.emulate)
        _refuse_contradiction(only, [spec.name for spec in emulated])
        return asyncio.run(_on_stage(files, only, emulated, is_strict=args.strict))
    parts, platforms = _looked_over(files, only)
    with _judged(parts, platforms) as boots:
        return asyncio.run(_live(parts, platforms, boots, is_strict=args.strict))


async def _on_stage(
    files: Sequence[Path], only: Sequence[str], emulated: Sequence[AdapterSpec], *, is_strict: bool
) -> int:
    """Run as long as the emulated platforms are up; they outlive the adapters."""
    async with staged(emulated, files) as stage:
        parts, platforms = _looked_over(files, only, stage)
        with _judged(parts, platforms) as boots:
            return await _live(parts, platforms, boots, stage, is_strict=is_strict)


def _refuse_contradiction(only: Sequence[str], emulated: Sequence[str]) -> None:
    real = [name for name in only if name not in (PAGE, *emulated)]
    if real:
        raise UsageError(
            f"--only {','.join(real)}: beside --emulate nothing real is connected: name it there too, or not"
        )
    if only and (missing := [name for name in emulated if name not in only]):
        raise UsageError(f"--emulate {','.join(missing)}: --only leaves it out: name it there too")


def _looked_over(
    files: Sequence[Path], only: Sequence[str], stage: Stage | None = None
) -> tuple[list[Part], list[Platform]]:
    """Read the characters and see what is on; raises ConfigError where nothing is."""
    parts = read_parts(files, stage.layers if stage else ())
    tell_notes(parts)
    parts = [stage.invited(part) for part in parts] if stage else parts
    platforms = survey(parts, only, stage.pages if stage else {})
    specs = [one.spec for one in platforms if one.is_on and one.spec]
    if not specs:
        raise ConfigError("\n".join(["nothing is on:", *map(_line, platforms)]))
    for part in parts:
        for spec in specs:
            part.settings.load(spec.settings)
    return parts, platforms


@contextmanager
def _judged(parts: Sequence[Part], platforms: Sequence[Platform]) -> Iterator[Boots]:
    """Log, and judge how the start ends."""
    specs = [one.spec for one in platforms if one.is_on and one.spec]
    secrets = {
        secret
        for part in parts
        for secret in part.secrets | part.settings.secrets(*(spec.settings for spec in specs))
    }
    core = parts[0].settings.load(CoreSettings)
    boots = Boots(core.bot_data_dir, limit=core.crash_loop_boots)
    with (
        logging_to_stderr(level=core.log_level, format=core.log_format, secrets=secrets),
        boots.judged(),
    ):
        yield boots


async def _live(
    parts: Sequence[Part],
    platforms: Sequence[Platform],
    boots: Boots,
    stage: Stage | None = None,
    *,
    is_strict: bool,
) -> int:
    def notice() -> None:
        boots.strike_out()
        aside(STOPPING)

    kept_off = [one for one in platforms if one.is_on and one.name != PAGE]
    loop = boots.loop() if kept_off else None
    if loop is not None:
        platforms = [replace(one, why_off=str(loop)) if one in kept_off else one for one in platforms]
    with stoppable(notice) as stop, watching(stop):
        if loop is None:
            boots.begin()
        specs = [one.spec for one in platforms if one.is_on and one.spec]
        plans = [part.blueprint for part in parts]
        tidy = nullcontext() if stage else swept()  # what is emulated is there until the very end
        async with tidy, Runtime(plans, specs, is_strict=is_strict) as runtime:
            for line in stage.told(parts) if stage else ():
                _tell(line)
            for part, resident in zip(parts, runtime.residents, strict=True):
                _tell(_introduced(part))
                for name, cause in resident.off.items():
                    _tell(f"  without the plugin {name}: {cause}")
            _tell_platforms(platforms, runtime)
            if loop is not None:
                await _try_again(kept_off, runtime, loop, boots)
            look_seldom()
            await asyncio.Event().wait()
    return stop.code


async def _try_again(platforms: Sequence[Platform], runtime: Runtime, loop: CrashLoop, boots: Boots) -> None:
    """Connect what a crash loop has kept off, once its time is over."""
    names = ", ".join(one.name for one in platforms)
    logger.error("%s: not connected: %s", names, loop)
    await asyncio.sleep(max(0.0, loop.until - time.time()))
    boots.begin()
    for platform in platforms:
        if platform.spec is not None:
            await runtime.open(platform.spec)
    _tell_platforms(platforms, runtime)


def _introduced(part: Part) -> str:
    stores = [plugin.name for plugin in part.plugins if plugin.store is not None]
    kept = f"kept by: {stores[0]}" if stores else "kept until the process ends"
    return f"{part.name}  from {part.path}, model: {', '.join(part.writers)}, {kept}"


def _tell_platforms(platforms: Sequence[Platform], runtime: Runtime) -> None:
    connected = {adapter.platform: adapter for adapter in runtime.adapters}
    for platform in platforms:
        told = replace(platform, why_off=platform.why_off or runtime.off.get(platform.name, ""))
        _tell(_line(told, connected.get(platform.name)))


def _line(platform: Platform, adapter: Adapter | None = None) -> str:
    if not platform.is_on:
        return f"  {platform.name:<9} off  {platform.why_off}"
    where = f"emulated: {platform.page}" if platform.page else getattr(adapter, "url", "")
    return f"  {platform.name:<9} on   {where or _standing(adapter)}".rstrip()


def _standing(adapter: Adapter | None) -> str:
    """Say how accounts stand that are not connected yet; the log has the rest."""
    links = adapter.links if adapter is not None else ()
    others = (link.state.standing for link in links if link.state.standing is not Standing.CONNECTED)
    return ", ".join(dict.fromkeys(others))


def _tell(line: str) -> None:
    with suppress(OSError):  # nobody reads it: the character is there for others than the operator
        print(harmless(line), flush=True)
