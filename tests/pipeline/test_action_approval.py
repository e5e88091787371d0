"""Actions that wait until a person approves them: what is shown, and what becomes of their turn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bot import ActionResult, ChannelType, Effect, Outcome, Plugin, Receipt, Role, Turn, action
from bot.domain.environment import Authority, TakeOver
from bot.domain.ledger import Rule
from bot.domain.proposal import Proposal, ProposalState
from bot.outbound.proposals import ProposalDecision, build_choices
from bot.plugin_system.registry import CONFIRMED_WORKER
from bot.testing import AgentHarness, ManualClock, RecordingAdapter, ScriptedModel, model_answer, running_agent
from tests.commands.asking import press
from tests.pipeline.test_proposals import SETTINGS, decide, only_waiting, reread, sent_in

SECRET = "sk-1234567890-of-the-operator"
BOOK = model_answer("Booked.", actions=["LOOK", "BOOK"], parameters={"BOOK": {"place": "the garden"}})


class Bookings:
    """Runs an agent whose actions in the lobby wait for approvers, and keeps what they have done."""

    def __init__(self, *answers: str, effect: Effect = Effect.UNSAFE, authority: Authority | None = None) -> None:
        self.done: list[str] = []
        script = iter([*(answers or (BOOK,)), *([BOOK] * 9)])
        self.model = ScriptedModel(lambda request: next(script) if "nothing to say" not in request.prompt else "")
        self.clock = ManualClock()

        @action("LOOK", "Look.", effect=Effect.PURE)
        async def look(turn: Turn) -> ActionResult:
            self.done.append("looked")
            return ActionResult()

        @action("BOOK", "Book a table.", effect=effect, authority=authority or Authority.named("book"))
        async def book(turn: Turn, place: str) -> ActionResult:
            self.done.append(f"booked {place}")
            return ActionResult()

        self._plugin = Plugin("bookings", "Books.", actions=[look, book])

    @asynccontextmanager
    async def running(self, **settings: str) -> AsyncIterator[AgentHarness]:
        """Run the agent, which knows the room of its approvers."""
        adapter = RecordingAdapter(can_edit=True)
        every = {**SETTINGS, **settings}
        async with running_agent(
            self._plugin, model=self.model, adapter=adapter, clock=self.clock.now, settings=every
        ) as harness:
            await harness.send("nothing to say here", room="approvers", kind=ChannelType.GROUP)
            yield harness


async def approve(harness: AgentHarness, receipt: Receipt, proposal: Proposal) -> Receipt:
    """Approve an action, and return the receipt once its turn has ended again."""
    assert (await decide(harness, proposal, ProposalDecision.SEND)).is_done
    closed = await harness.agent_runtime.inbox.wait_outcome(receipt.id)
    await harness.agent.outbox.drain(5.0)
    return closed


async def test_an_action_runs_once_it_is_approved_without_another_call_for_the_answer() -> None:
    bookings = Bookings()
    async with bookings.running() as harness:
        receipt = await harness.send("Book the garden")
        assert (receipt.outcome, receipt.rule, bookings.done) == (Outcome.PARKED, Rule.DRAFT, ["looked"])
        calls, proposal = len(bookings.model.requests), await only_waiting(harness)
        assert 'BOOK\nplace: "the garden"' in sent_in(harness, "approvers")[-1]
        answered = await approve(harness, receipt, proposal)
        assert bookings.done == ["looked", "booked the garden"]
        assert len(bookings.model.requests) == calls
        assert f"Bob approved BOOK (draft {proposal.id})" in answered.notes
        [reply] = await harness.agent.proposals.waiting()  # what the character says of it waits as every reply there
        assert (answered.outcome, reply.content.text, reply.action) == (Outcome.PARKED, "Booked.", "")
        await decide(harness, reply, ProposalDecision.SEND)
        assert sent_in(harness, "lobby") == ["Booked."]
        assert (await reread(harness, receipt)).outcome is Outcome.ANSWERED


@pytest.mark.parametrize("effect", [Effect.UNSAFE, Effect.KEYED, Effect.IDEMPOTENT, Effect.PURE])
async def test_only_what_cannot_be_repeated_waits_for_approval(effect: Effect) -> None:
    bookings = Bookings(effect=effect)
    async with bookings.running() as harness:
        await harness.send("Book the garden")
        waits = effect in (Effect.UNSAFE, Effect.KEYED)
        assert bookings.done == (["looked"] if waits else ["looked", "booked the garden"])


async def test_an_action_in_a_room_without_approval_runs_at_once() -> None:
    bookings = Bookings()
    async with bookings.running() as harness:
        await harness.send("Book the garden", room="elsewhere")
        assert bookings.done == ["looked", "booked the garden"]


async def test_the_buttons_of_an_action_run_drop_and_take_over_and_it_cannot_be_edited() -> None:
    bookings = Bookings()
    async with bookings.running() as harness:
        receipt = await harness.send("Book the garden")
        proposal = await only_waiting(harness)
        run, drop, take_over = build_choices(proposal)
        assert (run.label, drop.label, take_over.label) == ("Run", "Drop", "Take over")
        edited = await decide(harness, proposal, ProposalDecision.EDIT, text="Book the cellar")
        assert not edited.is_done
        stranger = await press(harness, run.value, author="Sam", role=Role.MEMBER, room="approvers")
        assert bookings.done == ["looked"], stranger.text
        first = await press(harness, run.value, author="Bob", role=Role.ADMIN, room="approvers")
        assert first.text == f"Draft {proposal.id} is approved: BOOK runs."
        second = await press(harness, drop.value, author="Carol", role=Role.ADMIN, room="approvers")
        assert second.text == f"Draft {proposal.id} was already approved by Bob."
        await harness.agent_runtime.inbox.wait_outcome(receipt.id)
        assert bookings.done == ["looked", "booked the garden"]


async def test_a_dropped_action_does_not_run_and_ends_its_turn() -> None:
    bookings = Bookings()
    async with bookings.running() as harness:
        receipt = await harness.send("Book the garden")
        await decide(harness, await only_waiting(harness), ProposalDecision.DROP)
        dropped = await reread(harness, receipt)
        assert (dropped.outcome, dropped.rule, bookings.done) == (Outcome.IGNORED, Rule.DRAFT, ["looked"])
        assert sent_in(harness, "lobby") == []


async def test_an_action_without_a_decision_is_dropped() -> None:
    bookings = Bookings()
    async with bookings.running(APPROVAL_TIMEOUT="60") as harness:
        receipt = await harness.send("Book the garden")
        bookings.clock.advance(61)
        assert await harness.agent.proposals.expire() == 1
        assert ((await reread(harness, receipt)).outcome, bookings.done) == (Outcome.EXPIRED, ["looked"])


async def test_an_action_may_wait_for_longer_than_a_message_and_holds_up_no_other() -> None:
    bookings = Bookings(BOOK, model_answer("It is noon."))
    async with bookings.running(LATEST_RESPONSE="queue") as harness:
        receipt = await harness.send("Book the garden")
        proposal = await only_waiting(harness)
        bookings.clock.advance(3_600)
        await harness.send("What time is it?")
        assert [item.content.text for item in await harness.agent.proposals.waiting()][1:] == ["It is noon."]
        await approve(harness, receipt, proposal)
        waiting = [item.content.text for item in await harness.agent.proposals.waiting()]
        assert (waiting, bookings.done) == (["It is noon.", "Booked."], ["looked", "booked the garden"])


async def test_neither_the_answer_to_a_newer_message_nor_that_of_the_action_replaces_the_other() -> None:
    bookings = Bookings(BOOK, model_answer("It is noon."))
    async with bookings.running() as harness:
        receipt = await harness.send("Book the garden")
        proposal = await only_waiting(harness)
        await harness.send("What time is it?")
        await approve(harness, receipt, proposal)
        waiting = [item.content.text for item in await harness.agent.proposals.waiting()]
        assert waiting == ["It is noon.", "Booked."]


async def test_the_approver_sees_no_secret_and_both_ends_of_a_long_argument() -> None:
    place = f"first {SECRET} {'x' * 5_000} last"
    answer = model_answer("Booked.", actions=["BOOK"], parameters={"BOOK": {"place": place}})
    bookings = Bookings(answer)
    async with bookings.running(TEST_API_KEY=SECRET) as harness:
        await harness.send(f"Book {place}")
        shown = (await only_waiting(harness)).content.text
        assert SECRET not in shown
        assert (len(shown) < 1_000, "first" in shown, shown.endswith('last"')) == (True, True, True)


async def test_a_deleted_message_withdraws_its_action() -> None:
    bookings = Bookings()
    async with bookings.running() as harness:
        receipt = await harness.send("Book the garden")
        proposal = await only_waiting(harness)
        await harness.agent_runtime.handle.edits.delete_messages(receipt.room_id, [receipt.key.message_id])
        refused = await decide(harness, proposal, ProposalDecision.SEND)
        assert (refused.is_done, refused.proposal.state) == (False, ProposalState.WITHDRAWN)
        assert bookings.done == ["looked"]


async def test_a_person_who_is_forgotten_has_their_action_withdrawn() -> None:
    bookings = Bookings()
    async with bookings.running() as harness:
        receipt = await harness.send("Book the garden")
        await harness.agent_runtime.handle.edits.erase_entity(receipt.author_id)
        assert await harness.agent.store.ledger.proposals() == []
        assert bookings.done == ["looked"]


async def test_an_action_is_dropped_where_a_person_takes_over() -> None:
    bookings = Bookings()
    async with bookings.running() as harness:
        receipt = await harness.send("Book the garden")
        take_over = TakeOver(receipt.room_id, "Mia", "/take-over", harness.agent.clock())
        await harness.agent_runtime.handle.operations.begin_take_over(take_over)
        assert ((await reread(harness, receipt)).outcome, bookings.done) == (Outcome.IGNORED, ["looked"])


async def test_an_approved_action_of_several_steps_goes_on_where_it_was() -> None:
    def step(name: str, parameters: str = "{}") -> str:
        return f"<response><action>{name}</action><parameters>{parameters}</parameters></response>"

    steps = (step("LOOK"), step("BOOK", '{"place": "the garden"}'), "<response><isFinish>true</isFinish></response>")
    bookings = Bookings(*steps, "<response><text>Done.</text></response>")
    async with bookings.running(USE_MULTI_STEP="true") as harness:
        receipt = await harness.send("Book the garden")
        assert receipt.outcome is Outcome.PARKED
        await approve(harness, receipt, await only_waiting(harness))
        assert bookings.done == ["looked", "booked the garden"]


async def test_the_person_confirms_first_and_then_an_approver_decides() -> None:
    bookings = Bookings(authority=Authority.confirmed())
    async with bookings.running() as harness:
        receipt = await harness.send("Book the garden")
        question = await only_waiting(harness)
        assert (receipt.outcome, question.action) == (Outcome.PARKED, "")
        await decide(harness, question, ProposalDecision.SEND)
        confirm, *_ = question.content.choices
        await press(harness, confirm.value)
        await wait_until_postponed(harness)
        proposal = await only_waiting(harness)
        assert (proposal.action_name, bookings.done) == ("BOOK", ["looked"])
        await decide(harness, proposal, ProposalDecision.SEND)
        waiting = await next_waiting(harness)
        assert bookings.done == ["looked", "booked the garden"]
        assert waiting[0].action == ""  # the report, which is a reply as any other


async def wait_until_postponed(harness: AgentHarness) -> None:
    """Wait until the task of a confirmed action waits for its approval."""
    await next_waiting(harness)
    while True:
        [task] = await harness.agent.store.tasks.tasks(name=CONFIRMED_WORKER)
        if task.leased_until is None:
            return
        await asyncio.sleep(0)


async def next_waiting(harness: AgentHarness) -> list[Proposal]:
    """Return what waits, once something does."""
    while True:
        if waiting := await harness.agent.proposals.waiting():
            return waiting
        await asyncio.sleep(0)
