"""Actions on X: post, reply, quote, repost, like, delete and search, for operators."""

from bot import Plugin
from plugins.x_actions.actions import (
    Operators,
    OperatorSettings,
    delete,
    delete_post,
    like,
    post,
    publish_post,
    quote,
    reply,
    repost,
    search,
)

plugin = Plugin(
    "x_actions",
    "Posts, replies, quotes, reposts, likes, deletions and searches on X, for those who may ask for them.",
    actions=[post, reply, quote, repost, like, delete, search],
    services=[Operators],
    routes=[publish_post, delete_post],
    settings=OperatorSettings,
)
