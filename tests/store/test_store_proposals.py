"""Replies that wait for a person's decision: on every kind of store."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bot.domain.content import Content
from bot.domain.environment import MarkedPerson, MarkOrigin, PersonMark
from bot.domain.ids import derived_id
from bot.domain.inbound import InboundMessage
from bot.domain.ledger import Outcome, Receipt, Rule
from bot.domain.memory import Memory, MemoryKind
from bot.domain.proposal import Proposal, ProposalState, proposal_id
from bot.store import Store, TurnCommit
from bot.testing import make_message
from tests.store.deliveries import build_delivery

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)


async def propose(
    store: Store, text: str, *, replaced: tuple[str, ...] = (), revision: int = 1
) -> tuple[InboundMessage, Proposal]:
    """Store a message and, as the answer to it, a proposal."""
    message = make_message(text, sent_at=NOW)
    [stored] = await store.ledger.receive([message], NOW)
    receipt = stored.receipt
    assert receipt.turn_id is not None
    content = Content(f"About {text}.")
    proposal = Proposal(
        proposal_id(receipt.turn_id), message.room.id, receipt.turn_id, derived_id(receipt.turn_id, "reply", "0"),
        content, content, NOW, NOW + timedelta(days=1), "APPROVAL=all", receipt.id, message.message.id,
        subject_ids=frozenset({message.message.id, message.author.id}), revision=revision,
    )  # fmt: skip
    parked = replace(receipt, outcome=Outcome.PARKED, rule=Rule.DRAFT, closed_at=NOW)
    await store.ledger.commit(TurnCommit(receipts=(parked,), proposal=proposal, replaced=replaced))
    return message, proposal


def build_reply(store: Store, message: InboundMessage, proposal: Proposal) -> TurnCommit:
    """Return the reply and the delivery of a proposal that is sent."""
    memory = Memory(
        proposal.memory_id, MemoryKind.MESSAGE, derived_id("agent", "Ada"), message.room.id, message.world.id,
        proposal.content, LATER, turn_id=proposal.turn_id,
    )  # fmt: skip
    details = {"memory_id": memory.id, "created_at": LATER}
    return TurnCommit((memory,), (build_delivery(proposal.turn_id, message.room.id, proposal.content, **details),))


async def read_receipt(store: Store, proposal: Proposal) -> Receipt:
    """Return the receipt that a proposal belongs to."""
    assert proposal.receipt_id is not None
    receipt = await store.ledger.receipt(proposal.receipt_id)
    assert receipt is not None
    return receipt


async def test_a_proposal_is_stored_with_its_parked_receipt_and_nothing_is_to_be_sent(store: Store) -> None:
    _, proposal = await propose(store, "ferns")
    assert await store.ledger.proposals(state=ProposalState.WAITING) == [proposal]
    assert await store.ledger.proposals(turn_id=proposal.turn_id) == [proposal]
    assert await store.ledger.proposal(proposal.id) == proposal
    assert (await read_receipt(store, proposal)).outcome is Outcome.PARKED
    assert await store.ledger.deliveries() == []


async def test_a_sent_proposal_has_its_reply_and_its_delivery_and_answers_the_message_once(store: Store) -> None:
    message, proposal = await propose(store, "ferns")
    sent = replace(proposal, state=ProposalState.SENT, decided_by="Ada", decided_at=LATER)
    for count in (1, None):
        stored = await store.ledger.decide_proposal(sent, proposal.revision, build_reply(store, message, sent))
        assert (None if stored is None else len(stored)) == count
    receipt = await read_receipt(store, proposal)
    assert (receipt.outcome, receipt.reason) == (Outcome.ANSWERED, f"Ada sent draft {proposal.id}")
    [reply] = await store.memories.by_turn(proposal.turn_id)
    assert reply.content.text == "About ferns."
    assert len(await store.ledger.deliveries(is_open=True)) == 1
    assert await store.ledger.proposals(state=ProposalState.WAITING) == []
    assert await store.ledger.proposals(state=ProposalState.SENT) == [sent]


async def test_a_decision_about_another_revision_changes_nothing(store: Store) -> None:
    message, proposal = await propose(store, "ferns")
    edited = replace(proposal, content=Content("About mosses."), revision=2)
    assert await store.ledger.decide_proposal(edited, 1) == []
    sent = replace(proposal, state=ProposalState.SENT, decided_by="Ada", decided_at=LATER)
    assert await store.ledger.decide_proposal(sent, 1, build_reply(store, message, sent)) is None
    assert await store.ledger.proposals() == [edited]
    assert await store.ledger.deliveries() == []


async def test_a_newer_proposal_replaces_the_earlier_proposal_unless_it_is_edited(store: Store) -> None:
    _, first = await propose(store, "one")
    newer, second = await propose(store, "two", replaced=(first.id,), revision=2)
    assert [(item.id, item.state) for item in await store.ledger.proposals()] == [
        (first.id, ProposalState.REPLACED),
        (second.id, ProposalState.WAITING),
    ]
    receipt = await read_receipt(store, first)
    assert (receipt.outcome, receipt.superseded_by) == (Outcome.SUPERSEDED, newer.message.id)
    editing = replace(second, editor="Ada", edited_until=LATER)
    assert await store.ledger.decide_proposal(editing, 2) == []
    _, third = await propose(store, "three", replaced=(second.id,), revision=3)
    assert [item.id for item in await store.ledger.proposals(state=ProposalState.WAITING)] == [second.id, third.id]


async def test_a_commit_that_comes_too_late_proposes_nothing(store: Store) -> None:
    message, proposal = await propose(store, "ferns")
    receipt = await read_receipt(store, proposal)
    other = replace(proposal, id="another", turn_id=message.message.id)
    await store.ledger.commit(TurnCommit(receipts=(replace(receipt, turn_id=other.turn_id),), proposal=other))
    assert await store.ledger.proposals() == [proposal]


async def test_a_proposal_is_withdrawn_with_the_message_that_led_to_it(store: Store) -> None:
    message, proposal = await propose(store, "ferns")
    result = await store.edits.delete_messages(message.room.id, [message.key.message_id], LATER)
    assert [item.state for item in result.proposals] == [ProposalState.WITHDRAWN]
    receipt = await read_receipt(store, proposal)
    assert (receipt.outcome, receipt.reason) == (Outcome.CANCELLED, "its message was removed")


async def test_an_edited_message_is_answered_again_and_its_proposal_withdrawn(store: Store) -> None:
    message, proposal = await propose(store, "ferns")
    text = replace(message.message, content=replace(message.message.content, text="mosses"))
    key = replace(message.key, event_id="edited", revision=1)
    result = await store.edits.apply_edit(replace(message, key=key, message=text), LATER)
    assert not result.event.receipt.outcome.is_final
    assert result.event.receipt.edit_state == "normal"
    assert [item.id for item in result.proposals] == [proposal.id]
    assert (await read_receipt(store, proposal)).outcome is Outcome.CANCELLED


async def test_the_proposals_of_a_person_who_is_erased_are_deleted(store: Store) -> None:
    message, proposal = await propose(store, "ferns")
    result = await store.edits.erase_entity(message.author.id, LATER)
    assert [item.id for item in result.cancelled.proposals] == [proposal.id]
    assert await store.ledger.proposals() == []
    assert (await read_receipt(store, proposal)).rule == Rule.ERASED


async def test_a_person_who_is_not_read_any_more_gets_no_answer_that_waits(store: Store) -> None:
    message, proposal = await propose(store, "ferns")
    mark = MarkedPerson(
        message.author.id, PersonMark.NOT_READ, "test", message.author.external_id, MarkOrigin.PERSON, LATER
    )
    await store.marks.save(mark)
    [withdrawn] = await store.ledger.proposals()
    assert withdrawn.state is ProposalState.WITHDRAWN
    assert (await read_receipt(store, proposal)).outcome is Outcome.CANCELLED


async def test_a_proposal_is_reserved_for_a_single_editor(store: Store) -> None:
    _, proposal = await propose(store, "ferns")
    reserved = [replace(proposal, editor=name, edited_until=LATER) for name in ("Ada", "Bob")]
    stored = [await store.ledger.decide_proposal(item, proposal.revision, editor="") for item in reserved]
    assert stored == [[], None]
    [waiting] = await store.ledger.proposals(state=ProposalState.WAITING)
    assert waiting.editor == "Ada"


async def test_an_approved_action_opens_the_receipt_of_its_turn_again(store: Store) -> None:
    _, proposal = await propose(store, "ferns")
    key = "action:0:BOOK"
    action = replace(proposal, id=proposal_id(proposal.turn_id, key), action=key)
    await store.ledger.commit(TurnCommit(proposal=action))
    approved = replace(action, state=ProposalState.SENT, decided_by="Ada", decided_at=LATER)
    assert await store.ledger.decide_proposal(approved, action.revision) == []
    [opened] = await store.ledger.receipts(is_open=True)
    assert (opened.outcome, opened.claimed_at, opened.turn_id) == (Outcome.RECEIVED, LATER, proposal.turn_id)
    assert opened.notes[-1] == f"Ada approved BOOK (draft {action.id})"
    assert await store.ledger.decide_proposal(approved, action.revision) is None


async def test_a_person_who_is_forgotten_is_not_named_in_their_decisions(store: Store) -> None:
    _, proposal = await propose(store, "ferns")
    decider = derived_id("test", "Bob")
    sent = replace(proposal, state=ProposalState.SENT, decided_by="Bob", decided_by_id=decider, decided_at=LATER)
    await store.ledger.decide_proposal(sent, proposal.revision)
    await store.edits.erase_entity(decider, LATER)
    assert await store.ledger.proposal(proposal.id) == replace(sent, decided_by="", decided_by_id=None)
    assert (await read_receipt(store, proposal)).reason == f"a person sent draft {proposal.id}"
