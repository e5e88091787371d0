"""Writes posts and publishes them in feeds at intervals."""

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import SequenceMatcher

from bot.adapter.adapter import Feed
from bot.domain.character import ProviderKind
from bot.domain.content import Attachment, Content
from bot.domain.environment import ChannelType, Room, World
from bot.domain.events import PostGenerated
from bot.domain.ids import derived_id
from bot.domain.memory import Memory
from bot.domain.task import Task, TaskSchedule, TaskTag
from bot.errors import ModelError, ModelUnavailable
from bot.models.types import ModelType, Purpose
from bot.outbound.content_filter import filter_outgoing
from bot.pipeline.compose import Composer
from bot.plugin_system.components import Worker
from bot.plugin_system.registry import Registry
from bot.prompts.reply_parser.reader import read_fields, read_reply
from bot.prompts.templates import POST_CREATION
from bot.text import HistoryLine, escape_line, render_history, shorten
from bot.turn import Agent, Turn

logger = logging.getLogger(__name__)

POST_WORKER = "POST_TO_FEED"
INTERVAL_KEY = "every"
WORKER_TIMEOUT = 600.0
RECHECK_INTERVAL = timedelta(minutes=1)  # whether the platform is connected, and no longer rests
MODEL_RETRY_INTERVAL = timedelta(minutes=10)  # whether a model answers


