import pytest

from adapters.web.json_io import JsonResponder
from adapters.web.schemas import ErrorBody


@pytest.mark.failure("N-13")
def test_a_secret_is_removed_in_every_json_spelling() -> None:
    answers = JsonResponder(['say "friend"\\', "schlüssel-1"])
    body = ErrorBody(code="x", message='the word is say "friend"\\, or schlüssel-1', request_id="1")
    assert answers.to_json(body) == ('{"code":"x","message":"the word is [redacted], or [redacted]","request_id":"1"}')


def test_the_longer_secret_is_removed_first() -> None:
    assert JsonResponder(["secret-1", "secret-1-and-more"]).redact("secret-1-and-more") == "[redacted]"
