"""The bootstrap plugin: basic actions, providers, reflection, embeddings and the run log."""

from bot import Agent, Plugin
from plugins.bootstrap.actions.messages import (
    choice,
    choose_option,
    generate_image,
    ignore,
    none,
    open_thread,
    react,
    register_call_a_person,
    reply,
    send_message,
)
from plugins.bootstrap.actions.people import register_update_entity, update_contact
from plugins.bootstrap.actions.permissions import (
    follow_room,
    mute_room,
    register_update_settings,
    unfollow_room,
    unmute_room,
    update_role,
    update_settings,
)
from plugins.bootstrap.commands import list_known_facts
from plugins.bootstrap.evaluators.facts import SharedFacts, on_consent_erased, share_my_facts
from plugins.bootstrap.evaluators.reflection import Reflections, on_channel_cleared, on_message_received, reflection
from plugins.bootstrap.evaluators.summary import Summaries, count_towards_summary, show_summary, summarize_room
from plugins.bootstrap.listeners import (
    EmbeddingBackfill,
    RunLogs,
    action_completed,
    action_started,
    evaluator_completed,
    evaluator_started,
    model_used,
    run_ended,
    run_started,
)
from plugins.bootstrap.providers.capabilities import (
    action_state,
    actions,
    capabilities,
    character,
    evaluators,
    facts,
    final_rules,
    providers,
)
from plugins.bootstrap.providers.conversation import (
    HistoryStarts,
    anxiety,
    attachments,
    contacts,
    entities,
    memory,
    recall,
    recent_messages,
    register_owner_settings,
    relationships,
    roles,
    settings,
    time,
    world,
)


async def _register_on_demand(agent: Agent) -> None:
    """Register what only agents need whose plugins declare something for it."""
    await register_update_entity(agent)
    await register_update_settings(agent)
    await register_owner_settings(agent)
    await register_call_a_person(agent)


plugin = Plugin(
    "bootstrap",
    "What a conversation needs: the basic actions, and the providers for the prompt.",
    actions=[
        reply,
        ignore,
        none,
        react,
        open_thread,
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
        contacts,
        facts,
        final_rules,
        memory,
        recall,
        time,
        action_state,
    ],
    evaluators=[reflection, summarize_room],
    commands=[list_known_facts, share_my_facts, show_summary],
    listeners=[
        on_message_received,
        on_channel_cleared,
        count_towards_summary,
        run_started,
        action_started,
        action_completed,
        evaluator_started,
        evaluator_completed,
        model_used,
        run_ended,
        on_consent_erased,
    ],
    services=[HistoryStarts, Reflections, Summaries, RunLogs, EmbeddingBackfill, SharedFacts],
    init=_register_on_demand,
)
