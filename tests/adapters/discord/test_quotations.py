"""The words to which a message replies: who wrote them, and how long they stay."""

from bot import Content, derived_id
from bot.models import Purpose
from bot.testing import AgentHarness, ScriptedModel, model_answer
from tests.adapters.discord.server import EmulatedServer, receipts

SECRET = "the treasure lies under the oak"


async def reply_to_a_secret(server: EmulatedServer) -> str:
    """Send a secret of Kim and a question of Robin about it; return the id of Kim's message."""
    people = server.emulator.people
    message_id = await people.say(server.lobby, server.kim, f"{server.call} {SECRET}")
    await server.emulator.recorder.wait_for_texts(1)
    await people.say(server.lobby, server.robin, f"{server.call} is that so?", reply_to=message_id)
    await server.emulator.recorder.wait_for_texts(2)
    return message_id


async def find_reply(harness: AgentHarness) -> Content:
    """Return what is stored of Robin's message."""
    *_, receipt = await receipts(harness)
    return (await harness.agent.store.memories.memories([receipt.memory_id]))[receipt.memory_id].content


async def test_the_model_reads_whose_words_a_message_replies_to(server: EmulatedServer) -> None:
    model = ScriptedModel(model_answer("Aye."))
    async with server.run_bot(model) as (harness, _):
        await reply_to_a_secret(server)
        content = await find_reply(harness)
    assert f"> Kim: @Ada {SECRET}\\n@Ada is that so?" in model.requests_for(Purpose.REPLY)[-1].prompt
    assert content.text == "@Ada is that so?"


async def test_a_message_deleted_on_the_platform_is_not_quoted_by_stored_replies(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, _):
        message_id = await reply_to_a_secret(server)
        assert SECRET in (await find_reply(harness)).render_text()
        await server.emulator.people.delete(server.lobby, message_id)
        await server.emulator.people.say(server.lobby, server.robin, f"{server.call} and now?")
        await server.emulator.recorder.wait_for_texts(3)
        room_id = (await receipts(harness))[-1].room_id
        stored = [message.content for message in await harness.agent.store.memories.recent(room_id)]
    assert "@Ada is that so?" in [content.text for content in stored]
    assert not any(SECRET in content.render_text() for content in stored)


async def test_a_person_who_was_forgotten_is_not_quoted_by_stored_replies(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, _):
        await reply_to_a_secret(server)
        await receipts(harness)
        await harness.agent_runtime.handle.edits.erase_entity(derived_id("discord", "user", server.kim))
        content = await find_reply(harness)
    assert (content.text, content.quotation) == ("@Ada is that so?", None)
