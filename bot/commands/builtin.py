"""/why, /mute, /take-over, /privacy, /forget-me, /ignore-me, /export-me, /help and their texts.

/settings: shows and sets what plugins let the owners of worlds decide, secrets too.
"""

import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from random import Random
from typing import Annotated, Any, Literal
from uuid import UUID

from bot.commands.dispatcher import format_parameters
from bot.domain.character import CommandSpec, WorldSettingState
from bot.domain.content import Attachment, Choice, Content, MediaKind, MentionContext
from bot.domain.environment import (
    Entity,
    MarkedPerson,
    MarkOrigin,
    ParticipantState,
    PersonMark,
    Role,
    Room,
    TakeOver,
    World,
)
from bot.domain.ids import derived_id, new_id, short_id
from bot.domain.inbound import ERASURE_COMPONENT, CommandInvocation, CommandResponse, ErasureResult, InboundMessage
from bot.domain.instructions import MODEL_SIZES, RoomInstructions
from bot.domain.ledger import EventKey, Receipt, Rule
from bot.domain.memory import Memory, MemoryKind
from bot.errors import SettingError
from bot.inbound.edits import EditReporter
from bot.inbound.inbox import Inbox
from bot.models.types import ModelType
from bot.operate.people import ArchiveTooLarge, write_person_archive
from bot.operate.results import name_room
from bot.operate.rooms import change_instructions, describe_instructions, end_take_overs
from bot.outbound.proposals import ApprovalSettings, ProposalDecision
from bot.pipeline.attention import Responsiveness
from bot.pipeline.filters import FILTER_WORDS
from bot.plugin_system.components import Command, CommandContext, command
from bot.plugin_system.plugin import Plugin
from bot.receipts import COMMAND_RULE, describe_receipt
from bot.settings import OFF, CoreSettings, Settings, room_setting
from bot.text import redactor_of, sanitize_name, shorten
from bot.turn import AI_NOTICE, MINORS, Agent
from bot.user_texts import english_text, format_seconds, translate, translate_message, user_text

SETTINGS_COMMAND = "settings"
SELECT, DEFAULT = "use", "default"
SELECTION_TTL = timedelta(days=1)
MAX_FILTER_WORDS_LENGTH = 1_000
MAX_SHOWN_VALUE = 200


def build_settings_command() -> Command[Any]:
    """Return the command; its role is required in a room of several people, in a direct one ownership counts."""
    description = english_text("commands.settings.description")
    return command(SETTINGS_COMMAND, description, role=Role.OWNER, open_in_direct=True)(run_settings)


async def run_settings(
    context: CommandContext,
    name: Annotated[str, "Which setting; nothing to list them"] = "",
    value: Annotated[str, "Its new value, or default to remove it"] = "",
) -> CommandResponse:
    """List the settings of a world, show one, or set one."""
    worlds = await _find_worlds(context)
    if not worlds:
        return CommandResponse(user_text("commands.settings.no_world"))
    if name == SELECT:
        return await _select(context, worlds, value.strip())
    world = worlds[0] if len(worlds) == 1 else await _selected(context, worlds)
    if world is None:
        return _ask_which(worlds)
    if not name:
        return CommandResponse(await _describe_world(context, world))
    name = name.upper().replace("-", "_")
    if not value.strip():
        return CommandResponse(await _describe_setting(context, world, name))
    return CommandResponse(await _set(context, world, name, value.strip()))


async def _find_worlds(context: CommandContext) -> list[World]:
    """Return the world of the room where its owner asks; in a direct chat, also the others that they own."""
    agent, invocation = context.agent, context.invocation
    is_direct = invocation.room.type.is_direct
    worlds = await agent.world_settings.worlds_of(invocation.author.id) if is_direct else []
    if context.role is Role.OWNER and all(world.id != invocation.world.id for world in worlds):
        stored = await agent.store.worlds.world(invocation.world.id)
        if stored is None:
            await agent.store.worlds.save_world(invocation.world, [invocation.room])
        worlds.append(stored or invocation.world)
    return worlds


async def _select(context: CommandContext, worlds: Sequence[World], title: str) -> CommandResponse:
    world = next((world for world in worlds if title in (short_id(world.id), world.name)), None)
    if world is None:
        return _ask_which(worlds)
    expires_at = context.agent.clock() + SELECTION_TTL
    await context.agent.store.cache.set(_selection_key(context), str(world.id), expires_at=expires_at)
    return CommandResponse(await _describe_world(context, world))


