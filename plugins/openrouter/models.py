"""The handlers of the models, and the connection that they use."""

from typing import Any

from bot import Agent, Settings
from bot.models import ImageDescriptionRequest, ModelRefused, TextResult
from bot.models import openai_compatible as api
from plugins.openrouter.settings import KEY, OpenRouterSettings


class OpenRouterClient(api.CompatibleClient):
    """The connection to the server, opened and closed with the agent."""

    provider = "openrouter"
    settings_type = OpenRouterSettings
    lists_at_start = True

    def __init__(self, agent: Agent) -> None:
        settings = agent.settings.load(OpenRouterSettings)
        sizes = ("large", "medium", "small", "image")  # the list has no embedding models
        wanted = {f"OPENROUTER_{size.upper()}_MODEL": self.model_for(settings, size) for size in sizes}
        endpoint = api.Endpoint(
            provider="openrouter",
            url=settings.openrouter_base_url,
            key=settings.openrouter_api_key,
            url_name="OPENROUTER_BASE_URL",
            key_name=KEY,
            model_advice="correct {model} in OPENROUTER_…_MODEL: a name has the form maker/model, as "
            "openrouter.ai/models lists it",
        )
        super().__init__(agent, settings, {"": endpoint}, wanted)

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
