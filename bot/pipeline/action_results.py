"""Results of a turn's actions as memories, which later prompts of the room show."""

from datetime import datetime

from bot.domain.component_specs import ActionSpec
from bot.domain.content import Content
from bot.domain.environment import Role
from bot.domain.ids import derived_id
from bot.domain.memory import Memory, MemoryKind
from bot.domain.results import ActionResult
from bot.turn import Turn

MAX_STORED_RESULTS = 10  # of one turn


def build_result_memories(turn: Turn) -> list[Memory]:
    """Return what the turn's last actions returned; names that match no action are left out.

    A result stays in its room. If its action needs a role, only people with that role are told of it.
    """
    if not turn.results:
        return []
    specs = {spec.name: spec for spec in turn.agent.catalog.actions}
    entries = [entry for entry in turn.state.data["workingMemory"] if entry["actionName"] in specs]
    numbered = list(enumerate(entries))[-MAX_STORED_RESULTS:]
    return [
        _build_memory(turn, number, specs[entry["actionName"]], entry["result"], entry["timestamp"])
        for number, entry in numbered
    ]


def _build_memory(turn: Turn, number: int, spec: ActionSpec, result: ActionResult, created_at: datetime) -> Memory:
    metadata: dict[str, object] = {} if result.success else {"failed": True}
    if spec.role is not Role.NONE:
        metadata["role"] = spec.role.value
    return Memory(
        id=derived_id(turn.id, "result", str(number)),
        kind=MemoryKind.ACTION_RESULT,
        entity_id=turn.agent.id,
        room_id=turn.room.id,
        world_id=turn.world.id,
        content=Content(result.text or result.error, actions=(spec.name,)),
        created_at=created_at,
        source_id=turn.message.id,
        turn_id=turn.id,
        metadata=metadata,
    )