async def _selected(context: CommandContext, worlds: Sequence[World]) -> World | None:
    selected = await context.agent.store.cache.get(_selection_key(context))
    world_id = UUID(selected) if selected else None
    return next((world for world in worlds if world.id == world_id), None)


def _selection_key(context: CommandContext) -> str:
    return f"settings-world:{context.invocation.author.id}"


def _ask_which(worlds: Sequence[World]) -> CommandResponse:
    choices = [Choice(_title(world), f"/{SETTINGS_COMMAND} {SELECT} {short_id(world.id)}") for world in worlds]
    lines = [f"{choice.value}  {choice.label}" for choice in choices]
    return CommandResponse("\n".join([user_text("commands.settings.which"), *lines]), choices=tuple(choices))


async def _describe_world(context: CommandContext, world: World) -> str:
    states = await context.agent.world_settings.states(world)
    heading = user_text("commands.settings.heading", world=_title(world))
    lines = [f"{state.spec.name}: {_describe_value(state)}  {state.spec.description}" for state in states]
    return "\n".join([heading, *lines, user_text("commands.settings.how")])


async def _describe_setting(context: CommandContext, world: World, name: str) -> str:
    states = await context.agent.world_settings.states(world)
    state = next((state for state in states if state.spec.name == name), None)
    if state is None:
        problem = await context.agent.world_settings.find_problem(world, name, "?")
        return user_text("commands.settings.refused", cause=translate_message(problem or name))
    lines = [f"{name}: {_describe_value(state)}", state.spec.description, state.spec.usage]
    return "\n".join(line for line in lines if line)


async def _set(context: CommandContext, world: World, name: str, value: str) -> str:
    """Set a setting; return what has changed and which required one is still missing."""
    settings, invocation = context.agent.world_settings, context.invocation
    spec = next((spec for spec in context.agent.catalog.world_settings if spec.name == name), None)
    is_secret = spec is not None and spec.is_secret
    if is_secret and not invocation.room.type.is_direct:
        return user_text("commands.settings.secret_elsewhere", name=name)
    value = "" if value.casefold() == DEFAULT else value
    try:
        note = await settings.change(world.id, name, value, actor=invocation.author.id, source=f"/{SETTINGS_COMMAND}")
    except SettingError as error:
        return user_text("commands.settings.refused", cause=translate_message(str(error)))
    done = user_text("commands.settings.set" if value else "commands.settings.removed", name=name, world=_title(world))
    hint = user_text("commands.settings.delete_message") if is_secret and value else ""
    changed = await context.agent.store.worlds.world(world.id) or world
    missing = [state for state in await settings.states(changed) if state.spec.is_required and not state.value]
    needed = [
        user_text("commands.settings.missing", name=state.spec.name, usage=_explain(state)) for state in missing[:1]
    ]
    return "\n".join(line for line in (done, note, hint, *needed) if line)


def _explain(state: WorldSettingState) -> str:
    return " ".join(text for text in (state.spec.description, state.spec.usage) if text)


def _describe_value(state: WorldSettingState) -> str:
    if state.spec.is_secret:
        return user_text("commands.settings.is_set" if state.is_set else "commands.settings.not_set")
    return shorten(state.value, MAX_SHOWN_VALUE) or user_text("commands.settings.not_set")


def _title(world: World) -> str:
    return f"{sanitize_name(world.name or world.external_id)} ({world.platform})"


CONFIRMATION_TTL = timedelta(minutes=10)
MAX_SCANNED_RECEIPTS = 50
WHY_COMMAND, FORGET_COMMAND, EXPORT_COMMAND, IGNORE_COMMAND = "why", "forget-me", "export-me", "ignore-me"
TAKE_OVER_COMMAND, GIVE_BACK_COMMAND, ROOM_PREFIX = "take-over", "give-back", "room:"
RESPONSIVENESS = "RESPONSIVENESS"
WORLD_PREFIX = "world."
OWNER_ACCOUNTS, OPERATORS_ROOM = "OWNER_ACCOUNTS", "OPERATORS_ROOM"
MAX_PARTICIPANTS = 200  # who wrote last in a room, among whom a person is looked for
EXPORT_INTERVAL = FORGET_INTERVAL = timedelta(minutes=10)  # both read all memories
MAX_EXPORT_BYTES = 8_000_000  # platforms refuse larger files
TOO_LARGE = "too large"  # what the last attempt came to, if no file
ERASURE_LOG_KIND = "command"  # the kind of log entry for an erasure


