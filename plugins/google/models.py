"""The handlers of text, embeddings and descriptions of pictures.

JSON schemas of tools in the subset that all versions of the Gemini API accept.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bot import Agent, Settings, model
from bot.models import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ModelError,
    ModelInfo,
    ModelType,
    TextRequest,
    TextResult,
)
from bot.platform import LazyModule
from plugins.google.client import GoogleClient, GoogleSettings

TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean"})
COPIED = {
    "description": str,
    "title": str,
    "minimum": int | float,
    "maximum": int | float,
    "minItems": int,
    "maxItems": int,
}
MAX_DEPTH = 8
MAX_CHOICE_LENGTH = 100


def gemini_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema of a tool's parameters in Gemini's subset of OpenAPI; None if it has no parameters.

    References are resolved, and unknown keywords are left out. An object without known properties becomes a string:
    the API requires properties, and an argument that is a JSON text is accepted for an object.
    """
    groups = [schema.get(key) for key in ("definitions", "$defs")]
    definitions = {name: item for group in groups if isinstance(group, Mapping) for name, item in group.items()}
    simple = _copy(schema, definitions, 0)
    return simple if simple.get("properties") else None


def _copy(schema: Any, definitions: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return {"type": "string"}
    if isinstance(reference := schema.get("$ref"), str):
        key = reference.rpartition("/")[2]
        target = definitions.get(key)
        merged = {**(target if isinstance(target, Mapping) else {}), **schema}
        others = {name: item for name, item in definitions.items() if name != key}  # one that contains itself ends here
        return _copy({name: value for name, value in merged.items() if name != "$ref"}, others, depth + 1)
    simple: dict[str, Any] = {
        name: schema[name]
        for name, kind in COPIED.items()
        if isinstance(schema.get(name), kind) and not isinstance(schema[name], bool)
    }
    names = schema.get("type")
    names = [name for name in (names if isinstance(names, list) else [names]) if isinstance(name, str)]
    options = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    options = list(options) if isinstance(options, list) else []
    options = [*options, *({**schema, "type": name} for name in names if name in TYPES)] if len(names) > 1 else options
    is_nullable = "null" in names or any(_is_null(option) for option in options)
    options = [_copy(option, definitions, depth + 1) for option in options if not _is_null(option)]
    if len(options) > 1 and "properties" not in schema:
        simple = {"anyOf": options, **{name: simple[name] for name in ("description", "title") if name in simple}}
    elif options and "properties" not in schema:
        simple = {**options[0], **simple}
    else:
        simple |= _copy_typed(schema, next((name for name in names if name in TYPES), None), definitions, depth)
    return {**simple, "nullable": True} if is_nullable else simple


def _copy_typed(schema: Mapping[str, Any], kind: str | None, definitions: Mapping[str, Any], depth: int) -> Any:
    properties = schema.get("properties")
    named = {str(name): item for name, item in properties.items() if name} if isinstance(properties, Mapping) else {}
    if named:
        copied = {name: _copy(item, definitions, depth + 1) for name, item in named.items()}
        required = schema.get("required")
        names = [name for name in copied if isinstance(required, list) and name in required]
        return {"type": "object", "properties": copied, **({"required": names} if names else {})}
    if kind == "array" or (kind is None and "items" in schema):
        return {"type": "array", "items": _copy(schema.get("items"), definitions, depth + 1)}
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and kind in ("string", None):
        texts = [item for item in choices if isinstance(item, str) and 0 < len(item) <= MAX_CHOICE_LENGTH]
        if texts and len(texts) == len([item for item in choices if item is not None]):
            return {"type": "string", "enum": list(dict.fromkeys(texts))}
    return {"type": "string" if kind in ("object", None) else kind}


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"


if TYPE_CHECKING:
    from google.genai import types
else:
    types = LazyModule("google.genai.types", "google.genai")

DEFAULT_DESCRIPTION_PROMPT = "Describe this picture in a few sentences."
MAX_DESCRIPTION_TOKENS = 1024
MAX_TEXTS = 100  # of one request for embeddings
SAMPLING = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "seed")


