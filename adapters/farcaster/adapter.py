"""The Farcaster adapter: for every character that has a signer one account, which receives at intervals, and sends.

`bot doctor` for Farcaster: whether the hub would take a cast that is signed with the key.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta

import bot.platform as bp
from adapters.farcaster.client import HubClient, RequestRefused
from adapters.farcaster.config import REQUIRED_VARIABLES, FarcasterSettings, read_settings
from adapters.farcaster.incoming import PLATFORM, account_key, build_feed_room, build_world, name_of
from adapters.farcaster.messages import MAX_EMBEDS, MAX_LONG_CAST_BYTES, MAX_URL_BYTES, CastId, sign_cast, to_seconds
from adapters.farcaster.receiving import CastReceiver, ThreadIndex
from bot import Attachment, Content, CoreSettings, Settings, TemporaryError, system_clock
from bot.store import CheckReport, StoreUnavailable
from bot.text import split_at, user_text

logger = logging.getLogger(__name__)
PROFILE = "profile"  # the id of a notice that a process without the adapter has committed
RETRIES = bp.Backoff(1.0, 60.0)


class FarcasterAccount(bp.Account):
    """One account, opened and closed by the adapter."""

    def __init__(self, handle: bp.AgentHandle, time_source: bp.TimeSource) -> None:
        self._handle, self._time = handle, time_source
        self.settings: FarcasterSettings = read_settings(handle.settings)
        self.keys = (account_key(self.settings.fid),)
        self.status = bp.ConnectionStatus(PLATFORM, handle.character.name, time_source.now, agent_id=handle.agent_id)
        self._client = HubClient(self.settings, handle.settings.network_environment())
        self._threads = ThreadIndex(handle, time_source)
        self._receiver = CastReceiver(handle, self._client, self.settings, self._threads, time_source)
        self._tasks = bp.TaskSet(f"{handle.character.name} on Farcaster")

    async def open(self) -> None:
        """Open the HTTP session and start in the background."""
        await self._client.session.__aenter__()
        self._tasks.start(self._run())

    async def close(self) -> None:
        """Stop all tasks and close the session."""
        await self._tasks.cancel()
        await self._client.session.__aexit__()

    @property
    def feed(self) -> bp.Feed:
        """The account's timeline, the interval of scheduled casts, and why they pause."""
        settings, agent_id = self.settings, self._handle.agent_id
        shortest, longest = settings.farcaster_post_interval_min, settings.farcaster_post_interval_max
        interval = (timedelta(minutes=shortest), timedelta(minutes=longest)) if settings.farcaster_post_enable else None
        is_paused = bp.is_quiet(settings.farcaster_quiet_hours, settings.farcaster_time_zone, self._time.now())
        reason = f"FARCASTER_QUIET_HOURS is {settings.farcaster_quiet_hours}" if is_paused else ""
        return bp.Feed(build_world(agent_id), build_feed_room(agent_id, settings.fid), interval, reason)

    async def deliver(self, delivery: bp.Delivery) -> str:
        """Send one part and return the cast's id; sent again it has the same hash, and is the same cast.

        What is signed comes from the ledger alone: the text, the cast that it answers, and the time of the part.
        """
        if delivery.kind is bp.DeliveryKind.NOTICE:
            return PROFILE
        fid, content = self.settings.fid, delivery.content
        parent = await self._find_parent(delivery)
        embeds = [item.url for item in content.attachments]
        timestamp = to_seconds(delivery.created_at)
        cast = sign_cast(self.settings.signer_key, fid, timestamp, content.text, parent=parent, embeds=embeds)
        try:
            await self._client.submit(cast.body)
        except RequestRefused as error:
            if not error.is_final:
                raise bp.NotSent(str(error)) from error
            if not (error.is_duplicate or await self._has(cast.id)):
                raise bp.Undeliverable(str(error)) from error
        kind, _, root = delivery.target.partition(":")
        self._threads.note(cast.id, root if kind == "cast" else str(cast.id))
        await self._threads.save()
        return str(cast.id)

    async def _has(self, cast_id: CastId) -> bool:
        """Return whether the hub has a cast that it has refused: then it got it before."""
        try:
            return await self._client.cast(cast_id) is not None
        except RequestRefused as error:
            raise bp.NotSent(str(error)) from error

    async def _find_parent(self, delivery: bp.Delivery) -> CastId | None:
        """Return the cast that a part answers: the part before it, the mention, or the first cast of its thread."""
        kind, _, root = delivery.target.partition(":")
        parent = delivery.reply_to or (root if kind == "cast" else "")
        if delivery.part:
            parts = await self._handle.conversations.deliveries(delivery.turn_id)
            parent = bp.find_previous_part(parts, delivery)
        try:
            return CastId.parse(parent) if parent else None
        except ValueError as error:
            raise bp.Undeliverable(str(error)) from error

    async def _run(self) -> None:
        """Find out the account's name, then read at intervals, until the process stops."""
        failures, is_behind = 0, True  # casts were missed, and old ones are not answered
        while True:
            delay = self.settings.farcaster_poll_interval
            try:
                await self._look(is_backfill=is_behind)
                self.status.connected()
                failures, is_behind = 0, False
                if not self.is_receiving:
                    return
            except bp.InboxClosed:
                return
            except StoreUnavailable as error:
                logger.info("%s does not read: %s", self.status.label, error)
            except Exception as error:
                failures, is_behind = failures + 1, True
                retry_after = self._report(error)
                delay = RETRIES.delay(failures, retry_after=retry_after)
            await self._time.sleep(delay)

    async def _look(self, *, is_backfill: bool) -> None:
        users = {self.settings.fid: await self._receiver.user(self.settings.fid)}
        self.status.account = f"@{name_of(self.settings.fid, users)}"
        if self.is_receiving:
            await self._receiver.poll(is_backfill=is_backfill)

    def _report(self, error: Exception) -> float:
        """Report why the hub was not read; return the seconds that it asks to wait."""
        retry_after = getattr(error, "retry_after", None) or 0.0
        if isinstance(error, RequestRefused):
            self.status.failed(bp.DisconnectCause.FORBIDDEN, error)
        elif isinstance(error, bp.DeliveryError):
            self.status.failed(bp.DisconnectCause.LIMITED if retry_after else bp.disconnect_cause(error), error)
        else:  # a defect must not end the receiving for ever
            logger.error("reading the casts for %s failed", self.status.label, exc_info=error)
            self.status.failed(bp.DisconnectCause.FAULT, type(error).__name__)
        return retry_after


