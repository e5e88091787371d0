"""Start the character on every platform that is configured; without any token, on the web page alone."""

import argparse
import asyncio
from collections.abc import Sequence

from bot.cli.cast import Part, add_character_option, read_parts, tell_notes
from bot.cli.platforms import Platform, named_platforms, survey
from bot.cli.signals import aside, stoppable
from bot.errors import ConfigError
from bot.logs import harmless, logging_to_stderr
from bot.models.types import ModelType
from bot.platform.adapter import Adapter
from bot.runtime import Runtime
from bot.settings import CoreSettings

STOPPING = "stopping: nothing more is taken in, what is under way is finished; again ends at once"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_character_option(parser, several=True)
    parser.add_argument("--only", metavar="NAMES", default="", help="platforms, as in discord,telegram,x,web")


def run(args: argparse.Namespace) -> int:
    """Run until a signal comes."""
    only = named_platforms(args.only) if args.only else []
    parts = read_parts(args.character or [])
    tell_notes(parts)
    platforms = survey(parts, only)
    specs = [one.spec for one in platforms if one.is_on and one.spec]
    if not specs:
        raise ConfigError("\n".join(["nothing is on:", *map(_line, platforms)]))
    for part in parts:
        for spec in specs:
            part.settings.load(spec.settings)
    secrets = {
        secret
        for part in parts
        for secret in part.secrets | part.settings.secrets(*(spec.settings for spec in specs))
    }
    core = parts[0].settings.load(CoreSettings)
    with logging_to_stderr(level=core.log_level, format=core.log_format, secrets=secrets):
        return asyncio.run(_live(parts, platforms))


async def _live(parts: Sequence[Part], platforms: Sequence[Platform]) -> int:
    specs = [one.spec for one in platforms if one.is_on and one.spec]
    with stoppable(lambda: aside(STOPPING)) as stop:
        async with Runtime([part.blueprint for part in parts], specs) as runtime:
            connected = dict(zip((spec.name for spec in specs), runtime.adapters, strict=True))
            for part in parts:
                print(harmless(_introduced(part)))
            for platform in platforms:
                print(_line(platform, connected.get(platform.name)), flush=True)
            await asyncio.Event().wait()
    return stop.code


def _introduced(part: Part) -> str:
    models = [
        plugin.name
        for plugin in part.plugins
        if any(model.type is ModelType.TEXT_LARGE for model in plugin.models)
    ]
    stores = [plugin.name for plugin in part.plugins if plugin.store is not None]
    kept = f"kept by: {stores[0]}" if stores else "kept until the process ends (DATABASE_URL keeps it longer)"
    return f"{part.name}  from {part.path}, model: {', '.join(models)}, {kept}"


def _line(platform: Platform, adapter: Adapter | None = None) -> str:
    if not platform.is_on:
        return f"  {platform.name:<9} off  {platform.why_off}"
    return f"  {platform.name:<9} on   {getattr(adapter, 'url', '')}".rstrip()
