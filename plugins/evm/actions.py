"""EVM_BALANCE for everybody, and EVM_TRANSFER for the operators of the account."""

from typing import Annotated

from bot import ActionResult, Effect, Role, TemporaryError, Turn, action
from bot.prompts import ActionPreview, Authority
from bot.transfers import NATIVE, NodeRefused, Order, TransferRefused, format_units, to_units
from plugins.evm.network import NATIVE_DECIMALS, EvmAccount

NODE_FAILURE = "the node refused it; the log has the reason"


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
    account = turn.agent.services[EvmAccount]
    try:
        owner = await account.resolve(address) if address.strip() else account.address
        asset = account.parse_asset(token)
        decimals, units = await account.decimals(asset), await account.balance(owner, asset)
    except (TransferRefused, TemporaryError) as error:
        return ActionResult(False, error=str(error), authors=())
    except NodeRefused as error:
        account.log_refusal(error)
        return ActionResult(False, error=NODE_FAILURE, authors=())
    price = await account.price() if asset == NATIVE else ""
    text = f"{owner} has {format_units(units, decimals)} {account.describe_asset(asset)} on {account.network}."
    return ActionResult(text=f"{text} One is worth {price}." if price else text, authors=())


async def can_transfer(turn: Turn) -> bool:
    """Return whether transfers are on and only operators of the account ask."""
    return turn.agent.services[EvmAccount].may_ask(turn)


async def preview_transfer(
    turn: Turn, to: str, amount: str, token: str = "", max_fee: str = ""
) -> ActionPreview | ActionResult:
    """Return what would be transferred to which address for which fee, or why it cannot be."""
    account = turn.agent.services[EvmAccount]
    try:
        recipient, asset = await account.resolve(to), account.parse_asset(token)
        decimals = await account.decimals(asset)
        order = await account.quote(Order(recipient, asset, to_units(amount, decimals), decimals, 0))
    except (TransferRefused, TemporaryError) as error:
        return ActionResult(False, error=str(error), authors=())
    except NodeRefused as error:
        account.log_refusal(error)
        return ActionResult(False, error=NODE_FAILURE, authors=())
    names = ((to.strip(), recipient), (amount.strip(),), *(() if asset == NATIVE else ((asset,),)))
    arguments = {"to": recipient, "amount": amount.strip(), "token": asset, "max_fee": str(order.fee_limit)}
    return ActionPreview(account.describe(order, NATIVE_DECIMALS), names, arguments)


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
    account = turn.agent.services[EvmAccount]
    try:
        asset = account.parse_asset(token)
        decimals = await account.decimals(asset)
        order = Order(account.parse_address(to), asset, to_units(amount, decimals), decimals, to_units(max_fee, 0))
    except (TransferRefused, TemporaryError) as error:
        return ActionResult(False, error=str(error), authors=())
    except NodeRefused as error:
        account.log_refusal(error)
        return ActionResult(False, error=NODE_FAILURE, authors=())
    return await account.transfer(turn, order)
