"""Records of unreadable events: bounded, and without secrets."""

import json
from datetime import UTC, datetime

from bot.inbound.inbox import MAX_RAW_LENGTH, build_unreadable_event

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def record(raw: object, event_id: str = "7", error: object = "no") -> tuple[str, str, str]:
    event = build_unreadable_event("p", "a", event_id, raw, error, secrets={"s3cret-value"}, now=NOW)
    return event.event_id, event.cause, event.raw


def test_secret_fields_and_values_are_removed() -> None:
    raw = {
        "token": "t0",
        "d": [{"session_id": "s0", "bot_token": "b0", "url": "https://x/s3cret-value/f"}],
        "text": "hi",
    }
    _, cause, text = record(raw, error=ValueError("at s3cret-value"))
    assert cause == "ValueError: at [redacted]"
    assert json.loads(text) == {
        "token": "[redacted]",
        "d": [{"session_id": "[redacted]", "bot_token": "[redacted]", "url": "https://x/[redacted]/f"}],
        "text": "hi",
    }


def test_any_value_is_bounded() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert len(record(deep)[2]) < 100
    assert len(record({"text": "x" * 100_000})[2]) <= MAX_RAW_LENGTH
    assert record({"at": NOW})[2] == '{"at": "datetime"}'


def test_an_event_without_an_id_is_identified_by_its_content() -> None:
    first, again, other = (record(raw, event_id="")[0] for raw in ({"a": 1}, {"a": 1}, {"a": 2}))
    assert first == again != other
