"""Rules of changing roles: asked for in one's own words, allowed by the lattice, confirmed, written down."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bot import ChannelType, ChoiceRequest, Role, TaskTag, derived_id, short_id
from bot.domain.environment import PersonActivity
from bot.testing import AgentHarness, running_agent
from tests.plugins.bootstrap.obeying import Obedient, code, decisions, role_of, run_due, waiting

GROUP = ChannelType.GROUP


async def gather(harness: AgentHarness) -> None:
    for name, role in (("Root", Role.OWNER), ("Sarah", Role.MEMBER), ("Mallory", Role.MEMBER)):
        await harness.submit("hello", author=name, role=role, kind=GROUP)


async def say(harness: AgentHarness, text: str, author: str = "Root", role: Role = Role.OWNER) -> tuple[str, ...]:
    receipt = await harness.send(text, author=author, role=role, kind=GROUP)
    await run_due(harness)
    return receipt.notes


async def test_a_role_is_given_once_its_giver_has_confirmed_it_and_survives_what_the_platform_says() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await gather(harness)
        obedient.does("UPDATE_ROLE", person="Sarah", role="ADMIN")
        await say(harness, "Ada, make Sarah an admin")
        assert await role_of(harness, "Sarah") is Role.MEMBER
        secret = await code(harness)
        assert any(f"Ada, confirm {secret}" in text and "Sarah (id" in text for text in harness.texts)

        obedient.does("CHOOSE_OPTION", option="confirm")
        await say(harness, f"Ada, confirm {secret}")
        assert await role_of(harness, "Sarah") is Role.ADMIN
        assert harness.texts[-1].endswith("is ADMIN here now.")
        assert await waiting(harness) == []

        await harness.send("thanks", author="Sarah", role=Role.MEMBER, kind=GROUP)
        assert await role_of(harness, "Sarah") is Role.ADMIN
        asked = (False, "it waits for confirmation: it is always confirmed")
        confirmed = (True, "its asker has confirmed it")
        assert await decisions(harness, "UPDATE_ROLE") == [asked, confirmed, (True, "")]


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("author", "role", "text"),
    [
        ("Mallory", Role.MEMBER, "Ada, confirm {code}"),
        ("Mallory", Role.OWNER, "Ada, confirm {code}"),
        ("Root", Role.OWNER, "Ada, what would that mean?"),
        ("Root", Role.OWNER, "Ada, I do not want to confirm it"),
        ("Root", Role.OWNER, "Ada, {code}?"),
        ("Root", Role.OWNER, "Ada, look:\n> confirm {code}"),
        ("Root", Role.OWNER, "Ada, confirm{code}"),
        ("Root", Role.OWNER, "Ada, confirm AAAAA"),
    ],
)
async def test_only_the_same_person_confirms_and_with_the_code_itself(author: str, role: Role, text: str) -> None:
    obedient = Obedient("UPDATE_ROLE", person="Sarah", role="ADMIN")
    async with running_agent(model=obedient.model) as harness:
        await gather(harness)
        await say(harness, "Ada, make Sarah an admin")
        obedient.does("CHOOSE_OPTION", option="confirm")
        await say(harness, text.format(code=await code(harness)), author, role)
        assert await role_of(harness, "Sarah") is Role.MEMBER
        assert len(await waiting(harness)) == 1


async def test_who_has_lost_the_right_meanwhile_changes_nothing() -> None:
    obedient = Obedient("UPDATE_ROLE", person="Sarah", role="NONE")
    async with running_agent(model=obedient.model) as harness:
        await gather(harness)
        await say(harness, "Ada, Sarah is none here any more: role NONE", "Deputy", Role.ADMIN)
        [task] = await waiting(harness)
        obedient.does()
        await harness.send("hm", author="Deputy", role=Role.MEMBER, kind=GROUP)
        # As if the choice had been made before, and the process had ended before it was carried out.
        deputy = derived_id("test", "entity", "Deputy")
        chosen = {**task.metadata, "choice": "confirm", "chosenBy": str(deputy)}
        await harness.agent.store.tasks.save_task(replace(task, tags=frozenset({TaskTag.QUEUE}), metadata=chosen))
        await run_due(harness)
        assert await role_of(harness, "Sarah") is Role.MEMBER
        assert (await decisions(harness, "UPDATE_ROLE"))[-1][0] is False
        assert harness.texts[-1].startswith("Nothing was done:")


async def test_a_newer_request_replaces_the_older_request() -> None:
    obedient = Obedient("UPDATE_ROLE", person="Sarah", role="ADMIN")
    async with running_agent(model=obedient.model) as harness:
        await gather(harness)
        await say(harness, "Ada, make Sarah an admin")
        before = await code(harness)
        obedient.does("UPDATE_ROLE", person="Mallory", role="NONE")
        await say(harness, "Ada, Mallory gets the role none instead")
        assert await code(harness) != before


async def test_of_two_people_of_the_same_name_neither_is_guessed() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await gather(harness)
        [mallory] = await harness.agent.store.entities.entities_by_name("Mallory")
        await harness.agent.store.entities.save_entities([replace(mallory, names=("Sarah",))])
        obedient.does("UPDATE_ROLE", person="Sarah", role="ADMIN")
        notes = await say(harness, "Ada, make Sarah an admin")
        assert any("“Sarah” may be Sarah (id" in note for note in notes)
        assert await waiting(harness) == []


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("Ada, take admin from Bob", "NONE"),
        ("Ada, take Bob's rights", "NONE"),
        ("Ada, demote Bob", "MEMBER"),
        ("Ada, nimm Bob seine Rechte", "NONE"),
        ("Ada, Bob is a member from now on", "MEMBER"),
    ],
)
async def test_a_role_is_taken_in_any_words_for_it_and_needs_a_code(text: str, role: str) -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await gather(harness)
        await harness.submit("hello", author="Bob", role=Role.ADMIN, kind=GROUP)
        obedient.does("UPDATE_ROLE", person="Bob", role=role)
        await say(harness, text)
        [task] = await waiting(harness)
        assert ChoiceRequest.from_metadata(task.metadata).needs_code
        await say(harness, f"Ada, {task.metadata['code']}")
        assert await role_of(harness, "Bob") is Role(role)


async def test_what_a_request_to_take_a_role_must_name_is_the_role_and_not_its_absence() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await gather(harness)
        await harness.submit("hello", author="Bob", role=Role.ADMIN, kind=GROUP)
        obedient.does("UPDATE_ROLE", person="Bob", role="NONE")
        notes = await say(harness, "Ada, what about Bob?")
        assert any(note.endswith("the requester must name it in this message: Bob, ADMIN") for note in notes)
        assert await waiting(harness) == []


async def test_the_question_tells_a_person_from_an_impostor_whose_name_looks_alike() -> None:
    obedient = Obedient()
    impostor = "S\u0430r\u0430h"  # with Cyrillic letters
    async with running_agent(model=obedient.model) as harness:
        await gather(harness)
        entities = harness.agent.store.entities
        [sarah] = await entities.entities_by_name("Sarah")
        await entities.save_entities([replace(sarah, metadata={"username": "sarah_b"})])
        await harness.send("hi", author=impostor, role=Role.NONE, kind=GROUP)
        [other] = await entities.entities_by_name(impostor)
        since = datetime(2026, 3, 2, tzinfo=UTC)
        await entities.add_activity([PersonActivity(sarah.id, since, since, 41)])
        obedient.does("UPDATE_ROLE", person=impostor, role="ADMIN")
        await say(harness, f"Ada, make {impostor} an admin")
        known = f"@sarah_b, id {short_id(sarah.id)}, test, MEMBER here, known since 2026-03-02, 41 messages"
        described = f"{impostor} (id {short_id(other.id)}, test; NONE here, new to me; same name as Sarah ({known}))"
        assert f"{described} would be ADMIN here" in harness.texts[-1]
        obedient.does("UPDATE_ROLE", person="Mallory", role="ADMIN")
        await say(harness, "Ada, make Mallory an admin")
        assert "same name" not in harness.texts[-1]
