"""`Proposals`: what a person decides about replies, posts and actions that wait, and how approvers are shown them.

`ApprovalSettings`, `Approval`: which replies and posts wait.
"""

import logging
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Self
from uuid import UUID

from pydantic import Field

from bot.concurrency.clock import Clock, system_clock
from bot.domain.content import SPEECH_ID, Choice, Content
from bot.domain.environment import Entity, Role, Room, TakeOver
from bot.domain.ids import derived_id
from bot.domain.inbound import MAX_BACKFILL_AGE, RESPONSE_SOURCE
from bot.domain.ledger import Receipt
from bot.domain.memory import Memory, MemoryKind
from bot.domain.proposal import Proposal, ProposalState, card_turn_id
from bot.outbound.notices import Notice
from bot.outbound.outbox import Outbox, ProposalChanged
from bot.outbound.sender import OutgoingReply
from bot.settings import CommaList, Settings, SettingsModel
from bot.store.protocols import Store
from bot.text import sanitize_name, shorten
from bot.user_texts import count_text, use_language, user_text

logger = logging.getLogger(__name__)
EDIT_TIME = timedelta(minutes=10)  # how long a person has to write another text after they asked to
MAX_QUESTION_LENGTH = 300  # characters of the message that led to a proposal
MAX_WAITING = 1_000
CARD_ID = re.compile(r"\b[0-9a-f]{12}\b")  # the first in the message that shows a proposal
TIMEOUT_NAME = "APPROVAL_TIMEOUT"
TASK_KEY = "task"  # in the metadata of a proposal: the task that waits for it


class ApprovalSettings(SettingsModel):
    """Which replies and posts wait for a person, where approvers see them, and for how long."""

    CHARACTER_SETTINGS = frozenset({"APPROVAL", "APPROVAL_ROOMS", "APPROVAL_TIMEOUT"})

    approval: str = Field(
        "off",
        pattern="^(off|rooms|all|posts)$",
        description="What waits as a draft until a person sends it: `off` (nothing), `rooms` (what is said in "
        "APPROVAL_ROOMS), `all` (every reply and every post), `posts` (posts that answer nobody, as on X).",
    )
    approval_rooms: CommaList = Field(
        (),
        description="Where replies wait with APPROVAL=rooms: `platform` or `platform:id of the room`, as in "
        "`web,telegram:-1001234`.",
    )
    operators_room: str = Field(
        "",
        pattern=r"^([a-z][a-z0-9_]*:\S+)?$",
        description="Where drafts are shown with buttons to send, edit or drop them, and where CALL_A_PERSON tells "
        "that a person is asked for, as `platform:id of the room`. Its admins may decide about every draft and take "
        "over every room.",
    )
    approval_timeout: int = Field(
        86_400, ge=60, description="After how many seconds a draft that nobody has decided about is dropped."
    )


@dataclass(frozen=True, slots=True)
class Approval:
    """What waits for a person, and where approvers see it."""

    settings: ApprovalSettings

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """Return what waits by these settings; None where nothing does and approvers have no room.

        Raises SettingError.
        """
        loaded = settings.load(ApprovalSettings)
        return None if loaded.approval == "off" and not loaded.operators_room else cls(loaded)

    def find_reason(self, room: Room) -> str:
        """Return why a reply in a room waits; empty if it does not. In the room of the approvers nothing does."""
        settings = self.settings
        if is_named(room, [settings.operators_room]):
            return ""
        if settings.approval == "all":
            return "APPROVAL=all"
        is_listed = settings.approval == "rooms" and is_named(room, settings.approval_rooms)
        return "APPROVAL_ROOMS names this room" if is_listed else ""

    def find_post_reason(self, room: Room) -> str:
        """Return why a post in a room waits, which answers no message; empty if it does not."""
        if self.settings.approval == "posts" and not is_named(room, [self.settings.operators_room]):
            return "APPROVAL=posts"
        return self.find_reason(room)


