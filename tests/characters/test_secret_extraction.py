"""Secrets in a file are available to settings and never shown."""

import copy
import json
import pickle
from dataclasses import replace

import pytest

from bot.characters import LoadedCharacter, parse_character
from bot.characters.source import Secrets, is_placeholder, is_secret_name, mask_secrets, secret_kind

OPENAI = "sk-proj-CANARYcanary0123456789CANARY"
DISCORD = "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.CANARYcanaryCANARYcanaryCANAR"
TELEGRAM = "110201543:AACANARYcanary-CANARYcanaryCANARY12"
PEM = "-----BEGIN EC PRIVATE KEY-----\nCANARYcanary+/=\n-----END EC PRIVATE KEY-----"


def _shown(loaded: LoadedCharacter) -> str:
    """Everything that a log, a prompt, an answer or a page could show of a loaded character."""
    character = loaded.character
    return "\n".join(
        [
            repr(loaded),
            str(loaded),
            repr(character),
            str(character),
            repr(character.model_dump()),
            character.model_dump_json(by_alias=True),
            repr(character.model_extra),
            repr(loaded.report),
            json.dumps(loaded.report.to_json()),
            json.dumps(loaded.to_json()),
            *loaded.report.format_lines(),
            repr(loaded.secrets),
            str(loaded.secrets),
            f"{loaded.secrets}",
        ]
    )


# Where the secret stands: the file, and the name under which settings find it.
PLACES = {
    "secrets": ({"secrets": {"WEATHER": "CANARY"}}, "WEATHER"),
    "settings.secrets": ({"settings": {"secrets": {"WEATHER": "CANARY"}}}, "WEATHER"),
    "deep in secrets": ({"secrets": {"weather": {"key": "CANARY"}}}, "secrets.weather.key"),
    "a list in secrets": ({"secrets": {"WEATHER": ["CANARY"]}}, "secrets.WEATHER[0]"),
    "a number": ({"secrets": {"PIN": 4711}}, "PIN"),
    "a setting named as a key": ({"settings": {"OPENAI_API_KEY": "CANARY"}}, "OPENAI_API_KEY"),
    "a setting named as a token": ({"settings": {"DISCORD_API_TOKEN": "CANARY"}}, "DISCORD_API_TOKEN"),
    "a setting named as a secret": ({"settings": {"X_ACCESS_TOKEN_SECRET": "CANARY"}}, "X_ACCESS_TOKEN_SECRET"),
    "a password": ({"settings": {"TWITTER_PASSWORD": "CANARY"}}, "TWITTER_PASSWORD"),
    "cookies": ({"settings": {"TWITTER_COOKIES": '[{"value": "CANARY"}]'}}, "TWITTER_COOKIES"),
    "camel case": ({"settings": {"discord": {"botToken": "CANARY"}}}, "settings.discord.botToken"),
    "a client's token": ({"clientConfig": {"telegram": {"token": "CANARY-CANARY"}}}, "clientConfig.telegram.token"),
    "a client's setting": ({"clientConfig": {"x": {"X_API_KEY": "CANARY"}}}, "X_API_KEY"),
    "an unknown key": ({"apiKey": "CANARY"}, "apiKey"),
    "an unknown part": ({"wallets": {"evm": {"privateKey": "CANARY"}}}, "wallets.evm.privateKey"),
    "an object named as a secret": ({"settings": {"credentials": {"user": "CANARY"}}}, "settings.credentials.user"),
    "a profile": ({"twitterProfile": {"password": "CANARY"}}, "twitterProfile.password"),
    "an address with a password": ({"settings": {"POSTGRES_URL": "postgres://u:CANARY@db/x"}}, "POSTGRES_URL"),
    "a value that looks like one": ({"settings": {"LLM": OPENAI}}, "LLM"),
    "a wallet's key": ({"settings": {"SOLANA": "0x" + "CA" * 32}}, "SOLANA"),
    "in the bio": ({"bio": [f"My key is {OPENAI}, hush."]}, "bio[0]"),
    "in the system prompt": ({"system": f"Use {TELEGRAM}"}, "system"),
    "in an example": (
        {"messageExamples": [[{"name": "a", "content": {"text": DISCORD}}]]},
        "messageExamples[0][0].content.text",
    ),
    "in a template": ({"templates": {"t": f"{{{{x}}}} {PEM}"}}, "templates.t"),
    "in knowledge": ({"knowledge": [{"content": PEM}]}, "knowledge[0].content"),
    "in style": ({"style": {"all": [OPENAI]}}, "style.all[0]"),
    "in an unknown list": ({"notes": [["x", OPENAI]]}, "notes[0][1]"),
    "for a plugin's name": ({"plugins": [OPENAI]}, "plugins[0]"),
    "for a model": ({"modelProvider": OPENAI}, "modelProvider"),
}


