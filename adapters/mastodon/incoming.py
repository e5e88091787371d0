"""Posts of Mastodon as InboundMessage. Pure functions, and models of the server's answers as far as they are used."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from html.parser import HTMLParser
from typing import Annotated, Any
from uuid import UUID

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from bot import Attachment, ChannelType, Content, Entity, MediaKind, Room, World, derived_id
from bot.platform import InboundMessage, MentionContext, Quotation

PLATFORM = "mastodon"
THREAD_CONTEXT = "thread context"
MAX_HTML_LENGTH = 65_536
VISIBILITIES = ("public", "unlisted", "private", "direct")
MEDIA_KINDS = {"image": MediaKind.IMAGE, "gifv": MediaKind.VIDEO, "video": MediaKind.VIDEO, "audio": MediaKind.AUDIO}
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


def _configuration(default: Any, *path: str) -> Any:
    """Return a field of `Instance` that stands somewhere in its configuration."""
    return Field(default, validation_alias=AliasPath("configuration", *path))


class Payload(BaseModel):
    """A part of an answer; unknown fields are ignored, and a text that is null is empty."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Account(Payload):
    """An account, or what a post says of one that it mentions; `acct` has no server if that is the own one."""

    id: str
    acct: str
    display_name: Text = ""
    note: Text = ""
    url: Text = ""
    bot: Annotated[bool, BeforeValidator(bool)] = False  # some servers send null
    locked: Annotated[bool, BeforeValidator(bool)] = False


class Media(Payload):
    """A picture, video or recording."""

    id: str
    type: str = "unknown"
    url: Text = ""
    remote_url: Text = ""
    description: Text = ""


class Status(Payload):
    """One post."""

    id: str
    account: Account
    created_at: datetime
    edited_at: datetime | None = None
    content: Text = ""
    spoiler_text: Text = ""
    visibility: str = "direct"  # one that is not named counts as the least visible
    url: Text = ""
    in_reply_to_id: str | None = None
    in_reply_to_account_id: str | None = None
    mentions: tuple[Account, ...] = ()
    media_attachments: tuple[Media, ...] = ()
    poll_options: tuple[Mapping[str, Any], ...] = Field((), validation_alias=AliasPath("poll", "options"))
    quoted: "Status | None" = Field(None, validation_alias=AliasPath("quote", "quoted_status"))


class Notification(Payload):
    """What happened to the account; `status` is the post that it is about."""

    id: str
    type: str
    account: Account
    created_at: datetime
    status: Status | None = None


class Thread(Payload):
    """The posts above a post, the first one first, and those below it."""

    ancestors: tuple[Status, ...] = ()
    descendants: tuple[Status, ...] = ()


class Instance(Payload):
    """The server's version, the address of its streams, and what it allows of posts; no `media_types` means all."""

    version: str = ""
    streaming_url: Text = _configuration("", "urls", "streaming")
    max_characters: int = _configuration(500, "statuses", "max_characters")
    max_attachments: int = _configuration(4, "statuses", "max_media_attachments")
    url_length: int = _configuration(23, "statuses", "characters_reserved_per_url")
    media_types: frozenset[str] = _configuration(frozenset(), "media_attachments", "supported_mime_types")


@dataclass(frozen=True, slots=True)
class BotIdentity:
    """The agent and its account: `account` is its name here, `own` what the server says of it."""

    agent_id: UUID
    host: str
    own: Account

    @property
    def account(self) -> str:
        """The name of the account in stored rows."""
        return account_key(self.host, self.agent_id)

    def full_name(self, acct: str) -> str:
        """Return the name of an account with its server, in lower case: the same on every server."""
        return (acct if "@" in acct else f"{acct}@{self.host}").lower()

    def short_name(self, acct: str) -> str:
        """Return the name by which a post mentions an account: without its server if that is the own one."""
        return acct.removesuffix(f"@{self.host}")

    def entity_id(self, account: Account) -> UUID:
        """Return the entity id of an account; the own account is the agent."""
        if account.id == self.own.id:
            return self.agent_id
        return derived_id(PLATFORM, "user", self.full_name(account.acct))


