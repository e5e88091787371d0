"""The Console's page of rehearsals: it opens a report, filters it, and shows what people wrote as text."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from bot.domain.character import Character
from bot.rehearsal.exports import read_export
from bot.rehearsal.report import Decision, RehearsedMessage, build_report
from tests.rehearsal.exports import BEGIN, discord_message, write_discord

pytestmark = pytest.mark.long
MARKUP = "<img src=x onerror=alert(1)>"


def rehearsed(text: str, before: Decision, after: Decision, rule: str, *replies: str) -> RehearsedMessage:
    return RehearsedMessage(
        id=text,
        at=BEGIN,
        author="Ben",
        is_bot=False,
        text=text,
        attachments=[],
        before=before,
        before_rule=rule,
        before_reason="",
        before_replies=[],
        after=after,
        rule=rule,
        reason="",
        replies=list(replies),
        notes=[],
        cost=0.001,
        unpriced_calls=0,
        calls=1,
        seconds=0.5,
    )


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Write a report with one message that is answered now, one that is in silence now, and one without a change."""
    messages = [
        rehearsed(f"Ada? {MARKUP}", Decision.SILENT, Decision.ANSWERED, "name called", "New words."),
        rehearsed("the kettle boils", Decision.ANSWERED, Decision.SILENT, "not addressed"),
        rehearsed("lunch is ready", Decision.SILENT, Decision.SILENT, "not addressed"),
    ]
    source = write_discord(tmp_path / "general.json", [discord_message(1, "Ben", "hi")])
    recording = read_export(source, UUID(int=7), ())
    made = build_report(Character(name="Ada"), recording, messages, has_model=True, stopped="")
    path = tmp_path / "report.json"
    path.write_text(made.model_dump_json(), encoding="utf-8")
    return path


async def test_a_report_is_opened_from_the_character_and_filtered(visitor: Any, report: Path) -> None:
    tab = await visitor.enter("console/character")
    page = tab.page
    await page.get_by_role("link", name="Rehearsal").click()
    await page.get_by_label("Report").set_input_files(str(report))
    await page.get_by_text("Ada in general (discord)").wait_for()
    await page.get_by_text(MARKUP).wait_for()
    await page.get_by_role("button", name="Changed").click()
    await page.get_by_text("lunch is ready").wait_for(state="detached")
    await page.get_by_role("button", name="Answered").click()
    await page.get_by_text("the kettle boils").wait_for(state="detached")
    await page.get_by_text("New words.").wait_for()
    await page.get_by_role("button", name="Answered").click()
    await page.get_by_label("Rule").select_option("not addressed")
    await page.get_by_text("New words.").wait_for(state="detached")
    await page.get_by_text("the kettle boils").wait_for()


async def test_a_file_that_is_no_report_is_refused(visitor: Any, tmp_path: Path) -> None:
    tab = await visitor.enter("console/rehearsal")
    (tmp_path / "notes.json").write_text("{}", encoding="utf-8")
    await tab.page.get_by_label("Report").set_input_files(str(tmp_path / "notes.json"))
    await tab.page.get_by_text("notes.json is no report of bot rehearse --json.").wait_for()