class BuiltinCommands:
    """The commands of every bot."""

    def __init__(
        self, inbox: Inbox, edits: EditReporter, plugins: Sequence[Plugin], secrets: Collection[str] = ()
    ) -> None:
        self._inbox, self._edits, self._plugins = inbox, edits, tuple(plugins)
        self._secrets = frozenset(secrets)
        self._exporting: set[UUID] = set()  # people whose file is being written
        self._forgetting: set[UUID] = set()  # people whose data is being deleted

    def commands(self) -> list[Command[Any]]:
        """Return the commands, in the order of /help."""
        for_admins = partial(command, role=Role.ADMIN, open_in_direct=True)
        return [
            command("ask", english_text("commands.ask.description"))(self.ask),
            command("stop", english_text("commands.stop.description"))(self.stop),
            command(WHY_COMMAND, english_text("commands.why.description"))(self.why),
            for_admins("mute", english_text("commands.mute.description"))(self.mute),
            for_admins("unmute", english_text("commands.unmute.description"))(self.unmute),
            for_admins(TAKE_OVER_COMMAND, english_text("commands.take_over.description"))(self.take_over),
            for_admins(GIVE_BACK_COMMAND, english_text("commands.give_back.description"))(self.give_back),
            command("responsiveness", english_text("commands.responsiveness.description"), role=Role.ADMIN)(
                self.responsiveness
            ),
            command("room", english_text("commands.room.description"), role=Role.ADMIN)(self.room),
            command("drafts", english_text("commands.drafts.description"), role=Role.ADMIN)(self.drafts),
            command("minors", english_text("commands.minors.description"), role=Role.ADMIN)(self.minors),
            command("filter-words", english_text("commands.filter_words.description"), role=Role.ADMIN)(
                self.filter_words
            ),
            command("privacy", english_text("commands.privacy.description"))(self.privacy),
            command(FORGET_COMMAND, english_text("commands.forget_me.description"))(self.forget_me),
            command(IGNORE_COMMAND, english_text("commands.ignore_me.description"))(self.ignore_me),
            command(EXPORT_COMMAND, english_text("commands.export_me.description"))(self.export_me),
            command("help", english_text("commands.help.description"))(self.help),
            command("start", english_text("commands.start.description"))(self.start),
            *([build_settings_command()] if any(plugin.world_settings for plugin in self._plugins) else ()),
        ]

    async def ask(self, context: CommandContext, question: Annotated[str, "What you want to know"]) -> CommandResponse:
        """Submit a question; it is answered like any message that mentions the agent."""
        if context.invocation.author.id in context.agent.store.marks.not_read:
            return CommandResponse(user_text("commands.ask.not_read", command=IGNORE_COMMAND))
        return CommandResponse(receipt=await self._inbox.submit(build_question(context.invocation, question)))

    async def stop(self, context: CommandContext) -> str:
        """Stop what the person has asked for in the room; all that goes on there, if they decide about it."""
        invocation = context.invocation
        author_id = None if context.is_room_admin else invocation.author.id
        stopped = self._edits.stop_room(invocation.room.id, author_id)
        if not stopped:
            return user_text("commands.stop.nothing")
        actions = ", ".join(name for names in stopped.values() for name in names)
        return user_text("commands.stop.under_way", actions=actions) if actions else user_text("commands.stop.done")

    async def why(self, context: CommandContext) -> str:
        """Explain the outcome of the person's last message or command; of the room's last, if they decide about it."""
        invocation, ledger = context.invocation, context.agent.store.ledger
        receipts = await ledger.receipts(room_id=invocation.room.id, limit=MAX_SCANNED_RECEIPTS)
        candidates = (
            receipt
            for receipt in receipts
            if receipt.rule != COMMAND_RULE
            and not (receipt.rule == Rule.COMMAND and receipt.reason == f"/{WHY_COMMAND}")
            and (context.is_room_admin or receipt.author_id == invocation.author.id)
        )
        last_receipt: Receipt | None = next(candidates, None)
        if last_receipt is None:
            return user_text("commands.why.no_message")
        return describe_outcome(last_receipt, context.agent.name)

    async def mute(self, context: CommandContext) -> str:
        """Answer in the room only when named."""
        await context.agent.store.worlds.set_participant_state(context.invocation.room.id, ParticipantState.MUTED)
        return user_text("commands.mute.done")

    async def unmute(self, context: CommandContext) -> str:
        """Answer in the room as usual."""
        await context.agent.store.worlds.set_participant_state(context.invocation.room.id, ParticipantState.DEFAULT)
        return user_text("commands.unmute.done")

    async def take_over(
        self,
        context: CommandContext,
        whom: Annotated[str, "Only this person of the room; nothing for the whole room"] = "",
        reason: Annotated[str, "Why"] = "",
    ) -> CommandResponse:
        """Be silent in the room, or for one person there, until it is given back: a person answers."""
        agent, author = context.agent, context.invocation.author
        place = await _find_place(context, whom)
        if isinstance(place, str):
            return CommandResponse(place)
        room, person = place
        name = sanitize_name(author.name)
        take_over = TakeOver(
            room.id,
            name,
            f"/{TAKE_OVER_COMMAND}",
            agent.clock(),
            None if person is None else person.id,
            author.id,
            shorten(reason, MAX_SHOWN_VALUE),
        )
        held = await self._edits.take_over(take_over)
        is_here = room.id == context.invocation.room.id
        whom = "" if is_here and person is None else short_id(person.id) if person else f"{ROOM_PREFIX}{room.id}"
        button = Choice(user_text("commands.take_over.button"), f"/{GIVE_BACK_COMMAND} {whom}".strip())
        if held != take_over:
            text = user_text("commands.take_over.already", take_over=held)
        elif person is not None:
            text = user_text("commands.take_over.done_person", name=name, person=sanitize_name(person.name))
        elif is_here:
            text = user_text("commands.take_over.done", name=name)
        else:
            text = user_text("commands.take_over.done_elsewhere", name=name, room=_title_of(room))
        return CommandResponse(text, choices=(button,))

    async def give_back(
        self,
        context: CommandContext,
        whom: Annotated[str, "Only this person of the room; nothing for the whole room"] = "",
    ) -> str:
        """Answer again in a room that a person has taken over, or one person there."""
        agent = context.agent
        place = await _find_place(context, whom)
        if isinstance(place, str):
            return place
        room, person = place
        now = agent.clock()
        ended = await end_take_overs(agent.store, room.id, None if person is None else person.id, now)
        if not ended:
            return user_text("commands.give_back.nothing")
        time = format_seconds((now - ended[0].since).total_seconds())
        return user_text("commands.give_back.done", name=ended[0].name, time=time)

    async def responsiveness(
        self,
        context: CommandContext,
        level: Literal["show", "called", "reserved", "balanced", "lively", "default"] = "show",
    ) -> str:
        """Show how readily the agent speaks in the room, or change it."""
        agent, room, world = context.agent, context.invocation.room, context.invocation.world
        if room.type.is_direct:
            return user_text("commands.responsiveness.direct")
        stored = await agent.store.worlds.world(world.id)
        if level == "show":
            settings = CoreSettings.model_validate({RESPONSIVENESS: agent.settings.get(RESPONSIVENESS) or "balanced"})
            room_ids = [item for item in (room.id, room.parent_id) if item]
            current = settings.for_world(stored.settings if stored else {}, room_ids).responsiveness
            return user_text("commands.responsiveness.current", level=current, levels=", ".join(Responsiveness))
        if stored is None:
            await agent.store.worlds.save_world(world, [room])
        value = "" if level == "default" else level
        await agent.store.worlds.set_setting(world.id, room_setting(RESPONSIVENESS, room.id), value)
        return user_text("commands.responsiveness.done", level=level)

    async def room(
        self,
        context: CommandContext,
        action: Literal["show", "set", "unset"] = "show",
        key: Annotated[str, "Which instruction, such as language, or world.language for the whole server"] = "",
        value: Annotated[str, "Its new value"] = "",
    ) -> str:
        """Show the instructions of the room, or set or remove one of the room or of its world."""
        agent, room, world = context.agent, context.invocation.room, context.invocation.world
        rooms = agent.character.rooms
        if action != "show":
            if await agent.store.worlds.room(room.id) is None:
                await agent.store.worlds.save_world(world, [room])
            name = key.strip().lower().removeprefix(WORLD_PREFIX)
            value = value.strip() if action == "set" else ""
            if action == "set" and (problem := _find_instruction_problem(rooms, name, value)):
                return user_text("commands.room.refused", cause=translate_message(problem))
            try:
                await change_instructions(
                    agent.store,
                    room,
                    {name: value},
                    now=agent.clock(),
                    source="/room",
                    by_id=context.invocation.author.id,
                    of_world=key.strip().lower().startswith(WORLD_PREFIX),
                )
            except SettingError as error:
                return user_text("commands.room.refused", cause=translate_message(str(error)))
        lines = await self._list_instructions(agent, room)
        return "\n".join([user_text("commands.room.current" if lines else "commands.room.none"), *lines])

    async def _list_instructions(self, agent: Agent, room: Room) -> list[str]:
        described = await describe_instructions(agent.store, agent.character.rooms, room)
        return [
            user_text(
                f"commands.room.{'of_file' if item.origin == 'file' else 'of_person'}",
                key=item.key,
                value=shorten(item.value, MAX_SHOWN_VALUE),
                origin=user_text(f"commands.room.origin.{item.origin}"),
                by=sanitize_name(item.by) if item.by else user_text("take_overs.operator"),
                date="" if item.at is None else f"{item.at:%Y-%m-%d}",
            )
            for item in described.values
        ]

    async def minors(self, context: CommandContext, mark: Literal["on", "off"] = "on") -> str:
        """Mark the room as one of minors, or remove the mark."""
        agent, room, world = context.agent, context.invocation.room, context.invocation.world
        if await agent.store.worlds.world(world.id) is None:
            await agent.store.worlds.save_world(world, [room])
        value = mark if mark == "on" else ""
        await agent.store.worlds.set_setting(world.id, room_setting(MINORS, room.id), value)
        return user_text(f"commands.minors.{mark}")

    async def filter_words(
        self, context: CommandContext, words: Annotated[str, "Words, separated by commas; off for none"] = ""
    ) -> str:
        """Show the words that the room's admins have listed for the filter of texts, or change them."""
        agent, room, world = context.agent, context.invocation.room, context.invocation.world
        name = room_setting(FILTER_WORDS, room.id)
        stored = await agent.store.worlds.world(world.id)
        if not words.strip():
            listed = stored.settings.get(name) if stored is not None else None
            key = "commands.filter_words.current" if listed else "commands.filter_words.off"
            return user_text(key, words=listed)
        if len(words) > MAX_FILTER_WORDS_LENGTH:
            return user_text("commands.filter_words.too_long", limit=MAX_FILTER_WORDS_LENGTH)
        if stored is None:
            await agent.store.worlds.save_world(world, [room])
        is_off = words.strip().casefold() == OFF
        await agent.store.worlds.set_setting(world.id, name, "" if is_off else words.strip())
        return user_text("commands.filter_words.off" if is_off else "commands.filter_words.done")

    async def drafts(
        self,
        context: CommandContext,
        decision: Annotated[Literal["list", "send", "edit", "drop"], "What to do"] = "list",
        draft: Annotated[str, "Which one, by its id"] = "",
        text: Annotated[str, "Its new text, to edit it"] = "",
    ) -> str:
        """List the drafts of this world, in the room of the approvers all of them; send, edit or drop one.

        A button names the draft with the revision that it was shown with, as `id.revision`.
        """
        agent, invocation = context.agent, context.invocation
        draft_id, _, revision = draft.partition(".")
        waiting = await agent.proposals.waiting()
        proposal = await agent.store.ledger.proposal(draft_id) if draft_id else None
        wanted = waiting if proposal is None else [proposal]
        rooms = await agent.store.lists.rooms_by_id({item.room_id for item in wanted})
        channel = agent.settings.load(ApprovalSettings).operators_room
        world_id = invocation.world.id
        if f"{invocation.room.platform}:{invocation.room.external_id}" != channel:
            wanted = [item for item in wanted if item.room_id in rooms and rooms[item.room_id].world_id == world_id]
        if decision == "list":
            lines = [
                user_text(
                    "drafts.listed",
                    id=item.id,
                    revision=item.revision,
                    room=name_room(rooms[item.room_id]) if item.room_id in rooms else item.room_id,
                    text=item.content.text,
                )
                for item in wanted
            ]
            return "\n".join(lines) or user_text("drafts.none")
        made = None
        if proposal is not None and wanted:
            made = await agent.proposals.decide(
                proposal.id,
                ProposalDecision(decision),
                actor=sanitize_name(invocation.author.name),
                actor_id=invocation.author.id,
                revision=int(revision) if revision.isdecimal() else None,
                text=text or None,
            )
        return user_text("drafts.unknown", id=draft_id) if made is None else made.note

    async def privacy(self, context: CommandContext) -> str:
        """Describe the stored personal data."""
        agent = context.agent
        text = describe_privacy(self._plugins, agent.settings)
        marks = await agent.store.entities.components(context.invocation.author.id, ERASURE_COMPONENT)
        if not marks:
            return text
        date = str(marks[-1].data.get("at", ""))[:10]
        return f"{text}\n{user_text('commands.privacy.erased_on', date=date)}"

    async def forget_me(self, context: CommandContext) -> CommandResponse:
        """Delete the person's data, once they have confirmed it."""
        agent, invocation = context.agent, context.invocation
        person_id, cache = invocation.author.id, agent.store.cache
        key, done_key = f"{FORGET_COMMAND}:{person_id}", f"{FORGET_COMMAND}-done:{person_id}"
        earlier, is_confirmed = await cache.get(done_key), await cache.get(key) is not None
        if person_id in self._forgetting:
            return CommandResponse(user_text("commands.forget_me.under_way"))
        if earlier is not None:
            return CommandResponse(user_text("commands.forget_me.too_soon", receipt=earlier))
        if not is_confirmed:
            await cache.set(key, invocation.event_id, expires_at=agent.clock() + CONFIRMATION_TTL)
            return CommandResponse(
                user_text("commands.forget_me.confirm", command=FORGET_COMMAND),
                choices=(Choice(user_text("commands.forget_me.button"), f"/{FORGET_COMMAND}"),),
            )
        self._forgetting.add(person_id)
        return await self._inbox.run_shielded(self._forget(agent, person_id, done_key))

    async def _forget(self, agent: Agent, person_id: UUID, done_key: str) -> CommandResponse:
        """Delete a person's data, also where that takes longer than a command may."""
        try:
            erasure, receipt = await self._edits.erase_entity(person_id), str(new_id())
            await agent.store.cache.set(done_key, receipt, expires_at=agent.clock() + FORGET_INTERVAL)
        finally:
            self._forgetting.discard(person_id)
        # Of whom it was is not written down: that is what was asked for.
        body = {"command": FORGET_COMMAND, "deleted": erasure.total, "receipt": receipt}
        await agent.store.logs.log(ERASURE_LOG_KIND, body)
        return CommandResponse(describe_erasure(erasure, receipt))

    async def ignore_me(
        self, context: CommandContext, state: Annotated[Literal["on", "off"], "off to be read again"] = "on"
    ) -> CommandResponse:
        """Store nothing more that the person writes, or read them again."""
        marks, person = context.agent.store.marks, context.invocation.author
        if state == "on":
            now = context.agent.clock()
            await self._edits.ignore_person(
                MarkedPerson(
                    person.id, PersonMark.NOT_READ, person.platform, person.external_id, MarkOrigin.PERSON, now
                )
            )
            return CommandResponse(
                user_text("commands.ignore_me.done", command=IGNORE_COMMAND, forget=FORGET_COMMAND),
                choices=(Choice(user_text("commands.ignore_me.button"), f"/{FORGET_COMMAND}"),),
            )
        was_set = await marks.remove(person.id, PersonMark.NOT_READ, MarkOrigin.PERSON)
        if person.id in marks.not_read:
            return CommandResponse(user_text("commands.ignore_me.set_by_others"))
        return CommandResponse(user_text(f"commands.ignore_me.{'ended' if was_set else 'was_read'}"))

    async def export_me(self, context: CommandContext) -> CommandResponse:
        """Return a file with everything that is stored about the person, where only they see it."""
        agent, invocation = context.agent, context.invocation
        adapter = agent.outbox.adapters.get(invocation.room.platform)
        if adapter is None or not adapter.sends_response_files:
            return CommandResponse(user_text("commands.export_me.no_files"))
        if not (adapter.hides_responses or invocation.room.type.is_private_chat):
            return CommandResponse(user_text("commands.export_me.elsewhere", command=EXPORT_COMMAND))
        person = invocation.author
        key = f"{EXPORT_COMMAND}:{person.id}"
        result = await agent.store.cache.get(key)
        if result is not None:
            return CommandResponse(
                user_text(f"commands.export_me.{'too_large' if result == TOO_LARGE else 'too_soon'}")
            )
        if person.id in self._exporting:
            return CommandResponse(user_text("commands.export_me.under_way"))
        self._exporting.add(person.id)
        try:
            data = await self._write_archive(agent, person)
            await agent.store.cache.set(key, data is not None or TOO_LARGE, expires_at=agent.clock() + EXPORT_INTERVAL)
        finally:
            self._exporting.discard(person.id)
        if data is None:
            return CommandResponse(user_text("commands.export_me.too_large"))
        name = f"{EXPORT_COMMAND}-{agent.clock():%Y-%m-%d}.zip"
        archive = Attachment(name, MediaKind.DOCUMENT, content_type="application/zip", name=name, data=data)
        return CommandResponse(user_text("commands.export_me.done"), attachments=(archive,))

    async def _write_archive(self, agent: Agent, person: Entity) -> bytes | None:
        """Return the file with everything that is stored about a person; None if platforms refuse one of its size."""
        stored = await agent.store.entities.entities([person.id])
        file = io.BytesIO()
        try:
            await write_person_archive(
                agent.store,
                stored.get(person.id, person),
                file,
                agent_name=agent.name,
                redact=redactor_of(self._secrets).redact,
                max_bytes=MAX_EXPORT_BYTES,
                with_hidden=True,
                clock=agent.clock,
            )
        except ArchiveTooLarge:
            return None
        return file.getvalue()

    async def help(self, context: CommandContext) -> str:
        """List the commands, with those that the platform has beside them."""
        builtin_specs = (builtin.spec for builtin in self.commands())
        specs = (*builtin_specs, *context.account_commands, *context.agent.catalog.commands)
        return describe_commands(context.agent.name, specs)

    async def start(self, context: CommandContext) -> str:
        """Greet a new user, with one of the character's own greetings if it has any and may speak there.

        Where the whole room sees it, the greeting is part of the conversation, unlike the AI notice before it.
        """
        agent, invocation = context.agent, context.invocation
        text = user_text("commands.start.greeting", name=agent.name)
        character = agent.character
        of_groups = () if invocation.room.type.is_direct else character.group_greetings
        if (greetings := of_groups or character.greetings) and agent.may_speak_in(invocation.room):
            greeting = Random(invocation.event_id).choice(greetings)
            text = character.address(greeting, invocation.author.name) or text
        adapter = agent.outbox.adapters.get(invocation.room.platform)
        if invocation.room.type.is_direct or (adapter is not None and not adapter.hides_responses):
            await self._store_greeting(agent, invocation, text)
        return text if agent.settings.get(AI_NOTICE) == OFF else f"{agent.notice_text}\n\n{text}"

    async def _store_greeting(self, agent: Agent, invocation: CommandInvocation, text: str) -> None:
        """Store a greeting as the answer to its command, with which it is deleted; no model answers that."""
        asked = build_question(invocation, "/start", denied_by=COMMAND_RULE)
        receipt = await self._inbox.submit(asked)
        greeting = Memory(
            id=derived_id(receipt.memory_id, "greeting"),
            kind=MemoryKind.MESSAGE,
            entity_id=agent.id,
            room_id=invocation.room.id,
            world_id=invocation.world.id,
            content=Content(text=text, in_reply_to=receipt.memory_id),
            created_at=agent.clock(),
            source_id=receipt.memory_id,
        )
        await agent.store.memories.add([greeting])


