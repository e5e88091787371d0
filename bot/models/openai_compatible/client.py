"""`CompatibleClient`: the connections of one plugin, and the models that its server for text has."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, Field

from bot.agent import Agent
from bot.errors import ModelBusy, ModelError, ModelRefused
from bot.models.openai_compatible.connection import Connection, Endpoint, open_connection
from bot.models.openai_compatible.responses import Lenient, parse_response
from bot.models.types import ModelInfo
from bot.plugin_system.components import Service
from bot.settings import Secret

logger = logging.getLogger(__name__)

MAX_LISTED = 10
MAX_CONTEXT_LENGTH = 1_000_000_000  # tokens; a larger number is treated as not told
LIST_TIMEOUT = 5.0  # seconds for the models of a server; the conversation does not depend on it
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
        self._wanted = {variable: name for variable, name in (wanted or {}).items() if name}
        secrets = frozenset(endpoint.key.get_secret_value() for endpoint in endpoints.values() if endpoint.key)
        self._connections: dict[str, Connection] = {}
        opened: dict[tuple[str | None, Secret | None], Connection] = {}
        for capability, endpoint in endpoints.items():
            server = (endpoint.url, endpoint.key)
            if server not in opened:
                opened[server] = open_connection(endpoint, secrets)
            self._connections[capability] = Connection(opened[server].sdk, endpoint, secrets)
        # The models of the server for text by name, once it has listed them.
        self.models: Mapping[str, ModelInfo] | None = None
        # Parameters that a model, by host and name, has refused.
        self.refused_parameters: dict[tuple[str, str], set[str]] = {}

    async def __aenter__(self) -> Self:
        if self.lists_at_start:
            try:
                await self.list_models()
            except ModelError as error:
                logger.warning("%s; the models are listed when they are needed", error)
            else:
                logger.info("%s", self.describe_models())
                for problem in self.find_missing_models():
                    logger.warning("%s", problem)
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections.values():
            await connection.sdk.close()

    def connection(self, capability: str = "") -> Connection:
        """Return the connection of a capability; blank for text."""
        return self._connections.get(capability) or self._connections[""]

    @property
    def host(self) -> str:
        """The host name of the server for text, with its port where the URL names one."""
        return self.connection().host

    async def list_models(self) -> tuple[ModelInfo, ...]:
        """Return the models of the server for text; it is asked until it has listed them once.

        Raises ModelError if it does not.
        """
        if self.models is None:
            connection = self.connection()
            try:
                async with asyncio.timeout(LIST_TIMEOUT):
                    with connection.mapped_errors():
                        models = await self.fetch_models(connection)
            except TimeoutError:
                message = f"{connection.endpoint.provider}: {connection.host} has not listed its models in time"
                raise ModelBusy(message) from None
            self.models = {model.name: model for model in models}
        return tuple(self.models.values())

    async def fetch_models(self, connection: Connection) -> list[ModelInfo]:
        """Ask a server for its models. Raises OpenAIError or ModelError if it does not answer or list them."""
        response = await connection.sdk.models.with_raw_response.list()
        body = parse_response(ModelsBody, response.content, "models", "list of models", connection.endpoint)
        return [model.to_model_info() for model in body.data]

    def model_info(self, name: str) -> ModelInfo:
        """Return what the server has told of a model; nothing but its name if it has not listed it."""
        return (self.models or {}).get(name) or ModelInfo(name)

    async def find_text_model(self, default: str, variables: str) -> str:
        """Return the model to use where no setting names one: the only model for text that the server has.

        The default, if there is one, is kept at a server that has it, and at one that lists no models.
        Raises ModelRefused, naming the variables to set, if the server has several others, or none at all.
        """
        try:
            models = await self.list_models()
        except ModelError:
            if default:
                return default  # the request for a text then tells what is wrong
            raise
        names = [model.name for model in models if not model.is_embedding]
        if default in names or (default and not names):
            return default
        if len(names) == 1:
            return names[0]
        self.models = None  # so that the next call finds what was changed meanwhile
        start = f"{self.connection().endpoint.provider}: {self.host} has"
        if not names:
            advice = self.connection().endpoint.model_advice.replace("{model}", "NAME")
            raise ModelRefused(f"{start} no model for text: {advice}")
        unknown = f" and not {default}" if default else ""
        raise ModelRefused(
            f"{start} several models{unknown}: set {variables} to one of {', '.join(names[:MAX_LISTED])}"
        )

    def describe_models(self) -> str:
        """Return a line that names the server and its models, first the ones that settings name.

        It is empty if the server has not listed them.
        """
        if self.models is None:
            return ""
        names = [name for name in dict.fromkeys([*self._wanted.values(), *self.models]) if name in self.models]
        listed = ", ".join(str(self.models[name]) for name in names[:MAX_LISTED])
        if len(names) > MAX_LISTED:
            listed += f" and {len(names) - MAX_LISTED} more"
        return f"{self.connection().endpoint.provider}: models of {self.host}: {listed or 'none'}"

    def find_missing_models(self) -> list[str]:
        """Return a sentence with advice on each model that settings name and that the server has not."""
        endpoint = self.connection().endpoint
        return [
            f"{endpoint.provider}: {self.host} has no model {name!r} ({variable}): "
            f"{endpoint.model_advice.replace('{model}', name)}"
            for variable, name in self._wanted.items()
            if self.models is not None and name not in self.models
        ]
