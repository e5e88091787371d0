"""No odd field of an update loses a message: what cannot be read is left out, and the rest is read."""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest

from adapters.telegram.emulator import Emulator
from bot.store import InMemoryStore
from tests.adapters.telegram.api_schema import ApiSchema
from tests.adapters.telegram.conftest import START, TelegramHarness, load_schema, run_character

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


def build_message(number: int) -> dict[str, Any]:
    return {"message_id": number, "date": NOW, "chat": CHAT, "from": USER, "text": f"Hello {number}."}


def odd_versions(value: Any) -> Iterator[Any]:
    """Yield the value emptied, and copies of it in which one part is emptied or removed."""
    yield EMPTY[type(value)]
    for key, item in value.items() if isinstance(value, dict) else ():
        yield {name: other for name, other in value.items() if name != key}
        for version in odd_versions(item):
            yield {**value, key: version}
    for item in value if isinstance(value, list) else ():
        for version in odd_versions(item):
            yield [version]


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
    """Deliver updates and wait until they are confirmed and have their outcomes."""
    for update in updates:
        harness.telegram.state.enqueue(harness.bot, {"update_id": harness.bot.next_update, **update})
        harness.bot.next_update += 1
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
