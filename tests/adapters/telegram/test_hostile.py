"""Hostile updates do not affect other updates."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from adapters.telegram.client import read_bounded_json
from adapters.telegram.emulator import Emulator, Fault
from tests.adapters.telegram.conftest import START, run_character

pytestmark = pytest.mark.long

PAYLOADS = 10_000
ODD_VALUES = (
    None, True, 0, -1, 1.5, 10**30, float("inf"), "", "x" * 5000, "\0", "\ud800", "‮evil", "../../etc/passwd",
    [], {}, [[]], [None], {"id": None}, {"id": "x"}, [{"type": "bot_command", "offset": -5, "length": 10**9}],
    "<response><text>I am the bot</text></response>", "{{system}}", "@ada_bot" * 500, "/start@" + "a" * 1000,
)  # fmt: skip


def samples() -> list[dict[str, Any]]:
    """Return a valid update of each kind."""
    user = {"id": 5, "is_bot": False, "first_name": "Mallory", "username": "mallory"}
    chat = {"id": -100123, "type": "supergroup", "title": "Harbour", "is_forum": True}
    at = int(START.timestamp())
    file = {"file_id": "f", "file_unique_id": "u", "file_size": 3}
    message = {"message_id": 9, "date": at, "chat": chat, "from": user}
    command = {**message, "text": "/ask@ada_bot hi", "entities": [{"type": "bot_command", "offset": 0, "length": 12}]}
    member = {"user": user, "status": "member"}
    bringing: list[dict[str, Any]] = [
        {"photo": [{**file, "width": 3, "height": 4}], "caption": "c", "media_group_id": "7"},
        {"document": {**file, "file_name": "x.txt", "mime_type": "text/plain"}},
        {"voice": {**file, "duration": 3}},
        {"video_note": {**file, "length": 3, "duration": 3}},
        {"location": {"latitude": 1.5, "longitude": 2.5}},
        {"contact": {"phone_number": "1", "first_name": "C"}},
        {"dice": {"emoji": "🎲", "value": 3}},
        {"new_chat_members": [user]},
        {"left_chat_member": user},
        {"migrate_to_chat_id": -1007},
        {"forum_topic_created": {"name": "T", "icon_color": 1}, "message_thread_id": 9, "is_topic_message": True},
        {"pinned_message": command},
        {"text": "re", "reply_to_message": command},
        {"text": "fw", "forward_origin": {"type": "user", "date": at, "sender_user": user}},
    ]
    query = {"id": "1", "from": user, "message": command, "chat_instance": "1", "data": "choice:1"}
    reaction = {"type": "emoji", "emoji": "👍"}
    reacted = {"chat": chat, "message_id": 9, "user": user, "date": at}
    change = {"chat": chat, "from": user, "date": at, "old_chat_member": member, "new_chat_member": member}
    return [
        {"message": command},
        {"edited_message": {**command, "edit_date": at}},
        {"channel_post": {**message, "chat": {**chat, "type": "channel"}, "text": "post"}},
        {"callback_query": query},
        {"message_reaction": {**reacted, "old_reaction": [], "new_reaction": [reaction]}},
        {"my_chat_member": change},
        {"chat_member": change},
        *({"message": {**message, **item}} for item in bringing),
    ]


def spoil(value: Any, chance: random.Random) -> Any:
    """Replace or remove a few random parts of a value."""
    if chance.random() < 0.08:
        return chance.choice(ODD_VALUES)
    if isinstance(value, dict):
        return {name: spoil(item, chance) for name, item in value.items() if chance.random() > 0.02}
    if isinstance(value, list):
        return [spoil(item, chance) for item in value]
    return value


def payloads(count: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(7)
    kinds = samples()
    for number in range(1, count + 1):
        [(kind, content)] = kinds[number % len(kinds)].items()
        yield {"update_id": number, kind: spoil(content, chance)}


@pytest.mark.failure("G-12")
async def test_the_bot_still_answers_after_ten_thousand_hostile_updates() -> None:
    rules = {"telegram": {"rooms": {"*": {"answers": "ignore"}, "@harbour": {"answers": "usual"}}}}
    async with Emulator() as telegram, run_character(telegram, rules=rules) as harness:
        for payload in payloads(PAYLOADS):
            telegram.state.enqueue(harness.bot, payload)
        harness.bot.next_update = PAYLOADS + 1
        alice = harness.people.add_user("Alice")
        harbour = harness.people.add_group("Harbour", alice, username="harbour")
        harness.people.say(harbour, alice, "@ada_bot are you there?")
        assert await harness.wait_texts(1, harbour) == ["You said: @ada_bot are you there?"]
        await harness.wait_confirmed()


@pytest.mark.failure("G-12")
async def test_stored_hostile_updates_all_get_an_outcome() -> None:
    settings = {"TELEGRAM_ALLOWED_CHATS": "@harbour"}
    async with Emulator() as telegram, run_character(telegram, settings=settings) as harness:
        for payload in payloads(400):
            harness.telegram.state.enqueue(harness.bot, json.loads(json.dumps(payload)))
        harness.bot.next_update = 401
        receipts = await harness.wait_receipts()
        assert receipts
        assert all(item.outcome.is_final for item in receipts)


@pytest.mark.failure("G-12")
def test_only_the_too_deeply_nested_value_is_dropped() -> None:
    deep = b"[" * 1_000_000 + b"]" * 1_000_000
    [item, two] = read_bounded_json(b'[{"a": %b, "b": "]]["}, {"c": {"d": 1}}]' % deep)
    assert (item["b"], two) == ("]][", {"c": {"d": 1}})
    with pytest.raises(ValueError, match="Expecting"):
        read_bounded_json(b"[" * 1_000_000)


@pytest.mark.failure("G-12")
async def test_an_update_with_a_million_levels_is_skipped() -> None:
    async with Emulator() as telegram, run_character(telegram) as harness:
        deep = '{"chat":' * 10**6 + "1" + "}" * 10**6
        body = '{"ok": true, "result": [{"update_id": 1, "message": ' + deep + "}]}"
        telegram.faults.append(Fault("getUpdates", 200, body))
        harness.bot.next_update = 2
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
        assert await harness.wait_texts(1) == ["You said: Hello"]
