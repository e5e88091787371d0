"""What a person told of themselves, in all rooms where they write: with their consent, given by a command."""

import time
from collections.abc import Iterable
from typing import Annotated, Literal
from uuid import UUID

from bot import Agent, CommandContext, Component, Memory, Service, command, derived_id, on
from bot.events import EntityErased
from bot.platform import BoundedDict
from bot.text import user_text
from plugins.bootstrap.evaluators.facts import fact_subjects, fact_tellers

CONSENT = "facts_in_all_rooms"  # the type of the component
MAX_PEOPLE = 2_000
CONSENT_SECONDS = 60.0  # after which a change that another process made is seen
MAX_FACTS = 100  # the latest of a person


class SharedFacts(Service):
    """Finds the facts that follow a person into other rooms; for most people it asks the store once a minute."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._consents: BoundedDict[UUID, tuple[bool, float]] = BoundedDict(MAX_PEOPLE)

    async def has_consent(self, person_id: UUID) -> bool:
        """Return whether the person wants their facts to be used in all rooms."""
        is_given, read_at = self._consents.get(person_id, (False, float("-inf")))
        if time.monotonic() - read_at < CONSENT_SECONDS:
            return is_given
        components = await self.agent.store.entities.components(person_id, CONSENT)
        is_given = any(item.source_entity_id == person_id and item.data.get("is_given") is True for item in components)
        self._consents[person_id] = (is_given, time.monotonic())
        return is_given

    async def set_consent(self, person_id: UUID, *, is_given: bool) -> None:
        """Store the person's decision."""
        component_id = derived_id(self.agent.id, person_id, CONSENT)
        component = Component(
            component_id,
            person_id,
            CONSENT,
            {"is_given": is_given},
            source_entity_id=person_id,
            created_at=self.agent.clock(),
        )
        await self.agent.store.entities.save_component(component)
        self._consents[person_id] = (is_given, time.monotonic())

    def forget(self, person_id: UUID) -> None:
        """Read the person's decision again when it is needed next."""
        self._consents.pop(person_id, None)

    async def find(self, people: Iterable[UUID], room_id: UUID) -> list[Memory]:
        """Return what consenting people told of themselves in other rooms, except in talks with the agent alone."""
        found: list[Memory] = []
        for person_id in [person_id for person_id in people if await self.has_consent(person_id)]:
            rooms = await self.agent.store.worlds.rooms_of(person_id)
            shared = {room.id for room in rooms if not room.type.is_direct and room.id != room_id}
            page = await self.agent.store.memories.facts(person_id, MAX_FACTS)
            found += [
                fact
                for fact in page.memories
                if fact.room_id in shared
                and fact_tellers(fact) == [person_id]
                and {*fact_subjects(fact)} == {person_id}
            ]
        return found


@on(EntityErased)
def on_consent_erased(agent: Agent, event: EntityErased) -> None:
    """Forget the decision of a person whose data were deleted."""
    agent.services[SharedFacts].forget(event.entity_id)


@command("share-my-facts", user_text("commands.share_facts.description"))
async def share_my_facts(
    context: CommandContext, choice: Annotated[Literal["show", "on", "off"], "show, on or off"] = "show"
) -> str:
    """Show or store whether the facts that a person told of themselves are used in all rooms."""
    shared, person_id = context.agent.services[SharedFacts], context.invocation.author.id
    if choice != "show":
        await shared.set_consent(person_id, is_given=choice == "on")
    return user_text("commands.share_facts.on" if await shared.has_consent(person_id) else "commands.share_facts.off")
