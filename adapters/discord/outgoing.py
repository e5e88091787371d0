"""Reply → parts → request body."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from bot import Attachment, Choice, Content, MediaKind
from bot.platform import Delivery
from bot.text import is_blank, last_break

LONGEST = 2000
LONGEST_BESIDE_FILES = 1700  # leaves room to say which files could not be sent
MOST_FILES = 10
MOST_PINGS = 3
MOST_BUTTONS = 5
CHOICE = "choice:"
_MENTION = re.compile(r"<@!?(\d{1,20})>")
SILENT: dict[str, Any] = {"parse": [], "users": [], "roles": [], "replied_user": False}


@dataclass(frozen=True, slots=True)
class Body:
    """What is sent: the JSON of a message, and files beside it."""

    json: dict[str, Any]
    files: tuple[Attachment, ...] = ()

    @property
    def form(self) -> list[dict[str, Any]]:
        """Give the files as the fields of a form."""
        return [
            {
                "name": f"files[{number}]",
                "value": one.data,
                "filename": file_name(one),
                "content_type": one.content_type or "application/octet-stream",
            }
            for number, one in enumerate(self.files)
        ]


def parts(content: Content) -> list[Content]:
    """Cut a reply into parts of 2,000 characters; files and choices go with the last."""
    files = content.attachments[:MOST_FILES]
    links = [one.url for one in files if one.data is None and one.kind is not MediaKind.IMAGE and one.url]
    pieces = cut("\n".join([content.text, *links]), LONGEST)
    kept = tuple(one for one in files if one.data is not None or (one.kind is MediaKind.IMAGE and one.url))
    made = [Content(text=piece) for piece in pieces]
    if not made or (kept and len(made[-1].text) > LONGEST_BESIDE_FILES):
        made.append(Content())
    made[-1] = replace(made[-1], attachments=kept, choices=content.choices)
    return made


def body_of(delivery: Delivery, people: Collection[str]) -> Body:
    """Make the body of a new message; of those it names only `people` are told, and three at most."""
    body = shown(delivery.content, people)
    body.json["nonce"] = delivery.id
    body.json["enforce_nonce"] = True
    if delivery.reply_to.isdigit():
        body.json["message_reference"] = {"message_id": delivery.reply_to, "fail_if_not_exists": False}
        body.json["allowed_mentions"]["replied_user"] = True
    return body


def shown(content: Content, people: Collection[str] = ()) -> Body:
    """Make the body of what a message shows, for a new one as for one that takes the place of another."""
    named = dict.fromkeys(_MENTION.findall(content.text))
    users = [one for one in named if one in people][:MOST_PINGS]
    files = tuple(one for one in content.attachments if one.data is not None)
    pictures = [one for one in content.attachments if one.data is None]
    json: dict[str, Any] = {"content": content.text, "allowed_mentions": {**SILENT, "users": users}}
    if pictures:
        json["embeds"] = [{"image": {"url": one.url}} for one in pictures]
    if content.choices:
        json["components"] = components(content.choices)
    if files:
        json["attachments"] = [
            {"id": number, "filename": file_name(one), "description": one.description[:1024]}
            for number, one in enumerate(files)
        ]
    return Body(json, files)


def without_extras(body: Body) -> Body:
    """Leave out what Discord may have taken exception to; the words stay, and say which files are missing."""
    left = {name: value for name, value in body.json.items() if name not in ("embeds", "components")}
    left.pop("attachments", None)
    missing = ", ".join(file_name(one) for one in body.files)
    note = f"(could not be sent: {missing})"[:LONGEST] if missing else ""
    left["content"] = "\n".join(line for line in (body.json["content"], note) if line)[:LONGEST]
    return Body(left)


def has_extras(body: Body) -> bool:
    """Tell whether there is anything that could be left out."""
    return bool(body.files or body.json.get("embeds") or body.json.get("components"))


def components(choices: Collection[Choice]) -> list[dict[str, Any]]:
    """Lay out choices: up to five as buttons in a row, more as a list to select from."""
    if len(choices) <= MOST_BUTTONS:
        buttons = [
            {"type": 2, "style": 2, "label": one.label[:80], "custom_id": CHOICE + one.value}
            for one in choices
        ]
        return [{"type": 1, "components": buttons}]
    options = [{"label": one.label[:100], "value": one.value} for one in choices]
    select = {"type": 3, "custom_id": CHOICE, "options": options[:25], "min_values": 1, "max_values": 1}
    return [{"type": 1, "components": [select]}]


def file_name(attachment: Attachment) -> str:
    """Give the name under which a file is sent."""
    return (attachment.name or attachment.title or attachment.id or "file")[:200].replace("/", "_")


FENCE = "```"
CLOSING = f"\n{FENCE}"
LONGEST_OPENING = 24  # a fence's language; what is longer is text
_FENCE = re.compile(rf"{FENCE}([\w+#.-]{{0,{LONGEST_OPENING}}}(?=\n))?")
_WHOLE = (
    re.compile(  # what is broken by a cut in its middle: fences, masked links, addresses, mentions, emoji
        rf"{FENCE}(?:[\w+#.-]*\n)?|\[[^\]\n]*\]\([^)\s]*\)|<?https?://[^\s>]+>?"
        r"|<(?:@[!&]?|#|a?:\w+:|t:|id:|/[^:>\n]+:)[\w:-]*>"
    )
)


def cut(text: str, limit: int) -> list[str]:
    """Cut a text into pieces of at most `limit` characters; a code block goes on in the next piece."""
    return [piece for piece in _pieces(text, limit) if not is_blank(piece)]


def _pieces(text: str, limit: int) -> Iterator[str]:
    opening, rest = "", text
    while len(opening) + len(rest) > limit:
        room = limit - len(opening) - len(CLOSING)
        end, skipped = _end(rest, room)
        piece = opening + rest[:end]
        rest = rest[end + skipped :]
        opening = _left_open(piece)
        yield piece + CLOSING if opening else piece
    yield opening + rest


def _end(text: str, room: int) -> tuple[int, int]:
    """Find where a piece of at most `room` characters ends, and how many characters the gap has."""
    spans = [found.span() for found in _WHOLE.finditer(text, 0, 2 * room) if len(found[0]) <= room]
    for gap in ("\n\n", "\n", " "):
        at = text.rfind(gap, 1, room + len(gap))
        while at > 0 and (whole := _around(spans, at)):
            at = text.rfind(gap, 1, whole)
        if at > (0 if gap == " " else room // 3):  # a short piece is worse than a cut line
            return at, len(gap)
    at = last_break(text, room) or room
    return (_around(spans, at) or at), 0


def _around(spans: list[tuple[int, int]], at: int) -> int:
    """Give where the thing begins that a cut here would break; 0 for none, or one that begins the text."""
    return next((start for start, end in spans if start < at < end), 0)


def _left_open(piece: str) -> str:
    """Give the line that opens again a code block which is open at the end of a piece; else nothing."""
    opening = ""
    for found in _FENCE.finditer(piece):
        opening = "" if opening else f"{FENCE}{found[1] or ''}\n"
    return opening
