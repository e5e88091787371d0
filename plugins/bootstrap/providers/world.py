"""Where the conversation takes place."""

from bot import ProviderResult, Turn, clean_name, provider


@provider("WORLD", "The world and the room of the conversation.", position=-40, dynamic=True)
def world(turn: Turn) -> ProviderResult:
    """Name the world and the room."""
    place = clean_name(turn.world.name) if turn.world.name else ""
    room = clean_name(turn.room.name) if turn.room.name else ""
    where = [f"World: {place}" if place else "", f"Room: {room} ({turn.room.type})" if room else ""]
    lines = [line for line in where if line]
    text = "\n".join(["# Place", *lines]) if lines else ""
    return ProviderResult(
        text=text, values={"worldContext": place}, data={"world": turn.world, "room": turn.room}
    )
