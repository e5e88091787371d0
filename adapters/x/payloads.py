"""What X says, as far as it is used: posts, people, pictures, and what came with them."""

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

logger = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)
Id = Annotated[str, Field(pattern=r"^\d{1,19}$")]


class Payload(BaseModel):
    """A piece of an answer; what is not used of it is left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Person(Payload):
    """Somebody with an account."""

    id: Id
    username: str = ""
    name: str = ""


class Address(Payload):
    """A short address that X has put in the place of one, or of a picture."""

    url: str
    expanded_url: str = ""
    media_key: str = ""


class Named(Payload):
    """Somebody who is named in a text."""

    id: str = ""
    username: str = ""


class Entities(Payload):
    """What X has found in a text."""

    urls: tuple[Address, ...] = ()
    mentions: tuple[Named, ...] = ()


class Reference(Payload):
    """The post that this one answers, quotes or repeats."""

    type: str
    id: Id


class Attached(Payload):
    """What hangs on a post."""

    media_keys: tuple[str, ...] = ()


class Long(Payload):
    """The whole of a text that is longer than X shows at first."""

    text: str = ""
    entities: Entities = Entities()


class Picture(Payload):
    """A picture, a video or an animation."""

    media_key: str
    type: str = "photo"
    url: str = ""
    preview_image_url: str = ""
    alt_text: str = ""


class Post(Payload):
    """One post."""

    id: Id
    author_id: Id
    text: str = ""
    conversation_id: Id | None = None
    created_at: datetime | None = None
    in_reply_to_user_id: str | None = None
    referenced_tweets: tuple[Reference, ...] = ()
    entities: Entities = Entities()
    attachments: Attached = Attached()
    note_tweet: Long | None = None

    def mentions(self, account: str) -> bool:
        """Tell whether it names an account, or answers it."""
        named = {one.id for one in self.entities.mentions}
        return account in named or self.in_reply_to_user_id == account

    def refers(self, kind: str) -> str:
        """Give the id of the post that this one has as its `replied_to` or `quoted`; blank without."""
        return next((one.id for one in self.referenced_tweets if one.type == kind), "")


class Page(Payload):
    """A page of posts, newest first, with whoever and whatever they name; `count` is what it cost."""

    posts: tuple[Post, ...] = ()
    count: int = 0
    others: Mapping[str, Post] = Field(default_factory=dict)
    people: Mapping[str, Person] = Field(default_factory=dict)
    pictures: Mapping[str, Picture] = Field(default_factory=dict)
    next_token: str = ""


def read_page(answer: Any) -> Page:
    """Read an answer piece by piece: one that cannot be read is left out, and costs no other."""
    body = answer if isinstance(answer, Mapping) else {}
    data = body.get("data")
    data = data if isinstance(data, list) else [data] if isinstance(data, Mapping) else []
    includes, meta = _mapping(body.get("includes")), _mapping(body.get("meta"))
    return Page(
        posts=tuple(_each(Post, data)),
        count=len(data),
        others={one.id: one for one in _each(Post, includes.get("tweets"))},
        people={one.id: one for one in _each(Person, includes.get("users"))},
        pictures={one.media_key: one for one in _each(Picture, includes.get("media"))},
        next_token=str(meta.get("next_token") or ""),
    )


def read_person(answer: Any) -> Person | None:
    """Read who an answer tells of; None where it does not."""
    return next(_each(Person, [_mapping(answer).get("data")]), None)


def read_id(answer: Any) -> str:
    """Read the id of what was made; blank where the answer names none."""
    found = str(_mapping(_mapping(answer).get("data")).get("id") or "")
    return found if found.isdecimal() else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _each(model: type[M], items: Any) -> Iterator[M]:
    for item in items if isinstance(items, list) else []:
        try:
            yield model.model_validate(item)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            logger.warning("a %s of X is left out: %s %s", model.__name__, problem["loc"], problem["msg"])