def build_parameters(request: TextRequest, settings: GoogleSettings) -> dict[str, Any]:
    """Return the parameters of a request, without those that are not set."""
    parameters: dict[str, Any] = {name: getattr(request, name) for name in SAMPLING}
    parameters["max_output_tokens"] = request.max_tokens
    parameters["system_instruction"] = request.system or None
    parameters["stop_sequences"] = list(request.stop) or None
    if request.schema is not None:
        parameters["response_mime_type"] = "application/json"
        parameters["response_json_schema"] = dict(request.schema)
    if request.tools:
        declarations = [
            types.FunctionDeclaration(
                name=tool.name, description=tool.description, parameters_json_schema=gemini_schema(tool.parameters)
            )
            for tool in request.tools
        ]
        parameters["tools"] = [types.Tool(function_declarations=declarations)]
    if settings.google_thinking_budget is not None:
        parameters["thinking_config"] = types.ThinkingConfig(thinking_budget=settings.google_thinking_budget)
    return {name: value for name, value in parameters.items() if value is not None}


async def _write(agent: Agent, name: str, request: TextRequest) -> TextResult:
    client = agent.services[GoogleClient]
    return await client.write(
        request.model or name, request.prompt, build_parameters(request, client.settings), request.sink
    )


async def _describe_small(agent: Agent) -> ModelInfo:
    return ModelInfo(agent.services[GoogleClient].settings.google_small_model)


async def _describe_medium(agent: Agent) -> ModelInfo:
    return ModelInfo(agent.services[GoogleClient].settings.google_medium_model or "")


async def _describe_large(agent: Agent) -> ModelInfo:
    return ModelInfo(agent.services[GoogleClient].settings.google_large_model)


def _has_medium_model(settings: Settings) -> bool:
    return settings.load(GoogleSettings).google_medium_model is not None


@model(ModelType.TEXT_SMALL, can_call_tools=True, describe_model=_describe_small)
async def small(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the small model."""
    return await _write(agent, agent.services[GoogleClient].settings.google_small_model, request)


@model(ModelType.TEXT_MEDIUM, can_call_tools=True, when=_has_medium_model, describe_model=_describe_medium)
async def medium(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the medium model."""
    return await _write(agent, agent.services[GoogleClient].settings.google_medium_model or "", request)


@model(ModelType.TEXT_LARGE, can_call_tools=True, describe_model=_describe_large)
async def large(agent: Agent, request: TextRequest) -> TextResult:
    """Write with the large model."""
    return await _write(agent, agent.services[GoogleClient].settings.google_large_model, request)


@model(ModelType.TEXT_EMBEDDING)
async def embed(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
    """Return the embeddings of texts. Raises ModelError if one is missing, and as `GoogleClient.write` does."""
    client = agent.services[GoogleClient]
    name, dimensions = client.settings.google_embedding_model, client.settings.google_embedding_dimensions
    config = types.EmbedContentConfig(output_dimensionality=dimensions)
    vectors: list[tuple[float, ...]] = []
    for start in range(0, len(request.texts), MAX_TEXTS):
        texts = request.texts[start : start + MAX_TEXTS]
        contents: list[Any] = [types.Content(role="user", parts=[types.Part(text=text)]) for text in texts]
        with client.mapped_errors(name):
            response = await client.models.embed_content(model=name, contents=contents, config=config)
        vectors += [tuple(item.values or ()) for item in response.embeddings or ()]
    if len(vectors) != len(request.texts):
        raise ModelError(f"google: {name} did not return one vector for each of {len(request.texts)} texts")
    return EmbeddingResult(tuple(vectors), name if dimensions is None else f"{name}-{dimensions}")


@model(ModelType.IMAGE_DESCRIPTION)
async def describe_image(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
    """Return a description of a picture."""
    client = agent.services[GoogleClient]
    name = client.settings.google_image_model or client.settings.google_large_model
    picture = types.Part.from_bytes(data=request.image, mime_type=request.content_type)
    contents: list[Any] = [picture, request.prompt or DEFAULT_DESCRIPTION_PROMPT]
    return await client.write(name, contents, {"max_output_tokens": MAX_DESCRIPTION_TOKENS})
