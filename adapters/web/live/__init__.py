"""Live updates: events of the core as frames of the WebSocket, by topic, with resume and merging."""

from adapters.web.live.frames import LIVE_FRAMES, LiveFrame, SubscribedFrame, SubscribeFrame, Topic, TopicKind
from adapters.web.live.updates import LiveSubscription, LiveUpdates, TopicFilter

__all__ = [
    "LIVE_FRAMES",
    "LiveFrame",
    "LiveSubscription",
    "LiveUpdates",
    "SubscribeFrame",
    "SubscribedFrame",
    "Topic",
    "TopicFilter",
    "TopicKind",
]
