"""Replies as message parts and request bodies. Pure functions."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot import Attachment, Choice, Content, MediaKind
from bot.platform import Delivery
from bot.text import grapheme_boundary_before, is_blank

MAX_TEXT_LENGTH = 2000
MAX_TEXT_LENGTH_WITH_FILES = 1700  # leaves room to list files that could not be sent
MAX_FILES = 10
EXTRAS = ("embeds", "components", "attachments")
MAX_PINGS = 3
MAX_BUTTONS = 5
CHOICE_PREFIX = "choice:"
_MENTION = re.compile(r"<@!?(\d{1,20})>")
NO_MENTIONS: dict[str, Any] = {"parse": [], "users": [], "roles": [], "replied_user": False}
FENCE = "```"
FENCE_END = f"\n{FENCE}"
MAX_FENCE_LANGUAGE = 24  # language of a fence; anything longer is text
SPOILER = "||"
_FENCE = re.compile(rf"{FENCE}([\w+#.-]{{0,{MAX_FENCE_LANGUAGE}}}(?=\n))?")
_FENCE_LINE = re.compile(r"([ \t]*)(`{3,}|~{3,})([^`\n]*)")
_CODE_OR_SPOILER = re.compile(rf"{FENCE}.*?(?:{FENCE}|\Z)|`[^`\n]+`|(\|\|.+?\|\|)", re.DOTALL)
_UNBREAKABLE = re.compile(  # must not be split: spoiler marks, fences, masked links, URLs, mentions, emoji
    rf"\|\||{FENCE}(?:[\w+#.-]*\n)?|\[[^\]\n]*\]\([^)\s]*\)|<?https?://[^\s>]+>?"
    r"|<(?:@[!&]?|#|a?:\w+:|t:|id:|/[^:>\n]+:)[\w:-]*>"
)


@dataclass(frozen=True, slots=True)
class MessageBody:
    """The JSON and the files of a message request; that of an edit names all extras, for Discord keeps the others."""

    json: dict[str, Any]
    files: tuple[Attachment, ...] = ()
    is_edit: bool = False

    @property
    def form_fields(self) -> list[dict[str, Any]]:
        """Return the files as fields of a multipart form."""
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
    """Split a reply into parts of at most 2,000 characters and ten files; files and choices go with the last parts."""
    files = content.attachments
    links = [file.url for file in files if file.data is None and file.kind is not MediaKind.IMAGE and file.url]
    pieces = split_text(with_discord_fences("\n".join([content.text, *links])), MAX_TEXT_LENGTH)
    sendable = tuple(file for file in files if file.data is not None or (file.kind is MediaKind.IMAGE and file.url))
    contents = [Content(text=piece) for piece in pieces]
    if not contents or (sendable and len(contents[-1].text) > MAX_TEXT_LENGTH_WITH_FILES):
        contents.append(Content())
    first, *others = [sendable[start : start + MAX_FILES] for start in range(0, len(sendable), MAX_FILES)] or [()]
    contents[-1] = replace(contents[-1], attachments=first)
    contents += [Content(attachments=files) for files in others]
    contents[-1] = replace(contents[-1], choices=content.choices)
    return contents


def build_body(delivery: Delivery, user_ids: Collection[str]) -> MessageBody:
    """Build the body of a new message; mentions notify `user_ids` only, at most MAX_PINGS."""
    body = build_visible_body(delivery.content, user_ids)
    body.json["nonce"] = delivery.id
    body.json["enforce_nonce"] = True
    if delivery.reply_to.isdigit():
        body.json["message_reference"] = {"message_id": delivery.reply_to, "fail_if_not_exists": False}
        body.json["allowed_mentions"]["replied_user"] = True
    return body


def build_edit_body(content: Content, user_ids: Collection[str]) -> MessageBody:
    """Build the body of an edit; what the content does not have is removed from the message."""
    body = build_visible_body(content, user_ids)
    return MessageBody({**_no_extras(), **body.json}, body.files, is_edit=True)


def build_visible_body(content: Content, user_ids: Collection[str] = ()) -> MessageBody:
    """Build what a new message and an edit have in common."""
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


def without_reference(body: MessageBody) -> MessageBody:
    """Return the body as no reply."""
    return replace(body, json={name: value for name, value in body.json.items() if name != "message_reference"})


def without_files(body: MessageBody) -> MessageBody:
    """Return the body with the names of its files in their place."""
    return replace(_with_line(body, _missing_note(body), "attachments"), files=())


def without_embeds(body: MessageBody) -> MessageBody:
    """Return the body with the links to its pictures in their place."""
    links = [embed["image"]["url"] for embed in body.json["embeds"]]
    return _with_line(body, "\n".join(links), "embeds")


def in_channel_of(thread_id: str, body: MessageBody) -> MessageBody:
    """Return the body as no reply, for the channel of a thread, with a link to the thread."""
    body, link = without_reference(body), _thread_link(thread_id)
    content = body.json["content"]
    return replace(body, json={**body.json, "content": link + content}) if _fits(link + content) else body


def is_text_of(text: str, delivery: Delivery) -> bool:
    """Return whether a message has the text of a part, also with what `in_channel_of` and its like add."""
    shown = text.removeprefix(_thread_link(delivery.target))
    return shown in delivery.possible_texts or any(
        sent and shown.startswith(f"{sent}\n") for sent in delivery.possible_texts
    )


def _thread_link(thread_id: str) -> str:
    return f"<#{thread_id}>\n"


def _fits(text: str) -> bool:
    return len(text) <= MAX_TEXT_LENGTH


def _with_line(body: MessageBody, line: str, replaced: str) -> MessageBody:
    """Return the body with a line, if it has room, in the place of a field."""
    fields = {name: value for name, value in body.json.items() if name != replaced}
    fields |= {replaced: []} if body.is_edit else {}
    text = "\n".join(filter(None, [body.json["content"], line]))
    return replace(body, json={**fields, "content": text if _fits(text) else body.json["content"]})


def _missing_note(body: MessageBody) -> str:
    missing_names = ", ".join(file_name_of(file) for file in body.files)
    return f"(could not be sent: {missing_names})"[:MAX_TEXT_LENGTH] if missing_names else ""


def without_extras(body: MessageBody) -> MessageBody:
    """Return the body without embeds, components and files; the text lists the missing files."""
    fields = {name: value for name, value in body.json.items() if name not in EXTRAS}
    fields |= _no_extras() if body.is_edit else {}
    fields["content"] = "\n".join(filter(None, [body.json["content"], _missing_note(body)]))[:MAX_TEXT_LENGTH]
    return MessageBody(fields, is_edit=body.is_edit)


def _no_extras() -> dict[str, Any]:
    return {name: [] for name in EXTRAS}


def has_extras(body: MessageBody) -> bool:
    """Return whether `without_extras` would remove anything."""
    return bool(body.files or body.json.get("embeds") or body.json.get("components"))


def build_components(choices: Collection[Choice]) -> list[dict[str, Any]]:
    """Return choices as components: up to five buttons in a row, more as a select menu."""
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
    """Return the name under which a file is sent."""
    return (attachment.name or attachment.title or attachment.id or "file")[:200].replace("/", "_")


def with_discord_fences(text: str) -> str:
    """Return the text with fences of three backticks, the only ones that Discord knows.

    A block between tildes or more backticks may contain such fences: their backticks are separated by an invisible
    space. Tildes that nothing closes are text.
    """
    lines = text.split("\n")
    fences = [_FENCE_LINE.fullmatch(line) for line in lines]
    last_tildes = max(
        (i for i, match in enumerate(fences) if match and match[2][0] == "~" and not match[3].strip()), default=-1
    )
    opening, fence = -1, ""
    for index, (line, match) in enumerate(zip(lines, fences, strict=True)):
        if not fence:
            if match and (match[2][0] == "`" or index < last_tildes):
                opening, fence = index, match[2]
        elif fence == FENCE:
            fence = "" if line.rstrip().endswith(FENCE) else fence  # models close fences at ends of lines
        elif match and match[2].startswith(fence) and not match[3].strip():
            _rewrite_fences(lines, fences, opening, index + 1)
            lines[index], fence = f"{match[1]}{FENCE}", ""
    if fence and fence != FENCE:
        _rewrite_fences(lines, fences, opening, len(lines))
    return "\n".join(lines)


def _rewrite_fences(lines: list[str], fences: Sequence[re.Match[str] | None], opening: int, end: int) -> None:
    """Write the first line of a code block with the fence of Discord, and the other lines without it."""
    match = fences[opening]
    assert match is not None, "a block begins with a fence"
    lines[opening] = f"{match[1]}{FENCE}{''.join(match[3].split()[:1])}"
    for index in range(opening + 1, end):
        lines[index] = re.sub("`(?=``)", "`\u200b", lines[index])


def split_text(text: str, limit: int) -> list[str]:
    """Split a text into pieces of at most `limit` characters; code blocks and spoilers continue in the next piece."""
    return [piece for piece in _split_pieces(text, limit) if not is_blank(piece)]


def _split_pieces(text: str, limit: int) -> Iterator[str]:
    spoilers = _find_spoilers(text)
    start, reopened = 0, ""
    while len(reopened) + len(text) - start > limit:
        available = limit - len(reopened) - len(FENCE_END) - (len(SPOILER) if spoilers else 0)
        length, gap_length = _find_cut(text[start:], available)
        end, resumed_at = start + length, start + length + gap_length
        first, last = next((span for span in spoilers if span[0] < end < span[1]), (0, 0))
        if last and text[first:end].strip() == SPOILER and first > start:  # nothing of it would be in this piece
            end = resumed_at = first
        elif last and text[resumed_at:last].strip() == SPOILER:  # nor in the next
            end = resumed_at = last
        spoiler = SPOILER if first < end < last else ""
        piece = reopened + text[start:end]
        fence = _open_fence(piece)
        yield piece + (FENCE_END if fence else "") + spoiler
        start, reopened = resumed_at, spoiler + fence
    yield reopened + text[start:]


def _find_spoilers(text: str) -> list[tuple[int, int]]:
    """Return where spoilers begin and end, with their marks; in code there are none."""
    return [match.span() for match in _CODE_OR_SPOILER.finditer(text) if match[1]]


def _find_cut(text: str, available: int) -> tuple[int, int]:
    """Return where a piece of at most `available` characters ends, and the length of the gap after it."""
    spans = [match.span() for match in _UNBREAKABLE.finditer(text, 0, 2 * available) if len(match[0]) <= available]
    for gap in ("\n\n", "\n", " "):
        position = text.rfind(gap, 1, available + len(gap))
        while position > 0 and (start := _enclosing_start(spans, position)):
            position = text.rfind(gap, 1, start)
        if position > (0 if gap == " " else available // 3):  # a short piece is worse than a split line
            return position, len(gap)
    position = grapheme_boundary_before(text, available) or available
    return (_enclosing_start(spans, position) or position), 0


def _enclosing_start(spans: list[tuple[int, int]], position: int) -> int:
    """Return the start of the unbreakable span around a position; 0 if there is none."""
    return next((start for start, end in spans if start < position < end), 0)


def _open_fence(piece: str) -> str:
    """Return the line that reopens a code block left open by a piece; empty if none is open."""
    opening = ""
    for match in _FENCE.finditer(piece):
        opening = "" if opening else f"{FENCE}{match[1] or ''}\n"
    return opening