def _find_instruction_problem(rooms: Mapping[str, RoomInstructions], key: str, value: str) -> str:
    """Return why an admin cannot set a value; empty if they can.

    They choose among the sizes of models and the models that the file names: the operator pays for them.
    """
    if not value:
        return user_text("commands.room.no_value")
    named = {entry.model for entry in rooms.values() if entry.model} | set(MODEL_SIZES)
    return (
        user_text("commands.room.models", models=", ".join(sorted(named)))
        if key == "model" and value not in named
        else ""
    )


async def _find_place(context: CommandContext, whom: str) -> tuple[Room, Entity | None] | str:
    """Return the room that a moderator names, and the person there if they name one; a text where they may not.

    In a private chat moderators name the room, as the buttons of messages to operators do: they must be an admin of
    its world, or an owner of the bot, or in the operators' room.
    """
    agent, invocation = context.agent, context.invocation
    room, is_allowed = invocation.room, context.role.is_at_least(Role.ADMIN)
    if whom.startswith(ROOM_PREFIX):
        name = whom.removeprefix(ROOM_PREFIX)
        found = next(
            (item for item in await agent.store.worlds.rooms() if name in (str(item.id), item.external_id)), None
        )
        world = None if found is None else await agent.store.worlds.world(found.world_id)
        if found is None or world is None:
            return user_text("commands.take_over.unknown_room", name=sanitize_name(name))
        room, whom = found, ""
        is_allowed = world.role_of(invocation.author.id).is_at_least(Role.ADMIN)
    account = f"{invocation.author.platform}:{invocation.author.external_id}"
    settings = agent.settings.operator_only()
    owners = {name.strip() for name in (settings.get(OWNER_ACCOUNTS) or "").split(",")}
    is_operators_room = settings.get(OPERATORS_ROOM) == f"{invocation.room.platform}:{invocation.room.external_id}"
    if not (is_allowed or is_operators_room or account in owners):
        return user_text("commands.take_over.refused")
    if not whom:
        return room, None
    name = whom.strip("<@!>")
    named = await agent.store.entities.entities_by_name(name, platform=room.platform)
    here = [
        person for person in await agent.store.entities.participants(room.id, MAX_PARTICIPANTS) if person.id != agent.id
    ]
    ids = {person.id for person in named}
    found_people = [person for person in here if person.id in ids or name in (str(person.id), short_id(person.id))]
    if len(found_people) != 1:
        return user_text("commands.take_over.unknown_person", name=sanitize_name(name))
    return room, found_people[0]


