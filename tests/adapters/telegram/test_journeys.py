"""User journeys through the real library and the emulator."""

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from adapters.telegram.commands import CommandHandler
from adapters.telegram.config import Limits
from adapters.telegram.emulator import Emulator, Fault, refuse_markup
from adapters.telegram.incoming import ChatTarget, derive_room_id, derive_user_id
from bot import Agent, CommandContext, MemoryKind, Outcome, Plugin, Role, command, model, on
from bot.events import EntityJoined, ReactionReceived
from bot.models import ModelType, TextRequest, TextResult, TranscriptionRequest, Usage
from bot.platform import DeliveryState
from bot.store import InMemoryStore
from bot.testing import StreamedText, model_answer
from tests.adapters.telegram.conftest import (
    START,
    OpenHarness,
    SkippingClock,
    TelegramHarness,
    description,
    echo,
    run_character,
    run_harness,
)
from tests.remembering import SETTINGS, RememberingModel, check_memory

pytestmark = pytest.mark.usefixtures("nothing_held_back")

ACCOUNT = "1000001"


def room(chat: Mapping[str, Any], thread: int | None = None) -> UUID:
    return derive_room_id(ACCOUNT, ChatTarget(chat["id"], thread))


async def test_private_messages_are_answered(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice", username="alice")
    chat = harness.people.open_private_chat(alice)
    harness.people.say(chat, alice, "Hello there")
    assert await harness.wait_texts(1, chat) == ["You said: Hello there"]
    [receipt] = await harness.wait_receipts()
    assert receipt.outcome is Outcome.ANSWERED
    assert (receipt.key.platform, receipt.key.account, receipt.key.message_id) == ("telegram", ACCOUNT, "1")


async def test_in_a_group_a_mention_is_answered_with_a_reply_and_names_its_rule(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    group = harness.people.add_group("The group", alice)
    message = harness.people.say(group, alice, "What do you say, @ada_bot?")
    await harness.wait_texts(1, group)
    [receipt] = await harness.wait_receipts()
    assert receipt.rule == "mention"
    [call] = harness.telegram.recorder.calls_of("sendMessage")
    assert call["reply_parameters"]["message_id"] == message["message_id"]


@pytest.mark.parametrize(
    ("quote", "in_group", "in_private"),
    [("", True, False), ("groups", True, False), ("always", True, True), ("never", False, False)],
)
async def test_an_answer_quotes_the_message_where_the_setting_says_so(
    open_harness: OpenHarness, quote: str, in_group: bool, in_private: bool
) -> None:
    async with open_harness(settings={"TELEGRAM_QUOTE": quote} if quote else {}) as harness:
        alice = harness.people.add_user("Alice")
        group, private = harness.people.add_group("The group", alice), harness.people.open_private_chat(alice)
        for chat in (group, private):
            harness.people.say(chat, alice, "@ada_bot ahoy")
            await harness.wait_texts(1, chat)
    quoted = ["reply_to_message" in shown.message for shown in harness.telegram.recorder.messages]
    assert quoted == [in_group, in_private]


@pytest.mark.long
async def test_the_model_knows_the_greeting_that_start_sent(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    harness.people.say(chat, alice, "/start")
    [greeting] = await harness.wait_texts(1, chat)
    harness.people.say(chat, alice, "Thanks")
    assert await harness.wait_texts(2, chat) == [greeting, "You said: Thanks"]
    assert greeting in harness.model.requests[-1].prompt


async def test_actions_between_asterisks_are_italic(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    harness.people.say(chat, alice, '*looks up* Hello. *She says, "Tea?"* 2 * 3 * 4')
    assert await harness.wait_texts(1, chat) == ['You said: looks up Hello. She says, "Tea?" 2 * 3 * 4']
    [shown] = harness.telegram.recorder.messages
    spans = [
        shown.text[entity["offset"] : entity["offset"] + entity["length"]]
        for entity in shown.message["entities"]
        if entity["type"] == "italic"
    ]
    assert spans == ["looks up", 'She says, "Tea?"']


async def test_a_reply_to_the_bot_is_answered(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    group = harness.people.add_group("The group", alice)
    harness.people.say(group, alice, "@ada_bot hello")
    await harness.wait_texts(1, group)
    [shown] = harness.telegram.recorder.messages
    harness.people.say(group, alice, "and you?", reply_to=shown.message)
    await harness.wait_texts(2, group)
    assert [item.rule for item in await harness.wait_receipts()] == ["mention", "reply"]


async def test_a_reply_to_another_person_is_not_for_the_bot(harness: TelegramHarness) -> None:
    alice, bob = harness.people.add_user("Alice"), harness.people.add_user("Bob")
    group = harness.people.add_group("The group", alice, bob)
    harness.people.say(group, alice, "@ada_bot hello")
    await harness.wait_texts(1, group)
    asked = harness.people.say(group, bob, "when do we leave?")
    await harness.wait_receipts()
    harness.people.say(group, alice, "at six", reply_to=asked)
    receipts = await harness.wait_receipts()
    assert receipts[2].rule == "not addressed"
    memory = (await harness.store.memories.memories([receipts[2].memory_id]))[receipts[2].memory_id]
    assert memory.content.mention.replies_to == derive_user_id(bob["id"])


async def test_a_forum_topic_is_a_separate_room_and_is_answered_there(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    forum = harness.people.add_group("The forum", alice, is_forum=True)
    topic = harness.people.add_topic(forum, alice, "Boats")
    harness.people.say(forum, alice, "@ada_bot in the topic", thread=topic)
    await harness.wait_texts(1, forum)
    [shown] = harness.telegram.recorder.messages
    assert shown.thread == topic
    [receipt] = await harness.wait_receipts()
    assert receipt.room_id == room(forum, topic)
    stored = await harness.store.worlds.room(receipt.room_id)
    assert (stored.name, stored.external_id) == ("Boats", f"{forum['id']}/{topic}")


@pytest.mark.failure("B-06")
async def test_an_edit_of_an_answered_message_is_stored(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    message = harness.people.say(chat, alice, "Helo")
    await harness.wait_texts(1, chat)
    harness.people.edit(message, "Hello")
    first, second = await harness.wait_receipts()
    stored = (await harness.store.memories.memories([first.memory_id]))[first.memory_id]
    assert stored.content.text == "Hello"
    assert (second.outcome, second.rule) == (Outcome.IGNORED, "ON_EDIT")


@pytest.mark.failure("B-06")
async def test_an_edit_that_mentions_the_bot_for_the_first_time_is_answered_once(open_harness: OpenHarness) -> None:
    async with open_harness(settings={"RESPONSIVENESS": "called"}) as harness:
        alice = harness.people.add_user("Alice")
        group = harness.people.add_group("The group", alice)
        message = harness.people.say(group, alice, "when do we leave?")
        await harness.wait_receipts()
        message = harness.people.edit(message, "@ada_bot when do we leave?")
        assert await harness.wait_texts(1, group) == ["You said: @ada_bot when do we leave?"]
        await harness.wait_receipts()
        harness.people.edit(message, "@ada_bot when do we leave today?")
        first, second, third = await harness.wait_receipts()
    assert [first.outcome, second.outcome, third.outcome] == [Outcome.IGNORED, Outcome.ANSWERED, Outcome.IGNORED]
    assert third.rule == "ON_EDIT"


@pytest.mark.failure("B-06")
async def test_with_rerun_an_edit_changes_the_answer(open_harness: OpenHarness) -> None:
    async with open_harness(settings={"ON_EDIT": "rerun"}) as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        message = harness.people.say(chat, alice, "Helo")
        await harness.wait_texts(1, chat)
        harness.people.edit(message, "Hello")
        await harness.telegram.recorder.wait_until(lambda: harness.telegram.recorder.counts["edited"])
        assert harness.telegram.recorder.texts(chat["id"]) == ["You said: Hello"]


@pytest.mark.failure("B-05")
async def test_an_edit_before_the_answer_replaces_the_message(open_harness: OpenHarness) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def script(request: TextRequest) -> str:
        if "the tide on Tuesday" in request.prompt:
            return model_answer("On Tuesday at noon.")
        asked.set()
        await go.wait()
        return model_answer("On Monday at ten.")

    async with open_harness(script) as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        message = harness.people.say(chat, alice, "When is the tide on Monday?")
        await asked.wait()
        harness.people.edit(message, "When is the tide on Tuesday?")
        assert await harness.wait_texts(1, chat) == ["On Tuesday at noon."]
        go.set()
        await harness.wait_receipts()
        assert len(harness.telegram.recorder.messages) == 1


@pytest.mark.long
@pytest.mark.failure("B-07")
async def test_a_message_edited_many_times_gets_a_single_answer_to_its_last_text(open_harness: OpenHarness) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def script(request: TextRequest) -> str:
        asked.set()
        await go.wait()
        return echo(request)

    async with open_harness(script) as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        message = harness.people.say(chat, alice, "Version 0")
        await asked.wait()
        for number in range(1, 21):
            message = harness.people.edit(message, f"Version {number}")
        await harness.wait_confirmed()
        go.set()
        assert await harness.wait_texts(1) == ["You said: Version 20"]
        assert len(await harness.wait_deliveries()) == 1


async def test_a_long_answer_with_code_is_split_without_loss(open_harness: OpenHarness) -> None:
    code = "\n".join(f"print('line {number} 😀')" for number in range(300))
    text = f"Here it is:\n\n```python\n{code}\n```\n\nThat was **all**."
    async with open_harness(lambda request: model_answer(text)) as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        harness.people.say(chat, alice, "Show me code")
        texts = await harness.wait_texts(2, chat)
    assert code in "\n".join(texts)
    calls = harness.telegram.recorder.calls_of("sendMessage")
    assert [item["type"] for item in calls[0]["entities"]] == ["pre"]
    assert {item["type"]: item.get("language") for item in calls[-1]["entities"]} == {"pre": "python", "bold": None}


@pytest.mark.failure("D-09", "F-17")
async def test_rejected_markup_is_sent_as_plain_text_without_loss(open_harness: OpenHarness) -> None:
    text = "**Bold** and [a link](https://example.com/x) and `code_with_underscores`"
    async with open_harness(lambda request: model_answer(text)) as harness:
        harness.telegram.faults.append(refuse_markup())
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
        assert await harness.wait_texts(1) == [text]
        [part] = await harness.wait_deliveries()
        assert part.state is DeliveryState.SENT


@pytest.mark.failure("B-14")
async def test_a_group_that_becomes_a_supergroup_keeps_its_history(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    group = harness.people.add_group("The group", alice, kind="group")
    harness.people.say(group, alice, "@ada_bot before")
    await harness.wait_texts(1, group)
    new = harness.people.migrate(group, alice)
    harness.people.say(new, alice, "@ada_bot after")
    await harness.wait_texts(1, new)
    await harness.wait_receipts()
    texts = [item.content.text for item in await harness.store.memories.recent(room(new), 10)]
    assert "@ada_bot before" in texts
    assert "@ada_bot after" in texts


@pytest.mark.failure("B-14")
async def test_an_answer_to_a_migrated_group_goes_to_the_supergroup(open_harness: OpenHarness) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def script(request: TextRequest) -> str:
        asked.set()
        await go.wait()
        return model_answer("Here I am.")

    async with open_harness(script) as harness:
        alice = harness.people.add_user("Alice")
        group = harness.people.add_group("The group", alice, kind="group")
        harness.people.say(group, alice, "@ada_bot are you there?")
        await asked.wait()
        new = harness.people.migrate(group, alice, is_announced=False)
        go.set()
        assert await harness.wait_texts(1, new) == ["Here I am."]


async def test_choices_are_shown_as_buttons_and_a_press_is_answered(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    harness.people.say(chat, alice, "/forget_me")
    await harness.wait_texts(1, chat)
    [shown] = harness.telegram.recorder.messages
    data = shown.message["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
    query = harness.people.press(shown.message, alice, data)
    alerts = harness.telegram.recorder.alerts
    await harness.telegram.recorder.wait_until(lambda: query in alerts)
    again = harness.people.press(shown.message, alice, data)
    await harness.telegram.recorder.wait_until(lambda: again in alerts)


async def test_a_private_chat_no_longer_names_a_person_who_was_forgotten(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    harness.people.say(chat, alice, "Hello")
    await harness.wait_texts(1, chat)
    await harness.wait_receipts()
    places = harness.store.worlds
    [stored] = await places.rooms()
    world = await places.world(stored.world_id)
    assert (stored.name, world.name, "username" in world.metadata) == ("Alice", "Alice", True)
    for number in (2, 3):
        harness.people.say(chat, alice, "/forget_me")
        await harness.wait_texts(number, chat)
    world = await places.world(stored.world_id)
    assert (await places.room(stored.id)).name == ""
    assert (world.name, world.metadata) == ("", {})


async def test_a_voice_message_is_stored_as_an_audio_attachment(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    voice = harness.people.store_file(b"OggS\0 sound", duration=3, mime_type="audio/ogg")
    harness.people.say(chat, alice, voice=voice)
    await harness.wait_texts(1, chat)
    [receipt] = await harness.wait_receipts()
    [file] = (await harness.store.memories.memories([receipt.memory_id]))[receipt.memory_id].content.attachments
    assert (file.kind, file.content_type) == ("AUDIO", "audio/ogg")
    assert "not-a-real-token" not in repr(file)


async def test_a_command_is_answered_and_registered_in_telegrams_menu(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    harness.people.say(chat, alice, "/help")
    [reported] = await harness.wait_texts(1, chat)
    assert "ask" in reported
    menus = harness.bot.commands
    await harness.telegram.recorder.wait_until(lambda: ("all_chat_administrators", "es") in menus)
    names = {scope: {item["command"] for item in menu} for (scope, language), menu in menus.items() if not language}
    assert {"start", "help", "ask", "mute", "forget_me", "why", "privacy"} <= names["all_private_chats"]
    assert "mute" not in names["default"]
    assert "mute" in names["all_chat_administrators"]
    texts = {
        language: next(item["description"] for item in menu if item["command"] == "ask")
        for (scope, language), menu in menus.items()
        if scope == "default"
    }
    assert texts == {"": "Ask me a question.", "de": "Stelle mir eine Frage.", "es": "Hazme una pregunta."}


async def test_a_command_with_a_hyphen_is_shown_with_an_underscore_and_accepted_in_both_spellings(
    harness: TelegramHarness,
) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    for sent_command in ("/help", "/forget-me"):
        harness.people.say(chat, alice, sent_command)
    reported = await harness.wait_texts(2, chat)
    assert "/forget_me  Delete" in reported[0]
    assert "send /forget_me again" in reported[1]
    assert all("/forget-me" not in item for item in reported)


async def test_an_export_is_a_file_in_a_private_chat_and_refused_in_a_group(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    harness.people.say(chat, alice, "/export_me")
    await harness.wait_texts(2, chat)
    files = [name for message in harness.telegram.recorder.messages for name in message.files]
    assert [name[-4:] for name in files] == [".zip"]


async def test_a_flood_of_commands_does_not_delay_other_users() -> None:
    full = 1.0  # what the sixth answer in a chat waits
    clock = SkippingClock(held=frozenset({Limits().typing_seconds, full}))
    async with run_harness(clock=clock) as harness:
        mallory, bob = harness.people.add_user("Mallory"), harness.people.add_user("Bob")
        flooded, other = harness.people.open_private_chat(mallory), harness.people.open_private_chat(bob)
        for _ in range(10):
            harness.people.say(flooded, mallory, "/help")
        harness.people.say(other, bob, "/privacy")
        harness.people.say(other, bob, "Hello?")
        assert len(await harness.wait_texts(2, other)) == 2
        assert len(harness.telegram.recorder.texts(flooded["id"])) == 5
        clock.released.set()
        assert len(await harness.wait_texts(10, flooded)) == 10


async def test_in_a_group_the_bot_notifies_only_users_who_wrote_there(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice", username="alice")
    group = harness.people.add_group("The group", alice)
    harness.people.say(group, alice, "@ada_bot tell @alice, @bob and @carol")
    assert await harness.wait_texts(1, group) == ["You said: @ada_bot tell @alice, ＠bob and ＠carol"]


async def test_ask_in_a_group_is_answered_as_a_message(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    group = harness.people.add_group("The group", alice)
    harness.people.say(group, alice, "/ask@ada_bot What is a boat?")
    assert await harness.wait_texts(1, group) == ["You said: What is a boat?"]


async def test_a_command_for_another_bot_is_stored_with_a_receipt_and_not_executed(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    group = harness.people.add_group("The group", alice)
    harness.people.say(group, alice, "/help@other_bot")
    [receipt] = await harness.wait_receipts()
    assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, "a command for another bot")


async def test_an_administrator_may_mute_and_others_may_not(harness: TelegramHarness) -> None:
    alice, olga = harness.people.add_user("Alice"), harness.people.add_user("Olga")
    group = harness.people.add_group("The group", alice, owner=olga)
    harness.people.say(group, alice, "/mute")
    refused = (await harness.wait_texts(1, group))[0]
    harness.people.say(group, olga, "/mute")
    done = (await harness.wait_texts(2, group))[1]
    assert refused != done
    harness.people.say(group, alice, "Anybody here?")
    assert [item.rule for item in await harness.wait_receipts()] == ["MUTED"]


async def test_a_message_in_a_chat_that_is_not_allowed_gets_a_receipt_and_no_answer(open_harness: OpenHarness) -> None:
    async with open_harness(settings={"TELEGRAM_ALLOWED_CHATS": "-100555,@quay"}) as harness:
        alice = harness.people.add_user("Alice")
        quay = harness.people.add_group("The quay", alice, username="Quay")
        harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
        harness.people.say(quay, alice, "Hello @ada_bot")
        denied, answered = await harness.wait_receipts()
    assert (denied.outcome, denied.rule) == (Outcome.IGNORED, "TELEGRAM_ALLOWED_CHATS")
    assert answered.outcome is Outcome.ANSWERED


async def test_a_room_rule_of_the_character_file_is_followed(open_harness: OpenHarness) -> None:
    rules = {"telegram": {"rooms": {"*": {"answers": "mentions"}, "@quiet": {"answers": "ignore"}}}}
    async with open_harness(rules=rules) as harness:
        alice = harness.people.add_user("Alice")
        group = harness.people.add_group("The group", alice)
        quiet = harness.people.add_group("Quiet", alice, username="quiet")
        harness.people.say(quiet, alice, "@ada_bot psst")
        harness.people.say(group, alice, "not for the bot")
        harness.people.say(group, alice, "@ada_bot for you")
        ignored, answered = await harness.wait_receipts()
    assert (ignored.outcome, answered.outcome) == (Outcome.IGNORED, Outcome.ANSWERED)
    assert "rooms" in ignored.rule


@pytest.mark.failure("B-13")
async def test_a_reaction_is_stored_once(open_harness: OpenHarness) -> None:
    heard = []

    @on(ReactionReceived)
    async def note(agent: Agent, event: Any) -> None:
        heard.append(event.reaction.content.text)

    async with open_harness(plugins=(Plugin("watch", listeners=[note]),)) as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        message = harness.people.say(chat, alice, "Hello")
        harness.people.react(message, alice, "👍")
        harness.people.react(message, alice, "👍", "🎉", old_emojis=["👍"])
        harness.people.react(message, alice, "👍")
        harness.people.react({**message, "message_id": 77}, alice, "👍")
        await harness.wait_receipts()
    assert heard == ["👍", "🎉", "👍"]


@pytest.mark.failure("B-13")
async def test_removing_a_reaction_deletes_only_that_reaction(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    message = harness.people.say(chat, alice, "Hello")
    harness.people.react(message, alice, "👍", "🎉")
    harness.people.react(message, alice, "🎉", old_emojis=["👍", "🎉"])
    await harness.wait_receipts()
    left = await harness.store.memories.recent(room(chat), 10, kind=MemoryKind.REACTION)
    assert [item.content.text for item in left] == ["🎉"]


async def test_a_user_who_joins_is_reported_once(open_harness: OpenHarness) -> None:
    came = []

    @on(EntityJoined)
    async def note(agent: Agent, event: Any) -> None:
        came.append(event)

    async with open_harness(plugins=(Plugin("watch", listeners=[note]),)) as harness:
        alice, bob = harness.people.add_user("Alice"), harness.people.add_user("Bob")
        group = harness.people.add_group("The group", alice)
        harness.people.say(group, bob, new_chat_members=[bob])
        harness.people.change_member(group, bob, "member")
        harness.people.say(group, alice, "@ada_bot hello")
        await harness.wait_receipts()
        await harness.wait_texts(1, group)
    assert len(came) == 1


async def test_after_a_promotion_administrators_are_asked_for_once_and_may_give_commands_at_once(
    harness: TelegramHarness,
) -> None:
    alice, bob = harness.people.add_user("Alice"), harness.people.add_user("Bob")
    group = harness.people.add_group("The group", bob, owner=alice)
    harness.people.say(group, alice, "@ada_bot hello")
    await harness.wait_texts(1, group)
    harness.people.change_member(group, bob, "administrator", actor=alice)  # one batch of updates with the commands
    harness.people.say(group, alice, "/mute")
    harness.people.say(group, bob, "/unmute")
    muted, unmuted = (await harness.wait_texts(3, group))[1:]
    assert "/unmute to end this" in muted
    assert "here again" in unmuted
    await harness.wait_confirmed()
    harness.people.say(group, alice, "@ada_bot hello again")
    await harness.wait_texts(4, group)
    asked = harness.telegram.recorder.calls_of("getChatAdministrators")
    assert len(asked) == 2, "once for the group and once for the change"


@pytest.mark.failure("B-11")
async def test_a_removed_bot_stops_sending_and_resumes_when_readmitted(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    group = harness.people.add_group("The group", alice)
    harness.people.say(group, alice, "@ada_bot hello")
    await harness.wait_texts(1, group)
    harness.people.change_member(group, harness.bot.user, "kicked", actor=alice)
    await harness.wait_confirmed()
    harness.people.change_member(group, harness.bot.user, "member", actor=alice)
    harness.people.say(group, alice, "@ada_bot again")
    assert (await harness.wait_texts(2, group))[1] == "You said: @ada_bot again"


async def test_an_anonymous_administrator_and_a_channel_are_entities(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    group = harness.people.add_group("The group", alice)
    unnamed = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}
    channel = {"id": -1009000, "type": "channel", "title": "News"}
    harness.people.say(group, unnamed, "@ada_bot from the board", sender_chat=dict(group))
    harness.people.say(group, unnamed, "@ada_bot from the channel", sender_chat=channel)
    first, second = await harness.wait_receipts()
    assert first.outcome is not Outcome.IGNORED
    world = await harness.store.worlds.world((await harness.store.worlds.room(room(group))).world_id)
    assert world.role_of(first.author_id) is Role.ADMIN
    assert world.role_of(second.author_id) is Role.MEMBER


async def test_a_voice_message_is_transcribed_and_answered(open_harness: OpenHarness) -> None:
    @model(ModelType.TRANSCRIPTION)
    async def listen(agent: Agent, request: TranscriptionRequest) -> TextResult:
        assert request.audio == b"OggS\0 sound"
        return TextResult("what the recording says", "ear", Usage())

    def script(request: TextRequest) -> str:
        return model_answer("I hear you." if "what the recording says" in request.prompt else "Pardon?")

    async with open_harness(script, plugins=(Plugin("ear", models=[listen]),)) as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        voice = harness.people.store_file(b"OggS\0 sound", duration=3, mime_type="audio/ogg")
        harness.people.say(chat, alice, voice=voice)
        assert await harness.wait_texts(1, chat) == ["I hear you."]


@pytest.mark.long
async def test_a_streamed_reply_ends_as_a_single_message(open_harness: OpenHarness) -> None:
    go = asyncio.Event()
    reply = [StreamedText("<response><actions>REPLY</actions><text>**Once** upon", go, " a time.</text></response>")]
    async with open_harness(reply, settings={"STREAMING": "true"}) as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        harness.people.say(chat, alice, "Tell me")
        first = (await harness.wait_texts(1, chat))[0]
        assert first.startswith("Once")
        go.set()
        await harness.telegram.recorder.wait_until(lambda: harness.telegram.recorder.texts() == ["Once upon a time."])
        [shown] = harness.telegram.recorder.messages
        assert len(shown.texts) >= 2


async def test_a_bug_in_a_command_does_not_block_later_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*args: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(CommandHandler, "handle", fail)
    async with run_harness() as harness:
        alice = harness.people.add_user("Alice")
        chat = harness.people.open_private_chat(alice)
        harness.people.say(chat, alice, "/help")
        harness.people.say(chat, alice, "Hello")
        assert await harness.wait_texts(1) == ["You said: Hello"]


@pytest.mark.long
async def test_memory_follows_corrections_and_keeps_people_and_rooms_apart() -> None:
    model = RememberingModel()
    async with run_harness(model, settings=SETTINGS) as harness:
        people = [harness.people.add_user("Sam"), harness.people.add_user("Sam")]
        group = harness.people.add_group("The group", *people)
        private = [harness.people.open_private_chat(person) for person in people]

        async def say(number: int, text: str, chat: Mapping[str, Any] = group) -> None:
            sent = len(harness.telegram.recorder.texts(chat["id"]))
            harness.people.say(dict(chat), people[number], f"@ada_bot {text}")
            await harness.wait_texts(sent + 1, chat)

        await check_memory(model, say, lambda number, text: say(number, text, private[number]))
        sent = len(harness.telegram.recorder.texts(group["id"]))
        harness.people.say(group, people[0], "/what_do_you_know_about_me")
        answer = (await harness.wait_texts(sent + 1, group))[-1]
        assert "Townnew" in answer
        assert "Townold" not in answer
        assert "Townhidden" not in answer


@pytest.mark.parametrize("is_before", [True, False], ids=["forwarded before", "forwarded after"])
async def test_a_forward_of_a_person_who_is_forgotten_is_not_kept(harness: TelegramHarness, is_before: bool) -> None:
    secret = "the key lies under the mat"
    alice, bob = harness.people.add_user("Alice"), harness.people.add_user("Bob")
    group = harness.people.add_group("The group", alice, bob)
    erase = harness.runtime.agents[0].handle.edits.erase_entity
    written = int(START.timestamp()) - 60
    origin = {"type": "user", "date": written, "sender_user": alice}
    if not is_before:
        harness.people.say(group, alice, "@ada_bot hello")
        await harness.wait_receipts()
        await erase(derive_user_id(alice["id"]))
    forward = harness.people.say(group, bob, secret, forward_origin=origin)
    harness.people.say(group, bob, "@ada_bot is that so?", reply_to=forward)
    receipts = await harness.wait_receipts()
    if is_before:
        await erase(derive_user_id(alice["id"]))
    kept = await harness.store.memories.recent(receipts[-1].room_id, 50)
    kept = [memory for memory in kept if memory.entity_id == derive_user_id(bob["id"])]
    assert secret not in str(kept)
    assert "Alice" not in str(kept)
    assert any("is that so?" in memory.content.text for memory in kept)


async def test_a_new_reply_to_an_old_message_of_a_forgotten_person_does_not_store_it_again(
    harness: TelegramHarness,
) -> None:
    alice, bob = harness.people.add_user("Alice"), harness.people.add_user("Bob")
    group = harness.people.add_group("The group", alice, bob)
    old = harness.people.say(group, alice, "the key lies under the mat")
    await harness.wait_receipts()
    await harness.runtime.agents[0].handle.edits.erase_entity(derive_user_id(alice["id"]))
    reply = harness.people.say(group, bob, "@ada_bot is that so?", reply_to=old)
    await harness.wait_receipts()
    harness.people.edit(reply, "@ada_bot is that true?")
    new = harness.people.say(group, alice, "the key lies on the table")
    harness.people.say(group, bob, "@ada_bot and that?", reply_to=new)
    receipts = await harness.wait_receipts()
    memories = await harness.store.memories.recent(receipts[-1].room_id, 50)
    quoted = [memory.content.quotation.text for memory in memories if memory.content.quotation is not None]
    assert quoted == ["the key lies on the table"]
    assert "under the mat" not in str(memories)
    assert "under the mat" not in harness.model.requests[-1].prompt


@pytest.mark.parametrize("is_announced", [True, False], ids=["announced", "known from an error"])
async def test_a_rule_for_a_group_holds_for_its_supergroup_also_after_a_restart(is_announced: bool) -> None:
    store = InMemoryStore()
    async with Emulator(find_problems=description()) as telegram:
        async with run_character(telegram, store=store) as harness:
            alice = harness.people.add_user("Alice")
            group = harness.people.add_group("The group", alice)
            other = harness.people.add_group("Another group", alice)
        settings, begun, go = {"TELEGRAM_ALLOWED_CHATS": str(group["id"])}, asyncio.Event(), asyncio.Event()

        async def answer(request: TextRequest) -> str:
            begun.set()
            await go.wait()
            return echo(request)

        async with run_character(telegram, answer, store=store, settings=settings) as harness:
            if is_announced:
                new = harness.people.migrate(group, alice)
                go.set()
            else:
                harness.people.say(group, alice, "@ada_bot hello")
                await begun.wait()
                new = harness.people.migrate(group, alice, is_announced=False)
                go.set()
                await harness.wait_deliveries()
            harness.people.say(new, alice, "@ada_bot still here?")
            await harness.telegram.recorder.wait_until(
                lambda: "You said: @ada_bot still here?" in telegram.recorder.texts(new["id"])
            )
        async with run_character(telegram, store=store, settings=settings) as harness:
            harness.people.say(other, alice, "@ada_bot hello")
            harness.people.say(new, alice, "@ada_bot and now?")
            await harness.telegram.recorder.wait_until(
                lambda: "You said: @ada_bot and now?" in telegram.recorder.texts(new["id"])
            )
            await harness.wait_receipts()
    assert telegram.recorder.texts(other["id"]) == []


async def test_a_reaction_in_a_topic_is_stored_there_also_after_a_restart() -> None:
    store = InMemoryStore()
    async with Emulator(find_problems=description()) as telegram:
        async with run_character(telegram, store=store) as harness:
            alice = harness.people.add_user("Alice")
            forum = harness.people.add_group("The forum", alice, is_forum=True)
            topic = harness.people.add_topic(forum, alice, "Boats")
            asked = harness.people.say(forum, alice, "@ada_bot hello", thread=topic)
            await harness.wait_texts(1, forum)
            general = harness.people.say(forum, alice, "@ada_bot hello")
            await harness.wait_texts(2, forum)
            await harness.wait_deliveries()
            answer = telegram.recorder.messages[0].message
        async with run_character(telegram, store=store) as harness:
            for message in (asked, answer, general):
                harness.people.react(message, alice, "👍")
            await harness.wait_confirmed()
            stored = [
                len(await store.memories.recent(room(forum, thread), 50, kind=MemoryKind.REACTION))
                for thread in (topic, None)
            ]
    assert stored == [2, 1]


async def test_a_command_that_is_delivered_again_is_neither_run_nor_answered_again() -> None:
    runs: list[str] = []

    @command("count", "Count.")
    async def count(context: CommandContext) -> str:
        runs.append(context.invocation.event_id)
        return f"This is run {len(runs)}."

    store, plugins = InMemoryStore(), (Plugin("counting", commands=[count]),)
    async with Emulator() as telegram:
        async with run_character(telegram, store=store, plugins=plugins) as harness:
            alice = harness.people.add_user("Alice")
            chat = harness.people.open_private_chat(alice)
            message = harness.people.say(chat, alice, "/count")
            assert await harness.wait_texts(1) == ["This is run 1."]
            await harness.wait_confirmed()
            harness.telegram.state.enqueue(harness.bot, {"update_id": harness.bot.next_update, "message": message})
            harness.bot.next_update += 1
            await harness.wait_confirmed()
        async with run_character(telegram, store=store, plugins=plugins) as harness:
            harness.telegram.state.enqueue(harness.bot, {"update_id": harness.bot.next_update, "message": message})
            harness.bot.next_update += 1
            harness.people.say(chat, alice, "/count")
            assert await harness.wait_texts(2) == ["This is run 1.", "This is run 2."]
            await harness.wait_confirmed()
    assert len(runs) == 2


async def test_a_press_that_is_delivered_again_is_answered_once(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    harness.people.say(chat, alice, "Hello")
    await harness.wait_texts(1)
    query_id = harness.people.press(harness.telegram.recorder.messages[0].message, alice, "no such choice")
    [(_, update)] = [item for item in harness.bot.queue if "callback_query" in item[1]]
    await harness.wait_confirmed()
    harness.telegram.state.enqueue(harness.bot, {**update, "update_id": harness.bot.next_update})
    harness.bot.next_update += 1
    await harness.wait_confirmed()
    assert list(harness.telegram.recorder.alerts) == [query_id]
    assert harness.telegram.recorder.counts["answerCallbackQuery"] == 1


async def test_a_command_whose_answer_could_not_be_sent_is_answered_when_it_is_delivered_again() -> None:
    async with Emulator() as telegram, run_character(telegram) as harness:
        telegram.faults.append(Fault("sendMessage", 500, "x"))
        alice = harness.people.add_user("Alice")
        message = harness.people.say(harness.people.open_private_chat(alice), alice, "/help")
        await telegram.recorder.wait_until(lambda: telegram.recorder.counts["sendMessage"] == 1)
        await harness.wait_confirmed()
        telegram.state.enqueue(harness.bot, {"update_id": harness.bot.next_update, "message": message})
        harness.bot.next_update += 1
        [text] = await harness.wait_texts(1)
        assert "/help" in text


async def test_why_after_a_command_names_the_command(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    chat = harness.people.open_private_chat(alice)
    for number, (text, expected) in enumerate(
        [
            ("/start", ""),
            ("/why", "/start"),
            ("Hello", ""),
            ("/why", "direct message"),
            ("/responsiveness", ""),
            ("/why", "/responsiveness"),
            ("/why", "/responsiveness"),
        ],
        1,
    ):
        harness.people.say(chat, alice, text)
        texts = await harness.wait_texts(number)
        await harness.wait_receipts()
        assert expected in texts[-1]
        assert "silent" not in texts[-1] or text != "/why"