def split_reply(content: Content, label: str = "") -> list[Content]:
    """Split a text into casts, the first of which begins with a label; addresses of files are embedded in it.

    A cast embeds at most two addresses; further ones, and the names of files without an address, follow the text.
    """
    files = [item for item in content.attachments if item.url.startswith(("https://", "http://"))]
    embedded = [item for item in files if len(item.url.encode()) <= MAX_URL_BYTES][:MAX_EMBEDS]
    links = [item.url for item in files if item not in embedded]
    refused = [item.name or item.title or item.id for item in content.attachments if item not in files]
    notes = [f"(could not be posted: {', '.join(refused)})"] if refused else []
    pieces = split_text(label + "\n".join(filter(None, [content.text.strip(), *links, *notes])))
    kept = tuple(Attachment(item.id, item.kind, url=item.url) for item in embedded)
    return [Content(text=piece, attachments=() if number else kept) for number, piece in enumerate(pieces)]


def split_text(text: str) -> list[str]:
    """Split a text into pieces of at most 1,024 bytes, after a sentence, else a word, else a character."""
    pieces: list[str] = []
    while len(text.encode()) > MAX_LONG_CAST_BYTES:
        fitting = len(text.encode()[:MAX_LONG_CAST_BYTES].decode("utf-8", "ignore"))
        piece, text = split_at(text, fitting)
        pieces.append(piece)
    return [*pieces, text]


REAL_TIME = bp.TimeSource()
NOT_ACCEPTED = "the hub would not take a cast that FARCASTER_SIGNER_KEY signs: check that {name} has approved this key"


class FarcasterAdapter(bp.AccountAdapter[FarcasterAccount]):
    """Reads mentions and replies, and submits casts; each character has an account of its own."""

    platform = PLATFORM
    supports_idempotent_send = True  # the same part has the same hash
    links_parts = True
    shows_notices = False  # the profile has it, and with AI_NOTICE_POSTS each cast a label
    marks_late_parts = False  # a cast shows what it answers, and another text would be another cast

    def __init__(self, handles: Sequence[bp.AgentHandle], *, time_source: bp.TimeSource = REAL_TIME) -> None:
        owners = bp.select_accounts(
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

    async def deliver(self, delivery: bp.Delivery) -> str:
        """Send one part and return the cast's id."""
        return await self.account_for(delivery).deliver(delivery)

    async def reconcile(self, delivery: bp.Delivery) -> str:
        """Send a part again, which has the same hash."""
        return await self.deliver(delivery)


def open_farcaster(handles: Sequence[bp.AgentHandle]) -> FarcasterAdapter:
    """Return the adapter for all characters that have an account; raise ConfigError if two share one."""
    return FarcasterAdapter(handles)


async def check_account(settings: Settings, read_cursor: bp.CursorReader) -> CheckReport:
    """Ask the hub whose the account is, and whether it would take a cast, without sending anything visible.

    Raises SettingError if variables are wrong, TemporaryError if the hub cannot be reached.
    """
    loaded = read_settings(settings)
    client = HubClient(loaded, settings.network_environment())
    try:
        async with client.session:
            name = f"@{name_of(loaded.fid, {loaded.fid: await client.user(loaded.fid)})}"
            cast = sign_cast(loaded.signer_key, loaded.fid, to_seconds(system_clock()), "check")
            is_accepted = await client.validate(cast.body)
    except RequestRefused as error:
        if not error.is_final:
            problem = f"{error}: check FARCASTER_HUB and FARCASTER_API_KEY"
            return CheckReport(f"the account on {loaded.farcaster_hub}", exists=False, problems=(problem,))
        is_accepted = False
    except bp.DeliveryError as error:
        raise TemporaryError(f"{loaded.farcaster_hub} cannot be reached: {error}") from None
    facts: dict[str, str | int] = {
        "hub": loaded.farcaster_hub,
        "scheduled casts": "on" if loaded.farcaster_post_enable else "off",
    }
    problems = () if is_accepted else (NOT_ACCEPTED.format(name=name),)
    return CheckReport(f"{name} on Farcaster (FID {loaded.fid})", facts=facts, problems=problems)
