"""EVM_BALANCE for everybody, and EVM_TRANSFER for the operators of the account."""

from typing import Annotated

from bot import ActionResult, Effect, Role, Turn, action
from bot.prompts import ActionPreview, Authority
from plugins.evm.network import EvmAccount


@action(
    "EVM_BALANCE",
    "Look up how much an address or name on Ethereum or a network like it has.",
    similes=["GET_ETH_BALANCE", "EVM_WALLET_BALANCE"],
    effect=Effect.PURE,
    authority=Authority.harmless("it reads what is public on the network"),
)
async def check_balance(
    turn: Turn,
    address: Annotated[str, "The address or ENS name; empty for the bot's own account"] = "",
    token: Annotated[str, "The contract of an ERC-20 token; empty for the native coin"] = "",
) -> ActionResult:
    """Return the balance, with its price where the operator has named a source."""
    return await turn.agent.services[EvmAccount].tell_balance(address, token)


async def can_transfer(turn: Turn) -> bool:
    """Return whether transfers are on and only operators of the account ask."""
    return turn.agent.services[EvmAccount].may_ask(turn)


async def preview_transfer(
    turn: Turn, to: str, amount: str, token: str = "", max_fee: str = ""
) -> ActionPreview | ActionResult:
    """Return what would be transferred to which address for which fee, or why it cannot be."""
    return await turn.agent.services[EvmAccount].preview(to, amount, token)


@action(
    "EVM_TRANSFER",
    "Transfer coins or tokens from the bot's account on Ethereum or a network like it.",
    similes=["SEND_ETH", "EVM_SEND_TOKENS"],
    when=can_transfer,
    role=Role.OWNER,
    effect=Effect.KEYED,
    authority=Authority.confirmed(),
    preview=preview_transfer,
    confirm="code",
    deadline=120,
)
async def transfer(
    turn: Turn,
    to: Annotated[str, "The address or ENS name, as the message has it"],
    amount: Annotated[str, "The amount as the message has it, such as 0.05"],
    token: Annotated[str, "The contract of an ERC-20 token; empty for the native coin"] = "",
    max_fee: Annotated[str, "Leave it empty: the confirmation sets it"] = "",
) -> ActionResult:
    """Begin the confirmed transfer, once; its outcome is reported in the room."""
    return await turn.agent.services[EvmAccount].begin(turn, to, amount, token, max_fee)
