"""People who are not read: nothing that they write is stored, and what was stored before is hidden."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bot.domain.content import Content, Quotation, build_forward_metadata
from bot.domain.environment import ChannelType, Component, Entity, MarkedPerson, MarkOrigin, PersonMark, Role
from bot.domain.events import MessageReceived
from bot.domain.hiding import HIDDEN_REPLY, HIDDEN_TEXT
from bot.domain.ids import new_id
from bot.domain.inbound import InboundMessage, Reaction
from bot.domain.ledger import Outcome, Rule
from bot.domain.memory import MemoryKind
from bot.models.types import TextRequest
from bot.store import InMemoryStore, ReceiptQuery
from bot.store.lists import MessageFilter, RoomFilter
from bot.store.protocols import LogKind, RecallScope
from bot.testing import AgentHarness, ScriptedModel, make_message, model_answer, running_agent
from bot.turn import TurnEnded
from tests.commands.asking import give, press

GROUP = ChannelType.GROUP
SECRET = "my zebracorn"


@pytest.fixture
async def harness() -> AsyncIterator[AgentHarness]:
    async with running_agent(model=ScriptedModel(model_answer("Aye."))) as harness:
        yield harness


def written(harness: AgentHarness, text: str | Content = SECRET, author: str = "Alice") -> InboundMessage:
    return make_message(text, sent_at=harness.agent.clock(), author=author, kind=GROUP)


async def texts_of(harness: AgentHarness) -> list[str]:
    room = written(harness).room
    return [memory.content.text for memory in await harness.agent.store.memories.recent(room.id, 50)]


async def test_a_message_of_a_person_who_is_not_read_leaves_a_placeholder_and_its_receipt(
    harness: AgentHarness,
) -> None:
    heard: list[MessageReceived] = []
    harness.agent.events.subscribe(MessageReceived, heard.append, at_once=True)
    await give(harness, "ignore-me")
    receipt = await harness.send(f"Ada, {SECRET}", kind=GROUP)
    assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, Rule.NOT_READ)
    assert await texts_of(harness) == [HIDDEN_TEXT]
    assert (harness.texts, harness.model.requests, heard) == ([], [], [])
    await harness.agent_runtime.handle.people._flush_activity()
    assert await harness.agent.store.entities.active_entities() == []


async def test_the_answer_says_what_still_happens_and_offers_deletion(harness: AgentHarness) -> None:
    done = await give(harness, "ignore-me")
    for word in ("ids", "receipts", "list of people", "Commands still work", "distress", "off"):
        assert word in done.text
    [choice] = done.choices
    assert "cannot be undone" in (await press(harness, choice.value)).text


async def test_off_ends_it_for_what_is_written_from_then_on(harness: AgentHarness) -> None:
    await give(harness, "ignore-me")
    await harness.send(SECRET, kind=GROUP)
    assert "read your messages again" in (await give(harness, "ignore-me", text="off")).text
    await harness.send("Ada, hello", kind=GROUP)
    assert await texts_of(harness) == [HIDDEN_TEXT, "Ada, hello", "Aye."]
    assert "had not asked" in (await give(harness, "ignore-me", text="off")).text
    scope, memories = RecallScope(written(harness).room.id, written(harness).world.id), harness.agent.store.memories
    assert await memories.search("hidden request", scope, MemoryKind.MESSAGE) == []
    assert HIDDEN_TEXT not in {memory.content.text for memory in (await memories.unembedded("any")).memories}


async def test_what_was_stored_before_is_hidden_everywhere_and_shown_again_afterwards(harness: AgentHarness) -> None:
    await harness.send(f"Ada, {SECRET}", kind=GROUP)
    quotation = Quotation(SECRET, "Alice", written(harness).author.id, "1")
    await harness.send(Content("Ada, what is that?", quotation=quotation), author="Bob", kind=GROUP)
    store, message = harness.agent.store, written(harness)
    scope = RecallScope(message.room.id, message.world.id)
    await give(harness, "ignore-me")
    assert await texts_of(harness) == [HIDDEN_TEXT, HIDDEN_REPLY, "Ada, what is that?", "Aye."]
    [asked] = [item for item in await store.memories.recent(message.room.id) if item.content.quotation]
    assert asked.content.quotation is not None
    assert (asked.content.quotation.text, asked.content.quotation.author_name) == (HIDDEN_TEXT, "")
    assert await store.memories.search("zebracorn", scope, MemoryKind.MESSAGE) == []
    page = await store.lists.messages(message.room.id, MessageFilter())
    assert not any("zebracorn" in str(item) for _, item in page.items)
    assert not any("zebracorn" in str(item) for item in await store.ledger.search_receipts(ReceiptQuery()))
    assert not any("zebracorn" in str(item) for item in (await store.memories.of_entity(message.author.id)).memories)
    assert await store.entities.participants(message.room.id) == [
        entity for entity in await store.entities.participants(message.room.id) if entity.id != message.author.id
    ]
    await give(harness, "ignore-me", text="off")
    assert await texts_of(harness) == [f"Ada, {SECRET}", "Aye.", "Ada, what is that?", "Aye."]


async def test_the_prompt_of_others_has_neither_words_nor_name_of_a_person_who_is_not_read(
    harness: AgentHarness,
) -> None:
    await harness.send(f"Ada, {SECRET}", author="Alice", kind=GROUP)
    await give(harness, "ignore-me")
    await harness.send(SECRET, author="Alice", kind=GROUP)
    await harness.send("Ada, who was here?", author="Bob", kind=GROUP)
    request = harness.model.requests[-1]
    assert isinstance(request, TextRequest)
    assert "zebracorn" not in request.prompt
    assert "Alice" not in request.prompt
    assert request.prompt.count(HIDDEN_TEXT) == 2


async def test_others_quote_and_forward_them_without_their_words(harness: AgentHarness) -> None:
    await give(harness, "ignore-me")
    alice = written(harness).author.id
    await harness.send(Content("Look", quotation=Quotation(SECRET, "Alice", alice, "1")), author="Bob", kind=GROUP)
    metadata = build_forward_metadata(harness.agent.clock(), author_id=alice)
    await harness.send(Content(f"> {SECRET}", metadata=metadata), author="Bob", kind=GROUP)
    stored = await harness.agent.store.memories.recent(written(harness).room.id)
    assert "zebracorn" not in str(stored)
    assert [memory.content.text for memory in stored] == ["Look", "Aye.", HIDDEN_TEXT, "Aye."]


async def test_an_edit_changes_nothing_of_what_was_stored(harness: AgentHarness) -> None:
    first = replace(written(harness, "before"))
    await harness.agent_runtime.inbox.submit(first)
    await give(harness, "ignore-me")
    edited = replace(
        first,
        key=replace(first.key, event_id="edit", revision=1),
        message=replace(first.message, content=Content(SECRET)),
    )
    receipt = await harness.agent_runtime.handle.edits.submit_edit(edited)
    assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, Rule.NOT_READ)
    await give(harness, "ignore-me", text="off")
    assert await texts_of(harness) == ["before"]


async def test_a_reaction_is_not_stored(harness: AgentHarness) -> None:
    await give(harness, "ignore-me")
    place = written(harness)
    reaction = Reaction(place.world, place.room, place.author, "1", "👍", harness.agent.clock())
    assert not await harness.agent_runtime.handle.edits.add_reaction(reaction)


async def test_a_question_by_command_is_not_read_and_the_word_of_an_unknown_command_is_not_stored(
    harness: AgentHarness,
) -> None:
    await give(harness, "ignore-me")
    assert "do not read this question" in (await give(harness, "ask", text=SECRET)).text
    assert "zebracorn" not in (await give(harness, "zebracorn")).text
    receipts = await harness.agent.store.ledger.receipts()
    assert "zebracorn" not in str(receipts)


async def test_their_names_are_not_stored(harness: AgentHarness) -> None:
    await give(harness, "ignore-me", author="Nora")
    await harness.send(SECRET, author="Nora")
    member = replace(make_message("", sent_at=harness.agent.clock(), author="Nora").author, names=("Nora the Second",))
    await harness.agent_runtime.handle.membership.add_member(written(harness).world, member)
    assert await harness.agent.store.entities.entities_by_name("Nora the Second") == []


async def test_an_event_that_cannot_be_read_leaves_no_words_while_there_is_such_a_person_on_its_platform(
    harness: AgentHarness,
) -> None:
    await give(harness, "ignore-me")
    raw = {"author": "17", "parts": [{"text": SECRET, "size": 1}]}
    await harness.agent_runtime.handle.record_unreadable("test", "account", "e1", raw, ValueError(SECRET))
    [event] = await harness.agent.store.ledger.unreadable_events()
    assert json.loads(event.raw) == {"author": "17", "parts": [{"text": "…", "size": 1}]}
    assert event.cause == "ValueError"


async def test_each_origin_ends_its_own_mark_only(harness: AgentHarness) -> None:
    await harness.send("Ada, hello", kind=GROUP)
    operations, person = harness.agent_runtime.handle.operations, written(harness).author
    await give(harness, "ignore-me")
    ignored = await operations.ignore_person(person.id, is_ignored=True, source="a test")
    assert ignored.ignored_by == ["operator", "person"]
    assert "the operator" in (await give(harness, "ignore-me", text="off")).text
    assert person.id in harness.agent.store.marks.not_read
    assert (await operations.ignore_person(person.id, is_ignored=False, source="a test")).ignored_by == []
    assert person.id not in harness.agent.store.marks.not_read
    with pytest.raises(LookupError):
        await operations.ignore_person(written(harness, author="Nobody").author.id, is_ignored=True, source="a test")


async def test_a_role_counts_by_world(harness: AgentHarness) -> None:
    edits, place = harness.agent_runtime.handle.edits, written(harness)
    other_world = make_message("", sent_at=harness.agent.clock(), platform="other").world
    for world, is_ignored, is_read in [
        (place.world, True, False),
        (other_world, False, False),
        (other_world, True, False),
        (place.world, False, False),
        (other_world, False, True),
    ]:
        await edits.report_ignored_role(place.author, world.id, is_ignored=is_ignored)
        assert (place.author.id not in harness.agent.store.marks.not_read) is is_read


async def test_the_mark_holds_after_a_restart_and_after_forget_me() -> None:
    store = InMemoryStore()
    async with running_agent(store=store) as harness:
        await harness.send("Ada, hello", kind=GROUP)
        await give(harness, "ignore-me")
        await give(harness, "forget-me")
        await give(harness, "forget-me")
    await store.marks.refresh()
    async with running_agent(store=store) as harness:
        assert (await harness.send(SECRET, kind=GROUP)).rule == Rule.NOT_READ
        [marked] = store.marks.find()
        assert (marked.origin, marked.external_id) == (MarkOrigin.PERSON, "Alice")


async def test_a_persons_own_export_has_what_was_stored_before(harness: AgentHarness) -> None:
    await harness.send(f"Ada, {SECRET}", kind=GROUP)
    await give(harness, "ignore-me")
    alice = written(harness).author.id
    page = await harness.agent.store.memories.of_entity(alice, with_hidden=True)
    assert [memory.content.text for memory in page.memories] == [f"Ada, {SECRET}"]


async def test_what_a_turn_noted_of_their_words_is_deleted(harness: AgentHarness) -> None:
    ended = asyncio.Event()
    harness.agent.events.subscribe(TurnEnded, lambda event: ended.set(), at_once=True)
    receipt = await harness.send(f"Ada, {SECRET}", kind=GROUP)
    assert receipt.turn_id is not None
    await ended.wait()
    conversations = harness.agent_runtime.handle.conversations
    assert "zebracorn" in str(await conversations.trace(receipt.turn_id))
    await give(harness, "ignore-me")
    assert await conversations.trace(receipt.turn_id) is None


async def test_a_person_of_several_names_is_not_read_under_any(harness: AgentHarness) -> None:
    await give(harness, "ignore-me", role=Role.ADMIN)
    renamed = replace(written(harness), author=Entity(written(harness).author.id, "test", "Alice", ("Someone Else",)))
    receipt = await harness.agent_runtime.inbox.submit(renamed)
    assert receipt.rule == Rule.NOT_READ


async def test_what_is_being_answered_to_them_is_stopped() -> None:
    asked, gate = asyncio.Event(), asyncio.Event()

    async def wait(request: TextRequest) -> str:
        asked.set()
        await gate.wait()
        return model_answer("Aye.")

    async with running_agent(model=ScriptedModel(wait)) as harness:
        receipt = await harness.submit(f"Ada, {SECRET}", kind=GROUP)
        await asked.wait()
        await give(harness, "ignore-me")
        closed = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        assert closed.outcome is Outcome.CANCELLED
        assert harness.texts == []


async def test_a_message_that_was_left_open_by_a_crash_is_not_answered_any_more() -> None:
    store = InMemoryStore()
    async with running_agent(store=store) as harness:
        message = written(harness, f"Ada, {SECRET}")
        person = message.author
    await store.ledger.receive([message], harness.agent.clock())
    await store.marks.save(
        MarkedPerson(person.id, PersonMark.NOT_READ, "test", "Alice", MarkOrigin.OPERATOR, harness.agent.clock())
    )
    async with running_agent(store=store) as harness:
        [receipt] = await store.ledger.receipts()
        closed = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        assert (closed.outcome, closed.rule) == (Outcome.IGNORED, Rule.NOT_READ)
        assert harness.model.requests == []


async def test_names_of_private_chats_details_and_arguments_of_actions_are_hidden_too(harness: AgentHarness) -> None:
    place, store = make_message("", sent_at=harness.agent.clock(), room="Alice's chat"), harness.agent.store
    await harness.send(SECRET, room="Alice's chat")
    await store.entities.save_component(Component(new_id(), place.author.id, "contact", {"note": SECRET}))
    body = {"action": "REMIND", "allowed": True, "arguments": {"text": SECRET}}
    await store.logs.log(LogKind.AUTHORIZATION, body, entity_id=place.author.id)
    await give(harness, "ignore-me")
    room = await store.worlds.room(place.room.id)
    listed = await store.lists.rooms(RoomFilter(), counted_since=harness.agent.clock())
    assert room is not None
    assert room.name == ""
    assert "Alice's chat" not in {summary.room.name for _, summary in listed.items}
    assert await store.entities.components(place.author.id) == []
    assert len(await store.entities.components(place.author.id, with_hidden=True)) == 1
    assert "zebracorn" not in str(await store.logs.logs())
    await give(harness, "ignore-me", text="off")
    assert (await store.worlds.rooms_by_id([place.room.id]))[place.room.id].name == "Alice's chat"
