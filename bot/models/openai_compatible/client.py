"""The client of a plugin, and its calls: text, descriptions of pictures, pictures, speech, recordings, vectors."""

import base64
import binascii
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from bot.agent import Agent
from bot.errors import ModelError, ToolsRefused
from bot.models.listing import ModelListing
from bot.models.openai_compatible.answers import (
    AnswerReader,
    has_object,
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
    to_text,
)
from bot.models.types import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ImageRequest,
    ImageResult,
    ModelInfo,
    SpeechRequest,
    SpeechResult,
    TextRequest,
    TextResult,
    TranscriptionRequest,
)
from bot.models.usage import note_call
from bot.plugin_system.components import Service
from bot.settings import Secret
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
SYSTEM = "system"  # among the refused parameters: the role of a message


class CompatibleClient(Service):
    """All connections of one plugin, opened and closed with the agent; subclassed by each plugin.

    `endpoints` are the servers by capability; the blank one is for text, and for capabilities without one.
    `wanted` are the models that settings name, by variable. With `lists_at_start`, the server for text is asked
    for its models at start, and those of the wanted ones that it does not have are logged.
    """

    lists_at_start: ClassVar[bool] = False
    settings: Any  # of the subclass

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

    def connection(self, capability: str = "") -> Connection:
        """Return the connection of a capability; blank for text."""
        return self._connections.get(capability) or self._connections[""]

    def known_model(self, field: str) -> str:
        """Return the model that a setting names; blank if that is not known."""
        return getattr(self.settings, field) or ""

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

    @classmethod
    def accepting(cls, parameter: str, field: str) -> Callable[[Agent], bool]:
        """Return a predicate: whether the server `accepts` a parameter for the model of a setting."""

        def is_accepted(agent: Agent) -> bool:
            if cls not in agent.services:
                return True
            client = agent.services[cls]
            return client.accepts(parameter, client.known_model(field))

        return is_accepted

    async def fetch_models(self, connection: Connection) -> list[ModelInfo]:
        """Ask a server for its models. Raises as `Connection.fetch` does."""
        body = await connection.fetch(connection.sdk.models.with_streaming_response.list(), "models", "list of models")
        if not isinstance(body, list) and not (isinstance(body, dict) and {"data", "models"} & body.keys()):
            raise connection.invalid("models", "list of models")
        entries = list_entries(body)
        supported = {entry["id"]: texts_of(entry.get("supported_parameters")) for entry in entries}
        self._supported_parameters = {name: names for name, names in supported.items() if names is not None}
        return [to_model_info(entry) for entry in entries]

    async def _load_models(self) -> list[ModelInfo]:
        return await self.fetch_models(self.connection())


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
    body["max_completion_tokens" if connection.endpoint.is_openai else "max_tokens"] = request.max_tokens
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
    sink, tools = (request.sink, request.tools) if request else (None, ())
    create = connection.sdk.chat.completions.with_streaming_response.create
    async with create(**known, extra_body=unknown) as response:
        reader = AnswerReader(body["model"], connection.endpoint, sink, [tool.name for tool in tools])
        return await reader.read(connection.read_chunks(response.iter_bytes()))


def _lacks_object(result: TextResult) -> bool:
    """Return whether an answer that ended by itself contains no JSON object."""
    is_other = not result.text.strip() or result.is_truncated or result.tool_calls
    return not is_other and result.text != user_text("notices.no_answer") and not has_object(result.text)


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


DEFAULT_DESCRIPTION_PROMPT = "Describe this picture in a few sentences."
SIGNATURES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp", b"GIF8": "image/gif"}


async def generate_image(connection: Connection, name: str, request: ImageRequest) -> ImageResult:
    """Return a picture that a model generates. Raises as `Connection.fetch` does."""
    note_call(name)
    size: Any = {"size": "x".join(map(str, request.size))} if request.size else {}
    generate = connection.sdk.images.with_streaming_response.generate
    body = await connection.fetch(generate(model=name, prompt=request.prompt, n=1, **size), name, "picture")
    data = body.get("data") if isinstance(body, dict) else None
    picture = data[0] if isinstance(data, list) and data else None
    if not isinstance(picture, dict):
        raise connection.invalid(name, "picture")
    if not to_text(picture.get("b64_json")):
        return ImageResult(url=to_text(picture.get("url")), model=name)
    try:
        image = base64.b64decode(picture["b64_json"], validate=True)
    except binascii.Error:
        raise ModelError(f"{connection.endpoint.provider}: {name} returned a picture that cannot be decoded") from None
    content_types = (content_type for signature, content_type in SIGNATURES.items() if image.startswith(signature))
    return ImageResult(data=image, content_type=next(content_types, "image/png"), model=name)


