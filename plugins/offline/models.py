"""The offline responder as a model: it reads the prompt and answers in the tags any model is asked for."""

from itertools import pairwise
from xml.sax.saxutils import escape

from bot import Agent, model
from bot.models import (
    EmbeddingRequest,
    EmbeddingResult,
    ModelType,
    Purpose,
    TextRequest,
    TextResult,
    Usage,
)
from bot.prompts import parse_history
from plugins.offline.embedding import embed
from plugins.offline.input_analysis import Said
from plugins.offline.responder import Voice, decide, post, respond

NAME = "offline"
FREE = Usage()


@model(ModelType.TEXT_LARGE)
async def text(agent: Agent, request: TextRequest) -> TextResult:
    """Answer from patterns, in the character's name."""
    voice = _voice(agent)
    history = [Said(line.name, line.text, line.is_agent) for line in parse_history(request.prompt)]
    if request.purpose is Purpose.SHOULD_RESPOND:
        word = "RESPOND" if decide(history, voice) else "IGNORE"
        return _result(f"<response><reasoning>by pattern</reasoning><action>{word}</action></response>")
    if request.purpose is Purpose.REPAIR:
        return _result("{}")
    if request.purpose is Purpose.REFLECTION:
        return _result("<response></response>")
    if request.purpose is Purpose.STEP:
        return _result("<response><action></action><isFinish>true</isFinish></response>")
    if request.purpose is Purpose.POST:
        recent = [line.text for line in history if line.by_agent]
        written = escape(post(voice, seed=_seed(agent), recent=recent))
        return _result(f"<response><post>{written}</post></response>")
    said = escape(respond(history, voice, seed=_seed(agent)))
    return _result(
        f"<response><thought>by pattern</thought><actions>REPLY</actions><text>{said}</text></response>"
    )


@model(ModelType.TEXT_EMBEDDING)
async def embedding(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
    """Hash character n-grams: comparable among themselves, by cosine."""
    vectors = tuple(tuple(embed(one)) for one in request.texts)
    return EmbeddingResult(vectors, f"{NAME}-ngrams-384", FREE)


def _seed(agent: Agent) -> int:
    return int(agent.settings.get("OFFLINE_SEED") or 0)


def _voice(agent: Agent) -> Voice:
    who = agent.character
    pairs = [
        (first.content.text, second.content.text)
        for talk in who.message_examples
        for first, second in pairwise(talk)
        if first.name != who.name and second.name in (who.name, "{{agentName}}", "{{agent}}")
    ]
    return Voice(who.name, who.topics, who.adjectives, who.background, tuple(pairs), tuple(who.post_examples))


def _result(text: str) -> TextResult:
    return TextResult(text, NAME, FREE)
