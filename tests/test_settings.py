"""Settings: where each value comes from, and what it must be."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import Field, SecretStr

from bot.errors import SettingError
from bot.settings import (
    AllowList,
    BaseUrl,
    CommaList,
    CoreSettings,
    Layer,
    Secret,
    Settings,
    SettingsModel,
    find_unreadable_lines,
    is_secret_name,
    load_settings,
)


class OwnedSettings(SettingsModel):
    """Some variables of a plugin that says which of them a character's file may set."""

    CHARACTER_SETTINGS = frozenset({"OWNED_UNIT", "OWNED_URL"})

    owned_unit: str = "C"
    owned_url: str = ""
    owned_place: str = ""


class OlderSettings(SettingsModel):
    """Some variables of a plugin that says nothing of owners."""

    older_unit: str = "C"
    older_key: Secret | None = None
    older_base_url: str = ""
    older_upstream: BaseUrl = "https://example.org"
    older_data: Path = Path("data")
    older_daily_limit: int = 5


class PostSettings(SettingsModel):
    """Some variables of a plugin."""

    post_api_key: Secret = Field(SecretStr(""), description="The key.")
    post_pass: Secret | None = Field(None, description="Another.")
    post_enable: bool = False
    post_interval_min: int = Field(90, ge=1)
    post_words: CommaList = ()
    post_readers: AllowList = ()
    post_server: BaseUrl = "https://post.example"


def settings(**values: str) -> Settings:
    return Settings([Layer("the test", values)])


def test_the_character_comes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("A=file\nB=file\nC=file\nD=file\n")
    found = load_settings(
        {"A": "character"},
        {"A": "secret", "B": "secret"},
        environment={"A": "environment", "B": "environment", "C": "environment"},
        env_file=file,
    )

    assert [found.get(name) for name in "ABCD"] == ["character", "secret", "environment", "file"]
    assert [found.source_of(name) for name in "ABCD"] == [
        "the character's settings",
        "the character's secrets",
        "the environment",
        str(file),
    ]
    assert set(found) == set("ABCD")


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
def test_a_blank_value_is_not_set_and_hides_nothing(blank: str) -> None:
    found = Settings([Layer("first", {"A": blank, "B": blank}), Layer("second", {"A": "  value  "})])

    assert found.get("A") == "value"
    assert found.source_of("A") == "second"
    assert "B" not in found
    assert list(found) == ["A"]
    assert (found.get("B"), found.get("B", "other"), found.source_of("B")) == (None, "other", "")


@pytest.mark.failure("K-01")
def test_a_value_that_must_be_there_is_asked_for_by_name() -> None:
    assert settings(A="value").require("A") == "value"
    with pytest.raises(SettingError, match=r"WEATHER_API_KEY is not set: put it in \.env"):
        settings(WEATHER_API_KEY=" ").require("WEATHER_API_KEY")


def test_what_is_not_set_has_its_default() -> None:
    found = settings().load(CoreSettings)

    assert found == CoreSettings()
    assert found.response_timeout == 3_600_000
    assert found.bot_data_dir == Path("data")


@pytest.mark.parametrize("spelling", ["true", "TRUE", "True", "1", "yes", "on", " true ", "T", "y"])
def test_yes_is_spelled_in_several_ways(spelling: str) -> None:
    assert settings(POST_ENABLE=spelling).load(PostSettings).post_enable


@pytest.mark.parametrize("spelling", ["false", "FALSE", "0", "no", "off", "", " ", "n"])
def test_no_is_spelled_in_several_ways(spelling: str) -> None:
    assert not settings(POST_ENABLE=spelling).load(PostSettings).post_enable


@pytest.mark.parametrize(
    "spelling", ["a,b c", " a , b c ,", "[a, b c]", '["a", "b c"]', "['a','b c']", '"a","b c"', ",a,,b c"]
)
def test_a_list_is_spelled_in_several_ways(spelling: str) -> None:
    assert settings(POST_WORDS=spelling).load(PostSettings).post_words == ("a", "b c")


