"""Failures of requests and their effect on a delivery."""

import asyncio
import math
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import aiohttp
import discord
import pytest

from adapters.discord.adapter import MAX_INVALID, DiscordAdapter, RequestGuard
from adapters.discord.config import Limits
from adapters.discord.emulator.server import Fault, too_many_requests
from adapters.discord.errors import DEFAULT_RETRY_SECONDS, ErrorResponse, parse_retry_after, to_delivery_error
from bot import Attachment, Content, MediaKind
from bot.platform import Delivery, DeliveryHeld, DeliveryUnknown, NotSent, Undeliverable
from bot.testing import AgentHarness
from tests.adapters.discord.server import LIMITS, EmulatedServer

SAY = r"POST .*/channels/\d+/messages$"


def part(harness: AgentHarness, channel: str, text: str = "Aye.", **more: Any) -> Delivery:
    """Return a part for a channel."""
    given = {"id": uuid4().hex[:24], "content": Content(text=text), "created_at": harness.agent.clock(), **more}
    return Delivery(
        turn_id=uuid4(),
        room_id=uuid4(),
        memory_id=uuid4(),
        platform="discord",
        account=str(harness.agent.id),
        target=channel,
        part=0,
        **given,
    )


async def failed(adapter: DiscordAdapter, delivery: Delivery) -> Exception:
    """Send a part and return the error it raises."""
    try:
        await adapter.deliver(delivery)
    except (NotSent, Undeliverable, DeliveryUnknown) as error:
        return error
    raise AssertionError("it was sent")


@pytest.mark.failure("D-01")
@pytest.mark.parametrize("seconds", [0.5, 64.57, 3600.0])
async def test_a_rate_limited_bucket_is_blocked_for_retry_after_and_no_other_is(
    server: EmulatedServer, seconds: float
) -> None:
    other = server.emulator.state.add_channel(server.guild, "pier")
    async with server.run_bot() as (harness, adapter):
        server.emulator.faults.append(too_many_requests(f"POST .*/{server.lobby}/messages", seconds))
        error = await failed(adapter, part(harness, server.lobby))
        assert isinstance(error, NotSent)
        assert error.retry_after == seconds
        asked = len(server.emulator.recorder.requests)
        again = await failed(adapter, part(harness, server.lobby))
        assert isinstance(again, NotSent)
        assert again.retry_after == pytest.approx(seconds, rel=0.9)
        assert len(server.emulator.recorder.requests) == asked
        await adapter.deliver(part(harness, other))
    assert server.emulator.recorder.texts() == ["Aye."]


@pytest.mark.failure("D-01")
async def test_no_request_is_sent_to_an_exhausted_bucket(server: EmulatedServer) -> None:
    headers = {
        "X-RateLimit-Bucket": "says",
        "X-RateLimit-Limit": "5",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset-After": "60",
    }
    async with server.run_bot() as (harness, adapter):
        server.emulator.faults.append(Fault(SAY, 200, {"id": "5"}, headers))
        assert await adapter.deliver(part(harness, server.lobby)) == "5"
        asked = len(server.emulator.recorder.requests)
        error = await failed(adapter, part(harness, server.lobby))
        assert isinstance(error, NotSent)
        assert error.retry_after == pytest.approx(60, abs=59)
        assert len(server.emulator.recorder.requests) == asked


@pytest.mark.failure("D-01")
async def test_a_rate_limited_reply_is_sent_after_the_limit(server: EmulatedServer) -> None:
    server.emulator.faults.append(too_many_requests(SAY, 0.02))
    async with server.run_bot():
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]


@pytest.mark.failure("D-02")
async def test_a_global_limit_blocks_all_requests(server: EmulatedServer) -> None:
    other = server.emulator.state.add_channel(server.guild, "pier")
    async with server.run_bot() as (harness, adapter):
        server.emulator.faults.append(too_many_requests(SAY, 60.0, is_global=True))
        await failed(adapter, part(harness, server.lobby))
        asked = len(server.emulator.recorder.requests)
        error = await failed(adapter, part(harness, other))
        assert isinstance(error, NotSent)
        assert error.retry_after == pytest.approx(60, abs=59)
        assert len(server.emulator.recorder.requests) == asked


