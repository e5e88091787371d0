"""Who takes part in the room."""

from bot import Entity, ProviderResult, Role, Turn, clean_name, provider, short_id

MOST_PEOPLE = 20


@provider("ENTITIES", "The people in the room.", position=-20, dynamic=True)
async def entities(turn: Turn) -> ProviderResult:
    """List who takes part, in an order that does not change with every message."""
    people = await turn.agent.store.entities.participants(turn.room.id, MOST_PEOPLE)
    people = sorted((one for one in people if one.id != turn.agent.id), key=lambda one: short_id(one.id))
    lines = [f"- {_line(turn, one)}" for one in people]
    text = "\n".join(["# People here", *lines]) if lines else ""
    return ProviderResult(text=text, data={"entities": tuple(people)})


def _line(turn: Turn, person: Entity) -> str:
    role = turn.world.role_of(person.id)
    marks = [f"id {short_id(person.id)}"]
    marks += [role.lower()] if role in (Role.OWNER, Role.ADMIN) else []
    marks += ["a bot"] if person.is_bot else []
    return f"{clean_name(person.name)} ({', '.join(marks)})"
