"""`bot rehearse`, `bot voice`: what a changed character would have answered, and how replies keep its voice."""

import asyncio
import re
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from bot.characters.voice import VoiceMeasures, measure_days, measure_voice
from bot.cli import options
from bot.cli.characters import CharacterConfig, load_character_config, print_notes
from bot.cli.process.shutdown import UsageError, explain_os_error, print_notice
from bot.cli.running_bot import choose_room, find_rooms, read_store, store_costs
from bot.cli.variables import MAX_MISSPELT_SHARE, find_settings_groups, list_variables
from bot.costs.budget import Budget, BudgetSettings, CostLimits, build_limits
from bot.errors import ConfigError
from bot.logs import configure_logging
from bot.rehearsal.exports import Recording, read_export
from bot.rehearsal.report import Decision, RehearsalReport, RehearsedMessage, render_html
from bot.rehearsal.stored import read_replies, read_room
from bot.runtime.character_reload import AgentConfig
from bot.settings import Layer
from bot.store.protocols import Store
from bot.store.storage import report_progress
from bot.text import find_closest, shorten

DEFAULT_BUDGET = 0.5  # US dollars
DEFAULT_SINCE = "7d"
MAX_SHOWN, MAX_CELL = 200, 300
HEADER = ("time", "message", "before", "rehearsed")
PERIOD = re.compile(r"(\d{1,5})([mhdw])")
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

rehearse_app = options.new_command()


@rehearse_app.command(
    epilog=options.examples(
        "bot rehearse new.json --room general --since 7d",
        "bot rehearse new.json --from general.json --no-model",
        "bot rehearse new.json --from result.json --budget 2 --html report.html",
        "bot rehearse new.json --room general --set OPENAI_LARGE_MODEL=gpt-4.1",
    )
)
def rehearse(
    file: Annotated[Path, typer.Argument(metavar="NEW.json", help="The changed character's file.")],
    room: Annotated[
        str, typer.Option(metavar="R", help="A stored room, by id or name; with --from, a chat of the export.")
    ] = "",
    since: Annotated[
        str, typer.Option(metavar="TIME", help="From when: a period such as 12h, 7d or 2w, or a date.")
    ] = DEFAULT_SINCE,
    export: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="An export: DiscordChatExporter's JSON, or Telegram Desktop's result.json."
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option(metavar="DOLLARS", min=0.0, help="Stop once the model calls have cost so much.")
    ] = DEFAULT_BUDGET,
    no_model: Annotated[
        bool, typer.Option("--no-model", help="Show only which messages would be answered; nothing is paid for.")
    ] = False,
    values: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a setting; may be repeated.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as a page to this file.")] = None,
    scene: Annotated[
        str,
        typer.Option(
            metavar="MESSAGE", help="Write the rehearsed turn of this message, by its id in the report, as a scene."
        ),
    ] = "",
    character: options.CharacterFile = None,
) -> options.Output:
    """Show what a changed character would have answered in a room: it sends nothing, and stores only its cost."""
    from bot.cli import scene_reports as reporting
    from bot.rehearsal.rehearse import DaySpending  # here, because help needs no pipeline
    from bot.rehearsal.rehearse import rehearse as rehearse_recording
    from bot.scenes.conversion import FoundScene, SceneSource, read_source

    if not room and export is None:
        raise UsageError("name a room with --room, or an export with --from")
    if export is not None and character is not None:
        raise UsageError("-c names the character whose rooms are stored: an export needs none")
    config = load_character_config(file, _read_values(values or []))
    print_notes([config])
    owner = config if export is not None else load_character_config(character)  # whose limits and sums count
    agent, recording = _read_recording(config, owner, room, since, export)
    has_model = not no_model and config.has_model
    if not has_model and not no_model:
        print_notice("no model is set up: the report shows which messages would be answered, without the answers")
    scenes: list[FoundScene] = []
    spending = DaySpending(_read_day_budget(owner))

    async def make_scene(store: Store) -> None:
        source = SceneSource(agent, file, reporting.load_isolated, receipt=scene)
        scenes.append(await read_source(store, source))

    with (
        ExitStack() as at_end,
        configure_logging(level=config.settings.get("LOG_LEVEL") or "WARNING", secrets=config.secrets),
        options.progress("rehearsing"),
    ):
        at_end.callback(store_costs, owner, spending.entries, "this rehearsal")  # also of what is interrupted
        report = asyncio.run(
            rehearse_recording(
                agent,
                recording,
                has_model=has_model,
                budget=budget,
                spending=spending,
                on_finished=make_scene if scene else None,
                on_progress=lambda done, total: report_progress("rehearsing", done, total),
            )
        )
    for made in scenes:
        print_notice("\n".join(reporting.write_found(made, None, file, config.secrets)), allowed="\n")
    if html is not None:
        with explain_os_error(ConfigError, f"{html} cannot be written"):
            html.write_text(render_html(report), encoding="utf-8")
    return _show_report(report)


def parse_since(text: str) -> datetime:
    """Return the time that a period before now or a date names. Raises UsageError for anything else."""
    if match := PERIOD.fullmatch(text.strip().lower()):
        return datetime.now(UTC) - timedelta(**{UNITS[match[2]]: int(match[1])})
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"--since {text!r}: write a period such as 12h or 7d, or a date such as 2026-11-21") from None
    return at if at.tzinfo else at.astimezone()


