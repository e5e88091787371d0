"""Commands, buttons, rules, membership and streamed replies."""

import asyncio
from typing import Annotated, Any

import pytest

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.commands import build_registration
from adapters.discord.emulator import Fault
from adapters.discord.emulator.state import THREAD
from bot import (
    ActionResult,
    Agent,
    ChannelType,
    Character,
    ChoiceRequest,
    CommandContext,
    Content,
    Effect,
    Outcome,
    Plugin,
    Room,
    Task,
    TaskTag,
    Turn,
    action,
    command,
    events,
    new_id,
    worker,
)
from bot.commands.dispatcher import MAX_COMMANDS
from bot.domain.ledger import Rule
from bot.events import RunEnded
from bot.models import Purpose
from bot.prompts import Authority
from bot.testing import AgentHarness, ScriptedModel, StreamedText, model_answer
from bot.user_texts import user_text
from tests.adapters.discord.server import EmulatedServer, receipts

pytestmark = pytest.mark.usefixtures("nothing_held_back")


def shown_of(server: EmulatedServer, interaction: str) -> list[dict[str, Any]]:
    """Return the responses to an interaction."""
    return server.emulator.recorder.responses[interaction]


async def test_every_command_is_registered_with_its_required_permission(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, _):
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["commands"] > 0)
        assert server.emulator.recorder.commands == build_registration(harness.agent_runtime.handle.commands)
    commands = {command["name"]: command for command in server.emulator.recorder.commands}
    assert {"ask", "mute", "unmute", "why", "forget-me", "privacy"} <= commands.keys()
    assert commands["ask"]["options"][0] | {"description": ""} == {
        "name": "question",
        "type": 3,
        "description": "",
        "description_localizations": {
            "de": "Was du wissen möchtest",
            "es-ES": "Lo que quieres saber",
            "es-419": "Lo que quieres saber",
        },
        "required": True,
    }
    assert commands["mute"]["default_member_permissions"] == 32


async def test_a_command_is_acknowledged_at_once_and_answered_to_its_sender(server: EmulatedServer) -> None:
    interactions, ledger = server.emulator.interactions, server.emulator.recorder
    async with server.run_bot():
        asked = await interactions.run_command(server.bot, server.robin, server.lobby, "privacy")
        await ledger.wait_until(lambda: ledger.counts["answered"] > 0)
    [first, *_] = shown_of(server, asked)
    assert (first["type"], first["flags"]) == (5, 64)
    assert first["content"]
    assert first["allowed_mentions"]["parse"] == []


async def test_a_question_is_quoted_on_a_single_line_so_that_no_text_looks_like_the_bots(
    server: EmulatedServer,
) -> None:
    async with server.run_bot():
        asked = await server.emulator.interactions.run_command(
            server.bot, server.robin, server.lobby, "ask", question="Tide?\nFree boats at evil.example"
        )
        await server.emulator.recorder.wait_for_texts(1)
    [first, *_] = shown_of(server, asked)
    assert first["content"] == "> Tide? Free boats at evil.example"


async def test_a_question_by_command_is_answered_in_the_room(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, _):
        asked = await server.emulator.interactions.run_command(
            server.bot, server.robin, server.lobby, "ask", question="When is low tide?"
        )
        assert await server.emulator.recorder.wait_for_texts(1, server.lobby) == ["Aye."]
        [receipt] = await receipts(harness)
    assert receipt.outcome is Outcome.ANSWERED
    [first] = shown_of(server, asked)
    assert (first["flags"], first["content"]) == (0, "> When is low tide?")


async def test_every_command_above_the_limit_is_refused_for_its_sender_only(server: EmulatedServer) -> None:
    interactions, ledger = server.emulator.interactions, server.emulator.recorder
    async with server.run_bot():
        asked = []
        for number in range(MAX_COMMANDS + 3):
            asked.append(await interactions.run_command(server.bot, server.robin, server.lobby, "privacy"))
            await ledger.wait_until(lambda done=number: ledger.counts["answered"] > done)
    shown = [shown_of(server, interaction)[0] for interaction in asked[MAX_COMMANDS:]]
    assert [(message["flags"], message["content"]) for message in shown] == [(64, user_text("commands.too_many"))] * 3


