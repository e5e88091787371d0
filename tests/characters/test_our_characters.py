"""The bundled characters are complete, valid and without secrets."""

from pathlib import Path

import pytest

from bot.characters import Format, LoadedCharacter, load_character
from bot.prompts.template_language import compile_template

FOLDER = Path(__file__).parents[2] / "characters"
NAMES = ["default", "default.de", "default.es", "support", "poster"]
CONTEXT = {
    "agentName": "AGENT",
    "providers": "PROVIDERS",
    "actionNames": "ACTIONS",
    "recentMessages": "RECENT",
    "characterBio": "BIO",
}


@pytest.fixture(params=NAMES)
def loaded(request: pytest.FixtureRequest) -> LoadedCharacter:
    return load_character(FOLDER / f"{request.param}.json")


def test_every_character_in_the_folder_is_tested() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(NAMES)


def test_bundled_characters_load_without_a_note(loaded: LoadedCharacter) -> None:
    assert loaded.report.format_lines() == []
    assert loaded.report.format is Format.V1
    assert dict(loaded.secrets) == {}


def test_bundled_characters_have_bio_and_examples(loaded: LoadedCharacter) -> None:
    character = loaded.character

    assert character.system
    assert 5 <= len(character.bio) <= 8
    assert len(character.message_examples) >= 4
    assert all(any(line.name == character.name for line in lines) for lines in character.message_examples)
    assert character.post_examples
    assert len(character.topics) >= 5
    assert len(character.adjectives) >= 5
    assert character.style.all
    assert character.style.chat
    assert character.style.post


def test_bundled_example_posts_fit_on_x(loaded: LoadedCharacter) -> None:
    assert all(len(post) <= 280 for post in loaded.character.post_examples)


def test_bundled_templates_have_constant_text_before_variable_text(loaded: LoadedCharacter) -> None:
    for source in loaded.character.templates.values():
        prompt = compile_template(source).render(CONTEXT)
        volatile = min(place for word in ("PROVIDERS", "RECENT") if (place := prompt.find(word)) >= 0)

        assert volatile > prompt.rindex("</response>") > prompt.index("AGENT")


def test_the_support_template_asks_for_the_parsed_answer_format() -> None:
    templates = load_character(FOLDER / "support.json").character.templates

    handler = templates["messageHandlerTemplate"]
    for tag in ("response", "thought", "actions", "providers", "text"):
        assert f"<{tag}>" in handler
        assert f"</{tag}>" in handler
    for word in ("<action>RESPOND | IGNORE | STOP</action>", "{{recentMessages}}"):
        assert word in templates["shouldRespondTemplate"]


def test_the_poster_does_not_post_unless_enabled() -> None:
    poster = load_character(FOLDER / "poster.json").character

    assert poster.settings["X_POST_ENABLE"] is False
    assert len(poster.post_examples) >= 8
    assert "<post>" in poster.templates["postCreationTemplate"]


@pytest.mark.parametrize("language", ["de", "es"])
def test_the_bundled_character_has_the_same_parts_in_every_language(language: str) -> None:
    character, english = (
        load_character(FOLDER / name).character for name in (f"default.{language}.json", "default.json")
    )

    assert (character.name, character.username) == (english.name, english.username)
    for part in ("bio", "suggestions", "topics", "adjectives", "post_examples", "message_examples"):
        own, other = getattr(character, part), getattr(english, part)
        assert len(own) == len(other)
        assert not {item for item in own if item in other}
