"""The stored form of a message's content."""

import pytest

from bot import Content
from bot.platform import PostOperation, PostOperationKind
from bot.store.sql.core.mapping import content_of, content_text, dumps


@pytest.mark.parametrize("kind", PostOperationKind)
def test_an_operation_on_a_post_survives_storage(kind: PostOperationKind) -> None:
    content = Content(text="Indeed.", metadata={"number": 3}, operation=PostOperation(kind, "17"))
    assert content_of(content_text(content)) == content


def test_an_operation_stored_in_the_metadata_by_an_earlier_version_is_read() -> None:
    metadata = {"x_act": "like", "x_subject": "17", "edits": "5"}
    content = content_of(dumps({"text": "Liked it", "source": "", "metadata": metadata}))
    assert content.operation == PostOperation(PostOperationKind.LIKE, "17")
    assert content.metadata == {"edits": "5"}


def test_metadata_without_an_operation_is_unchanged() -> None:
    stored = dumps({"text": "A post", "source": "", "metadata": {"x_act": "", "x_subject": ""}})
    assert content_of(stored) == Content(text="A post")
