"""Balances and transfers on Solana, for an account whose key the operator sets."""

from bot import Plugin
from bot.platform import transfer_actions
from bot.store import Schema
from plugins.solana.network import SolanaAccount, SolanaSettings, metadata, missing_settings

plugin = Plugin(
    "solana",
    "Balances and transfers of SOL and tokens on Solana.",
    actions=transfer_actions(
        SolanaAccount,
        "SOLANA",
        network="Solana",
        address="address",
        token="mint or symbol of a token, as the message has it; empty for SOL",
        similes=(["GET_SOL_BALANCE", "SOLANA_WALLET_BALANCE"], ["TRANSFER_SOLANA", "SEND_SOL"]),
    ),
    services=[SolanaAccount],
    settings=SolanaSettings,
    missing_settings=missing_settings,
    schema=Schema(metadata),
    requires=["sql"],
)
