"""Knowledge plugin: adds relevant passages of a character's documents to the prompt."""

from bot import Plugin
from plugins.knowledge.index import KeyedKnowledge, KnowledgeIndex, KnowledgeSettings, keyed_knowledge
from plugins.knowledge.provider import (
    drop_erased,
    drop_migrated,
    forget_document,
    knowledge,
    reindex,
    reindex_changed,
    remember_document,
    schedule_reindex,
    show_documents,
)
from plugins.knowledge.routes import (
    add_documents,
    delete_document,
    list_documents,
    read_document_again,
    search_documents,
)

plugin = Plugin(
    "knowledge",
    "Adds what the character's documents say about the message.",
    actions=[remember_document],
    commands=[show_documents, forget_document],
    listeners=[drop_erased, drop_migrated, reindex_changed],
    providers=[keyed_knowledge, knowledge],
    routes=[list_documents, add_documents, delete_document, read_document_again, search_documents],
    workers=[reindex],
    services=[KnowledgeIndex, KeyedKnowledge],
    settings=KnowledgeSettings,
    init=schedule_reindex,
)
