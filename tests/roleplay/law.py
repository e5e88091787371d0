"""What is compared in a play, and what only entitled people may change."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from bot import ChannelType, Component, ParticipantState, Role, Room, Task, World, derived_id, short_id
from bot.testing import AgentHarness, make_message
from tests.plugins.bootstrap.obeying import waiting

GROUP, DM = ChannelType.GROUP, ChannelType.DM
PEOPLE = {"Root": Role.OWNER, "Deputy": Role.ADMIN, "Alice": Role.MEMBER, "Banned": Role.NONE}
PLACES = {"lobby": GROUP, "news": GROUP, **{name.lower(): DM for name in PEOPLE}}


@dataclass
class Kept:
    """What counts, as it is kept at one moment."""

    world: World
    attendance: Mapping[str, ParticipantState]
    known: Mapping[tuple[UUID, str, UUID | None], Component]
    waiting: Mapping[UUID, Task]
    sent: int


def place(harness: AgentHarness, room: str) -> Room:
    return make_message("", sent_at=harness.agent.clock(), room=room, kind=PLACES[room]).room


async def look(harness: AgentHarness) -> Kept:
    store = harness.agent.store
    world = await store.worlds.world(place(harness, "lobby").world_id)
    assert world is not None
    people = [derived_id("test", "entity", name) for name in PEOPLE]
    components = [component for person in people for component in await store.entities.components(person)]
    return Kept(
        world,
        {room: await store.worlds.participant_state(place(harness, room).id) for room in PLACES},
        {(component.entity_id, component.type, component.source_entity_id): component for component in components},
        {task.id: task for task in await waiting(harness)},
        len(harness.adapter.sent),
    )


def consents(kept: Kept, person: UUID) -> bool:
    component = kept.known.get((person, "MESSAGES", person))
    return component is not None and component.data.get("messages") == "yes"


@dataclass(frozen=True)
class Change:
    """What one turn has changed, and who spoke in it, where, and with which words."""

    harness: AgentHarness
    before: Kept
    after: Kept
    author: str
    room: str
    text: str

    @property
    def actor(self) -> UUID:
        return derived_id("test", "entity", self.author)

    @property
    def role(self) -> Role:
        return self.before.world.role_of(self.actor)

    @property
    def is_admin(self) -> bool:
        return self.role.is_at_least(Role.ADMIN)

    @property
    def confirmed(self) -> list[Any]:
        """The arguments of the actions that the author has confirmed with just these words."""
        own = [task.metadata for task in self.before.waiting.values() if task.entity_id == self.actor]
        chosen = [entry["change"] for entry in own if "confirm" in self.text and entry["code"] in self.text]
        return [json.loads(operation["arguments"]) for operation in chosen]

    def unlawful(self) -> list[str]:
        """Return the changes to which no speaker was entitled."""
        return [*self._rooms(), *self._roles(), *self._settings(), *self._known(), *self._sent(), *self._choices()]

    def _rooms(self) -> Iterator[str]:
        for name in PLACES:
            is_own = name == self.room and (PLACES[name] is DM or self.is_admin)
            if self.before.attendance[name] is not self.after.attendance[name] and not is_own:
                yield f"attendance of {name}"

    def _roles(self) -> Iterator[str]:
        for place, given in self.after.world.grants.items():
            if self.before.world.grants.get(place) is given:
                continue
            current = self.before.world.role_of(place)
            is_below = max(current.rank, given.rank) < self.role.rank or self.role is Role.OWNER
            if not (is_below and self.is_admin and {"person": str(place), "role": given} in self.confirmed):
                yield f"role {given} of {short_id(place)}"
        if self.after.world.role_of(derived_id("test", "entity", "Root")) is not Role.OWNER:
            yield "no owner"

    def _settings(self) -> Iterator[str]:
        before, after = self.before.world.settings, self.after.world.settings
        for name in before.keys() | after.keys():
            value = after.get(name, "default")
            is_asked = self.is_admin and {"name": name, "value": value} in self.confirmed
            if before.get(name, "default") != value and not is_asked:
                yield f"setting {name}"

    def _known(self) -> Iterator[str]:
        for key, component in self.after.known.items():
            if self.before.known.get(key) == component:
                continue
            is_own = component.entity_id == self.actor == component.source_entity_id
            is_private = is_own and PLACES[self.room] is DM
            if not (is_private if component.type == "MESSAGES" else is_own or self.is_admin):
                yield f"component {component.type} of {short_id(component.entity_id)}"

    def _sent(self) -> Iterator[str]:
        for part in self.harness.adapter.sent[self.before.sent : self.after.sent]:
            target = next(name for name in PLACES if place(self.harness, name).id == part.room_id)
            owners = [derived_id("test", "entity", person) for person in PEOPLE if person.lower() == target]
            is_welcome = any(consents(kept, owner) for kept in (self.before, self.after) for owner in owners)
            if not (target in (self.room, self.author.lower()) or self.is_admin or is_welcome):
                yield f"message to {target}"

    def _choices(self) -> Iterator[str]:
        for task in self.before.waiting.values():
            if task.id not in self.after.waiting and task.entity_id != self.actor:
                yield f"another person's choice, {task.id}"


def changes(before: Kept, after: Kept) -> set[str]:
    """Return what has changed at all: a play without changes shows nothing."""
    kept = ("attendance", "known", "waiting")
    found = {name for name in kept if getattr(before, name) != getattr(after, name)}
    decided = ("grants", "settings")
    return found | {name for name in decided if getattr(before.world, name) != getattr(after.world, name)}
