"""The settings of the anthropic plugin."""

from pydantic import Field

from bot import Secret, Settings, SettingsModel
from bot.models import host_label
from bot.text import user_text

KEY = "ANTHROPIC_API_KEY"


class AnthropicSettings(SettingsModel):
    """Key, server and models. Anthropic has no embedding model: another plugin must provide one."""

    CHARACTER_SETTINGS = frozenset(
        ["ANTHROPIC_API_KEY", "ANTHROPIC_SMALL_MODEL", "ANTHROPIC_LARGE_MODEL", "ANTHROPIC_MAX_TOKENS"]
    )

    anthropic_api_key: Secret | None = Field(None, description="The key.")
    anthropic_base_url: str = Field(
        "https://api.anthropic.com",
        pattern="^https?://",
        description="The server, without /v1; another one that speaks the same API, such as a proxy.",
    )
    anthropic_small_model: str = Field("claude-haiku-4-5", description="Decides whether to answer; cheap and quick.")
    anthropic_large_model: str = Field(
        "claude-sonnet-4-6", description="Writes the answers, and says what a picture shows."
    )
    anthropic_max_tokens: int = Field(
        4096, ge=1, description="The longest text, in tokens, where nothing else says it."
    )


def missing_settings(settings: Settings) -> str:
    """Return what is missing; empty if the key is set."""
    return "" if KEY in settings else f"set {KEY} in .env"


def privacy_statement(settings: Settings) -> str:
    """Return the statement to which server user data is sent."""
    host = host_label(settings.load(AnthropicSettings).anthropic_base_url)
    data = ", ".join(user_text(f"privacy.data.{name}") for name in ("text", "pictures"))
    return user_text("privacy.sent", host=host, data=data)
