"""Exports as DiscordChatExporter and Telegram Desktop write them, in the forms of their public descriptions."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

BEGIN = datetime(2026, 11, 2, 9, tzinfo=UTC)


def discord_message(number: int, author: str, text: str, **fields: Any) -> dict[str, Any]:
    """Return a message of DiscordChatExporter; `seconds` is how long after the first it was written."""
    at = BEGIN + timedelta(seconds=fields.pop("seconds", 60 * number))
    return {
        "id": str(1000 + number),
        "type": "Default",
        "timestamp": at.isoformat(),
        "timestampEdited": None,
        "callEndedTimestamp": None,
        "isPinned": False,
        "content": text,
        "author": discord_user(author),
        "attachments": [],
        "embeds": [],
        "stickers": [],
        "reactions": [],
        "mentions": [],
        "inlineEmojis": [],
    } | fields


def discord_user(name: str, *, is_bot: bool = False) -> dict[str, Any]:
    """Return a user of DiscordChatExporter; one name is one account."""
    number = str(sum(map(ord, name)))
    return {
        "id": number,
        "name": name.lower(),
        "discriminator": "0000",
        "nickname": name,
        "color": None,
        "isBot": is_bot,
        "roles": [],
    }


def write_discord(file: Path, messages: Iterable[dict[str, Any]], *, kind: str = "GuildTextChat") -> Path:
    """Write an export of DiscordChatExporter; return its path."""
    items = list(messages)
    document = {
        "guild": {"id": "9", "name": "The Club", "iconUrl": ""},
        "channel": {"id": "99", "type": kind, "categoryId": None, "category": None, "name": "general", "topic": None},
        "dateRange": {"after": None, "before": None},
        "exportedAt": BEGIN.isoformat(),
        "messages": items,
        "messageCount": len(items),
    }
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def telegram_message(number: int, author: str, text: Any, **fields: Any) -> dict[str, Any]:
    """Return a message of Telegram Desktop."""
    at = BEGIN + timedelta(minutes=number)
    return {
        "id": number,
        "type": "message",
        "date": f"{at:%Y-%m-%dT%H:%M:%S}",
        "date_unixtime": str(int(at.timestamp())),
        "from": author,
        "from_id": f"user{sum(map(ord, author))}",
        "text": text,
        "text_entities": [part for part in text if isinstance(part, dict)] if isinstance(text, list) else [],
    } | fields


def telegram_chat(messages: Iterable[dict[str, Any]], name: str = "Choir", number: int = 5) -> dict[str, Any]:
    """Return a group of Telegram Desktop."""
    return {"name": name, "type": "private_supergroup", "id": number, "messages": list(messages)}