async def describe_image(
    client: CompatibleClient, connection: Connection, name: str, request: ImageDescriptionRequest, *, max_tokens: int
) -> TextResult:
    """Return a description of a picture. Raises as `Connection.mapped_errors` does."""
    url = f"data:{request.content_type};base64,{base64.b64encode(request.image).decode('ascii')}"
    content = [
        {"type": "text", "text": request.prompt or DEFAULT_DESCRIPTION_PROMPT},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    length_parameter = "max_completion_tokens" if connection.endpoint.is_openai else "max_tokens"
    body = {"model": name, "messages": [{"role": "user", "content": content}], length_parameter: max_tokens}
    return await send(client, connection, body)


# The API takes the format from the suffix. `mimetypes` has few of these types, on some systems none.
SUFFIXES = {"mp4": "m4a", "mpeg": "mp3", "opus": "ogg", "vnd.wave": "wav", "wave": "wav"}
SUFFIXES |= {name: name for name in ("flac", "m4a", "mp3", "ogg", "wav", "webm")}
# For recordings of another type or of none: their first bytes.
SOUND_SIGNATURES = (
    (re.compile(rb"OggS"), "ogg"),
    (re.compile(rb"RIFF....WAVE", re.DOTALL), "wav"),
    (re.compile(rb"\x1aE\xdf\xa3"), "webm"),
    (re.compile(rb"....ftyp", re.DOTALL), "m4a"),
    (re.compile(rb"fLaC"), "flac"),
    (re.compile(rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]"), "mp3"),
)


async def transcribe(connection: Connection, name: str, request: TranscriptionRequest) -> TextResult:
    """Return the transcript of a recording. Raises as `Connection.fetch` does."""
    note_call(name)
    content_type = request.content_type.partition(";")[0].strip().lower()
    by_content = (suffix for signature, suffix in SOUND_SIGNATURES if signature.match(request.audio))
    suffix = SUFFIXES.get(content_type.partition("/")[2].removeprefix("x-")) or next(by_content, "ogg")
    file = (f"recording.{suffix}", request.audio, content_type or "audio/ogg")
    create = connection.sdk.audio.transcriptions.with_streaming_response.create
    body = await connection.fetch(create(model=name, file=file, response_format="json"), name, "transcript")
    if not isinstance(body, dict) or not isinstance(body.get("text"), str):
        raise connection.invalid(name, "transcript")
    return TextResult(body["text"], name, read_usage(body.get("usage")))


async def synthesize_speech(
    connection: Connection, name: str, request: SpeechRequest, *, voice: str, instructions: str | None
) -> SpeechResult:
    """Return a text as speech; `voice` is the default one. Raises as `Connection.mapped_errors` does."""
    note_call(name)
    is_opus = request.content_type in ("audio/ogg", "audio/opus")
    wanted: Any = {"instructions": instructions} if instructions else {}
    create = connection.sdk.audio.speech.with_streaming_response.create
    with connection.mapped_errors(name):
        async with create(
            model=name,
            voice=request.voice or voice,
            input=request.text,
            response_format="opus" if is_opus else "mp3",
            **wanted,
        ) as response:
            speech = b"".join([chunk async for chunk in connection.read_chunks(response.iter_bytes())])
    content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type.startswith(("text/", "application/json")):
        raise ModelError(f"{connection.endpoint.provider}: {name} returned {content_type} instead of speech")
    if not content_type.startswith("audio/"):
        content_type = "audio/ogg" if is_opus else "audio/mpeg"
    return SpeechResult(speech, content_type, name)


async def embed(
    connection: Connection,
    name: str,
    request: EmbeddingRequest,
    *,
    dimensions: int | None = None,
    dimensions_name: str = "",
) -> EmbeddingResult:
    """Return the embeddings of texts, of that many dimensions if they are set by the variable of that name.

    Raises ModelError if one is missing or has a wrong dimension, and as `Connection.fetch` does.
    """
    provider = connection.endpoint.provider
    wanted: Any = {} if dimensions is None else {"dimensions": dimensions}
    create = connection.sdk.embeddings.with_streaming_response.create
    call = create(model=name, input=list(request.texts), encoding_format="float", **wanted)
    body = await connection.fetch(call, name, "list of vectors")
    try:
        vectors = read_vectors(body, len(request.texts))
    except ValueError as error:
        raise ModelError(
            f"{provider}: {name} did not return one vector for each of {len(request.texts)} texts: {error}"
        ) from None
    lengths = {len(vector) for vector in vectors}
    if dimensions is not None and lengths - {dimensions}:
        raise ModelError(
            f"{provider}: {name} returned vectors of {max(lengths)} numbers, but "
            f"{dimensions_name} is {dimensions}: remove that setting, or choose a model that supports it"
        )
    # Another server than OpenAI's may change the model behind a name: vectors are comparable if the length is the same.
    is_plain = dimensions is None and connection.endpoint.is_openai
    usage = body.get("usage") if isinstance(body, dict) else None
    return EmbeddingResult(
        vectors=tuple(map(tuple, vectors)),
        model=name if is_plain else f"{name}-{max(lengths, default=0)}",
        usage=read_usage({**usage, "completion_tokens": 0}) if isinstance(usage, dict) else None,
    )