@pytest.mark.failure("K-05")
@pytest.mark.parametrize("spelling", ["[]", ",", "''", '[""]'])
def test_a_list_of_allowed_people_that_names_no_person_is_refused(spelling: str) -> None:
    with pytest.raises(SettingError, match=r"POST_READERS \(in the test\): it is empty"):
        settings(POST_READERS=spelling).load(PostSettings)
    assert settings(POST_READERS="ada, bob").load(PostSettings).post_readers == ("ada", "bob")


@pytest.mark.parametrize("spelling", ["[]", ",", "''", '[""]'])
def test_an_empty_list_is_empty(spelling: str) -> None:
    assert settings(POST_WORDS=spelling).load(PostSettings).post_words == ()


@pytest.mark.failure("K-03")
@pytest.mark.parametrize(
    "placeholder",
    ["changeme", "CHANGE_ME", "undefined", "null", "secretsalt", "xxx", "your_api_key", "your-token-here", "sk-..."],
)
def test_a_placeholder_is_refused(placeholder: str) -> None:
    with pytest.raises(SettingError, match=r"POST_API_KEY \(in the test\): it is a placeholder"):
        settings(POST_API_KEY=placeholder).load(PostSettings)


@pytest.mark.parametrize("real", ["sk-1234567890", "your_3f9a1", "nullify", "xxxx-1"])
def test_a_real_secret_is_no_placeholder(real: str) -> None:
    found = settings(POST_API_KEY=real).load(PostSettings)

    assert found.post_api_key.get_secret_value() == real
    assert real not in repr(found)


@pytest.mark.parametrize("given", ["https://a.example/", "HTTP://[::1]:80", "http://a:1/b/"])
def test_a_servers_address_has_no_slash_at_its_end(given: str) -> None:
    assert settings(POST_SERVER=given).load(PostSettings).post_server == given.rstrip("/")


@pytest.mark.parametrize(
    "given", ["a.example", "ftp://a.example", "https://", "https://a.example/?b=c", "https://a:b@c.example"]
)
def test_what_is_no_servers_address_is_refused(given: str) -> None:
    with pytest.raises(SettingError, match="POST_SERVER"):
        settings(POST_SERVER=given).load(PostSettings)


def test_an_error_names_every_variable_and_its_place_and_never_the_value(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("POST_INTERVAL_MIN=hunter22\nPOST_API_KEY=changeme\n")
    found = load_settings({}, {}, environment={"POST_ENABLE": "hunter22"}, env_file=file)
    with pytest.raises(SettingError) as caught:
        found.load(PostSettings)
    lines = str(caught.value).splitlines()

    assert len(lines) == 3
    assert any(line.startswith(f"POST_INTERVAL_MIN (in {file}): ") for line in lines)
    assert any(line.startswith("POST_ENABLE (in the environment): ") for line in lines)
    assert "hunter22" not in str(caught.value)
    assert "changeme" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "wrong",
    [{"LOG_LEVEL": "LOUD"}, {"CONVERSATION_LENGTH": "0"}, {"RESPONSE_TIMEOUT": "soon"}, {"LATEST_RESPONSE": "x"}],
    ids=lambda value: next(iter(value)),
)
def test_a_core_setting_out_of_its_range_is_refused(wrong: dict[str, str]) -> None:
    [(name, value)] = wrong.items()
    with pytest.raises(SettingError, match=rf"^{name} \(in the test\): ") as caught:
        settings(**wrong).load(CoreSettings)
    assert value not in str(caught.value).partition(": ")[2].split()


def test_a_characters_settings_may_be_numbers_lists_and_truth_values() -> None:
    given = {"A": True, "B": False, "C": 5, "D": 0.5, "E": ["a", "b"], "F": {"g": 1}, "H": None, "I": [], "J": [{}]}
    found = load_settings(given, environment={}, env_file=Path("/nowhere/.env"))

    assert {name: found.get(name) for name in found} == {"A": "true", "B": "false", "C": "5", "D": "0.5", "E": "a,b"}


