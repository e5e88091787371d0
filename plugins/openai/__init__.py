"""Models from OpenAI, or from any server that speaks its API: vLLM, LM Studio, llama.cpp."""

from bot import Plugin
from plugins.openai.models import (
    Client,
    describe_image,
    embed,
    generate_image,
    large,
    medium,
    small,
    synthesize_speech,
    transcribe,
)
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
