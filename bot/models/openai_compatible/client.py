"""The client of a plugin, and its calls and handlers for text, descriptions of pictures and vectors."""

import base64
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

from bot.agent import Agent
from bot.errors import ModelError, ToolsRefused
from bot.models.listing import ModelListing
from bot.models.openai_compatible.answers import (
    AnswerReader,
    list_entries,
    read_usage,
    read_vectors,
    texts_of,
    to_model_info,
)
from bot.models.openai_compatible.server import (
    CONTENT_REFUSAL_CODES,
    Connection,
    Endpoint,
    ServerError,
    open_connection,
    shorten_message,
)
from bot.models.types import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ModelInfo,
    ModelType,
    TextRequest,
    TextResult,
)
from bot.models.usage import note_call
from bot.plugin_system.components import Model, Service, SettingsCondition, model
from bot.prompts.reply_parser.json_objects import first_object
from bot.settings import SettingsModel
from bot.text import user_text

logger = logging.getLogger(__name__)

SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed")
# OpenAI does not know these, nor does its SDK; other servers of this API do.
NON_OPENAI_PARAMETERS = ("top_k", "min_p", "repetition_penalty")
# What can be omitted if an error names it. Of "seed" and "stop", ordinary words too, only as the error's parameter.
OPTIONAL = ("max_tokens", "max_completion_tokens", "response_format", "stream_options", *SAMPLING)
PARAMETER_ERROR_STATUSES = (400, 422, 500, 501)
NO_TOOLS = re.compile(
    r"support tool|not support (?:tools|functions?\b|tool|function)|(?:tools?|functions?)\b.{0,30}\b(?:is|are) not "
    r"(?:supported|enabled|available)|--jinja|--enable-auto-tool-choice|(?:unknown|unrecogni[sz]ed|unexpected|unsupported"
    r"|extra)\b.{0,40}\btools\b(?!\[|\.)|\btools\b.{0,5}(?:extra inputs|unknown|unexpected)",
    re.IGNORECASE,
)
TOOLS = re.compile(r"\btools?\b|\bfunctions?\b|schema", re.IGNORECASE)
SCHEMA = re.compile(r"json.?schema|json_object|structured.outputs?|response.?format|grammar", re.IGNORECASE)
NO_SYSTEM_ROLE = re.compile(
    r"\b(?:system|developer)\b.{0,60}(?:\bnot?\b|n't|unsupported|invalid|disabled|unknown)"
    r"|(?:\bnot?\b|n't|unsupported|invalid|unknown|unexpected)\b.{0,60}\b(?:system|developer)\b.{0,20}"
    r"|roles?\b.{0,40}\balternat|only\b.{0,20}\buser\b.{0,20}\bassistant\b|\bassistant\b.{0,20}\buser\b.{0,20}\ballowed"
    r"|(?:jinja|template)\b.*\broles?\b|\broles?\b.*(?:jinja|template)",
    re.IGNORECASE | re.DOTALL,
)
DEFAULT_DESCRIPTION_PROMPT = "Describe this picture in a few sentences."
MAX_DESCRIPTION_TOKENS = 1024  # if no setting of the plugin says otherwise
SYSTEM = "system"  # among the refused parameters: the role of a message


