"""Casts as InboundMessage. Pure functions, and models of the hub's answers as far as they are used."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from mimetypes import guess_type
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from adapters.farcaster.messages import CastId, to_datetime
from bot import Attachment, ChannelType, Content, Entity, MediaKind, Room, World, derived_id
from bot.platform import InboundMessage, MentionContext, Quotation

PLATFORM = "farcaster"
THREAD_CONTEXT = "thread context"
CAST_URL = "https://farcaster.xyz/~/conversations/"
MAX_MENTIONS, MAX_EMBEDS = 10, 4
USER_NAME = re.compile(r"[\w.-]{1,64}")
USERNAME, DISPLAY_NAME = "USER_DATA_TYPE_USERNAME", "USER_DATA_TYPE_DISPLAY"
MAX_SECONDS = 2**32 - 1
NoList = BeforeValidator(lambda value: [] if value is None else value)
Fid = Annotated[int, Field(ge=1, le=2**63 - 1)]
Hash = Annotated[str, Field(pattern=r"^0x[0-9a-f]{40}$")]


class Payload(BaseModel):
    """A part of an answer; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class CastReference(Payload):
    """A cast that another one names."""

    fid: Fid
    hash: Hash

    @property
    def id(self) -> CastId:
        """The id of the cast."""
        return CastId(self.fid, self.hash)


class Embed(Payload):
    """What a cast shows below its text: a URL, or another cast that it quotes."""

    url: str | None = None
    cast: CastReference | None = Field(None, alias="castId")


class Cast(Payload):
    """One cast: its text lacks the names of those whom it mentions, at positions in bytes."""

    hash: Hash
    fid: Fid = Field(validation_alias=AliasPath("data", "fid"))
    timestamp: int = Field(ge=0, le=MAX_SECONDS, validation_alias=AliasPath("data", "timestamp"))
    text: str = Field(validation_alias=AliasPath("data", "castAddBody", "text"))
    parent: CastReference | None = Field(None, validation_alias=AliasPath("data", "castAddBody", "parentCastId"))
    mentions: Annotated[tuple[Fid, ...], NoList] = Field(
        (), validation_alias=AliasPath("data", "castAddBody", "mentions")
    )
    positions: Annotated[tuple[int, ...], NoList] = Field(
        (), validation_alias=AliasPath("data", "castAddBody", "mentionsPositions")
    )
    embeds: Annotated[tuple[Embed, ...], NoList] = Field(
        (), validation_alias=AliasPath("data", "castAddBody", "embeds")
    )

    @property
    def id(self) -> CastId:
        """The id of the cast."""
        return CastId(self.fid, self.hash)

    @property
    def quoted(self) -> CastId | None:
        """The first cast that it quotes."""
        return next((embed.cast.id for embed in self.embeds if embed.cast), None)


@dataclass(frozen=True, slots=True)
class User:
    """The names of an account, as it has set them; empty if it has not."""

    username: str = ""
    display_name: str = ""


NO_USER = User()
Users = Mapping[int, User]


def read_user(messages: Any) -> User:
    """Return the names in the user data of an account."""
    bodies = [(item.get("data") or {}).get("userDataBody") for item in messages or () if isinstance(item, dict)]
    values = {body.get("type"): str(body.get("value") or "") for body in bodies if isinstance(body, dict)}
    name = values.get(USERNAME, "")
    return User(name if USER_NAME.fullmatch(name) else "", values.get(DISPLAY_NAME, ""))


def name_of(fid: int, users: Users) -> str:
    """Return the user name of an account, else its number as clients write it, as in !42."""
    return users.get(fid, NO_USER).username or f"!{fid}"


def account_key(fid: int) -> str:
    """Return the name of an account in stored rows."""
    return str(fid)


def entity_id(fid: int, own_fid: int, agent_id: UUID) -> UUID:
    """Return the entity id of an account; the own account is the agent."""
    return agent_id if fid == own_fid else derived_id(PLATFORM, "user", str(fid))


def build_world(agent_id: UUID) -> World:
    """Return the account's world."""
    return World(derived_id(agent_id, PLATFORM, "world"), PLATFORM, PLATFORM, "Farcaster")


def build_room(agent_id: UUID, own_fid: int, external_id: str, kind: ChannelType, name: str) -> Room:
    """Return a room of the account."""
    return Room(
        id=derived_id(agent_id, PLATFORM, "room", external_id),
        world_id=build_world(agent_id).id,
        type=kind,
        platform=PLATFORM,
        external_id=external_id,
        account=account_key(own_fid),
        name=name,
    )


