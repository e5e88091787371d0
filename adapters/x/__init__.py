"""X as a platform: mentions in, posts, threads and replies out, each within a plan's budget."""

from adapters.x.config import NEEDS, XSettings
from bot.platform import AdapterSpec, Deferred

spec = AdapterSpec(
    "x",
    Deferred("adapters.x.adapter:open_x"),
    XSettings,
    needs=NEEDS,
    extra="x",
    libraries=("tweepy", "async_lru"),
    check=Deferred("adapters.x.checks:check_account"),
    emulator="adapters.x.emulator",
)
