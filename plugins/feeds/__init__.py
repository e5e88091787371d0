"""Feeds plugin: posts the new entries of RSS and Atom feeds in rooms."""

from bot import Plugin
from plugins.feeds.commands import feed, follow_feed
from plugins.feeds.feed import FeedSettings, read_feed

plugin = Plugin(
    "feeds",
    "Posts the new entries of RSS and Atom feeds in rooms.",
    actions=[follow_feed],
    commands=[feed],
    workers=[read_feed],
    settings=FeedSettings,
)
