"""A conversation without any key or network: patterns, honest about what they are."""

import sys

from pydantic import Field

from bot import Agent, Plugin, SettingsModel
from plugins.offline.models import embed_texts, generate_text

NOTICE = (
    "offline model: {name} answers from built-in patterns, without a language model. For a real one set "
    "OPENAI_API_KEY or ANTHROPIC_API_KEY, or OPENAI_BASE_URL for a server of your own (Ollama, vLLM, "
    "LM Studio), in .env"
)


class OfflineSettings(SettingsModel):
    """What the built-in responder may be told."""

    offline_seed: int = Field(0, description="Another number, other wordings; the same, the same.")


async def print_notice(agent: Agent) -> None:
    """Say once, on stderr, that this is no language model."""
    print(NOTICE.format(name=agent.name), file=sys.stderr)  # noqa: T201  # the operator must see it, log or no log


plugin = Plugin(
    "offline",
    "Answers from built-in patterns: no key, no network, no language model.",
    models=[generate_text, embed_texts],
    settings=OfflineSettings,
    init=print_notice,
    priority=-100,
)
