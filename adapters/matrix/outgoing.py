"""Splitting of replies into events, rich text as HTML beside the plain text, and mentions; pure."""

import json
import re
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from hashlib import sha256

from markdown_it import MarkdownIt

from adapters.matrix.client import Json
from adapters.matrix.rooms import RoomTarget
from bot import Attachment, Content, MediaKind
from bot.text import grapheme_boundary_before

MAX_TEXT_LENGTH = 6_000  # characters: with its HTML it stays below the 65,536 bytes of an event
MAX_EVENT_BYTES = 60_000
MAX_MENTIONS = 3
MAX_DEPTH = 40
BREAKPOINTS = ("\n\n", "\n", ". ", "! ", "? ", "。", " ")
PLAIN_HTML = re.compile(r"<p>([^<&]*)</p>\n?")
USER_ID = re.compile(r"(?<![\w/])@[\w.=+-]{1,200}:[\w.-]{1,200}\w(?::\d{1,5})?")
MESSAGE_TYPES = {MediaKind.IMAGE: "m.image", MediaKind.AUDIO: "m.audio", MediaKind.VIDEO: "m.video"}


@cache
def markdown_parser() -> MarkdownIt:
    """Return the parser: CommonMark with tables and strike-through; HTML is text, and no picture of others is shown."""
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": MAX_DEPTH})
    return parser.enable(["table", "strikethrough"]).disable("image")


def split_reply(content: Content) -> list[Content]:
    """Split a reply into texts of at most 6,000 characters, then its files; a single file carries a short text."""
    files = [item for item in content.attachments if item.data is not None]
    links = [item.url for item in content.attachments if item.data is None and item.url.startswith(("http:", "https:"))]
    text = "\n".join(filter(None, [content.text, *links]))
    if len(files) == 1 and len(text) <= MAX_TEXT_LENGTH:
        return [replace(content, text=text, attachments=tuple(files))]
    parts = [replace(content, text=piece, attachments=()) for piece in split_text(text)]
    parts += [replace(content, text="", attachments=(file,)) for file in files]
    return parts or [content]


def split_text(text: str) -> list[str]:
    """Split a text into pieces of at most 6,000 characters, after a paragraph, a line or a sentence if possible."""
    pieces, rest = [], text.strip("\n")
    while len(rest) > MAX_TEXT_LENGTH:
        positions = ((rest.rfind(mark, MAX_TEXT_LENGTH // 2, MAX_TEXT_LENGTH), mark) for mark in BREAKPOINTS)
        end = next((position + len(mark) for position, mark in positions if position > 0), 0)
        end = end or grapheme_boundary_before(rest, MAX_TEXT_LENGTH)
        pieces.append(rest[:end].rstrip())
        rest = rest[end:].lstrip("\n")
    return [piece for piece in (*pieces, rest.rstrip()) if piece]


def build_text(text: str, allowed_users: Collection[str]) -> Json:
    """Return the content of a text event; it notifies at most three of `allowed_users`, whose ids stand in the text."""
    mentioned = [user for user in dict.fromkeys(USER_ID.findall(text)) if user in allowed_users][:MAX_MENTIONS]
    # without `m.mentions`, clients notify everybody whose name is in the text
    content: Json = {"msgtype": "m.text", "body": text, "m.mentions": {"user_ids": mentioned} if mentioned else {}}
    html = markdown_parser().render(text)
    if PLAIN_HTML.fullmatch(html) is None:
        rich = {**content, "format": "org.matrix.custom.html", "formatted_body": html.strip()}
        if len(json.dumps(rich)) <= MAX_EVENT_BYTES:
            return rich
    return content


def build_file(file: Attachment, name: str, address: str, text: Json | None) -> Json:
    """Return the content of the event of an uploaded file, whose caption is the content of a text event."""
    content: Json = {
        **(text or {"body": name, "m.mentions": {}}),
        "msgtype": MESSAGE_TYPES.get(file.kind, "m.file"),
        "filename": name,
        "url": address,
        "info": {"mimetype": file.content_type or "application/octet-stream", "size": len(file.data or b"")},
    }
    if file.is_speech:
        content["org.matrix.msc3245.voice"] = {}  # clients show it as a voice message
    return content


def relate(content: Json, target: RoomTarget, reply_to: str) -> Json:
    """Return the content of a message in its thread, and as a reply if `reply_to` is the id of an event."""
    is_reply = reply_to.startswith("$")
    relation: Json = {"m.in_reply_to": {"event_id": reply_to}} if is_reply else {}
    if target.thread_id:
        # what does not show threads shows a reply to the message before
        fallback = {"is_falling_back": not is_reply, "m.in_reply_to": {"event_id": reply_to or target.thread_id}}
        relation = {"rel_type": "m.thread", "event_id": target.thread_id, **fallback}
    return {**content, "m.relates_to": relation} if relation else content


def build_edit(content: Json, event_id: str) -> Json:
    """Return the content of the event that replaces a message; old clients show its text behind an asterisk."""
    fallback = {**content, "body": f"* {content['body']}", "m.mentions": {}}
    if "formatted_body" in content:
        fallback["formatted_body"] = f"* {content['formatted_body']}"
    return {**fallback, "m.new_content": content, "m.relates_to": {"rel_type": "m.replace", "event_id": event_id}}


def transaction_id_of_edit(delivery_id: str, event_id: str, content: Content) -> str:
    """Return the transaction id of an edit: the same for the same content only, because drafts are edited often."""
    parts = (event_id, content.text, *(file.name for file in content.attachments))
    return f"{delivery_id}-{sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"
