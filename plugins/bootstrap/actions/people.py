"""UPDATE_CONTACT: store how a user can be reached.

UPDATE_ENTITY: store what plugins declare about people, as their component types.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from bot import (
    ActionResult,
    Agent,
    Catalog,
    ChannelType,
    Component,
    Effect,
    Entity,
    Role,
    Turn,
    World,
    action,
    derived_id,
)
from bot.prompts import ActionPreview, Authority
from bot.store import ComponentDataError
from bot.text import shorten
from plugins.bootstrap.actions.permissions import (
    CONTACT,
    FORGET,
    AuthorizationRequest,
    AuthorizationRule,
    NotFound,
    authorize,
    build_request,
    describe_confirmed,
    describe_entity,
    entity_titles,
    find_member,
    no_additional_rule,
    refusal_result,
    request_example,
)

CONTACT_COMPONENT, MESSAGES_FIELD = "CONTACT", "MESSAGES"
ContactKind = Literal["email", "phone", "website", "handle", "timezone", "messages"]
MAX_VALUE_LENGTH = 200
PHONE_NUMBER = re.compile(r"\+?\d[\d\s()/.-]{2,28}\d")
VALUE_PATTERNS = {
    "email": re.compile(r"[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+"),
    "phone": re.compile(r"\+?[\d\s()/.-]{4,30}"),
    "website": re.compile(r"https?://\S+"),
    "handle": re.compile(r"[a-z0-9]+:\S+", re.IGNORECASE),
    "timezone": re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*"),
    "messages": re.compile(r"yes|no"),
}


async def preview_contact(turn: Turn, kind: ContactKind, value: str, person: str = "") -> ActionPreview | ActionResult:
    """Return what would be stored of whom, or why it cannot be."""
    request = await _find_request(turn, kind, value, person)
    if isinstance(request, ActionResult):
        return request
    if refusal := await authorize(turn.agent, request.authorization, is_preview=True):
        return refusal_result(refusal)
    target = request.target
    if kind == "messages":
        text = "I would write to you in private when others ask me to." if request.value == "yes" else ""
        return ActionPreview(text or "I would no longer write to you when others ask me to.")
    names = [_names_of_value(turn, kind, request.value) if request.value else FORGET]
    names += [] if request.is_own else [entity_titles(target)]
    described = describe_entity(target) if request.is_own else await describe_confirmed(turn, target)
    text = f"I would keep for {described}: {kind} {request.value or 'forgotten'}."
    return ActionPreview(text, tuple(names), {} if request.is_own else {"person": str(target.id)})


@action(
    "UPDATE_CONTACT",
    "Store how somebody can be reached, as they have just said.",
    similes=["UPDATE_ENTITY"],
    effect=Effect.IDEMPOTENT,
    authority=Authority.named(*CONTACT, confirmed_arguments={"kind": "messages", "value": "yes"}),
    preview=preview_contact,
    examples=[request_example("My mail is robin@example.org", "Noted.", "UPDATE_CONTACT")],
)
async def update_contact(
    turn: Turn,
    kind: Annotated[ContactKind, "The kind; messages: whether others may ask you to write to them, yes or no"],
    value: Annotated[str, "The address; a handle as platform:name; empty to forget it"],
    person: Annotated[str, "The person, if not the speaker"] = "",
) -> ActionResult:
    """Store one contact detail: the author's own, or as an admin that of a member of the world."""
    request = await _find_request(turn, kind, value, person)
    if isinstance(request, ActionResult):
        return request
    if refusal := await authorize(turn.agent, request.authorization):
        return refusal_result(refusal)
    target, world = request.target, None if request.is_own else turn.world
    await turn.agent.store.entities.save_component(await _build_contact(turn, target, kind, request.value, world))
    text = f"kept for {describe_entity(target)}: {kind} {request.value or 'forgotten'}"
    return ActionResult(text=text, authors=(target.id,))


@dataclass(frozen=True, slots=True)
class ContactRequest:
    """Whose contact detail gets which value, and what that needs."""

    target: Entity
    value: str
    is_own: bool
    authorization: AuthorizationRequest


async def _find_request(turn: Turn, kind: ContactKind, value: str, person: str) -> ContactRequest | ActionResult:
    value = value.strip()
    if value and (len(value) > MAX_VALUE_LENGTH or not VALUE_PATTERNS[kind].fullmatch(value)):
        return refusal_result(f"that is no {kind}")
    try:
        target = await find_member(turn, person) if person.strip() else turn.author
    except NotFound as error:
        return error.result
    is_own = all(item.author.id == target.id for item in turn.inputs)
    authorization = build_request(
        turn,
        "UPDATE_CONTACT",
        {"person": target.id, "kind": kind, "value": value},
        required_role=Role.NONE if is_own else Role.ADMIN,
        rule=consent_rule(turn, is_own_contact=is_own) if kind == "messages" else no_additional_rule,
    )
    return ContactRequest(target, value, is_own, authorization)


def _names_of_value(turn: Turn, kind: ContactKind, value: str) -> tuple[str, ...]:
    """Return how a person may have written a value."""
    if kind == "website":
        without_scheme = value.partition("://")[2]
        return (value, without_scheme, without_scheme.removesuffix("/"))
    if kind == "timezone":
        return (value, value.rpartition("/")[2].replace("_", " "))
    if kind == "handle":
        return (value, value.partition(":")[2], f"@{value.partition(':')[2]}")
    if kind == "phone":
        digits = re.sub(r"\D", "", value)
        return (value, *(text for text in PHONE_NUMBER.findall(turn.own_text) if re.sub(r"\D", "", text) == digits))
    return (value,)


async def accepts_messages(agent: Agent, person: Entity) -> bool:
    """Return whether the user agreed, in private, that others may have the character write to them."""
    components = await agent.store.entities.components(person.id, MESSAGES_FIELD)
    return any(
        component.source_entity_id == person.id and component.data.get("messages") == "yes" for component in components
    )


def consent_rule(turn: Turn, *, is_own_contact: bool) -> AuthorizationRule:
    """Return a rule that refuses a consent that is not the author's own or not given in private."""

    def find_refusal(world: World, role: Role) -> str:
        if is_own_contact and turn.room.type is ChannelType.DM:
            return ""
        return "only the user can decide, in private, whether others may have me write to them"

    return find_refusal


async def _build_contact(turn: Turn, target: Entity, name: ContactKind, value: str, world: World | None) -> Component:
    """Return the contact component with the new value; an admin's entry is valid only in the world."""
    agent, source = turn.agent, turn.author
    kind = MESSAGES_FIELD if name == "messages" else CONTACT_COMPONENT
    world_id = world.id if world else None
    data: dict[str, Any] = {}
    for component in await agent.store.entities.components(target.id, kind):
        if (component.world_id, component.source_entity_id) == (world_id, source.id):
            data = dict(component.data)
    return Component(
        id=derived_id(target.id, kind, str(world_id), str(source.id)),
        entity_id=target.id,
        type=kind,
        data={key: item for key, item in {**data, name: value}.items() if item},
        room_id=turn.room.id,
        world_id=world_id,
        source_entity_id=source.id,
        created_at=agent.clock(),
    )


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
