"""The Matrix adapter: one account per character of the process, and the check of `bot doctor`."""

from collections.abc import Sequence

from adapters.matrix.account import TOKEN_REFUSED, MatrixAccount
from adapters.matrix.client import MatrixClient, Refused
from adapters.matrix.config import PLATFORM, REQUIRED_VARIABLES, MatrixSettings
from adapters.matrix.outgoing import split_reply
from adapters.matrix.rooms import RoomTarget
from bot import ConfigError, Content, Room, Settings
from bot.platform import (
    AccountAdapter,
    AgentHandle,
    CursorReader,
    Delivery,
    DeliveryError,
    FetchError,
    ReactionSet,
    select_accounts,
)
from bot.store import CheckReport


class MatrixAdapter(AccountAdapter[MatrixAccount]):
    """One account for each character; it is known by its user id."""

    platform = PLATFORM
    can_edit = True
    voice_type = "audio/ogg"

    def split_content(self, content: Content) -> list[Content]:
        """Split a reply into events."""
        return split_reply(content)

    def render_notice(self, text: str) -> str:
        """Return the line in italics."""
        return f"*{text}*"

    async def deliver(self, delivery: Delivery) -> str:
        """Send one part of a reply and return the id of its event."""
        return await self.account_for(delivery).deliver(delivery)

    async def edit(self, delivery: Delivery) -> str:
        """Replace a sent message, or redact it if its new content is empty."""
        return await self.account_for(delivery).edit(delivery)

    async def reconcile(self, delivery: Delivery) -> str:
        """Send an uncertain part again under the same transaction id, which shows it once."""
        return await self.account_for(delivery).reconcile(delivery)

    def find_reactions(self, room: Room) -> ReactionSet:
        """Return all emoji."""
        return ReactionSet()

    async def react(self, delivery: Delivery) -> str:
        """Set or redact a reaction."""
        return await self.account_for(delivery).react(delivery)

    async def download(self, url: str) -> bytes | None:
        """Return a file that a user sent; None for URLs of other platforms."""
        user_id, _, address = url.removeprefix(f"{PLATFORM}:").partition("/")
        account = self.find_account(user_id)
        if account is None or not url.startswith(f"{PLATFORM}:"):
            return None
        server, _, media_id = address.partition("/")
        try:
            return await account.client.download(server, media_id)
        except DeliveryError as error:
            raise FetchError(f"the homeserver does not return the file: {error}") from None

    async def set_typing(self, room: Room, active: bool) -> None:
        """Start or stop the typing indicator in a room."""
        if (account := self.find_account(room.account)) is not None:
            await account.show_typing(RoomTarget.parse(room.external_id), is_active=active)


def user_id_of(handle: AgentHandle) -> str:
    """Return the user id of a character's account."""
    return handle.settings.load(MatrixSettings).matrix_user


def open_matrix(handles: Sequence[AgentHandle]) -> MatrixAdapter:
    """Create the adapter for all characters with an account. Raises ConfigError if two have the same."""
    accounts = select_accounts(handles, PLATFORM, REQUIRED_VARIABLES, user_id_of, label="MATRIX_USER")
    if not accounts:
        raise ConfigError(f"no character has an account on Matrix: set {', '.join(REQUIRED_VARIABLES)}")
    return MatrixAdapter(map(MatrixAccount, accounts.values()))


async def check_account(settings: Settings, read_cursor: CursorReader) -> CheckReport:
    """Check the account of a character's settings without sending any message."""
    loaded = settings.load(MatrixSettings)
    label = f"{loaded.matrix_user} at {loaded.matrix_homeserver}"
    async with MatrixClient(loaded, settings.network_environment()) as client:
        try:
            owner = await client.get("account/whoami")
            joined = await client.get("joined_rooms")
        except DeliveryError as error:
            is_about_token = isinstance(error, Refused) and error.is_about_token
            problem = TOKEN_REFUSED if is_about_token else f"{error}: check the network and MATRIX_HOMESERVER"
            return CheckReport(label, exists=False, problems=(problem,))
    problems = []
    if owner.get("user_id") != loaded.matrix_user:
        problems.append(f"MATRIX_TOKEN is that of {owner.get('user_id')}: set MATRIX_USER to it, or take its own token")
    facts: dict[str, str | int] = {
        "device": str(owner.get("device_id") or "none"),
        "rooms": len(joined.get("joined_rooms") or ()),
        "may invite it": ", ".join(loaded.matrix_allowed_inviters) or "no user: set MATRIX_ALLOWED_INVITERS",
    }
    return CheckReport(label, facts=facts, problems=tuple(problems))
