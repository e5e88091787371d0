"""The emulated REST API, and verification of OAuth 1.0a signatures."""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from oauthlib.common import Request  # type: ignore[import-untyped]  # oauthlib has no types
from oauthlib.oauth1.rfc5849 import signature  # type: ignore[import-untyped]  # likewise
from oauthlib.oauth1.rfc5849.utils import parse_authorization_header  # type: ignore[import-untyped]  # likewise

from adapters.x.emulator.state import PlatformState, PostForbidden, PostRecord

ApiResponse = tuple[int, dict[str, Any]]
MIN_SEARCH_SIZE = 10
NONCE, TIMESTAMP, SIGNATURE = "oauth_nonce", "oauth_timestamp", "oauth_signature"


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """An authenticated call."""

    user_id: str
    path: str
    query: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The number in the path."""
        ids = re.findall(r"(?<=[a-z]/)\d+(?=/|$)", self.path)
        return str(ids[0]) if ids else ""


class ApiError(Exception):
    """An error response in X's format."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.body = {"title": title, "detail": detail, "status": status, "type": "about:blank"}


class RestServer:
    """Answers API calls from the platform state."""

    def __init__(self, state: PlatformState) -> None:
        self._state = state
        self._page_tokens: dict[str, str] = {}
        self._routes: dict[str, Callable[[ApiRequest], ApiResponse]] = {
            "GET /2/users/me": self._get_user,
            "GET /2/users/:id/mentions": self._list_mentions,
            "GET /2/users/:id/tweets": self._list_posts,
            "GET /2/tweets": self._get_posts,
            "GET /2/tweets/search/recent": self._search_posts,
            "POST /2/tweets": self._create_post,
            "DELETE /2/tweets/:id": self._delete_post,
            "POST /2/users/:id/likes": self._like_post,
            "DELETE /2/users/:id/likes/:id": self._unlike_post,
            "POST /2/users/:id/retweets": self._repost_post,
            "POST /2/media/upload": self._upload_media,
            "POST /2/media/metadata": self._describe_media,
        }

    def endpoints(self) -> list[str]:
        """Return the calls that are answered, such as `POST /2/tweets`."""
        return list(self._routes)

    def handle(self, endpoint: str, request: ApiRequest) -> ApiResponse:
        """Handle a call; raise ApiError."""
        route = self._routes.get(endpoint)
        if route is None:
            raise ApiError(404, "Not Found", f"there is no {endpoint}")
        try:
            return route(request)
        except PostForbidden as error:
            raise ApiError(403, "Forbidden", str(error)) from error

    def _get_user(self, request: ApiRequest) -> ApiResponse:
        return 200, {"data": self._user_payload(request.user_id)}

    def _list_mentions(self, request: ApiRequest) -> ApiResponse:
        return 200, self._build_page(self._state.posts_mentioning(request.id), request.query)

    def _list_posts(self, request: ApiRequest) -> ApiResponse:
        return 200, self._build_page(self._state.posts_by(request.id), request.query)

    def _search_posts(self, request: ApiRequest) -> ApiResponse:
        if int(request.query.get("max_results", 10)) < MIN_SEARCH_SIZE:
            raise ApiError(400, "Invalid Request", f"max_results is less than {MIN_SEARCH_SIZE}")
        query = request.query.get("query", "").removesuffix(" -is:retweet")  # the emulator has no reposts as posts
        words = query.strip("()").casefold().split()
        posts = (post for post in self._state.posts.values() if not post.is_deleted)
        return 200, self._build_page(
            (post for post in posts if all(word in post.text.casefold() for word in words)), request.query
        )

    def _get_posts(self, request: ApiRequest) -> ApiResponse:
        ids = request.query.get("ids", "").split(",")
        posts = [self._state.posts[item] for item in ids if item in self._state.posts]
        return 200, self._build_payload([item for item in posts if not item.is_deleted], request.query)

    def _create_post(self, request: ApiRequest) -> ApiResponse:
        post = self._state.create_post(
            request.user_id,
            str(request.body.get("text", "")),
            reply_to_id=str(request.body.get("reply", {}).get("in_reply_to_tweet_id", "")),
            quoted_id=str(request.body.get("quote_tweet_id", "")),
            pictures=tuple(request.body.get("media", {}).get("media_ids", ())),
        )
        return 201, {"data": {"id": post.id, "text": post.text, "edit_history_tweet_ids": [post.id]}}

    def _delete_post(self, request: ApiRequest) -> ApiResponse:
        post = self._state.posts.get(request.id)
        if post is None:
            raise ApiError(404, "Not Found Error", f"Could not find tweet with id: [{request.id}].")
        if post.author_id != request.user_id:
            raise ApiError(403, "Forbidden", "You are not permitted to delete this Tweet.")
        was_there, post.is_deleted = not post.is_deleted, True
        return 200, {"data": {"deleted": was_there}}

    def _like_post(self, request: ApiRequest) -> ApiResponse:
        self._visible_post(request).likes.add(request.user_id)
        return 200, {"data": {"liked": True}}

    def _unlike_post(self, request: ApiRequest) -> ApiResponse:
        if (post := self._state.posts.get(request.path.rpartition("/")[2])) is not None:
            post.likes.discard(request.user_id)
        return 200, {"data": {"liked": False}}

    def _repost_post(self, request: ApiRequest) -> ApiResponse:
        self._visible_post(request).reposts.add(request.user_id)
        return 200, {"data": {"retweeted": True}}

    def _upload_media(self, request: ApiRequest) -> ApiResponse:
        if request.body.get("media_category") != "tweet_image":
            raise ApiError(400, "Invalid Request", "media_category is not known")
        data = base64.b64decode(str(request.body.get("media", "")), validate=True)
        media_id = self._state.new_id()
        self._state.pictures[media_id] = {"data": data, "type": request.body.get("media_type"), "alt": ""}
        return 200, {"data": {"id": media_id, "media_key": f"3_{media_id}", "size": len(data)}, "meta": {}}

    def _describe_media(self, request: ApiRequest) -> ApiResponse:
        picture = self._state.pictures.get(str(request.body.get("id", "")))
        if picture is None:
            raise ApiError(404, "Not Found", "there is no such media")
        picture["alt"] = request.body.get("metadata", {}).get("alt_text", {}).get("text", "")
        return 200, {"data": {"id": request.body["id"]}}

    def _visible_post(self, request: ApiRequest) -> PostRecord:
        post = self._state.posts.get(str(request.body.get("tweet_id", "")))
        if post is None or post.is_deleted:
            raise ApiError(404, "Not Found", "there is no such Tweet")
        return post

    def _build_page(self, posts: Iterable[PostRecord], query: Mapping[str, str]) -> dict[str, Any]:
        """Return a page of posts, newest first, within the requested bounds."""
        since, until = int(query.get("since_id", 0)), int(query.get("until_id", 0))
        start = query.get("start_time")
        start_time = datetime.fromisoformat(start) if start else None
        if token := query.get("pagination_token"):
            until = int(self._page_tokens.get(token, "0"))
        matches = [
            post
            for post in sorted(posts, key=lambda post: int(post.id), reverse=True)
            if (int(post.id) > since or post.id in self._state.repeated)
            and (not until or int(post.id) < until)
            and (start_time is None or post.created_at >= start_time)
        ]
        self._state.repeated -= {post.id for post in matches}
        size = int(query.get("max_results", 10))
        if not 5 <= size <= 100:
            raise ApiError(400, "Invalid Request", f"max_results {size} is not between 5 and 100")
        payload = self._build_payload(matches[:size], query)
        payload["meta"] = {"result_count": len(matches[:size])}
        if len(matches) > size:
            last_id = matches[size - 1].id
            self._page_tokens[f"after-{last_id}"] = last_id
            payload["meta"]["next_token"] = f"after-{last_id}"
        return payload

    def _build_payload(self, posts: list[PostRecord], query: Mapping[str, str]) -> dict[str, Any]:
        expansions = query.get("expansions", "").split(",")
        referenced: dict[str, PostRecord] = {}
        if "referenced_tweets.id" in expansions:
            referenced_ids = (name for item in posts for name in (item.reply_to_id, item.quoted_id) if name)
            referenced = {name: self._state.posts[name] for name in referenced_ids if name in self._state.posts}
        user_ids = {item.author_id for item in (*posts, *referenced.values())}
        payload: dict[str, Any] = {"data": [self._state.to_payload(item) for item in posts]} if posts else {}
        includes: dict[str, Any] = {}
        if "author_id" in expansions and user_ids:
            includes["users"] = [self._user_payload(item) for item in sorted(user_ids)]
        if referenced:
            includes["tweets"] = [self._state.to_payload(item) for item in referenced.values() if not item.is_deleted]
        with_media = posts if "attachments.media_keys" in expansions else []
        if "referenced_tweets.id.attachments.media_keys" in expansions:
            with_media = [*with_media, *referenced.values()]
        if media_keys := dict.fromkeys(key for item in with_media for key in item.pictures):
            includes["media"] = [self._media_payload(key) for key in media_keys]
        return {**payload, "includes": includes} if includes else payload

    def _media_payload(self, key: str) -> dict[str, str]:
        picture = self._state.pictures[key]
        url = picture.get("url", f"https://pbs.twimg.com/media/{key}.png")
        return {"media_key": f"3_{key}", "type": "photo", "url": url, "alt_text": picture["alt"]}

    def _user_payload(self, user_id: str) -> dict[str, str]:
        username = self._state.usernames[user_id]
        return {"id": user_id, "username": username, "name": username.replace("_", " ").title()}