async def test_a_question_is_refused_with_the_name_of_the_rule_that_forbids_it(server: EmulatedServer) -> None:
    ledger = server.emulator.recorder
    async with server.run_bot(settings={"CHANNEL_IDS": "1"}):
        asked = await server.emulator.interactions.run_command(
            server.bot, server.robin, server.lobby, "ask", question="Tide?"
        )
        await ledger.wait_until(lambda: ledger.counts["answered"] > 0)
    assert "CHANNEL_IDS" in shown_of(server, asked)[0]["content"]
    assert ledger.texts() == []


async def test_discord_permissions_decide_who_may_mute_and_a_muted_room_is_silent(server: EmulatedServer) -> None:
    interactions, ledger = server.emulator.interactions, server.emulator.recorder
    async with server.run_bot() as (harness, _):
        refused = await interactions.run_command(server.bot, server.robin, server.lobby, "mute")
        await ledger.wait_until(lambda: ledger.counts["answered"] > 0)
        done = await interactions.run_command(server.bot, server.kim, server.lobby, "mute")
        await ledger.wait_until(lambda: ledger.counts["answered"] > 1)
        await server.emulator.people.say(server.lobby, server.robin, "anybody?")
        await server.emulator.people.say(server.lobby, server.robin, f"{server.call}?")
        assert await ledger.wait_for_texts(1) == ["Aye."]
        await server.emulator.people.say(server.lobby, server.robin, "and then?", reply_to=ledger.messages[0].id)
        await server.emulator.people.say(server.lobby, server.robin, f"{server.call}!")
        await ledger.wait_for_texts(2)
        all_receipts = await receipts(harness)
    assert shown_of(server, refused)[0]["content"] != shown_of(server, done)[0]["content"]
    assert [receipt.rule for receipt in all_receipts] == [
        "MUTED",
        "mention",
        "MUTED",
        "mention",
    ]  # a reply alone does not call it


@command("roll", "Roll dice.", ephemeral=False)
async def roll(asking: CommandContext, sides: Annotated[int, "How many sides"] = 6) -> str:
    """Roll a die that always shows its highest side."""
    return f"A {sides}."


async def test_a_public_response_of_a_plugin_command_is_shown_to_all(server: EmulatedServer) -> None:
    ledger = server.emulator.recorder
    async with server.run_bot(None, Plugin("dice", commands=[roll])):
        asked = await server.emulator.interactions.run_command(server.bot, server.robin, server.lobby, "roll", sides=20)
        await ledger.wait_until(lambda: ledger.counts["followed up"] > 0)
    first, second = shown_of(server, asked)
    assert first["is_gone"]
    assert (second["content"], second["flags"]) == ("A 20.", 0)


async def test_an_expired_interaction_has_no_other_effect(server: EmulatedServer) -> None:
    ledger = server.emulator.recorder
    server.emulator.faults.append(Fault(r"POST .*/callback$", 404, {"code": 10062}))
    async with server.run_bot():
        await server.emulator.interactions.run_command(server.bot, server.robin, server.lobby, "privacy")
        await ledger.wait_until(lambda: ledger.counts["fault"] > 0)
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await ledger.wait_for_texts(1) == ["Aye."]


async def test_an_export_is_a_file_that_only_the_sender_sees(server: EmulatedServer) -> None:
    interactions, ledger = server.emulator.interactions, server.emulator.recorder
    async with server.run_bot():
        asked = await interactions.run_command(server.bot, server.robin, server.lobby, "export-me")
        await ledger.wait_until(lambda: ledger.counts["followed up"] > 0)
    first, second = shown_of(server, asked)
    assert "everything that I store" in first["content"]
    assert second["flags"] == 64
    assert [name[-4:] for name in second["files"]] == [".zip"]


