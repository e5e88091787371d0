"""Threads that the bot opens on Discord: at a message, once, with its answer inside; and what is refused."""

import asyncio

import pytest

from adapters.discord.emulator.state import FORUM, NEWS, NEWS_THREAD, THREAD, VOICE
from bot import Outcome
from bot.models import Purpose, TextRequest
from bot.platform import DeliveryKind, DeliveryState
from bot.testing import ScriptedModel, model_answer
from tests.adapters.discord.server import EmulatedServer, receipts


def answer(request: TextRequest) -> str:
    """Answer the first message with a thread, and any other with words."""
    if request.purpose is Purpose.SUMMARY:
        return model_answer("It did not work.")
    if "and now" in request.prompt:
        return model_answer("Now it runs.")
    return model_answer("Here we go.", actions=["REPLY", "OPEN_THREAD"], parameters={"name": f"The {'engine ' * 30}"})


async def ask(server: EmulatedServer, channel: str, person: str = "") -> str:
    text = f"{server.call} let's take this to a thread"
    return await server.emulator.people.say(channel, person or server.kim, text)


def conversations(model: ScriptedModel) -> list[str]:
    """Return the conversation in each prompt for a reply."""
    return [request.prompt.partition("# Conversation")[2] for request in model.requests_for(Purpose.REPLY)]


@pytest.mark.parametrize(("kind", "expected"), [(0, THREAD), (NEWS, NEWS_THREAD)], ids=["text", "news"])
async def test_the_answer_continues_in_a_thread_of_the_message(
    server: EmulatedServer, kind: int, expected: int
) -> None:
    emulator = server.emulator
    channel = emulator.state.add_channel(server.guild, "workshop", kind)
    model = ScriptedModel(answer)
    async with server.run_bot(model) as (harness, _):
        message_id = await ask(server, channel)
        await emulator.recorder.wait_until(lambda: emulator.recorder.texts() == ["Here we go."], 10)
        thread = emulator.state.channels[message_id]
        assert (thread["type"], thread["parent_id"]) == (expected, channel)
        assert len(thread["name"]) <= 100
        assert thread["name"].endswith("…")
        assert emulator.recorder.messages[0].room == message_id
        await emulator.people.say(message_id, server.kim, f"{server.call} and now?")
        await emulator.recorder.wait_until(lambda: len(emulator.recorder.texts()) == 2, 10)
        first, second = await receipts(harness)
        rooms = [await harness.agent.store.worlds.room(receipt.room_id) for receipt in (first, second)]
    assert emulator.recorder.messages[1].room == message_id
    assert [room.parent_id for room in rooms if room is not None] == [None, first.room_id]
    assert [first.outcome, second.outcome] == [Outcome.ANSWERED] * 2
    assert conversations(model)[1].index("take this to a thread") < conversations(model)[1].index("Here we go.")


async def test_the_prompt_in_a_thread_begins_with_the_message_at_which_it_was_opened(server: EmulatedServer) -> None:
    people, recorder, model = server.emulator.people, server.emulator.recorder, ScriptedModel(model_answer("Aye."))

    async def ask_in_thread(message_id: str, count: int) -> None:
        thread = await people.open_channel(server.guild, "by Robin", THREAD, server.lobby, message_id=message_id)
        await people.say(thread, server.robin, f"{server.call} and in here?")
        await recorder.wait_until(lambda: len(recorder.texts()) == count, 10)

    async with server.run_bot(model) as (harness, _):
        await people.say(server.lobby, server.kim, "Good morning.")
        question = await people.say(server.lobby, server.kim, f"{server.call} how old is the engine?")
        await recorder.wait_until(lambda: len(recorder.texts()) == 1, 10)
        await ask_in_thread(question, 2)
        await ask_in_thread(recorder.messages[0].id, 3)
        thread = await people.open_channel(server.guild, "of no message", THREAD, server.lobby)
        await people.say(thread, server.robin, f"{server.call} and in this one?")
        await recorder.wait_until(lambda: len(recorder.texts()) == 4, 10)
        await receipts(harness)
    at_question, at_answer, at_none = conversations(model)[-3:]
    assert at_question.index("how old is the engine?") < at_question.index("and in here?")
    assert at_answer.index("Aye.") < at_answer.index("and in here?")
    assert "how old" not in at_answer
    assert "Good morning." not in at_question + at_answer + at_none
    assert "how old" not in at_none


