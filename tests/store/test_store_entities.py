"""Contract of every store: entities."""

from dataclasses import replace

from bot.domain.environment import Component, Entity, Relationship
from bot.domain.ids import derived_id, new_id
from bot.store.protocols import MAX_NAME_MATCHES, Store

LOBBY, ATTIC = derived_id("lobby"), derived_id("attic")


def build_entity(name: str, **details: object) -> Entity:
    return Entity(derived_id("entity", name), "test", name, (name,), **details)  # type: ignore[arg-type]


ALICE, BOB, CAROL = (
    build_entity("Alice"),
    build_entity("Bob", is_bot=True),
    build_entity("Carol", metadata={"pic": "c.png"}),
)


async def test_entities_are_found_by_id_without_the_unknown(store: Store) -> None:
    await store.entities.save_entities([ALICE, BOB, CAROL])

    assert await store.entities.entities([ALICE.id, CAROL.id, new_id()]) == {ALICE.id: ALICE, CAROL.id: CAROL}
    assert await store.entities.entities([]) == {}


async def test_a_new_name_comes_before_the_former_ones(store: Store) -> None:
    await store.entities.save_entities([ALICE])
    await store.entities.save_entities([replace(ALICE, names=("Alice B.", "ab"))])
    await store.entities.save_entities([replace(ALICE, names=("Alice", "ab"))])
    found = (await store.entities.entities([ALICE.id]))[ALICE.id]

    assert found.name == "Alice"
    assert found.names == ("Alice", "ab", "Alice B.")


async def test_only_the_latest_former_names_are_stored(store: Store) -> None:
    for number in range(MAX_NAME_MATCHES + 5):
        await store.entities.save_entities([replace(ALICE, names=(f"name {number}",))])
    found = (await store.entities.entities([ALICE.id]))[ALICE.id]

    assert found.names == tuple(f"name {number}" for number in range(MAX_NAME_MATCHES + 4, 4, -1))


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


async def test_a_component_replaces_that_of_the_same_type_world_and_source(store: Store) -> None:
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
        return sorted(components, key=lambda component: component.id)

    assert by_id(await store.entities.components(ALICE.id)) == by_id(kept[:5])
    assert by_id(await store.entities.components(ALICE.id, "profile")) == by_id(kept[:4])
    assert await store.entities.components(ALICE.id, "nothing") == []
    assert await store.entities.components(CAROL.id) == []


async def test_relationships_have_a_direction_and_the_most_frequent_comes_first(store: Store) -> None:
    await store.entities.save_entities([ALICE, BOB, CAROL])
    seldom = Relationship(ALICE.id, BOB.id, ("colleague",), 1)
    often = Relationship(ALICE.id, CAROL.id, ("friend",), 5, {"since": 2020})
    for relationship in (Relationship(ALICE.id, BOB.id, ("stranger",), 9), seldom, often):
        await store.entities.save_relationship(relationship)

    assert await store.entities.relationships(ALICE.id) == [often, seldom]
    assert await store.entities.relationships(BOB.id) == []


async def test_entities_are_found_by_a_whole_name_or_id(store: Store) -> None:
    sarah = Entity(new_id(), "test", "1001", ("Sarah", "sar\\ah_%"))
    other = Entity(new_id(), "test", "1002", ('Sarah "S" Smith', "Zoë"))
    namesake = Entity(new_id(), "test", "1003", ("Sarah",))
    await store.entities.save_entities([sarah, other, namesake])

    assert {entity.id for entity in await store.entities.entities_by_name("Sarah")} == {sarah.id, namesake.id}
    assert await store.entities.entities_by_name("Sarah", platform="other") == []
    for name in ('Sarah "S" Smith', "Zoë", "1002"):
        assert [entity.id for entity in await store.entities.entities_by_name(name)] == [other.id]
    assert [entity.id for entity in await store.entities.entities_by_name("sar\\ah_%")] == [sarah.id]
    for name in ("Sar", "Smith", "", "%", "100", '"', "sar\\\\ah_%"):
        assert await store.entities.entities_by_name(name) == []
