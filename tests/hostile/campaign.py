"""Episodes of hostile and benign events in one running agent, each judged by the oracle."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot import ChannelType, Content, Room, TaskTag, World, derived_id
from bot.background.scheduler import Scheduler
from bot.pipeline import process_message
from bot.platform import Feed
from bot.store import InMemoryStore, Store
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import AgentHarness, ManualClock, RecordingAdapter, running_agent
from plugins.feeds import plugin as feeds
from plugins.knowledge import plugin as knowledge
from plugins.links import plugin as links
from plugins.x_actions import plugin as x_actions
from tests.hostile.attacks import OWN, AttackTexts
from tests.hostile.board import Board, build_board_plugin
from tests.hostile.events import EventSender
from tests.hostile.model import HostileModel
from tests.hostile.oracle import Cause, Oracle, Snapshot, read_snapshot
from tests.hostile.places import FEED_PLATFORM, OPERATOR, PLATFORM, Places
from tests.hostile.websites import MADE_UP, serve_hostile_web

EVENTS_PER_EPISODE = 200
MAX_EXAMPLES = 10  # of each kind of effect
CHOICE_INTERVAL = 30  # turns between two choices that a plugin offers
MULTI_STEP_SHARE = 10


@dataclass(slots=True)
class Report:
    """Figures of episodes; reports of several processes are added up."""

    turns: int = 0
    model_calls: int = 0
    prompts_with_orders: int = 0
    questions: int = 0
    pages_read: int = 0
    tried: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    entitled: Counter[str] = field(default_factory=Counter)
    beyond: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, other: "Report") -> None:
        """Add the figures of another report."""
        self.turns += other.turns
        self.model_calls += other.model_calls
        self.prompts_with_orders += other.prompts_with_orders
        self.questions += other.questions
        self.pages_read += other.pages_read
        for name in ("tried", "events", "entitled", "beyond"):
            getattr(self, name).update(getattr(other, name))
        for kind, examples in other.examples.items():
            self.examples[kind] = [*self.examples.get(kind, ()), *examples][:MAX_EXAMPLES]

    def note(
        self,
        cause: Cause,
        model: HostileModel,
        beyond: Sequence[tuple[str, str]],
        entitled: Sequence[str],
        questions: int,
    ) -> None:
        """Add the figures of one event."""
        reading = model.reading
        self.turns += 1
        self.questions += questions
        self.model_calls += reading.model_calls
        self.prompts_with_orders += reading.orders
        self.events[cause.kind] += 1
        self.entitled.update(entitled)
        self.tried.update(model.tried)
        model.tried.clear()
        for kind, description in beyond:
            self.beyond[kind] += 1
            examples = self.examples.setdefault(kind, [])
            if len(examples) < MAX_EXAMPLES:
                event = f"{cause.kind} {cause.words[:60]!r} by {', '.join(cause.senders)} in {cause.room}"
                examples.append(f"{description} | {event}; the model read {', '.join(sorted(reading.writers))}")


class WholeAdapter(RecordingAdapter):
    """A platform that takes a reply in one part, with its choices."""

    def split_content(self, content: Content) -> list[Content]:
        return [content]


class ButtonAdapter(WholeAdapter):
    """A platform that shows choices as buttons."""

    shows_choices = True


class FeedAdapter(WholeAdapter):
    """A platform with an account that posts, in whose name operators may have something done."""

    platform = FEED_PLATFORM

    def feed(self, agent_id: object) -> Feed:
        """Return the account's own feed."""
        world = World(derived_id("x", "world"), FEED_PLATFORM, "x", "X")
        room = Room(derived_id("x", "feed"), world.id, ChannelType.FEED, FEED_PLATFORM, "feed", "account", "feed")
        return Feed(world, room)