def test_a_folder_in_the_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.mkdir()  # as Docker does where a mounted file is missing
    with pytest.raises(SettingError, match="is a folder: remove it"):
        load_settings(environment={}, env_file=file)


def test_a_file_may_be_written_as_everybody_writes_it(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_bytes("\ufeffFIRST=1\r\n# a comment\nexport B='b # b'\nC=${FIRST}\nD\nE=\n".encode())
    found = load_settings(environment={}, env_file=file)

    assert found.get("FIRST") == "1"
    assert found.get("B") == "b # b"
    assert found.get("C") == "${FIRST}"
    assert set(found) == {"FIRST", "B", "C"}


def test_lines_that_set_nothing_are_found_and_the_others_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / ".env"
    file.write_text("FIRST=1\nbroken line\nSECOND=2\nTHIRD='not closed\n", encoding="utf-8")
    found = load_settings(environment={}, env_file=file)
    assert (found.get("FIRST"), found.get("SECOND"), found.get("THIRD")) == ("1", "2", None)
    assert find_unreadable_lines(file) == [2, 4]
    assert find_unreadable_lines(tmp_path / "missing") == []
    assert not caplog.records


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_bytes(b"A=\xff\xfe\n")
    with pytest.raises(SettingError, match=r"\.env: cannot be read as text"):
        load_settings(environment={}, env_file=file)


def test_a_missing_file_is_no_error(tmp_path: Path) -> None:
    found = load_settings(environment={"A": "1"}, env_file=tmp_path / ".env")

    assert list(found) == ["A"]


def test_the_environment_is_read_unless_another_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GREENROOM_TEST", "here")

    assert load_settings(env_file=tmp_path / ".env").get("GREENROOM_TEST") == "here"
    assert load_settings(environment={}, env_file=tmp_path / ".env").get("GREENROOM_TEST") is None


def test_secrets_are_collected_by_field_by_name_and_by_place() -> None:
    found = Settings(
        [
            Layer("settings", {"POST_PASS": "by-its-field", "POST_WORDS": "not a secret"}),
            Layer("secrets", {"DOOR_CODE": "by-its-place"}, is_secret=True),
            Layer("environment", {"WEATHER_TOKEN": " by-its-name ", "HOME": "/home/ada", "SHORT_KEY": "1234567"}),
        ]
    )

    assert found.secrets(PostSettings) == {"by-its-field", "by-its-place", "by-its-name"}
    assert found.secrets() == {"by-its-place", "by-its-name"}


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "http_proxy"])
def test_a_proxys_password_is_a_secret_wherever_an_error_names_its_address(name: str) -> None:
    found = Settings([Layer("environment", {name: "http://ada:fake-password@proxy:3128"})])
    assert found.secrets() == {"fake-password"}


def test_a_secret_that_another_hides_is_a_secret_still() -> None:
    found = Settings([Layer("a", {"A_KEY": "first-secret"}), Layer("b", {"A_KEY": "second-secret"})])

    assert found.secrets() == {"first-secret", "second-secret"}


def test_all_of_a_characters_secrets_are_secret() -> None:
    found = load_settings({}, {"DOOR": "open-sesame"}, environment={}, env_file=Path("/nowhere/.env"))

    assert found.secrets() == {"open-sesame"}
    assert "open-sesame" not in repr(found)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("OPENAI_API_KEY", True),
        ("discord_api_token", True),
        ("TOKEN", True),
        ("X_ACCESS_TOKEN_SECRET", True),
        ("SECRET_SALT", True),
        ("POSTGRES_URL", True),
        ("PGPASSWORD", True),
        ("OPENAI_BASE_URL", False),
        ("MAX_TOKENS", False),
        ("KEYBOARD", False),
        ("CHANNEL_IDS", False),
    ],
)
def test_a_variable_that_holds_a_secret_is_known_by_its_name(name: str, expected: bool) -> None:
    assert is_secret_name(name) is expected


