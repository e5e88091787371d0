"""The report of a rehearsal: each message with what was and would be decided and said, and a summary; as HTML too."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from html import escape
from math import ceil
from typing import Any

from pydantic import BaseModel, computed_field

from bot.characters.voice import VoiceMeasures, measure_voice
from bot.domain.character import Character
from bot.rehearsal.exports import Recording

FORMAT = "greenroom-rehearsal-1"
HIGH_PERCENTILE = 0.95


class Decision(StrEnum):
    """What became of a message: UNDECIDED where only a model could decide, and none was asked."""

    ANSWERED = "answered"
    SILENT = "silent"
    UNDECIDED = "undecided"
    FAILED = "failed"


class RehearsedMessage(BaseModel):
    """A recorded message: what was decided and said `before`, and what a rehearsal decided and said `after`.

    `before` is None where it is unknown. `seconds` were measured, `cost` is in US dollars, None without any price.
    """

    id: str
    at: datetime
    author: str
    is_bot: bool
    text: str
    attachments: list[str]
    before: Decision | None
    before_rule: str
    before_reason: str
    before_replies: list[str]
    after: Decision
    rule: str
    reason: str
    replies: list[str]
    notes: list[str]
    cost: float | None
    unpriced_calls: int
    calls: int
    seconds: float

    @computed_field  # type: ignore[prop-decorator]  # pydantic's documented use with a property
    @property
    def flip(self) -> str:
        """`speaks` where silence becomes an answer, `silent` where an answer becomes silence; else blank."""
        if self.before is Decision.SILENT and self.after is Decision.ANSWERED:
            return "speaks"
        return "silent" if self.before is Decision.ANSWERED and self.after is Decision.SILENT else ""


class RehearsalReport(BaseModel):
    """The result of a rehearsal. `stopped` says why it ended early; `omitted` counts what the recording lacks.

    `cost` is in US dollars, `typical_seconds` and `slow_seconds` are the median and the 95th percentile of answers.
    """

    format: str = FORMAT
    character: str
    platform: str
    room: str
    has_model: bool
    stopped: str
    messages: list[RehearsedMessage]
    omitted: dict[str, int]
    answered: int
    silent: int
    undecided: int
    failed: int
    begins_to_speak: int
    falls_silent: int
    cost: float
    unpriced_calls: int
    typical_seconds: float | None
    slow_seconds: float | None
    rules: dict[str, int]
    voice_before: VoiceMeasures | None
    voice: VoiceMeasures | None

    def summary_lines(self) -> Iterator[str]:
        """Yield the summary as lines of text."""
        number = "1 message" if len(self.messages) == 1 else f"{len(self.messages):,} messages"
        yield f"{self.character} in {self.room} ({self.platform}): {number} rehearsed"
        counts = [f"{self.answered:,} answered", f"{self.silent:,} in silence"]
        counts += [f"{self.undecided:,} for the model to decide"] if self.undecided else []
        counts += [f"{self.failed:,} failed"] if self.failed else []
        yield ", ".join(counts)
        if any(message.before is not None for message in self.messages):
            yield f"other than before: {self.begins_to_speak:,} answered now, {self.falls_silent:,} in silence now"
        if self.has_model:
            unpriced = f", and {self.unpriced_calls:,} calls without a price" if self.unpriced_calls else ""
            yield f"cost: ${self.cost:.4f}{unpriced}"
        else:
            yield "no model was asked: the answers are blank"
        if self.has_model and self.typical_seconds is not None:
            yield f"an answer took {self.typical_seconds:.2f} s, one in twenty more than {self.slow_seconds:.2f} s"
        yield from (f"  {rule}: {count:,}" for rule, count in self.rules.items())
        for name, voice in (("voice before", self.voice_before), ("voice", self.voice)):
            if voice is not None and voice.texts:
                yield f"{name}: {voice.describe()}"
                yield from (f"  broken {count}×: {rule}" for rule, count in voice.broken.items())
        yield from (f"left out: {count:,} {what}" for what, count in self.omitted.items())
        if self.stopped:
            yield f"stopped: {self.stopped}"


def build_report(
    character: Character, recording: Recording, messages: Sequence[RehearsedMessage], *, has_model: bool, stopped: str
) -> RehearsalReport:
    """Return the report on rehearsed messages of a recording, with the measures of the character's voice."""
    counts = Counter(message.after for message in messages)
    flips = Counter(message.flip for message in messages)
    seconds = sorted(message.seconds for message in messages if message.after is Decision.ANSWERED)
    before = [text for message in messages for text in message.before_replies]
    after = [text for message in messages for text in message.replies]
    return RehearsalReport(
        character=character.name,
        platform=recording.room.platform,
        room=recording.room.name or recording.room.external_id,
        has_model=has_model,
        stopped=stopped,
        messages=list(messages),
        omitted=dict(recording.omitted),
        answered=counts[Decision.ANSWERED],
        silent=counts[Decision.SILENT],
        undecided=counts[Decision.UNDECIDED],
        failed=counts[Decision.FAILED],
        begins_to_speak=flips["speaks"],
        falls_silent=flips["silent"],
        cost=sum(message.cost or 0.0 for message in messages),
        unpriced_calls=sum(message.unpriced_calls for message in messages),
        typical_seconds=_percentile(seconds, 0.5),
        slow_seconds=_percentile(seconds, HIGH_PERCENTILE),
        rules=dict(Counter(message.rule or "none" for message in messages).most_common()),
        voice_before=measure_voice(character, before) if before else None,
        voice=measure_voice(character, after) if has_model else None,
    )