async def test_a_confirmation_has_buttons_and_pressing_a_button_executes_it(server: EmulatedServer) -> None:
    interactions, ledger, people = server.emulator.interactions, server.emulator.recorder, server.emulator.people
    async with server.run_bot() as (harness, _):
        await people.say(server.lobby, server.robin, f"{server.call} remember me")
        await ledger.wait_for_texts(1)
        await receipts(harness)
        asked = await interactions.run_command(server.bot, server.robin, server.lobby, "forget-me")
        await ledger.wait_until(lambda: ledger.counts["answered"] > 0)
        [row] = shown_of(server, asked)[0]["components"]
        message = {"id": "1", "channel_id": server.lobby, "content": "", **_MESSAGE}
        message["author"] = server.emulator.state.users[server.bot]
        pressed = await interactions.press_component(
            server.bot, server.robin, message, row["components"][0]["custom_id"]
        )
        await ledger.wait_until(lambda: ledger.counts["followed up"] > 0)
    assert [bool(message["content"]) for message in interactions.visible_messages(server.lobby).values()] == [
        True,
        True,
    ]
    first, second = shown_of(server, pressed)
    assert first["type"] == 6
    assert (second["flags"], bool(second["content"])) == (64, True)


_MESSAGE = {
    "type": 0,
    "timestamp": "2026-01-01T00:00:00+00:00",
    "edited_timestamp": None,
    "attachments": [],
    "embeds": [],
    "mentions": [],
    "mention_roles": [],
    "mention_everyone": False,
    "pinned": False,
    "tts": False,
}


async def test_a_choice_is_offered_as_buttons_and_the_pressed_button_is_chosen(server: EmulatedServer) -> None:
    chosen: asyncio.Queue[str] = asyncio.Queue()

    @worker("SET_SAIL")
    async def set_sail(agent: Agent, task: Task) -> None:
        chosen.put_nowait(task.metadata["choice"])

    @action("OFFER", "Offer a choice.", authority=Authority.harmless("it only asks"))
    async def offer(turn: Turn) -> None:
        request = ChoiceRequest(("North", "South"), choosers=(str(turn.author.id),))
        tags = frozenset({TaskTag.AWAITING_CHOICE})
        task = Task(
            new_id(),
            "SET_SAIL",
            turn.agent.clock(),
            "",
            turn.room.id,
            turn.world.id,
            tags=tags,
            metadata=request.to_metadata(),
        )
        await turn.agent.store.tasks.save_task(task)
        await turn.reply(Content(text="Where to?", choices=request.choices(task.id)))

    sailing = Plugin("sailing", actions=[offer], workers=[set_sail])
    interactions, ledger = server.emulator.interactions, server.emulator.recorder
    async with server.run_bot(ScriptedModel(model_answer("", actions=["OFFER"])), sailing):
        await server.emulator.people.say(server.lobby, server.robin, f"{server.call} sail!")
        await ledger.wait_for_texts(1)
        [shown] = ledger.messages
        message = server.emulator.state.messages[server.lobby][shown.id]
        buttons = message["components"][0]["components"]
        assert [button["label"] for button in buttons] == ["North", "South"]
        await interactions.press_component(server.bot, server.kim, message, buttons[0]["custom_id"])
        await ledger.wait_until(lambda: ledger.counts["followed up"] > 0)  # it is not Kim's to choose
        await interactions.press_component(server.bot, server.robin, message, buttons[1]["custom_id"])
        async with asyncio.timeout(30):
            assert await chosen.get() == "South"


