"""What has no vector of the present embedding model gets one, in the background, a few at a time.

The queue is the store itself: whatever an outage, a crash or another model has left without a vector is
found there. New messages get theirs on the road and never wait behind old ones.
"""

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Self
from uuid import UUID

from bot import Agent, Memory, Service, on
from bot.events import EmbeddingCompleted, EmbeddingRequested, ModelUsed
from bot.models import ModelError, ModelRefused, ModelType
from bot.store import StoreUnavailable
from bot.text import is_blank

logger = logging.getLogger(__name__)

PROBE_TEXT = "Hello"
BATCH_SIZE = 32
LOG_INTERVAL = 1000
BATCH_DELAY_SECONDS = 1.0  # after each batch
PAGE_DELAY_SECONDS = 0.05  # after each page of the store
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 5.0, 600.0  # for a provider that does not answer


class EmbeddingBackfill(Service):
    """Fills in vectors at the start, and whenever a call for vectors has failed or another model answered."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.model = ""
        self._wake_event = asyncio.Event()
        self._wake_event.set()
        self._refused: set[UUID] = set()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self.agent.models.has_handler_for(ModelType.TEXT_EMBEDDING):
            self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; what is left is found at the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def wake(self) -> None:
        """Have the store looked through once more."""
        self._wake_event.set()

    async def fill(self) -> int:
        """Look through the whole store, the newest first; gives how many vectors were missing and are there.

        Raises ModelError where the first choice of the handlers does not answer, or not as one model.
        """
        embed, store = self.agent.models.embed, self.agent.store
        page = await store.memories.unembedded("")
        if not page.memories and page.before is None:
            return 0  # nothing has been said yet: not even the name of the model is worth a call
        self.model = (await embed([PROBE_TEXT], first_handler_only=True)).model
        count, cursor = 0, None
        while True:
            page = await store.memories.unembedded(self.model, cursor)
            without_embedding = [memory for memory in page.memories if not is_blank(memory.content.text)]
            without_embedding = [memory for memory in without_embedding if memory.id not in self._refused]
            for start in range(0, len(without_embedding), BATCH_SIZE):
                embedded = await self._embed(without_embedding[start : start + BATCH_SIZE])
                if (count + embedded) // LOG_INTERVAL > count // LOG_INTERVAL:
                    logger.info(
                        "%d messages and facts have got vectors of %s so far", count + embedded, self.model
                    )
                count += embedded
                await asyncio.sleep(BATCH_DELAY_SECONDS)
            cursor = page.before
            if cursor is None:
                return count
            await asyncio.sleep(PAGE_DELAY_SECONDS)

    async def _run(self) -> None:
        delay = FIRST_RETRY_SECONDS
        while True:
            await self._wake_event.wait()
            self._wake_event.clear()
            try:
                if count := await self.fill():
                    logger.info("%d messages and facts have got their vectors afterwards", count)
                delay = FIRST_RETRY_SECONDS
            except Exception as error:  # the provider's fault, or the store's: it is tried again
                is_unexpected = not isinstance(error, ModelError | StoreUnavailable)
                logger.info("what has no vector waits for %g s: %s", delay, error, exc_info=is_unexpected)
                self.wake()
                await asyncio.sleep(delay)
                delay = min(2 * delay, MAX_RETRY_SECONDS)

    async def _embed(self, memories: Sequence[Memory]) -> int:
        """Embed a batch; one that is refused goes one by one, and what is refused then is left alone."""
        agent = self.agent
        try:
            result = await agent.models.embed(
                [memory.content.text for memory in memories], first_handler_only=True
            )
        except ModelRefused as error:
            if len(memories) > 1:
                return sum([await self._embed([memory]) for memory in memories])
            logger.info("memory %s stays without a vector: %s", memories[0].id, error)
            self._refused.add(memories[0].id)
            return 0
        if result.model != self.model:
            raise ModelError(f"{result.model} has answered where {self.model} was asked")
        for memory in memories:
            agent.events.emit(EmbeddingRequested(agent.id, memory.id))
        stored = agent.store.memories.set_embedding
        pairs = zip(memories, result.vectors, strict=True)
        await asyncio.gather(*(stored(memory.id, vector, result.model) for memory, vector in pairs))
        for memory in memories:
            agent.events.emit(EmbeddingCompleted(agent.id, memory.id))
        return len(memories)


@on(ModelUsed)
def on_embedding_failed(agent: Agent, event: ModelUsed) -> None:
    """Look again after a call that failed, or that another model answered than the first choice."""
    model_call, backlog = event.call, agent.services[EmbeddingBackfill]
    if model_call.type != ModelType.TEXT_EMBEDDING.value:
        return
    if model_call.error or (backlog.model and model_call.model != backlog.model):
        backlog.wake()
