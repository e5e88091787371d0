import pytest
from aiohttp import web

from adapters.web.auth import Credential, CredentialKind, TokenAuth

TOKEN = "a-token-for-tests"


def cookie_of(auth: TokenAuth) -> tuple[str, str]:
    response = web.Response()
    auth.set_cookie(response)
    [(name, morsel)] = response.cookies.items()
    return name, morsel.value


def test_the_token_is_valid_as_bearer_and_in_the_link() -> None:
    lock = TokenAuth(TOKEN)
    assert lock.is_valid(Credential(CredentialKind.BEARER, TOKEN))
    assert lock.is_valid(Credential(CredentialKind.LINK, TOKEN))


@pytest.mark.failure("N-04")
def test_the_cookie_is_valid_only_as_cookie_and_does_not_contain_the_token() -> None:
    lock = TokenAuth(TOKEN)
    _, value = cookie_of(lock)
    assert TOKEN not in value
    assert lock.is_valid(Credential(CredentialKind.COOKIE, value))
    assert not lock.is_valid(Credential(CredentialKind.BEARER, value))
    assert not lock.is_valid(Credential(CredentialKind.COOKIE, TOKEN))


@pytest.mark.failure("N-07")
def test_another_token_changes_name_and_value_of_the_cookie() -> None:
    name, value = cookie_of(TokenAuth(TOKEN))
    other_name, other_value = cookie_of(TokenAuth("another-token"))
    assert name != other_name
    assert value != other_value
    assert not TokenAuth("another-token").is_valid(Credential(CredentialKind.COOKIE, value))


@pytest.mark.failure("N-05")
def test_the_cookie_is_same_site_and_http_only() -> None:
    response = web.Response()
    TokenAuth(TOKEN).set_cookie(response)
    [morsel] = response.cookies.values()
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "Strict", "/")