async def test_every_message_that_a_rule_drops_has_a_receipt_that_names_it(server: EmulatedServer) -> None:
    state, people = server.emulator.state, server.emulator.people
    listened, strict, gone = (state.add_channel(server.guild, name) for name in ("listened", "strict", "gone"))
    thread = state.add_channel(server.guild, "inside", 11, server.lobby)
    rooms = {strict: {"answers": "mentions"}, gone: {"answers": "ignore"}}
    character = Character(name="Ada", settings={"discord": {"rooms": rooms}})
    settings = {
        "CHANNEL_IDS": f"{server.lobby},{listened},{strict},{gone}",
        "DISCORD_LISTEN_CHANNEL_IDS": listened,
        "DISCORD_SHOULD_IGNORE_DIRECT_MESSAGES": "true",
    }
    elsewhere = state.add_channel(server.guild, "elsewhere")
    direct = server.direct(server.kim)
    async with server.run_bot(character=character, settings=settings) as (harness, _):
        for channel in (elsewhere, listened, gone, direct):
            await people.say(channel, server.kim, f"{server.call} ahoy")
        await people.say(strict, server.kim, "ahoy")
        await people.say(thread, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1, thread) == ["Aye."]
        all_receipts = await receipts(harness)
    assert [receipt.rule for receipt in all_receipts] == [
        "CHANNEL_IDS",
        "DISCORD_LISTEN_CHANNEL_IDS",
        "DISCORD_SHOULD_IGNORE_DIRECT_MESSAGES",
        f"settings.discord.rooms.{strict} (mentions)",
        "mention",
    ]
    assert len(server.emulator.recorder.texts()) == 1


async def test_messages_of_other_bots_are_stored_unless_switched_off(server: EmulatedServer) -> None:
    other = server.emulator.state.add_user("Beep", is_bot=True)
    ignoring = {"DISCORD_SHOULD_IGNORE_BOT_MESSAGES": "true"}
    for settings, rules in (({}, ["RESPOND_TO_BOTS", "mention"]), (ignoring, ["mention"])):
        async with server.run_bot(settings=settings) as (harness, _):
            await server.emulator.people.say(server.lobby, other, f"{server.call} beep")
            await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
            count = len(server.emulator.recorder.messages)
            await server.emulator.recorder.wait_for_texts(count + 1)
            all_receipts = await receipts(harness)
        assert [receipt.rule for receipt in all_receipts][-len(rules) :] == rules


async def test_membership_changes_of_bot_and_members_are_reported(server: EmulatedServer) -> None:
    state, people = server.emulator.state, server.emulator.people
    heard: list[str] = []
    island = state.add_guild("Island", server.robin)
    state.add_channel(island, "beach")
    newcomer = state.add_user("Nell")
    async with server.run_bot(settings={"DISCORD_MEMBERS_INTENT": "true"}) as (harness, _):
        for kind in ("WorldJoined", "WorldLeft", "EntityJoined", "EntityLeft", "RoomJoined", "RoomLeft"):
            _note(harness, kind, heard)
        await people.invite(island, server.bot)
        await people.join(server.guild, newcomer)
        await people.leave(server.guild, newcomer)
        pier = await people.open_channel(server.guild, "pier")
        await people.close_channel(pier)
        await people.expel(island, server.bot)
        await people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(1)
        await receipts(harness)
    assert heard == ["WorldJoined", "EntityJoined", "EntityLeft", "RoomJoined", "RoomLeft", "WorldLeft"]


def _note(harness: AgentHarness, kind: str, heard: list[str]) -> None:
    async def hear(event: object) -> None:
        heard.append(kind)

    harness.agent.events.subscribe(getattr(events, kind), hear, name=kind)


@pytest.mark.long
async def test_a_streamed_reply_is_a_single_message_that_is_edited(server: EmulatedServer) -> None:
    more = asyncio.Event()
    written = StreamedText(
        "<response><actions>REPLY</actions><text>The tide is", more, " low at six.</text></response>"
    )
    ledger = server.emulator.recorder
    async with server.run_bot(ScriptedModel(written), settings={"STREAMING": "true"}):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} tide?")
        assert await ledger.wait_for_texts(1) == ["The tide is"]
        more.set()
        await ledger.wait_until(lambda: ledger.texts() == ["The tide is low at six."])
    assert len(ledger.messages) == 1


