"""What the bot may not do in a channel is left out of its answers, and the operator is notified once."""

import asyncio
from datetime import timedelta

import pytest

from adapters.discord import adapter as discord_adapter
from adapters.discord.emulator import Fault
from bot import Attachment, Content, MediaKind, Outcome
from bot.platform import DeliveryState, NotSent, Undeliverable
from bot.testing import ManualClock
from tests.adapters.discord.server import EmulatedServer, outcomes
from tests.adapters.discord.test_errors import SAY, failed, part
from tests.adapters.discord.test_streaming import LIVE, WHOLE, begun, seen, story

PUBLIC_THREAD, PRIVATE_THREAD = 11, 12
FILE = Attachment("1", MediaKind.DOCUMENT, data=b"tides", name="tides.txt")
PICTURE = Attachment("2", MediaKind.IMAGE, url="https://example.org/a.png")


@pytest.fixture
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the interval between two edits of a draft."""
    monkeypatch.setattr(discord_adapter, "DRAFT_INTERVAL_SECONDS", 0.0)


async def ask(server: EmulatedServer, channel: str, count: int = 1) -> list[str]:
    """Ask in a channel; return the texts that the bot has sent once there are so many."""
    await server.emulator.people.say(channel, server.kim, f"{server.call} ahoy")
    return await server.emulator.recorder.wait_for_texts(count)


async def test_without_read_message_history_an_answer_is_no_reply_and_the_operator_is_notified_once(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.emulator.rest.denied[server.lobby] = {"READ_MESSAGE_HISTORY"}
    async with server.run_bot() as (harness, _):
        await ask(server, server.lobby)
        assert await ask(server, server.lobby, 2) == ["Aye.", "Aye."]
        assert await outcomes(harness) == [Outcome.ANSWERED, Outcome.ANSWERED]
    assert all("message_reference" not in shown.message for shown in server.emulator.recorder.messages)
    warnings_logged = [item.getMessage() for item in caplog.records if "Read Message History" in item.getMessage()]
    assert len(warnings_logged) == 1
    assert server.lobby in warnings_logged[0]


@pytest.mark.parametrize(
    ("denied", "text", "permissions"),
    [
        ({"ATTACH_FILES"}, "Look.\n(could not be sent: tides.txt)", ["Attach Files"]),
        ({"EMBED_LINKS"}, "Look.\nhttps://example.org/a.png", ["Embed Links"]),
        (
            {"ATTACH_FILES", "EMBED_LINKS", "READ_MESSAGE_HISTORY"},
            "Look.\n(could not be sent: tides.txt)\nhttps://example.org/a.png",
            ["Attach Files", "Embed Links", "Read Message History"],
        ),
    ],
)
async def test_what_the_bot_may_not_send_is_named_in_the_text(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture, denied: set[str], text: str, permissions: list[str]
) -> None:
    server.emulator.rest.denied[server.lobby] = denied
    attachments = tuple(
        item for item, permission in ((FILE, "ATTACH_FILES"), (PICTURE, "EMBED_LINKS")) if permission in denied
    )
    asked = await server.emulator.people.say(server.lobby, server.kim, "look")
    async with server.run_bot() as (harness, adapter):
        content = Content("Look.", attachments=attachments)
        await adapter.deliver(part(harness, server.lobby, content=content, reply_to=asked))
    assert server.emulator.recorder.texts() == [text]
    assert all(permission in caplog.text for permission in permissions)


@pytest.mark.parametrize("is_locked", [False, True])
async def test_an_answer_that_a_thread_refuses_is_sent_in_its_channel(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture, is_locked: bool
) -> None:
    state = server.emulator.state
    thread = state.add_channel(server.guild, "plans", PUBLIC_THREAD, server.lobby)
    state.channels[thread]["thread_metadata"]["locked"] = is_locked
    server.emulator.rest.denied[thread] = set() if is_locked else {"SEND_MESSAGES_IN_THREADS"}
    async with server.run_bot() as (harness, _):
        await ask(server, thread)
        await ask(server, thread, 2)
        await harness.agent.outbox.drain(10)
        deliveries = await harness.agent.store.ledger.deliveries()
        assert [delivery.state for delivery in deliveries] == [DeliveryState.SENT] * 2
    shown = server.emulator.recorder.messages
    assert [(item.room, item.text) for item in shown] == [(server.lobby, f"<#{thread}>\nAye.")] * 2
    assert len([item for item in caplog.messages if f"channel {thread}" in item]) == 1


async def test_an_answer_for_a_private_thread_is_not_sent_elsewhere(server: EmulatedServer) -> None:
    thread = server.emulator.state.add_channel(server.guild, "secret", PRIVATE_THREAD, server.lobby)
    server.emulator.rest.denied[thread] = {"SEND_MESSAGES_IN_THREADS"}
    async with server.run_bot() as (harness, adapter):
        assert isinstance(await failed(adapter, part(harness, thread)), Undeliverable)
    assert not server.emulator.recorder.messages


async def test_an_archived_thread_is_reopened_for_an_edit(server: EmulatedServer) -> None:
    thread = server.emulator.state.add_channel(server.guild, "plans", PUBLIC_THREAD, server.lobby)
    async with server.run_bot() as (harness, adapter):
        message = await adapter.deliver(part(harness, thread))
        server.emulator.state.channels[thread]["thread_metadata"]["archived"] = True
        await adapter.edit(part(harness, thread, "Aye, aye.", replaces_external_id=message))
        assert not server.emulator.state.channels[thread]["thread_metadata"]["archived"]
    assert server.emulator.recorder.texts() == ["Aye, aye."]


async def test_the_answer_for_an_archived_and_locked_thread_is_sent_in_its_channel(server: EmulatedServer) -> None:
    thread = server.emulator.state.add_channel(server.guild, "plans", PUBLIC_THREAD, server.lobby)
    server.emulator.state.channels[thread]["thread_metadata"].update(archived=True, locked=True)
    async with server.run_bot() as (harness, adapter):
        await adapter.deliver(part(harness, thread))
    assert [item.room for item in server.emulator.recorder.messages] == [server.lobby]


@pytest.mark.parametrize("status", [400, 403, 429])
async def test_a_part_waits_for_the_slow_mode_of_its_channel(server: EmulatedServer, status: int) -> None:
    body = {"message": "slowmode rate limit", "code": 20016, "retry_after": 321.0}
    async with server.run_bot() as (harness, adapter):
        server.emulator.faults.append(Fault(SAY, status, body))
        error = await failed(adapter, part(harness, server.lobby))
    assert isinstance(error, NotSent)
    assert error.retry_after is not None
    assert error.retry_after == pytest.approx(321.0, abs=5.0)


async def test_a_part_waits_for_the_end_of_the_bots_timeout(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    member = server.emulator.state.find_member(server.guild, server.bot)
    assert member is not None
    until = clock.now() + timedelta(minutes=10)
    member["communication_disabled_until"] = until.isoformat()
    async with server.run_bot(clock=clock.now) as (harness, adapter):
        error = await failed(adapter, part(harness, server.lobby))
        assert isinstance(error, NotSent)
        assert error.retry_after == pytest.approx(600.0)
        member["communication_disabled_until"] = None
        await adapter.deliver(part(harness, server.lobby))
    assert server.emulator.recorder.texts() == ["Aye."]
    assert "timeout" in caplog.text


@pytest.mark.usefixtures("looks_at_once", "nothing_held_back")
@pytest.mark.parametrize(("status", "code"), [(403, 50013), (403, 50005), (400, 30046)])
async def test_the_rest_of_a_reply_whose_last_edit_is_refused_arrives_as_a_new_message(
    server: EmulatedServer, status: int, code: int
) -> None:
    gate = asyncio.Event()
    async with server.run_bot(story(gate), settings=LIVE) as (harness, _):
        asked = await begun(server)
        server.emulator.faults.append(
            Fault(r"PATCH .*/messages/\d+$", status, {"message": "no", "code": code}, times=9)
        )
        gate.set()
        await server.emulator.recorder.wait_until(lambda: seen(server) == [WHOLE])
        assert await outcomes(harness) == [Outcome.ANSWERED]
    first, second = server.emulator.recorder.messages
    assert (first.is_gone, second.message["message_reference"]["message_id"]) == (True, asked)


@pytest.mark.usefixtures("looks_at_once", "nothing_held_back")
async def test_a_streamed_answer_for_a_thread_that_refuses_it_is_edited_in_the_channel(server: EmulatedServer) -> None:
    thread = server.emulator.state.add_channel(server.guild, "plans", PUBLIC_THREAD, server.lobby)
    server.emulator.rest.denied[thread] = {"SEND_MESSAGES_IN_THREADS"}
    gate = asyncio.Event()
    async with server.run_bot(story(gate), settings=LIVE):
        await server.emulator.people.say(thread, server.kim, f"{server.call} tell me a story")
        await server.emulator.recorder.wait_for_texts(1)
        gate.set()
        await server.emulator.recorder.wait_until(lambda: WHOLE in seen(server)[-1])
    assert [item.room for item in server.emulator.recorder.messages] == [server.lobby]
