"""The drafts of one outbox: which replies are seen before they are whole, and what takes their place."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from bot.adapter.adapter import Adapter
from bot.concurrency.clock import Clock
from bot.domain.content import Content
from bot.domain.ids import delivery_id
from bot.domain.ledger import Delivery, DeliveryState
from bot.errors import StoreUnavailable
from bot.outbound.content_filter import Hyperlinks, cleared_so_far
from bot.outbound.delivery_attempt import OPEN
from bot.outbound.draft import Desk, Draft, PostedDraft, Preview, Sleep, is_unclear
from bot.outbound.message_parts import Outgoing, anew, in_place_of, packed
from bot.store.ledger import Ledger

DRAFT = "draft"  # names, in a part's metadata, the draft whose place it takes; in a draft's, itself
APART = -1  # no reply of a turn has this number
LONGEST_LEFT = timedelta(minutes=15)
MOST_OPEN = 1000


def is_draft(part: Delivery) -> bool:
    """Tell a draft from the parts of replies."""
    return part.content.metadata.get(DRAFT) == part.id


class Drafts:
    """Keeps the drafts that are seen, by turn, until the turn's first words take their place.

    A draft without words to follow is taken away. Of one of which nobody knows whether it has arrived
    that is found out first, as of any other part.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        secrets: Collection[str],
        hyperlinks: Hyperlinks | None,
        may_leave: Callable[[Delivery], bool],
        clock: Clock,
        sleep: Sleep,
    ) -> None:
        self._ledger = ledger
        self._secrets, self._hyperlinks = secrets, hyperlinks
        self._clock = clock
        self._desk = Desk(self._fit, may_leave, self._begin, ledger.save_delivery, sleep, clock)
        self._live: dict[UUID, Draft] = {}
        self._left: dict[UUID, Delivery] = {}  # by an earlier process
        self._unclear: set[str] = set()  # on their way like other parts, before what takes their place
        self._names: dict[str, str] = {}  # what the platform calls those of them that have arrived
        self._ending: dict[str, Delivery] = {}  # by what takes their place: how they end when that is done

    def __contains__(self, turn_id: UUID) -> bool:
        return turn_id in self._live or turn_id in self._left

    def __bool__(self) -> bool:
        return bool(self._live or self._left)

    def is_at_work(self, room_id: UUID) -> bool:
        """Tell whether something is shown in a room that is not whole yet."""
        return any(draft.part.room_id == room_id for draft in self._live.values())

    def of(self, reply: Outgoing, adapter: Adapter, every: float) -> Draft:
        """Give the draft of a turn's next reply: the one that is seen already, or a new one."""
        turn_id = reply.memory.turn_id or reply.memory.id
        if (known := self._live.get(turn_id)) is not None:
            return known
        is_preview = type(adapter).preview is not Adapter.preview
        if is_preview or turn_id not in self._left:
            kind = Preview if is_preview else PostedDraft
            return kind(self._part(reply, turn_id), adapter, every, self._desk)
        self._live[turn_id] = PostedDraft(self._left.pop(turn_id), adapter, every, self._desk)
        return self._live[turn_id]

    async def settle(self, parts: Sequence[Delivery], ended: Collection[UUID]) -> list[Delivery]:
        """Have the first words among these parts take the place of their turns' drafts.

        The draft of a turn that has `ended` without any is taken away: that is one part more.
        """
        found = list(parts)
        for turn_id in {*(part.turn_id for part in parts), *ended}:
            if turn_id in self:
                at = next((number for number, part in enumerate(found) if part.turn_id == turn_id), None)
                heir = None if at is None else found[at]
                heir = await self._settled(turn_id, heir)
                if at is not None and heir is not None:
                    found[at] = heir
                elif heir is not None:
                    found.append(heir)
        return found

    def committed(self, parts: Sequence[Delivery]) -> list[Delivery]:
        """Take note of what takes the place of drafts; gives back drafts that are to leave before it."""
        before = []
        for part in parts:
            draft = self._draft(part.turn_id)
            if draft is None or draft.id != part.content.metadata.get(DRAFT):
                continue
            self._forget(part.turn_id)
            if is_unclear(draft):
                self._unclear.add(draft.id)
                before.append(draft)
            else:
                self._ending[part.id] = _ended(draft)
        return before

    def addressed(self, part: Delivery) -> Delivery:
        """Have a part take the place of a draft of which it is known only now that it has arrived."""
        name = self._names.get(part.content.metadata.get(DRAFT, ""))
        return part if name is None else replace(part, content=in_place_of(name, part.content))

    def has_come(self, part: Delivery) -> bool:
        """Take note of a draft that has come to its end like other parts; False for any other part."""
        if part.id not in self._unclear:
            return False
        self._unclear.discard(part.id)
        if part.state is DeliveryState.SENT:
            self._names[part.id] = part.external_id
        return True

    async def end(self, heir: Delivery) -> None:
        """Close a draft after what has taken its place."""
        if is_draft(heir):
            return
        self._names.pop(heir.content.metadata.get(DRAFT, ""), None)
        ended = self._ending.pop(heir.id, None)
        if ended is not None:
            await self._save(ended)

    def orphaned(self, heir: Delivery) -> Delivery | None:
        """Give the part that takes a draft away whose words were cancelled; None where they had none."""
        ended = self._ending.pop(heir.id, None)
        if ended is None:
            return None
        removal = self._removal(ended)
        self._ending[removal.id] = ended
        return removal

    async def take_up(self, left: Sequence[Delivery]) -> tuple[list[Delivery], list[UUID]]:
        """Take up what an earlier process has left open.

        Gives back the parts that are to be sent, and the turns whose drafts nobody will finish.
        """
        to_send = [part for part in left if not is_draft(part)]
        for heir in to_send:
            if name := heir.content.metadata.get(DRAFT):
                draft = await self._ledger.delivery(name)
                if draft is not None and draft.state is DeliveryState.SENT:
                    self._names[name] = draft.external_id
        orphans = []
        for draft in filter(is_draft, left):
            if draft.turn_id in self._live:
                continue
            parts = await self._ledger.deliveries(turn_id=draft.turn_id)
            taking = (part for part in parts if part.content.metadata.get(DRAFT) == draft.id != part.id)
            if (one := next(taking, None)) is not None:
                to_send = [anew(part) if _has_moved(draft, part) else part for part in to_send]
                to_send += await self._inherited(draft, one)
                continue
            self._left[draft.turn_id] = draft
            if not await self._is_awaited(draft):
                orphans.append(draft.turn_id)
        return to_send, orphans

    async def move(self, room_id: UUID) -> None:
        """Leave what is seen in a room that goes on under another name: it cannot be changed any more."""
        for turn_id in [*self._live, *self._left]:
            draft = self._draft(turn_id)
            if draft is None or draft.room_id != room_id:
                continue
            if (live := self._live.get(turn_id)) is not None:
                live.rest()
            self._forget(turn_id)
            if live is None or isinstance(live, PostedDraft):
                await self._save(_ended(draft))

    async def stop(self) -> None:
        """Show nothing more; what is seen is taken up at the next start."""
        for draft in self._live.values():
            draft.rest()
        await asyncio.gather(*(draft.ended() for draft in self._live.values()))
        self._live.clear()
        self._left.clear()
        self._ending.clear()

    async def _settled(self, turn_id: UUID, heir: Delivery | None) -> Delivery | None:
        """Settle one draft; gives back what takes its place, as it then is."""
        live = self._live.get(turn_id)
        if isinstance(live, Preview):
            is_same = heir is not None and heir.memory_id == live.part.memory_id
            await (live.ended() if is_same else live.clear())
            self._forget(turn_id)
            return heir
        if live is not None:
            await live.ended()
        draft = self._draft(turn_id)
        if draft is None:  # its room has moved meanwhile, and it was left behind there
            return heir
        if heir is None:
            if draft.external_id:
                return self._removal(draft)
            self._forget(turn_id)
            await self._save(_ended(draft))
            return None
        if _has_moved(draft, heir):
            self._forget(turn_id)
            await self._save(_ended(draft))
            return heir
        content = replace(heir.content, metadata={**heir.content.metadata, DRAFT: draft.id})
        if draft.external_id:
            content = in_place_of(draft.external_id, content)
        return replace(heir, content=content)

    async def _inherited(self, draft: Delivery, heir: Delivery) -> list[Delivery]:
        """Go on with a draft whose words are committed: what of it is still to be sent."""
        if heir.state not in OPEN or _has_moved(draft, heir):
            await self._save(_ended(draft))
        elif is_unclear(draft):
            self._unclear.add(draft.id)
            return [draft]
        else:
            self._ending[heir.id] = _ended(draft)
        return []

    async def _is_awaited(self, draft: Delivery) -> bool:
        """Tell whether the turn of a draft will be taken up again."""
        if self._clock() - draft.created_at > LONGEST_LEFT:
            return False
        receipts = await self._ledger.receipts(room_id=draft.room_id, is_open=True, limit=MOST_OPEN)
        return any(receipt.turn_id == draft.turn_id for receipt in receipts)

    def _part(self, reply: Outgoing, turn_id: UUID) -> Delivery:
        [part] = packed(reply, None, self._clock())
        return replace(part, id=delivery_id(turn_id, APART, 0))

    def _fit(self, adapter: Adapter, text: str, draft_id: str) -> Content:
        content = Content(text=cleared_so_far(text, self._secrets, self._hyperlinks))
        first = adapter.parts(content)[0] if content.text else content
        return replace(first, metadata={**first.metadata, DRAFT: draft_id})

    def _removal(self, draft: Delivery) -> Delivery:
        content = in_place_of(draft.external_id, Content(metadata={DRAFT: draft.id}))
        return replace(
            draft,
            id=delivery_id(draft.turn_id, APART, 1),
            content=content,
            created_at=self._clock(),
            state=DeliveryState.PENDING,
            attempts=0,
            first_attempt_at=None,
            external_id="",
            reply_to="",
        )

    def _begin(self, draft: Draft) -> None:
        self._live[draft.part.turn_id] = draft

    def _draft(self, turn_id: UUID) -> Delivery | None:
        live = self._live.get(turn_id)
        return self._left.get(turn_id) if live is None else live.part

    def _forget(self, turn_id: UUID) -> None:
        self._live.pop(turn_id, None)
        self._left.pop(turn_id, None)

    async def _save(self, ended: Delivery) -> None:
        with suppress(StoreUnavailable):  # it stays open, and is closed at the next start
            await self._ledger.save_delivery(ended)


def _has_moved(draft: Delivery, heir: Delivery) -> bool:
    """Tell whether a turn's words leave for another place than that in which they were seen."""
    return heir.turn_id == draft.turn_id and heir.target != draft.target


def _ended(draft: Delivery) -> Delivery:
    """Close a draft: it was seen, or it surely was not, or nobody knows."""
    if draft.external_id:
        return replace(draft, state=DeliveryState.SENT)
    if is_unclear(draft):
        return replace(draft, state=DeliveryState.UNKNOWN, cause="it may have been shown in part")
    return replace(draft, state=DeliveryState.CANCELLED)
