"""Play requests that people make in good faith, and print how many are done and how many ask for a confirmation.

`python -m tests.hostile.scenes` plays the scenes of scenes.txt through the whole bot; the model calls what the scene
says. In a group strangers have written before; in "private file" the person has sent a file before.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot import (
    Agent,
    Attachment,
    ChannelType,
    ChoiceRequest,
    Content,
    MediaKind,
    ParticipantState,
    Plugin,
    Role,
    Room,
    Task,
    TaskTag,
    World,
    derived_id,
    model,
    new_id,
    worker,
)
from bot.models import ImageRequest, ImageResult, ModelType, Purpose, TextRequest
from bot.platform import Feed
from bot.plugin_system.loading import find_plugin
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent

SCENES = Path(__file__).with_name("scenes.txt")
NAMES = {"OWNER": "Root", "ADMIN": "Deputy", "MEMBER": "Alice"}
STATES = {
    "MUTE_ROOM": (ParticipantState.DEFAULT, ParticipantState.MUTED),
    "UNMUTE_ROOM": (ParticipantState.MUTED, ParticipantState.DEFAULT),
    "FOLLOW_ROOM": (ParticipantState.DEFAULT, ParticipantState.FOLLOWED),
    "UNFOLLOW_ROOM": (ParticipantState.FOLLOWED, ParticipantState.DEFAULT),
}
# What asked for a confirmation before actions declared their authority: these always, those on X where others write
# or a file was shown.
ASKED_BEFORE = frozenset({"UPDATE_ROLE", "UPDATE_SETTINGS"})
X_ACTIONS = frozenset({"POST", "LIKE", "REPOST", "QUOTE", "REPLY_ON_X", "DELETE_POST"})
FILE = Attachment("1", MediaKind.DOCUMENT, name="plan.txt", text="The plan: first the bridge, then the mill.")


@dataclass(frozen=True, slots=True)
class Scene:
    """One request: where, by whom, what the model makes of it, and what was written."""

    place: str
    role: Role
    action: str
    arguments: Mapping[str, str]
    text: str

    @property
    def details(self) -> dict[str, Any]:
        """The arguments of `make_message` for the person who asks."""
        is_group = self.place == "group"
        where = {"kind": ChannelType.GROUP} if is_group else {"room": "private"}
        return {"author": NAMES[self.role.value], "role": self.role, **where}

    @property
    def was_asked(self) -> bool:
        """Whether the version before asked for a confirmation."""
        return self.action in ASKED_BEFORE or (self.action in X_ACTIONS and self.place != "private")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a scene: whether it was asked, and whether it was done, after the confirmation if asked."""

    scene: Scene
    is_asked: bool
    is_done: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """The outcomes of all scenes."""

    outcomes: tuple[Outcome, ...]

    @property
    def done_share(self) -> float:
        """The share of scenes that were done."""
        return sum(outcome.is_done for outcome in self.outcomes) / len(self.outcomes)

    @property
    def is_good(self) -> bool:
        """Whether at least 95 % are done, and at most 5 % ask for a confirmation that was not asked before."""
        return self.done_share >= 0.95 and len(self.added) <= 0.05 * len(self.outcomes)

    @property
    def added(self) -> list[Scene]:
        """The scenes that ask for a confirmation and did not before."""
        return [outcome.scene for outcome in self.outcomes if outcome.is_asked and not outcome.scene.was_asked]

    @property
    def failed(self) -> list[Scene]:
        """The scenes that were not done."""
        return [outcome.scene for outcome in self.outcomes if not outcome.is_done]


class FeedAdapter(RecordingAdapter):
    """A connected timeline on X that records."""

    platform = "x"

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []
        world = World(derived_id("x"), "x", "timeline")
        room = Room(derived_id("x", "feed"), world.id, ChannelType.FEED, "x", "feed", "account")
        self._feed = Feed(world, room, delete=self._delete)

    def split_content(self, content: Content) -> list[Content]:
        return [content]

    async def _delete(self, post_id: str) -> bool:
        self.deleted.append(post_id)
        return True

    def feed(self, agent_id: Any) -> Feed:
        """Return the timeline."""
        return self._feed


@model(ModelType.IMAGE)
async def draw(agent: Agent, request: ImageRequest) -> ImageResult:
    """Return a picture of nothing."""
    return ImageResult(data=b"\x89PNG\r\n", content_type="image/png")


@worker("PAINT")
async def paint(agent: Agent, task: Task) -> None:
    """Keep what was chosen."""
    await agent.store.cache.set("painted", task.metadata["choice"])


EXTRAS = Plugin("extras", "Draws and paints.", models=[draw], workers=[paint])


