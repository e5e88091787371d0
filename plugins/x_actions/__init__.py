"""What a character may do on X beside answering: post, reply, quote, repost, like, search, when told to."""

from bot import Plugin
from plugins.x_actions.actions import like, post, quote, reply, repost, search
from plugins.x_actions.confirmed import act_on_x
from plugins.x_actions.operators import Operators, OperatorSettings
from plugins.x_actions.routes import publish_post

plugin = Plugin(
    "x_actions",
    "Posts, replies, quotes, reposts, likes and searches on X, for those who may ask for them.",
    actions=[post, reply, quote, repost, like, search],
    workers=[act_on_x],
    services=[Operators],
    routes=[publish_post],
    settings=OperatorSettings,
)
