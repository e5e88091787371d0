"""How a fact is shown to a model: as what somebody said, in a line that it cannot break out of."""

from collections.abc import Mapping
from uuid import UUID

from bot import Entity, Memory, clean_name, escape_line, short_id


def quoted(fact: Memory, people: Mapping[UUID, Entity]) -> str:
    """Write a fact as a quote, with who said it and on which day."""
    author = people.get(fact.entity_id)
    name = clean_name(author.name if author is not None else "")
    said = escape_line(fact.content.text.replace('"', "'"))
    return f'{name} (id {short_id(fact.entity_id)}), {fact.created_at:%Y-%m-%d}: "{said}"'
