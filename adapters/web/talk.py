"""What is said through this server: in by the inbox, and back to the room once it has its outcome."""

from collections.abc import Callable
from uuid import UUID

from adapters.web.asking import choice_pressed, command_given
from adapters.web.bodies import MessageAnswer
from adapters.web.books import show_answer, show_message
from adapters.web.errands import Errands
from adapters.web.frames import Give, Hello, Press
from adapters.web.hub import Hub, Interrupted, Listen, Settled, Spoken
from adapters.web.incoming import FINGERPRINT, Said, message_received
from adapters.web.outgoing import message_body
from adapters.web.problems import Problem
from bot import Clock, Door, IntakeClosed, Receipt, Shown, TryAgain, new_id, system_clock

Kept = Callable[[Receipt], None]


class Talk:
    """Hands messages over and follows them to their outcome."""

    def __init__(self, hub: Hub, errands: Errands, clock: Clock = system_clock) -> None:
        self._hub = hub
        self._errands = errands
        self._clock = clock
        self._watched: set[UUID] = set()

    async def put(
        self, door: Door, said: Said, *, kept: Kept | None = None, sender: Listen | None = None
    ) -> Receipt:
        """Keep a message; `kept` is called at once when it is, and everybody in the room but `sender` told.

        A message that is known already gets the receipt it has. Raises Problem where another one has
        its key, IntakeClosed while stopping.
        """
        return await self._errands.run(self._put(door, said, kept, sender))

    async def ask(self, door: Door, hello: Hello, frame: Give | Press, *, sender: Listen) -> Shown:
        """Have a command carried out, or a choice made; raises as the door does.

        A question that is asked by a command is a message: everybody in the room but `sender` is told of it.
        """
        at = self._clock()
        if isinstance(frame, Press):
            return await door.chosen(choice_pressed(hello, frame, agent_id=door.agent_id, at=at))
        shown = await door.command(command_given(hello, frame, agent_id=door.agent_id, at=at))
        if shown.receipt is not None:
            message = await show_message(door, shown.receipt.memory_id)
            if message is not None:
                self._hub.tell(shown.receipt.room_id, Spoken(message), but=sender)
        return shown

    async def answer(self, door: Door, receipt: Receipt) -> MessageAnswer:
        """Wait for a message's outcome."""
        return await show_answer(door, await door.inbox.settled(receipt.id))

    def watch(self, door: Door, receipt: Receipt) -> None:
        """Tell the room the outcome of a message when it has one."""
        if receipt.id not in self._watched:
            self._watched.add(receipt.id)
            self._errands.start(self._watch(door, receipt))

    async def _put(self, door: Door, said: Said, kept: Kept | None, sender: Listen | None) -> Receipt:
        arrival = message_received(said, agent_id=door.agent_id, message_id=new_id(), at=self._clock())
        receipt = await door.inbox.put(arrival)
        is_new = receipt.memory_id == arrival.message.id
        if not is_new:
            await self._refuse_other(door, receipt, said)
        if kept is not None:
            kept(receipt)
        if is_new:
            own = message_body(arrival.message, door.agent_id, {arrival.author.id: arrival.author})
            self._hub.tell(receipt.room_id, Spoken(own), but=sender)
        self.watch(door, receipt)
        return receipt

    async def _refuse_other(self, door: Door, receipt: Receipt, said: Said) -> None:
        """Raise Problem where the message that has this key says something else."""
        known = await door.records.message(receipt.memory_id)
        if known is not None and known.metadata.get(FINGERPRINT) != said.fingerprint:
            raise Problem(
                422, "idempotency_mismatch", f"the idempotency key {said.key!r} belongs to another message"
            )

    async def _watch(self, door: Door, receipt: Receipt) -> None:
        try:
            answer = await self.answer(door, receipt)
        except (IntakeClosed, LookupError, TryAgain):
            self._hub.tell(receipt.room_id, Interrupted(receipt.memory_id))
            return
        finally:
            self._watched.discard(receipt.id)
        for reply in answer.replies:
            self._hub.tell(receipt.room_id, Spoken(reply))
        self._hub.tell(receipt.room_id, Settled(answer))
