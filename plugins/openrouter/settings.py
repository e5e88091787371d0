"""The settings of the openrouter plugin."""

from pydantic import Field

from bot import Secret, Settings, SettingsModel
from bot.models import host_label
from bot.platform import BaseUrl
from bot.text import user_text

KEY = "OPENROUTER_API_KEY"


class OpenRouterSettings(SettingsModel):
    """Key and models of OpenRouter; models are named as in its list, with the maker in front."""

    CHARACTER_SETTINGS = frozenset(
        [
            "OPENROUTER_API_KEY",
            "OPENROUTER_SMALL_MODEL",
            "OPENROUTER_MEDIUM_MODEL",
            "OPENROUTER_LARGE_MODEL",
            "OPENROUTER_TOOLS",
            "OPENROUTER_EMBEDDING_MODEL",
            "OPENROUTER_EMBEDDING_DIMENSIONS",
            "OPENROUTER_IMAGE_MODEL",
        ]
    )

    openrouter_api_key: Secret | None = Field(None, description="The key.")
    openrouter_base_url: BaseUrl = Field(
        "https://openrouter.ai/api/v1", description="The server; another one with the same API, such as a proxy."
    )
    openrouter_small_model: str = Field(
        "google/gemini-2.5-flash-lite", description="Decides whether to answer; cheap and quick."
    )
    openrouter_medium_model: str | None = Field(
        None, description="Between the two; one of them stands in where it is not set."
    )
    openrouter_large_model: str = Field("google/gemini-2.5-flash", description="Writes the answers.")
    openrouter_tools: bool | None = Field(
        None, description="Whether actions are offered as functions. Unset: where the large model can call them."
    )
    openrouter_embedding_model: str | None = Field(
        None, description="Makes the vectors by which things are found, e.g. openai/text-embedding-3-small."
    )
    openrouter_embedding_dimensions: int | None = Field(
        None, ge=1, le=65_536, description="How many numbers a vector has; the model's own where unset."
    )
    openrouter_image_model: str | None = Field(
        None, description="Says what a picture shows; the large model where it is not set."
    )


def missing_settings(settings: Settings) -> str:
    """Return what is missing; empty if the key is set."""
    return "" if KEY in settings else f"set {KEY} in .env"


def privacy_statement(settings: Settings) -> str:
    """Return the statement to which server user data is sent."""
    values = settings.load(OpenRouterSettings)
    data = ["text", *(["searchable"] if values.openrouter_embedding_model else []), "pictures"]
    names = ", ".join(user_text(f"privacy.data.{name}") for name in data)
    return user_text("privacy.sent", host=host_label(values.openrouter_base_url), data=names)