@dataclass(frozen=True, slots=True)
class Keys:
    """The four keys of an account; the real X accepts none of them."""

    user_id: str
    api_key: str = "emulated-api-key"
    api_secret: str = "emulated-api-secret"

    @property
    def token(self) -> str:
        """The access token, which starts with the account's number."""
        return f"{self.user_id}-emulatedAccessToken"

    @property
    def token_secret(self) -> str:
        """The secret of the access token."""
        return f"emulated-token-secret-of-{self.user_id}"


class SignedHeader(dict[str, str]):
    """The OAuth parameters of a request's Authorization header; empty if it cannot be read."""

    def __init__(self, header: str) -> None:
        with suppress(ValueError):
            super().__init__(parse_authorization_header(header))
        self._header = header

    @property
    def token(self) -> str:
        """The access token; empty if there is none."""
        return self.get("oauth_token", "")

    @property
    def nonce(self) -> str:
        """Timestamp and nonce, which make a request unique."""
        return f"{self.get(TIMESTAMP)} {self.get(NONCE)}"

    @property
    def signed_at(self) -> datetime | None:
        """When the request was signed; None if it does not say."""
        timestamp = self.get(TIMESTAMP, "")
        return datetime.fromtimestamp(int(timestamp), UTC) if timestamp.isdecimal() else None

    def find_problem(self, method: str, url: str, keys: Keys | None) -> str:
        """Return what is wrong with the signature of a request; empty if it is valid."""
        if keys is None or self.get("oauth_consumer_key") != keys.api_key:
            return "unknown keys"
        if not self.get(NONCE) or self.signed_at is None:
            return "nonce or timestamp is missing"
        request = Request(url, http_method=method)
        request.params = signature.collect_parameters(url.partition("?")[2], headers={"Authorization": self._header})
        request.signature = unquote(self.get(SIGNATURE, ""))
        is_valid = signature.verify_hmac_sha1(request, keys.api_secret, keys.token_secret)
        return "" if is_valid else "the signature is wrong"
