"""A person on Discord who is not read: by their own command, and by a role of their server."""

import re
from pathlib import Path

import pytest

from bot import Entity, derived_id
from bot.domain.hiding import HIDDEN_TEXT
from bot.domain.ledger import Rule
from bot.testing import AgentHarness, ScriptedModel, model_answer
from tests.adapters.discord.server import EmulatedServer, receipts
from tests.canaries import Canaries, find_canaries, open_file


async def wait_read(server: EmulatedServer, harness: AgentHarness) -> None:
    """Wait until everything that was written so far has its outcome: Kim's message comes last and is answered."""
    count = len(server.emulator.recorder.texts())
    await server.emulator.people.say(server.lobby, server.kim, f"{server.call} and now?")
    await server.emulator.recorder.wait_for_texts(count + 1)
    await receipts(harness)


async def write_everything(server: EmulatedServer, harness: AgentHarness, canaries: Canaries) -> None:
    """Let Robin write in every way that Discord has, and Kim quote and forward it."""
    people, state, lobby, robin, kim = (
        server.emulator.people,
        server.emulator.state,
        server.lobby,
        server.robin,
        server.kim,
    )
    written = await people.say(lobby, robin, f"{server.call} {canaries.write()}")
    await people.edit(lobby, written, canaries.write())
    note = (f"{canaries.write(1)}.txt", canaries.write().encode(), "text/plain")
    await people.say(lobby, robin, canaries.write(), files=(note,))
    await people.say(lobby, robin, canaries.write(), reply_to=written)
    await people.say(lobby, robin, poll={
        "question": {"text": canaries.write()},
        "answers": [{"answer_id": 1, "poll_media": {"text": canaries.write()}}],
        "allow_multiselect": False,
        "layout_type": 1,
        "expiry": state.clock().isoformat(),
    })  # fmt: skip
    await people.say(lobby, robin, sticker_items=[{"id": "1", "name": canaries.write(2), "format_type": 1}])
    await people.say(server.direct(robin), robin, canaries.write())
    await people.react(lobby, written, robin, f"<:{canaries.write(1)}:123>")
    await people.say(lobby, kim, f"{server.call} is that so?", reply_to=written)
    original = state.messages[lobby][written]
    names = ("content", "timestamp", "attachments", "embeds", "type", "edited_timestamp")
    snapshot = {name: original[name] for name in names}
    reference = {"type": 1, "channel_id": lobby, "message_id": written}
    await people.say(lobby, kim, "", message_snapshots=[{"message": snapshot}], message_reference=reference)
    interactions = server.emulator.interactions
    await interactions.run_command(server.bot, robin, lobby, "ask", question=canaries.write())
    state.users[robin]["global_name"] = canaries.write(1)
    await people.say(lobby, robin, canaries.write())
    broken = {"id": state.new_id(), "channel_id": lobby, "author": state.users[robin], "content": canaries.write()}
    await server.emulator.gateway.dispatch_event("MESSAGE_CREATE", broken)
    await wait_read(server, harness)


@pytest.mark.long
async def test_nothing_is_kept_of_what_a_person_writes_who_is_not_read(
    server: EmulatedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    canaries, model = Canaries(), ScriptedModel(model_answer("Aye."))
    async with open_file(tmp_path) as store:
        async with server.run_bot(model, store=store) as (harness, _):
            await server.emulator.interactions.run_command(server.bot, server.robin, server.lobby, "ignore-me")
            await server.emulator.recorder.wait_until(lambda: bool(store.marks.not_read))
            await write_everything(server, harness, canaries)
        missed = await server.emulator.people.say(
            server.lobby, server.robin, f"{server.call} {canaries.write()}", is_announced=False
        )
        server.emulator.gateway.sessions.clear()
        async with server.run_bot(model, store=store) as (harness, _):
            await wait_read(server, harness)
            found = {receipt.key.message_id: receipt for receipt in await receipts(harness)}
            assert found[missed].rule == Rule.NOT_READ
            robin = derived_id("discord", "user", server.robin)
            history = await store.memories.recent(next(iter(found.values())).room_id, 50)
        shown = [caplog.text, model.requests, history, await store.ledger.unreadable_events()]
        person = Entity(robin, "discord", server.robin)
        assert await find_canaries(tmp_path, store, person, shown) == set()
    assert [memory.content.text for memory in history].count(HIDDEN_TEXT) >= 6
    assert not any(re.search(r"\bRob\b", str(request)) for request in model.requests)
    assert canaries.count >= 1000


async def test_a_member_with_an_ignored_role_is_not_read_until_the_role_is_taken(server: EmulatedServer) -> None:
    people, state = server.emulator.people, server.emulator.state
    state.add_role(server.guild, "Quiet", server.robin, permissions="0")
    async with server.run_bot(settings={"IGNORED_ROLES": "@quiet"}) as (harness, _):
        await people.say(server.lobby, server.robin, f"{server.call} my secret")
        await wait_read(server, harness)
        member = state.find_member(server.guild, server.robin)
        assert member is not None
        member["roles"].clear()
        await people.say(server.lobby, server.robin, f"{server.call} hello")
        await wait_read(server, harness)
        rules = [receipt.rule for receipt in await receipts(harness)]
        stored = await harness.agent.store.memories.recent((await receipts(harness))[0].room_id)
    assert [rule == Rule.NOT_READ for rule in rules] == [True, False, False, False]
    assert "my secret" not in str(stored)


@pytest.mark.long
@pytest.mark.usefixtures("immediate_edits")
async def test_nothing_is_kept_of_what_a_person_wrote_who_had_it_deleted(
    server: EmulatedServer, tmp_path: Path
) -> None:
    canaries, robin = Canaries(), derived_id("discord", "user", server.robin)
    person = Entity(robin, "discord", server.robin)
    async with open_file(tmp_path) as store:
        async with server.run_bot(store=store) as (harness, _):
            await write_everything(server, harness, canaries)
            await harness.agent.outbox.drain(10)
            before = await find_canaries(tmp_path, store, person, ())
            await harness.agent_runtime.handle.edits.erase_entity(robin)
        after = await find_canaries(tmp_path, store, person, [await store.ledger.unreadable_events()])
    assert len(before) > 1000
    assert after == set()