def _percentile(values: Sequence[float], share: float) -> float | None:
    return values[max(0, ceil(share * len(values)) - 1)] if values else None


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body{{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color-scheme:light dark}}
table{{border-collapse:collapse;width:100%;table-layout:fixed}}th,td{{text-align:left;vertical-align:top;padding:.4rem}}
tr{{border-top:1px solid #8886}}td{{overflow-wrap:anywhere;white-space:pre-wrap}}small{{opacity:.75}}
.speaks td:last-child{{background:#2a82}}.silent-now td:last-child{{background:#c442}}label{{margin-right:1rem}}
body:has(#flips:checked) tr.same,body:has(#answers:checked) tr.no-answer{{display:none}}
</style>
<h1>{title}</h1><pre>{summary}</pre>
<p><label><input type="checkbox" id="flips"> only changed decisions</label>
<label><input type="checkbox" id="answers"> only answered</label></p>
<table><thead><tr><th>message</th><th>before</th><th>rehearsed</th></tr></thead><tbody>
{rows}
</tbody></table></html>
"""


def render_html(report: RehearsalReport) -> str:
    """Return the report as a page that loads nothing and runs no script; what people wrote is escaped."""
    title = f"Rehearsal of {report.character} in {report.room}"
    rows = "\n".join(_row(message) for message in report.messages)
    summary = escape("\n".join(report.summary_lines()))
    return _PAGE.format(title=escape(title), summary=summary, rows=rows)


def _row(message: RehearsedMessage) -> str:
    classes = [{"speaks": "speaks", "silent": "silent-now"}.get(message.flip, "same")]
    classes += ["no-answer"] if message.after is not Decision.ANSWERED else []
    files = "".join(f"\n[{name}]" for name in message.attachments)
    heading = f"{message.author}{' (bot)' if message.is_bot else ''} · {message.at:%Y-%m-%d %H:%M}"
    said = _cell(message.text + files, [heading])
    before = _cell("\n".join(message.before_replies), [message.before or "unknown", message.before_rule])
    measured = [f"{message.seconds:.2f} s", f"${message.cost:.5f}"] if message.cost is not None else []
    after = [message.after, message.rule, message.reason, *measured, *message.notes]
    return f'<tr class="{" ".join(classes)}">{said}{before}{_cell(chr(10).join(message.replies), after)}</tr>'


def _cell(text: str, details: Iterable[Any]) -> str:
    small = " · ".join(escape(str(detail)) for detail in details if detail)
    return f"<td><small>{small}</small>\n{escape(text)}</td>"
