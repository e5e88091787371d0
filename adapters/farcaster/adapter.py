"""The Farcaster adapter: one account for every character that has a signer.

`bot doctor` for Farcaster: whether the hub would take a cast that is signed with the key.
"""

from collections.abc import Sequence

from adapters.farcaster.account import FarcasterAccount
from adapters.farcaster.client import HubClient, RequestRefused
from adapters.farcaster.config import REQUIRED_VARIABLES, read_settings
from adapters.farcaster.incoming import PLATFORM, name_of
from adapters.farcaster.messages import sign_cast, to_seconds
from adapters.farcaster.outgoing import split_reply
from bot import Content, CoreSettings, Settings, TemporaryError, system_clock
from bot.platform import AccountAdapter, AgentHandle, CursorReader, Delivery, DeliveryError, TimeSource, select_accounts
from bot.store import CheckReport
from bot.text import user_text

REAL_TIME = TimeSource()
NOT_ACCEPTED = "the hub would not take a cast that FARCASTER_SIGNER_KEY signs: check that {name} has approved this key"


class FarcasterAdapter(AccountAdapter[FarcasterAccount]):
    """Reads mentions and replies, and submits casts; each character has an account of its own."""

    platform = PLATFORM
    supports_idempotent_send = True  # the same part has the same hash
    links_parts = True
    shows_notices = False  # the profile has it, and with AI_NOTICE_POSTS each cast a label
    marks_late_parts = False  # a cast shows what it answers, and another text would be another cast

    def __init__(self, handles: Sequence[AgentHandle], *, time_source: TimeSource = REAL_TIME) -> None:
        owners = select_accounts(
            handles,
            PLATFORM,
            REQUIRED_VARIABLES,
            lambda handle: read_settings(handle.settings).fid,
            label="FARCASTER_FID",
        )
        super().__init__(FarcasterAccount(handle, time_source) for handle in owners.values())
        self.labels_posts = any(handle.settings.load(CoreSettings).ai_notice_posts for handle in owners.values())

    def split_content(self, content: Content) -> list[Content]:
        """Split a text into casts; with AI_NOTICE_POSTS the first one begins with the label."""
        return split_reply(content, f"{user_text('notices.ai_post')} " if self.labels_posts else "")

    async def deliver(self, delivery: Delivery) -> str:
        """Send one part and return the cast's id."""
        return await self.account_for(delivery).deliver(delivery)

    async def reconcile(self, delivery: Delivery) -> str:
        """Send a part again, which has the same hash."""
        return await self.deliver(delivery)


def open_farcaster(handles: Sequence[AgentHandle]) -> FarcasterAdapter:
    """Return the adapter for all characters that have an account; raise ConfigError if two share one."""
    return FarcasterAdapter(handles)


async def check_account(settings: Settings, read_cursor: CursorReader) -> CheckReport:
    """Ask the hub whose the account is, and whether it would take a cast, without sending anything visible.

    Raises SettingError if variables are wrong, TemporaryError if the hub cannot be reached.
    """
    loaded = read_settings(settings)
    client = HubClient(loaded, settings.network_environment())
    await client.open()
    try:
        name = f"@{name_of(loaded.fid, {loaded.fid: await client.user(loaded.fid)})}"
        cast = sign_cast(loaded.signer_key, loaded.fid, to_seconds(system_clock()), "check")
        is_accepted = await client.validate(cast.body)
    except RequestRefused as error:
        if not error.is_final:
            problem = f"{error}: check FARCASTER_HUB and FARCASTER_API_KEY"
            return CheckReport(f"the account on {loaded.farcaster_hub}", exists=False, problems=(problem,))
        is_accepted = False
    except DeliveryError as error:
        raise TemporaryError(f"{loaded.farcaster_hub} cannot be reached: {error}") from None
    finally:
        await client.close()
    facts: dict[str, str | int] = {
        "hub": loaded.farcaster_hub,
        "scheduled casts": "on" if loaded.farcaster_post_enable else "off",
    }
    problems = () if is_accepted else (NOT_ACCEPTED.format(name=name),)
    return CheckReport(f"{name} on Farcaster (FID {loaded.fid})", facts=facts, problems=problems)