@pytest.mark.parametrize(("parts", "name"), PLACES.values(), ids=PLACES.keys())
def test_a_secret_is_available_to_settings_and_never_shown(parts: dict[str, object], name: str) -> None:
    text = json.dumps({"name": "Ada", **parts}, indent=1)

    loaded = parse_character(text)

    value = loaded.secrets[name]
    assert value in json.dumps(parts).encode().decode("unicode_escape")
    assert value not in _shown(loaded)
    assert "CANARY" not in _shown(loaded)
    assert len(loaded.report.secrets) == 1
    assert loaded.report.warnings == ()


def test_the_report_names_field_and_line_of_a_secret() -> None:
    loaded = parse_character('{\n"name": "Ada",\n"settings": {\n"OPENAI_API_KEY": "CANARY"}}')

    (note,) = loaded.report.secrets
    assert (note.path, note.line) == ("settings.OPENAI_API_KEY", 4)


def test_the_text_around_a_secret_is_not_changed() -> None:
    loaded = parse_character(json.dumps({"name": "Ada", "bio": [f"My key is {OPENAI}, hush."]}))

    assert loaded.character.bio == ("My key is ••••, hush.",)


def test_two_secrets_in_the_same_text_are_both_extracted() -> None:
    loaded = parse_character(json.dumps({"name": "Ada", "system": f"{OPENAI} and {TELEGRAM}"}))

    assert list(loaded.secrets.values()) == [OPENAI, TELEGRAM]
    assert loaded.character.system == "•••• and ••••"


@pytest.mark.parametrize("blank", ["", "  ", None, [], {}])
def test_a_blank_secret_is_ignored_and_does_not_override_another(blank: object) -> None:
    parts = {"secrets": {"A_KEY": blank}, "settings": {"B_KEY": blank, "secrets": {"C": blank}}}

    loaded = parse_character(json.dumps({"name": "Ada", **parts}))

    assert dict(loaded.secrets) == {}
    assert dict(loaded.character.settings) == {}
    assert loaded.report.secrets == loaded.report.warnings == ()


@pytest.mark.parametrize(
    "placeholder",
    [
        "changeme", "CHANGE_ME", "change-me", "undefined", "null", "your_key_here",
        "your-openai-api-key", "YOUR_TOKEN", "sk-xxxx", "sk-xxxxxxxxxxxxxxxxxxxxxxxx", "sk-...",
        "sk-your-key-here", "secretsalt", "xxx", "...", "****", "<your token>",
        "${OPENAI_API_KEY}", "$OPENAI_API_KEY", "process.env.OPENAI_API_KEY", "{{OPENAI_API_KEY}}",
        "[token]", "insert your key here", "replace with your key", "enter token", "TODO",
        "placeholder", "put-it-here", "my-api-key", "yourpassword", "password",
    ],
)  # fmt: skip
def test_a_placeholder_is_reported_and_does_not_override_a_secret(placeholder: str) -> None:
    text = json.dumps(
        {"name": "Ada", "secrets": {"OPENAI_API_KEY": placeholder}, "settings": {"X_API_KEY": placeholder}}
    )

    loaded = parse_character(text)

    assert dict(loaded.secrets) == {}
    assert "X_API_KEY" not in loaded.character.settings
    assert [note.path for note in loaded.report.warnings] == ["secrets.OPENAI_API_KEY", "settings.X_API_KEY"]
    assert all("placeholder" in note.message for note in loaded.report.warnings)


@pytest.mark.parametrize(
    "value",
    [OPENAI, DISCORD, TELEGRAM, PEM, "hunter2", "correct horse battery staple", "xoxb-1234-abcd", '[{"name": "auth"}]'],
)
def test_a_real_secret_is_no_placeholder(value: str) -> None:
    assert not is_placeholder(value)


def test_secrets_take_precedence_over_settings_and_those_over_settings_secrets() -> None:
    parts = {"settings": {"secrets": {"A_KEY": "third"}, "A_KEY": "second"}, "secrets": {"A_KEY": "first"}}

    loaded = parse_character(json.dumps({"name": "Ada", **parts}))

    assert dict(loaded.secrets) == {"A_KEY": "first"}
    assert len(loaded.report.warnings) == 2
    assert all("has two values" in note.message for note in loaded.report.warnings)


