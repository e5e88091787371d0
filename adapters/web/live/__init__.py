"""What is sent as it happens: updates of rooms to those in them, and events of the whole bot by topic."""

from adapters.web.live.frames import (
    CHAT_TOPICS,
    LIVE_FRAMES,
    ConversationFrame,
    LiveFrame,
    SubscribedFrame,
    SubscribeFrame,
    Topic,
    TopicKind,
)
from adapters.web.live.updates import (
    ControlRequested,
    DraftDelta,
    DraftDeltas,
    Interrupted,
    LiveSubscription,
    LiveUpdates,
    RoomBroadcaster,
    RoomUpdate,
    TopicFilter,
    TypingChanged,
    UpdateListener,
    build_filter,
)

__all__ = [
    "CHAT_TOPICS",
    "LIVE_FRAMES",
    "ControlRequested",
    "ConversationFrame",
    "DraftDelta",
    "DraftDeltas",
    "Interrupted",
    "LiveFrame",
    "LiveSubscription",
    "LiveUpdates",
    "RoomBroadcaster",
    "RoomUpdate",
    "SubscribeFrame",
    "SubscribedFrame",
    "Topic",
    "TopicFilter",
    "TopicKind",
    "TypingChanged",
    "UpdateListener",
    "build_filter",
]
