"""No odd field of an update loses a message: what cannot be read is left out, and the rest is read."""

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from adapters.telegram.emulator import Emulator
from adapters.telegram.incoming import with_rich_text
from bot.models import Purpose, TextRequest
from bot.store import InMemoryStore
from tests.adapters.telegram.api_schema import ApiSchema
from tests.adapters.telegram.conftest import START, SkippingClock, TelegramHarness, echo, load_schema, run_character

NOW = int(START.timestamp())
USER = {"id": 5, "is_bot": False, "first_name": "Alice"}
NAMELESS = {"id": 6, "is_bot": False, "first_name": ""}
CHAT = {"id": -100123, "type": "supergroup", "title": "Harbour"}
LISTENING = {"telegram": {"rooms": {"*": {"answers": "listen"}}}}
OTHER_KINDS = {
    "callback_query": "CallbackQuery",
    "message_reaction": "MessageReactionUpdated",
    "my_chat_member": "ChatMemberUpdated",
    "chat_member": "ChatMemberUpdated",
}
CHANGES = (
    "new_chat_members", "left_chat_member", "new_chat_title", "migrate_to_chat_id", "migrate_from_chat_id",
    "forum_topic_created", "forum_topic_edited",
)  # fmt: skip
EMPTY: Mapping[type, Any] = {str: "", int: 0, float: 0.0, bool: False, list: [], dict: {}}
NEW_FIELD = {"of_a_later_version": {"type": 7, "text": ["x"], "from": "x", "date": {}, "chat": [None]}}
RETYPED = ("x", 7, 1.5, True, None, [], ["x"], [7], NEW_FIELD)
MENTION = {"text": "@ada_bot hello", "entities": [{"type": "mention", "offset": 0, "length": 8}]}


def build_message(number: int) -> dict[str, Any]:
    return {"message_id": number, "date": NOW, "chat": CHAT, "from": USER, "text": f"Hello {number}."}


def odd_versions(value: Any) -> Iterator[Any]:
    """Yield the value emptied and of another type, and copies of it in which one part is so, removed or added."""
    yield EMPTY[type(value)]
    yield ["x"] if isinstance(value, str | dict) else "x"
    if isinstance(value, dict):
        yield {**value, **NEW_FIELD}
    for key, item in value.items() if isinstance(value, dict) else ():
        yield {name: other for name, other in value.items() if name != key}
        for version in odd_versions(item):
            yield {**value, key: version}
    for item in value if isinstance(value, list) else ():
        for version in odd_versions(item):
            yield [version]


def retyped_versions(value: Any) -> Iterator[Any]:
    """Yield copies of a value in which one part, at any depth, is of each other type, removed or added."""
    yield from (other for other in RETYPED if type(other) is not type(value))
    if isinstance(value, dict):
        yield {**value, **NEW_FIELD}
        for key, item in value.items():
            yield {name: other for name, other in value.items() if name != key}
            yield from ({**value, key: version} for version in retyped_versions(item))
    elif isinstance(value, list):
        yield [*value, NEW_FIELD]
        for index, item in enumerate(value):
            yield from ([*value[:index], version, *value[index + 1 :]] for version in retyped_versions(item))


def choose_mentions(request: TextRequest) -> str:
    """Echo, and answer nothing but what must be answered."""
    if request.purpose is Purpose.SHOULD_RESPOND:
        return "<response><reasoning>no</reasoning><action>IGNORE</action></response>"
    return echo(request)


def is_answerable(message: Any) -> bool:
    """Return whether a version of a message still has its words and its chat."""
    if not isinstance(message, dict) or message.get("text") != MENTION["text"]:
        return False
    return (
        isinstance(message.get("chat"), dict) and type(message["chat"].get("id")) is int and message["chat"]["id"] < 0
    )


def depth_of(field: Mapping[str, Any]) -> int:
    """Return down to which depth optional fields are set in a field: none in a message within a message."""
    return 0 if "Message" in field["types"][0] else 1