def narrow_visibility(*visibilities: str) -> str:
    """Return the least visible of several visibilities; one that is unknown counts as direct."""
    ranks = [VISIBILITIES.index(name) if name in VISIBILITIES else len(VISIBILITIES) - 1 for name in visibilities]
    return VISIBILITIES[max(ranks)]


def account_key(host: str, agent_id: UUID) -> str:
    """Return the name of an agent's account in stored rows, which is known before the server is asked."""
    return f"{host}/{agent_id}"


def build_world(host: str, agent_id: UUID) -> World:
    """Return the account's world."""
    return World(derived_id(agent_id, PLATFORM, "world", host), PLATFORM, host, f"Mastodon ({host})")


def build_room(host: str, agent_id: UUID, external_id: str, kind: ChannelType, name: str) -> Room:
    """Return a room of the account."""
    return Room(
        id=derived_id(agent_id, PLATFORM, "room", host, external_id),
        world_id=build_world(host, agent_id).id,
        type=kind,
        platform=PLATFORM,
        external_id=external_id,
        account=account_key(host, agent_id),
        name=name,
    )


def build_feed_room(host: str, agent_id: UUID) -> Room:
    """Return the account's own timeline, in which it posts."""
    return build_room(host, agent_id, "feed", ChannelType.FEED, "Timeline")


def build_direct_room(host: str, agent_id: UUID, full_name: str, name: str) -> Room:
    """Return the private chat with a person: every direct post between the two."""
    return build_room(host, agent_id, f"direct:{full_name}", ChannelType.DM, name)


def find_room(status: Status, ancestors: Sequence[Status], identity: BotIdentity) -> Room:
    """Return the room of a post: the thread of its first post, or the private chat with its author.

    What only followers see is another room than the public part of the same thread: no public answer is written
    from it.
    """
    if narrow_visibility(status.visibility) == "direct":
        others = (mention for mention in status.mentions if mention.id != identity.own.id)
        partner = next(others, None) if status.account.id == identity.own.id else status.account
        partner = partner or status.account
        name = partner.display_name or partner.acct
        return build_direct_room(identity.host, identity.agent_id, identity.full_name(partner.acct), name)
    root = ancestors[0].id if ancestors else status.in_reply_to_id or status.id
    kind = "private" if status.visibility == "private" else "status"
    return build_room(identity.host, identity.agent_id, f"{kind}:{root}", ChannelType.THREAD, f"Thread {root}")


@dataclass(frozen=True, slots=True)
class ReceivedPost:
    """A post with the thread above it, as far as it is known, and the room it belongs to."""

    status: Status
    identity: BotIdentity
    ancestors: Sequence[Status] = ()
    room: Room = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "room", find_room(self.status, self.ancestors, self.identity))

    @property
    def parent(self) -> Status | None:
        """The post that it answers, if that is known."""
        return next((post for post in self.ancestors if post.id == self.status.in_reply_to_id), None)

    def context(self) -> Iterator["ReceivedPost"]:
        """Yield the posts above it that belong to its room."""
        for index, post in enumerate(self.ancestors):
            received = ReceivedPost(post, self.identity, self.ancestors[:index])
            if received.room.id == self.room.id:
                yield received

    @property
    def mention(self) -> MentionContext:
        """How the post addresses the account.

        Clients repeat in a reply the mentions of the post above it: those say that the account took part in the
        thread, and not that its author means it.
        """
        status, own, parent = self.status, self.identity.own, self.parent
        replied_id = status.in_reply_to_account_id
        is_mentioned = any(mention.id == own.id for mention in status.mentions)
        is_repeated = (
            replied_id not in (None, own.id, status.account.id)
            and parent is not None
            and any(mention.id == own.id for mention in parent.mentions)
        )
        replied = own if replied_id == own.id else parent.account if parent else None
        return MentionContext(
            is_mention=is_mentioned and not is_repeated,
            is_reply=replied_id == own.id,
            is_thread=True,
            replies_to=self.identity.entity_id(replied) if replied else None,
            mentions_others=any(mention.id != own.id for mention in status.mentions),
        )

    def to_inbound(
        self, *, denied_by: str = "", event_id: str = "", revision: int = 0, is_backfill: bool = False
    ) -> InboundMessage:
        """Build the inbound message; with `denied_by` it is stored and not answered."""
        status, identity = self.status, self.identity
        content = Content(
            text=text_of(status, identity),
            attachments=tuple(_attachments_of(status)),
            source=PLATFORM,
            url=status.url,
            mention=replace(self.mention, denied_by=denied_by),
            quotation=None if denied_by == THREAD_CONTEXT else self._quotation(),
        )
        return InboundMessage.build(
            build_world(identity.host, identity.agent_id),
            self.room,
            to_entity(status.account, identity),
            content,
            created_at=status.created_at,
            message_id=status.id,
            event_id=event_id,
            revision=revision,
            is_backfill=is_backfill,
        )

    def _quotation(self) -> Quotation | None:
        """Return the post that it quotes, or else the one that it answers if that is in another room.

        A post that fewer people see is not quoted: the answer would show it to all.
        """
        quoted, visibility = self.status.quoted, self.status.visibility
        if quoted is None and not any(post.status == self.parent for post in self.context()):
            quoted = self.parent
        if quoted is None or narrow_visibility(quoted.visibility, visibility) != narrow_visibility(visibility):
            return None
        author = to_entity(quoted.account, self.identity)
        text = text_of(quoted, self.identity)
        return Quotation(text, author.name, author.id, quoted.id, tuple(_attachments_of(quoted)))