def _title_of(room: Room) -> str:
    return f"{sanitize_name(room.name or room.external_id)} ({room.platform})"


def build_question(invocation: CommandInvocation, question: str, *, denied_by: str = "") -> InboundMessage:
    """Build the inbound message of a question that was asked by command; it is not answered if it is denied."""
    room, message_id = invocation.room, invocation.message_id or invocation.event_id
    mention = MentionContext(is_mention=True, denied_by=denied_by)
    content = Content(text=question, source=room.platform, mention=mention)
    message = Memory(
        id=new_id(),
        kind=MemoryKind.MESSAGE,
        entity_id=invocation.author.id,
        room_id=room.id,
        world_id=invocation.world.id,
        content=content,
        created_at=invocation.created_at,
        external_id=invocation.message_id,
    )
    key = EventKey(room.platform, room.account, invocation.event_id, room.id, message_id)
    return InboundMessage(key, invocation.world, room, invocation.author, message)


TEXT_TYPES = (ModelType.TEXT_SMALL, ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE)


def describe_outcome(receipt: Receipt, agent_name: str) -> str:
    """Describe the outcome of a message in plain words, without secrets or another person's words."""
    headline = describe_receipt(receipt, agent_name)
    if not receipt.outcome.is_final:
        return f"{headline}."
    models = sorted({call.model for call in receipt.model_calls if call.model})
    models_text = (
        user_text("commands.why.models", models=", ".join(models)) if models else user_text("commands.why.no_model")
    )
    receipt_text = user_text("commands.why.receipt", receipt=receipt.id)
    return f"{headline}.{models_text}\n{receipt_text}"


