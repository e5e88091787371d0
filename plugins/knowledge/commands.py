"""/documents and /forget-document: an admin of a world lists and deletes the documents that were added there."""

from typing import Annotated
from uuid import UUID

from bot import CommandContext, Memory, Role, command
from bot.store import LogKind
from bot.text import english_text, sanitize_name, shorten, user_text
from plugins.knowledge.index import KnowledgeIndex

MAX_LISTED = 30
MAX_NAME_LENGTH = 100


@command("documents", english_text("commands.documents.description"), role=Role.ADMIN)
async def show_documents(context: CommandContext) -> str:
    """List the documents that were added in this world, the newest last."""
    names = [_name_of(document) for document in await _documents_here(context)]
    if not names:
        return user_text("commands.documents.nothing")
    omitted = len(names) - MAX_LISTED
    more = [user_text("commands.documents.more", count=omitted)] if omitted > 0 else []
    lines = [user_text("commands.documents.heading"), *more, *(f"- {name}" for name in names[-MAX_LISTED:])]
    return "\n".join([*lines, user_text("commands.documents.how")])


@command("forget-document", english_text("commands.forget_document.description"), role=Role.ADMIN)
async def forget_document(context: CommandContext, name: Annotated[str, "Its name, as /documents lists it"]) -> str:
    """Delete a document that was added in this world, with everything that is found by it."""
    wanted = sanitize_name(name).strip()
    documents_here = await _documents_here(context)
    found = [document for document in documents_here if wanted.casefold() == _name_of(document).casefold()]
    if not found:
        return user_text("commands.forget_document.unknown", name=shorten(wanted, MAX_NAME_LENGTH))
    index = context.agent.services[KnowledgeIndex]
    invocation = context.invocation
    for document in found:
        await index.remove_document(document)
        body = {
            "action": "FORGET_DOCUMENT",
            "allowed": True,
            "reason": "",
            "role": context.role.value,
            "actors": [str(invocation.author.id)],
            "world": str(invocation.world.id),
            "arguments": {"document": str(document.id)},
            "event": invocation.event_id,
        }
        logs = context.agent.store.logs
        await logs.log(LogKind.AUTHORIZATION, body, room_id=invocation.room.id, entity_id=invocation.author.id)
    return user_text("commands.forget_document.done", name=_name_of(found[0]))


async def _documents_here(context: CommandContext) -> list[Memory]:
    """Return the documents of this world alone: those of the operator are not for its people to delete."""
    world_id: UUID = context.invocation.world.id
    return await context.agent.services[KnowledgeIndex].list_added(world_id)


def _name_of(document: Memory) -> str:
    return shorten(str(document.metadata["name"]), MAX_NAME_LENGTH)
