"""`CompatibleClient`: the connections of one plugin, and the models that its server for text has."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, Field

from bot.agent import Agent
from bot.models.listing import ModelListing
from bot.models.openai_compatible.connection import Connection, Endpoint, open_connection
from bot.models.openai_compatible.responses import Lenient, parse_response
from bot.models.types import ModelInfo
from bot.plugin_system.components import Service
from bot.settings import Secret

MAX_CONTEXT_LENGTH = 1_000_000_000  # tokens; a larger number is treated as not told
ContextLength = Lenient[Annotated[int, Field(gt=0, lt=MAX_CONTEXT_LENGTH)]]


class _Architecture(BaseModel):
    """What a model takes, as OpenRouter tells it."""

    input_modalities: Lenient[list[str]] = None


class _Details(BaseModel):
    """What llama.cpp tells of a model."""

    n_ctx_train: ContextLength = None


class ServedModel(BaseModel):
    """A model in a server's list; all but the id is told by some servers only."""

    id: str
    context_length: ContextLength = None  # OpenRouter
    max_model_len: ContextLength = None  # vLLM
    meta: Lenient[_Details] = None  # llama.cpp
    architecture: Lenient[_Architecture] = None  # OpenRouter
    supported_parameters: Lenient[list[str]] = None  # OpenRouter

    def to_model_info(self) -> ModelInfo:
        """Return what the server tells of this model."""
        modalities = self.architecture.input_modalities if self.architecture else None
        return ModelInfo(
            self.id,
            can_call_tools=None if self.supported_parameters is None else "tools" in self.supported_parameters,
            can_see=None if modalities is None else "image" in modalities,
            is_embedding="embed" in self.id.lower(),
            context_length=self.context_length
            or self.max_model_len
            or (self.meta.n_ctx_train if self.meta is not None else None),
        )


class ModelsBody(BaseModel):
    """A response with the models of a server."""

    data: list[ServedModel]


class CompatibleClient(Service):
    """All connections of one plugin, opened and closed with the agent; subclassed by each plugin.

    `endpoints` are the servers by capability; the blank one is for text, and for capabilities without one.
    `wanted` are the models that settings name, by variable. With `lists_at_start`, the server for text is asked
    for its models at start, and the log tells which of the wanted ones it has not.
    """

    lists_at_start: ClassVar[bool] = False

    def __init__(
        self, agent: Agent, endpoints: Mapping[str, Endpoint], wanted: Mapping[str, str | None] | None = None
    ) -> None:
        super().__init__(agent)
        secrets = frozenset(endpoint.key.get_secret_value() for endpoint in endpoints.values() if endpoint.key)
        self._connections: dict[str, Connection] = {}
        opened: dict[tuple[str | None, Secret | None], Connection] = {}
        for capability, endpoint in endpoints.items():
            server = (endpoint.url, endpoint.key)
            if server not in opened:
                opened[server] = open_connection(endpoint, secrets)
            self._connections[capability] = replace(opened[server], endpoint=endpoint)
        text = self.connection()
        self.listing = ModelListing(
            self._load_models,
            provider=text.endpoint.provider,
            host=text.host,
            advice=text.endpoint.model_advice,
            wanted=wanted,
        )
        # Parameters that a model, by host and name, has refused.
        self.refused_parameters: dict[tuple[str, str], set[str]] = {}

    async def __aenter__(self) -> Self:
        if self.lists_at_start:
            await self.listing.log()
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections.values():
            await connection.requests.close()

    def connection(self, capability: str = "") -> Connection:
        """Return the connection of a capability; blank for text."""
        return self._connections.get(capability) or self._connections[""]

    async def fetch_models(self, connection: Connection) -> list[ModelInfo]:
        """Ask a server for its models. Raises ModelError, or as `Requests.open` does."""
        answer = await connection.requests.fetch("GET", "models")
        body = parse_response(ModelsBody, answer, "models", "list of models", connection.endpoint)
        return [model.to_model_info() for model in body.data]

    async def _load_models(self) -> list[ModelInfo]:
        connection = self.connection()
        with connection.mapped_errors():
            return await self.fetch_models(connection)
