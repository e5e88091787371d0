"""Stored contact details are shown again, to those who may see them."""

from bot import ChannelType, Role
from bot.models import TextRequest
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent

GROUP = ChannelType.GROUP
MAIL = "alice@example.org"


def script(request: TextRequest) -> str:
    if "# Contact details" in request.prompt or "look" not in request.prompt.rpartition("Conversation")[2]:
        return model_answer("Very well.")
    return model_answer("", actions=[], providers=["CONTACTS"])


async def store_contact(harness: AgentHarness, *, person: str = "", value: str = MAIL, **details: object) -> None:
    parameters = {"kind": "email", "value": value, **({"person": person} if person else {})}
    answer = model_answer("Noted.", actions=["UPDATE_CONTACT"], parameters=parameters)
    harness.model._script = lambda request: answer
    await harness.send(f"Ada, the mail of {person or 'me'} is {value}", **details)
    harness.model._script = script


async def shown_lines(harness: AgentHarness, **details: object) -> list[str]:
    await harness.send("Ada, look", **details)
    prompt = harness.model.requests[-1].prompt.partition("# Contact details")[2].partition("\n\n")[0]
    return [line for line in prompt.splitlines() if line.startswith("- ")]


async def test_people_see_their_own_contact_in_private_and_others_do_not() -> None:
    async with running_agent(model=ScriptedModel(script)) as harness:
        await store_contact(harness, room="alice")
        [line] = await shown_lines(harness, room="alice")
        assert line.startswith("- Alice (id ")
        assert line.endswith(f"): email {MAIL}")
        assert await shown_lines(harness, room="bob", author="Bob") == []
        assert await shown_lines(harness, room="square", kind=GROUP) == []
        assert await shown_lines(harness, room="square", kind=GROUP, author="Root", role=Role.ADMIN) == []


async def test_what_an_admin_entered_is_shown_to_admins_of_that_world() -> None:
    async with running_agent(model=ScriptedModel(script)) as harness:
        await harness.send("hello", room="square", kind=GROUP)
        await store_contact(harness, person="Alice", room="square", kind=GROUP, author="Root", role=Role.ADMIN)
        [line] = await shown_lines(harness, room="square", kind=GROUP, author="Root", role=Role.ADMIN)
        assert line.endswith(f"): email {MAIL}")
        assert await shown_lines(harness, room="square", kind=GROUP, author="Mallory") == []
