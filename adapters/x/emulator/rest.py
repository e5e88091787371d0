"""Endpoints and OAuth 1.0a verification."""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from oauthlib.oauth1 import Client  # type: ignore[import-untyped]  # it has no types of its own
from oauthlib.oauth1.rfc5849 import signature  # type: ignore[import-untyped]  # likewise
from oauthlib.oauth1.rfc5849.utils import parse_authorization_header  # type: ignore[import-untyped]  # likewise

from adapters.x.emulator.state import EmulatedWorld, Forbidden, Made

Told = tuple[int, dict[str, Any]]
SMALLEST_SEARCH = 10


@dataclass(frozen=True, slots=True)
class Asked:
    """A call: in whose name, of what, and with what."""

    user_id: str
    path: str
    query: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The number in the path."""
        found = re.findall(r"(?<=[a-z]/)\d+(?=/|$)", self.path)
        return str(found[0]) if found else ""


class Problem(Exception):
    """A refusal, in X's words."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.body = {"title": title, "detail": detail, "status": status, "type": "about:blank"}


class Answers:
    """The endpoints."""

    def __init__(self, world: EmulatedWorld) -> None:
        self._world = world
        self._pages: dict[str, str] = {}
        self._routes: dict[str, Callable[[Asked], Told]] = {
            "GET /2/users/me": self._me,
            "GET /2/users/:id/mentions": self._mentions,
            "GET /2/users/:id/tweets": self._tweets,
            "GET /2/tweets": self._lookup,
            "GET /2/tweets/search/recent": self._search,
            "POST /2/tweets": self._create,
            "DELETE /2/tweets/:id": self._delete,
            "POST /2/users/:id/likes": self._like,
            "POST /2/users/:id/retweets": self._repost,
            "POST /2/media/upload": self._upload,
            "POST /2/media/metadata": self._describe,
        }

    def answer(self, endpoint: str, asked: Asked) -> Told:
        """Answer a call; raises Problem."""
        route = self._routes.get(endpoint)
        if route is None:
            raise Problem(404, "Not Found", f"there is no {endpoint}")
        try:
            return route(asked)
        except Forbidden as error:
            raise Problem(403, "Forbidden", str(error)) from error

    def _me(self, asked: Asked) -> Told:
        return 200, {"data": self._person(asked.user_id)}

    def _mentions(self, asked: Asked) -> Told:
        return 200, self._page(self._world.naming(asked.id), asked.query)

    def _tweets(self, asked: Asked) -> Told:
        return 200, self._page(self._world.by(asked.id), asked.query)

    def _search(self, asked: Asked) -> Told:
        if int(asked.query.get("max_results", 10)) < SMALLEST_SEARCH:
            raise Problem(400, "Invalid Request", f"max_results is less than {SMALLEST_SEARCH}")
        wanted = asked.query.get("query", "").removesuffix(" -is:retweet")  # there are none here
        words = wanted.strip("()").casefold().split()
        posts = (one for one in self._world.posts.values() if not one.is_deleted)
        return 200, self._page(
            (one for one in posts if all(word in one.text.casefold() for word in words)), asked.query
        )

    def _lookup(self, asked: Asked) -> Told:
        wanted = asked.query.get("ids", "").split(",")
        found = [self._world.posts[one] for one in wanted if one in self._world.posts]
        return 200, self._told([one for one in found if not one.is_deleted], asked.query)

    def _create(self, asked: Asked) -> Told:
        made = self._world.post(
            asked.user_id,
            str(asked.body.get("text", "")),
            answers=str(asked.body.get("reply", {}).get("in_reply_to_tweet_id", "")),
            quotes=str(asked.body.get("quote_tweet_id", "")),
            pictures=tuple(asked.body.get("media", {}).get("media_ids", ())),
        )
        return 201, {"data": {"id": made.id, "text": made.text, "edit_history_tweet_ids": [made.id]}}

    def _delete(self, asked: Asked) -> Told:
        made = self._world.posts.get(asked.id)
        if made is None or made.author_id != asked.user_id:
            raise Problem(403, "Forbidden", "You are not permitted to delete this Tweet.")
        made.is_deleted = True
        return 200, {"data": {"deleted": True}}

    def _like(self, asked: Asked) -> Told:
        self._visible(asked).likes.add(asked.user_id)
        return 200, {"data": {"liked": True}}

    def _repost(self, asked: Asked) -> Told:
        self._visible(asked).reposts.add(asked.user_id)
        return 200, {"data": {"retweeted": True}}

    def _upload(self, asked: Asked) -> Told:
        if asked.body.get("media_category") != "tweet_image":
            raise Problem(400, "Invalid Request", "media_category is not known")
        data = base64.b64decode(str(asked.body.get("media", "")), validate=True)
        media_id = self._world.new_id()
        self._world.pictures[media_id] = {"data": data, "type": asked.body.get("media_type"), "alt": ""}
        return 200, {"data": {"id": media_id, "media_key": f"3_{media_id}", "size": len(data)}, "meta": {}}

    def _describe(self, asked: Asked) -> Told:
        picture = self._world.pictures.get(str(asked.body.get("id", "")))
        if picture is None:
            raise Problem(404, "Not Found", "there is no such media")
        picture["alt"] = asked.body.get("metadata", {}).get("alt_text", {}).get("text", "")
        return 200, {"data": {"id": asked.body["id"]}}

    def _visible(self, asked: Asked) -> Made:
        made = self._world.posts.get(str(asked.body.get("tweet_id", "")))
        if made is None or made.is_deleted:
            raise Problem(404, "Not Found", "there is no such Tweet")
        return made

    def _page(self, posts: Iterable[Made], query: Mapping[str, str]) -> dict[str, Any]:
        """Give a page, newest first, between what was asked for."""
        since, until = int(query.get("since_id", 0)), int(query.get("until_id", 0))
        start = query.get("start_time")
        begin = datetime.fromisoformat(start) if start else None
        if token := query.get("pagination_token"):
            until = int(self._pages.get(token, "0"))
        found = [
            one
            for one in sorted(posts, key=lambda one: int(one.id), reverse=True)
            if int(one.id) > since
            and (not until or int(one.id) < until)
            and (begin is None or one.at >= begin)
        ]
        size = int(query.get("max_results", 10))
        if not 5 <= size <= 100:
            raise Problem(400, "Invalid Request", f"max_results {size} is not between 5 and 100")
        told = self._told(found[:size], query)
        told["meta"] = {"result_count": len(found[:size])}
        if len(found) > size:
            last = found[size - 1].id
            self._pages[f"after-{last}"] = last
            told["meta"]["next_token"] = f"after-{last}"
        return told

    def _told(self, posts: list[Made], query: Mapping[str, str]) -> dict[str, Any]:
        expansions = query.get("expansions", "").split(",")
        others: dict[str, Made] = {}
        if "referenced_tweets.id" in expansions:
            referred = (name for one in posts for name in (one.answers, one.quotes) if name)
            others = {name: self._world.posts[name] for name in referred if name in self._world.posts}
        people = {one.author_id for one in (*posts, *others.values())}
        told: dict[str, Any] = {"data": [self._world.shown(one) for one in posts]} if posts else {}
        includes: dict[str, Any] = {}
        if "author_id" in expansions and people:
            includes["users"] = [self._person(one) for one in sorted(people)]
        if others:
            includes["tweets"] = [self._world.shown(one) for one in others.values() if not one.is_deleted]
        shown = [key for one in (*posts, *others.values()) for key in one.pictures]
        if "attachments.media_keys" in expansions and shown:
            includes["media"] = [self._picture(key) for key in shown]
        return {**told, "includes": includes} if includes else told

    def _picture(self, key: str) -> dict[str, str]:
        picture = self._world.pictures[key]
        url = f"https://pbs.twimg.com/media/{key}.png"
        return {"media_key": f"3_{key}", "type": "photo", "url": url, "alt_text": picture["alt"]}

    def _person(self, user_id: str) -> dict[str, str]:
        username = self._world.people[user_id]
        return {"id": user_id, "username": username, "name": username.replace("_", " ").title()}


