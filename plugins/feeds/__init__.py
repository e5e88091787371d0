"""Feeds plugin: posts the new entries of RSS and Atom feeds in rooms."""

from bot import Plugin
from plugins.feeds.feed import FeedSettings, feed, follow_feed, read_feed

plugin = Plugin(
    "feeds",
    "Posts the new entries of RSS and Atom feeds in rooms.",
    actions=[follow_feed],
    commands=[feed],
    workers=[read_feed],
    settings=FeedSettings,
)
