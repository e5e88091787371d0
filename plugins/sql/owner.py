"""Whose rows they are: an agent, and the small number that leads every key of its own."""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, select

from plugins.sql.schema import agents
from plugins.sql.statements import Statement, insert_into, same

INSERT_AGENT = Statement(lambda insert: insert_into(agents, ["key"])(insert).on_conflict_do_nothing(), "key")
FIND_AGENT = Statement(lambda _: select(agents.c.id).where(same(agents.c.key, "key")), "key")


@dataclass(frozen=True, slots=True)
class Owner:
    """An agent as the database knows it: its id, and the small number that leads every key."""

    id: UUID
    number: int


def register(connection: Connection, agent_id: UUID) -> Owner:
    """Find the number of an agent, giving a new one its own."""
    INSERT_AGENT.run(connection, agent_id.bytes)
    [number] = FIND_AGENT.rows(connection, agent_id.bytes)[0]
    return Owner(agent_id, number)
