"""Balances, names and transfers on Ethereum and its kin, for an account whose key the operator sets."""

from bot import Plugin
from bot.store import Schema
from plugins.evm.actions import check_balance, transfer
from plugins.evm.network import EvmAccount, EvmSettings, metadata, missing_settings

plugin = Plugin(
    "evm",
    "Balances, names and transfers on Ethereum and networks like it.",
    actions=[check_balance, transfer],
    services=[EvmAccount],
    settings=EvmSettings,
    missing_settings=missing_settings,
    schema=Schema(metadata),
    requires=["sql"],
)
