"""The settings of the google plugin."""

from pydantic import Field

from bot import Secret, Settings, SettingsModel
from bot.models import host_label
from bot.platform import BaseUrl
from bot.text import user_text

KEY, SERVER = "GOOGLE_GENERATIVE_AI_API_KEY", "GOOGLE_GENERATIVE_AI_BASE_URL"


class GoogleSettings(SettingsModel):
    """Key and models of Google's Gemini API."""

    CHARACTER_SETTINGS = frozenset(
        [
            "GOOGLE_GENERATIVE_AI_API_KEY",
            "GOOGLE_SMALL_MODEL",
            "GOOGLE_MEDIUM_MODEL",
            "GOOGLE_LARGE_MODEL",
            "GOOGLE_EMBEDDING_MODEL",
            "GOOGLE_EMBEDDING_DIMENSIONS",
            "GOOGLE_IMAGE_MODEL",
        ]
    )

    google_generative_ai_api_key: Secret | None = Field(None, description="The key.")
    google_generative_ai_base_url: BaseUrl = Field(
        "https://generativelanguage.googleapis.com",
        description="The server, without a version; another one with the same API, such as a proxy.",
    )
    google_small_model: str = Field("gemini-2.5-flash-lite", description="Decides whether to answer; cheap and quick.")
    google_medium_model: str | None = Field(
        None, description="Between the two; one of them stands in where it is not set."
    )
    google_large_model: str = Field("gemini-2.5-flash", description="Writes the answers.")
    google_thinking_budget: int | None = Field(
        None,
        ge=0,
        description="How many tokens a model may think before it answers; 0 for none, where a model can do "
        "without. Unset, the model decides.",
    )
    google_embedding_model: str = Field(
        "gemini-embedding-001", description="Makes the vectors by which things are found."
    )
    google_embedding_dimensions: int | None = Field(
        None, ge=1, le=65_536, description="How many numbers a vector has; the model's own where unset."
    )
    google_image_model: str | None = Field(
        None, description="Says what a picture shows; the large model where it is not set."
    )


def missing_settings(settings: Settings) -> str:
    """Return what is missing; empty if the key is set."""
    return "" if KEY in settings else f"set {KEY} in .env"


def privacy_statement(settings: Settings) -> str:
    """Return the statement to which server user data is sent."""
    host = host_label(settings.load(GoogleSettings).google_generative_ai_base_url)
    data = ", ".join(user_text(f"privacy.data.{name}") for name in ("text", "searchable", "pictures"))
    return user_text("privacy.sent", host=host, data=data)
