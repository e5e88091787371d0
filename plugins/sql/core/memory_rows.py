"""Rows of memories: their columns, and the memory of a row."""

from functools import lru_cache

from bot import Memory, MemoryKind, MemoryScope
from plugins.sql.core.recent_cache import is_small
from plugins.sql.core.schema import memories
from plugins.sql.core.statements import Columns, Row, column_names
from plugins.sql.core.values import (
    content_of,
    content_text,
    datetime_of,
    dumps,
    id_bytes,
    id_of,
    id_or_none,
    loads,
    microseconds_of,
    storable_text,
)


def _read_memory(row: Row) -> Memory:
    return _parse_memory_cached(tuple(row)) if is_small(row) else _parse_memory(row)


def _parse_memory(row: Row) -> Memory:
    memory_id, kind, entity_id, room_id, world_id, content, created_at, external_id, *rest = row
    scope, source_id, turn_id, metadata = rest
    return Memory(
        id=id_of(memory_id),
        kind=MemoryKind(kind),
        entity_id=id_of(entity_id),
        room_id=id_of(room_id),
        world_id=id_of(world_id),
        content=content_of(content),
        created_at=datetime_of(created_at),
        external_id=external_id,
        scope=MemoryScope(scope),
        source_id=id_or_none(source_id),
        turn_id=id_or_none(turn_id),
        metadata=loads(metadata),
    )


_parse_memory_cached = lru_cache(maxsize=4096)(_parse_memory)  # every turn reads a room's last messages


MEMORY_NAMES = column_names(memories)
MEMORY = Columns(memories, MEMORY_NAMES[1:], _read_memory)


def memory_values(agent: int, memory: Memory) -> Row:
    """Return the column values of a memory."""
    return (
        agent,
        memory.id.bytes,
        memory.kind.value,
        memory.entity_id.bytes,
        memory.room_id.bytes,
        memory.world_id.bytes,
        content_text(memory.content),
        microseconds_of(memory.created_at),
        storable_text(memory.external_id),
        memory.scope.value,
        id_bytes(memory.source_id),
        id_bytes(memory.turn_id),
        dumps(memory.metadata),
    )