def is_named(room: Room, names: Collection[str]) -> bool:
    """Return whether names of platforms or rooms, as in settings, name a room."""
    return not {room.platform, f"{room.platform}:{room.external_id}"}.isdisjoint(names)


class ProposalDecision(StrEnum):
    """What a person does about a proposal; to edit without a text says that they are writing one."""

    SEND = "send"
    EDIT = "edit"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class DecidedProposal:
    """A proposal after a decision, whether that was carried out, and a sentence about it."""

    proposal: Proposal
    is_done: bool
    note: str


@dataclass(frozen=True, slots=True)
class Proposals:
    """The proposals of one agent: stored with what they answer, decided once, and shown to approvers.

    `load_settings` returns the settings as they are now. Without a running bot its outbox sends nothing: what is sent
    then leaves at the next start.
    """

    agent_id: UUID
    _store: Store
    _outbox: Outbox
    _load_settings: Callable[[], ApprovalSettings] = ApprovalSettings
    _clock: Clock = system_clock

    @property
    def timeout(self) -> timedelta:
        """How long a proposal waits."""
        return timedelta(seconds=self._load_settings().approval_timeout)

    async def waiting(self) -> list[Proposal]:
        """List the proposals that wait, oldest first."""
        return await self._store.ledger.proposals(state=ProposalState.WAITING, limit=MAX_WAITING)

    async def propose(
        self,
        proposal: Proposal,
        receipts: Collection[Receipt] = (),
        action_results: Collection[Memory] = (),
        *,
        may_replace: Callable[[Proposal], bool] = lambda earlier: False,
    ) -> Proposal:
        """Store a proposal with the receipts that it parks, and show it to the approvers; return it.

        It replaces those that wait in its room, for which `may_replace` holds and which no person edits. Repeated, this
        changes nothing. Raises StoreUnavailable.
        """
        now = self._clock()
        replaced = [
            earlier
            for earlier in await self.waiting()
            if earlier.room_id == proposal.room_id
            and earlier.id != proposal.id
            and earlier.is_replaceable(now)
            and may_replace(earlier)
        ]
        if replaced:
            proposal = replace(proposal, revision=max(earlier.revision for earlier in replaced) + 1)
        cards = [await self._build_card(proposal)]
        for earlier in replaced:
            ended = replace(earlier, state=ProposalState.REPLACED, decided_at=now, replaced_by=proposal.id)
            cards.append(await self._build_card(ended))
        shown = [card for card in cards if card is not None]
        replaced_ids = [earlier.id for earlier in replaced]
        await self._outbox.commit_proposal(proposal, tuple(receipts), tuple(action_results), shown, replaced_ids)
        logger.info("draft %s waits for a person (%s): `bot drafts list` shows it", proposal.id, proposal.reason)
        return proposal

    async def decide(
        self,
        proposal_id: str,
        decision: ProposalDecision,
        *,
        actor: str,
        actor_id: UUID | None = None,
        revision: int | None = None,
        text: str | None = None,
    ) -> DecidedProposal | None:
        """Send or drop a proposal, or replace its text, on behalf of a person; return None where there is no such one.

        An action that is sent runs: its turn goes on. `actor_id` is the account of the person, if they have one.
        Nothing is done where it does not wait any more, has another `revision` than the given one, or another person
        is editing it. Raises StoreUnavailable.
        """
        while True:  # again, where it changes at the same moment
            proposal = await self._store.ledger.proposal(proposal_id)
            if proposal is None:
                return None
            if proposal.state is ProposalState.WAITING and proposal.expires_at <= self._clock():
                await self._expire(proposal)
                continue
            refusal = await self._find_refusal(proposal, actor, revision)
            if refusal is not None:
                return refusal
            changed = self._apply(proposal, decision, actor, text)
            if isinstance(changed, DecidedProposal):
                return changed
            changed = replace(changed, decided_by_id=actor_id)
            if changed.state is ProposalState.SENT and await self._store.worlds.room(proposal.room_id) is None:
                return DecidedProposal(proposal, False, user_text("drafts.no_room", id=proposal.id))
            if await self._commit(changed, proposal.revision, editor=proposal.editor):
                return DecidedProposal(changed, True, _describe_change(proposal, changed))

    async def edit_by_reply(self, message: Memory, room: Room, author: Entity, role: Role) -> str:
        """Take an approver's reply to the message that shows a proposal as its new text; return what came of it.

        That is empty for any other message. Raises StoreUnavailable.
        """
        quotation, text = message.content.quotation, message.content.text.strip()
        is_here = is_named(room, [self._load_settings().operators_room]) and role.is_at_least(Role.ADMIN)
        if not (is_here and text and quotation is not None and quotation.author_id == self.agent_id):
            return ""
        named = CARD_ID.search(quotation.text)
        if named is None:
            return ""
        decision, actor = ProposalDecision.EDIT, sanitize_name(author.name)
        made = await self.decide(named[0], decision, actor=actor, actor_id=author.id, text=text)
        return "" if made is None else made.note

    async def expire(self) -> int:
        """Drop the proposals about which no person has decided in time; return how many there were.

        So are those of rooms that a person had taken over when the process died before it dropped them.
        """
        for take_over in self._store.take_overs.current.values():
            await self.drop_taken_over(take_over)
        now = self._clock()
        expired = [proposal for proposal in await self.waiting() if proposal.expires_at <= now]
        return sum([await self._expire(proposal) for proposal in expired])

    async def drop_taken_over(self, take_over: TakeOver) -> None:
        """Drop what waits for a room that a person has taken over, or there for one person, also while it is edited."""
        for proposal in await self.waiting():
            is_for_person = take_over.person_id is None or take_over.person_id in proposal.subject_ids
            if proposal.room_id == take_over.room_id and is_for_person:
                dropped = self._end(proposal, ProposalState.DROPPED, take_over.name)
                await self._commit(dropped, proposal.revision)

    async def show_withdrawn(self, withdrawn: Collection[Proposal]) -> None:
        """Show approvers that proposals, which the store has withdrawn, do not wait any more."""
        cards = [await self._build_card(proposal) for proposal in withdrawn]
        await self._outbox.send_cards([card for card in cards if card is not None])
        for proposal in withdrawn:
            self._outbox.announce(proposal)

    async def _expire(self, proposal: Proposal) -> bool:
        return await self._commit(self._end(proposal, ProposalState.EXPIRED, TIMEOUT_NAME), proposal.revision)

    def _end(self, proposal: Proposal, state: ProposalState, actor: str) -> Proposal:
        """Return a proposal that does not wait any more; no person is editing it then."""
        ended = replace(proposal, state=state, decided_by=actor, decided_by_id=None, decided_at=self._clock())
        return replace(ended, editor="", edited_until=None)

    async def _find_refusal(self, proposal: Proposal, actor: str, revision: int | None) -> DecidedProposal | None:
        """Return why nothing can be decided about a proposal now; None where something can."""
        if proposal.state is ProposalState.REPLACED:
            newer = await self._find_newest(proposal)
            note = user_text("drafts.replaced_by", id=proposal.id, newer=newer.id, text=newer.content.text)
            return DecidedProposal(newer, False, note)
        if proposal.state is not ProposalState.WAITING:
            return DecidedProposal(proposal, False, describe_end(proposal))
        if revision not in (None, proposal.revision):
            return DecidedProposal(proposal, False, user_text("drafts.changed", text=proposal.content.text))
        if proposal.is_being_edited(self._clock()) and proposal.editor != actor:
            return DecidedProposal(proposal, False, user_text("drafts.being_edited", name=proposal.editor))
        return None

    async def _find_newest(self, proposal: Proposal) -> Proposal:
        while proposal.replaced_by:
            newer = await self._store.ledger.proposal(proposal.replaced_by)
            if newer is None:
                break
            proposal = newer
        return proposal

    def _apply(
        self, proposal: Proposal, decision: ProposalDecision, actor: str, text: str | None
    ) -> Proposal | DecidedProposal:
        """Return a proposal as a decision changes it, or why it cannot."""
        if decision is not ProposalDecision.EDIT:
            state = ProposalState.SENT if decision is ProposalDecision.SEND else ProposalState.DROPPED
            return self._end(proposal, state, actor)
        if proposal.action:
            return DecidedProposal(proposal, False, user_text("drafts.not_edited"))
        if text is None:
            return replace(proposal, editor=actor, edited_until=self._clock() + EDIT_TIME)
        attachments = tuple(item for item in proposal.content.attachments if item.id != SPEECH_ID)  # of the old text
        content = replace(proposal.content, text=text.strip(), attachments=attachments)
        filtered = self._outbox.filter_content(content, proposal.room_id)
        if filtered is None:
            return DecidedProposal(proposal, False, user_text("drafts.empty"))
        return replace(proposal, content=filtered, revision=proposal.revision + 1, editor="", edited_until=None)

    async def _commit(self, changed: Proposal, revision: int, editor: str | None = None) -> bool:
        """Store a proposal in its new state with its reply, if it is sent; return whether it was still as expected.

        With `editor` it must be edited by that person, or by none if it is empty.
        """
        card, reply = await self._build_card(changed), None
        if changed.state is ProposalState.SENT and not changed.action:
            reply = await self._build_reply(changed)
        text = user_text("notices.ai_edited") if changed.is_edited else changed.notice
        notice = Notice(text, changed.unnotified_ids) if reply and changed.unnotified_ids else None
        age = self._clock() - changed.created_at
        try:
            await self._outbox.commit_decision(
                changed,
                revision,
                reply,
                [card] if card is not None else [],
                notice=notice,
                editor=editor,
                is_late=changed.receipt_id is not None and age > MAX_BACKFILL_AGE,
            )
        except ProposalChanged:
            return False
        logger.info("draft %s: %s", changed.id, changed.state)
        if changed.action and changed.state is not ProposalState.WAITING:
            await self._resume_action(changed)
        return True

    async def _resume_action(self, decided: Proposal) -> None:
        """Start what has waited for the decision about an action, which would look at it later by itself."""
        if decided.receipt_id is not None and decided.state is ProposalState.SENT:
            await self._outbox.on_reopened(decided.receipt_id)
        elif TASK_KEY in decided.metadata:
            task = await self._store.tasks.task(UUID(str(decided.metadata[TASK_KEY])))
            if task is not None and task.leased_until is None:
                await self._store.tasks.save_task(replace(task, next_run=self._clock()))

    async def _build_reply(self, proposal: Proposal) -> OutgoingReply | None:
        """Return the reply of a proposal that is sent; None where its room is not stored any more."""
        room = await self._store.worlds.room(proposal.room_id)
        if room is None:
            return None
        memory = Memory(
            id=proposal.memory_id,
            kind=MemoryKind.MESSAGE,
            entity_id=self.agent_id,
            room_id=room.id,
            world_id=room.world_id,
            content=proposal.content,
            created_at=self._clock(),
            turn_id=proposal.turn_id,
            metadata=proposal.metadata,
        )
        earlier = None
        if proposal.replaces_id is not None:
            earlier = (await self._store.memories.memories([proposal.replaces_id])).get(proposal.replaces_id)
        if earlier is not None:
            memory = replace(memory, id=earlier.id, created_at=earlier.created_at)
        return OutgoingReply(memory, room, 0, proposal.reply_to, earlier)

    async def _build_card(self, proposal: Proposal) -> OutgoingReply | None:
        """Return the message that shows approvers a proposal, in the place of the last one; None without a room."""
        channel = self._load_settings().operators_room
        if not channel or (proposal.state is ProposalState.WAITING and proposal.editor):
            return None  # of one that is being edited, text and buttons stay as they are
        rooms = await self._store.worlds.rooms()
        room = next((room for room in rooms if f"{room.platform}:{room.external_id}" == channel), None)
        if room is None:
            logger.warning(
                "draft %s is shown nowhere: OPERATORS_ROOM is %s, and the bot has seen no such room; write there, or "
                "correct it",
                proposal.id,
                channel,
            )
            return None
        turn_id = card_turn_id(proposal.turn_id, proposal.action)
        with use_language():  # the program's: not that of whom the draft is for
            text, choices = await self._describe(proposal), build_choices(proposal)
        content = Content(text, source=RESPONSE_SOURCE, choices=choices)
        card_id = derived_id(turn_id, "card")
        memory = Memory(
            card_id, MemoryKind.MESSAGE, self.agent_id, room.id, room.world_id, content, self._clock(), turn_id=turn_id
        )
        index = 2 * proposal.revision + (proposal.state is not ProposalState.WAITING)
        is_first = proposal.state is ProposalState.WAITING and not proposal.is_edited
        adapter = self._outbox.adapters.get(room.platform)
        is_edit = not is_first and (adapter is None or adapter.can_edit)
        return OutgoingReply(memory, room, index, replaces=memory if is_edit else None)

    async def _describe(self, proposal: Proposal) -> str:
        """Return the text of the message that shows a proposal."""
        if proposal.state is ProposalState.WITHDRAWN:
            return describe_end(proposal)  # the words that led to it are gone
        room = await self._store.worlds.room(proposal.room_id)
        place = f"{sanitize_name(room.name or room.external_id)} ({room.platform})" if room else str(proposal.room_id)
        lines = [user_text("drafts.heading", id=proposal.id, room=place, reason=proposal.reason)]
        if proposal.message_id is not None:
            message = (await self._store.memories.memories([proposal.message_id])).get(proposal.message_id)
            if message is not None:
                authors = await self._store.entities.entities([message.entity_id])
                name = sanitize_name(authors[message.entity_id].name) if message.entity_id in authors else "?"
                question = " ".join(message.content.text.split())
                lines.append(f"> {name}: {shorten(question, MAX_QUESTION_LENGTH)}")
        lines.append(proposal.content.text or count_text("drafts.attachments", len(proposal.content.attachments)))
        if proposal.state is not ProposalState.WAITING:
            lines.append(describe_end(proposal))
        return "\n".join(lines)


