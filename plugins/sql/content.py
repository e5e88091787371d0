"""Contents as JSON: what is as it is by default is left out."""

import base64
from typing import Any
from uuid import UUID

from bot import Attachment, Choice, Content, MediaKind, MentionContext
from plugins.sql.values import dumps, loads

NOT_MENTIONED = MentionContext()
WORDS = ("url", "content_type", "name", "title", "description", "text", "problem")


def content_text(content: Content) -> str:
    """Write a content."""
    data: dict[str, Any] = {"text": content.text, "source": content.source}
    if content.thought:
        data["thought"] = content.thought
    if content.actions:
        data["actions"] = content.actions
    if content.providers:
        data["providers"] = content.providers
    if content.attachments:
        data["attachments"] = [_attachment_data(one) for one in content.attachments]
    if content.url:
        data["url"] = content.url
    if content.in_reply_to is not None:
        data["in_reply_to"] = str(content.in_reply_to)
    if content.mention != NOT_MENTIONED:
        mention = content.mention
        data["mention"] = [mention.is_mention, mention.is_reply, mention.is_thread, mention.denied_by]
    if content.metadata:
        data["metadata"] = content.metadata
    if content.choices:
        data["choices"] = [(one.label, one.value) for one in content.choices]
    return dumps(data)


def content_of(text: str) -> Content:
    """Read a content."""
    data = loads(text)
    if len(data) == 2:  # nearly every message: a text and where it came from
        return Content(text=data["text"], source=data["source"])
    reply_to = data.get("in_reply_to")
    return Content(
        text=data["text"],
        thought=data.get("thought", ""),
        actions=tuple(data.get("actions", ())),
        providers=tuple(data.get("providers", ())),
        attachments=tuple(_attachment_of(one) for one in data.get("attachments", ())),
        source=data["source"],
        url=data.get("url", ""),
        in_reply_to=UUID(reply_to) if reply_to else None,
        mention=MentionContext(*data["mention"]) if "mention" in data else NOT_MENTIONED,
        metadata=data.get("metadata", {}),
        choices=tuple(Choice(*one) for one in data.get("choices", ())),
    )


def _attachment_data(attachment: Attachment) -> dict[str, Any]:
    data: dict[str, Any] = {"id": attachment.id, "kind": attachment.kind.value}
    data |= {name: value for name in WORDS if (value := getattr(attachment, name))}
    if attachment.data is not None:
        data["data"] = base64.b64encode(attachment.data).decode("ascii")
    return data


def _attachment_of(data: dict[str, Any]) -> Attachment:
    given = dict(data)
    encoded = given.pop("data", None)
    kind = MediaKind(given.pop("kind"))
    return Attachment(kind=kind, data=None if encoded is None else base64.b64decode(encoded), **given)
