"""Undelivered parts over HTTP: list, send and drop."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from bot.platform import Delivery, DeliveryState


async def store_undelivered(house: Any, state: DeliveryState, **details: Any) -> Delivery:
    """Set the state of a reply's only part."""
    answer = await house.send("Hello", room="porch")
    ledger = house.runtime.agents[0].agent.store.ledger
    receipt = await ledger.receipt(UUID(answer["message_id"]))
    [part] = await ledger.deliveries(turn_id=receipt.turn_id)
    changed: Delivery = replace(part, state=state, cause="timed out", **details)
    await ledger.save_delivery(changed)
    return changed


async def test_an_empty_outbox_lists_nothing(house: Any) -> None:
    await house.send("Hello")
    assert await house.get("/api/outbox") == {"parts": []}


async def test_a_held_part_is_listed_with_room_and_text(house: Any) -> None:
    part = await store_undelivered(house, DeliveryState.UNKNOWN)
    [listed] = (await house.get("/api/outbox?agent=ada&limit=5"))["parts"]
    assert (listed["id"], listed["state"], listed["cause"]) == (part.id, "unknown", "timed out")
    assert (listed["room"], listed["text"]) == ("porch", "You said: Hello")


async def test_a_requeued_part_is_sent(house: Any) -> None:
    part = await store_undelivered(house, DeliveryState.UNKNOWN)
    told = await house.post(f"/api/outbox/{part.id}/send", {})
    assert (told["state"], told["note"]) == ("pending", "it leaves as soon as its platform takes it")
    await house.runtime.agents[0].agent.outbox.drain(5)
    assert await house.get("/api/outbox") == {"parts": []}


async def test_a_dropped_part_is_failed(house: Any) -> None:
    part = await store_undelivered(house, DeliveryState.UNKNOWN)
    told = await house.post(f"/api/outbox/{part.id}/drop", {})
    assert (told["state"], told["cause"]) == ("failed", "a person dropped it")


async def test_a_sent_part_cannot_be_changed(house: Any) -> None:
    part = await store_undelivered(house, DeliveryState.SENT)
    for act in ("send", "drop"):
        refused = await house.post(f"/api/outbox/{part.id}/{act}", {}, 409)
        assert refused["error"]["code"] == "conflict"
        assert refused["error"]["message"] == "nothing is left to decide: it is sent already"


async def test_an_unknown_part_or_agent_is_not_found(house: Any) -> None:
    for path in ("/api/outbox/nothing/send", "/api/outbox/nothing/drop"):
        assert (await house.post(path, {}, 404))["error"]["code"] == "not_found"
    await house.get("/api/outbox?agent=nobody", 404)
    await house.get("/api/outbox?limit=0", 422)