def test_a_draft_is_edited_at_most_once_a_second() -> None:
    room = Room(new_id(), new_id(), ChannelType.GROUP, "discord", "1")
    assert (DiscordAdapter([]).stream_interval(room) or 0.0) >= 1.0


@pytest.mark.parametrize("answer", ["yes", "Yes, {code} please", "👍"])
async def test_a_question_in_a_direct_message_is_confirmed_by_a_yes_or_a_thumbs_up(
    server: EmulatedServer, answer: str
) -> None:
    bought: asyncio.Queue[str] = asyncio.Queue()

    @action("BUY", "Buy something.", authority=Authority.confirmed())
    async def buy(turn: Turn) -> None:
        bought.put_nowait(turn.author.name)

    ledger, people = server.emulator.recorder, server.emulator.people
    place = server.direct(server.robin)
    model = ScriptedModel(model_answer("", actions=["BUY"]))
    async with server.run_bot(model, Plugin("shop", actions=[buy])):
        await people.say(place, server.robin, "Buy tea")
        [question] = await ledger.wait_for_texts(1)
        if answer == "👍":
            await people.react(place, ledger.messages[0].id, server.robin, answer)
        else:
            await people.say(place, server.robin, answer.format(code=question[-5:]))
        async with asyncio.timeout(10):
            assert await bought.get() == "Rob"


# Replies on Discord that wait for approvers in a channel of theirs.


def texts_in(server: EmulatedServer, channel: str) -> list[str]:
    """Return what the bot has written in a channel, as it is now."""
    messages = server.emulator.state.messages[channel].values()
    return [message["content"] for message in messages if message["author"]["id"] == server.bot]


def buttons_of(message: dict[str, Any]) -> dict[str, str]:
    """Return the values of the buttons of a message by their labels."""
    return {item["label"]: item["custom_id"] for row in message["components"] for item in row["components"]}


async def test_approvers_send_a_draft_with_a_button_once(server: EmulatedServer) -> None:
    interactions, people, recorder = (server.emulator.interactions, server.emulator.people, server.emulator.recorder)
    approvers = server.emulator.state.add_channel(server.guild, "approvers")
    settings = {
        "APPROVAL": "rooms",
        "APPROVAL_ROOMS": f"discord:{server.lobby}",
        "OPERATORS_ROOM": f"discord:{approvers}",
    }
    model = ScriptedModel(model_answer("It is a fern."))
    async with server.run_bot(model, settings=settings) as (harness, _):
        await people.say(server.lobby, server.robin, f"{server.call} what is this?")
        await recorder.wait_until(lambda: len(texts_in(server, approvers)) == 1)
        assert texts_in(server, server.lobby) == []
        [card] = [
            message
            for message in server.emulator.state.messages[approvers].values()
            if message["author"]["id"] == server.bot
        ]
        buttons = buttons_of(card)
        assert list(buttons) == ["Send", "Edit", "Drop", "Take over"]
        await interactions.press_component(server.bot, server.robin, card, buttons["Send"])  # who is no approver
        await recorder.wait_until(lambda: recorder.counts["followed up"] > 0)
        assert texts_in(server, server.lobby) == []
        for count in (2, 3):
            await interactions.press_component(server.bot, server.kim, card, buttons["Send"])
            await recorder.wait_until(lambda count=count: recorder.counts["followed up"] >= count)
        await recorder.wait_until(lambda: "already sent by Kim" in texts_in(server, approvers)[0])
        await harness.agent.outbox.drain(10)
        assert texts_in(server, server.lobby) == ["It is a fern."]
        [card] = [item for item in server.emulator.state.messages[approvers].values() if item["id"] == card["id"]]
        assert not card["components"]