def build_choices(proposal: Proposal) -> tuple[Choice, ...]:
    """Return the buttons about a proposal: commands, which check who presses them; none once it is decided."""
    if proposal.state is not ProposalState.WAITING:
        return ()
    labels = {decision: user_text(f"drafts.{decision}") for decision in ProposalDecision}
    if proposal.action:
        labels = {ProposalDecision.SEND: user_text("drafts.run"), ProposalDecision.DROP: labels[ProposalDecision.DROP]}
    choices = [
        Choice(label, f"/drafts {decision} {proposal.id}.{proposal.revision}") for decision, label in labels.items()
    ]
    if proposal.message_id is not None or proposal.action:  # of a post there is no conversation to take over
        choices.append(Choice(user_text("take_overs.button"), f"/take-over room:{proposal.room_id}"))
    return tuple(choices)


def describe_end(proposal: Proposal) -> str:
    """Return a sentence about what became of a proposal that does not wait any more."""
    if proposal.state in (ProposalState.SENT, ProposalState.DROPPED):
        key = "approved" if _is_approved(proposal) else proposal.state
        return user_text(f"drafts.end.{key}", id=proposal.id, name=proposal.decided_by)
    return user_text(f"drafts.end.{proposal.state}", id=proposal.id, newer=proposal.replaced_by)


def _is_approved(proposal: Proposal) -> bool:
    return proposal.state is ProposalState.SENT and bool(proposal.action)


def _describe_change(before: Proposal, after: Proposal) -> str:
    if _is_approved(after):
        return user_text("drafts.done.approved", id=after.id, action=after.action_name)
    if after.state is ProposalState.SENT:
        return user_text("drafts.done.sent", id=after.id)
    if after.state is ProposalState.DROPPED:
        return user_text("drafts.done.dropped", id=after.id)
    if after.revision != before.revision:
        return user_text("drafts.done.edited", id=after.id, text=after.content.text)
    return user_text("drafts.done.editing", id=after.id, minutes=int(EDIT_TIME.total_seconds() // 60))
