"""Multi-step: with `USE_MULTI_STEP=true` the model chooses one action at a time and sees its result before the next.

"Swap 10 ETH to USDC, then bridge what comes out": how much comes out is only known after the swap, so the whole chain
cannot be planned at once.
"""

from typing import Annotated

from pydantic import Field

from bot import ActionResult, Agent, Effect, Plugin, ProviderResult, Service, Turn, action, provider
from bot.prompts import Authority

RATES = {("ETH", "USDC"): 3_000.0, ("USDC", "ETH"): 1 / 3_000.0}
Amount = Annotated[float, "How much", Field(gt=0, le=1_000_000)]


class Wallet(Service):
    """Play money, in memory."""

    capability = "swap play money and move it to another network"

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.balances = {"ETH": 12.0}
        self.bridged: list[tuple[str, float, str]] = []

    def take(self, token: str, amount: float) -> str:
        """Take an amount out; return why that is not possible, or an empty text."""
        balance = self.balances.get(token, 0.0)
        if amount > balance:
            return f"there are only {balance:g} {token}"
        self.balances[token] = balance - amount
        return ""


@action(
    "SWAP_TOKENS",
    "Exchange an amount of one token for another.",
    similes=["SWAP"],
    effect=Effect.UNSAFE,
    authority=Authority.named("swap", "exchange", targets=["source", "target"]),
)
async def swap(
    turn: Turn, source: Annotated[str, "The token to give"], target: Annotated[str, "The token to get"], amount: Amount
) -> ActionResult:
    """Swap; the text of the result is what the model reads before it chooses the next step."""
    wallet, rate = turn.agent.services[Wallet], RATES.get((source, target))
    if rate is None:
        return ActionResult(False, error=f"nobody swaps {source} for {target}", authors=())
    if problem := wallet.take(source, amount):
        return ActionResult(False, error=problem, authors=())
    received = amount * rate
    wallet.balances[target] = wallet.balances.get(target, 0.0) + received
    text = f"swapped {amount:g} {source} for {received:g} {target}"
    return ActionResult(text=text, data={"token": target, "amount": received}, authors=())


@action(
    "BRIDGE_TOKENS",
    "Move tokens to another network.",
    similes=["BRIDGE"],
    effect=Effect.UNSAFE,
    authority=Authority.named("bridge", "move", targets=["network"]),
)
async def bridge(
    turn: Turn, token: Annotated[str, "Which token"], amount: Amount, network: Annotated[str, "Where to, as Arbitrum"]
) -> ActionResult:
    """Move them out of the wallet."""
    wallet = turn.agent.services[Wallet]
    if problem := wallet.take(token, amount):
        return ActionResult(False, error=problem, authors=())
    wallet.bridged.append((token, amount, network))
    return ActionResult(text=f"bridged {amount:g} {token} to {network}", authors=())


@provider("WALLET", "What the wallet holds.", position=50)
async def wallet_balances(turn: Turn) -> ProviderResult:
    """Return the balances at the beginning; what a step changes is in its result."""
    balances = turn.agent.services[Wallet].balances
    held = ", ".join(f"{amount:g} {token}" for token, amount in sorted(balances.items()) if amount)
    return ProviderResult(text=f"The wallet holds {held or 'nothing'}.", authors=())


plugin = Plugin(
    "multi_step",
    "Swaps and bridges play money, one step after the other.",
    actions=[swap, bridge],
    providers=[wallet_balances],
    services=[Wallet],
)
