"""Edits and deletions that were missed are found with the missed messages, and deleted text leaves the prompts."""

import asyncio
from datetime import timedelta

import pytest

from adapters.discord.emulator import Fault
from adapters.discord.emulator.state import THREAD
from adapters.discord.sharding import WHOLE_ACCOUNT
from bot import Outcome, system_clock
from bot.events import WorldLeft
from bot.models import Purpose
from bot.store import InMemoryStore
from bot.testing import AgentHarness, ScriptedModel, model_answer
from tests.adapters.discord.server import LIMITS, EmulatedServer, receipts

READ_MESSAGE_HISTORY = str(1 << 16)


async def say_before(server: EmulatedServer, channel: str, *texts: str) -> tuple[InMemoryStore, list[str]]:
    """Send a message to the bot, and end the session; return the store and the ids of the messages."""
    store, ids, recorder = InMemoryStore(), list[str](), server.emulator.recorder
    async with server.run_bot(store=store) as (harness, _):
        for count, text in enumerate(texts, 1):
            ids.append(await server.emulator.people.say(channel, server.kim, f"{server.call} {text}"))
            await recorder.wait_for_texts(count)
        await receipts(harness)
    server.emulator.gateway.sessions.clear()
    return store, ids


async def ask(server: EmulatedServer, channel: str, model: ScriptedModel) -> str:
    """Ask once more; return the prompt that the answer was written from."""
    count = len(server.emulator.recorder.texts())
    await server.emulator.people.say(channel, server.kim, f"{server.call} what now?")
    await server.emulator.recorder.wait_for_texts(count + 1)
    return model.requests_for(Purpose.REPLY)[-1].prompt


async def texts(harness: AgentHarness) -> list[str]:
    """Return the texts of the messages of the room in which there was one last."""
    [newest, *_] = await harness.agent.store.ledger.receipts(limit=1)
    return [item.content.text for item in await harness.agent.store.memories.recent(newest.room_id, 20)]


@pytest.mark.parametrize("is_direct", [False, True])
async def test_what_was_edited_or_deleted_while_the_bot_was_off_leaves_the_prompts(
    server: EmulatedServer, is_direct: bool
) -> None:
    channel = server.direct(server.kim) if is_direct else server.lobby
    store, [edited, deleted] = await say_before(server, channel, "the code is PLUM", "my address is 1 Quay Road")
    await server.emulator.people.edit(channel, edited, f"{server.call} the code is secret")
    await server.emulator.people.delete(channel, deleted)
    model = ScriptedModel(model_answer("Aye."))
    async with server.run_bot(model, store=store) as (harness, _):
        prompt = await ask(server, channel, model)
        assert len(await receipts(harness)) == 4
    assert "PLUM" not in prompt
    assert "the code is secret" in prompt
    assert "Quay Road" not in prompt


async def test_a_deleted_answer_of_the_bot_leaves_the_prompts(server: EmulatedServer) -> None:
    store, _ = await say_before(server, server.lobby, "ahoy")
    await server.emulator.people.delete(server.lobby, server.emulator.recorder.messages[0].id)
    model = ScriptedModel(model_answer("Again."))
    async with server.run_bot(model, store=store):
        assert "Aye." not in await ask(server, server.lobby, model)


async def test_a_channel_from_which_everything_was_deleted_is_empty(server: EmulatedServer) -> None:
    store, ids = await say_before(server, server.lobby, "ahoy", "again")
    answers = [shown.id for shown in server.emulator.recorder.messages]
    await server.emulator.people.delete(server.lobby, *ids, *answers)
    async with server.run_bot(store=store) as (harness, _):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} anybody?")
        await server.emulator.recorder.wait_for_texts(3)
        await receipts(harness)
        assert await texts(harness) == ["@Ada anybody?", "Aye."]


@pytest.mark.parametrize("is_refused", [True, False])
async def test_a_channel_that_the_bot_may_no_longer_read_keeps_its_messages(
    server: EmulatedServer, is_refused: bool
) -> None:
    store, _ = await say_before(server, server.lobby, "ahoy")
    if is_refused:
        fault = Fault(rf"GET .*/{server.lobby}/messages", 403, {"message": "Missing Access", "code": 50001})
        server.emulator.faults.append(fault)
    else:
        server.emulator.rest.denied[server.lobby] = {"READ_MESSAGE_HISTORY"}
        overwrite = {"id": server.guild, "type": 0, "allow": "0", "deny": READ_MESSAGE_HISTORY}
        server.emulator.state.channels[server.lobby]["permission_overwrites"] = [overwrite]
    async with server.run_bot(store=store) as (harness, _):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} still there?")
        await server.emulator.recorder.wait_for_texts(2)
        assert "@Ada ahoy" in await texts(harness)


@pytest.mark.long
async def test_what_is_older_than_the_messages_that_are_read_is_no_deletion(server: EmulatedServer) -> None:
    store, _ = await say_before(server, server.lobby, "ahoy")
    for number in range(LIMITS.history_limit):
        await server.emulator.people.say(server.lobby, server.robin, f"number {number}", is_announced=False)
    async with server.run_bot(store=store, settings={"DISCORD_LISTEN_CHANNEL_IDS": server.lobby}) as (harness, _):
        await server.emulator.people.say(server.direct(server.kim), server.kim, "ahoy")
        await server.emulator.recorder.wait_for_texts(2)
        all_receipts = await receipts(harness)
        memories = await harness.agent.store.memories.recent(all_receipts[0].room_id, 200)
    assert memories[0].content.text == "@Ada ahoy"


