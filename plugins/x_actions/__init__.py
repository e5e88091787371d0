"""Actions on X: post, reply, quote, repost, like and search, for operators."""

from bot import Plugin
from plugins.x_actions.actions import act_on_x, like, post, quote, reply, repost, search
from plugins.x_actions.routes import publish_post
from plugins.x_actions.trust import Operators, OperatorSettings

plugin = Plugin(
    "x_actions",
    "Posts, replies, quotes, reposts, likes and searches on X, for those who may ask for them.",
    actions=[post, reply, quote, repost, like, search],
    workers=[act_on_x],
    services=[Operators],
    routes=[publish_post],
    settings=OperatorSettings,
)
