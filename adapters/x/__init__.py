"""X adapter: mentions in; posts, threads and replies out, within the limits of a plan."""

from adapters.x.config import REQUIRED_VARIABLES, XSettings, is_dry_run, parse_post_id, post_url
from bot.platform import AdapterSpec, LazyImport, Publishing

spec = AdapterSpec(
    "x",
    LazyImport("adapters.x.adapter:open_x"),
    XSettings,
    needs=REQUIRED_VARIABLES,
    extra="x",
    libraries=("tweepy", "async_lru"),
    check=LazyImport("adapters.x.checks:check_account"),
    emulator=LazyImport("adapters.x.emulator:start_emulator"),
    publishing=Publishing(
        post_url, {"X_REPLY_ENABLE": "false"}, is_dry_run, route="/plugins/x_actions/posts", parse_post_id=parse_post_id
    ),
)
