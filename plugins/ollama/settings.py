"""The settings of the ollama plugin."""

from typing import Annotated

from pydantic import AfterValidator, Field

from bot import Secret, Settings, SettingsModel
from bot.models import host_label
from bot.platform import BaseUrl
from bot.text import user_text

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
        [
            "OLLAMA_API_KEY",
            "OLLAMA_SMALL_MODEL",
            "OLLAMA_MEDIUM_MODEL",
            "OLLAMA_LARGE_MODEL",
            "OLLAMA_TOOLS",
            "OLLAMA_EMBEDDING_MODEL",
            "OLLAMA_IMAGE_DESCRIPTION_MODEL",
        ]
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


def privacy_statement(settings: Settings) -> str:
    """Return the statement to which server user data is sent."""
    values = settings.load(OllamaSettings)
    data = ["text"]
    data += ["searchable"] if values.ollama_embedding_model else []
    data += ["pictures"] if values.ollama_image_description_model else []
    names = ", ".join(user_text(f"privacy.data.{name}") for name in data)
    return user_text("privacy.sent", host=host_label(values.ollama_api_endpoint), data=names)
