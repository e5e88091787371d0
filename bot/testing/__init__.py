"""Doubles and a stage for tests: they obey the same contracts as the real parts, and ship with them."""

from bot.store.inmemory import InMemoryStore
from bot.testing.adapter import RecordingAdapter
from bot.testing.faults import FaultyAnswer
from bot.testing.local_only import only_from_here
from bot.testing.making import make_arrival, make_turn
from bot.testing.model import Pieces, Restart, ScriptedModel, answer
from bot.testing.stage import Stage, on_stage
from bot.testing.talking import Person, Place, Said, Scene, TalkPage

__all__ = [
    "FaultyAnswer",
    "InMemoryStore",
    "Person",
    "Pieces",
    "Place",
    "RecordingAdapter",
    "Restart",
    "Said",
    "Scene",
    "ScriptedModel",
    "Stage",
    "TalkPage",
    "answer",
    "make_arrival",
    "make_turn",
    "on_stage",
    "only_from_here",
]