class PostScheduler:
    """Writes and publishes the posts that are due in the connected feeds.

    Every feed has a stored task with the time of its next post: after a pause of the process one post is due,
    not several. A post that cannot be written is skipped.
    """

    def __init__(
        self, agent: Agent, registry: Registry, *, draw: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._agent = agent
        self._registry = registry
        self._draw = draw

    @property
    def worker(self) -> Worker:
        """The worker that runs the feeds' tasks."""
        return Worker(POST_WORKER, self._run_task, WORKER_TIMEOUT)

    async def schedule_posts(self) -> None:
        """Store a task for each connected feed with an interval, and delete that of any other."""
        for feed in self._agent.outbox.feeds():
            await self._schedule_feed(feed)

    async def _schedule_feed(self, feed: Feed) -> None:
        tasks, task_id = self._agent.store.tasks, derived_id(feed.room.id, "post")
        existing = await tasks.task(task_id)
        if feed.interval is None:
            if existing is not None:
                await tasks.delete_task(task_id)
            return
        interval = [pause.total_seconds() for pause in feed.interval]
        if existing is not None and not existing.is_parked and existing.metadata.get(INTERVAL_KEY) == interval:
            return
        await self._agent.schedule(
            Task(
                task_id,
                POST_WORKER,
                self._agent.clock(),
                f"Post on {feed.room.platform}",
                room_id=feed.room.id,
                world_id=feed.world.id,
                tags=frozenset({TaskTag.QUEUE, TaskTag.REPEAT}),
                metadata={INTERVAL_KEY: interval, **TaskSchedule(self._draw_interval(feed.interval)).to_metadata()},
            )
        )

    async def _run_task(self, agent: Agent, task: Task) -> None:
        """Publish one post and set the time of the next one."""
        feed = next((candidate for candidate in agent.outbox.feeds() if candidate.room.id == task.room_id), None)
        if feed is not None and feed.interval is None:
            await agent.store.tasks.delete_task(task.id)
            return
        if feed is None or feed.interval is None or feed.pause_reason or not agent.may_speak_in(feed.room):
            delay = RECHECK_INTERVAL
        elif (degradation := agent.budget.find_degradation(None, None)) is not None and not degradation.is_evaluated:
            delay = MODEL_RETRY_INTERVAL
            logger.info("nothing is posted on %s this time: %s", feed.room.platform, degradation)
        else:
            delay = self._draw_interval(feed.interval)
            try:
                await self._publish(feed, task.run_key)
            except ModelError as error:
                delay = MODEL_RETRY_INTERVAL if isinstance(error, ModelUnavailable) else delay
                logger.warning("nothing is posted on %s this time: %s", feed.room.platform, error)
        update_interval = agent.clock() + delay - task.next_run
        metadata = {**task.metadata, **TaskSchedule(update_interval).to_metadata()}
        await agent.store.tasks.save_task(replace(task, metadata=metadata))

    async def _publish(self, feed: Feed, key: str) -> None:
        agent = self._agent
        post = await write_post(agent, self._registry, await recent_posts(agent, feed), feed)
        await publish(agent, feed, post, key=key)

    def _draw_interval(self, interval: tuple[timedelta, timedelta]) -> timedelta:
        shortest, longest = interval
        return timedelta(seconds=self._draw(shortest.total_seconds(), longest.total_seconds()))


MAX_ATTEMPTS = 3
MAX_SHOWN_POSTS = 10  # shown to the model
MAX_COMPARED_POSTS = 200
MAX_POST_LENGTH = 280
MAX_SIMILARITY = 0.75
SHINGLE_WORDS, MAX_SHARED_SHINGLES = (
    3,
    0.6,
)  # words in a row, and the share of such that two posts may not have in common
MIN_SHINGLES = 4
NUMBER_KEY = "number"
PROVIDER_KINDS = (ProviderKind.PERSONA, ProviderKind.TIME)
OPENING_QUOTES, CLOSING_QUOTES = '"“«„', '"”»“'


@dataclass(frozen=True, slots=True)
class Post:
    """A post that may be published; `image_prompt` describes a picture for it."""

    text: str
    image_prompt: str = ""


async def write_post(agent: Agent, registry: Registry, recent: Sequence[Memory] = (), feed: Feed | None = None) -> Post:
    """Write a post that repeats none of the `recent` ones, which come oldest first.

    Raises ModelError where no model could be asked, or three attempts gave no usable post.
    """
    composer = Composer(registry)
    feed = feed or _build_preview_feed(agent)
    turn = Turn.for_room(agent, feed.room, feed.world)
    await composer.compose(turn, registry.provider_names(*PROVIDER_KINDS), only_included=True)
    rejected: list[str] = []
    for _ in range(MAX_ATTEMPTS):
        values = _build_template_values(agent, recent, rejected)
        request = composer.build_request(turn, POST_CREATION, Purpose.POST, ModelType.TEXT_LARGE, **values)
        post = _parse_post((await agent.models.text(request, ModelType.TEXT_LARGE)).text)
        fault = _find_fault(post.text, [memory.content.text for memory in recent])
        if not fault:
            agent.events.emit(PostGenerated(agent.id, post.text, turn.room.id))
            return post
        rejected.append(f"{shorten(post.text, MAX_POST_LENGTH) or '(nothing)'}: {fault}")
    last_fault = rejected[-1].rpartition(": ")[2]
    raise ModelError(f"{MAX_ATTEMPTS} attempts gave no post that could be published; the last one {last_fault}")


async def recent_posts(agent: Agent, feed: Feed) -> list[Memory]:
    """Return the last posts of a feed, oldest first: those that a new one must not repeat."""
    memories = await agent.store.memories.recent(feed.room.id, MAX_COMPARED_POSTS)
    return [memory for memory in memories if memory.entity_id == agent.id]


async def publish(
    agent: Agent,
    feed: Feed,
    post: Post,
    *,
    pictures: tuple[Attachment, ...] = (),
    key: str = "",
    is_approved: bool = False,
) -> Memory | None:
    """Store and queue a post, and return it; None where the content filter left nothing, or it waits for a person.

    With a `key` it is published once, however often this is called with it. One that `is_approved` does not wait.
    """
    await agent.store.worlds.save_world(feed.world, [feed.room])
    number = _next_number(await recent_posts(agent, feed))
    content = Content(text=post.text, attachments=pictures, metadata={NUMBER_KEY: number})
    return await agent.say(feed.room, content, key=key, is_approved=is_approved)


def is_similar(text: str, other: str) -> bool:
    """Return whether two posts use nearly the same words, whatever their case, punctuation and order."""
    first, second = _split_words(text), _split_words(other)
    if first == second:
        return True
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    if matcher.real_quick_ratio() >= MAX_SIMILARITY and matcher.ratio() >= MAX_SIMILARITY:
        return True
    shingles = [
        {tuple(words[start : start + SHINGLE_WORDS]) for start in range(len(words))} for words in (first, second)
    ]
    min_count = min(map(len, shingles))
    return min_count >= MIN_SHINGLES and len(shingles[0] & shingles[1]) >= MAX_SHARED_SHINGLES * min_count


def _split_words(text: str) -> list[str]:
    return "".join(char if char.isalnum() else " " for char in text.casefold()).split()


def _find_fault(text: str, recent: Sequence[str]) -> str:
    if not text:
        return "holds no text"
    if len(text) > MAX_POST_LENGTH:
        return f"has {len(text)} characters, and {MAX_POST_LENGTH} are the most"
    if any(is_similar(text, earlier) for earlier in recent):
        return "is too like an earlier post"
    return ""


def _parse_post(raw: str) -> Post:
    fields = read_fields(raw, ("post", "imagePrompt"))
    text = fields.get("post") or read_reply(raw).text
    outgoing = filter_outgoing(Content(text=text))
    text = outgoing.text if outgoing is not None else ""
    return Post(_strip_quotes(text), fields.get("imagePrompt", ""))


def _strip_quotes(text: str) -> str:
    """Remove the quotation marks around a whole text."""
    inside = text[1:-1]
    is_quoted = len(text) > 1 and text[0] in OPENING_QUOTES and text[-1] in CLOSING_QUOTES
    return inside.strip() if is_quoted and not any(mark in inside for mark in OPENING_QUOTES + CLOSING_QUOTES) else text


def _build_template_values(agent: Agent, recent: Sequence[Memory], rejected: Sequence[str]) -> dict[str, str | int]:
    """Return the template's variables; topic and adjective rotate with the number of posts."""
    last_posts = recent[-MAX_SHOWN_POSTS:]
    lines = [HistoryLine(item.created_at, agent.name, "", item.content.text, is_agent=True) for item in last_posts]
    character, count = agent.character, _next_number(recent)
    topics = [item for item in character.topics if item.strip()]
    return {
        "maxLength": MAX_POST_LENGTH,
        "topic": topics[count % len(topics)] if topics else "",
        "adjective": character.adjectives[count % len(character.adjectives)] if character.adjectives else "",
        "recentPosts": render_history(lines, agent.find_time_zone()),
        "refusedPosts": "\n".join(f"- {escape_line(item)}" for item in rejected),
    }


def _next_number(recent: Sequence[Memory]) -> int:
    """Return the number of the next post of a feed, after these last ones."""
    numbers = (int(memory.content.metadata.get(NUMBER_KEY, position)) for position, memory in enumerate(recent))
    return max(numbers, default=-1) + 1


def _build_preview_feed(agent: Agent) -> Feed:
    """Return a feed on no platform, for a post that is only previewed."""
    world = World(derived_id(agent.id, "feed", "world"), "feed", "feed")
    return Feed(world, Room(derived_id(agent.id, "feed"), world.id, ChannelType.FEED, "feed", "feed"))