def test_a_repeated_secret_is_no_conflict() -> None:
    loaded = parse_character('{"name": "Ada", "secrets": {"A": "x1"}, "settings": {"secrets": {"A": "x1"}}}')

    assert loaded.report.warnings == ()


def test_settings_with_names_similar_to_secrets_are_not_extracted() -> None:
    settings = {
        "MODEL_MAX_TOKEN": 4096,
        "MAX_TOKENS": 100,
        "TOKENIZER": "cl100k",
        "PUBLIC_KEY": "abc",
        "KEYBOARD": "uk",
        "USE_TOKEN": True,
        "swap": {"token": "USDC"},
        "tokens": ["SOL", "ETH"],
        "OPENAI_LARGE_MODEL": "gpt-4o-mini-2024-07-18",
        "CHANNEL_IDS": "1234567890123456789",
    }

    loaded = parse_character(json.dumps({"name": "Ada", "settings": settings}))

    assert dict(loaded.character.settings) == settings
    assert dict(loaded.secrets) == {}


def test_prose_about_keys_is_not_changed() -> None:
    content = {"text": "swap", "token": "ETH-ETH-ETH", "key": "C sharp minor"}
    parts = {"messageExamples": [[{"name": "a", "content": content}]], "topics": ["the key of C", "password habits"]}

    loaded = parse_character(json.dumps({"name": "Ada", **parts}))

    assert loaded.character.message_examples[0][0].content.model_extra == {
        "token": "ETH-ETH-ETH",
        "key": "C sharp minor",
    }
    assert dict(loaded.secrets) == {}


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY", "apiKey", "APIKey", "bot_token", "botToken", "token", "X-Api-Key",
        "client_secret", "SECRET_SALT", "password", "DB_PASSWORD_2", "OPENAI_API_KEY_2",
        "privateKey", "accessTokens", "api_keys", "TWITTER_COOKIES",
    ],
)  # fmt: skip
def test_these_names_indicate_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["", "42", "tokens", "maxTokens", "MAX_TOKEN", "publicKey", "keyword", "monkey", "secretary"]
)
def test_these_names_do_not_indicate_a_secret(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (OPENAI, "an API key"),
        ("sk-ant-api03-abcdefghijklmnop", "an API key"),
        (DISCORD, "a Discord token"),
        (TELEGRAM, "a Telegram token"),
        (PEM, "a private key"),
        ("-----BEGIN PRIVATE KEY-----\ncut off", "a private key"),
        ("ghp_" + "a1" * 18, "a GitHub token"),
        ("xoxb-123456789012-abcdef", "a Slack token"),
        ("AKIAIOSFODNN7EXAMPLE", "an AWS key"),
        ("AIza" + "a" * 35, "a Google key"),
        ("hf_" + "a" * 34, "a Hugging Face token"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2", "a signed token"),
        ("redis://:hunter2@cache:6379", "an address with a password"),
        ("https://discord.com/api/webhooks/123/abc-DEF", "a webhook address"),
    ],
)
def test_secrets_are_recognized_by_their_format(text: str, kind: str) -> None:
    assert secret_kind(f"see {text} there") == kind
    assert text not in mask_secrets(f"see {text} there")[0]


@pytest.mark.parametrize(
    "text",
    [
        "a risk-free-and-fully-tested approach", "12:30 at the harbour",
        "https://example.com/a:b@c", "ratio 3:4", "see www.example.com or a.b.c", "eyJust kidding",
        "-----BEGIN CERTIFICATE-----", "0x" + "ab" * 20,
    ],
)  # fmt: skip
def test_ordinary_text_is_not_recognized_as_a_secret(text: str) -> None:
    assert secret_kind(text) == ""


def test_secrets_are_kept_hidden_through_copies() -> None:
    loaded = parse_character('{"name": "Ada", "secrets": {"A": "CANARY"}}')

    for other in (copy.deepcopy(loaded), replace(loaded, path=None), pickle.loads(pickle.dumps(loaded))):
        assert other.secrets["A"] == "CANARY"
        assert "CANARY" not in _shown(other)


def test_the_representation_of_secrets_shows_only_names() -> None:
    assert repr(Secrets({"A": "CANARY"})) == "Secrets(A=••••)"