async def test_an_approver_takes_over_instead_of_sending_and_gives_back_with_buttons(server: EmulatedServer) -> None:
    interactions, people, recorder = (server.emulator.interactions, server.emulator.people, server.emulator.recorder)
    approvers = server.emulator.state.add_channel(server.guild, "approvers")
    settings = {"APPROVAL": "all", "OPERATORS_ROOM": f"discord:{approvers}"}
    async with server.run_bot(ScriptedModel(model_answer("It is a fern.")), settings=settings) as (harness, _):
        held = harness.agent.store.take_overs.current
        await people.say(server.lobby, server.robin, f"{server.call} what is this?")
        await recorder.wait_until(lambda: len(texts_in(server, approvers)) == 1)
        messages = server.emulator.state.messages[approvers]
        [card] = [message for message in messages.values() if message["author"]["id"] == server.bot]
        await interactions.press_component(server.bot, server.robin, card, buttons_of(card)["Take over"])
        await recorder.wait_until(lambda: recorder.counts["followed up"] > 0)
        assert not held  # Robin is no admin
        pressed = await interactions.press_component(server.bot, server.kim, card, buttons_of(card)["Take over"])
        await recorder.wait_until(lambda: recorder.counts["followed up"] > 1)
        assert [take_over.name for take_over in held.values()] == ["Kim"]
        await recorder.wait_until(lambda: "already dropped by Kim" in texts_in(server, approvers)[0])
        shown = recorder.responses[pressed][-1]
        await interactions.press_component(server.bot, server.kim, card, buttons_of(shown)["Give back"])
        await recorder.wait_until(lambda: not held)
        assert texts_in(server, server.lobby) == []


async def test_an_action_runs_once_an_approver_presses_its_button(server: EmulatedServer) -> None:
    interactions, people, recorder = (server.emulator.interactions, server.emulator.people, server.emulator.recorder)
    approvers = server.emulator.state.add_channel(server.guild, "approvers")
    booked: list[str] = []

    @action("BOOK", "Book a table.", effect=Effect.UNSAFE)
    async def book(turn: Turn, place: str) -> ActionResult:
        booked.append(place)
        return ActionResult()

    settings = {
        "APPROVAL": "rooms",
        "APPROVAL_ROOMS": f"discord:{server.lobby}",
        "OPERATORS_ROOM": f"discord:{approvers}",
    }
    model = ScriptedModel(model_answer("Booked.", actions=["BOOK"], parameters={"BOOK": {"place": "the garden"}}))
    plugin = Plugin("booking", "Books tables.", actions=[book])
    async with server.run_bot(model, plugin, settings=settings) as (harness, _):
        await people.say(server.lobby, server.robin, f"{server.call} book the garden")
        await recorder.wait_until(lambda: len(texts_in(server, approvers)) == 1)
        [card] = [
            message
            for message in server.emulator.state.messages[approvers].values()
            if message["author"]["id"] == server.bot
        ]
        assert card["content"].endswith('BOOK\nplace: "the garden"')
        buttons = buttons_of(card)
        assert list(buttons) == ["Run", "Drop", "Take over"]
        await interactions.press_component(server.bot, server.robin, card, buttons["Run"])  # who is no approver
        await recorder.wait_until(lambda: recorder.counts["followed up"] > 0)
        assert booked == []
        for count in (2, 3):
            await interactions.press_component(server.bot, server.kim, card, buttons["Run"])
            await recorder.wait_until(lambda count=count: recorder.counts["followed up"] >= count)
        await recorder.wait_until(lambda: len(texts_in(server, approvers)) == 2)  # the reply waits as any other
        await harness.agent.outbox.drain(10)
        assert (booked, texts_in(server, server.lobby)) == (["the garden"], [])
        assert "already approved by Kim" in texts_in(server, approvers)[0]
        assert texts_in(server, approvers)[1].endswith("Booked.")


# A moderator takes a Discord channel over, is shown the button that gives it back, and gives it back.


