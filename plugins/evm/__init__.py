"""Balances, names and transfers on Ethereum and its kin, for an account whose key the operator sets."""

from bot import Plugin
from bot.platform import transfer_actions
from bot.store import Schema
from plugins.evm.network import EvmAccount, EvmSettings, metadata, missing_settings

plugin = Plugin(
    "evm",
    "Balances, names and transfers on Ethereum and networks like it.",
    actions=transfer_actions(
        EvmAccount,
        "EVM",
        network="Ethereum or a network like it",
        address="address or ENS name",
        token="contract of an ERC-20 token; empty for the native coin",
        similes=(["GET_ETH_BALANCE", "EVM_WALLET_BALANCE"], ["SEND_ETH", "EVM_SEND_TOKENS"]),
    ),
    services=[EvmAccount],
    settings=EvmSettings,
    missing_settings=missing_settings,
    schema=Schema(metadata),
    requires=["sql"],
)
