"""The request for a reply as plain text, for models that are too small to write a form: no actions, no thought.

The character and the earlier conversation are the system prompt, the messages to answer are the prompt: a model of this
size answers what looks like one message of a chat.
"""

from bot.domain.component_specs import ProviderKind
from bot.models.types import Purpose, TextRequest
from bot.pipeline.answer_context import plain_context
from bot.pipeline.compose import Composer
from bot.prompts.history import parse_history
from bot.prompts.reply_parser.reader import AnswerContext
from bot.text import grapheme_boundary_before, sanitize_name
from bot.turn import Turn

KINDS = (ProviderKind.PERSONA, ProviderKind.HISTORY, ProviderKind.ATTACHMENTS)
MAX_TOKENS, REPETITION_PENALTY = 256, 1.15  # a small model writes on and on, in the same words
MAX_EARLIER = 8  # lines of the conversation; a small model is confused by more


async def compose_plain(turn: Turn, composer: Composer) -> None:
    """Run the providers whose texts are in the request."""
    await composer.compose(turn, composer.registry.provider_names(*KINDS), only_included=True)


def build_plain_request(turn: Turn, composer: Composer) -> tuple[TextRequest, AnswerContext]:
    """Return the request with the texts composed last, and the context of its answer."""
    state, own_name = turn.state, sanitize_name(turn.agent.character.name)
    lines = parse_history(str(state.values.get("recentMessages", "")))
    open_texts = {item.message.content.render_text() for item in turn.inputs}
    while lines and not lines[-1].is_agent and lines[-1].text in open_texts:
        lines.pop()
    earlier = [f"{own_name if line.is_agent else line.name}: {line.text}" for line in lines[-MAX_EARLIER:]]
    kinds = {spec.name: spec.kind for spec in turn.agent.catalog.providers}
    texts = [state.results[name].text for name in state.composed_providers if kinds[name] is not ProviderKind.HISTORY]
    if earlier:
        texts.append("Earlier in this conversation:\n" + "\n".join(earlier))
    system = "\n\n".join([composer.render_system(turn), *filter(None, texts)])
    is_chat = turn.room.type.is_direct and len(turn.inputs) == 1
    said = []
    for item in turn.recent_inputs:
        text = item.message.content.render_text()
        text = text[: grapheme_boundary_before(text, state.max_message_length)]
        said.append(text if is_chat else f"{sanitize_name(item.author.name)}: {text}")
    names = {line.name for line in lines if not line.is_agent}
    request = TextRequest(
        "\n".join(said),
        purpose=Purpose.REPLY,
        system=system,
        max_tokens=MAX_TOKENS,
        repetition_penalty=REPETITION_PENALTY,
    )
    return request, plain_context(turn, names)
