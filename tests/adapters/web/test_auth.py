from pathlib import Path

import pytest
from aiohttp import web

from adapters.web.auth import Credential, CredentialKind, Grant, TokenAuth
from bot import system_clock
from bot.platform import AccessTokens, TokenScope

TOKEN = "a-token-for-tests"


def cookie_of(auth: TokenAuth, text: str = TOKEN) -> tuple[str, str]:
    credential = Credential(CredentialKind.LINK, text)
    grant = auth.find_grant(credential)
    assert grant is not None
    response = web.Response()
    auth.set_cookie(response, grant, credential, {})
    [(name, morsel)] = response.cookies.items()
    return name, morsel.value


def is_valid(auth: TokenAuth, kind: CredentialKind, value: str) -> bool:
    return auth.find_grant(Credential(kind, value)) is not None


def test_the_token_is_valid_as_bearer_and_in_the_link() -> None:
    lock = TokenAuth(TOKEN)
    for kind in (CredentialKind.BEARER, CredentialKind.LINK):
        assert lock.find_grant(Credential(kind, TOKEN)) == Grant(TokenScope.OPERATOR)


@pytest.mark.failure("N-04")
def test_the_cookie_is_valid_only_as_cookie_and_does_not_contain_the_token() -> None:
    lock = TokenAuth(TOKEN)
    _, value = cookie_of(lock)
    assert TOKEN not in value
    assert is_valid(lock, CredentialKind.COOKIE, value)
    assert not is_valid(lock, CredentialKind.BEARER, value)
    assert not is_valid(lock, CredentialKind.COOKIE, TOKEN)


@pytest.mark.failure("N-07")
def test_another_token_changes_name_and_value_of_the_cookie() -> None:
    name, value = cookie_of(TokenAuth(TOKEN))
    other_name, other_value = cookie_of(TokenAuth("another-token"), "another-token")
    assert name != other_name
    assert value != other_value
    assert not is_valid(TokenAuth("another-token"), CredentialKind.COOKIE, value)


@pytest.mark.failure("N-05")
def test_the_cookie_is_same_site_and_http_only() -> None:
    response = web.Response()
    TokenAuth(TOKEN).set_cookie(response, Grant(), Credential(CredentialKind.LINK, TOKEN), {})
    [morsel] = response.cookies.values()
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "Strict", "/")


@pytest.mark.failure("N-04")
def test_what_is_stored_of_an_access_token_is_no_credential(tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    token, text = tokens.create("kim", TokenScope.CHAT, system_clock())
    auth = TokenAuth(TOKEN, tokens)
    _, cookie = cookie_of(auth, text)
    assert auth.find_grant(Credential(CredentialKind.COOKIE, cookie)) == Grant(TokenScope.CHAT, token.id, "kim", tokens)
    [file] = (tmp_path / "access-tokens").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    stored = file.read_text()
    assert text not in stored
    assert cookie not in stored
    for value in (token.id, token.token_hash, token.cookie_hash, f"{token.id}.{token.cookie_hash}", "kim"):
        assert not any(is_valid(auth, kind, value) for kind in CredentialKind)


@pytest.mark.parametrize("value", ["", ".", "../server-token", "..%2f", "0" * 16, "\ud800", "\x00" * 16, "a" * 100_000])
def test_no_text_reaches_another_file(tmp_path: Path, value: str) -> None:
    tokens = AccessTokens(tmp_path)
    tokens.create("", TokenScope.OPERATOR, system_clock())
    assert not any(is_valid(TokenAuth(TOKEN, tokens), kind, value) for kind in CredentialKind)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"id": 1}', "\udcff"])
def test_a_damaged_file_is_no_token(tmp_path: Path, content: str) -> None:
    tokens = AccessTokens(tmp_path)
    token, text = tokens.create("", TokenScope.OPERATOR, system_clock())
    path = tmp_path / "access-tokens" / f"{token.id}.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert not is_valid(TokenAuth(TOKEN, tokens), CredentialKind.BEARER, text)
    assert tokens.list() == []


def test_opening_the_link_of_another_token_removes_the_first_ones_cookie(tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path)
    _, text = tokens.create("", TokenScope.CHAT, system_clock())
    auth = TokenAuth(TOKEN, tokens)
    name, value = cookie_of(auth)
    credential = Credential(CredentialKind.LINK, text)
    grant = auth.find_grant(credential)
    assert grant is not None
    response = web.Response()
    auth.set_cookie(response, grant, credential, {name: value, "greenroom-other-bot": "x", "foreign": "y"})
    assert {cookie: int(morsel["max-age"]) for cookie, morsel in response.cookies.items()} == {
        name: 0,
        f"greenroom-{grant.token_id}": 30 * 24 * 3600,
    }