class CompatibleClient(Service):
    """All connections of one plugin, opened and closed with the agent; subclassed by each plugin.

    `provider` is the plugin's name, with which the names of its settings begin, and `settings_type` their class.
    `endpoints` are the servers by capability; the blank one is for text, and for capabilities without one. `wanted` are
    the models that settings name, by variable. With `lists_at_start`, the server for text is asked for its models at
    start, and those of the wanted ones that it does not have are logged.
    """

    provider: ClassVar[str]
    settings_type: ClassVar[type[SettingsModel]]
    lists_at_start: ClassVar[bool] = False

    def __init__(
        self,
        agent: Agent,
        settings: Any,
        endpoints: Mapping[str, Endpoint],
        wanted: Mapping[str, str | None] | None = None,
    ) -> None:
        super().__init__(agent)
        self.settings = settings
        secrets = frozenset(endpoint.key.get_secret_value() for endpoint in endpoints.values() if endpoint.key)
        opened = {endpoint: open_connection(endpoint, secrets) for endpoint in set(endpoints.values())}
        self._connections = {capability: opened[endpoint] for capability, endpoint in endpoints.items()}
        text = self.connection()
        self.listing = ModelListing(
            self.fetch_models, provider=self.provider, host=text.host, advice=text.endpoint.model_advice, wanted=wanted
        )
        # What a model, by host and name, has refused or ignored: parameters, and the role "system".
        self.refused_parameters: dict[tuple[str, str], set[str]] = {}
        self._supported_parameters: dict[str, list[str]] = {}

    async def __aenter__(self) -> Self:
        if self.lists_at_start:
            await self.listing.log()
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections.values():
            await connection.sdk.close()

    @classmethod
    def model_for(cls, settings: Any, capability: str) -> str:
        """Return the model that the settings name for a capability; blank if they name none."""
        return getattr(settings, f"{cls.provider}_{capability.lower()}_model") or ""

    def connection(self, capability: str = "") -> Connection:
        """Return the connection of a capability; blank for text."""
        return self._connections.get(capability) or self._connections[""]

    def known_model(self, size: str) -> str:
        """Return the model for texts of a size, e.g. "LARGE"; blank if it is not known yet."""
        return self.model_for(self.settings, size)

    async def text_model(self, size: str) -> str:
        """Return the model for texts of a size. Raises ModelError if it cannot be found out."""
        return self.known_model(size)

    async def describe_image(self, request: ImageDescriptionRequest) -> TextResult:
        """Return a description of a picture. Raises as `Connection.mapped_errors` does."""
        connection = self.connection("IMAGE_DESCRIPTION")
        url = f"data:{request.content_type};base64,{base64.b64encode(request.image).decode('ascii')}"
        content = [
            {"type": "text", "text": request.prompt or DEFAULT_DESCRIPTION_PROMPT},
            {"type": "image_url", "image_url": {"url": url}},
        ]
        field = f"{self.provider}_image_description_max_tokens"
        body = {
            "model": self.model_for(self.settings, "IMAGE_DESCRIPTION"),
            "messages": [{"role": "user", "content": content}],
            connection.endpoint.length_parameter: getattr(self.settings, field, MAX_DESCRIPTION_TOKENS),
        }
        return await send(self, connection, body)

    def accepts(self, parameter: str, model: str) -> bool:
        """Return whether the server for text accepts a parameter for a model, or for all if the name is blank.

        It does unless it lists other parameters for the model, or has refused or ignored this one.
        """
        host = self.connection().host
        refusing = {key for key, refused in self.refused_parameters.items() if parameter in refused and key[0] == host}
        if parameter == "tools" and self.listing.info(model).can_call_tools is False:
            return False
        is_refused = (host, model) in refusing if model else bool(refusing)
        return not is_refused and parameter in self._supported_parameters.get(model, [parameter])

    async def fetch_models(self) -> list[ModelInfo]:
        """Ask the server for text for its models. Raises as `Connection.fetch` does."""
        connection = self.connection()
        body = await connection.fetch(connection.sdk.models.with_streaming_response.list(), "models", "list of models")
        if not isinstance(body, list) and not (isinstance(body, dict) and {"data", "models"} & body.keys()):
            raise connection.invalid("models", "list of models")
        entries = list_entries(body)
        supported = {entry["id"]: texts_of(entry.get("supported_parameters")) for entry in entries}
        self._supported_parameters = {name: names for name, names in supported.items() if names is not None}
        return [to_model_info(entry) for entry in entries]


