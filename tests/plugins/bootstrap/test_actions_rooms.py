"""Rules of following and muting: who decides, and when the character speaks from then on."""

import pytest

from bot import ChannelType, Outcome, ParticipantState, Role
from bot.models import Purpose, TextRequest
from bot.testing import AgentHarness, ScriptedModel, make_message, model_answer, running_agent

GROUP = ChannelType.GROUP
ASKED = {
    "FOLLOW_ROOM": "take part here",
    "UNFOLLOW_ROOM": "that is enough",
    "MUTE_ROOM": "be quiet",
    "UNMUTE_ROOM": "you may talk again",
}
IGNORING = "<response><reasoning>not for Ada</reasoning><action>IGNORE</action></response>"


class Obedient:
    """A model that does what the test says next, and chooses silence where it is asked whether to speak."""

    def __init__(self) -> None:
        self.does: tuple[str, ...] = ("REPLY",)
        self.model = ScriptedModel(self._write)

    def _write(self, request: TextRequest) -> str:
        if request.purpose is Purpose.SHOULD_RESPOND:
            return IGNORING
        return model_answer("Very well.", actions=self.does)


async def attendance(harness: AgentHarness) -> ParticipantState:
    room = make_message("", sent_at=harness.agent.clock(), kind=GROUP).room
    return await harness.agent.store.worlds.participant_state(room.id)


async def test_an_admin_has_every_message_of_a_room_answered_and_no_more() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        assert (await harness.send("Nice weather", kind=GROUP)).outcome is Outcome.IGNORED

        obedient.does = ("REPLY", "FOLLOW_ROOM")
        await harness.send("Ada, take part here", kind=GROUP, role=Role.ADMIN)
        assert await attendance(harness) is ParticipantState.FOLLOWED
        obedient.does = ("REPLY",)
        assert (await harness.send("Nice weather", kind=GROUP)).rule == "FOLLOWED"

        obedient.does = ("REPLY", "UNFOLLOW_ROOM")
        await harness.send("That is enough", kind=GROUP, role=Role.ADMIN)
        assert await attendance(harness) is ParticipantState.DEFAULT
        assert (await harness.send("Nice weather", kind=GROUP)).outcome is Outcome.IGNORED


async def test_a_muted_room_hears_the_character_only_when_it_is_named() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        obedient.does = ("REPLY", "MUTE_ROOM")
        await harness.send("Ada, be quiet", kind=GROUP, role=Role.OWNER)
        obedient.does = ("REPLY",)
        assert (await harness.send("Nice weather", kind=GROUP)).rule == "MUTED"
        assert (await harness.send("Ada, are you there?", kind=GROUP)).outcome is Outcome.ANSWERED

        obedient.does = ("REPLY", "UNMUTE_ROOM")
        await harness.send("Ada, speak again", kind=GROUP, role=Role.OWNER)
        assert await attendance(harness) is ParticipantState.DEFAULT


@pytest.mark.matrix(3)
@pytest.mark.parametrize("name", ["FOLLOW_ROOM", "UNFOLLOW_ROOM", "MUTE_ROOM", "UNMUTE_ROOM"])
@pytest.mark.parametrize("role", [Role.MEMBER, Role.NONE])
@pytest.mark.parametrize("before", list(ParticipantState))
async def test_in_a_group_only_admins_decide(name: str, role: Role, before: ParticipantState) -> None:
    async with running_agent(model=ScriptedModel(model_answer("Well.", actions=("REPLY", name)))) as harness:
        room = make_message("", sent_at=harness.agent.clock(), kind=GROUP).room
        await harness.agent.store.worlds.set_participant_state(room.id, before)
        receipt = await harness.send("Ada, do it", kind=GROUP, role=role)
        assert await attendance(harness) is before
    assert f"{name} is not available here" in receipt.notes


async def test_in_private_the_only_person_decides() -> None:
    obedient = Obedient()
    obedient.does = ("REPLY", "MUTE_ROOM")
    async with running_agent(model=obedient.model) as harness:
        await harness.send("be quiet for now")
        assert (await harness.send("and another thing")).rule == "MUTED"
        obedient.does = ("REPLY", "UNMUTE_ROOM")
        await harness.send("Ada, talk to me again")
        assert (await harness.send("good")).outcome is Outcome.ANSWERED


@pytest.mark.parametrize(
    ("before", "name", "after"),
    [
        (ParticipantState.MUTED, "MUTE_ROOM", ParticipantState.MUTED),
        (ParticipantState.FOLLOWED, "FOLLOW_ROOM", ParticipantState.FOLLOWED),
        (ParticipantState.MUTED, "UNFOLLOW_ROOM", ParticipantState.MUTED),
        (ParticipantState.FOLLOWED, "UNMUTE_ROOM", ParticipantState.FOLLOWED),
        (ParticipantState.MUTED, "FOLLOW_ROOM", ParticipantState.FOLLOWED),
        (ParticipantState.FOLLOWED, "MUTE_ROOM", ParticipantState.MUTED),
    ],
)
async def test_what_is_so_already_stays_and_counts_as_done(
    before: ParticipantState, name: str, after: ParticipantState
) -> None:
    async with running_agent(model=ScriptedModel(model_answer("Well.", actions=("REPLY", name)))) as harness:
        room = make_message("", sent_at=harness.agent.clock(), kind=GROUP).room
        await harness.agent.store.worlds.set_participant_state(room.id, before)
        receipt = await harness.send(f"Ada, {ASKED[name]}", kind=GROUP, role=Role.ADMIN)
        assert await attendance(harness) is after
    assert receipt.notes == ()
