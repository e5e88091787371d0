"""Model handlers of the offline responder: they parse the prompt and answer in the expected tags."""

from itertools import pairwise
from xml.sax.saxutils import escape

from bot import Agent, model
from bot.models import EmbeddingRequest, EmbeddingResult, ModelType, Purpose, TextRequest, TextResult, Usage
from bot.prompts import parse_history
from plugins.offline.embedding import embed
from plugins.offline.input_analysis import ChatLine
from plugins.offline.responder import Persona, respond, should_respond, write_post

MODEL_NAME = "offline"
NO_USAGE = Usage()


@model(ModelType.TEXT_LARGE)
async def generate_text(agent: Agent, request: TextRequest) -> TextResult:
    """Answer a text request from patterns."""
    persona = _build_persona(agent)
    history = [ChatLine(line.name, line.text, line.is_agent) for line in parse_history(request.prompt)]
    if request.purpose is Purpose.SHOULD_RESPOND:
        decision = "RESPOND" if should_respond(history, persona) else "IGNORE"
        return _text_result(f"<response><reasoning>by pattern</reasoning><action>{decision}</action></response>")
    if request.purpose is Purpose.REPAIR:
        return _text_result("{}")
    if request.purpose is Purpose.REFLECTION:
        return _text_result("<response></response>")
    if request.purpose is Purpose.STEP:
        return _text_result("<response><action></action><isFinish>true</isFinish></response>")
    if request.purpose is Purpose.POST:
        recent = [line.text for line in history if line.is_agent]
        post_text = escape(write_post(persona, seed=_read_seed(agent), recent=recent))
        return _text_result(f"<response><post>{post_text}</post></response>")
    reply_text = escape(respond(history, persona, seed=_read_seed(agent)))
    return _text_result(
        f"<response><thought>by pattern</thought><actions>REPLY</actions><text>{reply_text}</text></response>"
    )


@model(ModelType.TEXT_EMBEDDING)
async def embed_texts(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
    """Return hashed n-gram vectors, comparable with each other by cosine."""
    vectors = tuple(tuple(embed(item)) for item in request.texts)
    return EmbeddingResult(vectors, f"{MODEL_NAME}-ngrams-384", NO_USAGE)


def _read_seed(agent: Agent) -> int:
    return int(agent.settings.get("OFFLINE_SEED") or 0)


def _build_persona(agent: Agent) -> Persona:
    character = agent.character
    pairs = [
        (first.content.text, second.content.text)
        for example in character.message_examples
        for first, second in pairwise(example)
        if first.name != character.name and second.name in (character.name, "{{agentName}}", "{{agent}}")
    ]
    return Persona(
        character.name,
        character.topics,
        character.adjectives,
        character.background,
        tuple(pairs),
        tuple(character.post_examples),
    )


def _text_result(text: str) -> TextResult:
    return TextResult(text, MODEL_NAME, NO_USAGE)
