"""What was said in the room lately, in lines nobody can forge."""

from bot import Line, Memory, ProviderResult, Turn, provider, render_history, short_id


@provider("RECENT_MESSAGES", "The last messages of the room.", position=100)
async def recent_messages(turn: Turn) -> ProviderResult:
    """Give the last CONVERSATION_LENGTH messages, oldest first."""
    limit = int(turn.agent.settings.get("CONVERSATION_LENGTH") or 20)
    messages = await turn.agent.store.memories.recent(turn.room.id, limit)
    people = await turn.agent.store.entities.entities({message.entity_id for message in messages})
    names = {one.id: one.name for one in people.values()}
    lines = [_line(turn, message, names.get(message.entity_id, "")) for message in messages]
    history = render_history(lines)
    return ProviderResult(
        text=f"# Conversation\n{history}" if history else "",
        values={"recentMessages": history},
        data={"recentMessages": tuple(messages)},
    )


def _line(turn: Turn, message: Memory, name: str) -> Line:
    content = message.content
    files = [f"[{one.kind.lower()}: {one.title or one.name or 'untitled'}]" for one in content.attachments]
    text = " ".join([content.text, *files]).strip()
    is_agent = message.entity_id == turn.agent.id
    return Line(message.created_at, name, short_id(message.entity_id), text, is_agent=is_agent)
