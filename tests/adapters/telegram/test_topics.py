"""Where a topic was deleted or is closed, the answer arrives in General; where it cannot, the operator is told."""

from typing import Any

import pytest

from bot.platform import DeliveryState
from tests.adapters.telegram.conftest import TelegramHarness


async def ask_in_topic(harness: TelegramHarness, *, is_deleted: bool = False) -> tuple[dict[str, Any], int]:
    """Ask in a topic that cannot be written to; return its forum and its id."""
    alice = harness.people.add_user("Alice")
    forum = harness.people.add_group("The forum", alice, is_forum=True)
    topic = harness.people.add_topic(forum, alice, "Boats")
    (harness.people.delete_topic if is_deleted else harness.people.close_topic)(forum, topic)
    harness.people.say(forum, alice, "@ada_bot hello", thread=topic)
    return forum, topic


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "closed"])
async def test_an_answer_for_a_topic_that_cannot_be_written_to_arrives_in_general(
    is_deleted: bool, harness: TelegramHarness, caplog: pytest.LogCaptureFixture
) -> None:
    forum, topic = await ask_in_topic(harness, is_deleted=is_deleted)
    assert await harness.wait_texts(1, forum) == ["You said: @ada_bot hello"]
    [shown] = harness.telegram.recorder.messages
    assert shown.thread_id is None
    [delivery] = await harness.wait_deliveries()
    assert delivery.state is DeliveryState.SENT
    assert f"chat {forum['id']}/{topic}" in caplog.text


async def test_an_administrator_answers_in_a_closed_topic(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    forum = harness.people.add_group("The forum", alice, is_forum=True)
    topic = harness.people.add_topic(forum, alice, "Boats")
    harness.people.change_member(forum, harness.bot.user, "administrator")
    harness.people.close_topic(forum, topic)
    harness.people.say(forum, alice, "@ada_bot hello", thread=topic)
    await harness.wait_texts(1, forum)
    [shown] = harness.telegram.recorder.messages
    assert shown.thread_id == topic


async def test_the_operator_is_told_what_to_do_where_general_is_closed_too(
    harness: TelegramHarness, caplog: pytest.LogCaptureFixture
) -> None:
    alice = harness.people.add_user("Alice")
    forum = harness.people.add_group("The forum", alice, is_forum=True)
    topic = harness.people.add_topic(forum, alice, "Boats")
    for closed in (topic, None):
        harness.people.close_topic(forum, closed)
    harness.people.say(forum, alice, "@ada_bot hello", thread=topic)
    [delivery] = await harness.wait_deliveries()
    assert delivery.state is DeliveryState.FAILED
    assert "topic_closed" in delivery.cause.lower()
    assert "the topic General is closed: open it" in caplog.text
