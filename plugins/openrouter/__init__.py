"""Models of many makers from OpenRouter, with one key."""

from typing import Any

from pydantic import Field

from bot import Plugin, Secret, Settings, SettingsModel
from bot.models import ImageDescriptionRequest, ModelRefused, TextResult
from bot.models import openai_compatible as api
from bot.platform import BaseUrl

KEY = "OPENROUTER_API_KEY"


class OpenRouterSettings(SettingsModel):
    """Key and models of OpenRouter; models are named as in its list, with the maker in front."""

    CHARACTER_SETTINGS = frozenset(
        f"OPENROUTER_{name}"
        for name in (
            *("API_KEY", "SMALL_MODEL", "MEDIUM_MODEL", "LARGE_MODEL", "TOOLS"),
            *("EMBEDDING_MODEL", "EMBEDDING_DIMENSIONS", "IMAGE_MODEL"),
        )
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


class OpenRouterClient(api.CompatibleClient):
    """The connection to the server, opened and closed with the agent."""

    provider = "openrouter"
    settings_type = OpenRouterSettings
    lists_at_start = True
    listed = ("LARGE", "MEDIUM", "SMALL", "IMAGE")  # the list has no embedding models

    @classmethod
    def endpoint_for(cls, settings: Any, capability: str = "") -> api.Endpoint:
        """Return the one server for all capabilities."""
        return api.Endpoint(
            provider="openrouter",
            url=settings.openrouter_base_url,
            key=settings.openrouter_api_key,
            url_name="OPENROUTER_BASE_URL",
            key_name=KEY,
            model_advice="correct {model} in OPENROUTER_…_MODEL: a name has the form maker/model, as "
            "openrouter.ai/models lists it",
        )

    @classmethod
    def model_for(cls, settings: Any, capability: str) -> str:
        """Return the model that the settings name for a capability; pictures are described by the large one as well."""
        if capability != "IMAGE_DESCRIPTION":
            return super().model_for(settings, capability)
        return super().model_for(settings, "IMAGE") or super().model_for(settings, "LARGE")

    async def describe_image(self, request: ImageDescriptionRequest) -> TextResult:
        """Return a description of a picture. Raises ModelRefused if the model sees no pictures."""
        name = self.model_for(self.settings, "IMAGE_DESCRIPTION")
        if self.listing.info(name).can_see is False:
            raise ModelRefused(f"openrouter: {name} sees no pictures: set OPENROUTER_IMAGE_MODEL to a model that does")
        return await super().describe_image(request)


def _offers_tools(settings: Settings) -> bool:
    return settings.load(OpenRouterSettings).openrouter_tools is not False


HANDLERS = small, medium, large, embed, describe_image = api.make_handlers(
    OpenRouterClient, can_call_tools=_offers_tools
)

plugin = Plugin(
    "openrouter",
    "Text, embeddings and descriptions of pictures from OpenRouter.",
    models=HANDLERS,
    services=[OpenRouterClient],
    settings=OpenRouterSettings,
    missing_settings=missing_settings,
    privacy_statement=OpenRouterClient.privacy_statement,
)
