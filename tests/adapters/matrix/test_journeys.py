"""Conversations on a real Synapse, as people have them."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from adapters.matrix.receiving import ENCRYPTED_TEXT
from bot import Attachment, ChannelType, Content, MediaKind, MemoryKind, Outcome, Role, derived_id
from bot.events import EntityJoined, EntityLeft, WorldLeft
from bot.models import Purpose
from bot.platform import DeliveryHeld
from bot.store import InMemoryStore
from tests.adapters.matrix.conftest import MatrixHarness, run_ada, wait_until
from tests.adapters.matrix.synapse import Person, Synapse, is_installed, running_synapse

pytestmark = pytest.mark.long


async def test_who_may_invite_the_bot_is_answered_in_a_direct_chat_and_read_markers_follow(
    harness: MatrixHarness,
) -> None:
    kim, bot = harness.kim, harness.bot
    room_id = await kim.open_direct(bot.user_id)
    await kim.say(room_id, "hello **there**")
    assert await harness.texts(room_id, 1) == ["You said: hello **there**"]
    [answer] = await kim.messages_of(room_id, bot.user_id)
    assert answer["content"]["formatted_body"] == "<p>You said: hello <strong>there</strong></p>"
    assert answer["content"]["m.mentions"] == {}
    [room] = await harness.store.worlds.rooms()
    assert room.type is ChannelType.DM
    await wait_until(lambda: has_read(bot, kim, room_id))


async def has_read(bot: Person, person: Person, room_id: str) -> bool:
    """Return whether a person sees a read marker of the bot in a room."""
    response = await person.call("GET", "sync", timeout="0")
    events = response["rooms"]["join"][room_id]["ephemeral"]["events"]
    receipts = [event["content"] for event in events if event["type"] == "m.receipt"]
    return any(bot.user_id in kinds.get("m.read", {}) for content in receipts for kinds in content.values())


async def test_an_invitation_of_others_is_accepted_once_they_are_allowed(bot: Person, kim: Person) -> None:
    async with run_ada(bot, kim, settings={"MATRIX_ALLOWED_INVITERS": "@nobody:localhost"}) as harness:
        room_id = await kim.open_direct(bot.user_id)
        other = await kim.server.register("Lee")
        await other.create_room(bot.user_id)
        await wait_until(lambda: harness.store.ledger.cursor("matrix", bot.user_id, "sync"))
        joined = await kim.call("GET", f"rooms/{room_id}/joined_members")
        assert bot.user_id not in joined["joined"]
        store = harness.store
    await kim.say(room_id, "hello")
    async with run_ada(bot, kim, settings={"MATRIX_ALLOWED_INVITERS": kim.user_id}) as harness:
        assert await harness.texts(room_id, 1) == ["You said: hello"]
        assert store is not harness.store
        assert len(await harness.store.worlds.rooms()) == 1


async def join(harness: MatrixHarness, **options: Any) -> str:
    """Create a room of several people with the bot in it, and return its id."""
    room_id = await harness.kim.create_room(harness.bot.user_id, name="Harbour", **options)
    await wait_joined(harness, room_id)
    return room_id


async def wait_joined(harness: MatrixHarness, room_id: str) -> None:
    """Wait until the bot is in a room and knows it."""

    async def is_known() -> bool:
        return any(room.external_id == room_id for room in await harness.store.worlds.rooms())

    await wait_until(is_known)


async def test_in_a_room_of_several_people_a_mention_is_answered_as_a_reply(harness: MatrixHarness) -> None:
    kim, bot = harness.kim, harness.bot
    room_id = await join(harness)
    event_id = await kim.say(room_id, "Ada: what time is it?", bot.user_id)
    [answer] = await kim.wait_for(room_id, bot.user_id)
    assert answer["content"]["m.relates_to"] == {"m.in_reply_to": {"event_id": event_id}}
    [receipt] = await harness.receipts()
    assert receipt.rule == "mention"
    [room] = await harness.store.worlds.rooms()
    assert (room.type, room.name) == (ChannelType.GROUP, "Harbour")


async def test_a_message_in_a_thread_is_answered_in_the_thread(harness: MatrixHarness) -> None:
    kim, bot = harness.kim, harness.bot
    room_id = await join(harness)
    root = await kim.say(room_id, "The ferry is late.")
    await kim.wait_for(room_id, bot.user_id)
    relation = {"rel_type": "m.thread", "event_id": root, "is_falling_back": True, "m.in_reply_to": {"event_id": root}}
    event_id = await kim.say(room_id, "Ada, why?", bot.user_id, **{"m.relates_to": relation})
    [*_, answer] = await kim.wait_for(room_id, bot.user_id, 2)
    assert answer["content"]["m.relates_to"] == {
        "rel_type": "m.thread",
        "event_id": root,
        "is_falling_back": False,
        "m.in_reply_to": {"event_id": event_id},
    }
    rooms = {room.external_id: room for room in await harness.store.worlds.rooms()}
    assert rooms[f"{room_id}/{root}"].type is ChannelType.THREAD
    assert "The ferry is late." in harness.model.requests_for(Purpose.REPLY)[-1].prompt


async def test_a_reply_to_the_bot_is_answered_and_quotes_what_it_said(harness: MatrixHarness) -> None:
    kim, bot = harness.kim, harness.bot
    room_id = await join(harness)
    await kim.say(room_id, "Ada: one", bot.user_id)
    [answer] = await kim.wait_for(room_id, bot.user_id)
    await kim.say(room_id, "two", **{"m.relates_to": {"m.in_reply_to": {"event_id": answer["event_id"]}}})
    await kim.wait_for(room_id, bot.user_id, 2)
    [_, receipt] = await harness.receipts()
    message = (await harness.store.memories.memories([receipt.memory_id]))[receipt.memory_id]
    assert message.content.mention.is_reply
    assert message.content.quotation is not None
    assert message.content.quotation.text == "You said: Ada: one"


async def test_an_edit_is_answered_by_an_edit_and_people_edit_their_own_messages_only(bot: Person, kim: Person) -> None:
    async with run_ada(bot, kim, settings={"ON_EDIT": "rerun"}) as harness:
        room_id = await kim.open_direct(bot.user_id)
        event_id = await kim.say(room_id, "helo")
        [answer] = await kim.wait_for(room_id, bot.user_id)
        lee = await kim.server.register("Lee")
        await kim.call("POST", f"rooms/{room_id}/invite", {"user_id": lee.user_id})
        await lee.call("POST", f"join/{room_id}", {})
        relation = {"rel_type": "m.replace", "event_id": event_id}
        for person, text in ((lee, "forged"), (kim, "hello")):
            await person.say(room_id, f"* {text}", **{"m.new_content": {"body": text}, "m.relates_to": relation})

        async def edits() -> list[dict[str, Any]]:
            return [event for event in await kim.events(room_id) if is_edit_by(event, bot)]

        await wait_until(edits)
        [edit] = await edits()
        assert edit["content"]["m.new_content"]["body"] == "You said: hello"
        assert edit["content"]["m.relates_to"]["event_id"] == answer["event_id"]
        [room] = await harness.store.worlds.rooms()
        texts = [message.content.text for message in await harness.store.memories.recent(room.id, 10)]
        assert texts == ["hello", "You said: hello"]


def is_edit_by(event: dict[str, Any], person: Person) -> bool:
    """Return whether an event is an edit by a person."""
    return event["sender"] == person.user_id and event["content"].get("m.relates_to", {}).get("rel_type") == "m.replace"


async def test_a_redacted_message_is_deleted_and_reactions_come_and_go(harness: MatrixHarness) -> None:
    kim, bot = harness.kim, harness.bot
    room_id = await kim.open_direct(bot.user_id)
    event_id = await kim.say(room_id, "my secret")
    [answer] = await kim.wait_for(room_id, bot.user_id)
    [room] = await harness.store.worlds.rooms()
    annotation = {"rel_type": "m.annotation", "event_id": answer["event_id"], "key": "👍"}
    reaction = await kim.send(room_id, {"m.relates_to": annotation}, "m.reaction")

    async def reactions() -> int:
        return len(await harness.store.memories.recent(room.id, 10, kind=MemoryKind.REACTION))

    async def has_no_reaction() -> bool:
        return not await reactions()

    async def is_forgotten() -> bool:
        messages = await harness.store.memories.recent(room.id, 10)
        return [message.content.text for message in messages] == ["You said: my secret"]

    await wait_until(reactions)
    await kim.redact(room_id, reaction)
    await wait_until(has_no_reaction)
    await kim.redact(room_id, event_id)
    await wait_until(is_forgotten)


async def test_files_are_read_with_the_token_of_the_account(harness: MatrixHarness) -> None:
    kim, bot = harness.kim, harness.bot
    room_id = await kim.open_direct(bot.user_id)
    address = await kim.upload(b"Buy oil for the lamp.", "notes.txt", "text/plain")
    info = {"mimetype": "text/plain", "size": 21}
    content = {"msgtype": "m.file", "body": "Read this", "filename": "notes.txt", "url": address, "info": info}
    await kim.send(room_id, content)
    assert await harness.texts(room_id, 1) == ["You said: Read this [document: notes.txt]"]
    [receipt] = await harness.receipts()
    [file] = (await harness.store.memories.memories([receipt.memory_id]))[receipt.memory_id].content.attachments
    assert (file.name, file.text) == ("notes.txt", "Buy oil for the lamp.")
    [room] = await harness.store.worlds.rooms()
    picture = Attachment("1", MediaKind.IMAGE, name="fog.png", content_type="image/png", data=b"picture")
    await harness.runtime.agents[0].agent.say(room, Content(text="*Fog*", attachments=(picture,)))
    [_, sent] = await kim.wait_for(room_id, bot.user_id, 2)
    assert sent["content"]["msgtype"] == "m.image"
    assert (sent["content"]["filename"], sent["content"]["body"]) == ("fog.png", "*Fog*")
    assert await kim.download(sent["content"]["url"]) == b"picture"


async def test_rooms_of_a_space_are_a_world_with_its_roles_if_each_names_the_other(harness: MatrixHarness) -> None:
    kim, bot = harness.kim, harness.bot
    space = await kim.create_room(bot.user_id, name="Town", creation_content={"type": "m.space"})
    rooms = []
    for name in ("Market", "Pier"):
        room_id = await kim.create_room(bot.user_id, name=name)
        rooms.append(room_id)
        await kim.put_state(room_id, "m.space.parent", {"via": ["localhost"], "canonical": True}, space)
    await kim.put_state(space, "m.space.child", {"via": ["localhost"]}, rooms[0])
    for room_id in rooms:
        await wait_joined(harness, room_id)
    await asyncio.gather(*(kim.say(room_id, "Ada!", bot.user_id) for room_id in rooms))
    for room_id in rooms:
        await kim.wait_for(room_id, bot.user_id)
    worlds = {}
    for room in await harness.store.worlds.rooms():
        world = await harness.store.worlds.world(room.world_id)
        assert world is not None
        worlds[room.external_id] = world
    assert (worlds[rooms[0]].external_id, worlds[rooms[0]].name) == (space, "Town")
    assert worlds[rooms[1]].external_id == rooms[1]
    assert set(worlds[rooms[0]].roles.values()) == {Role.OWNER}


async def test_a_changed_power_level_changes_the_role(harness: MatrixHarness) -> None:
    kim = harness.kim
    room_id = await join(harness)
    levels = await kim.call("GET", f"rooms/{room_id}/state/m.room.power_levels")
    lee = await kim.server.register("Lee")
    for level, role in ((50, Role.ADMIN), (None, Role.MEMBER)):
        users = {**levels["users"], **({} if level is None else {lee.user_id: level})}
        await kim.put_state(room_id, "m.room.power_levels", {**levels, "users": users})
        await wait_until(partial(has_role, harness, lee, role))


async def has_role(harness: MatrixHarness, person: Person, role: Role) -> bool:
    """Return whether a person has a role in the only world."""
    [room] = await harness.store.worlds.rooms()
    world = await harness.store.worlds.world(room.world_id)
    assert world is not None
    return world.role_of(derived_id("matrix", "user", person.user_id)) is role


async def test_commands_are_run_in_direct_chats_and_where_they_mention_the_bot(harness: MatrixHarness) -> None:
    kim, bot = harness.kim, harness.bot
    direct = await kim.open_direct(bot.user_id)
    await kim.say(direct, "!help")
    [answer] = await harness.texts(direct, 1)
    assert "!forget-me" in answer
    room_id = await join(harness)
    await kim.say(room_id, "!help")  # which may be for another bot
    assert await harness.texts(room_id, 1) == ["You said: !help"]
    await kim.say(room_id, "Ada: !help", bot.user_id)
    assert (await harness.texts(room_id, 2))[1] == answer


async def test_an_encrypted_room_gets_a_single_line_that_the_bot_cannot_read_there(harness: MatrixHarness) -> None:
    kim, bot = harness.kim, harness.bot
    encryption = {"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
    room_id = await kim.create_room(bot.user_id, is_direct=True, initial_state=[encryption])
    for number in range(2):
        await kim.send(room_id, {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": str(number)}, "m.room.encrypted")
    other = await kim.open_direct(bot.user_id)
    await kim.say(other, "and here?")
    await kim.wait_for(other, bot.user_id)
    assert await harness.texts(room_id, 1) == [ENCRYPTED_TEXT]
    encrypted = [receipt for receipt in await harness.receipts() if receipt.outcome is Outcome.IGNORED]
    assert ["the room is encrypted" in receipt.reason for receipt in encrypted] == [True, True]


async def test_what_was_missed_is_read_backwards_and_only_young_messages_are_answered(bot: Person, kim: Person) -> None:
    store = InMemoryStore()
    async with run_ada(bot, kim, store=store) as harness:
        room_id = await kim.open_direct(bot.user_id)
        await kim.say(room_id, "first")
        await harness.texts(room_id, 1)
    for number in range(70):  # more than the timeline of a response
        await kim.say(room_id, f"message {number}")
    async with run_ada(bot, kim, store=store) as harness:

        async def has_all() -> bool:
            return len(await store.ledger.receipts(limit=1000)) >= 71

        await wait_until(has_all)
        receipts = await harness.receipts()
        [room] = await store.worlds.rooms()
        stored = [message.content.text for message in await store.memories.recent(room.id, 200)]
    texts = [text for text in stored if text.startswith("message ")]
    assert texts == [f"message {number}" for number in range(70)]
    assert len(receipts) == 71


async def test_an_upgraded_room_is_followed_with_its_history(harness: MatrixHarness) -> None:
    kim, bot = harness.kim, harness.bot
    room_id = await join(harness, preset="public_chat")
    await kim.say(room_id, "Ada: one", bot.user_id)
    await kim.wait_for(room_id, bot.user_id)
    new_id = (await kim.call("POST", f"rooms/{room_id}/upgrade", {"new_version": "11"}))["replacement_room"]
    await wait_joined(harness, new_id)
    await kim.say(new_id, "Ada: two", bot.user_id)
    await kim.wait_for(new_id, bot.user_id)
    room = next(room for room in await harness.store.worlds.rooms() if room.external_id == new_id)
    texts = [message.content.text for message in await harness.store.memories.recent(room.id, 10)]
    assert texts == ["Ada: one", "You said: Ada: one", "Ada: two", "You said: Ada: two"]


async def test_typing_is_shown_and_ended(harness: MatrixHarness) -> None:
    kim, bot = harness.kim, harness.bot
    room_id = await kim.open_direct(bot.user_id)
    await wait_joined(harness, room_id)
    [room] = await harness.store.worlds.rooms()
    for is_active in (True, False):
        await harness.adapter.set_typing(room, is_active)
        await wait_until(partial(is_typing_shown, bot, kim, room_id, is_active))


async def is_typing_shown(bot: Person, person: Person, room_id: str, is_active: bool) -> bool:
    """Return whether a person sees that the bot is typing, or with `is_active` False, that it is not."""
    response = await person.call("GET", "sync", timeout="0")
    events = response["rooms"]["join"][room_id]["ephemeral"]["events"]
    typing = {user for event in events if event["type"] == "m.typing" for user in event["content"]["user_ids"]}
    return (bot.user_id in typing) is is_active


async def test_who_joins_and_leaves_is_known_and_a_removed_bot_leaves_the_world(harness: MatrixHarness) -> None:
    kim, bot = harness.kim, harness.bot
    seen: list[str] = []
    for kind in (EntityJoined, EntityLeft):
        harness.runtime.handles[0].subscribe(
            kind, lambda event: seen.append(f"{type(event).__name__} {event.entity.name}")
        )
    harness.runtime.handles[0].subscribe(WorldLeft, lambda event: seen.append(f"WorldLeft {event.world.name}"))
    room_id = await join(harness, preset="public_chat")
    await kim.say(room_id, "Ada?", bot.user_id)
    await kim.wait_for(room_id, bot.user_id)
    lee = await kim.server.register("Lee")
    await lee.call("POST", f"join/{room_id}", {})
    await lee.call("POST", f"rooms/{room_id}/leave", {})
    await kim.call("POST", f"rooms/{room_id}/kick", {"user_id": bot.user_id})

    async def is_over() -> bool:
        return "WorldLeft Harbour" in seen

    await wait_until(is_over)
    assert seen == ["EntityJoined Lee", "EntityLeft Lee", "WorldLeft Harbour"]


async def test_a_part_that_is_sent_again_is_shown_once_also_after_a_restart(bot: Person, kim: Person) -> None:
    store = InMemoryStore()
    async with run_ada(bot, kim, store=store) as harness:
        room_id = await kim.open_direct(bot.user_id)
        await kim.say(room_id, "hello")
        await harness.texts(room_id, 1)
        await harness.runtime.agents[0].agent.outbox.drain(30.0)
        [delivery] = await store.ledger.deliveries()
    async with run_ada(bot, kim, store=store) as harness:
        [status] = harness.adapter.connections

        async def is_connected() -> bool:
            return status.has_connected

        await wait_until(is_connected)
        assert await harness.adapter.reconcile(delivery) == delivery.external_id
        with pytest.raises(DeliveryHeld, match="another device"):
            await harness.adapter.reconcile(replace(delivery, first_attempt_at=delivery.created_at - timedelta(days=1)))
    assert len(await kim.messages_of(room_id, bot.user_id)) == 1


async def test_two_characters_have_accounts_of_their_own(synapse: Synapse, kim: Person) -> None:
    first, second = await synapse.register("Ada"), await synapse.register("Bob")
    async with run_ada(first, kim) as harness, run_ada(second, kim) as other:
        rooms = [await kim.open_direct(bot.user_id) for bot in (first, second)]
        await asyncio.gather(*(kim.say(room_id, "hello") for room_id in rooms))
        assert await harness.texts(rooms[0], 1) == await other.texts(rooms[1], 1) == ["You said: hello"]


async def test_a_limited_rate_delays_answers_and_doubles_none(tmp_path_factory: pytest.TempPathFactory) -> None:
    if not is_installed():
        pytest.skip("no Synapse here: `make .synapse` installs it")
    with running_synapse(tmp_path_factory.mktemp("slow"), rate=2, burst=2) as server:
        bot, kim = await server.register("Ada"), await server.register("Kim")
        async with run_ada(bot, kim, settings={"LATEST_RESPONSE": "queue"}) as harness:
            rooms = [await kim.open_direct(bot.user_id) for _ in range(6)]
            for room_id in rooms:
                await kim.say(room_id, "hello")
            for room_id in rooms:
                assert await harness.texts(room_id, 1) == ["You said: hello"]
