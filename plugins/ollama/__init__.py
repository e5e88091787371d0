"""Models from Ollama: on this machine, on another one, or in its cloud."""

import asyncio
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from bot import Plugin, Secret, Settings, SettingsModel
from bot.models import ModelError, ModelInfo
from bot.models import openai_compatible as api
from bot.platform import BaseUrl

DEFAULT_TAG = ":latest"  # a name without a tag means this one


def _find_root(url: str) -> str:
    return url.removesuffix("/api").removesuffix("/v1")


def without_default_tag(name: str) -> str:
    """Return the name of a model without the tag that a name without a tag means."""
    return name.removesuffix(DEFAULT_TAG)


Server = Annotated[BaseUrl, AfterValidator(_find_root)]
ModelName = Annotated[str, AfterValidator(without_default_tag)]


class OllamaSettings(SettingsModel):
    """Server and models of Ollama. A model is used only after `ollama pull` has fetched it to the server."""

    CHARACTER_SETTINGS = frozenset(
        f"OLLAMA_{name}"
        for name in (
            *("API_KEY", "SMALL_MODEL", "MEDIUM_MODEL", "LARGE_MODEL", "TOOLS"),
            *("EMBEDDING_MODEL", "IMAGE_DESCRIPTION_MODEL"),
        )
    )

    ollama_api_endpoint: Server = Field(
        "http://localhost:11434",
        description="The server; /api at its end may stay or be left out. Setting it switches the plugin on.",
    )
    ollama_api_key: Secret | None = Field(None, description="The key of Ollama's cloud; a local server needs none.")
    ollama_small_model: ModelName | None = Field(
        None, description="Decides whether to answer. Unset, it is the large one, so that one model stays in memory."
    )
    ollama_medium_model: ModelName | None = Field(
        None, description="Between the two; one of them stands in where it is not set."
    )
    ollama_large_model: ModelName | None = Field(
        None, description="Writes the answers. Unset, it is the only model for text that the server has."
    )
    ollama_tools: bool = Field(
        False,
        description="Whether actions are offered as functions to a model that can call them. Small models fill "
        "in tags more reliably.",
    )
    ollama_embedding_model: ModelName | None = Field(
        None, description="Makes the vectors by which things are found, e.g. nomic-embed-text."
    )
    ollama_image_description_model: ModelName | None = Field(
        None, description="Says what a picture shows, e.g. gemma3; unset, pictures are not described."
    )


MAX_DESCRIBED = 64  # models about which the server is asked in detail


def to_model_info(name: str, details: Any) -> ModelInfo:
    """Return what the server reports of a model; old versions report no capabilities."""
    details = details if isinstance(details, dict) else {}
    abilities, info = details.get("capabilities"), details.get("model_info")
    count = info.get("general.parameter_count") if isinstance(info, dict) else None
    has_abilities = isinstance(abilities, list)
    return ModelInfo(
        without_default_tag(name),
        can_call_tools="tools" in abilities if has_abilities else None,
        can_see="vision" in abilities if has_abilities else None,
        is_embedding="completion" not in abilities if has_abilities else "embed" in name.lower(),
        context_length=api.ollama_window(details),
        parameter_count=count if type(count) is int else None,
    )


class OllamaClient(api.CompatibleClient):
    """The connection to the server, opened and closed with the agent."""

    provider = "ollama"
    settings_type = OllamaSettings
    lists_at_start = True
    listed = ("SMALL", "MEDIUM", "LARGE", "EMBEDDING", "IMAGE_DESCRIPTION")

    @classmethod
    def endpoint_for(cls, settings: Any, capability: str = "") -> api.Endpoint:
        """Return the one server for all capabilities."""
        return api.Endpoint(
            provider="ollama",
            url=f"{settings.ollama_api_endpoint}/v1",
            key=settings.ollama_api_key,
            url_name="OLLAMA_API_ENDPOINT",
            key_name="OLLAMA_API_KEY",
            model_advice="`ollama pull {model}` on the server fetches it",
        )

    async def fetch_models(self) -> list[ModelInfo]:
        """Ask the server for its models, and what each of them can do. Raises as `Connection.fetch` does."""
        connection = self.connection()
        tags = await connection.fetch(f"{self.settings.ollama_api_endpoint}/api/tags", "list of models")
        if not isinstance(tags, dict) or "models" not in tags:
            raise ModelError(f"ollama: {connection.host} is not Ollama: check OLLAMA_API_ENDPOINT")
        names = [entry["id"] for entry in api.list_entries(tags)]
        self.owners = dict.fromkeys(map(without_default_tag, names), api.OLLAMA_OWNER)
        described = await asyncio.gather(*(self._describe(connection, name) for name in names[:MAX_DESCRIBED]))
        return [*described, *(to_model_info(name, {}) for name in names[MAX_DESCRIBED:])]

    async def _describe(self, connection: api.Connection, name: str) -> ModelInfo:
        url = f"{self.settings.ollama_api_endpoint}/api/show"
        return to_model_info(name, await connection.fetch(url, "description", {"model": name}))

    def known_model(self, size: str) -> str:
        """Return the model of a setting, else the large one, else the first that the server has listed."""
        named = super().known_model(size) or self.settings.ollama_large_model
        return named or next(iter(self.listing.models or {}), "")

    async def text_model(self, size: str) -> str:
        """Return the model of a setting, else the large one. Raises ModelRefused if the server has several."""
        named = super().known_model(size) or self.settings.ollama_large_model
        return named or await self.listing.find_text_model("", "OLLAMA_LARGE_MODEL")


def _offers_tools(settings: Settings) -> bool:
    return settings.load(OllamaSettings).ollama_tools


HANDLERS = small, medium, large, embed, describe_image = api.make_handlers(OllamaClient, can_call_tools=_offers_tools)

plugin = Plugin(
    "ollama",
    "Text, embeddings and descriptions of pictures from Ollama.",
    models=HANDLERS,
    services=[OllamaClient],
    settings=OllamaSettings,
    privacy_statement=OllamaClient.privacy_statement,
)
