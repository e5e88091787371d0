from aiohttp import web

from adapters.web.auth import Credential, Kind, Lock

TOKEN = "a-token-for-tests"


def cookie_of(lock: Lock) -> tuple[str, str]:
    response = web.Response()
    lock.give_cookie(response)
    [(name, morsel)] = response.cookies.items()
    return name, morsel.value


def test_the_token_opens_as_bearer_and_in_the_link() -> None:
    lock = Lock(TOKEN)
    assert lock.opens(Credential(Kind.BEARER, TOKEN))
    assert lock.opens(Credential(Kind.LINK, TOKEN))


def test_n04_the_cookie_opens_only_as_cookie_and_does_not_hold_the_token() -> None:
    lock = Lock(TOKEN)
    _, value = cookie_of(lock)
    assert TOKEN not in value
    assert lock.opens(Credential(Kind.COOKIE, value))
    assert not lock.opens(Credential(Kind.BEARER, value))
    assert not lock.opens(Credential(Kind.COOKIE, TOKEN))


def test_n07_another_token_makes_another_cookie_of_another_name() -> None:
    name, value = cookie_of(Lock(TOKEN))
    other_name, other_value = cookie_of(Lock("another-token"))
    assert name != other_name
    assert value != other_value
    assert not Lock("another-token").opens(Credential(Kind.COOKIE, value))


def test_n05_the_cookie_is_for_this_site_alone_and_not_for_scripts() -> None:
    response = web.Response()
    Lock(TOKEN).give_cookie(response)
    [morsel] = response.cookies.values()
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "Strict", "/")