@pytest.mark.failure("D-03")
@pytest.mark.parametrize("retry_after", [None, -1, "NaN", math.inf, "soon", [], 10**400])
def test_an_invalid_retry_after_is_five_seconds(retry_after: Any) -> None:
    assert parse_retry_after({"retry_after": retry_after}, {}) == DEFAULT_RETRY_SECONDS


@pytest.mark.failure("D-03")
async def test_a_429_of_an_intermediary_is_handled(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, adapter):
        server.emulator.faults.append(Fault(SAY, 429, "<html>banned</html>"))
        error = await failed(adapter, part(harness, server.lobby))
    assert isinstance(error, NotSent)
    assert error.retry_after == DEFAULT_RETRY_SECONDS


@pytest.mark.matrix(3)
@pytest.mark.failure("D-04")
@pytest.mark.parametrize("status", [500, 502, 503, 504, 524])
async def test_a_server_error_after_acceptance_sends_the_message_once(server: EmulatedServer, status: int) -> None:
    async with server.run_bot() as (harness, _):
        server.emulator.faults.append(Fault(SAY, status, is_late=True))
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["same nonce"] > 0)
        await harness.agent.outbox.drain(10)
        [delivery] = await harness.agent.store.ledger.deliveries()
    assert server.emulator.recorder.texts() == ["Aye."]
    assert (delivery.state, delivery.external_id) == ("sent", server.emulator.recorder.messages[0].id)


@pytest.mark.failure("D-05")
async def test_a_failed_connection_means_not_sent(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, adapter):
        await server.emulator.__aexit__(None, None, None)
        error = await failed(adapter, part(harness, server.lobby))
    assert isinstance(error, NotSent)


@pytest.mark.failure("D-06")
@pytest.mark.parametrize("is_late", [True, False])
async def test_a_connection_reset_sends_the_message_once(server: EmulatedServer, is_late: bool) -> None:
    async with server.run_bot():
        server.emulator.faults.append(Fault(SAY, is_late=is_late))
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(1)
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} again")
        assert await server.emulator.recorder.wait_for_texts(2) == ["Aye.", "Aye."]


@pytest.mark.failure("D-07")
async def test_endless_and_missing_responses_are_cut_off(server: EmulatedServer) -> None:
    limits = replace(LIMITS, request_timeout=0.5, max_response_bytes=100_000)
    async with server.run_bot(limits=limits) as (harness, adapter):
        server.emulator.faults.append(Fault(SAY, is_endless=True))
        assert isinstance(await failed(adapter, part(harness, server.lobby)), DeliveryUnknown)
        server.emulator.faults.append(Fault(SAY, is_hanging=True))
        assert isinstance(await failed(adapter, part(harness, server.lobby)), DeliveryUnknown)
    assert Limits().max_response_bytes == 1024 * 1024
    assert Limits().request_timeout == 30


@pytest.mark.failure("D-08")
@pytest.mark.parametrize("body", ["no json", {"no": "id"}, [], {"id": None}])
async def test_a_response_without_message_id_is_no_success(server: EmulatedServer, body: Any) -> None:
    async with server.run_bot() as (harness, adapter):
        server.emulator.faults.append(Fault(SAY, 200, body))
        assert isinstance(await failed(adapter, part(harness, server.lobby)), DeliveryUnknown)


@pytest.mark.failure("D-09")
async def test_a_refused_body_is_sent_once_as_plain_text(server: EmulatedServer) -> None:
    picture = Attachment("1", MediaKind.IMAGE, url="https://example.org/a.png")
    content = Content(text="Look.", attachments=(picture,))
    async with server.run_bot() as (harness, adapter):
        server.emulator.faults.append(Fault(SAY, 400, {"message": "Invalid Form Body", "code": 50035}))
        await adapter.deliver(part(harness, server.lobby, content=content))
        server.emulator.faults.append(Fault(SAY, 400, {"message": "Invalid Form Body", "code": 50035}))
        assert isinstance(await failed(adapter, part(harness, server.lobby)), Undeliverable)
    assert server.emulator.recorder.texts() == ["Look."]


