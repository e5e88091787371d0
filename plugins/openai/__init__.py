"""Text from OpenAI, or from any server that speaks its API: Ollama, vLLM, LM Studio, OpenRouter."""

from bot import Plugin
from plugins.openai.client import Client
from plugins.openai.settings import OpenAISettings, lacks
from plugins.openai.text import large, small

plugin = Plugin(
    "openai",
    "Text from OpenAI, or from any server that speaks its API.",
    models=[small, large],
    services=[Client],
    settings=OpenAISettings,
    lacks=lacks,
)