def build_feed_room(agent_id: UUID, own_fid: int) -> Room:
    """Return the account's own timeline, in which it publishes."""
    return build_room(agent_id, own_fid, "feed", ChannelType.FEED, "Timeline")


def build_thread_room(agent_id: UUID, own_fid: int, root: str) -> Room:
    """Return the room of the thread whose first cast has this id."""
    return build_room(agent_id, own_fid, f"cast:{root}", ChannelType.THREAD, f"Thread {root.partition('/')[2][:10]}")


def text_of(cast: Cast, users: Users, own_fid: int) -> str:
    """Return the text of a cast with the names of those whom it mentions, without the own one at its beginning.

    The addresses that it embeds follow, if they are no pictures and do not stand in the text.
    """
    data, pieces, start = cast.text.encode(), [], 0
    mentions = sorted(zip(cast.positions, cast.mentions, strict=False), key=lambda item: item[0])
    for position, fid in mentions[:MAX_MENTIONS]:
        end = min(max(position, start), len(data))
        pieces += [data[start:end].decode("utf-8", "replace"), f"@{name_of(fid, users)}"]
        start = end
    text = "".join([*pieces, data[start:].decode("utf-8", "replace")]).strip()
    text = re.sub(rf"^@{re.escape(name_of(own_fid, users))}(?![\w.-])[ ,:]*", "", text)
    links = [url for url in _urls_of(cast) if not _is_picture(url) and url not in text]
    return "\n".join([text, *links]) if text else "\n".join(links)


def _urls_of(cast: Cast) -> Iterator[str]:
    for embed in cast.embeds[:MAX_EMBEDS]:
        if embed.url and embed.url.startswith(("https://", "http://")):
            yield embed.url


def _is_picture(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.hostname == "imagedelivery.net" or (guess_type(parts.path)[0] or "").startswith("image/")


def _attachments_of(cast: Cast) -> tuple[Attachment, ...]:
    urls = (url for url in _urls_of(cast) if _is_picture(url))
    return tuple(Attachment(f"{cast.hash}/{number}", MediaKind.IMAGE, url=url) for number, url in enumerate(urls))


@dataclass(frozen=True, slots=True)
class ReceivedCast:
    """A cast in the thread whose first cast is `root`, with the names of the accounts that it names.

    `quoted` is the cast that it quotes, if that is known.
    """

    cast: Cast
    root: str
    users: Users
    own_fid: int
    agent_id: UUID
    quoted: Cast | None = None
    room: Room = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "room", build_thread_room(self.agent_id, self.own_fid, self.root))

    @property
    def mention(self) -> MentionContext:
        """How the cast addresses the account."""
        parent = self.cast.parent
        return MentionContext(
            is_mention=self.own_fid in self.cast.mentions,
            is_reply=parent is not None and parent.fid == self.own_fid,
            is_thread=True,
            replies_to=entity_id(parent.fid, self.own_fid, self.agent_id) if parent else None,
            mentions_others=any(fid != self.own_fid for fid in self.cast.mentions),
        )

    def to_inbound(self, *, denied_by: str = "", is_backfill: bool = False) -> InboundMessage:
        """Build the inbound message; with `denied_by` it is stored and not answered."""
        cast = self.cast
        content = Content(
            text=text_of(cast, self.users, self.own_fid),
            attachments=_attachments_of(cast),
            source=PLATFORM,
            url=f"{CAST_URL}{cast.hash}",
            mention=replace(self.mention, denied_by=denied_by),
            quotation=self._quotation(),
        )
        return InboundMessage.build(
            build_world(self.agent_id),
            self.room,
            self._entity(cast.fid),
            content,
            created_at=to_datetime(cast.timestamp),
            message_id=str(cast.id),
            is_backfill=is_backfill,
        )

    def _quotation(self) -> Quotation | None:
        if self.quoted is None:
            return None
        author, text = self._entity(self.quoted.fid), text_of(self.quoted, self.users, self.own_fid)
        return Quotation(text, author.name, author.id, str(self.quoted.id), _attachments_of(self.quoted))

    def _entity(self, fid: int) -> Entity:
        user = self.users.get(fid, NO_USER)
        names = tuple(filter(None, (user.display_name, user.username))) or (f"!{fid}",)
        return Entity(entity_id(fid, self.own_fid, self.agent_id), PLATFORM, str(fid), names)
