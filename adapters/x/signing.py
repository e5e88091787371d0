"""tweepy's client, calling and signing for the host that X documents."""

from collections.abc import Mapping
from typing import Any

from oauthlib.oauth1 import Client  # type: ignore[import-untyped]  # oauthlib has no types
from tweepy.asynchronous import AsyncClient  # type: ignore[import-untyped]  # tweepy has no types
from yarl import URL

API_URL = "https://api.x.com"  # tweepy names the former host, api.twitter.com


class SigningClient(AsyncClient):  # type: ignore[misc]  # tweepy has no types
    """tweepy's endpoints at API_URL; every request is signed with OAuth 1.0a and sent by `session`."""

    async def request(
        self,
        method: str,
        route: str,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        user_auth: bool = True,  # tweepy passes it; there is no other way here
    ) -> Any:
        """Send one request and return its response; raise what `session` raises."""
        headers = {"User-Agent": self.user_agent}
        if json is not None:
            headers["Content-Type"] = "application/json"
        url = str(URL(API_URL + route).with_query(sorted((params or {}).items())))
        client = Client(self.consumer_key, self.consumer_secret, self.access_token, self.access_token_secret)
        signed_url, headers, _ = client.sign(url, method, headers=headers)
        path, mark, query = signed_url.partition("?")
        target = URL(f"{path}{mark}{query.replace(':', '%3A')}", encoded=True)  # as signed: aiohttp leaves colons
        async with self.session.request(method, target, json=json, headers=headers) as response:
            return response
