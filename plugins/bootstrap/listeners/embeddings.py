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

PROBE = "Hello"
BATCH = 32
TOLD_EVERY = 1000
PAUSE = 1.0  # after each batch, in seconds
SHORT_PAUSE = 0.05  # after a look at the store
FIRST_WAIT, LONGEST_WAIT = 5.0, 600.0  # for a provider that does not answer


class Backlog(Service):
    """Fills in vectors at the start, and whenever a call for vectors has failed or another model answered."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.model = ""
        self._is_due = asyncio.Event()
        self._is_due.set()
        self._refused: set[UUID] = set()
        self._loop: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self.agent.models.has_handler_for(ModelType.TEXT_EMBEDDING):
            self._loop = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; what is left is found at the next start."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait([self._loop])

    def look_again(self) -> None:
        """Have the store looked through once more."""
        self._is_due.set()

    async def fill(self) -> int:
        """Look through the whole store, the newest first; gives how many vectors were missing and are there.

        Raises ModelError where the first choice of the handlers does not answer, or not as one model.
        """
        embed, store = self.agent.models.embed, self.agent.store
        found = await store.memories.unembedded("")
        if not found.memories and found.before is None:
            return 0  # nothing has been said yet: not even the name of the model is worth a call
        self.model = (await embed([PROBE], first_handler_only=True)).model
        count, before = 0, None
        while True:
            found = await store.memories.unembedded(self.model, before)
            bare = [one for one in found.memories if not is_blank(one.content.text)]
            bare = [one for one in bare if one.id not in self._refused]
            for start in range(0, len(bare), BATCH):
                made = await self._embed(bare[start : start + BATCH])
                if (count + made) // TOLD_EVERY > count // TOLD_EVERY:
                    logger.info(
                        "%d messages and facts have got vectors of %s so far", count + made, self.model
                    )
                count += made
                await asyncio.sleep(PAUSE)
            before = found.before
            if before is None:
                return count
            await asyncio.sleep(SHORT_PAUSE)

    async def _run(self) -> None:
        wait = FIRST_WAIT
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            try:
                if count := await self.fill():
                    logger.info("%d messages and facts have got their vectors afterwards", count)
                wait = FIRST_WAIT
            except Exception as error:  # the provider's fault, or the store's: it is tried again
                is_ours = not isinstance(error, ModelError | StoreUnavailable)
                logger.info("what has no vector waits for %g s: %s", wait, error, exc_info=is_ours)
                self.look_again()
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)

    async def _embed(self, memories: Sequence[Memory]) -> int:
        """Embed a batch; one that is refused goes one by one, and what is refused then is left alone."""
        agent = self.agent
        try:
            result = await agent.models.embed([one.content.text for one in memories], first_handler_only=True)
        except ModelRefused as error:
            if len(memories) > 1:
                return sum([await self._embed([one]) for one in memories])
            logger.info("memory %s stays without a vector: %s", memories[0].id, error)
            self._refused.add(memories[0].id)
            return 0
        if result.model != self.model:
            raise ModelError(f"{result.model} has answered where {self.model} was asked")
        for memory in memories:
            agent.events.emit(EmbeddingRequested(agent.id, memory.id))
        keep = agent.store.memories.set_embedding
        pairs = zip(memories, result.vectors, strict=True)
        await asyncio.gather(*(keep(memory.id, vector, result.model) for memory, vector in pairs))
        for memory in memories:
            agent.events.emit(EmbeddingCompleted(agent.id, memory.id))
        return len(memories)


@on(ModelUsed)
def vectors_missed(agent: Agent, event: ModelUsed) -> None:
    """Look again after a call that failed, or that another model answered than the first choice."""
    call, backlog = event.call, agent.services[Backlog]
    if call.type != ModelType.TEXT_EMBEDDING.value:
        return
    if call.error or (backlog.model and call.model != backlog.model):
        backlog.look_again()
