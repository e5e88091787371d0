"""Looking through what everybody posts: a page at a time, within the month's reads."""

from adapters.x.client import XClient
from adapters.x.incoming import text_of
from adapters.x.payloads import Page, Post
from adapters.x.wire import Refused
from bot import DeliveryError, FoundPost, TryAgain

LONGEST_QUERY = 500  # X takes 512, with what is added


class Searcher:
    """The search of one account."""

    def __init__(self, client: XClient) -> None:
        self._client = client

    async def search(self, query: str) -> list[FoundPost]:
        """Find the latest posts of the last week, in X's own words for a query; raises TryAgain."""
        asked = " ".join(query.split())[:LONGEST_QUERY]
        if not asked:
            return []
        try:
            page = await self._client.search(asked)
        except Refused as error:
            raise TryAgain(f"X does not search for this account: {error}") from error
        except DeliveryError as error:
            raise TryAgain(f"X cannot be searched now: {error}") from error
        return [_found(post, page) for post in page.posts]


def _found(post: Post, page: Page) -> FoundPost:
    person = page.people.get(post.author_id)
    author = person.username if person is not None and person.username else post.author_id
    return FoundPost(author, text_of(post), f"https://x.com/i/status/{post.id}", post.created_at)
