"""Doubles and a stage for tests: they obey the same contracts as the real parts, and ship with them."""

from bot.store.inmemory import InMemoryStore
from bot.testing.emulator import FaultyAnswer, Person, Place, Said, Scene, TalkPage, only_from_here
from bot.testing.harness import Stage, make_arrival, make_turn, on_stage
from bot.testing.recording_adapter import RecordingAdapter
from bot.testing.scripted_model import Pieces, Restart, ScriptedModel, answer

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
