"""Measure how a character's stored replies keep its voice, day by day."""

from datetime import UTC, date, datetime, timedelta
from typing import Annotated

import typer

from bot.characters.voice import VoiceMeasures, measure_days, measure_voice
from bot.cli.characters import load_character_config
from bot.cli.commands.why import find_rooms
from bot.cli.options import AsJson, CharacterFile, examples, new_command, print_result
from bot.cli.running_bot import read_store
from bot.domain.environment import Room
from bot.operate.conversations import ConversationReader
from bot.rehearsal.stored import read_replies
from bot.store.protocols import Store

DEFAULT_DAYS = 14
MAX_DAYS = 92
HEADER = ("day", "replies", "style rules kept", "distance", "repetition")

app = new_command()


@app.command(epilog=examples("bot voice", "bot voice --room general --days 30", "bot voice --json"))
def voice(
    room: Annotated[str, typer.Option(metavar="R", help="Only this room, by id or name.")] = "",
    days: Annotated[
        int, typer.Option(metavar="N", min=1, max=MAX_DAYS, help="The last N days (UTC), today included.")
    ] = DEFAULT_DAYS,
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Measure how a character's stored replies keep its voice, day by day, without a model."""
    config = load_character_config(character)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - timedelta(days=days - 1)

    async def read(store: Store) -> list[tuple[date, str]]:
        conversations = ConversationReader(store)
        rooms: list[Room] = await find_rooms(conversations, room) if room else await conversations.rooms()
        return await read_replies(store, rooms, config.agent_config.agent_id, since)

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
    rows = [_row(str(item.day), item) for item in by_day]
    rows += [_row("all", total)] if rows else []
    body = {
        "total": total.model_dump(mode="json"),
        "days": [item.model_dump(mode="json") for item in by_day],
        "drift": drift.model_dump(mode="json") if drift else None,
    }
    return print_result(body, lines, as_json=as_json, header=HEADER, rows=rows)


def _row(name: str, item: VoiceMeasures) -> tuple[str, ...]:
    kept = "-" if item.kept is None else f"{item.kept:.0%}"
    distance = "-" if item.distance is None else f"{item.distance:.2f}"
    repetition = "-" if item.repetition is None else f"{item.repetition:.0%}"
    return name, str(item.texts), kept, distance, repetition
