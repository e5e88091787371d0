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
    check=LazyImport("adapters.x.adapter:check_account"),
    emulator=LazyImport("adapters.x.emulator:start_emulator"),
    setup_steps=(
        "Log in on X as the character's account, open https://developer.x.com, press Sign up and choose a plan.",
        "In the app's settings, User authentication settings, press Set up: Read and write; Web App, Automated App "
        "or Bot; any address of yours for the two URLs.",
        "Then, on Keys and tokens, generate the API Key and Secret, and the Access Token and Secret.",
    ),
    publishing=Publishing(
        post_url, {"X_REPLY_ENABLE": "false"}, is_dry_run, route="/plugins/x_actions/posts", parse_post_id=parse_post_id
    ),
)