NONCE, TIMESTAMP, SIGNATURE = "oauth_nonce", "oauth_timestamp", "oauth_signature"


@dataclass(frozen=True, slots=True)
class Keys:
    """The four keys of an account; these are none that X would take."""

    user_id: str
    api_key: str = "emulated-api-key"
    api_secret: str = "emulated-api-secret"

    @property
    def token(self) -> str:
        """The access token, which begins with the account's number."""
        return f"{self.user_id}-emulatedAccessToken"

    @property
    def token_secret(self) -> str:
        """Its secret."""
        return f"emulated-token-secret-of-{self.user_id}"


def fault_of(method: str, url: str, header: str, keys: Keys) -> str:
    """Say what is wrong with a request's signature; blank where it is right."""
    try:
        given = dict(parse_authorization_header(header))
    except ValueError:
        return "the Authorization header cannot be read"
    if given.get("oauth_consumer_key") != keys.api_key or given.get("oauth_token") != keys.token:
        return "the keys are not known"
    if not given.get(NONCE) or not given.get(TIMESTAMP, "").isdecimal():
        return "there is no nonce, or no timestamp"
    query = url.partition("?")[2]
    collected = signature.collect_parameters(query, headers={"Authorization": header})
    base = signature.signature_base_string(
        method, signature.base_string_uri(url), signature.normalize_parameters(collected)
    )
    signer = Client(
        keys.api_key,
        client_secret=keys.api_secret,
        resource_owner_key=keys.token,
        resource_owner_secret=keys.token_secret,
    )
    expected = signature.sign_hmac_sha1_with_client(base, signer)
    return "" if unquote(given.get(SIGNATURE, "")) == expected else "the signature is wrong"


def token_of(header: str) -> str:
    """Give the access token with which a request was signed; blank where there is none."""
    try:
        return str(dict(parse_authorization_header(header)).get("oauth_token", ""))
    except ValueError:
        return ""


def nonce_of(header: str) -> str:
    """Give what makes a request one of a kind."""
    given = dict(parse_authorization_header(header))
    return f"{given.get(TIMESTAMP)} {given.get(NONCE)}"
