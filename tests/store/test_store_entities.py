"""What every store promises of people."""

from dataclasses import replace

from bot.domain.ids import derived_id, new_id
from bot.domain.people import Component, Entity, Relationship
from bot.store.protocols import MOST_NAMES, Store

LOBBY, ATTIC = derived_id("lobby"), derived_id("attic")


def person(name: str, **details: object) -> Entity:
    return Entity(derived_id("entity", name), "test", name, (name,), **details)  # type: ignore[arg-type]


ALICE, BOB, CAROL = person("Alice"), person("Bob", is_bot=True), person("Carol", metadata={"pic": "c.png"})


async def test_people_are_found_by_id_and_the_unknown_left_out(store: Store) -> None:
    await store.entities.save_entities([ALICE, BOB, CAROL])

    assert await store.entities.entities([ALICE.id, CAROL.id, new_id()]) == {ALICE.id: ALICE, CAROL.id: CAROL}
    assert await store.entities.entities([]) == {}


async def test_a_new_name_stands_before_the_former_ones(store: Store) -> None:
    await store.entities.save_entities([ALICE])
    await store.entities.save_entities([replace(ALICE, names=("Alice B.", "ab"))])
    await store.entities.save_entities([replace(ALICE, names=("Alice", "ab"))])
    found = (await store.entities.entities([ALICE.id]))[ALICE.id]

    assert found.name == "Alice"
    assert found.names == ("Alice", "ab", "Alice B.")


async def test_of_many_former_names_the_latest_are_kept(store: Store) -> None:
    for number in range(MOST_NAMES + 5):
        await store.entities.save_entities([replace(ALICE, names=(f"name {number}",))])
    found = (await store.entities.entities([ALICE.id]))[ALICE.id]

    assert found.names == tuple(f"name {number}" for number in range(MOST_NAMES + 4, 4, -1))


async def test_participants_are_listed_the_most_recently_active_first(store: Store) -> None:
    await store.entities.save_entities([ALICE, BOB], LOBBY)
    await store.entities.save_entities([CAROL], ATTIC)
    await store.entities.save_entities([CAROL], LOBBY)
    await store.entities.save_entities([ALICE], LOBBY)
    await store.entities.save_entities([BOB])

    assert await store.entities.participants(LOBBY) == [ALICE, CAROL, BOB]
    assert await store.entities.participants(LOBBY, limit=2) == [ALICE, CAROL]
    assert await store.entities.participants(LOBBY, limit=0) == []
    assert await store.entities.participants(ATTIC) == [CAROL]
    assert await store.entities.participants(new_id()) == []


async def test_a_component_replaces_the_one_of_its_type_world_and_source(store: Store) -> None:
    world, source = new_id(), new_id()
    first = Component(new_id(), ALICE.id, "profile", {"likes": ["tea"]})
    kept = [
        Component(new_id(), ALICE.id, "profile", {"likes": ["rain"]}),
        Component(new_id(), ALICE.id, "profile", {}, world_id=world),
        Component(new_id(), ALICE.id, "profile", {}, source_entity_id=source),
        Component(new_id(), ALICE.id, "profile", {}, world_id=world, source_entity_id=source),
        Component(new_id(), ALICE.id, "mood", {"is": "fine"}),
        Component(new_id(), BOB.id, "profile", {}),
    ]
    await store.entities.save_entities([ALICE, BOB])
    for component in (first, *kept):
        await store.entities.save_component(component)

    def by_id(components: list[Component]) -> list[Component]:
        return sorted(components, key=lambda one: one.id)

    assert by_id(await store.entities.components(ALICE.id)) == by_id(kept[:5])
    assert by_id(await store.entities.components(ALICE.id, "profile")) == by_id(kept[:4])
    assert await store.entities.components(ALICE.id, "nothing") == []
    assert await store.entities.components(CAROL.id) == []


async def test_relationships_have_a_direction_and_the_most_frequent_comes_first(store: Store) -> None:
    await store.entities.save_entities([ALICE, BOB, CAROL])
    seldom = Relationship(ALICE.id, BOB.id, ("colleague",), 1)
    often = Relationship(ALICE.id, CAROL.id, ("friend",), 5, {"since": 2020})
    for one in (Relationship(ALICE.id, BOB.id, ("stranger",), 9), seldom, often):
        await store.entities.save_relationship(one)

    assert await store.entities.relationships(ALICE.id) == [often, seldom]
    assert await store.entities.relationships(BOB.id) == []
