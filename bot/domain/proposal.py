"""Proposals: replies, posts and actions that wait until a person decides about them; users call them drafts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from bot.domain.content import Content
from bot.domain.ids import derived_id
from bot.domain.ledger import Outcome, Receipt, Rule


class ProposalState(StrEnum):
    """What became of a proposal: it waits, or one of the others, which are final.

    REPLACED by the proposal for a newer message of its room; WITHDRAWN because the message that led to it is gone.
    """

    WAITING = "waiting"
    SENT = "sent"
    DROPPED = "dropped"
    REPLACED = "replaced"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A reply, or a call of an action, that waits for a person's decision.

    `proposed` is what the turn wrote, `content` what is sent: the text of the last edit. Each edit, and each proposal
    that replaces another one, has the next `revision`: a decision about another revision is not carried out. `reason`
    says why it waits. `receipt_id` and `message_id` are those of the message that led to it, None for a post.

    `subject_ids` are the messages that it answers and their authors, `author_ids` all whose words the model has read:
    it is withdrawn with the former and deleted with either. `unnotified_ids` are the people who get the AI `notice`
    with it. Until `edited_until` the `editor` is writing another text. `replaced_by` is the id of the newer proposal.

    `action` is the key of the journal step of an action that waits for approval, which its content describes; empty for
    a reply. `decided_by_id` is the account of the person who has decided, None for an operator, and while it waits.
    """

    id: str
    room_id: UUID
    turn_id: UUID
    memory_id: UUID
    content: Content
    proposed: Content
    created_at: datetime
    expires_at: datetime
    reason: str = ""
    receipt_id: UUID | None = None
    message_id: UUID | None = None
    replaces_id: UUID | None = None
    reply_to: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    subject_ids: frozenset[UUID] = frozenset()
    author_ids: frozenset[UUID] = frozenset()
    notice: str = ""
    unnotified_ids: frozenset[UUID] = frozenset()
    revision: int = 1
    state: ProposalState = ProposalState.WAITING
    decided_by: str = ""
    decided_at: datetime | None = None
    editor: str = ""
    edited_until: datetime | None = None
    replaced_by: str = ""
    action: str = ""
    decided_by_id: UUID | None = None

    @property
    def action_name(self) -> str:
        """The name of the action that waits; empty for a reply."""
        return self.action.rsplit(":", 1)[-1]

    @property
    def is_edited(self) -> bool:
        """Whether a person has changed its text."""
        return self.content != self.proposed

    def is_being_edited(self, now: datetime) -> bool:
        """Return whether a person is writing another text for it."""
        return self.edited_until is not None and self.edited_until > now

    def is_replaceable(self, now: datetime) -> bool:
        """Return whether the answer to a newer message may replace it: not once a person has worked on it."""
        return not (self.is_edited or self.is_being_edited(now))


def proposal_id(turn_id: UUID, action: str = "") -> str:
    """Return the id of the proposal of a turn's reply or action, the same in every replay: 12 hexadecimal digits."""
    return derived_id(turn_id, *filter(None, ("proposal", action))).hex[:12]


def card_turn_id(turn_id: UUID, action: str = "") -> UUID:
    """Return the id under which the message that shows approvers a proposal of a turn is stored."""
    return derived_id(turn_id, *filter(None, ("proposal card", action)))


def parked_reason(proposal: Proposal) -> str:
    """Return the reason of a receipt whose answer, or an action of it, waits for a person."""
    subject = f"its action {proposal.action_name}" if proposal.action else "its answer"
    return f"{subject} waits for a person as draft {proposal.id} ({proposal.reason})"


def decide_receipt(receipt: Receipt, proposal: Proposal, cause: str = "", superseded_by: UUID | None = None) -> Receipt:
    """Return the parked receipt of a proposal as the end of that closes it; `cause` is why it was withdrawn.

    An approved action opens it again: its turn goes on.
    """
    if proposal.action and proposal.state is ProposalState.SENT:
        note = f"{proposal.decided_by} approved {proposal.action_name} (draft {proposal.id})"
        opened = replace(receipt, outcome=Outcome.RECEIVED, reason="", rule="", closed_at=None, attempts=0)
        return replace(opened, claimed_at=proposal.decided_at, notes=(*receipt.notes, note))
    outcome, rule, reason = {
        ProposalState.WAITING: (Outcome.PARKED, Rule.DRAFT, parked_reason(proposal)),
        ProposalState.SENT: (
            *(Outcome.ANSWERED, Rule.DRAFT),
            f"{proposal.decided_by} sent draft {proposal.id}{', with another text' if proposal.is_edited else ''}",
        ),
        ProposalState.DROPPED: (Outcome.IGNORED, Rule.DRAFT, f"{proposal.decided_by} dropped draft {proposal.id}"),
        ProposalState.EXPIRED: (
            *(Outcome.EXPIRED, Rule.APPROVAL_TIMEOUT),
            f"nobody decided about draft {proposal.id} in time",
        ),
        ProposalState.REPLACED: (
            *(Outcome.SUPERSEDED, Rule.LATEST_RESPONSE),
            f"draft {proposal.id} was replaced by the answer to a newer message",
        ),
        ProposalState.WITHDRAWN: (Outcome.CANCELLED, Rule.REMOVED, cause),
    }[proposal.state]
    return replace(
        receipt,
        outcome=outcome,
        rule=rule,
        reason=reason,
        superseded_by=superseded_by,
        closed_at=proposal.decided_at or receipt.closed_at,
    )
