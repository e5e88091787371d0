"""CALL_A_PERSON: the people who run the character are told, with a button to take over."""

from bot import ChannelType, Content, Outcome, Role
from bot.domain.ledger import Rule
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from tests.commands.asking import press

GROUP = ChannelType.GROUP
CALL = model_answer("I have called one.", actions=["CALL_A_PERSON"], parameters={"reason": "a refund"})


class ButtonAdapter(RecordingAdapter):
    """A platform with buttons, whose messages are not split."""

    shows_choices = True

    def split_content(self, content: Content) -> list[Content]:
        return [content]


def notices_in(harness: AgentHarness, room: str) -> list[str]:
    return [part.content.text for part in harness.adapter.sent if part.target == room]


async def meet(harness: AgentHarness, room: str, author: str, kind: ChannelType = GROUP) -> None:
    """Have a room stored, with a message that is not answered."""
    message = make_message("", sent_at=harness.agent.clock(), room=room, author=author, kind=kind)
    receipt = await harness.agent_runtime.inbox.submit(message)
    await harness.agent_runtime.inbox.wait_outcome(receipt.id)


async def test_the_operators_room_is_notified_a_single_time_with_a_button_that_takes_over() -> None:
    async with running_agent(
        model=ScriptedModel(CALL), adapter=ButtonAdapter(), settings={"OPERATORS_ROOM": "test:office"}
    ) as harness:
        await meet(harness, "office", "Olga")
        for _ in range(2):
            await harness.send("Ada, give me a person", kind=GROUP)
        assert notices_in(harness, "office") == ["Alice asks to talk to a person in lobby (test): a refund"]
        [choice] = next(part.content.choices for part in harness.adapter.sent if part.target == "office")
        refused = await press(harness, choice.value, author="Bob", room="office")
        assert "ADMIN" in refused.text
        taken = await press(harness, choice.value, author="Olga", role=Role.ADMIN, room="office")
        assert "Olga has taken over in lobby" in taken.text
        assert (await harness.send("Ada, hello?", kind=GROUP)).rule == Rule.TAKEN_OVER


async def test_without_an_operators_room_the_owner_is_notified_in_private() -> None:
    async with running_agent(
        model=ScriptedModel(CALL), adapter=ButtonAdapter(), settings={"OWNER_ACCOUNTS": "test:Olga"}
    ) as harness:
        await meet(harness, "Olga", "Olga", ChannelType.DM)
        receipt = await harness.send("Ada, give me a person", kind=GROUP)
        assert receipt.outcome is Outcome.ANSWERED
        assert notices_in(harness, "Olga") == ["Alice asks to talk to a person in lobby (test): a refund"]


async def test_the_action_is_offered_only_where_a_person_can_be_called() -> None:
    async with running_agent() as harness:
        assert "CALL_A_PERSON" not in {spec.name for spec in harness.agent.catalog.actions}
