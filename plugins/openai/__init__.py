"""Models from OpenAI, or from any server that speaks its API: Ollama, vLLM, LM Studio, OpenRouter."""

from bot import Plugin
from plugins.openai.client import Client
from plugins.openai.media import describe_image, generate_image, synthesize_speech, transcribe
from plugins.openai.models import embed, large, medium, small
from plugins.openai.settings import OpenAISettings, missing_settings, privacy_statement

plugin = Plugin(
    "openai",
    "Text, embeddings, pictures and speech from OpenAI, or from any server with its API.",
    models=[small, medium, large, embed, generate_image, describe_image, transcribe, synthesize_speech],
    services=[Client],
    settings=OpenAISettings,
    missing_settings=missing_settings,
    privacy_statement=privacy_statement,
)