@pytest.mark.failure("D-11")
@pytest.mark.parametrize(("status", "code"), [(403, 50001), (404, 10003)])
async def test_an_unwritable_channel_is_skipped_until_a_message_arrives_there(
    server: EmulatedServer, status: int, code: int
) -> None:
    async with server.run_bot() as (harness, adapter):
        server.emulator.rest.refused_channels[server.lobby] = (status, code)
        assert isinstance(await failed(adapter, part(harness, server.lobby)), Undeliverable)
        asked = len(server.emulator.recorder.requests)
        assert isinstance(await failed(adapter, part(harness, server.lobby)), Undeliverable)
        assert len(server.emulator.recorder.requests) == asked
        del server.emulator.rest.refused_channels[server.lobby]
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} back again")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]


@pytest.mark.failure("D-12")
def test_after_a_thousand_refusals_requests_pause_for_ten_minutes() -> None:
    now = 0.0
    judge = RequestGuard(lambda: now, max_response_bytes=1000)
    response = type("Response", (), {"status": 403, "headers": {}})()
    for _ in range(MAX_INVALID):
        judge.check()
        with pytest.raises(ErrorResponse):
            judge.reject(response, {})
    with pytest.raises(Exception, match="refused 1000 requests"):
        judge.check()
    now = 601.0
    judge.check()


@pytest.mark.failure("D-15")
async def test_if_a_file_cannot_be_uploaded_the_text_is_sent_and_names_it(server: EmulatedServer) -> None:
    chart = Attachment("1", MediaKind.IMAGE, name="chart.png", data=b"\x89PNG")
    content = Content(text="The chart.", attachments=(chart,))
    async with server.run_bot() as (harness, adapter):
        server.emulator.faults.append(Fault(SAY, 413, {"message": "Request entity too large", "code": 40005}))
        await adapter.deliver(part(harness, server.lobby, content=content))
    assert server.emulator.recorder.texts() == ["The chart.\n(could not be sent: chart.png)"]


async def test_an_unclear_part_is_searched_for_after_its_nonce_has_expired(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, adapter):
        sent = part(harness, server.lobby, "Only once.")
        name = await adapter.deliver(sent)
        long_ago = harness.agent.clock() - timedelta(minutes=3)
        unclear = replace(sent, first_attempt_at=long_ago, created_at=long_ago)
        assert await adapter.reconcile(unclear) == name
        lost = replace(part(harness, server.lobby, "Never said."), first_attempt_at=long_ago)
        with pytest.raises(NotSent):
            await adapter.reconcile(lost)
        server.emulator.rest.refused_channels[server.lobby] = (403, 50001)
        with pytest.raises(DeliveryHeld, match="cannot be read"):
            await adapter.reconcile(lost)
    assert server.emulator.recorder.texts() == ["Only once."]


async def test_a_part_tried_long_ago_is_searched_for_before_it_is_sent_again(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, adapter):
        long_ago = harness.agent.clock() - timedelta(minutes=5)
        sent = replace(part(harness, server.lobby, "Once."), attempts=1)
        server.emulator.faults.append(Fault(SAY, 502, is_late=True))
        assert isinstance(await failed(adapter, sent), DeliveryUnknown)
        again = replace(sent, attempts=7, first_attempt_at=long_ago, id="another-nonce")
        assert await adapter.deliver(again) == server.emulator.recorder.messages[0].id
        server.emulator.faults.append(Fault("GET .*/messages", 500))
        assert isinstance(await failed(adapter, again), DeliveryUnknown)
    assert server.emulator.recorder.texts() == ["Once."]