async def complete(client: CompatibleClient, model: str, request: TextRequest) -> TextResult:
    """Return the text that a model writes. Raises as `send` does."""
    connection = client.connection()
    if not client.accepts("tools", model):
        request = replace(request, tools=())
    if not client.accepts("response_format", model):
        request = replace(request, schema=None)
    user = {"role": "user", "content": request.prompt}
    messages = [{"role": SYSTEM, "content": request.system}, user] if request.system else [user]
    body: dict[str, Any] = {"model": model, "messages": messages}
    body |= {name: getattr(request, name) for name in (*SAMPLING, *NON_OPENAI_PARAMETERS)}
    body[connection.endpoint.length_parameter] = request.max_tokens
    body["stop"] = list(request.stop) or None
    if request.schema is not None:
        schema = {"name": "answer", "schema": dict(request.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
        for tool in request.tools
    ]
    body["tools"] = [{"type": "function", "function": function} for function in functions] or None
    if request.sink is not None:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    body = {name: value for name, value in body.items() if value is not None}
    return await send(client, connection, body, request)


async def send(
    client: CompatibleClient, connection: Connection, body: Mapping[str, Any], request: TextRequest | None = None
) -> TextResult:
    """Return a chat completion, without what the server has refused for this model.

    Raises ToolsRefused if it refuses the tools of the request, and as `Connection.mapped_errors` does.
    """
    model = str(body["model"])
    note_call(model)
    refused = client.refused_parameters.setdefault((connection.host, model), set())
    while True:
        sent = {name: value for name, value in body.items() if name not in refused}
        if SYSTEM in refused and len(sent["messages"]) > 1:
            system, user = sent["messages"]
            sent["messages"] = [{**user, "content": f"{system['content']}\n\n{user['content']}"}]
        with connection.mapped_errors(model):
            try:
                result = await _fetch(connection, sent, request)
            except ServerError as error:
                if error.code in CONTENT_REFUSAL_CODES:
                    return TextResult(user_text("notices.no_answer"), model)
                found, verb = _find_refused(error, sent), "refuses"
                if not found and _speaks_of_tools(error, sent):
                    cause = f"({error.status}): {shorten_message(error.message, connection.secrets)}"
                    server = f"{connection.endpoint.provider}: {connection.host}"
                    raise ToolsRefused(f"{server} refused the tools of the request {cause}") from error
                if not found:
                    raise
            else:
                if "response_format" not in sent or not _lacks_object(result):
                    return result
                found, verb = ["response_format"], "ignores"
        refused.update(found)
        name = ", ".join(found)
        logger.warning("%s at %s %s %s; it is not sent from now on", model, connection.host, verb, name)
        if verb == "ignores":
            return result


async def _fetch(connection: Connection, body: Mapping[str, Any], request: TextRequest | None) -> TextResult:
    known = {name: value for name, value in body.items() if name not in NON_OPENAI_PARAMETERS}
    unknown = {name: body[name] for name in NON_OPENAI_PARAMETERS if name in body} or None
    create = connection.sdk.chat.completions.with_streaming_response.create
    async with create(**known, extra_body=unknown) as response:
        return await AnswerReader(body["model"], connection, request).read(response.iter_bytes())


def _lacks_object(result: TextResult) -> bool:
    """Return whether an answer that ended by itself contains no JSON object."""
    is_other = not result.text.strip() or result.is_truncated or result.tool_calls
    return (
        not is_other
        and result.text != user_text("notices.no_answer")
        and not first_object(result.text.rpartition("</think>")[2])
    )


def _find_refused(error: ServerError, body: Mapping[str, Any]) -> list[str]:
    """Return what the error refuses of a request: parameters, or the role "system"; empty for any other error."""
    if "tools" in body and NO_TOOLS.search(error.message):
        return ["tools"]
    if error.status not in PARAMETER_ERROR_STATUSES or error.is_too_long:
        return []
    parameter = error.param.partition(".")[0]
    if parameter in (*OPTIONAL, *NON_OPENAI_PARAMETERS, "stop") and parameter in body:
        return [parameter]
    words = set(re.findall(r"\w+", error.message)) - {"seed"}
    found = [name for name in (*OPTIONAL, *NON_OPENAI_PARAMETERS) if name in body and name in words]
    if not found and "response_format" in body and SCHEMA.search(error.message) and "function" not in error.message:
        found = ["response_format"]
    if not found and body["messages"][0]["role"] == SYSTEM and NO_SYSTEM_ROLE.search(error.message):
        found = [SYSTEM]
    return found


def _speaks_of_tools(error: ServerError, body: Mapping[str, Any]) -> bool:
    is_of_request = "tools" in body and error.status in PARAMETER_ERROR_STATUSES and not error.is_too_long
    return is_of_request and TOOLS.search(f"{error.param} {error.message}") is not None


async def embed(client: CompatibleClient, request: EmbeddingRequest) -> EmbeddingResult:
    """Return the embeddings of texts, with as many dimensions as a setting of the plugin says.

    Raises ModelError if one is missing or has a wrong dimension, and as `Connection.fetch` does.
    """
    connection, name = client.connection("EMBEDDING"), client.model_for(client.settings, "EMBEDDING")
    field = f"{client.provider}_embedding_dimensions"
    dimensions: int | None = getattr(client.settings, field, None)
    wanted: Any = {} if dimensions is None else {"dimensions": dimensions}
    create = connection.sdk.embeddings.with_streaming_response.create
    call = create(model=name, input=list(request.texts), encoding_format="float", **wanted)
    body = await connection.fetch(call, name, "list of vectors")
    try:
        vectors = read_vectors(body, len(request.texts))
    except ValueError as error:
        raise ModelError(
            f"{client.provider}: {name} did not return one vector for each of {len(request.texts)} texts: {error}"
        ) from None
    lengths = {len(vector) for vector in vectors}
    if dimensions is not None and lengths - {dimensions}:
        raise ModelError(
            f"{client.provider}: {name} returned vectors of {max(lengths)} numbers, but {field.upper()} is "
            f"{dimensions}: remove that setting, or choose a model that supports it"
        )
    # Another server than OpenAI's may change the model behind a name: vectors are comparable if the length is the same.
    is_plain = dimensions is None and connection.endpoint.is_openai
    usage = body.get("usage") if isinstance(body, dict) else None
    return EmbeddingResult(
        vectors=tuple(map(tuple, vectors)),
        model=name if is_plain else f"{name}-{max(lengths, default=0)}",
        usage=read_usage({**usage, "completion_tokens": 0}) if isinstance(usage, dict) else None,
    )


def make_handlers(
    client_type: type[CompatibleClient],
    *,
    can_call_tools: SettingsCondition,
    writes_text: SettingsCondition = lambda settings: True,
) -> tuple[Model, Model, Model, Model, Model]:
    """Return the handlers for small, medium and large texts, embeddings and descriptions of pictures.

    Embeddings, descriptions and the medium texts need a model in the settings, the other texts what `writes_text` says.
    """

    def has_model(capability: str) -> SettingsCondition:
        return lambda settings: client_type.model_for(settings.load(client_type.settings_type), capability) != ""

    def write_with(size: str, when: SettingsCondition) -> Model:
        def is_accepted(parameter: str, agent: Agent) -> bool:
            if client_type not in agent.services:
                return True
            client = agent.services[client_type]
            return client.accepts(parameter, client.known_model(size))

        async def write(agent: Agent, request: TextRequest) -> TextResult:
            client = agent.services[client_type]
            return await complete(client, await client.text_model(size), request)

        return model(
            ModelType(f"TEXT_{size}"),
            can_call_tools=can_call_tools,
            when=when,
            has_tools_now=partial(is_accepted, "tools"),
            can_write_json=partial(is_accepted, "response_format"),
        )(write)

    @model(ModelType.TEXT_EMBEDDING, when=has_model("EMBEDDING"))
    async def embed_texts(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
        return await embed(agent.services[client_type], request)

    @model(ModelType.IMAGE_DESCRIPTION, when=has_model("IMAGE_DESCRIPTION"))
    async def describe(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
        result: TextResult = await agent.services[client_type].describe_image(request)
        return result

    medium = write_with("MEDIUM", has_model("MEDIUM"))
    return write_with("SMALL", writes_text), medium, write_with("LARGE", writes_text), embed_texts, describe
