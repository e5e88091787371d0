"""A plugin as strangers write them: effects without declared authority, and texts from outside as results."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from bot import ActionResult, Effect, Plugin, ProviderResult, Role, Turn, action, model, provider
from bot.models import ImageRequest, ImageResult, ModelType
from bot.turn import Agent

WriteHostile = Callable[[str], str]


@dataclass(slots=True)
class Board:
    """What the plugin's effects have changed: each action with its arguments, in order."""

    entries: list[tuple[str, str]] = field(default_factory=list)


def build_board_plugin(board: Board, write_hostile: WriteHostile) -> Plugin:
    """Return the plugin; `write_hostile` returns what an attacker has written, by who shows it."""

    @action("WRITE_NOTICE", "Write a notice on the board.", role=Role.MEMBER, effect=Effect.KEYED)
    async def write_notice(turn: Turn, text: Annotated[str, "The notice"]) -> ActionResult:
        """Write a notice, which needs the role MEMBER."""
        board.entries.append(("WRITE_NOTICE", text))
        return ActionResult(text="written")

    @action("CLOSE_SHOP", "Close the shop for today.", role=Role.ADMIN)
    async def close_shop(turn: Turn, reason: Annotated[str, "Why"]) -> ActionResult:
        """Close the shop, which needs the role ADMIN."""
        board.entries.append(("CLOSE_SHOP", reason))
        return ActionResult(text="closed")

    @action("READ_PAGE", "Read a page.", effect=Effect.PURE)
    async def read_page(turn: Turn, address: str = "") -> ActionResult:
        """Return a page that an attacker has written."""
        return ActionResult(text=write_hostile("a page"))

    @provider("TOOL_OUTPUT", "What the tools say.", dynamic=True)
    async def tool_output(turn: Turn) -> ProviderResult:
        """Return a tool's answer that an attacker has written."""
        return ProviderResult(write_hostile("a tool"))

    @model(ModelType.IMAGE)
    async def draw(agent: Agent, request: ImageRequest) -> ImageResult:
        """Return a picture of one byte."""
        return ImageResult(b"p")

    return Plugin(
        "board",
        "A notice board.",
        actions=[write_notice, close_shop, read_page],
        providers=[tool_output],
        models=[draw],
    )
