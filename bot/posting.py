"""Posting of its own accord: one post at a time in each feed, after pauses that are never quite the same."""

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from bot.adapter.adapter import Feed
from bot.agent import Agent
from bot.domain.ids import derived_id
from bot.domain.task import QUEUE, REPEAT, Task
from bot.errors import ModelError, ModelUnavailable
from bot.pipeline.post import publish, recent_posts, write_post
from bot.plugin_system.components import Worker
from bot.plugin_system.registry import Registry

logger = logging.getLogger(__name__)

POST = "POST_TO_FEED"
EVERY = "every"
DEADLINE = 600.0
ASK_AGAIN = timedelta(minutes=1)  # whether the platform is connected, and no longer rests
TRY_AGAIN = timedelta(minutes=10)  # whether a model answers


class Poster:
    """Writes and publishes what is due in the feeds that are connected.

    Every feed has a task of its own, which says when its next post is due and stays over a restart: what
    was due meanwhile is one post, not several. A post that cannot be written is left out.
    """

    def __init__(
        self, agent: Agent, registry: Registry, *, draw: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._agent = agent
        self._registry = registry
        self._draw = draw

    @property
    def worker(self) -> Worker:
        """What does the feeds' tasks."""
        return Worker(POST, self._work, DEADLINE)

    async def appoint(self) -> None:
        """Leave a task for each connected feed that is posted to unasked; take back that of any other."""
        for feed in self._agent.outbox.feeds():
            await self._appoint(feed)

    async def _appoint(self, feed: Feed) -> None:
        tasks, task_id = self._agent.store.tasks, derived_id(feed.room.id, "post")
        known = await tasks.task(task_id)
        if feed.every is None:
            if known is not None:
                await tasks.delete_task(task_id)
            return
        every = [pause.total_seconds() for pause in feed.every]
        if known is not None and not known.is_parked and known.metadata.get(EVERY) == every:
            return
        await self._agent.schedule(
            Task(
                task_id,
                POST,
                self._agent.clock(),
                f"Post on {feed.room.platform}",
                room_id=feed.room.id,
                world_id=feed.world.id,
                tags=frozenset({QUEUE, REPEAT}),
                metadata={EVERY: every, "updateInterval": _milliseconds(self._pause(feed.every))},
            )
        )

    async def _work(self, agent: Agent, task: Task) -> None:
        """Publish one post, and say when the next one is due."""
        feed = next((one for one in agent.outbox.feeds() if one.room.id == task.room_id), None)
        if feed is not None and feed.every is None:
            await agent.store.tasks.delete_task(task.id)
            return
        if feed is None or feed.every is None or feed.rests:
            pause = ASK_AGAIN
        else:
            pause = self._pause(feed.every)
            try:
                await self._publish(feed, task.key)
            except ModelError as error:
                pause = TRY_AGAIN if isinstance(error, ModelUnavailable) else pause
                logger.warning("nothing is posted on %s this time: %s", feed.room.platform, error)
        interval = agent.clock() + pause - task.next_run
        metadata = {**task.metadata, "updateInterval": _milliseconds(interval)}
        await agent.store.tasks.save_task(replace(task, metadata=metadata))

    async def _publish(self, feed: Feed, key: str) -> None:
        agent = self._agent
        post = await write_post(agent, self._registry, await recent_posts(agent, feed), feed)
        await publish(agent, feed, post, key=key)

    def _pause(self, every: tuple[timedelta, timedelta]) -> timedelta:
        shortest, longest = every
        return timedelta(seconds=self._draw(shortest.total_seconds(), longest.total_seconds()))


def _milliseconds(pause: timedelta) -> int:
    return round(pause.total_seconds() * 1000)
