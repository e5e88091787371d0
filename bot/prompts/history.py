"""Conversation lines in a prompt that users cannot forge: render and parse."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo

from bot.text import sanitize_name, truncate_line, unescape_line

MAX_MESSAGE_LENGTH, MAX_OPEN_MESSAGE_LENGTH = 4_096, 32_768  # characters of a message in a prompt
_ID = re.compile(r"[0-9A-Fa-f]{1,32}")
_LINE = re.compile(
    r"\[(?P<time>[0-9]{2}:[0-9]{2})\] (?P<name>[^()\[\]]+)"
    r" \((?:id (?P<id>[0-9A-Fa-f]{1,32})|you)\):(?: (?P<text>.*))?"
)
_DAY = re.compile(r"--- [0-9]{4}-[0-9]{2}-[0-9]{2} ---")


@dataclass(frozen=True, slots=True)
class ReactionCount:
    """How many people reacted to a message with one emoji, and the names of some of them."""

    emoji: str
    count: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One message of a conversation; one that `is_open`, to be answered, may be longer.

    `reactions` are the numbers and names of those who reacted, by emoji.
    """

    sent_at: datetime
    name: str
    id: str
    text: str
    is_agent: bool = False
    is_open: bool = False
    reactions: tuple["ReactionCount", ...] = ()
    _rendered: tuple[tzinfo, str] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.sent_at.tzinfo is None:
            raise ValueError(f"the time of a line needs its zone, got {self.sent_at!r}; pass an aware datetime")
        if not self.is_agent and not _ID.fullmatch(self.id):
            raise ValueError(f"the id of a line is 1 to 32 hex digits, got {self.id!r}")


@dataclass(frozen=True, slots=True)
class ResultLine:
    """What an action returned, between the messages of a conversation; only the agent has seen it."""

    sent_at: datetime
    action: str
    text: str
    is_success: bool = True


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """One message parsed from a prompt; an agent's own line has no id."""

    time: str
    name: str
    id: str
    text: str
    is_agent: bool = False


def render_line(line: HistoryLine, zone: tzinfo = UTC) -> str:
    """Return a message as `[12:03] Alice (id 7f3a): Hello`, the agent's own as `[12:04] Ada (you): Hi`."""
    if line._rendered is not None and line._rendered[0] is zone:
        return line._rendered[1]  # callers keep lines: most were in the previous prompt too
    mark = "you" if line.is_agent else f"id {line.id}"
    text = truncate_line(line.text, MAX_OPEN_MESSAGE_LENGTH if line.is_open else MAX_MESSAGE_LENGTH)
    rendered = f"[{line.sent_at.astimezone(zone):%H:%M}] {sanitize_name(line.name)} ({mark}): {text}"
    if line.reactions:
        rendered += f"\n{_format_reactions(line.reactions)}"
    object.__setattr__(line, "_rendered", (zone, rendered))
    return rendered


def _format_reactions(reactions: Sequence[ReactionCount]) -> str:
    """Return reactions as a line that no message can contain, because messages have no line breaks."""
    parts = []
    for reaction in reactions:
        names = ", ".join(map(sanitize_name, reaction.names))
        parts.append(f"{sanitize_name(reaction.emoji)} {reaction.count}{f' ({names})' if names else ''}")
    return f"    reactions to it: {'; '.join(parts)}"


def render_result(line: ResultLine, zone: tzinfo = UTC) -> str:
    """Return the result of an action as `[12:04] (your action BOOK returned, shown only to you): table 4`."""
    verb = "returned" if line.is_success else "failed"
    text = truncate_line(line.text, MAX_MESSAGE_LENGTH) or "done"
    return f"[{line.sent_at.astimezone(zone):%H:%M}] (your action {line.action} {verb}, shown only to you): {text}"


def render_history(lines: Sequence[HistoryLine | ResultLine], zone: tzinfo = UTC) -> str:
    """Return messages and results one a line, with a line `--- 2026-11-21 ---` wherever the day changes.

    Times and days are those of the time zone. The reactions to a message are a line behind it.
    """
    rendered = []
    day = None
    for line in lines:
        if (today := line.sent_at.astimezone(zone).date()) != day:
            rendered.append(f"--- {today.isoformat()} ---")
            day = today
        rendered.append(render_line(line, zone) if isinstance(line, HistoryLine) else render_result(line, zone))
    return "\n".join(rendered)


def truncate_history(history: str, max_length: int) -> str:
    """Return a history without its oldest lines, in at most `max_length` characters.

    The newest line and a heading always remain. The first line is preceded by its day.
    """
    lines = history.splitlines()
    if len(history) <= max_length or not lines:
        return history
    start, remaining = len(lines) - 1, max_length - len(lines[-1])
    while start and (remaining := remaining - len(lines[start - 1]) - 1) >= 0:
        start -= 1
    dropped = lines[:start]
    heading = [line for line in dropped[:1] if not (_LINE.fullmatch(line) or _DAY.fullmatch(line))]
    day = [line for line in dropped if _DAY.fullmatch(line)][-1:] if not _DAY.fullmatch(lines[start]) else []
    return "\n".join([*heading, *day, *lines[start:]])


def parse_history(text: str) -> list[ParsedLine]:
    """Return every message line in a prompt, in order: the inverse of `render_history`."""
    matches = map(_LINE.fullmatch, text.splitlines())
    return [
        ParsedLine(
            time=line["time"],
            name=line["name"],
            id=line["id"] or "",
            text=unescape_line(line["text"] or ""),
            is_agent=line["id"] is None,
        )
        for line in matches
        if line
    ]
