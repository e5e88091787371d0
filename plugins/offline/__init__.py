"""Offline plugin: answers from patterns, without a key or a network."""

import sys

from pydantic import Field

from bot import Agent, Plugin, SettingsModel
from plugins.offline.models import embed_texts, generate_text

NOTICE = (
    "offline model: {name} answers from built-in patterns, without a language model. For a real one set "
    "OPENAI_API_KEY, ANTHROPIC_API_KEY, GOOGLE_GENERATIVE_AI_API_KEY or OPENROUTER_API_KEY, or for a server of your "
    "own OLLAMA_API_ENDPOINT or OPENAI_BASE_URL (vLLM, LM Studio), in .env"
)


class OfflineSettings(SettingsModel):
    """Settings of the built-in responder."""

    CHARACTER_SETTINGS = frozenset({"OFFLINE_SEED"})

    offline_seed: int = Field(0, description="Seed of the choice of wordings; the same seed gives the same answers.")


async def print_notice(agent: Agent) -> None:
    """Print once on stderr that this is not a language model."""
    print(NOTICE.format(name=agent.name), file=sys.stderr)  # noqa: T201  # the operator must see it, log or no log


plugin = Plugin(
    "offline",
    "Answers from built-in patterns: no key, no network, no language model.",
    models=[generate_text, embed_texts],
    settings=OfflineSettings,
    init=print_notice,
    priority=-100,
)