async def test_a_message_that_has_a_thread_already_is_answered_in_it(server: EmulatedServer) -> None:
    emulator = server.emulator
    async with server.run_bot(ScriptedModel(answer)) as (harness, _):
        message_id = await emulator.people.say(server.lobby, server.kim, f"{server.call} a thread", is_announced=False)
        emulator.state.add_channel(server.guild, "by Robin", THREAD, server.lobby, message_id=message_id)
        await emulator.gateway.dispatch_event("MESSAGE_CREATE", emulator.state.messages[server.lobby][message_id])
        await emulator.recorder.wait_until(lambda: emulator.recorder.texts() == ["Here we go."], 10)
        await receipts(harness)
    assert emulator.recorder.messages[0].room == message_id
    assert emulator.state.channels[message_id]["name"] == "by Robin"


async def test_without_the_permission_it_is_reported_and_the_answer_stays_in_the_channel(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    emulator = server.emulator
    emulator.rest.denied[server.lobby].add("CREATE_PUBLIC_THREADS")
    async with server.run_bot(ScriptedModel(answer)) as (harness, _):
        await ask(server, server.lobby)
        await emulator.recorder.wait_until(lambda: emulator.recorder.texts() == ["It did not work."], 10)
        [receipt] = await receipts(harness)
        await harness.agent.outbox.drain(10)
        assert receipt.turn_id is not None
        parts = await harness.agent.store.ledger.deliveries(turn_id=receipt.turn_id)
    assert emulator.recorder.messages[0].room == server.lobby
    states = {part.kind: part.state for part in parts}
    assert states == {DeliveryKind.THREAD: DeliveryState.FAILED, DeliveryKind.REPLY: DeliveryState.SENT}
    assert "give it the permission Create Public Threads" in caplog.text
    assert any("Create Public Threads" in note for note in receipt.notes)


async def test_where_the_message_was_deleted_no_thread_is_opened(server: EmulatedServer) -> None:
    emulator = server.emulator

    async def delete_first(request: TextRequest) -> str:
        emulator.state.messages[server.lobby].clear()
        return answer(request)

    async with server.run_bot(ScriptedModel(delete_first)) as (harness, _):
        await ask(server, server.lobby)
        await emulator.recorder.wait_until(lambda: emulator.recorder.texts() == ["It did not work."], 10)
        [receipt] = await receipts(harness)
    assert any("the message was deleted in the channel" in note for note in receipt.notes)


@pytest.mark.parametrize("place", ["thread", "post", "voice", "direct"])
async def test_where_discord_has_no_threads_of_messages_none_is_offered(server: EmulatedServer, place: str) -> None:
    emulator, state = server.emulator, server.emulator.state
    forum = state.add_channel(server.guild, "questions", FORUM)
    channel = {
        "thread": lambda: state.add_channel(server.guild, "old", THREAD, server.lobby),
        "post": lambda: state.add_channel(server.guild, "a question", THREAD, forum),
        "voice": lambda: state.add_channel(server.guild, "stage", VOICE),
        "direct": lambda: server.direct(server.kim),
    }[place]()
    async with server.run_bot(ScriptedModel(answer)) as (harness, _):
        await ask(server, channel)
        await emulator.recorder.wait_until(lambda: emulator.recorder.texts() == ["It did not work."], 10)
        await receipts(harness)
        assert not any("OPEN_THREAD" in request.prompt for request in harness.model.requests_for(Purpose.REPLY))
    assert emulator.recorder.counts["opened"] == 0


async def test_help_lists_no_commands_of_an_account_with_a_single_character(server: EmulatedServer) -> None:
    recorder = server.emulator.recorder
    async with server.run_bot():
        interaction = await server.emulator.interactions.run_command(server.bot, server.kim, server.lobby, "help")
        await recorder.wait_until(lambda: recorder.counts["answered"] == 1, 10)
    assert "/talk" not in recorder.responses[interaction][0]["content"]


async def test_a_member_without_a_role_gets_a_thread_only_where_an_admin_allows_it(server: EmulatedServer) -> None:
    emulator = server.emulator
    async with server.run_bot(ScriptedModel(answer)) as (harness, _):
        await ask(server, server.lobby, server.robin)
        await emulator.recorder.wait_until(lambda: len(emulator.recorder.texts()) == 1, 10)
        assert emulator.recorder.counts["opened"] == 0
        options = {"action": "set", "key": "threads", "value": "on"}
        await emulator.interactions.run_command(server.bot, server.kim, server.lobby, "room", **options)
        await emulator.recorder.wait_until(lambda: emulator.recorder.counts["answered"] == 1, 10)
        await ask(server, server.lobby, server.robin)
        await emulator.recorder.wait_until(lambda: len(emulator.recorder.texts()) == 2, 10)
        await receipts(harness)
    assert emulator.recorder.counts["opened"] == 1


# Reactions of the bot on Discord: emoji of Discord and of the server, replaced, removed, refused.


def react(emoji: str) -> str:
    return model_answer(actions=["REACT"], parameters={"emoji": emoji})


@pytest.mark.parametrize("emoji", ["👍", "❤️", ":party_cat:"])
async def test_the_bot_reacts_with_an_emoji_of_discord_or_of_the_server(server: EmulatedServer, emoji: str) -> None:
    emulator = server.emulator
    custom = emulator.state.add_emoji(server.guild, "party_cat")
    async with server.run_bot(ScriptedModel(react(emoji))) as (harness, _):
        message_id = await emulator.people.say(server.lobby, server.kim, f"{server.call} thank you")
        await emulator.recorder.wait_until(lambda: emulator.recorder.counts["reacted"] == 1, 10)
        [receipt] = await receipts(harness)
    assert receipt.outcome is Outcome.ANSWERED
    shown = custom if emoji.startswith(":") else emoji
    assert emulator.state.reactions[message_id] == {shown: (server.bot,)}
    assert emulator.recorder.texts() == []


async def test_prompts_name_the_emoji_of_the_server(server: EmulatedServer) -> None:
    server.emulator.state.add_emoji(server.guild, "party_cat")
    prompts: asyncio.Queue[str] = asyncio.Queue()

    async def decide(request: TextRequest) -> str:
        prompts.put_nowait(request.prompt)
        return "<response><action>IGNORE</action></response>"

    async with server.run_bot(ScriptedModel(decide)):
        await server.emulator.people.say(server.lobby, server.kim, "good news")
        assert "any emoji, or of this server :party_cat:" in await asyncio.wait_for(prompts.get(), 10)


@pytest.mark.usefixtures("immediate_edits")
@pytest.mark.parametrize(("second", "expected"), [("🔥", {"👍": (), "🔥": 1}), ("", {"👍": ()})])
async def test_the_answer_to_an_edit_replaces_or_removes_the_reaction(
    server: EmulatedServer, second: str, expected: dict[str, object]
) -> None:
    emulator = server.emulator
    model = ScriptedModel([react("👍"), react(second) if second else model_answer("Oh no.")])
    async with server.run_bot(model, settings={"ON_EDIT": "rerun"}) as (harness, _):
        message_id = await emulator.people.say(server.lobby, server.kim, f"{server.call} it works")
        await emulator.recorder.wait_until(lambda: emulator.recorder.counts["reacted"] == 1, 10)
        await emulator.people.edit(server.lobby, message_id, f"{server.call} it does not work")
        await emulator.recorder.wait_until(lambda: emulator.recorder.counts["unreacted"] == 1, 10)
        await receipts(harness)
    shown = {emoji: (server.bot,) if users else () for emoji, users in expected.items()}
    assert emulator.state.reactions[message_id] == shown
    assert emulator.recorder.texts() == ([] if second else ["Oh no."])


@pytest.mark.parametrize(
    ("is_gone", "state"), [(False, DeliveryState.FAILED), (True, DeliveryState.CANCELLED)], ids=["refused", "gone"]
)
async def test_a_reaction_that_discord_refuses_is_recorded_and_nothing_is_said(
    server: EmulatedServer, is_gone: bool, state: DeliveryState
) -> None:
    emulator, asked = server.emulator, asyncio.Event()
    emulator.rest.denied[server.lobby].add("ADD_REACTIONS")

    async def answer(request: TextRequest) -> str:
        if is_gone:
            emulator.state.messages[server.lobby].clear()
        asked.set()
        return react("👍")

    async with server.run_bot(ScriptedModel(answer)) as (harness, _):
        await emulator.people.say(server.lobby, server.kim, f"{server.call} thank you")
        await asyncio.wait_for(asked.wait(), 10)
        [receipt] = await receipts(harness)
        await harness.agent.outbox.drain(10)
        assert receipt.turn_id is not None
        [delivery] = await harness.agent.store.ledger.deliveries(turn_id=receipt.turn_id)
    assert delivery.state is state
    assert emulator.recorder.texts() == []
