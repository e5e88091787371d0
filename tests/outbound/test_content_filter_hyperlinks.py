"""The content filter: which data links may carry, and to which hosts."""

from datetime import UTC, datetime, timedelta

import pytest

from bot.domain.character import Character
from bot.domain.content import Content
from bot.domain.ids import derived_id
from bot.errors import SettingError
from bot.outbound.content_filter import MAX_MESSAGE_LINK_DATA, LinkPolicy, OutgoingFilter, strip_unfinished_link
from bot.runtime.character_reload import AgentConfig
from bot.runtime.runtime import Runtime
from bot.settings import CoreSettings, Layer, Settings
from bot.store import InMemoryStore
from bot.testing import RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent

DATA = "d" * 65
LINKS = LinkPolicy(("example.org",))


@pytest.mark.failure("F-18")
@pytest.mark.parametrize(
    ("link", "words"),
    [
        (f"https://evil.test/x?d={DATA}", f"hxxps://evil[.]test/x?d={DATA}"),
        (f"HTTP://EVIL.test/?{DATA}", f"hxxp://EVIL[.]test/?{DATA}"),
        (f"https://evil.test/{DATA}{DATA}", f"hxxps://evil[.]test/{DATA}{DATA}"),
        (f"https://{DATA}.evil.test/", f"hxxps://{DATA}[.]evil[.]test/"),
        (f"https://example.org@evil.test/?{DATA}", f"hxxps://example[.]org@evil[.]test/?{DATA}"),
        (f"https://evil.test\\@example.org/?{DATA}", f"hxxps://evil[.]test\\@example.org/?{DATA}"),
        (f"https://example.org.evil.test/?{DATA}", f"hxxps://example[.]org[.]evil[.]test/?{DATA}"),
        (f"https://notexample.org/?{DATA}", f"hxxps://notexample[.]org/?{DATA}"),
        (f"https://https://evil.test/?{DATA}", f"https://hxxps://evil[.]test/?{DATA}"),
        (f"evil.test/?{DATA}", f"evil[.]test/?{DATA}"),
        (f"//evil.test/?{DATA}", f"//evil[.]test/?{DATA}"),
    ],
)
@pytest.mark.parametrize(
    ("before", "after"), [("", ""), ("see ", " and"), ("![x](", ")"), ("[a](https://example.org/)[b](", ")")]
)
def test_a_link_that_carries_data_to_an_unknown_host_is_sent_as_plain_text(
    link: str, words: str, before: str, after: str
) -> None:
    assert LINKS.defang(before + link + after)[0] == before + words + after


@pytest.mark.failure("F-18")
@pytest.mark.parametrize(
    "text",
    [
        "https://evil.test/a/b?c=d#e",
        f"https://example.org/?{DATA}",
        f"https://www.EXAMPLE.org:8443/{DATA}{DATA}?{DATA}",
        "Really? e.g. 3.14/2, a/b, x.y and so on.",
        f"why? {DATA}",
        f"is it so?{DATA}",
    ],
)
def test_other_links_and_texts_are_not_changed(text: str) -> None:
    assert LINKS.defang(text)[0] == text


@pytest.mark.failure("F-18")
def test_no_link_contains_a_secret_in_any_encoding() -> None:
    defanged = LINKS.defang("https://example.org/%68unter%32%32 and https://evil.test/?q=hunter22", ["hunter22"])[0]
    assert defanged == "[a link that held a secret] and [a link that held a secret]"


@pytest.mark.failure("F-18")
@pytest.mark.parametrize("part", ["a.", "a.b/", "https://", "a", "x?", "a-", "@", "é.", "https://a.b/?", ".%"])
def test_a_text_of_many_link_fragments_is_filtered_in_time(part: str) -> None:
    text = part * (32_768 // len(part))
    assert LINKS.defang(text)[0].replace("[.]", ".").replace("hxxp", "http") == text
    strip_unfinished_link(text)


@pytest.mark.failure("F-18")
async def test_the_operator_configures_hosts_to_which_links_may_carry_data() -> None:
    model = ScriptedModel(model_answer(f"https://good.test/?{DATA} https://evil.test/?{DATA}"))
    async with running_agent(model=model, settings={"LINK_HOSTS": "good.test"}) as harness:
        await harness.send("Where?")
        assert harness.texts == [f"https://good.test/?{DATA} hxxps://evil[.]test/?{DATA}"]


@pytest.mark.failure("F-18")
async def test_a_character_file_cannot_configure_link_hosts() -> None:
    model = ScriptedModel(model_answer(f"https://evil.test/?{DATA}"))
    values = {"LINK_HOSTS": "evil.test"}
    file = Layer("the character's settings", values, is_operator=False)
    plan = AgentConfig(
        Character(name="Ada"),
        (model.plugin,),
        Settings([file, Layer("the test", {"AI_NOTICE": "off"})]),
        InMemoryStore(),
    )
    async with Runtime([plan]) as runtime:
        adapter = RecordingAdapter()
        await runtime.connect(adapter)
        await runtime.agents[0].inbox.submit(make_message("Where?", sent_at=datetime.now(UTC)))
        assert await adapter.wait_until_sent(1) == [f"hxxps://evil[.]test/?{DATA}"]


def test_a_configured_host_has_no_scheme_or_path() -> None:
    with pytest.raises(SettingError, match=r"LINK_HOSTS.*such as example\.org"):
        Settings([Layer(".env", {"LINK_HOSTS": "example.org, https://example.org/a"})]).load(CoreSettings)


@pytest.mark.failure("F-18")
@pytest.mark.parametrize(
    "host", ["https://203.0.113.7", "203.0.113.7", "xn--e1afmkfd.xn--p1ai", "https:\\\\evil.test", "https:/evil.test"]
)
def test_addresses_punycode_and_backslashes_make_links_too(host: str) -> None:
    separator = "\\" if "\\" in host else "/"
    text, _ = LINKS.defang(f"see {host}{separator}?{DATA}")
    assert f"{host}{separator}?{DATA}" not in text
    assert "[.]" in text


@pytest.mark.failure("F-18")
def test_many_links_together_carry_no_more_than_a_message_may() -> None:
    links = [f"https://evil.test/{number:03}/{'d' * 60}" for number in range(400)]
    text, size = LINKS.defang("\n".join(links))
    assert size <= MAX_MESSAGE_LINK_DATA
    assert sum(len(link) for link in links if link in text) <= MAX_MESSAGE_LINK_DATA + 8 * len(links)
    assert "https://" not in text.splitlines()[-1]
    assert LINKS.defang("\n".join([links[0]] * 400))[1] == len(links[0]) - len("https://")


@pytest.mark.failure("F-18")
def test_the_links_of_a_room_share_a_budget_for_an_hour() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    outgoing, room = OutgoingFilter(link_policy=LINKS, clock=lambda: now), derived_id("room")

    def send(number: int) -> bool:
        links = [f"https://evil.test/{number}/{part}/{'d' * 80}" for part in range(9)]
        content, _ = outgoing.filter(Content(text="\n".join(links)), room)
        assert content is not None
        return content.text == "\n".join(links)

    assert [send(number) for number in range(8)] == [True] * 5 + [False] * 3
    assert outgoing.filter(Content(text=f"https://example.org/?{DATA}"), room)[0] == Content(
        text=f"https://example.org/?{DATA}"
    )
    now += timedelta(hours=1, seconds=1)
    assert send(9)
