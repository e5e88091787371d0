"""Knowledge: what a character's documents say, told where it bears on the message."""

from bot import Plugin
from plugins.knowledge.index import KnowledgeIndex
from plugins.knowledge.provider import knowledge, reindex, schedule_reindex

plugin = Plugin(
    "knowledge",
    "Tells what the character's documents say about the message.",
    providers=[knowledge],
    workers=[reindex],
    services=[KnowledgeIndex],
    init=schedule_reindex,
)