def to_entity(account: Account, identity: BotIdentity) -> Entity:
    """Return the person or bot behind an account."""
    full_name = identity.full_name(account.acct)
    names = tuple(filter(None, (account.display_name, account.acct)))
    return Entity(identity.entity_id(account), PLATFORM, full_name, names, is_bot=account.bot)


def text_of(status: Status, identity: BotIdentity) -> str:
    """Return the text of a post below its content warning, with its poll, without the mention that it begins with."""
    own = rf"@{re.escape(identity.own.acct)}(?:@{re.escape(identity.host)})?(?![\w@.-])[ ,:]*"
    text = re.sub(f"^{own}", "", html_to_text(status.content, status.mentions, identity), flags=re.IGNORECASE)
    options = [str(option.get("title")) for option in status.poll_options]
    warning = f"[content warning: {status.spoiler_text}]" if status.spoiler_text else ""
    poll = f"[poll: {' / '.join(options)}]" if options else ""
    return "\n".join(filter(None, [warning, text, poll]))


def html_to_text(content: str, mentions: Iterable[Account], identity: BotIdentity) -> str:
    """Return the text of a post's HTML: links in full, mentions with their servers, paragraphs apart."""
    names = {mention.url: f"@{identity.full_name(mention.acct)}" for mention in mentions if mention.url}
    parser = _TextParser(names)
    parser.feed(content[:MAX_HTML_LENGTH])
    parser.close()
    return "".join(parser.pieces).strip()


class _TextParser(HTMLParser):
    """Collects the text of a post; `names` are the mentioned accounts by the addresses of their profiles."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._names = names
        self._is_in_link = False  # the text of a link is not read: its address is

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            self.pieces.append("\n")
        elif tag in ("p", "blockquote", "pre", "ul", "ol") and self.pieces:
            self.pieces.append("\n\n")
        elif tag == "li":
            self.pieces.append("\n- ")
        elif tag == "a":
            attributes = dict(attrs)
            address, classes = attributes.get("href") or "", attributes.get("class") or ""
            if address in self._names or (address and "mention" not in classes and "hashtag" not in classes):
                self.pieces.append(self._names.get(address, address))
                self._is_in_link = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._is_in_link = False

    def handle_data(self, data: str) -> None:
        if not self._is_in_link:
            self.pieces.append(data)


def _attachments_of(status: Status) -> Iterator[Attachment]:
    for media in status.media_attachments:
        url = media.url or media.remote_url
        url = url if url.startswith(("https://", "http://")) else ""
        yield Attachment(media.id, MEDIA_KINDS.get(media.type, MediaKind.LINK), url=url, description=media.description)
