"""What was said in the room lately, in lines nobody can forge."""

from bot import Line, Memory, ProviderResult, Turn, provider, render_history, short_id


@provider("RECENT_MESSAGES", "The last messages of the room.", position=100)
async def recent_messages(turn: Turn) -> ProviderResult:
    """Give the last messages, oldest first: at most CONVERSATION_LENGTH, at least half as many."""
    limit = int(turn.agent.settings.get("CONVERSATION_LENGTH") or 20)
    messages = _anchored(await turn.agent.store.memories.recent(turn.room.id, limit), limit)
    names = {turn.agent.id: turn.agent.name} | {one.author.id: one.author.name for one in turn.inputs}
    others = {message.entity_id for message in messages} - names.keys()
    people = await turn.agent.store.entities.entities(others) if others else {}
    names |= {one.id: one.name for one in people.values()}
    lines = [_line(turn, message, names.get(message.entity_id, "")) for message in messages]
    history = render_history(lines)
    return ProviderResult(
        text=f"# Conversation\n{history}" if history else "",
        values={"recentMessages": history},
        data={"recentMessages": tuple(messages)},
    )


def _anchored(messages: list[Memory], limit: int) -> list[Memory]:
    """Begin at a message that stays the first for a while, so that prompt caches keep the beginning.

    Every fourth part of the limit or so, by the chance of its id, a message is such an anchor.
    """
    if len(messages) < limit:
        return messages
    spacing = max(1, limit // 4)
    older_half = range(limit // 2)
    start = next((place for place in older_half if messages[place].id.int % spacing == 0), 0)
    return messages[start:]


def _line(turn: Turn, message: Memory, name: str) -> Line:
    content = message.content
    files = [f"[{one.kind.lower()}: {one.title or one.name or 'untitled'}]" for one in content.attachments]
    text = " ".join(filter(None, [content.text, *files]))
    is_agent = message.entity_id == turn.agent.id
    return Line(message.created_at, name, short_id(message.entity_id), text, is_agent=is_agent)
