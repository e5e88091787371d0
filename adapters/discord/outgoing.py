"""Reply → parts → request body."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from bot import Attachment, Choice, Content, MediaKind
from bot.platform import Delivery
from bot.text import grapheme_boundary_before, is_blank

MAX_TEXT_LENGTH = 2000
MAX_TEXT_LENGTH_WITH_FILES = 1700  # leaves room to say which files could not be sent
MAX_FILES = 10
MAX_PINGS = 3
MAX_BUTTONS = 5
CHOICE_PREFIX = "choice:"
_MENTION = re.compile(r"<@!?(\d{1,20})>")
NO_MENTIONS: dict[str, Any] = {"parse": [], "users": [], "roles": [], "replied_user": False}


@dataclass(frozen=True, slots=True)
class MessageBody:
    """What is sent: the JSON of a message, and files beside it."""

    json: dict[str, Any]
    files: tuple[Attachment, ...] = ()

    @property
    def form_fields(self) -> list[dict[str, Any]]:
        """Give the files as the fields of a form."""
        return [
            {
                "name": f"files[{index}]",
                "value": file.data,
                "filename": file_name_of(file),
                "content_type": file.content_type or "application/octet-stream",
            }
            for index, file in enumerate(self.files)
        ]


def split_reply(content: Content) -> list[Content]:
    """Cut a reply into parts of 2,000 characters; files and choices go with the last."""
    files = content.attachments[:MAX_FILES]
    links = [
        file.url for file in files if file.data is None and file.kind is not MediaKind.IMAGE and file.url
    ]
    pieces = split_text("\n".join([content.text, *links]), MAX_TEXT_LENGTH)
    sendable = tuple(
        file for file in files if file.data is not None or (file.kind is MediaKind.IMAGE and file.url)
    )
    contents = [Content(text=piece) for piece in pieces]
    if not contents or (sendable and len(contents[-1].text) > MAX_TEXT_LENGTH_WITH_FILES):
        contents.append(Content())
    contents[-1] = replace(contents[-1], attachments=sendable, choices=content.choices)
    return contents


def build_body(delivery: Delivery, user_ids: Collection[str]) -> MessageBody:
    """Make the body of a new message; of those it names only `people` are told, and three at most."""
    body = build_visible_body(delivery.content, user_ids)
    body.json["nonce"] = delivery.id
    body.json["enforce_nonce"] = True
    if delivery.reply_to.isdigit():
        body.json["message_reference"] = {"message_id": delivery.reply_to, "fail_if_not_exists": False}
        body.json["allowed_mentions"]["replied_user"] = True
    return body


def build_visible_body(content: Content, user_ids: Collection[str] = ()) -> MessageBody:
    """Make the body of what a message shows, for a new one as for one that takes the place of another."""
    mentioned = dict.fromkeys(_MENTION.findall(content.text))
    notified = [item for item in mentioned if item in user_ids][:MAX_PINGS]
    files = tuple(item for item in content.attachments if item.data is not None)
    pictures = [item for item in content.attachments if item.data is None]
    json: dict[str, Any] = {"content": content.text, "allowed_mentions": {**NO_MENTIONS, "users": notified}}
    if pictures:
        json["embeds"] = [{"image": {"url": item.url}} for item in pictures]
    if content.choices:
        json["components"] = build_components(content.choices)
    if files:
        json["attachments"] = [
            {"id": index, "filename": file_name_of(item), "description": item.description[:1024]}
            for index, item in enumerate(files)
        ]
    return MessageBody(json, files)


def without_extras(body: MessageBody) -> MessageBody:
    """Leave out what Discord may have taken exception to; the words stay, and say which files are missing."""
    fields = {name: value for name, value in body.json.items() if name not in ("embeds", "components")}
    fields.pop("attachments", None)
    missing_names = ", ".join(file_name_of(file) for file in body.files)
    note = f"(could not be sent: {missing_names})"[:MAX_TEXT_LENGTH] if missing_names else ""
    fields["content"] = "\n".join(line for line in (body.json["content"], note) if line)[:MAX_TEXT_LENGTH]
    return MessageBody(fields)


def has_extras(body: MessageBody) -> bool:
    """Tell whether there is anything that could be left out."""
    return bool(body.files or body.json.get("embeds") or body.json.get("components"))


def build_components(choices: Collection[Choice]) -> list[dict[str, Any]]:
    """Lay out choices: up to five as buttons in a row, more as a list to select from."""
    if len(choices) <= MAX_BUTTONS:
        buttons = [
            {"type": 2, "style": 2, "label": choice.label[:80], "custom_id": CHOICE_PREFIX + choice.value}
            for choice in choices
        ]
        return [{"type": 1, "components": buttons}]
    options = [{"label": choice.label[:100], "value": choice.value} for choice in choices]
    menu = {"type": 3, "custom_id": CHOICE_PREFIX, "options": options[:25], "min_values": 1, "max_values": 1}
    return [{"type": 1, "components": [menu]}]


def file_name_of(attachment: Attachment) -> str:
    """Give the name under which a file is sent."""
    return (attachment.name or attachment.title or attachment.id or "file")[:200].replace("/", "_")


FENCE = "```"
FENCE_END = f"\n{FENCE}"
MAX_FENCE_LANGUAGE = 24  # a fence's language; what is longer is text
_FENCE = re.compile(rf"{FENCE}([\w+#.-]{{0,{MAX_FENCE_LANGUAGE}}}(?=\n))?")
_UNBREAKABLE = (
    re.compile(  # what is broken by a cut in its middle: fences, masked links, addresses, mentions, emoji
        rf"{FENCE}(?:[\w+#.-]*\n)?|\[[^\]\n]*\]\([^)\s]*\)|<?https?://[^\s>]+>?"
        r"|<(?:@[!&]?|#|a?:\w+:|t:|id:|/[^:>\n]+:)[\w:-]*>"
    )
)


def split_text(text: str, limit: int) -> list[str]:
    """Cut a text into pieces of at most `limit` characters; a code block goes on in the next piece."""
    return [piece for piece in _split_pieces(text, limit) if not is_blank(piece)]


def _split_pieces(text: str, limit: int) -> Iterator[str]:
    reopened, remaining = "", text
    while len(reopened) + len(remaining) > limit:
        available = limit - len(reopened) - len(FENCE_END)
        end, gap_length = _find_cut(remaining, available)
        piece = reopened + remaining[:end]
        remaining = remaining[end + gap_length :]
        reopened = _open_fence(piece)
        yield piece + FENCE_END if reopened else piece
    yield reopened + remaining


def _find_cut(text: str, available: int) -> tuple[int, int]:
    """Find where a piece of at most `room` characters ends, and how many characters the gap has."""
    spans = [
        match.span() for match in _UNBREAKABLE.finditer(text, 0, 2 * available) if len(match[0]) <= available
    ]
    for gap in ("\n\n", "\n", " "):
        position = text.rfind(gap, 1, available + len(gap))
        while position > 0 and (start := _enclosing_start(spans, position)):
            position = text.rfind(gap, 1, start)
        if position > (0 if gap == " " else available // 3):  # a short piece is worse than a cut line
            return position, len(gap)
    position = grapheme_boundary_before(text, available) or available
    return (_enclosing_start(spans, position) or position), 0


def _enclosing_start(spans: list[tuple[int, int]], position: int) -> int:
    """Give where the thing begins that a cut here would break; 0 for none, or one that begins the text."""
    return next((start for start, end in spans if start < position < end), 0)


def _open_fence(piece: str) -> str:
    """Give the line that opens again a code block which is open at the end of a piece; else nothing."""
    opening = ""
    for match in _FENCE.finditer(piece):
        opening = "" if opening else f"{FENCE}{match[1] or ''}\n"
    return opening
