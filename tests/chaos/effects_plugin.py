"""A plugin with an action of each effect, each with an external side effect, and facts."""

import os
import signal
from types import TracebackType
from typing import Self

from aiohttp import ClientSession

from bot import (
    ActionResult,
    Agent,
    Effect,
    Memory,
    MemoryKind,
    Plugin,
    ProviderResult,
    Service,
    Turn,
    action,
    crash_point,
    derived_id,
    evaluator,
    provider,
)

FACTS = 3
POISON = "poison"


class OutsideWorld(Service):
    """Posts side effects to the loopback platform, which counts them."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._url = agent.settings.require("LOOPBACK_URL")
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = ClientSession(self._url)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def change(self, turn: Turn, kind: str) -> ActionResult:
        """Cause a side effect. The process may be killed before it receives the response."""
        assert self._session is not None, "the service has been entered"
        effect = {"kind": kind, "name": turn.message.external_id, "key": str(turn.id)}
        async with self._session.post("/effects", json=effect) as answer:
            answer.raise_for_status()
        crash_point("action.mid")
        return ActionResult(text=f"{kind} is done")


@provider("POISON", "Ends the process when it is asked about a poisoned message.")
def poison(turn: Turn) -> ProviderResult:
    if POISON in turn.message.content.text:
        os.kill(os.getpid(), signal.SIGKILL)
    return ProviderResult()


@action("PURE", "Look at something.", effect=Effect.PURE)
async def pure(turn: Turn) -> ActionResult:
    return await turn.agent.services[OutsideWorld].change(turn, "pure")


@action("IDEMPOTENT", "Set something.", effect=Effect.IDEMPOTENT)
async def idempotent(turn: Turn) -> ActionResult:
    return await turn.agent.services[OutsideWorld].change(turn, "idempotent")


@action("KEYED", "Pay something, once a key.", effect=Effect.KEYED)
async def keyed(turn: Turn) -> ActionResult:
    return await turn.agent.services[OutsideWorld].change(turn, "keyed")


@action("UNSAFE", "Shout something.", effect=Effect.UNSAFE)
async def unsafe(turn: Turn) -> ActionResult:
    return await turn.agent.services[OutsideWorld].change(turn, "unsafe")


@evaluator("FACTS", "Learns three facts from a turn, all of them or none.")
async def facts(turn: Turn) -> None:
    learnt = [
        Memory(
            id=derived_id(turn.id, "fact", str(number)),
            kind=MemoryKind.FACT,
            entity_id=turn.author.id,
            room_id=turn.room.id,
            world_id=turn.world.id,
            content=turn.message.content,
            created_at=turn.agent.clock(),
            source_id=turn.message.id,
        )
        for number in range(FACTS)
    ]
    await turn.agent.store.memories.add(learnt)
    crash_point("eval.mid")


plugin = Plugin(
    "effects",
    "Causes side effects outside the process.",
    actions=[pure, idempotent, keyed, unsafe],
    providers=[poison],
    evaluators=[facts],
    services=[OutsideWorld],
)
