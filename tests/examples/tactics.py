"""Tactics: knows which game a room plays and how well each player plays it, and advises for that."""

from typing import Annotated, Literal

from bot import ActionResult, Component, Effect, Plugin, ProviderResult, Turn, action, derived_id, provider
from bot.prompts import Authority

SKILL = "SKILL"
ADVICE = {"beginner": "explain every term, one idea at a time", "advanced": "leave the basics out, compare openings"}


@action(
    "SET_GAME",
    "Note which game this room plays now.",
    effect=Effect.IDEMPOTENT,
    authority=Authority.harmless("it changes only which game the advice is about"),
)
async def set_game(turn: Turn, game: Annotated[str, "The game's name"]) -> ActionResult:
    """Keep it for the room."""
    await turn.agent.store.cache.set(f"game:{turn.room.id}", game)
    return ActionResult(text=f"this room plays {game}")


@action(
    "SET_SKILL",
    "Note how well somebody plays.",
    effect=Effect.IDEMPOTENT,
    authority=Authority.harmless("it changes only how much the advice explains"),
)
async def set_skill(
    turn: Turn, level: Annotated[Literal["beginner", "advanced"], "How well the player plays"]
) -> ActionResult:
    """Keep it of the person, wherever they play."""
    skill = Component(derived_id(turn.author.id, SKILL), turn.author.id, SKILL, {"level": level})
    await turn.agent.store.entities.save_component(skill)
    return ActionResult(text=f"the player is {level}")


@provider("GAME", "Which game is played here, and how to advise this player.", position=-10)
async def game(turn: Turn) -> ProviderResult:
    """Return what is known; nothing where nothing is."""
    played = await turn.agent.store.cache.get(f"game:{turn.room.id}")
    known = await turn.agent.store.entities.components(turn.author.id, SKILL)
    level = str(known[0].data["level"]) if known else ""
    lines = [f"The room plays {played}."] if played else []
    lines += [f"The player is {level}: {ADVICE[level]}."] if level else []
    return ProviderResult(text="\n".join(lines), values={"game": played or "", "skill": level})


plugin = Plugin("tactics", "Advises players.", actions=[set_game, set_skill], providers=[game])
