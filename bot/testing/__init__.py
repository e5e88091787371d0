"""Doubles and a stage for tests: they obey the same contracts as the real parts, and ship with them."""

from bot.store.inmemory import InMemoryStore
from bot.testing.adapter import RecordingAdapter
from bot.testing.making import make_arrival, make_turn
from bot.testing.model import ScriptedModel, answer
from bot.testing.stage import Stage, on_stage

__all__ = [
    "InMemoryStore",
    "RecordingAdapter",
    "ScriptedModel",
    "Stage",
    "answer",
    "make_arrival",
    "make_turn",
    "on_stage",
]