def test_what_a_world_has_chosen_goes_over_the_agents_settings_where_it_may_be_chosen() -> None:
    core = Settings([Layer("the test", {"CONVERSATION_LENGTH": "30", "LOG_LEVEL": "INFO"})]).load(CoreSettings)
    chosen = {"CONVERSATION_LENGTH": "7", "LOG_LEVEL": "DEBUG", "OPENAI_API_KEY": "sk-12345678"}

    assert core.for_world(chosen) == core.model_copy(update={"conversation_length": 7})
    assert core.for_world({}) is core
    with pytest.raises(ValueError, match="CONVERSATION_LENGTH"):
        core.for_world({"CONVERSATION_LENGTH": "0"})


def test_what_a_layer_hides_is_not_found_below_it_and_stays_a_secret() -> None:
    below = Layer("the environment", {"SOME_TOKEN": "only-for-tests", "OTHER": "1"})
    settings = Settings([below]).with_layer(Layer("a trial", {}, hidden_names=frozenset({"SOME_TOKEN"})))
    assert settings.get("SOME_TOKEN") is None
    assert list(settings) == ["OTHER"]
    assert settings.secrets() == {"only-for-tests"}


FILE = "the character's settings"


def given(values: dict[str, str], *, environment: dict[str, str] | None = None) -> Settings:
    return load_settings(values, environment=environment or {}, env_file=Path("/nowhere/.env"))


def test_a_file_sets_only_the_variables_that_their_model_lists() -> None:
    settings = given({"OWNED_UNIT": "F", "OWNED_URL": "https://a.example", "OWNED_PLACE": "b"})
    assert settings.load(OwnedSettings) == OwnedSettings.model_validate(
        {"OWNED_UNIT": "F", "OWNED_URL": "https://a.example"}
    )
    declared = settings.with_models(OwnedSettings)
    assert (declared.get("OWNED_URL"), declared.get("OWNED_PLACE")) == ("https://a.example", None)
    assert declared.ignored_names == ("OWNED_PLACE",)
    assert declared.source_of("OWNED_PLACE") == ""


def test_the_operators_value_is_in_effect_where_a_file_may_not_set_it() -> None:
    settings = given({"OWNED_PLACE": "theirs", "LOG_LEVEL": "DEBUG"}, environment={"OWNED_PLACE": "ours"})
    assert settings.load(OwnedSettings).owned_place == "ours"
    assert settings.load(CoreSettings).log_level == "INFO"
    assert settings.with_models(OwnedSettings).source_of("OWNED_PLACE") == "the environment"


def test_a_model_that_names_no_owners_is_set_by_a_file_but_for_places_and_limits() -> None:
    values = {"OLDER_UNIT": "F", "OLDER_KEY": "key-of-the-file", "OLDER_BASE_URL": "x", "OLDER_DAILY_LIMIT": "9"}
    settings = given({**values, "OLDER_UPSTREAM": "https://evil.example", "OLDER_DATA": "/tmp"})
    found = settings.load(OlderSettings)
    assert found.older_unit == "F"
    assert found.older_key is not None
    assert all(map(found.is_default, ("older_base_url", "older_upstream", "older_data", "older_daily_limit")))


def test_a_variable_of_two_models_belongs_to_the_operator_if_either_model_says_so() -> None:
    class Grasping(SettingsModel):
        CHARACTER_SETTINGS = frozenset({"BOT_DATA_DIR"})

        bot_data_dir: str = "data"

    settings = given({"BOT_DATA_DIR": "/tmp"}).with_models(Grasping)
    assert settings.get("BOT_DATA_DIR") is None
    assert settings.load(Grasping).bot_data_dir == "data"


