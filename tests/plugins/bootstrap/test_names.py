"""B1–B3: everything of the documents is there by its name, and actions by their similes."""

import pytest

from bot.plugin_system.registry import Registry
from plugins.bootstrap import plugin

SIMILES = {
    "REPLY": "GREET REPLY_TO_MESSAGE SEND_REPLY RESPOND RESPONSE",
    "IGNORE": "STOP_TALKING STOP_CHATTING STOP_CONVERSATION",
    "NONE": "NO_ACTION NO_RESPONSE NO_REACTION",
    "REACT": "REACTION EMOJI ADD_REACTION",
    "OPEN_THREAD": "CREATE_THREAD START_THREAD NEW_THREAD OPEN_TOPIC CREATE_TOPIC NEW_TOPIC",
    "FOLLOW_ROOM": "FOLLOW_CHAT FOLLOW_CHANNEL FOLLOW_CONVERSATION FOLLOW_THREAD",
    "UNFOLLOW_ROOM": "UNFOLLOW_CHAT UNFOLLOW_CONVERSATION UNFOLLOW_ROOM UNFOLLOW_THREAD",
    "MUTE_ROOM": "MUTE_CHAT MUTE_CONVERSATION MUTE_ROOM MUTE_THREAD MUTE_CHANNEL",
    "UNMUTE_ROOM": "UNMUTE_CHAT UNMUTE_CONVERSATION UNMUTE_ROOM UNMUTE_THREAD",
    "SEND_MESSAGE": "DM MESSAGE SEND_DM POST_MESSAGE",
    "UPDATE_CONTACT": "UPDATE_ENTITY",
    "CHOOSE_OPTION": "SELECT_OPTION SELECT PICK CHOOSE",
    "UPDATE_ROLE": "CHANGE_ROLE SET_PERMISSIONS ASSIGN_ROLE MAKE_ADMIN",
    "UPDATE_SETTINGS": "UPDATE_SETTING SAVE_SETTING SET_CONFIGURATION CONFIGURE",
    "GENERATE_IMAGE": "DRAW CREATE_IMAGE RENDER_IMAGE VISUALIZE",
}
PROVIDERS = (
    "RECENT_MESSAGES TIME CHARACTER ENTITIES RELATIONSHIPS WORLD ANXIETY ATTACHMENTS CAPABILITIES ACTIONS "
    "PROVIDERS EVALUATORS SETTINGS ROLES CHOICE ACTION_STATE FACTS CONTACTS MEMORY RECALL "
    "FINAL_RULES"
)
REGISTRY = Registry([plugin])


@pytest.mark.parametrize(
    ("called", "name"), [(word, name) for name, similes in SIMILES.items() for word in (name, *similes.split())]
)
def test_b1_an_action_is_found_by_its_name_and_by_every_simile(called: str, name: str) -> None:
    action = REGISTRY.find_action(called)
    assert action is not None
    assert action.spec.name == name


def test_b1_there_is_no_action_besides_those_of_the_documents() -> None:
    assert set(REGISTRY.actions) == set(SIMILES)


def test_b2_all_providers_are_there() -> None:
    assert set(REGISTRY.providers) == set(PROVIDERS.split())


def test_b3_reflection_is_found_by_its_similes() -> None:
    assert set(REGISTRY.evaluators) == {"REFLECTION", "SUMMARY"}
    spec = REGISTRY.evaluators["REFLECTION"].spec
    assert set(spec.similes) == {"REFLECT", "SELF_REFLECT", "EVALUATE_INTERACTION", "ASSESS_SITUATION"}
