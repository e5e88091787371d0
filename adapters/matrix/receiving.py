"""Receiving: what a response of `/sync` brings is stored in order, the read position with it."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import bot.platform as bp
from adapters.matrix.client import Json, MatrixClient, Refused, path_of
from adapters.matrix.config import PLATFORM, MatrixSettings
from adapters.matrix.incoming import (
    MESSAGE_TYPES,
    IncomingContext,
    content_of,
    parse_command,
    parse_edit,
    parse_message,
    parse_reaction,
    related_id,
    replied_id_of,
)
from adapters.matrix.outgoing import build_text, split_text
from adapters.matrix.rooms import RoomState, RoomTarget, build_entity, text_at
from bot import CommandResponse, Content, Role, TemporaryError

logger = logging.getLogger(__name__)
SYNC_CURSOR, ENCRYPTED_CURSOR = "sync", "encrypted"
MAX_MISSED = 100
MAX_LOOKUPS = 3  # of an event that the homeserver fails to return
JOIN_ATTEMPTS, JOIN_PAUSES = 6, bp.Backoff(2.0, 60.0)
MAX_REACTIONS, MAX_ENCRYPTED_ROOMS = 10_000, 1_000
COMMAND_TIMEOUT = 5.0
STATE_TYPES = [
    *("m.room.canonical_alias", "m.room.create", "m.room.member", "m.room.name", "m.room.power_levels"),
    *("m.room.tombstone", "m.space.child", "m.space.parent"),
]
ROOM_FILTER = {
    "account_data": {"types": []},
    "ephemeral": {"types": ["m.typing"]},
    "state": {"lazy_load_members": True, "include_redundant_members": True, "types": STATE_TYPES},
    "timeline": {"limit": 50, "lazy_load_members": True},
}
FILTER = json.dumps({"presence": {"types": []}, "account_data": {"types": []}, "room": ROOM_FILTER})
ENCRYPTED_TEXT = (
    "This room is encrypted, and I cannot read encrypted messages. Please write to me in a room without encryption."
)
RETRY_ERRORS = (bp.InboxClosed, TemporaryError, bp.DeliveryError)  # the same events are asked for again


class SyncReceiver:
    """Stores the events of one account; `note_user` is informed who wrote in which room."""

    def __init__(
        self,
        handle: bp.AgentHandle,
        client: MatrixClient,
        settings: MatrixSettings,
        context: IncomingContext,
        direct_rooms: dict[str, list[str]],
        note_user: Callable[[str, str], None],
        tasks: bp.TaskSet,
    ) -> None:
        self._handle, self._client, self._settings, self._context = handle, client, settings, context
        self._rooms, self._identity = context.rooms, context.identity
        self._direct_rooms, self._note_user, self._tasks = direct_rooms, note_user, tasks
        self._command_names = frozenset(spec.name for spec in handle.commands)
        self._problems = bp.ChannelProblems(logger, "Matrix room")
        self._reactions = bp.BoundedDict[str, bp.Reaction](MAX_REACTIONS)  # a deleted one does not say what it was
        self._failed_lookups = bp.BoundedDict[str, int](MAX_REACTIONS)
        self._replacements = set[str]()  # rooms that were joined because they are said to replace another
        self._messages: list[bp.InboundMessage] = []

    async def receive(self, response: Json, since: str, *, may_be_old: bool) -> None:
        """Store the events of a response and its position. Raises what `AgentHandle.submit` does, and DeliveryError."""
        rooms, self._messages = response.get("rooms") or {}, []
        for room_id, invited in (rooms.get("invite") or {}).items():
            await self._answer_invitation(room_id, (invited.get("invite_state") or {}).get("events") or ())
        joined = rooms.get("join") or {}
        for room_id, changes in joined.items():  # before any timeline: a room may be in a space of this response
            state = self._rooms.get(room_id)
            state.is_direct = any(room_id in room_ids for room_ids in self._direct_rooms.values())
            for event in (changes.get("state") or {}).get("events") or ():
                state.apply(event)
        last_ids = {}
        for room_id, changes in joined.items():
            last_ids[room_id] = await self._receive_timeline(room_id, changes.get("timeline") or {}, since, may_be_old)
        for room_id in rooms.get("leave") or {}:
            await self._leave(room_id)
        if rooms.keys() - {"join"} or any(map(_has_events, joined.values())):  # not where a person is typing
            cursor = bp.StreamCursor(PLATFORM, self._identity.user_id, SYNC_CURSOR, response["next_batch"])
            await self._submit_messages(cursor)
        for room_id, changes in joined.items():
            self._note_typing(room_id, changes)
            if last_ids[room_id]:
                self._tasks.start(self._mark_read(room_id, last_ids[room_id]))

    async def _receive_timeline(self, room_id: str, timeline: Json, since: str, may_be_old: bool) -> str:
        """Read the events of a room, first those that were left out; return the id of the last one."""
        state, events, is_limited = self._rooms.get(room_id), timeline.get("events") or [], timeline.get("limited")
        await self._prepare_room(state, events)
        missed = await self._read_missed(room_id, since, timeline) if is_limited and since else []
        for event in (*missed, *events):
            await self._read(event, partial(self._receive_event, event, state, is_old=may_be_old or bool(is_limited)))
        return text_at(events[-1], "event_id") if events else ""

    async def _read(self, event: Json, read: Callable[[], Awaitable[None]]) -> None:
        """Read an event; one that cannot be read is recorded and costs no other."""
        try:
            await read()
        except RETRY_ERRORS:
            raise
        except Exception as error:  # whatever a server sends, it must not stop the events that follow
            event_id = text_at(event, "event_id") if isinstance(event, dict) else ""
            await self._handle.record_unreadable(PLATFORM, self._identity.user_id, event_id, event, error)

    async def _receive_event(self, event: Json, state: RoomState, *, is_old: bool) -> None:
        kind, sender = event["type"], text_at(event, "sender")
        if not sender or not text_at(event, "event_id"):
            raise ValueError("it has no sender or no id")
        if "state_key" in event:
            await self._receive_state(event, state, is_old=is_old)
        elif sender == self._identity.user_id or state.is_space or self._context.rule_of(state).is_ignored:
            return
        elif kind in MESSAGE_TYPES and content_of(event):
            self._note_user(state.room_id, sender)
            await self._receive_message(event, state, is_old=is_old)
        elif kind == "m.reaction" and (reaction := parse_reaction(event, state, self._context)) is not None:
            await self._submit_messages()
            found = await self._handle.conversations.room_of_message(reaction.world.id, reaction.message_id)
            reaction = replace(reaction, room=found or reaction.room)
            self._reactions[event["event_id"]] = reaction
            await self._handle.edits.add_reaction(reaction)
        elif kind == "m.room.redaction":
            await self._redact(text_at(event, "redacts") or text_at(content_of(event), "redacts"), state)

    async def _receive_message(self, event: Json, state: RoomState, *, is_old: bool) -> None:
        if event["type"] == "m.room.encrypted":
            await self._explain_encryption(state)
        original = event
        if replaced_id := related_id(event, "m.replace"):
            # the homeserver lets any member send an event that claims to edit a message of another
            found = await self._find_event(state.room_id, replaced_id)
            if found is None or found.get("sender") != event["sender"] or "state_key" in found or not content_of(found):
                return
            original = found
        replied_id = replied_id_of(original)
        replied = await self._find_event(state.room_id, replied_id) if replied_id else None
        if original is not event:
            await self._submit_messages()
            await self._handle.edits.submit_edit(parse_edit(event, original, state, self._context, replied))
            return
        message = parse_message(event, state, self._context, replied)
        if (command := parse_command(message, self._context, self._command_names)) is not None:
            await self._submit_messages()
            await self._run_command(command)
        else:
            self._messages.append(replace(message, is_backfill=True) if is_old else message)

    async def _receive_state(self, event: Json, state: RoomState, *, is_old: bool) -> None:
        previous = (event.get("unsigned") or {}).get("prev_content") or {}
        state.apply(event)
        await self._count_members(state)
        world, room = self._rooms.world_of(state), self._rooms.room_of(state)
        membership, kind = self._handle.membership, event["type"]
        if kind == "m.room.power_levels" and world.external_id == state.room_id:
            former = previous.get("users") or {}
            roles = {self._identity.entity_id(user_id): Role.MEMBER for user_id in former} | dict(world.roles)
            await membership.update_world(replace(world, roles=roles))
        elif kind in ("m.room.name", "m.room.canonical_alias", "m.space.parent") and not state.is_space:
            await membership.update_room(world, room)
        elif kind == "m.room.tombstone":
            await self._follow_tombstone(event, state)
        elif kind == "m.room.member" and world.external_id == state.room_id:
            user_id = event["state_key"]
            name = state.display_name(user_id) or text_at(previous, "displayname")
            member = build_entity(self._identity, user_id, name)
            is_in, was_in = (content.get("membership") == "join" for content in (content_of(event), previous))
            if user_id == self._identity.user_id or not (is_in or was_in):
                return
            if is_in and (was_in or is_old):  # such as who was there before the bot
                await membership.update_member(world, member)
            else:
                report = membership.add_member if is_in else membership.remove_member
                await report(world, member, event_id=event["event_id"])

    async def _submit_messages(self, cursor: bp.StreamCursor | None = None) -> None:
        """Store the messages that were read so far, before what may refer to them."""
        messages, self._messages = self._messages, []
        if messages or cursor is not None:
            await self._handle.submit_tolerant(messages, cursor)

    async def _run_command(self, command: bp.CommandInvocation) -> None:
        """Run a command; one that takes longer goes on while the next events are read."""
        target = bp.ResponseTarget(command.room.external_id, self._split_response, command.message_id)
        task = self._tasks.start(self._handle.run_command(command, target))
        await asyncio.wait([task], timeout=COMMAND_TIMEOUT)
        if task.done():
            task.result()

    def _split_response(self, response: CommandResponse) -> list[Content]:
        """Return the parts of a response, which names commands as people write them on Matrix."""
        text = response.text
        for name in self._command_names:
            text = text.replace(f"/{name}", f"!{name}")
        choices = [f"{number}. {choice.label}" for number, choice in enumerate(response.choices, 1)]
        return [Content(text=part) for part in split_text("\n".join([text, *choices]))]

    async def _redact(self, event_id: str, state: RoomState) -> None:
        await self._submit_messages()
        if (reaction := self._reactions.pop(event_id, None)) is not None:
            await self._handle.edits.remove_reactions(
                reaction.room.id, reaction.message_id, author_id=reaction.author.id, emoji=reaction.emoji
            )
            return
        found = await self._handle.conversations.room_of_message(self._rooms.world_of(state).id, event_id)
        await self._handle.edits.delete_messages((found or self._rooms.room_of(state)).id, [event_id])

    async def _prepare_room(self, state: RoomState, events: Sequence[Json]) -> None:
        """Report a room that the bot is in to the agent, once a process, and what it replaces."""
        for event in () if state.is_reported else events:  # the state of a new room may be in its timeline only
            if "state_key" in event:
                state.apply(event)
        await self._count_members(state)
        if state.is_reported:
            return
        world, room = self._rooms.world_of(state), self._rooms.room_of(state)
        await self._handle.membership.join_world(world, () if state.is_space else (room,))
        state.is_reported = True
        predecessor = state.content("m.room.create").get("predecessor") or {}
        old = self._rooms.get(old_id) if (old_id := text_at(predecessor, "room_id")) else None
        if old is not None and old.content("m.room.tombstone").get("replacement_room") == state.room_id:
            await self._handle.edits.migrate_room(self._rooms.room_id(RoomTarget(old_id)), world, room)
            await self._client.post(f"rooms/{path_of(old_id)}/leave", {})
        elif state.room_id in self._replacements:
            logger.warning("room %s does not replace the one that named it: the bot leaves it", state.room_id)
            await self._client.post(f"rooms/{path_of(state.room_id)}/leave", {})

    async def _follow_tombstone(self, event: Json, state: RoomState) -> None:
        """Join the room that replaces an upgraded one; that it does replace it is checked once it is joined."""
        replacement = text_at(content_of(event), "replacement_room")
        if not replacement or state.is_space:
            return
        self._replacements.add(replacement)
        problem, server = f"it replaces {state.room_id} and cannot be joined", event["sender"].partition(":")[2]
        self._tasks.start(self._join(replacement, problem, server_name=server))

    async def _count_members(self, state: RoomState) -> None:
        if state.needs_member_count:
            response = await self._client.find(f"rooms/{path_of(state.room_id)}/joined_members") or {}
            state.member_count = len(response["joined"]) if isinstance(response.get("joined"), dict) else None

    async def _answer_invitation(self, room_id: str, events: Sequence[Json]) -> None:
        own_id = self._identity.user_id
        invitation = next((item for item in events if item.get("state_key") == own_id), {})
        inviter = text_at(invitation, "sender")
        if not self._settings.accepts_invitation_of(inviter):
            advice = "to accept it, add them to MATRIX_ALLOWED_INVITERS and start again"
            self._problems.report(room_id, f"{inviter} invites the bot, who may not: {advice}")
            return
        if content_of(invitation).get("is_direct") is True and room_id not in self._direct_rooms.get(inviter, ()):
            self._direct_rooms.setdefault(inviter, []).append(room_id)
            await self._client.put(f"user/{path_of(own_id)}/account_data/m.direct", {**self._direct_rooms})
        self._tasks.start(self._join(room_id, f"the invitation of {inviter} cannot be accepted"))

    async def _join(self, room_id: str, problem: str, **parameters: str) -> None:
        """Join a room, which may take another server's time, and log the problem if that cannot be done."""
        for attempt in range(1, JOIN_ATTEMPTS + 1):
            try:
                await self._client.post(f"join/{path_of(room_id)}", {}, **parameters)
                return
            except bp.DeliveryError as error:
                if isinstance(error, Refused) or attempt == JOIN_ATTEMPTS:
                    self._problems.report(room_id, f"{problem}: {error}")
                    return
                retry_after = error.retry_after if isinstance(error, bp.NotSent) else None
                await asyncio.sleep(JOIN_PAUSES.delay(attempt, retry_after=retry_after or 0.0))

    async def _leave(self, room_id: str) -> None:
        """Report that the bot has left a room, or was removed from it."""
        await self._submit_messages()
        state = self._rooms.get(room_id)
        world, room = self._rooms.world_of(state), self._rooms.room_of(state)
        self._rooms.remove(room_id)
        edits, is_world = self._handle.edits, world.external_id == room_id
        await (edits.leave_world(world.id) if is_world else edits.leave_room(room.id))

    async def _read_missed(self, room_id: str, since: str, timeline: Json) -> list[Json]:
        """Return up to 100 events between the last response and this one, oldest first; of the state that is known."""
        parameters = {"dir": "b", "from": str(timeline.get("prev_batch")), "to": since, "limit": str(MAX_MISSED)}
        try:
            response = await self._client.get(f"rooms/{path_of(room_id)}/messages", parameters)
        except Refused as error:
            self._problems.report(room_id, f"messages that were sent meanwhile cannot be read: {error}")
            return []
        return [event for event in reversed(response.get("chunk") or ()) if "state_key" not in event]

    async def _find_event(self, room_id: str, event_id: str) -> Json | None:
        """Return an event that another names; None if it cannot be had, or the homeserver fails at it each time."""
        try:
            return await self._client.find(path_of("rooms", room_id, "event", event_id))
        except bp.DeliveryUnknown:
            self._failed_lookups[event_id] = self._failed_lookups.get(event_id, 0) + 1
            if self._failed_lookups[event_id] < MAX_LOOKUPS:
                raise
            return None

    async def _explain_encryption(self, state: RoomState) -> None:
        """Send one line to an encrypted room, once, that the bot can read nothing there."""
        stored = await self._handle.cursor(PLATFORM, self._identity.user_id, ENCRYPTED_CURSOR)
        informed = json.loads(stored or "[]")
        if state.room_id in informed:
            return
        path = path_of("rooms", state.room_id, "send", "m.room.message", f"encrypted-{state.room_id}")
        try:
            await self._client.put(path, build_text(ENCRYPTED_TEXT, ()))
        except bp.DeliveryError as error:
            self._problems.report(state.room_id, f"it is encrypted, and nothing can be said there: {error}")
            return
        informed = [*informed, state.room_id][-MAX_ENCRYPTED_ROOMS:]
        cursor = bp.StreamCursor(PLATFORM, self._identity.user_id, ENCRYPTED_CURSOR, json.dumps(informed))
        await self._handle.submit_all([], cursor)

    async def _mark_read(self, room_id: str, event_id: str) -> None:
        with suppress(bp.DeliveryError):  # the next marker will do
            body = {"m.fully_read": event_id, "m.read": event_id}
            await self._client.post(f"rooms/{path_of(room_id)}/read_markers", body)

    def _note_typing(self, room_id: str, changes: Json) -> None:
        events = (changes.get("ephemeral") or {}).get("events") or ()
        user_ids = {str(user_id) for event in events for user_id in content_of(event).get("user_ids") or ()}
        for user_id in user_ids - {self._identity.user_id}:
            self._handle.note_typing(self._rooms.room_id(RoomTarget(room_id)), self._identity.entity_id(user_id))


def _has_events(changes: Json) -> bool:
    return any((changes.get(name) or {}).get("events") for name in ("state", "timeline"))
