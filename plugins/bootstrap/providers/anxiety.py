"""How to behave in a room of this kind: quiet where many talk, attentive where one does."""

from bot import ChannelType, ProviderResult, Turn, provider

ALONE = (
    "You are talking with one person.",
    "Answer what was asked; one message, not several.",
    "Do not end every message with a question or an offer of help.",
)
AMONG_MANY = (
    "Many people share this room.",
    "Speak when you are spoken to or have something to give; otherwise leave the talk to them.",
    "Be briefer than you would be alone with somebody, and never repeat what you have just said.",
    "If people talk to one another, let them. IGNORE is a good answer.",
)
IN_PUBLIC = (
    "What you write here is public and stays.",
    "One thought, complete in itself; no hashtags, no calls for attention.",
)
MANNERS = {
    ChannelType.GROUP: AMONG_MANY,
    ChannelType.THREAD: AMONG_MANY,
    ChannelType.FORUM: AMONG_MANY,
    ChannelType.VOICE_GROUP: AMONG_MANY,
    ChannelType.WORLD: AMONG_MANY,
    ChannelType.FEED: IN_PUBLIC,
    ChannelType.BROADCAST: IN_PUBLIC,
}


@provider("ANXIETY", "How much to say in a room of this kind.", position=-70)
def anxiety(turn: Turn) -> ProviderResult:
    """Give the manners of this kind of room; the same every time."""
    lines = MANNERS.get(turn.room.type, ALONE)
    return ProviderResult(text="\n".join(["# Manners", *(f"- {line}" for line in lines)]))