def _read_values(values: list[str]) -> Layer | None:
    pairs = [value.partition("=") for value in values]
    if any(not name.strip() or not separator for name, separator, _ in pairs):
        raise UsageError("--set takes NAME=VALUE, as in --set OPENAI_LARGE_MODEL=gpt-4.1")
    known = {
        variable.name
        for group in find_settings_groups(imports_others=False)[0]
        for variable in list_variables(group.model)
    }
    for name in (name.strip() for name, _, _ in pairs):
        if name not in known and (closest := find_closest(name, known, max_share=MAX_MISSPELT_SHARE)) is not None:
            raise UsageError(f"--set {name}: this is not a known variable; did you mean {closest}?")
    return Layer("--set", {name.strip(): value for name, _, value in pairs}) if pairs else None


def _read_day_budget(config: CharacterConfig) -> Budget:
    """Return the limits of a character, with what was used of them today."""
    settings, today = config.settings.operator_only().load(BudgetSettings), datetime.now(UTC).date()

    async def load(store: Store) -> Budget:
        budget = Budget()
        await CostLimits(settings, store, budget).load()
        budget.reload(await store.costs.costs_between(today, today), await store.costs.erased_usage(today))
        return budget

    with suppress(ConfigError):  # it is in memory only, or there is no database yet
        return read_store(config, load)
    return Budget(build_limits(settings))


def _read_recording(
    config: CharacterConfig, current: CharacterConfig, room: str, since: str, export: Path | None
) -> tuple[AgentConfig, Recording]:
    """Return the agent to rehearse, and the messages of an export or of a room of the character that runs."""
    agent = config.agent_config
    if export is not None:
        recording = read_export(export, agent.agent_id, (config.name, agent.character.username), room)
        if not recording.messages:
            omitted = ", ".join(f"{count} {what}" for what, count in recording.omitted.items())
            raise ConfigError(f"{export} has no message that can be rehearsed: {omitted or 'it is empty'}")
        return agent, recording
    begin = parse_since(since)
    recording = read_store(current, lambda store: _read_room(store, current, room, begin))
    stored_id = current.agent_config.agent_id  # to which the messages refer
    return replace(agent, character=agent.character.model_copy(update={"id": stored_id})), recording


async def _read_room(store: Store, config: CharacterConfig, name: str, since: datetime) -> Recording:
    return await read_room(store, await choose_room(store, name), config.agent_id, since)


def _show_report(report: RehearsalReport) -> options.Output:
    shown = [item for item in report.messages if Decision.ANSWERED in (item.before, item.after)]
    rows = [_row(message) for message in shown[:MAX_SHOWN]]
    lines = [" | ".join(row) for row in rows] or ["no message would be answered"]
    rest = len(shown) - MAX_SHOWN
    more = [f"… and {rest:,} more: --json and --html have all messages"] if rest > 0 else []
    return options.Output(report, lines, HEADER, rows, after=[*more, *report.summary_lines()])


def _row(message: RehearsedMessage) -> tuple[str, str, str, str]:
    before = " / ".join(message.before_replies) or str(message.before or "unknown")
    after = " / ".join(message.replies) or str(message.after)
    marks = {"speaks": "now answered: ", "silent": "now in silence: "}
    return (
        f"{message.at:%m-%d %H:%M}",
        shorten(f"{message.author}: {message.text}", MAX_CELL),
        shorten(before, MAX_CELL),
        shorten(f"{marks.get(message.flip, '')}{after} [{message.rule}]", MAX_CELL),
    )


DEFAULT_DAYS = 14
MAX_DAYS = 92
VOICE_HEADER = ("day", "replies", "style rules kept", "distance", "repetition")

voice_app = options.new_command()


@voice_app.command(epilog=options.examples("bot voice", "bot voice --room general --days 30", "bot voice --json"))
def voice(
    config: CharacterConfig,
    room: Annotated[str, typer.Option(metavar="R", help="Only this room, by id or name.")] = "",
    days: Annotated[
        int, typer.Option(metavar="N", min=1, max=MAX_DAYS, help="The last N days (UTC), today included.")
    ] = DEFAULT_DAYS,
) -> options.Output:
    """Measure how a character's stored replies keep its voice, day by day, without a model."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - timedelta(days=days - 1)

    async def read(store: Store) -> list[tuple[date, str]]:
        rooms = await find_rooms(store, room) if room else await store.worlds.rooms()
        return await read_replies(store, rooms, config.agent_id, since)

    described = config.loaded.character
    replies = read_store(config, read)
    total = measure_voice(described, [text for _, text in replies])
    by_day, drift = measure_days(described, replies)
    summary = f"{config.name}: {total.describe()}" if replies else "no reply is stored for these days"
    lines = [
        summary,
        *(f"  {item.day}: {item.describe()}" for item in by_day),
        *(f"broken {count}×: {rule}" for rule, count in total.broken.items()),
        *([str(drift)] if drift else []),
    ]
    rows = [_voice_row(str(item.day), item) for item in by_day]
    rows += [_voice_row("all", total)] if rows else []
    return options.Output({"total": total, "days": by_day, "drift": drift}, lines, VOICE_HEADER, rows)


def _voice_row(name: str, item: VoiceMeasures) -> tuple[str, ...]:
    kept = "-" if item.kept is None else f"{item.kept:.0%}"
    distance = "-" if item.distance is None else f"{item.distance:.2f}"
    repetition = "-" if item.repetition is None else f"{item.repetition:.0%}"
    return name, str(item.texts), kept, distance, repetition
