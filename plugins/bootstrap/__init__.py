"""What a conversation needs: the basic actions and what the model is told of the room."""

from bot import Plugin
from plugins.bootstrap.actions.basic import ignore, none, reply
from plugins.bootstrap.actions.choices import choose_option
from plugins.bootstrap.actions.contacts import update_contact
from plugins.bootstrap.actions.images import DRAWING, IMAGE, generate_image
from plugins.bootstrap.actions.messages import send_message
from plugins.bootstrap.actions.roles import change_role, update_role
from plugins.bootstrap.actions.rooms import follow_room, mute_room, unfollow_room, unmute_room
from plugins.bootstrap.actions.settings import change_setting, update_settings
from plugins.bootstrap.evaluators.prompt import REFLECTION, TEMPLATE
from plugins.bootstrap.evaluators.reflection import Reflections, message_heard, reflection
from plugins.bootstrap.listeners.clearing import channel_cleared
from plugins.bootstrap.listeners.embedding import Backlog, vectors_missed
from plugins.bootstrap.listeners.runs import (
    Courses,
    action_completed,
    action_started,
    evaluator_completed,
    evaluator_started,
    model_used,
    run_ended,
    run_started,
)
from plugins.bootstrap.providers.action_state import action_state
from plugins.bootstrap.providers.actions import actions
from plugins.bootstrap.providers.anxiety import anxiety
from plugins.bootstrap.providers.attachments import attachments
from plugins.bootstrap.providers.capabilities import capabilities
from plugins.bootstrap.providers.character import character
from plugins.bootstrap.providers.choice import choice
from plugins.bootstrap.providers.entities import entities
from plugins.bootstrap.providers.evaluators import evaluators
from plugins.bootstrap.providers.facts import facts
from plugins.bootstrap.providers.providers import providers
from plugins.bootstrap.providers.recent_messages import Beginnings, recent_messages
from plugins.bootstrap.providers.relationships import relationships
from plugins.bootstrap.providers.roles import roles
from plugins.bootstrap.providers.settings import settings
from plugins.bootstrap.providers.time import time
from plugins.bootstrap.providers.world import world

plugin = Plugin(
    "bootstrap",
    "What a conversation needs: the basic actions and what the model is told of the room.",
    actions=[
        reply,
        ignore,
        none,
        follow_room,
        unfollow_room,
        mute_room,
        unmute_room,
        send_message,
        update_contact,
        choose_option,
        update_role,
        update_settings,
        generate_image,
    ],
    workers=[change_role, change_setting],
    providers=[
        character,
        actions,
        capabilities,
        providers,
        anxiety,
        evaluators,
        world,
        settings,
        roles,
        entities,
        attachments,
        choice,
        recent_messages,
        relationships,
        facts,
        time,
        action_state,
    ],
    evaluators=[reflection],
    listeners=[
        message_heard,
        channel_cleared,
        run_started,
        action_started,
        action_completed,
        evaluator_started,
        evaluator_completed,
        model_used,
        run_ended,
        vectors_missed,
    ],
    services=[Beginnings, Reflections, Courses, Backlog],
    templates={IMAGE: DRAWING, TEMPLATE: REFLECTION},
)
