"""Models from OpenAI, or from any server that speaks its API: vLLM, LM Studio, llama.cpp."""

from bot import Plugin
from plugins.openai.models import HANDLERS, Client, OpenAISettings, missing_settings, privacy_statement

plugin = Plugin(
    "openai",
    "Text, embeddings, pictures and speech from OpenAI, or from any server with its API.",
    models=HANDLERS,
    services=[Client],
    settings=OpenAISettings,
    missing_settings=missing_settings,
    privacy_statement=privacy_statement,
)
