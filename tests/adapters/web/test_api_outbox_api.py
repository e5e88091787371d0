"""Undelivered parts over HTTP: list, send and drop."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from bot.platform import Delivery, DeliveryState


async def store_undelivered(web_server: Any, state: DeliveryState, **details: Any) -> Delivery:
    """Set the state of a reply's only part."""
    answer = await web_server.send("Hello", room="porch")
    ledger = web_server.runtime.agents[0].agent.store.ledger
    receipt = await ledger.receipt(UUID(answer["message_id"]))
    [part] = await ledger.deliveries(turn_id=receipt.turn_id)
    changed: Delivery = replace(part, state=state, cause="timed out", **details)
    await ledger.save_delivery(changed)
    return changed


async def test_an_empty_outbox_lists_nothing(web_server: Any) -> None:
    await web_server.send("Hello")
    assert (await web_server.get("/api/outbox"))["parts"] == []


async def test_a_held_part_is_listed_with_room_and_text(web_server: Any) -> None:
    part = await store_undelivered(web_server, DeliveryState.UNKNOWN)
    [listed] = (await web_server.get("/api/outbox?agent=ada&limit=5"))["parts"]
    assert (listed["id"], listed["state"], listed["cause"]) == (part.id, "unknown", "timed out")
    assert (listed["room"], listed["text"]) == ("porch", "You said: Hello")


async def test_a_requeued_part_is_sent(web_server: Any) -> None:
    part = await store_undelivered(web_server, DeliveryState.UNKNOWN)
    body = await web_server.post(f"/api/outbox/{part.id}/send", {})
    assert (body["state"], body["note"]) == ("pending", "it leaves as soon as its platform takes it")
    await web_server.runtime.agents[0].agent.outbox.drain(5)
    assert (await web_server.get("/api/outbox"))["parts"] == []


async def test_a_dropped_part_is_failed(web_server: Any) -> None:
    part = await store_undelivered(web_server, DeliveryState.UNKNOWN)
    body = await web_server.post(f"/api/outbox/{part.id}/drop", {})
    assert (body["state"], body["cause"]) == ("failed", "a person dropped it")


async def test_a_sent_part_cannot_be_changed(web_server: Any) -> None:
    part = await store_undelivered(web_server, DeliveryState.SENT)
    for act in ("send", "drop"):
        refused = await web_server.post(f"/api/outbox/{part.id}/{act}", {}, 409)
        assert refused["error"]["code"] == "conflict"
        assert refused["error"]["message"] == "nothing is left to decide: it is sent already"


async def test_an_unknown_part_or_agent_is_not_found(web_server: Any) -> None:
    for path in ("/api/outbox/nothing/send", "/api/outbox/nothing/drop"):
        assert (await web_server.post(path, {}, 404))["error"]["code"] == "not_found"
    await web_server.get("/api/outbox?agent=nobody", 404)
    await web_server.get("/api/outbox?limit=0", 422)
