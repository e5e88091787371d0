"""What a conversation needs: the basic actions and what the model is told of the room."""

from bot import Plugin
from plugins.bootstrap.actions import ignore, none, reply
from plugins.bootstrap.providers.actions import actions
from plugins.bootstrap.providers.anxiety import anxiety
from plugins.bootstrap.providers.attachments import attachments
from plugins.bootstrap.providers.character import character
from plugins.bootstrap.providers.entities import entities
from plugins.bootstrap.providers.providers import providers
from plugins.bootstrap.providers.recent_messages import recent_messages
from plugins.bootstrap.providers.time import time
from plugins.bootstrap.providers.world import world

plugin = Plugin(
    "bootstrap",
    "What a conversation needs: the basic actions and what the model is told of the room.",
    actions=[reply, ignore, none],
    providers=[
        character,
        actions,
        providers,
        anxiety,
        world,
        entities,
        attachments,
        time,
        recent_messages,
    ],
)
