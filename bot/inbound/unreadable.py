"""Builds the record of a platform's event that could not be read: bounded, and without secrets."""

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

from bot.domain.inbound import UnreadableEvent
from bot.redaction import REDACTED
from bot.text import redact, sanitize_text, shorten

MAX_RAW_LENGTH, MAX_CAUSE_LENGTH, MAX_ID_LENGTH = 4_000, 300, 200
MAX_DEPTH, MAX_ITEMS = 20, 1_000
SECRET_NAMES = ("token", "secret", "password", "authorization", "session_id", "api_key")  # in names of fields


def build_unreadable_event(
    platform: str, account: str, event_id: str, raw: object, error: object, *, secrets: Collection[str], now: datetime
) -> UnreadableEvent:
    """Return the record of an event, of which `raw` is what the platform sent as plain JSON values.

    Values of fields that are named like a secret are removed, and every text in `secrets`. Without an
    `event_id` the content identifies the event.
    """
    text = redact(json.dumps(_bound(raw), ensure_ascii=False, default=type_name), secrets)
    cause = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    return UnreadableEvent(
        platform,
        account,
        sanitize_text(event_id)[:MAX_ID_LENGTH] or sha256(text.encode("utf-8", "replace")).hexdigest()[:32],
        received_at=now,
        cause=shorten(sanitize_text(redact(cause, secrets)), MAX_CAUSE_LENGTH),
        raw=sanitize_text(text, MAX_RAW_LENGTH),
    )


def type_name(value: object) -> str:
    """Return the name of a value's type, which stands for a value that is not JSON."""
    return type(value).__name__


def _bound(value: Any, depth: int = 0) -> Any:
    """Return JSON values without secret fields, not too deep and not too many."""
    if depth >= MAX_DEPTH and isinstance(value, Mapping | list | tuple):
        return "…"
    if isinstance(value, Mapping):
        items = list(value.items())[:MAX_ITEMS]
        return {str(key): REDACTED if _is_secret(str(key)) else _bound(item, depth + 1) for key, item in items}
    if isinstance(value, list | tuple):
        return [_bound(item, depth + 1) for item in value[:MAX_ITEMS]]
    return value


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in SECRET_NAMES)
