"""X as a platform: mentions in, posts, threads and replies out, each within a plan's budget."""

from adapters.x.adapter import open_x
from adapters.x.checkup import check_account
from adapters.x.config import NEEDS, XSettings
from bot import AdapterSpec

adapter = AdapterSpec(
    "x",
    open_x,
    XSettings,
    needs=NEEDS,
    extra="x",
    check=check_account,
    emulator="adapters.x.emulator",
)
