"""Writes and publishes feed posts at intervals."""

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import SequenceMatcher

from bot.adapter.adapter import Feed
from bot.agent import Agent
from bot.domain.content import Attachment, Content
from bot.domain.environment import ChannelType, Entity, Room, World
from bot.domain.events import PostGenerated
from bot.domain.ids import derived_id, new_id
from bot.domain.ledger import EventKey, Receipt
from bot.domain.memory import Memory, MemoryKind
from bot.domain.task import QUEUE, REPEAT, Task
from bot.errors import ModelError, ModelUnavailable
from bot.models.types import ModelType, Purpose, TextRequest
from bot.outbound.content_filter import cleared
from bot.pipeline.compose import Composer
from bot.plugin_system.components import Worker
from bot.plugin_system.registry import Registry
from bot.prompts.history import Line, render_history
from bot.prompts.reply_parser.reader import read_fields
from bot.prompts.templates import POST_CREATION
from bot.text import escape_line, shorten
from bot.turn import Input, Turn

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


MOST_TRIES = 3
MOST_RECENT = 10  # shown to the model
MOST_COMPARED = 200
LONGEST_POST = 280
LIKENESS = 0.75
SHINGLE, SHARED = 3, 0.6  # words in a row, and the share of such that two posts may not have in common
FEWEST_SHINGLES = 4
NUMBER = "number"
PROVIDERS = ("CHARACTER", "TIME")
OPENING, CLOSING = '"“«„', '"”»“'


@dataclass(frozen=True, slots=True)
class Post:
    """A post that may be published; `image_prompt` says what a picture beside it would show."""

    text: str
    image_prompt: str = ""


async def write_post(
    agent: Agent, registry: Registry, recent: Sequence[Memory] = (), feed: Feed | None = None
) -> Post:
    """Have a post written that is none of the recent ones over again, which come oldest first.

    Raises ModelError where no model could be asked, or none of three attempts could be used.
    """
    composer = Composer(registry)
    turn = _occasion(agent, feed)
    await composer.compose(turn, PROVIDERS, only=True)
    refused: list[str] = []
    for _ in range(MOST_TRIES):
        prompt = composer.render(turn, POST_CREATION, **_values(agent, recent, refused))
        request = TextRequest(prompt, purpose=Purpose.POST, system=composer.system(turn))
        post = _read((await agent.models.text(request, ModelType.TEXT_LARGE)).text)
        fault = _fault(post.text, [one.content.text for one in recent])
        if not fault:
            agent.events.emit(PostGenerated(agent.id, post.text, turn.room.id))
            return post
        refused.append(f"{shorten(post.text, LONGEST_POST) or '(nothing)'}: {fault}")
    last = refused[-1].rpartition(": ")[2]
    raise ModelError(f"{MOST_TRIES} attempts gave no post that could be published; the last one {last}")


async def recent_posts(agent: Agent, feed: Feed) -> list[Memory]:
    """List the last posts of a feed, oldest first: as many as a new one is held against."""
    found = await agent.store.memories.recent(feed.room.id, MOST_COMPARED)
    return [one for one in found if one.entity_id == agent.id]


async def publish(
    agent: Agent, feed: Feed, post: Post, *, pictures: tuple[Attachment, ...] = (), key: str = ""
) -> Memory | None:
    """Have a post leave; kept and on its way when this returns, None where nothing may leave.

    With a `key` it is published once, however often this is called with it.
    """
    await agent.store.worlds.save_world(feed.world, [feed.room])
    number = _number(await recent_posts(agent, feed))
    content = Content(text=post.text, attachments=pictures, metadata={NUMBER: number})
    return await agent.say(feed.room, content, key=key)


def is_like(text: str, other: str) -> bool:
    """Tell whether two posts say the same in nearly the same words, whatever their case, marks and order."""
    first, second = _folded(text), _folded(other)
    if first == second:
        return True
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    if matcher.real_quick_ratio() >= LIKENESS and matcher.ratio() >= LIKENESS:
        return True
    shingles = [{tuple(words[at : at + SHINGLE]) for at in range(len(words))} for words in (first, second)]
    fewest = min(map(len, shingles))
    return fewest >= FEWEST_SHINGLES and len(shingles[0] & shingles[1]) >= SHARED * fewest


def _folded(text: str) -> list[str]:
    return "".join(char if char.isalnum() else " " for char in text.casefold()).split()


def _fault(text: str, recent: Sequence[str]) -> str:
    if not text:
        return "holds no text"
    if len(text) > LONGEST_POST:
        return f"has {len(text)} characters, and {LONGEST_POST} are the most"
    if any(is_like(text, earlier) for earlier in recent):
        return "is too like an earlier post"
    return ""


def _read(raw: str) -> Post:
    fields = read_fields(raw, ("post", "text", "imagePrompt"))
    text = fields.get("post") or fields.get("text") or ("" if "<" in raw else raw)
    outgoing = cleared(Content(text=text))
    text = outgoing.text if outgoing is not None else ""
    return Post(_unquoted(text), fields.get("imagePrompt", ""))


def _unquoted(text: str) -> str:
    """Take off the quotation marks around all of a text."""
    inside = text[1:-1]
    is_quoted = len(text) > 1 and text[0] in OPENING and text[-1] in CLOSING
    return inside.strip() if is_quoted and not any(mark in inside for mark in OPENING + CLOSING) else text


def _values(agent: Agent, recent: Sequence[Memory], refused: Sequence[str]) -> dict[str, str | int]:
    """Give the template's own variables; topic and adjective go round with the number of posts."""
    last = recent[-MOST_RECENT:]
    lines = [Line(one.created_at, agent.name, "", one.content.text, is_agent=True) for one in last]
    who, count = agent.character, _number(recent)
    topics = [one for one in who.topics if one.strip()]
    return {
        "maxLength": LONGEST_POST,
        "topic": topics[count % len(topics)] if topics else "",
        "adjective": who.adjectives[count % len(who.adjectives)] if who.adjectives else "",
        "recentPosts": render_history(lines),
        "refusedPosts": "\n".join(f"- {escape_line(one)}" for one in refused),
    }


def _number(recent: Sequence[Memory]) -> int:
    """Count the posts of a feed, of which these are the last: the number of the next one."""
    numbers = (int(one.content.metadata.get(NUMBER, place)) for place, one in enumerate(recent))
    return max(numbers, default=-1) + 1


def _somewhere(agent: Agent) -> Feed:
    """Give a feed on no platform, for a post that is only to be looked at."""
    world = World(derived_id(agent.id, "feed", "world"), "feed", "feed")
    return Feed(world, Room(derived_id(agent.id, "feed"), world.id, ChannelType.FEED, "feed", "feed"))


def _occasion(agent: Agent, feed: Feed | None) -> Turn:
    """Make a turn in a feed that answers nobody: providers ask where and about what."""
    now = agent.clock()
    feed = feed or _somewhere(agent)
    world, room = feed.world, feed.room
    author = Entity(agent.id, "feed", str(agent.id), (agent.name,))
    message = Memory(new_id(), MemoryKind.MESSAGE, agent.id, room.id, world.id, Content(), now)
    key = EventKey("feed", "", str(message.id), room.id, "")
    receipt = Receipt(new_id(), key, room.id, author.id, message.id, now)
    return Turn(agent, new_id(), room, world, [Input(receipt, message, author, time.monotonic(), _nobody)])


def _nobody(receipt: Receipt) -> None:
    """Nobody waits for what becomes of it."""