def describe_privacy(plugins: Sequence[Plugin], settings: Settings) -> str:
    """Describe which personal data is stored, for how long, where it goes, and how to delete it."""
    lines = [
        user_text("commands.privacy.stored"),
        *_build_retention_lines([plugin for plugin in plugins if not plugin.models], settings),
        user_text("commands.privacy.destination", models=_join_model_names(plugins)),
        *_build_plugin_statements([plugin for plugin in plugins if plugin.models], settings),
        user_text("commands.privacy.deletion"),
    ]
    return "\n".join(lines)


def _build_retention_lines(plugins: Iterable[Plugin], settings: Settings) -> Iterator[str]:
    has_store = any(plugin.store is not None for plugin in plugins)
    default = user_text(f"commands.privacy.retention_{'store' if has_store else 'memory'}")
    yield from _build_plugin_statements(plugins, settings) or [default]


def _build_plugin_statements(plugins: Iterable[Plugin], settings: Settings) -> list[str]:
    return [
        line
        for plugin in plugins
        if plugin.privacy_statement is not None and (line := plugin.privacy_statement(settings))
    ]


def _join_model_names(plugins: Iterable[Plugin]) -> str:
    names = [plugin.name for plugin in plugins if any(model.type in TEXT_TYPES for model in plugin.models)]
    if not names:
        return user_text("commands.privacy.no_model")
    joined = user_text("commands.privacy.models_or").join(dict.fromkeys(names))
    return user_text("commands.privacy.models", names=joined)


def describe_erasure(erasure: ErasureResult, receipt: str) -> str:
    """Describe what was deleted, and what is left; the receipt's id is in the log too."""
    counts = {
        "messages": erasure.messages,
        "replies": erasure.replies,
        "derived": erasure.derived,
        "components": erasure.components,
        "relationships": erasure.relationships,
        "tasks": erasure.tasks,
    }
    deleted = ", ".join(
        f"{user_text(f'commands.forget_me.{name}')} ({count})" for name, count in counts.items() if count
    )
    deleted = deleted or user_text("commands.forget_me.nothing")
    return user_text("commands.forget_me.done", deleted=deleted, receipt=receipt)


def describe_commands(name: str, commands: Iterable[CommandSpec]) -> str:
    """List the commands."""
    lines = [f"/{spec.name}{format_parameters(spec)}  {translate(spec.description)}" for spec in commands]
    return "\n".join([user_text("commands.help.heading", name=name), *lines])
