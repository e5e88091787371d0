"""Mastodon adapter: mentions and direct messages in; replies that keep their visibility, and posts, out."""

from adapters.mastodon.config import REQUIRED_VARIABLES, MastodonSettings
from bot.platform import AdapterSpec, LazyImport

spec = AdapterSpec(
    "mastodon",
    LazyImport("adapters.mastodon.adapter:open_mastodon"),
    MastodonSettings,
    needs=REQUIRED_VARIABLES,
    check=LazyImport("adapters.mastodon.adapter:check_account"),
    emulator=LazyImport("adapters.mastodon.emulator:start_emulator"),
    setup_steps=(
        "Choose a server whose rules allow bots, and create the character's account there. In its profile, on "
        '"Edit profile", mark it as automated and say that it is an AI.',
        "Log in as that account, open Preferences, Development, New application; name it, leave the scopes read and "
        "write checked, and submit.",
        "Open the application and copy its access token. MASTODON_SERVER is the server's address, as in "
        "https://mastodon.social.",
    ),
)