def odd_messages(schema: ApiSchema) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each optional field of a message and a message in which it, or a part of it, is odd."""
    number = 0
    for name, field in schema.fields_of("Message").items():
        if field["required"] or name == "text":
            continue
        for sample in schema.build_samples(field["types"][0], depth_of(field)):
            for version in odd_versions(sample):
                number += 1
                yield name, {**build_message(number), name: version}
        number += 1
        yield name, {key: value for key, value in build_message(number).items() if key != name}


def odd_contents(schema: ApiSchema, type_name: str) -> Iterator[dict[str, Any]]:
    """Yield updates of a kind in which one optional field, or one of a required field, is emptied or removed."""
    [whole] = schema.build_samples(type_name, 1)
    for name, field in schema.fields_of(type_name).items():
        samples = zip(*(schema.build_samples(field["types"][0], depth) for depth in (depth_of(field), 0)), strict=True)
        for sample, smallest in samples:
            yield {**whole, name: sample}
            if not field["required"]:
                yield from ({**whole, name: version} for version in odd_versions(sample))
                continue
            for key in sample.keys() - smallest.keys() if isinstance(sample, dict) else ():
                yield {**whole, name: {other: value for other, value in sample.items() if other != key}}
                yield {**whole, name: {**sample, key: EMPTY[type(sample[key])]}}


@pytest.fixture
def schema() -> ApiSchema:
    loaded = load_schema()
    if loaded is None:
        pytest.skip("the published description of the Bot API is not here")
    return loaded


async def give(harness: TelegramHarness, *updates: Mapping[str, Any]) -> None:
    """Deliver updates, and wait until they are confirmed and have their outcomes."""
    for number, update in enumerate(updates, 1):
        harness.telegram.state.enqueue(harness.bot, {"update_id": harness.bot.next_update, **update})
        harness.bot.next_update += 1
        if number % 200 == 0:
            await harness.wait_confirmed()
    await harness.wait_receipts()


@pytest.mark.failure("B-15")
@pytest.mark.long
@pytest.mark.parametrize("kind", ["message", "channel_post"])
async def test_no_odd_optional_field_loses_a_message(schema: ApiSchema, kind: str) -> None:
    store = InMemoryStore()
    messages = [(name, message) for name, message in odd_messages(schema) if name not in CHANGES]
    async with Emulator() as telegram, run_character(telegram, store=store, rules=LISTENING) as harness:
        await give(harness, *({kind: message} for _, message in messages))
        receipts = await store.ledger.receipts(limit=len(messages) + 1)
    assert await store.ledger.unreadable_events() == []
    assert len(receipts) == len(messages)


@pytest.mark.failure("B-15")
@pytest.mark.long
@pytest.mark.parametrize("kind", ["edited_message", "edited_channel_post", *OTHER_KINDS])
async def test_no_odd_optional_field_makes_another_update_unreadable(schema: ApiSchema, kind: str) -> None:
    store = InMemoryStore()
    if kind in OTHER_KINDS:
        contents = list(odd_contents(schema, OTHER_KINDS[kind]))
    else:
        contents = [{**message, "edit_date": NOW} for _, message in odd_messages(schema)]
    async with Emulator() as telegram, run_character(telegram, store=store, rules=LISTENING) as harness:
        await give(harness, *({kind: content} for content in contents))
    assert contents
    assert await store.ledger.unreadable_events() == []


@pytest.mark.long
@pytest.mark.failure("B-15")
async def test_a_mention_is_answered_whatever_else_of_its_update_cannot_be_read() -> None:
    clock = SkippingClock((datetime.now(UTC) - START).total_seconds())  # whose time stands for a missing date
    async with Emulator() as telegram, run_character(telegram, choose_mentions, clock=clock) as harness:
        alice = harness.people.add_user("Alice", username="alice")
        alice |= {"last_name": "A", "language_code": "en"}
        template = {**build_message(1), **MENTION, "from": alice, "date": telegram.state.unix_time()}
        versions = [version for version in retyped_versions(template) if is_answerable(version)]
        groups = [harness.people.add_group("Harbour", alice) for _ in versions]
        for version, group in zip(versions, groups, strict=True):
            harness.telegram.state.members[group["id"]][5] = "member"
            message = {**version, "chat": {**version["chat"], "id": group["id"]}}
            update = {"update_id": harness.bot.next_update, "of_a_later_version": {"x": []}, "message": message}
            harness.telegram.state.enqueue(harness.bot, update)
            harness.bot.next_update += 1
        await harness.wait_deliveries()
        answers = [telegram.recorder.texts(group["id"]) for group in groups]
        assert await harness.store.ledger.unreadable_events() == []
    unanswered = [version for version, texts in zip(versions, answers, strict=True) if len(texts) != 1]
    assert len(versions) > 100
    assert unanswered == []


RICH_GREETING = {
    "blocks": [
        {"type": "heading", "size": 1, "text": "Plan"},
        {"type": "paragraph", "text": ["Hello ", {"type": "mention", "username": "ada_bot", "text": "@ada_bot"}, "!"]},
        {
            "type": "list",
            "items": [
                {"label": "1.", "blocks": [{"type": "paragraph", "text": {"type": "bold", "text": "tea"}}]},
                {"label": "2.", "blocks": [{"type": "of_a_later_version", "text": "cake"}]},
            ],
        },
        {"type": "table", "cells": [[{"text": "a", "align": "left"}, {"text": ["b"], "align": "left"}]]},
        {"type": "divider"},
        {"type": "blockquote", "blocks": [{"type": "paragraph", "text": "so be it"}], "credit": "Bo"},
    ]
}
RICH_TEXT = "Plan\nHello @ada_bot!\n1. tea\n2. cake\na | b\nso be it\nBo"


@pytest.mark.parametrize("where", ["reply_to_message", "pinned_message", "external_reply"])
async def test_a_rich_message_within_another_does_not_keep_it_from_being_answered(
    where: str, harness: TelegramHarness
) -> None:
    alice = harness.people.add_user("Alice")
    group = harness.people.add_group("Harbour", alice)
    rich = harness.people.say(group, harness.bot.user, rich_message=RICH_GREETING)
    fields = {where: rich if where != "external_reply" else {"origin": 5, "rich_message": RICH_GREETING}}
    harness.people.say(group, alice, "@ada_bot hello", **fields)
    assert "@ada_bot hello" in (await harness.wait_texts(1, group))[0]
    assert await harness.store.ledger.unreadable_events() == []


@pytest.mark.parametrize("origin", [None, {"type": "hidden_user", "date": NOW, "sender_user_name": "Bo"}])
async def test_the_words_of_a_rich_message_are_read(origin: Any, harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    fields = {"forward_origin": origin} if origin else {}
    harness.people.say(chat, alice, rich_message=RICH_GREETING, **fields)
    [text] = await harness.wait_texts(1)
    assert all(line in text for line in RICH_TEXT.splitlines())
    assert ("forwarded from Bo" in text) is bool(origin)


async def test_a_rich_message_that_names_the_bot_is_a_mention_and_a_reply_quotes_a_rich_message(
    harness: TelegramHarness,
) -> None:
    alice = harness.people.add_user("Alice")
    group = harness.people.add_group("Harbour", alice)
    message = harness.people.say(group, alice, rich_message=RICH_GREETING)
    [receipt] = await harness.wait_receipts()
    assert receipt.rule == "mention"
    harness.people.say(group, alice, "@ada_bot and this?", reply_to=message)
    await harness.wait_receipts()
    [reply] = [item for item in await harness.store.memories.recent(receipt.room_id, 9) if item.content.quotation]
    assert reply.content.quotation is not None
    assert reply.content.quotation.text == RICH_TEXT


def test_entities_of_rich_messages_count_in_units_of_utf_16() -> None:
    blocks = [{"type": "paragraph", "text": ["🎉 ", {"type": "bot_command", "text": "/help"}]}]
    message = with_rich_text({"message": {"rich_message": {"blocks": blocks}}})["message"]
    assert message == {"text": "🎉 /help", "entities": [{"type": "bot_command", "offset": 3, "length": 5}]}


@pytest.mark.long
@pytest.mark.parametrize("depth", [30, 200, 900])
async def test_a_mention_next_to_something_nested_deeply_is_answered(depth: int, harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    group = harness.people.add_group("Harbour", alice)
    for name in ("rich_message", "of_a_later_version", "poll"):
        nested: Any = {"text": "x"}
        for _ in range(depth // 2):
            nested = {"text": [nested]}
        harness.people.say(group, alice, f"@ada_bot {name}", **{name: nested})
    await harness.wait_receipts()
    assert await harness.wait_texts(1, group)
    assert await harness.store.ledger.unreadable_events() == []


@pytest.fixture
async def harness() -> AsyncIterator[TelegramHarness]:
    """A character on an emulator whose people send what the description of the Bot API does not allow."""
    async with Emulator() as telegram, run_character(telegram) as item:
        yield item


@pytest.mark.failure("B-15")
@pytest.mark.parametrize("names", [{"first_name": ""}, {}, {"first_name": "", "last_name": "", "username": ""}])
async def test_an_account_without_a_name_is_answered(names: Mapping[str, str], harness: TelegramHarness) -> None:
    chat = harness.people.open_private_chat(NAMELESS)
    user = {"id": chat["id"], "is_bot": False, **names}
    harness.people.say({"id": chat["id"], "type": "private", **names}, user, "Hello")
    assert await harness.wait_texts(1) == ["You said: Hello"]
    assert await harness.store.ledger.unreadable_events() == []


@pytest.mark.failure("B-15")
async def test_joins_and_leaves_of_an_account_without_a_name_are_noted(harness: TelegramHarness) -> None:
    owner = harness.people.add_user("Alice")
    group = harness.people.add_group("Harbour", owner=owner)
    harness.people.change_member(group, NAMELESS, "member")
    harness.people.change_member(group, NAMELESS, "left")
    harness.people.say(group, owner, left_chat_member=NAMELESS)
    harness.people.say(group, owner, "@ada_bot hello", reply_to=harness.people.say(group, NAMELESS, "Bye."))
    assert "@ada_bot hello" in (await harness.wait_texts(1, group))[0]
    assert await harness.store.ledger.unreadable_events() == []


@pytest.mark.failure("B-15")
@pytest.mark.parametrize(
    "odd",
    [
        {"entities": [{"type": "bold"}]},
        {"from": {}},
        {"reply_to_message": {"message_id": "x"}},
        {"photo": [{}], "sticker": {}, "via_bot": 5},
    ],
    ids=str,
)
async def test_what_cannot_be_read_is_left_out_and_the_message_is_answered(
    odd: Mapping[str, Any], harness: TelegramHarness, caplog: pytest.LogCaptureFixture
) -> None:
    alice = harness.people.add_user("Alice")
    harness.people.say(harness.people.open_private_chat(alice), alice, "Hello", **odd)
    [text] = await harness.wait_texts(1)
    assert text.endswith("Hello")
    assert all(name in caplog.text for name in odd)
    assert await harness.store.ledger.unreadable_events() == []


async def test_forwarded_words_are_not_those_of_who_forwards_them_even_if_their_author_cannot_be_read(
    harness: TelegramHarness,
) -> None:
    alice = harness.people.add_user("Alice")
    harness.people.say(harness.people.open_private_chat(alice), alice, "/mute", forward_origin={"type": "user"})
    [text] = await harness.wait_texts(1)
    assert "[forwarded from an unknown user]" in text
