"""Knowledge plugin: adds relevant passages of a character's documents to the prompt."""

from bot import Plugin
from plugins.knowledge.index import KnowledgeIndex
from plugins.knowledge.provider import knowledge, reindex, schedule_reindex

plugin = Plugin(
    "knowledge",
    "Adds what the character's documents say about the message.",
    providers=[knowledge],
    workers=[reindex],
    services=[KnowledgeIndex],
    init=schedule_reindex,
)