async def test_a_moderator_takes_a_channel_over_and_gives_it_back(server: EmulatedServer) -> None:
    interactions, recorder, people = server.emulator.interactions, server.emulator.recorder, server.emulator.people
    async with server.run_bot() as (harness, _):
        await interactions.run_command(server.bot, server.robin, server.lobby, "take-over")
        await recorder.wait_until(lambda: recorder.counts["answered"] > 0)
        assert not harness.agent.store.take_overs.current  # Robin may not manage the server
        asked = await interactions.run_command(server.bot, server.kim, server.lobby, "take-over")
        await recorder.wait_until(lambda: recorder.counts["answered"] > 1)
        has_ended = asyncio.Event()
        harness.agent.events.subscribe(RunEnded, lambda event: has_ended.set(), at_once=True)
        await people.say(server.lobby, server.robin, f"{server.call} hello?")
        await has_ended.wait()
        [silent] = await receipts(harness)
        assert silent.rule == Rule.TAKEN_OVER
        [shown] = recorder.responses[asked]
        [row] = shown["components"]
        [button] = row["components"]
        assert button["label"] == "Give back"
        await interactions.run_command(server.bot, server.kim, server.lobby, "give-back")
        await recorder.wait_until(lambda: recorder.counts["answered"] > 2)
        await people.say(server.lobby, server.robin, f"{server.call} and now?")
        assert await recorder.wait_for_texts(1) == ["Aye."]


# An operator's walk on a Discord server: four channels and a thread, each with instructions of its own.
WORDS = ("harbour", "version", "short", "German", "Latin", "Klingon")


@pytest.mark.long
async def test_each_channel_of_a_server_is_answered_by_its_own_instructions(server: EmulatedServer) -> None:
    state, people, recorder = server.emulator.state, server.emulator.people, server.emulator.recorder
    interactions = server.emulator.interactions
    help_, german, archive = (state.add_channel(server.guild, name) for name in ("help", "deutsch", "archive"))
    model = ScriptedModel(model_answer("Aye."))
    rooms = {"help": {"instructions": "Ask for the version first."}, f"discord:{server.guild}": {"notes": "A harbour."}}
    character = Character.model_validate({"name": "Ada", "rooms": rooms})

    async with server.run_bot(model, character=character) as (harness, _):
        answered = 0

        async def set_(user: str, channel: str, key: str, value: str) -> None:
            nonlocal answered
            answered += 1
            await interactions.run_command(server.bot, user, channel, "room", action="set", key=key, value=value)
            await recorder.wait_until(lambda: recorder.counts["answered"] >= answered)

        async def ask(channel: str, text: str = "") -> set[str]:
            """Return the words of instructions in the system prompt of the answer."""
            count = len(recorder.messages)
            await people.say(channel, server.robin, text or f"{server.call} ahoy")
            await recorder.wait_for_texts(count + 1)
            system = [item.system for item in model.requests if item.purpose is Purpose.REPLY][-1]
            return {word for word in WORDS if word in system}

        await set_(server.robin, server.lobby, "language", "Klingon")  # Robin is no admin
        await set_(server.kim, server.lobby, "world.length", "short")
        await set_(server.kim, german, "language", "German")
        await set_(server.kim, archive, "answer", "listen")
        assert await ask(server.lobby) == {"harbour", "short"}
        assert await ask(help_) == {"harbour", "short", "version"}
        assert await ask(german) == {"harbour", "short", "German"}
        thread = await people.open_channel(server.guild, "Fragen", THREAD, german)
        assert await ask(thread) == {"harbour", "short", "German"}
        in_help = await people.open_channel(server.guild, "crash", THREAD, help_)
        assert await ask(in_help) == {"harbour", "short", "version"}
        await set_(server.kim, thread, "language", "Latin")
        assert await ask(thread) == {"harbour", "short", "Latin"}
        await people.say(archive, server.robin, f"{server.call} ahoy")
        await set_(server.kim, archive, "answer", "always")
        await ask(archive, "It rains.")
        outcomes = [(receipt.outcome, receipt.rule) for receipt in await receipts(harness)][-2:]
    assert outcomes == [(Outcome.IGNORED, "room: answer"), (Outcome.ANSWERED, "room: answer")]