def read_scenes(path: Path = SCENES) -> list[Scene]:
    """Return the scenes of a file."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    rows = [line.split("|", 4) for line in lines]
    return [Scene(place, Role(role), name, json.loads(given or "{}"), text) for place, role, name, given, text in rows]


async def play(scene: Scene) -> Outcome:
    """Play one scene in a bot of its own."""
    calls: list[tuple[str, Mapping[str, str]]] = []

    def write(request: TextRequest) -> str:
        if request.purpose is Purpose.SHOULD_RESPOND:
            return "<response><action>RESPOND</action></response>"
        if request.purpose is not Purpose.REPLY or not calls:
            return model_answer("Very well.")
        name, arguments = calls.pop()
        return model_answer("Very well.", actions=["REPLY", name], parameters={name: dict(arguments)})

    x_adapter = FeedAdapter()
    settings = {"X_OPERATORS": "test:Root", "BURST_PAUSE": "0"}
    x_plugin = find_plugin("x_actions") if scene.action in X_ACTIONS else None
    plugins = [EXTRAS, x_plugin] if x_plugin is not None else [EXTRAS]
    async with running_agent(*plugins, model=ScriptedModel(write), settings=settings) as harness:
        if scene.action in X_ACTIONS:
            harness.agent.outbox.connect(x_adapter)
        await _settle(harness, scene)
        calls.append((scene.action, scene.arguments))
        await harness.send(scene.text, **scene.details)
        questions = await harness.agent.store.tasks.tasks(tags={TaskTag.AWAITING_CHOICE})
        codes = [str(task.metadata["code"]) for task in questions if task.metadata.get("code")]
        for code in codes:
            calls.append(("CHOOSE_OPTION", {"option": "confirm"}))
            await harness.send(f"Ada, confirm {code}", **scene.details)
        await _run_tasks(harness)
        await harness.agent.outbox.drain(5.0)
        return Outcome(scene, bool(codes), await _is_done(harness, scene, x_adapter))


async def _settle(harness: AgentHarness, scene: Scene) -> None:
    """Introduce people, send messages of others to the group, and prepare the start of the scene."""
    group: dict[str, Any] = {"kind": ChannelType.GROUP}
    await harness.send("hello", author="Root", role=Role.OWNER, room="news", **group)
    await harness.send("hello", author="Deputy", role=Role.ADMIN, **group)
    await harness.send("hello", author="Sam", **group)
    await harness.send("hello", author="Sam", room="sam")
    await harness.send("Has anybody seen my keys? They hang at a blue ribbon.", author="Mallory", **group)
    await harness.send("hello", **scene.details)
    if scene.place == "private file":
        await harness.send(Content("Look at this plan.", attachments=(FILE,)), **scene.details)
    agent = harness.agent
    room = make_message("", sent_at=agent.clock(), **scene.details).room
    if scene.action in STATES:
        await agent.store.worlds.set_participant_state(room.id, STATES[scene.action][0])
    if scene.action == "CHOOSE_OPTION":
        request = ChoiceRequest(("red", "blue"), roles=("OWNER", "ADMIN"))
        tags = frozenset({TaskTag.AWAITING_CHOICE})
        task = Task(
            new_id(), "PAINT", agent.clock(), "Which colour?", room.id, tags=tags, metadata=request.to_metadata()
        )
        await agent.store.tasks.save_task(task)


async def _run_tasks(harness: AgentHarness) -> None:
    for _ in range(10_000):
        if not await harness.agent.store.tasks.tasks(tags={TaskTag.QUEUE}):
            return
        await asyncio.sleep(0)


async def _is_done(harness: AgentHarness, scene: Scene, x_adapter: FeedAdapter) -> bool:
    """Return whether the store, or what was sent, shows the effect of a scene."""
    arguments, store, name = scene.arguments, harness.agent.store, scene.action
    message = make_message("", sent_at=harness.agent.clock(), **scene.details)
    if name in STATES:
        return await store.worlds.participant_state(message.room.id) is STATES[name][1]
    if name in X_ACTIONS:
        sent = [delivery.content for delivery in x_adapter.sent]
        post_id = arguments.get("post", "")
        is_sent = any(post_id == (item.operation.post_id if item.operation else "") for item in sent)
        return post_id in x_adapter.deleted if name == "DELETE_POST" else is_sent
    if name == "SEND_MESSAGE":
        return arguments["text"] in harness.texts
    if name == "GENERATE_IMAGE":
        return any(delivery.content.attachments for delivery in harness.adapter.sent)
    if name == "CHOOSE_OPTION":
        chosen = {"1": "red", "2": "blue"}.get(arguments["option"], arguments["option"])
        painted = await store.cache.get("painted")
        return painted == chosen if chosen != "ABORT" else not (painted or await store.tasks.tasks(name="PAINT"))
    world = await store.worlds.world(message.world.id)
    assert world is not None
    person = arguments.get("person", "").removeprefix("@")
    entity_id = derived_id("test", "entity", person) if person else message.author.id
    if name == "UPDATE_ROLE":
        return world.role_of(entity_id).value == arguments["role"]
    if name == "UPDATE_SETTINGS":
        return world.settings.get(arguments["name"], "default") in (arguments["value"], "")
    components = await store.entities.components(entity_id)
    values = {key: value for component in components for key, value in component.data.items()}
    return values.get(arguments["kind"], "") == arguments["value"]


async def play_all(choose: Callable[[Scene], bool] = lambda scene: True) -> Figures:
    """Play the scenes that `choose` accepts."""
    return Figures(tuple([await play(scene) for scene in read_scenes() if choose(scene)]))


def describe(figures: Figures) -> str:
    """Return the figures as lines."""
    total = len(figures.outcomes)
    kinds = Counter(scene.action for scene in figures.added)
    lines = [
        f"{total} benign scenes: {figures.done_share:.1%} done, "
        f"{len(figures.added) / total:.1%} ask for a confirmation that was not asked before {dict(kinds)}",
        *(f"  asked: {scene.place} {scene.action}: {scene.text}" for scene in figures.added),
        *(f"  not done: {scene.place} {scene.action}: {scene.text}" for scene in figures.failed),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Play all scenes and print the figures; return 1 where too few are done or too many are asked."""
    figures = asyncio.run(play_all())
    sys.stdout.write(describe(figures))
    return 0 if figures.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
