"""Events and their elizaOS names."""

from dataclasses import FrozenInstanceError

import pytest

from bot.domain.events import (
    EVENT_CLASSES,
    Event,
    MessageReceived,
    MessageSent,
    RunEnded,
    VoiceMessageReceived,
    VoiceMessageSent,
    event_class,
)
from bot.domain.ids import new_id

ELIZAOS_NAMES = [
    "WORLD_JOINED",
    "WORLD_CONNECTED",
    "WORLD_LEFT",
    "ENTITY_JOINED",
    "ENTITY_LEFT",
    "ENTITY_UPDATED",
    "ROOM_JOINED",
    "ROOM_LEFT",
    "MESSAGE_RECEIVED",
    "MESSAGE_SENT",
    "MESSAGE_DELETED",
    "CHANNEL_CLEARED",
    "VOICE_MESSAGE_RECEIVED",
    "VOICE_MESSAGE_SENT",
    "REACTION_RECEIVED",
    "POST_GENERATED",
    "INTERACTION_RECEIVED",
    "RUN_STARTED",
    "RUN_ENDED",
    "RUN_TIMEOUT",
    "ACTION_STARTED",
    "ACTION_COMPLETED",
    "EVALUATOR_STARTED",
    "EVALUATOR_COMPLETED",
    "MODEL_USED",
    "EMBEDDING_GENERATION_REQUESTED",
    "EMBEDDING_GENERATION_COMPLETED",
    "EMBEDDING_GENERATION_FAILED",
    "CONTROL_MESSAGE",
]


@pytest.mark.parametrize("name", ELIZAOS_NAMES)
def test_every_elizaos_name_is_known_in_both_spellings(name: str) -> None:
    found = event_class(name)

    assert found is not None
    assert event_class(name.lower().replace("_", ":")) is found
    assert event_class(f" {name.title()} ") is found


@pytest.mark.parametrize("name", list(EVENT_CLASSES))
def test_every_name_has_a_class_of_its_own(name: str) -> None:
    assert event_class(name) is EVENT_CLASSES[name]
    assert issubclass(EVENT_CLASSES[name], Event)
    assert list(EVENT_CLASSES.values()).count(EVENT_CLASSES[name]) == 1


def test_both_spellings_mean_the_same() -> None:
    assert event_class("message:received") is MessageReceived
    assert event_class("voice:message:sent") is VoiceMessageSent
    assert event_class("run:ended") is RunEnded


@pytest.mark.parametrize("name", ["", "MESSAGE", "MESSAGE_RECEIVEDX", "message received now", "::", "Event"])
def test_an_unknown_name_is_no_event(name: str) -> None:
    assert event_class(name) is None


def test_a_voice_message_is_a_message() -> None:
    assert issubclass(VoiceMessageReceived, MessageReceived)
    assert issubclass(VoiceMessageSent, MessageSent)


def test_events_are_immutable() -> None:
    event = MessageSent(new_id(), new_id(), new_id(), new_id())

    with pytest.raises(FrozenInstanceError):
        event.room_id = new_id()  # type: ignore[misc]
