"""Channels that Discord restricts to adults, and a character whose content is mature."""

from bot import Character, Outcome
from bot.domain.character import ContentRating
from bot.domain.ledger import Rule
from tests.adapters.discord.server import EmulatedServer, receipts

MATURE = Character(name="Ada", content=ContentRating.MATURE)
PUBLIC_THREAD = 11


async def test_a_mature_character_speaks_in_age_restricted_channels_and_their_threads_only(
    server: EmulatedServer,
) -> None:
    state, people = server.emulator.state, server.emulator.people
    restricted = state.add_channel(server.guild, "cellar")
    state.channels[restricted]["nsfw"] = True
    thread = state.add_channel(server.guild, "barrels", PUBLIC_THREAD, restricted)
    async with server.run_bot(character=MATURE) as (harness, _):
        for channel in (server.lobby, restricted, thread, server.direct(server.kim)):
            await people.say(channel, server.kim, f"{server.call} hello")
        await server.emulator.recorder.wait_until(lambda: len(server.emulator.recorder.texts()) == 2)
        found = {receipt.key.room_id: receipt for receipt in await receipts(harness)}
        rooms = await harness.agent.store.worlds.rooms()
        outcomes = {room.external_id: found[room.id].outcome for room in rooms if room.id in found}
        assert {room.external_id for room in rooms if room.is_age_restricted} == {restricted, thread}
    assert outcomes[restricted] is outcomes[thread] is Outcome.ANSWERED
    assert outcomes[server.lobby] is Outcome.IGNORED
    assert {receipt.rule for receipt in found.values() if receipt.outcome is Outcome.IGNORED} == {Rule.MATURE_CONTENT}