@pytest.mark.parametrize(
    "name",
    ["REGISTRY_URL", "WEATHER_BASE_URL", "MCP_SERVERS", "http_proxy", "WEATHER_DATA_DIR", "SERVER_X", "baseUrl", "99"],
)
def test_an_undeclared_name_of_a_place_or_an_authority_is_not_read_from_a_file(name: str) -> None:
    assert name not in given({name: "x"})
    assert given({name: "x"}).ignored_names == (name,)
    assert given({}, environment={name: "x"}).get(name) == "x"


@pytest.mark.parametrize("name", ["WEATHER_KEY", "TEXT_LARGE_TEMPERATURE", "MODEL_MAX_TOKEN", "voice", "IMPORTANCE"])
def test_any_other_undeclared_name_is_read_from_a_file(name: str) -> None:
    assert given({name: "1"}).get(name) == "1"


def test_a_model_that_lists_a_variable_it_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="CHARACTER_SETTINGS names no field: WRONG"):

        class Wrong(SettingsModel):
            CHARACTER_SETTINGS = frozenset({"WRONG"})


def test_ignored_values_of_a_file_are_secrets_too() -> None:
    settings = load_settings({}, {"SERVER_TOKEN": "the-attackers-token"}, environment={})
    assert "SERVER_TOKEN" not in settings
    assert "the-attackers-token" in settings.secrets()


def test_layers_above_the_file_keep_what_it_may_not_set() -> None:
    settings = given({"LOG_LEVEL": "DEBUG", "STREAMING": "false"}).with_layer(Layer("a check", {"MODEL_RETRIES": "0"}))
    assert (settings.get("LOG_LEVEL"), settings.get("STREAMING")) == (None, "false")
    assert (settings.get("MODEL_RETRIES"), settings.operator_only().get("STREAMING")) == ("0", None)


def test_an_unknown_choice_is_refused_with_those_that_exist() -> None:
    with pytest.raises(SettingError, match=r"BOT_ROLE \(in the test\): must be one of all, gateway, worker, sender$"):
        settings(BOT_ROLE="banana").load(CoreSettings)


class FallbackSettings(SettingsModel):
    """A variable of the operator and one of the character, each with the same fallback."""

    CHARACTER_SETTINGS = frozenset({"CHARACTER_ZONE"})
    FALLBACKS: ClassVar[Mapping[str, str]] = {"OPERATOR_ZONE": "TIMEZONE", "CHARACTER_ZONE": "TIMEZONE"}

    operator_zone: str = "UTC"
    character_zone: str = "UTC"


def test_a_variable_without_a_value_has_that_of_its_fallback() -> None:
    settings = load_settings({}, environment={"TIMEZONE": "Asia/Tokyo"}).load(FallbackSettings)
    assert (settings.operator_zone, settings.character_zone) == ("Asia/Tokyo", "Asia/Tokyo")
    settings = load_settings({}, environment={"TIMEZONE": "Asia/Tokyo", "OPERATOR_ZONE": "UTC"}).load(FallbackSettings)
    assert (settings.operator_zone, settings.character_zone) == ("UTC", "Asia/Tokyo")


def test_a_file_sets_no_variable_of_the_operator_by_a_fallback() -> None:
    character = {"TIMEZONE": "Europe/Berlin"}
    settings = load_settings(character, environment={"TIMEZONE": "Asia/Tokyo"}).load(FallbackSettings)
    assert (settings.operator_zone, settings.character_zone) == ("Asia/Tokyo", "Europe/Berlin")


@pytest.mark.parametrize("size", ["abc", "1B", "0", "-5MiB"])
def test_a_memory_limit_that_cannot_be_used_is_refused_with_the_form_that_can(size: str) -> None:
    settings = Settings([Layer("the environment", {"MEMORY_LIMIT": size})])
    with pytest.raises(SettingError, match=r"MEMORY_LIMIT \(in the environment\): must be a size of at least 16MiB"):
        settings.load(CoreSettings)
