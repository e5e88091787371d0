"""Actions on X: post, reply, quote, repost, like, delete and search, for operators."""

from bot import Plugin
from plugins.x_actions.actions import delete, like, post, quote, reply, repost, search
from plugins.x_actions.operations import Operators, OperatorSettings
from plugins.x_actions.routes import delete_post, publish_post

plugin = Plugin(
    "x_actions",
    "Posts, replies, quotes, reposts, likes, deletions and searches on X, for those who may ask for them.",
    actions=[post, reply, quote, repost, like, delete, search],
    services=[Operators],
    routes=[publish_post, delete_post],
    settings=OperatorSettings,
)
