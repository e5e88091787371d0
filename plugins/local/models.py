"""The service that owns the models, and their handlers."""

import logging
from dataclasses import replace
from functools import partial
from typing import Self

from bot import Agent, Service, Settings, model
from bot.models import EmbeddingRequest, EmbeddingResult, ModelInfo, ModelType, TextRequest, TextResult
from bot.models import openai_compatible as api
from bot.platform import TimeSource
from plugins.local.server import TINY_MODEL, LocalSettings, ModelProcess, find_model_file, model_name, writes_text

logger = logging.getLogger(__name__)

REPETITION_PENALTY = 1.1  # as Ollama's: without it, small models repeat a phrase up to the limit of the answer


class LocalModels(Service):
    """The model that writes and the one that makes vectors, each in a process that is started when it is needed."""

    def __init__(self, agent: Agent, time: TimeSource | None = None) -> None:
        super().__init__(agent)
        self.settings = agent.settings.load(LocalSettings)
        self._text: ModelProcess | None = None
        if writes_text(agent.settings):
            file = find_model_file(self.settings.local_model, "LOCAL_MODEL")
            self._text = ModelProcess(agent, self.settings, file, time=time)
        self.embedding: ModelProcess | None = None
        if self.settings.local_embedding_model:
            file = find_model_file(self.settings.local_embedding_model, "LOCAL_EMBEDDING_MODEL")
            self.embedding = ModelProcess(agent, self.settings, file, is_embedding=True, time=time)

    @property
    def text(self) -> ModelProcess:
        """The model that writes; only where `writes_text`."""
        assert self._text is not None  # its handlers are registered only with it
        return self._text

    async def __aenter__(self) -> Self:
        if self._text is not None and self.settings.local_model == TINY_MODEL:
            logger.warning(
                "local: %s is a tiny model: it shows that everything works, but understands little; docs/models.md "
                "says how to choose a better one for LOCAL_MODEL",
                self.text.file.name,
                extra={"once": True},
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._text is not None:
            await self._text.close()
        if self.embedding is not None:
            await self.embedding.close()

    async def describe_model(self) -> ModelInfo:
        """Return what is known of the model that writes. Raises ModelRefused if it cannot be loaded."""
        async with self.text.use() as loaded:
            return ModelInfo(
                model_name(self.text.file),
                context_length=loaded.context_window,
                is_local=True,
                parameter_count=loaded.parameter_count,
            )

    async def write(self, request: TextRequest) -> TextResult:
        """Return the text that the model writes. Raises ModelRefused if it cannot be loaded, and as `complete` does."""
        if request.repetition_penalty is None:
            request = replace(request, repetition_penalty=REPETITION_PENALTY)
        async with self.text.use() as loaded:
            return await api.complete(loaded.client, model_name(self.text.file), request)


def _offers_tools(settings: Settings) -> bool:
    return settings.load(LocalSettings).local_model_tools


def _makes_vectors(settings: Settings) -> bool:
    return settings.load(LocalSettings).local_embedding_model is not None


def _always(agent: Agent) -> bool:
    return True  # llama.cpp makes every model write by a schema


async def _describe_model(agent: Agent) -> ModelInfo:
    return await agent.services[LocalModels].describe_model()


_text_model = partial(
    model, can_call_tools=_offers_tools, when=writes_text, can_write_json=_always, describe_model=_describe_model
)


@_text_model(ModelType.TEXT_SMALL)
async def small(agent: Agent, request: TextRequest) -> TextResult:
    """Write a text."""
    return await agent.services[LocalModels].write(request)


@_text_model(ModelType.TEXT_LARGE)
async def large(agent: Agent, request: TextRequest) -> TextResult:
    """Write a text."""
    return await agent.services[LocalModels].write(request)


@model(ModelType.TEXT_EMBEDDING, when=_makes_vectors)
async def embed_texts(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
    """Return the vectors of texts."""
    process = agent.services[LocalModels].embedding
    assert process is not None  # the handler is registered only with it
    async with process.use() as loaded:
        texts = [await loaded.shorten(text) for text in request.texts]
        return await api.embed(loaded.client, replace(request, texts=tuple(texts)))
