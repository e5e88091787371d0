"""Report how many people in distress were referred to help."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from bot.cli.characters import load_character_config
from bot.cli.options import AsJson, CharacterFile, examples, new_group, print_result
from bot.cli.running_bot import read_store
from bot.operate.care import REPORT_DAYS, build_care_report

app = new_group("Report how many people in distress were referred to help.")


@app.callback()
def care() -> None:
    """Report how many people in distress were referred to help."""


@app.command(epilog=examples("bot care report", "bot care report --since 2026-11-01 --json"))
def report(
    since: Annotated[
        datetime | None,
        typer.Option(
            metavar="DAY",
            formats=["%Y-%m-%d"],
            help=f"The first day, in UTC (default: {REPORT_DAYS} days before today).",
        ),
    ] = None,
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Report the referrals since a day, by day and category; no texts and no people."""
    config = load_character_config(character)
    today = config.agent_config.clock().astimezone(UTC).date()
    first = since.date() if since is not None else today - timedelta(days=REPORT_DAYS)
    counts = read_store(config, lambda store: store.ledger.care_counts(first))
    made = build_care_report(counts, first, today)
    rows = [(str(item.day), item.category.value, str(item.count)) for item in made.days]
    lines = [
        f"referrals since {first}: {made.total}",
        *(f"  {day}  {category:<16} {count}" for day, category, count in rows),
    ]
    return print_result(
        made.model_dump(mode="json"), lines, as_json=as_json, header=("day", "category", "referrals"), rows=rows
    )
