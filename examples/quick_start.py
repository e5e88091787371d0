"""Quick start: greets people; one small component of each kind that a first plugin needs.

The starter plugin of elizaOS's quick start. Use it with `"plugins": ["./quick_start"]` in a character file next to it.
"""

from typing import Any

from pydantic import Field

from bot import (
    ActionResult,
    Agent,
    Plugin,
    ProviderResult,
    RouteRequest,
    RouteResponse,
    Service,
    SettingsModel,
    Turn,
    action,
    on,
    provider,
    route,
)
from bot.events import MessageSent
from bot.plugin_system import PluginTest, PluginTestSuite
from bot.prompts import Authority


class QuickStartSettings(SettingsModel):
    """The variables of this plugin; a character file may set it."""

    CHARACTER_SETTINGS = frozenset({"QUICK_START_GREETING"})

    quick_start_greeting: str = Field("Hello", min_length=1, max_length=40, description="The word of a greeting.")


class Greeter(Service):
    """Counts greetings and messages; started and stopped with the agent, shared by the components below."""

    capability = "greet people"

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.word = agent.settings.load(QuickStartSettings).quick_start_greeting
        self.greeted = self.sent = 0


@action(
    "HELLO_WORLD",
    "Greet the person you are talking with.",
    similes=["GREET", "SAY_HELLO"],
    authority=Authority.harmless("a greeting changes nothing that lasts"),
)
async def hello_world(turn: Turn) -> ActionResult:
    """Send a greeting; what the model reads of it is in the result."""
    greeter = turn.agent.services[Greeter]
    greeter.greeted += 1
    await turn.reply(f"{greeter.word}, {turn.author.name}!")
    return ActionResult(text="greeted the person", data={"greeted": greeter.greeted}, authors=())


@provider("GREETINGS", "How many people were greeted.", position=50)
async def greetings(turn: Turn) -> ProviderResult:
    """Return the count for the prompt, and as a value for templates."""
    count = turn.agent.services[Greeter].greeted
    return ProviderResult(text=f"Greetings so far: {count}.", values={"greeted": count}, authors=())


@on(MessageSent)
async def count_sent(agent: Agent, event: MessageSent) -> None:
    """Count what the agent sends, in any room."""
    agent.services[Greeter].sent += 1


@route("GET", "/status")
async def status(agent: Agent, request: RouteRequest) -> RouteResponse:
    """Return the counts at `/plugins/quick_start/status`, for a token that may read."""
    greeter = agent.services[Greeter]
    return RouteResponse(json={"greeted": greeter.greeted, "sent": greeter.sent})


async def shows_the_count(harness: Any) -> None:
    """Check the prompt, as `bot plugin test` does: with a running agent (an `AgentHarness`) of its own."""
    await harness.send("Hi")
    assert "Greetings so far: 0." in harness.model.requests[-1].prompt


plugin = Plugin(
    "quick_start",
    "Greets people.",
    actions=[hello_world],
    providers=[greetings],
    listeners=[count_sent],
    routes=[status],
    services=[Greeter],
    settings=QuickStartSettings,
    tests=[PluginTestSuite("quick start", [PluginTest("shows the count", shows_the_count)])],
)