@pytest.mark.parametrize(
    ("later", "answers"), [(timedelta(minutes=2), ["Aye."]), (timedelta(hours=2), [])], ids=["recent", "old"]
)
async def test_an_edit_that_was_missed_is_answered_only_if_the_message_is_recent(
    server: EmulatedServer, later: timedelta, answers: list[str]
) -> None:
    store, now = InMemoryStore(), system_clock() + later
    async with server.run_bot(store=store, settings={"DISCORD_SHOULD_RESPOND_ONLY_TO_MENTIONS": "true"}) as (
        harness,
        _,
    ):
        edited = await server.emulator.people.say(server.lobby, server.kim, "nothing for the bot")
        await server.emulator.people.say(server.direct(server.kim), server.kim, "ahoy")
        await server.emulator.recorder.wait_for_texts(1)
        assert (await receipts(harness))[0].outcome is Outcome.IGNORED
    server.emulator.gateway.sessions.clear()
    server.emulator.state.clock = lambda: now
    await server.emulator.people.edit(server.lobby, edited, f"{server.call} are you there?")
    async with server.run_bot(store=store, clock=lambda: now) as (harness, _):
        other = server.direct(server.robin)
        await server.emulator.people.say(other, server.robin, "ahoy")
        await server.emulator.recorder.wait_for_texts(1, other)
        [receipt] = [item for item in await receipts(harness) if item.key.event_id.startswith(f"MU:{edited}")]
        memories = await harness.agent.store.memories.recent(receipt.room_id, 20)
    assert [item.content.text for item in memories] == ["@Ada are you there?", *answers]
    assert server.emulator.recorder.texts(server.lobby) == answers


async def test_a_server_that_was_unavailable_is_read_when_it_is_back(server: EmulatedServer) -> None:
    store, [deleted] = await say_before(server, server.lobby, "before")
    gateway, people = server.emulator.gateway, server.emulator.people
    async with server.run_bot(store=store) as (harness, _):
        await gateway.dispatch_event("GUILD_DELETE", {"id": server.guild, "unavailable": True})
        await people.say(server.lobby, server.kim, f"{server.call} during", is_announced=False)
        server.emulator.state.messages[server.lobby].pop(deleted)
        await gateway.dispatch_event("GUILD_CREATE", server.emulator.state.to_guild_create(server.guild, server.bot))
        assert await server.emulator.recorder.wait_for_texts(2) == ["Aye.", "Aye."]
        await receipts(harness)
        assert "@Ada before" not in await texts(harness)


async def first_session(server: EmulatedServer) -> InMemoryStore:
    """Send a message to the bot, and end the process; return the store, with which the session is resumed."""
    store = InMemoryStore()
    async with server.run_bot(store=store) as (harness, _):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} before")
        await server.emulator.recorder.wait_for_texts(1)
        await receipts(harness)
    return store


async def test_after_a_session_is_resumed_at_the_start_servers_and_threads_are_known(server: EmulatedServer) -> None:
    thread = server.emulator.state.add_channel(server.guild, "news", THREAD, server.lobby)
    store = await first_session(server)
    async with server.run_bot(store=store) as (_, adapter):
        [account] = adapter.accounts
        client = account.shards[WHOLE_ACCOUNT].client
        await server.emulator.recorder.wait_until(
            lambda: any(path.endswith("/threads/active") for _, path, _ in server.emulator.recorder.requests)
        )
        direct = server.direct(server.kim)
        await server.emulator.people.say(direct, server.kim, "ahoy")
        await server.emulator.recorder.wait_for_texts(1, direct)
        guild = client.get_guild(int(server.guild))
        assert guild is not None
        assert guild.get_channel(int(server.lobby)) is not None
        assert guild.get_thread(int(thread)) is not None
    assert server.emulator.recorder.counts["resume"] == 1


async def test_a_thread_of_an_allowed_channel_is_answered_after_a_resume(server: EmulatedServer) -> None:
    thread = server.emulator.state.add_channel(server.guild, "news", THREAD, server.lobby)
    store = await first_session(server)
    await server.emulator.people.say(thread, server.kim, f"{server.call} in the thread")
    async with server.run_bot(store=store, settings={"CHANNEL_IDS": server.lobby}):
        assert await server.emulator.recorder.wait_for_texts(1, thread) == ["Aye."]


async def test_a_server_that_comes_back_after_a_resume_is_read(server: EmulatedServer) -> None:
    store = await first_session(server)
    await server.emulator.gateway.dispatch_event("GUILD_DELETE", {"id": server.guild, "unavailable": True})
    await server.emulator.people.say(server.lobby, server.kim, f"{server.call} during", is_announced=False)
    guild = server.emulator.state.guilds.pop(server.guild)  # Discord answers 404 for it
    async with server.run_bot(store=store):
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["resume"] > 0)
        server.emulator.state.guilds[server.guild] = guild
        payload = server.emulator.state.to_guild_create(server.guild, server.bot)
        await server.emulator.gateway.dispatch_event("GUILD_CREATE", payload)
        assert await server.emulator.recorder.wait_for_texts(2) == ["Aye.", "Aye."]


async def test_a_server_that_removed_the_bot_while_it_was_off_is_left_after_a_resume(server: EmulatedServer) -> None:
    store, left = await first_session(server), asyncio.Event()
    await server.emulator.people.expel(server.guild, server.bot)
    async with server.run_bot(store=store, is_awaited=False) as (harness, _):
        harness.agent.events.subscribe(WorldLeft, lambda _: left.set())
        async with asyncio.timeout(10):
            await left.wait()
