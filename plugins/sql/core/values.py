"""The stored form of texts, JSON and the content of messages."""

import base64
import json
from collections.abc import Mapping, Set
from typing import Any
from uuid import UUID

from pydantic_core import to_json

from bot import Attachment, Choice, Content, MediaKind
from bot.platform import MentionContext, PostOperation, PostOperationKind, Quotation
from bot.store import FORWARDED_AUTHOR

NOT_MENTIONED = MentionContext()
PLAIN_FIELDS = ("thought", "actions", "providers", "url", "metadata")
QUOTATION_KEY = "quotation"
TEXT_FIELDS = ("url", "content_type", "name", "title", "description", "text", "problem")


def storable_text(text: str) -> str:
    """Return text without NULs and lone surrogates, which no database accepts."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def _to_plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return list(value)
    return str(value)  # a plugin's unusual value must not fail the commit


_encode_escaped = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), default=_to_plain).encode
_decode = json.JSONDecoder().raw_decode  # stored JSON has nothing before or after it


def loads(text: str) -> Any:
    """Return the data of stored JSON."""
    return {} if text == "{}" else _decode(text)[0]


def dumps(value: Any) -> str:
    """Return data as JSON for a text column.

    Other types are serialized as pydantic does (a dataclass with every field), or as a string if pydantic
    does not know them.
    """
    try:
        return to_json(value, fallback=_to_plain).decode()
    except ValueError:  # a lone surrogate, from a model: escaping preserves it
        return _encode_escaped(value)


def content_text(content: Content) -> str:
    """Return a content as JSON."""
    data: dict[str, Any] = {"text": content.text, "source": content.source}
    data |= {name: value for name in PLAIN_FIELDS if (value := getattr(content, name))}
    if content.attachments:
        data["attachments"] = [_attachment_data(attachment) for attachment in content.attachments]
    if content.in_reply_to is not None:
        data["in_reply_to"] = str(content.in_reply_to)
    if content.mention != NOT_MENTIONED:
        mention = content.mention
        data["mention"] = [mention.is_mention, mention.is_reply, mention.is_thread, mention.denied_by]
        if mention.replies_to is not None:
            data["replies_to"] = str(mention.replies_to)
        if mention.mentions_others:
            data["mentions_others"] = True
    if content.choices:
        data["choices"] = [(attachment.label, attachment.value) for attachment in content.choices]
    if content.operation is not None:
        data["operation"] = [content.operation.kind.value, content.operation.post_id]
    if content.quotation is not None:
        data[QUOTATION_KEY] = _quotation_data(content.quotation)
    return dumps(data)


def content_of(text: str) -> Content:
    """Return the content of its JSON."""
    data = loads(text)
    if len(data) == 2:  # nearly every message: only a text and its source
        return Content(text=data["text"], source=data["source"])
    reply_to = data.get("in_reply_to")
    operation, metadata = _operation_of(data)
    return Content(
        text=data["text"],
        thought=data.get("thought", ""),
        actions=tuple(data.get("actions", ())),
        providers=tuple(data.get("providers", ())),
        attachments=tuple(_attachment_of(item) for item in data.get("attachments", ())),
        source=data["source"],
        url=data.get("url", ""),
        in_reply_to=UUID(reply_to) if reply_to else None,
        mention=_mention_of(data) if "mention" in data else NOT_MENTIONED,
        metadata=metadata,
        choices=tuple(Choice(*item) for item in data.get("choices", ())),
        operation=operation,
        quotation=_quotation_of(data[QUOTATION_KEY]) if QUOTATION_KEY in data else None,
    )


def quotation_mark(*, author_id: UUID | None = None, message_id: str = "") -> str:
    """Return what stands in the JSON of a content that quotes this author, or this message; else of any that quotes."""
    if author_id is not None:
        return f'"author_id":{dumps(str(author_id))}'
    return f'"message_id":{dumps(message_id)}' if message_id else f'"{QUOTATION_KEY}":'


def forward_mark(author_id: UUID) -> str:
    """Return what stands in the JSON of a content that this author's words were forwarded in."""
    return f'"{FORWARDED_AUTHOR}":{dumps(str(author_id))}'


def _quotation_data(quotation: Quotation) -> dict[str, Any]:
    author_id = str(quotation.author_id) if quotation.author_id is not None else ""
    data = {"author_id": author_id, "author_name": quotation.author_name, "message_id": quotation.message_id}
    stored: dict[str, Any] = {"text": quotation.text} | {name: value for name, value in data.items() if value}
    if quotation.attachments:
        stored["attachments"] = [_attachment_data(attachment) for attachment in quotation.attachments]
    return stored


def _quotation_of(data: Mapping[str, Any]) -> Quotation:
    author_id = data.get("author_id")
    return Quotation(
        text=data["text"],
        author_name=data.get("author_name", ""),
        author_id=UUID(author_id) if author_id else None,
        message_id=data.get("message_id", ""),
        attachments=tuple(_attachment_of(item) for item in data.get("attachments", ())),
    )


def _mention_of(data: dict[str, Any]) -> MentionContext:
    """Return how a message addresses; what earlier versions do not read stands beside their list."""
    is_mention, is_reply, is_thread, denied_by = data["mention"]
    replies_to = data.get("replies_to")
    return MentionContext(
        is_mention=is_mention,
        is_reply=is_reply,
        is_thread=is_thread,
        denied_by=denied_by,
        replies_to=UUID(replies_to) if replies_to else None,
        mentions_others=data.get("mentions_others", False),
    )


def _operation_of(data: dict[str, Any]) -> tuple[PostOperation | None, Mapping[str, Any]]:
    """Return the operation and the metadata; earlier versions stored the operation in the metadata."""
    metadata = data.get("metadata", {})
    if "operation" in data:
        kind, post_id = data["operation"]
        return PostOperation(PostOperationKind(kind), post_id), metadata
    if "x_act" not in metadata:
        return None, metadata
    metadata = dict(metadata)
    kind, post_id = metadata.pop("x_act"), str(metadata.pop("x_subject", ""))
    return (PostOperation(PostOperationKind(kind), post_id) if kind else None), metadata


def _attachment_data(attachment: Attachment) -> dict[str, Any]:
    data: dict[str, Any] = {"id": attachment.id, "kind": attachment.kind.value}
    data |= {name: value for name in TEXT_FIELDS if (value := getattr(attachment, name))}
    if attachment.data is not None:
        data["data"] = base64.b64encode(attachment.data).decode("ascii")
    if attachment.size is not None:
        data["size"] = attachment.size
    return data


def _attachment_of(data: dict[str, Any]) -> Attachment:
    fields = dict(data)
    encoded = fields.pop("data", None)
    kind = MediaKind(fields.pop("kind"))
    return Attachment(kind=kind, data=None if encoded is None else base64.b64decode(encoded), **fields)
