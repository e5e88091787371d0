"""UPDATE_ENTITY: store what plugins declare about people, as their component types."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from bot import ActionResult, Agent, Catalog, Component, Effect, Entity, Role, Turn, action, derived_id
from bot.prompts import ActionPreview, Authority
from bot.store import ComponentDataError
from bot.text import shorten
from plugins.bootstrap.actions.lookup import NotFound, describe_confirmed, describe_entity, entity_titles, find_member
from plugins.bootstrap.actions.permissions import authorize, build_request, refusal_result

MAX_DATA_LENGTH = 4_000  # of the data as JSON
MAX_SCHEMA_LENGTH = 600


async def register_update_entity(agent: Agent) -> None:
    """Register the action where plugins declare component types; nothing is in the prompt without them."""
    if agent.catalog.component_types:
        agent.components.register("bootstrap", build_update_entity(agent.catalog))


def build_update_entity(catalog: Catalog) -> Any:
    """Return the action for the component types of a catalog."""
    types = catalog.component_types
    names = {spec.name for spec in types}
    described = "; ".join(_describe_type(spec.name, spec.description, spec.schema) for spec in types)

    async def preview(
        turn: Turn, component: str, data: dict[str, Any], person: str = ""
    ) -> ActionPreview | ActionResult:
        update = await _find_update(turn, names, component, data, person)
        if isinstance(update, ActionResult):
            return update
        if refusal := await authorize(turn.agent, update.request, is_preview=True):
            return refusal_result(refusal)
        own_titles = [] if update.is_own else [entity_titles(update.target)]
        spoken = [(str(value),) for value in data.values() if value not in (None, "")]
        arguments = {} if update.is_own else {"person": str(update.target.id)}
        target = update.target
        described = describe_entity(target) if update.is_own else await describe_confirmed(turn, target)
        text = f"I would keep for {described}: {component} {_format_data(data)}."
        return ActionPreview(text, (*spoken, *own_titles), arguments)

    @action(
        "UPDATE_ENTITY",
        "Store data about somebody, as they have just said.",
        effect=Effect.IDEMPOTENT,
        authority=Authority.named("update", "remember", "note", "keep", "save", by_targets=True),
        preview=preview,
    )
    async def update_entity(
        turn: Turn,
        component: Annotated[str, f"One of {', '.join(sorted(names))}"],
        data: Annotated[dict[str, Any], f"The values to change; null forgets one. {described}"],
        person: Annotated[str, "The person, if not the speaker"] = "",
    ) -> ActionResult:
        """Store values of one component: the author's own, or as an admin those of a member of the world."""
        update = await _find_update(turn, names, component, data, person)
        if isinstance(update, ActionResult):
            return update
        if refusal := await authorize(turn.agent, update.request):
            return refusal_result(refusal)
        try:
            await turn.agent.store.entities.save_component(update.component)
        except ComponentDataError as error:
            return refusal_result(str(error))
        text = f"kept for {describe_entity(update.target)}: {component} {_format_data(data)}"
        return ActionResult(text=text, authors=(update.target.id,))

    return update_entity


@dataclass(frozen=True, slots=True)
class EntityUpdate:
    """Whose component is stored, and what that needs."""

    target: Entity
    component: Component
    is_own: bool
    request: Any


async def _find_update(
    turn: Turn, names: set[str], kind: str, data: Mapping[str, Any], person: str
) -> EntityUpdate | ActionResult:
    if kind not in names:
        return refusal_result(f"{kind} is no type of data here: use one of {', '.join(sorted(names))}")
    if len(json.dumps(data, default=str)) > MAX_DATA_LENGTH:
        return refusal_result(f"that is too much: {MAX_DATA_LENGTH} characters can be kept")
    try:
        target = await find_member(turn, person) if person.strip() else turn.author
    except NotFound as error:
        return error.result
    is_own = all(item.author.id == target.id for item in turn.inputs)
    component = await _build_component(turn, target, kind, data, is_own=is_own)
    request = build_request(
        turn,
        "UPDATE_ENTITY",
        {"person": target.id, "component": kind, "data": _format_data(data)},
        required_role=Role.NONE if is_own else Role.ADMIN,
    )
    return EntityUpdate(target, component, is_own, request)


async def _build_component(
    turn: Turn, target: Entity, kind: str, data: Mapping[str, Any], *, is_own: bool
) -> Component:
    """Return the component with the new values; an admin's entry is valid only in the world."""
    agent, source = turn.agent, turn.author
    world_id = None if is_own else turn.world.id
    stored = await agent.store.entities.components(target.id, kind)
    same_source = (item for item in stored if (item.world_id, item.source_entity_id) == (world_id, source.id))
    existing = next(same_source, None)
    merged = {**(existing.data if existing is not None else {}), **data}
    return Component(
        id=derived_id(target.id, kind, str(world_id), str(source.id)),
        entity_id=target.id,
        type=kind,
        data={name: value for name, value in merged.items() if value is not None},
        room_id=turn.room.id,
        world_id=world_id,
        source_entity_id=source.id,
        created_at=agent.clock(),
    )


def _describe_type(name: str, description: str, schema: Mapping[str, Any]) -> str:
    fields = schema.get("properties", {})
    required = schema.get("required", ())
    parts = [
        f"{key} ({field.get('type', 'value')}{'' if key in required else ', optional'}"
        f"{', ' + field['description'] if field.get('description') else ''})"
        for key, field in fields.items()
    ]
    return shorten(f"{name}: {description} {', '.join(parts)}", MAX_SCHEMA_LENGTH)


def _format_data(data: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {'forgotten' if value is None else value}" for name, value in data.items())
