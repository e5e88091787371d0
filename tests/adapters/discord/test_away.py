"""B-10: what was said while the bot was away is fetched, bounded, and only what is young is answered."""

from datetime import timedelta

from adapters.discord.emulator.server import Fault, too_many_requests
from adapters.discord.emulator.state import THREAD
from bot import Outcome, system_clock
from bot.store import InMemoryStore
from tests.adapters.discord.harbour import Harbour, receipts


async def seen_once(harbour: Harbour, *channels: str) -> InMemoryStore:
    """Have the bot seen something in each channel two hours ago, and its session forgotten since."""
    store = InMemoryStore()
    async with harbour.bot_on(store=store) as (stage, _):
        for number, channel in enumerate(channels, 1):
            await harbour.emulator.people.say(channel, harbour.kim, f"{harbour.call} before")
            await harbour.emulator.recorder.wait_for_texts(number)
        await receipts(stage)
    harbour.emulator.gateway.sessions.clear()
    return store


async def test_b10_after_an_hour_away_all_is_kept_and_only_the_last_quarter_is_answered(
    harbour: Harbour,
) -> None:
    direct = harbour.direct(harbour.robin)
    store = await seen_once(harbour, harbour.quay, direct)
    later = system_clock() + timedelta(hours=1)
    for minutes in (50, 40, 16, 5):
        at = later - timedelta(minutes=minutes)
        await harbour.emulator.people.say(
            harbour.quay, harbour.kim, f"{harbour.call} {minutes} ago", timestamp=at, is_announced=False
        )
    at = later - timedelta(minutes=1)
    await harbour.emulator.people.say(direct, harbour.robin, "and I?", timestamp=at, is_announced=False)
    async with harbour.bot_on(store=store, clock=lambda: later) as (stage, _):
        await harbour.emulator.recorder.wait_for_texts(4)
        told = await receipts(stage)
    assert [(one.outcome, one.rule) for one in told[2:5]] == [(Outcome.EXPIRED, "backfill")] * 3
    assert [one.outcome for one in told[5:]] == [Outcome.ANSWERED] * 2
    assert harbour.emulator.recorder.counts["identify"] == 2


async def test_b10_no_more_than_the_last_hundred_of_a_channel_are_fetched(harbour: Harbour) -> None:
    store = await seen_once(harbour, harbour.quay)
    for number in range(130):
        await harbour.emulator.people.say(harbour.quay, harbour.kim, f"number {number}", is_announced=False)
    listen = {"DISCORD_LISTEN_CHANNEL_IDS": harbour.quay}
    async with harbour.bot_on(store=store, settings=listen) as (stage, _):
        await harbour.emulator.people.say(harbour.direct(harbour.kim), harbour.kim, "ahoy")
        await harbour.emulator.recorder.wait_for_texts(2)
        told = await receipts(stage)
        said = await stage.agent.store.memories.recent(told[0].room_id, 1)
    assert len(told) == 1 + 100 + 1
    assert [one.content.text for one in said] == ["number 129"]


async def test_b10_a_thread_that_was_opened_meanwhile_is_read_too_and_old_channels_are_not(
    harbour: Harbour,
) -> None:
    town, people = harbour.emulator.state, harbour.emulator.people
    quiet = town.add_channel(harbour.guild, "never spoken in")
    await people.say(quiet, harbour.kim, f"{harbour.call} long before the bot came", is_announced=False)
    store = await seen_once(harbour, harbour.quay)
    thread = town.add_channel(harbour.guild, "news", THREAD, harbour.quay)
    await people.say(thread, harbour.kim, f"{harbour.call} here", is_announced=False)
    async with harbour.bot_on(store=store) as (stage, _):
        await harbour.emulator.recorder.wait_for_texts(1, thread)
        assert len(await receipts(stage)) == 2
    assert harbour.emulator.recorder.texts(quiet) == []


async def test_b10_a_server_that_discord_tells_of_late_is_read_when_it_does(harbour: Harbour) -> None:
    store = await seen_once(harbour, harbour.quay)
    await harbour.emulator.people.say(harbour.quay, harbour.kim, f"{harbour.call} back?", is_announced=False)
    harbour.emulator.gateway.skips_guilds = True
    async with harbour.bot_on(store=store) as (stage, _):
        told = harbour.emulator.state.to_guild_create(harbour.guild, harbour.bot)
        await harbour.emulator.gateway.dispatch_event("GUILD_CREATE", told)
        assert await harbour.emulator.recorder.wait_for_texts(2) == ["Aye.", "Aye."]
        assert len(await receipts(stage)) == 2


async def test_b10_what_is_said_while_the_gap_is_filled_comes_after_it_and_once(harbour: Harbour) -> None:
    store = await seen_once(harbour, harbour.quay)
    people = harbour.emulator.people
    await people.say(harbour.quay, harbour.kim, "first", is_announced=False)
    async with harbour.bot_on(
        store=store, settings={"DISCORD_LISTEN_CHANNEL_IDS": harbour.quay}, is_awaited=False
    ) as (stage, _):
        ledger = harbour.emulator.recorder
        await ledger.wait_until(lambda: ledger.counts["identify"] == 2)
        await people.say(harbour.quay, harbour.kim, "second")
        await people.say(harbour.direct(harbour.kim), harbour.kim, "ahoy")
        await ledger.wait_for_texts(2)
        told = await receipts(stage)
        said = await stage.agent.store.memories.recent(told[0].room_id, 10)
    assert [one.content.text for one in said][-2:] == ["first", "second"]
    assert len(told) == 4


async def test_b10_a_limit_is_waited_for_and_a_channel_that_is_closed_is_left_out(harbour: Harbour) -> None:
    other = harbour.emulator.state.add_channel(harbour.guild, "pier")
    store = await seen_once(harbour, harbour.quay, other)
    for channel in (harbour.quay, other):
        await harbour.emulator.people.say(channel, harbour.kim, f"{harbour.call} back?", is_announced=False)
    harbour.emulator.faults.append(Fault(rf"GET .*/{other}/messages", 403, {"code": 50001}))
    harbour.emulator.faults.append(too_many_requests(rf"GET .*/{harbour.quay}/messages", 0))
    async with harbour.bot_on(store=store) as (_stage, _):
        assert await harbour.emulator.recorder.wait_for_texts(2, harbour.quay) == ["Aye.", "Aye."]
    assert len(harbour.emulator.recorder.texts(other)) == 1
