"""Who calls the emulator: the OAuth 1.0a signature of a request, verified as X does it."""

from dataclasses import dataclass
from urllib.parse import unquote

from oauthlib.oauth1 import Client  # type: ignore[import-untyped]  # it has no types of its own
from oauthlib.oauth1.rfc5849 import signature  # type: ignore[import-untyped]  # likewise
from oauthlib.oauth1.rfc5849.utils import parse_authorization_header  # type: ignore[import-untyped]  # likewise

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
