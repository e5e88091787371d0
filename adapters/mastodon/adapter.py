"""The Mastodon adapter: one account for every character that has a token.

`bot doctor` for Mastodon: the token, the bot flag, and the server's limits.
"""

from collections.abc import Sequence
from uuid import UUID

from yarl import URL

from adapters.mastodon.account import TOKEN_REFUSED, MastodonAccount
from adapters.mastodon.client import MastodonClient, RequestRefused
from adapters.mastodon.config import REQUIRED_VARIABLES, read_settings
from adapters.mastodon.incoming import PLATFORM, BotIdentity, Instance, build_direct_room, build_world, html_to_text
from adapters.mastodon.outgoing import split_reply
from bot import Content, Entity, Room, Settings, TemporaryError, World, system_clock
from bot.platform import (
    AccountAdapter,
    AgentHandle,
    CursorReader,
    Delivery,
    DeliveryError,
    ReactionSet,
    TimeSource,
    select_accounts,
)
from bot.store import CheckReport
from bot.text import names_ai

REAL_TIME = TimeSource()
FAVOURITE = ReactionSet(("⭐",))
NOT_MARKED = 'the profile does not mark it as a bot: switch on "This is an automated account" in Edit profile'


class MastodonAdapter(AccountAdapter[MastodonAccount]):
    """Reads notifications and sends posts; each character has an account of its own."""

    platform = PLATFORM
    can_edit = True
    links_parts = True
    shows_notices = False  # the profile has it, and with AI_NOTICE_POSTS each post a label
    marks_late_parts = False  # a post shows its time and what it answers

    def __init__(self, handles: Sequence[AgentHandle], *, time_source: TimeSource = REAL_TIME) -> None:
        owners = select_accounts(
            handles,
            PLATFORM,
            REQUIRED_VARIABLES,
            lambda handle: read_settings(handle.settings).token,
            label="MASTODON_TOKEN",
        )
        super().__init__(MastodonAccount(handle, time_source) for handle in owners.values())
        hosts = {URL(account.settings.mastodon_server).host for account in self.accounts}
        self.is_trusted_audience = hosts == {"127.0.0.1"}  # the emulator
        self.labels_posts = any(account.sender.label for account in self.accounts)

    def split_content(self, content: Content) -> list[Content]:
        """Split a text into posts that every account's server takes."""
        senders = [account.sender for account in self.accounts]
        instance = min(
            (sender.instance for sender in senders), key=lambda item: item.max_characters, default=Instance()
        )
        return split_reply(content, instance, next((sender.label for sender in senders if sender.label), ""))

    async def deliver(self, delivery: Delivery) -> str:
        """Send one part and return the post's id."""
        account = self.account_for(delivery)
        return await account.send(account.sender.deliver, delivery)

    async def edit(self, delivery: Delivery) -> str:
        """Edit a post, or delete it if its new content is empty."""
        account = self.account_for(delivery)
        return await account.send(account.sender.edit, delivery)

    def find_reactions(self, room: Room) -> ReactionSet:
        """Return the favourite."""
        return FAVOURITE

    async def react(self, delivery: Delivery) -> str:
        """Favourite a post, or take that back."""
        account = self.account_for(delivery)
        return await account.send(account.sender.react, delivery)

    async def reconcile(self, delivery: Delivery) -> str:
        """Send a part again, which the server publishes once, or look for it."""
        account = self.account_for(delivery)
        return await account.send(account.sender.reconcile, delivery)

    async def open_direct(self, agent_id: UUID, person: Entity) -> tuple[World, Room] | None:
        """Return the private chat of a character with a person: direct posts that mention the person."""
        account = self.account_of(agent_id)
        if account is None:
            return None
        host = account.settings.host
        return build_world(host, agent_id), build_direct_room(host, agent_id, person.external_id, person.name)

    def trusted_origin(self, account: str) -> str:
        """Return the origin of an account's server, which the operator has named."""
        owner = self.find_account(account)
        return str(URL(owner.settings.mastodon_server).origin()) if owner is not None else ""


def open_mastodon(handles: Sequence[AgentHandle]) -> MastodonAdapter:
    """Return the adapter for all characters that have an account; raise ConfigError if two share one."""
    return MastodonAdapter(handles)


async def check_account(settings: Settings, read_cursor: CursorReader) -> CheckReport:
    """Ask the server whose the token is, and for its limits, without sending anything visible.

    Raises SettingError if variables are wrong, TemporaryError if the server cannot be reached.
    """
    loaded = read_settings(settings)
    client = MastodonClient(loaded, settings.network_environment(), system_clock)
    await client.open()
    try:
        own, instance = await client.own_account(), await client.instance()
    except RequestRefused as error:
        problem = TOKEN_REFUSED if error.status == 401 else f"{error}: check MASTODON_SERVER and the token's scopes"
        return CheckReport(f"the account on {loaded.host}", exists=False, problems=(problem,))
    except DeliveryError as error:
        raise TemporaryError(f"{loaded.mastodon_server} cannot be reached: {error}") from None
    finally:
        await client.close()
    identity = BotIdentity(UUID(int=0), loaded.host, own)
    facts: dict[str, str | int] = {
        "server": f"Mastodon {instance.version}" if instance.version else loaded.host,
        "characters in a post": instance.max_characters,
        "followers": "ask first" if own.locked else "need not ask",
        "the profile says that it is an AI": "yes" if names_ai(html_to_text(own.note, (), identity)) else "no: add it",
        "scheduled posts": "on" if loaded.mastodon_post_enable else "off",
    }
    return CheckReport(f"@{own.acct} on {loaded.host}", facts=facts, warnings=() if own.bot else (NOT_MARKED,))