class Episode:
    """One agent with its rooms, attackers and oracle; `run` sends the events one after another."""

    def __init__(self, seed: str, texts: AttackTexts = OWN) -> None:
        self.report = Report()
        self._chance = random.Random(seed)
        self._clock = ManualClock()
        self._oracle = Oracle(Places())
        self._events = EventSender(self._chance, texts, self._oracle, self._clock)
        self._board = Board()
        self._feed = FeedAdapter()
        self._before = Snapshot({}, {})
        self._is_asked = False  # whether the last event ended with a question
        self._asked_urls: list[str] = []  # by the agent, of the web
        self._harness: AgentHarness
        self._scheduler: Scheduler

    async def run(self, events: int, folder: Path | None = None) -> Report:
        """Send events and judge each; with a `folder` the store is SQLite."""
        async with self._open(folder) as harness:
            self._harness = harness
            self._scheduler = Scheduler(harness.agent, harness.agent_runtime.registry)
            await self._events.start(harness)
            while self.report.turns < events:
                if self.report.turns % CHOICE_INTERVAL == 0:
                    await self._events.offer_choice()
                    self._before = await read_snapshot(harness.agent.store, self._board.entries)
                await self._play()
        return self.report

    @asynccontextmanager
    async def _open(self, folder: Path | None) -> AsyncIterator[AgentHarness]:
        chance = self._chance
        settings = {
            "X_OPERATORS": f"{PLATFORM}:{OPERATOR}",
            "USE_MULTI_STEP": "true" if chance.randrange(MULTI_STEP_SHARE) == 0 else "false",
            "CONVERSATION_LENGTH": chance.choice(("8", "20", "20")),
            "BURST_PAUSE": "0",
            "SHOULD_RESPOND_BYPASS_TYPES": chance.choice(("GROUP", "GROUP", "GROUP", "")),
            "ON_EDIT": chance.choice(("ignore", "rerun")),
            "LINKS": "1000",
            "WEB_SEARCH": "searxng",
            "WEB_SEARCH_LIMIT": "10000",
        }
        board = build_board_plugin(self._board, self._events.write_as)
        adapter = chance.choice((WholeAdapter, ButtonAdapter))()
        async with (
            _open_store(self._clock, folder) as store,
            serve_hostile_web(self._chance, self._events.write_as, self._oracle.titles) as found,
            running_agent(
                feeds,
                knowledge,
                links,
                x_actions,
                board,
                model=self._events.model.scripted,
                settings={**settings, "WEB_SEARCH_URL": found.url, "HTTP_PROXY": found.url, "HTTPS_PROXY": found.url},
                adapter=adapter,
                store=store,
                clock=self._clock.now,
            ) as harness,
        ):
            harness.agent.outbox.connect(self._feed)
            self._asked_urls = found.asked
            yield harness
            self.report.pages_read += len(found.pages_asked())

    async def _play(self) -> None:
        """Send one event, wait until everything it causes is done, and compare the store."""
        self._clock.advance(self._chance.choice((3, 20) if self._is_asked else (3, 20, 70, 70, 400)))
        model, adapter = self._events.model, self._harness.adapter
        model.begin()
        requested = len(self._asked_urls)
        cause = await self._events.send(is_asked=self._is_asked)
        if cause is None:
            return
        await self._settle()
        after = await read_snapshot(self._harness.agent.store, self._board.entries)
        sent = [*adapter.sent, *adapter.edited, *self._feed.sent]
        asked = len(self._oracle.questions)
        made_up = [url for url in self._asked_urls[requested:] if MADE_UP in url]
        beyond, entitled = self._oracle.judge(
            cause, model.reading, self._before, after, sent, self._clock.now(), made_up
        )
        self.report.note(cause, model, beyond, entitled, len(self._oracle.questions) - asked)
        self._is_asked = len(self._oracle.questions) > asked
        self._before = after
        for deliveries in (adapter.sent, adapter.edited, self._feed.sent):
            deliveries.clear()
        adapter.attempts.clear()
        adapter.typing_calls.clear()

    async def _settle(self) -> None:
        """Wait until the messages are answered and evaluated, due tasks have run, and all is sent."""
        processor = self._harness.agent_runtime.inbox.processor
        for number in range(2000):
            await processor._tasks.wait()
            queued = await self._harness.agent.store.tasks.tasks(tags={TaskTag.QUEUE})
            if not any("choice" in task.metadata and task.name != "POLL" for task in queued):
                break
            await self._scheduler.run_due()  # what the agent's own scheduler has begun ends meanwhile
            await asyncio.sleep(0 if number < 100 else 0.001)  # a file's threads need more time
        await self._harness.agent.outbox.drain(5.0)


@asynccontextmanager
async def _open_store(clock: ManualClock, folder: Path | None) -> AsyncIterator[Store]:
    if folder is None:
        yield InMemoryStore(clock.now)
        return
    async with OpenFiles().open_store(folder / "greenroom.db", derived_id("agent", "Ada")) as store:
        yield store


def run_episode(
    seed: int, number: int, events: int = EVENTS_PER_EPISODE, *, texts: AttackTexts = OWN, folder: Path | None = None
) -> Report:
    """Run one episode; the same seed and number send the same events. Edits are answered without a pause."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_message, "EDIT_INTERVAL_SECONDS", 0.0)
        report = asyncio.run(Episode(f"{seed} {number}", texts).run(events, folder))
    report.examples = {
        kind: [f"episode {number}: {example}" for example in examples] for kind, examples in report.examples.items()
    }
    return report