async def test_an_edit_changes_and_an_empty_edit_deletes_and_both_are_idempotent(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, adapter):
        name = await adapter.deliver(part(harness, server.lobby, "Tide at six."))
        new = part(harness, server.lobby, content=Content(text="Tide at seven."), replaces_external_id=name)
        assert [await adapter.edit(new), await adapter.edit(new)] == [name, name]
        assert server.emulator.recorder.texts() == ["Tide at seven."]
        none = part(harness, server.lobby, content=Content(), replaces_external_id=name)
        assert [await adapter.edit(none), await adapter.edit(none)] == [name, name]
        assert server.emulator.recorder.texts() == []
        with pytest.raises(Undeliverable):
            await adapter.edit(new)
        await adapter.deliver(part(harness, server.lobby))  # a message that is gone does not close its channel


async def test_an_edit_removes_pictures_and_files_that_the_new_answer_does_not_have(server: EmulatedServer) -> None:
    chart = Attachment("1", MediaKind.IMAGE, name="chart.png", data=b"\x89PNG")
    photo = Attachment("2", MediaKind.IMAGE, url="https://example.com/photo.png")
    content = Content(text="The chart.", attachments=(chart, photo))
    async with server.run_bot() as (harness, adapter):
        name = await adapter.deliver(part(harness, server.lobby, content=content))
        message = server.emulator.state.messages[server.lobby][name]

        async def edit(text: str, *files: Attachment) -> list[str]:
            new = Content(text=text, attachments=files)
            await adapter.edit(part(harness, server.lobby, content=new, replaces_external_id=name))
            return [file["filename"] for file in message["attachments"]]

        assert (await edit("Another.", replace(chart, name="other.png")), message["embeds"]) == (["other.png"], [])
        server.emulator.faults.append(Fault(f"PATCH .*{name}", 413, {"message": "too large", "code": 40005}))
        assert await edit("A third.", chart) == []
        assert message["content"] == "A third.\n(could not be sent: chart.png)"
        assert await edit("Once more.", chart) == ["chart.png"]
        assert await edit("No chart.") == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (aiohttp.ClientConnectionError(), DeliveryUnknown),
        (TimeoutError(), DeliveryUnknown),
        (ConnectionResetError(104, "reset"), DeliveryUnknown),
        (discord.RateLimited(3.0), NotSent),
        (ValueError("what is this"), DeliveryUnknown),
        (ErrorResponse(409, {"message": "Conflict", "code": 0}), Undeliverable),
        (ErrorResponse(413), Undeliverable),
        *[(ErrorResponse(status), NotSent) for status in (400, 401, 403, 404, 407, 429, 451)],
        *[(ErrorResponse(status), DeliveryUnknown) for status in (408, 500, 502, 503, 520, 524)],
        (ErrorResponse(403, {"message": "Forbidden"}), NotSent),  # of a proxy: Discord gives a code
    ],
)
def test_every_failure_is_of_three_kinds(error: Exception, kind: type[Exception]) -> None:
    assert isinstance(to_delivery_error(error), kind)


async def test_typing_is_shown_at_once_and_renewed_until_the_answer(server: EmulatedServer) -> None:
    counts, sign = server.emulator.recorder.counts, f"typing:{server.lobby}"
    pauses: asyncio.Queue[float] = asyncio.Queue()

    async def pause(seconds: float) -> None:
        pauses.put_nowait(seconds)
        await asyncio.sleep(0)

    async with server.run_bot(limits=replace(LIMITS, typing_interval=7.5, sleep=pause)) as (harness, adapter):
        room = replace((await harness.agent.store.worlds.rooms())[0], external_id=server.lobby)
        await adapter.set_typing(room, True)
        await server.emulator.recorder.wait_until(lambda: counts[sign] >= 3)
        await adapter.set_typing(room, False)
        assert 7.5 in [pauses.get_nowait() for _ in range(pauses.qsize())]
        shown = counts[sign]
        await adapter.deliver(part(harness, server.lobby))
        assert counts[sign] <= shown + 1
