"""Farcaster adapter: mentions and replies in, casts that are signed here out, through the HTTP API of a hub."""

from adapters.farcaster.config import REQUIRED_VARIABLES, FarcasterSettings
from bot.platform import AdapterSpec, LazyImport

spec = AdapterSpec(
    "farcaster",
    LazyImport("adapters.farcaster.adapter:open_farcaster"),
    FarcasterSettings,
    needs=REQUIRED_VARIABLES,
    extra="farcaster",
    libraries=("blake3", "cryptography"),
    check=LazyImport("adapters.farcaster.adapter:check_account"),
    emulator=LazyImport("adapters.farcaster.emulator:start_emulator"),
    setup_steps=(
        "Create the character's account in a client of Farcaster, and say in its profile that it is an AI. "
        "FARCASTER_FID is the account's number (FID), which the client shows on the page About of the profile.",
        "Create an app key (signer) for the account: a pair of Ed25519 keys of which the account approves the public "
        "one, as docs/farcaster.md describes. FARCASTER_SIGNER_KEY is the private one, in hexadecimal.",
        "FARCASTER_HUB is the HTTP address of a hub (Snapchain node): your own, as in http://127.0.0.1:3381, or that "
        "of a service, as in https://snapchain-api.neynar.com with FARCASTER_API_KEY.",
    ),
)
