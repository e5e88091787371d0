"""The template language, with examples from elizaOS characters."""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import TemplateError
from bot.prompts.template_language import compile_template, render_template

PEOPLE = {"agentName": "Ada", "people": [{"name": "Bo", "age": 3}, {"name": "Cy"}], "kv": {"a": 1, "b": 2}}

GOLDENS: list[tuple[str, Mapping[str, Any], str]] = [
    ("Hi {{x}}, {{{x}}}, {{&x}}, {{ x }}!", {"x": "<b>&\"'"}, "Hi <b>&\"', <b>&\"', <b>&\"', <b>&\"'!"),
    ("{{a.b.c}}|{{a.x.c}}|{{a.b.c.d}}", {"a": {"b": {"c": 1}}}, "1||"),
    ("{{l.0}}{{l.[1].n}}{{l.2}}|{{l.length}}", {"l": ["a", {"n": "b"}]}, "ab|2"),
    ("{{[my key]}} {{a-b}} {{größe}}", {"my key": 1, "a-b": 2, "größe": 3}, "1 2 3"),
    ("{{missing}}{{none}}", {"none": None}, ""),
    ("{{t}} {{f}} {{n}} {{z}}{{d}}", {"t": True, "f": False, "n": 1.5, "z": 0, "d": {}}, "true false 1.5 0"),
    ("{{l}}", {"l": ["a", 1, True, None, {"x": 1}, ["n"]]}, "a, 1, true, , "),
    ("{{l}}", {"l": ("a", "b")}, "a, b"),
    ("{{#l}}<{{.}}>{{/l}}{{^l}}none{{/l}}", {"l": [1, 2]}, "<1><2>"),
    ("{{#l}}<{{.}}>{{/l}}{{^l}}none{{/l}}", {"l": []}, "none"),
    ("{{#l}}<{{this}}>{{else}}none{{/l}}", {}, "none"),
    ("{{#p}}{{n}} {{outer}}{{/p}}", {"p": {"n": "x"}, "outer": "y"}, "x y"),
    ("{{#on}}yes {{n}}{{/on}}{{#off}}no{{/off}}", {"on": True, "off": 0, "n": 1}, "yes 1"),
    ("{{#s}}[{{.}}]{{/s}}", {"s": "text"}, "[text]"),
    ("{{#each people}}{{name}};{{/each}}", PEOPLE, "Bo;Cy;"),
    ("{{#each people}}{{@index}}{{@first}}{{@last}} {{/each}}", PEOPLE, "0truefalse 1falsetrue "),
    ("{{#each people}}{{this.name}} of {{../agentName}}, {{/each}}", PEOPLE, "Bo of Ada, Cy of Ada, "),
    ("{{#each people}}{{this.agentName}}{{./agentName}}{{@root.agentName}} {{/each}}", PEOPLE, "Ada Ada "),
    ("{{#each people}}{{#if age}}{{name}}{{else}}-{{/if}}{{/each}}", PEOPLE, "Bo-"),
    ("{{#each kv}}{{@key}}={{this}}{{#unless @last}}, {{/unless}}{{/each}}", PEOPLE, "a=1, b=2"),
    ("{{#each text}}x{{else}}empty{{/each}}", {"text": "a string"}, "empty"),
    ("{{#each a}}{{#each b}}{{@../index}}{{@index}}{{../n}}{{../../top}} {{/each}}{{/each}}",
     {"top": "T", "a": [{"n": "p", "b": [1, 2]}, {"n": "q", "b": [3]}]}, "00pT 01pT 10qT "),
    ("{{#if a}}A{{else if b}}B{{else if c}}C{{else}}D{{/if}}", {"b": 1}, "B"),
    ("{{#if a}}A{{else if b}}B{{else if c}}C{{else}}D{{/if}}", {"c": [0]}, "C"),
    ("{{#if a}}A{{else if b}}B{{else if c}}C{{else}}D{{/if}}", {"a": "", "b": {}, "c": []}, "D"),
    ("{{#if a}}A{{^}}B{{/if}}", {}, "B"),
    ("{{#unless a}}no{{else}}yes{{/unless}}", {"a": 1}, "yes"),
    ("{{#unless a}}no{{/unless}}", {}, "no"),
    ("a{{! note }}b{{!-- {{x}} }} --}}c{{!}}d", {"x": 1}, "abcd"),
    ("a {{~x~}} b", {"x": 1}, "a1b"),
    ("a {{~#if x~}} b {{~/if~}} c", {"x": 1}, "abc"),
    ("{{ #if x }}1{{ /if }}", {"x": 1}, "1"),
    ("{{#../x}}{{/../x}}{{../x}}{{..}}", {"x": 1}, ""),
    ('{"a":{"b":{{x}}}} and {"c":{{{x}}}}', {"x": 1}, '{"a":{"b":1}} and {"c":1}'),
    ("100% {0} %s ${x} }} { {x}", {"x": 1}, "100% {0} %s ${x} }} { {x}"),
    ("{{x}}", MappingProxyType({"x": MappingProxyType({})}), ""),
    ("{{if}}{{each}}", {"if": 1, "each": 2}, "12"),
    # tags alone on their line leave no line behind
    ("# A\n{{#if x}}\nyes\n{{/if}}\n# B\n", {"x": 1}, "# A\nyes\n# B\n"),
    ("# A\n  {{#if x}}  \n  yes\n  {{else}}\n  no\n  {{/if}}", {}, "# A\n  no\n"),
    ("a\r\n{{#x}}\r\nb\r\n{{/x}}\r\nc", {"x": 1}, "a\r\nb\r\nc"),
    ("a\n{{! gone }}\nb\n{{x}}\nc", {}, "a\nb\n\nc"),
    ("{{#if x}}y{{/if}}\nz", {}, "\nz"),
    ("{{#each l}}\n- {{this}}\n{{/each}}\nend", {"l": [1, 2]}, "- 1\n- 2\nend"),
    # as characters and plugins of elizaOS write them
    ("<task>Decide on behalf of {{agentName}}.</task>\n\n<providers>\n{{providers}}\n</providers>",
     {"agentName": "Ada", "providers": "# Facts"},
     "<task>Decide on behalf of Ada.</task>\n\n<providers>\n# Facts\n</providers>"),
    ("**Actions**: {{results.length}}\n{{#if results.length}}\nTaken:\n{{#each results}}\n"
     "{{@index}}. {{this.name}}: {{#if this.ok}}ok{{else}}no{{/if}}\n{{/each}}\n{{else}}\nFirst.\n{{/if}}\n",
     {"results": [{"name": "REPLY", "ok": True}, {"name": "NONE"}]},
     "**Actions**: 2\nTaken:\n0. REPLY: ok\n1. NONE: no\n"),
    ("{{#if results.length}}\nTaken\n{{else}}\nFirst step.\n{{/if}}\n", {"results": []}, "First step.\n"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "context", "text"), GOLDENS)
def test_a_template_renders_like_handlebars(source: str, context: Mapping[str, object], text: str) -> None:
    assert render_template(source, context) == text


@pytest.mark.failure("G-07")
def test_a_value_is_never_parsed_as_a_template() -> None:
    context = {"x": "{{y}} {{#if y}}{{/y}}", "y": "secret", "l": ["{{y}}"]}
    assert render_template("{{x}}{{#each l}}{{this}}{{/each}}", context) == "{{y}} {{#if y}}{{/y}}{{y}}"


def test_attributes_are_not_read_and_values_are_not_called() -> None:
    class Trap:
        secret = "secret"

        def __call__(self) -> str:
            raise AssertionError

        def __str__(self) -> str:
            return "trap"

    context: dict[str, object] = {"t": Trap(), "s": "text", "l": [1]}
    assert (
        render_template("{{t}}|{{t.secret}}|{{t.__class__}}|{{s.upper}}|{{l.append}}|{{s.0}}", context) == "trap|||||"
    )


def test_unknown_helpers_and_partials_render_nothing_and_are_reported() -> None:
    template = compile_template(
        "a{{upper name}}{{> footer}}{{#with-it x}}b{{else}}c{{/with-it}}"
        '{{#if (eq a "b")}}d{{/if}}{{upper name}}{{}}{{@}}z{{^if x}}e{{/if}}{{&x y}}{{=<% %>=}}'
    )
    assert template.render({"name": "n", "x": 1}) == "az"
    assert template.unknown == (
        "upper name", "> footer", "#with-it x", '#if (eq a "b")', "", "@", "^if x", "x y", "=<% %>=",
    )  # fmt: skip


def test_a_valid_template_reports_nothing_unknown() -> None:
    assert compile_template("{{#if x}}{{y}}{{else if z}}{{/if}}{{! {{upper x}}").unknown == ()


def test_a_template_lists_the_variables_it_uses() -> None:
    source = "{{a.b}}{{#if c}}{{this.d}}{{/if}}{{.}}{{#each e}}{{f}}{{this.no}}{{../g}}{{@index}}{{@root.h}}{{/each}}"
    assert compile_template(source).variables == {"a", "c", "d", "e", "f", "g", "h"}


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("a\nb {{#if x}}", r"line 2, column 3: \{\{#if x\}\} is never closed"),
        ("{{#if x}}{{/each}}", r"column 10: \{\{/each\}\} does not close \{\{#if x\}\}; write \{\{/if\}\} before"),
        ("{{#a}}{{#b}}{{/a}}{{/b}}", r"\{\{/a\}\} does not close \{\{#b\}\}"),
        ("{{/if}}", r"line 1, column 1: \{\{/if\}\} closes nothing"),
        ("{{else}}", r"\{\{else\}\} belongs to no block"),
        ("{{#if x}}{{else}}{{else}}{{/if}}", r"column 18: \{\{else\}\} belongs to no block"),
        ("\n\n  {{x", r"line 3, column 3: \{\{x is not closed"),
        ("{{x {{y}}", r"column 1: \{\{x \{\{y\}\} is not closed"),
        ("{{{x}} y", r"\{\{\{x\}\} is not closed"),
        ("{{!-- x }}", r"is not closed"),
        ("{{#if x}}a{{else if y}}b", r"column 11: \{\{else if y\}\} is never closed"),
        ("{{#a}}" * 33, r"column 193: \{\{#a\}\} is nested deeper than 32"),
        ("x" * (256 * 1024 + 1), r"262145 characters; at most 262144"),
    ],
)
def test_the_error_of_a_broken_template_names_position_and_cause(source: str, complaint: str) -> None:
    with pytest.raises(TemplateError, match=complaint):
        compile_template(source)


def test_thirty_two_nested_blocks_render() -> None:
    assert render_template("{{#a}}" * 32 + "x" + "{{/a}}" * 32, {"a": {"a": 1}}) == "x"


NESTED = {"a": {"a": {"a": {"a": 1}}}, "b": [1] * 50_000}


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("source", "context"),
    [
        ("{{#each x}}{{#each ../x}}{{y}}{{/each}}{{/each}}", {"x": [1] * 500}),
        ("{{#each x}}{{#each ../x}}{{/each}}{{/each}}", {"x": [1] * 900}),
        ("{{#a}}" * 4 + "{{#each b}}{{y}}{{y}}{{/each}}" + "{{/a}}" * 4, NESTED),
        ("{{x}}", {"x": [[]] * 2_000_000}),
        ("{{#each b}}{{x}}{{/each}}", {"b": [1] * 200, "x": [[]] * 100_000}),
        ("{{#each b}}{{x}}{{/each}}", {"b": [1] * 200, "x": [None] * 5_000}),
        ("{{#each b}}{{" + "1" * 200_000 + "}}{{/each}}", {"b": [[1]] * 1_000}),
        ("{{#each b}}" + "{{y}}" * 5_000 + "{{/each}}", {"b": [1] * 100}),
        ("{{#each x}}{{/each}}" * 5_000, {"x": [1] * 50}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_work_is_bounded_also_where_nothing_is_printed(source: str, context: Mapping[str, object]) -> None:
    with pytest.raises(TemplateError, match="takes too much work"):
        render_template(source, context)


def test_ten_thousand_items_are_not_too_much_work() -> None:
    assert len(render_template("{{#each x}}- {{this}}\n{{/each}}", {"x": ["word"] * 10_000})) == 70_000


def test_a_result_that_is_too_large_is_rejected() -> None:
    assert len(render_template("{{x}}", {"x": "y" * 2_097_152})) == 2_097_152
    with pytest.raises(TemplateError, match="exceeds 2097152 characters"):
        render_template("{{#each l}}{{../x}}{{/each}}", {"l": [0] * 3, "x": "y" * 1_000_000})


def test_nested_loops_without_output_are_limited() -> None:
    with pytest.raises(TemplateError, match="nest fewer loops"):
        render_template("{{#each @root.l}}" * 9 + "{{/each}}" * 9, {"l": list(range(100))})


def test_a_number_too_large_to_print_is_rejected() -> None:
    with pytest.raises(TemplateError, match="cannot be shown"):
        render_template("{{x}}", {"x": 10**5000})


def test_a_list_that_contains_itself_is_rendered_once() -> None:
    loop: list[object] = ["a"]
    loop.append(loop)
    assert render_template("{{l}}", {"l": loop}) == "a"


def test_a_template_is_compiled_once() -> None:
    assert compile_template("once {{x}}") is compile_template("once {{x}}")


SCRAPS = st.sampled_from(
    [
        "{{",
        "}}",
        "{{{",
        "}}}",
        "{{#a}}",
        "{{/a}}",
        "{{#if§a}}",
        "{{else}}",
        "{{else§if§b}}",
        "{{/if}}",
        "{{#each§a}}",
        "{{/each}}",
        "{{^a}}",
        "{{^}}",
        "{{~",
        "~}}",
        "{{!",
        "{{!--",
        "--}}",
        "{{.}}",
        "{{..}}",
        "{{../a}}",
        "{{this.b}}",
        "{{@index}}",
        "{{a.b.[0]}}",
        "{{>§p}}",
        "{{f§x}}",
        "\n",
        "\r\n",
        "#",
        "/",
        "^",
        "a",
        "[",
        "]",
        "@",
        "§",
    ]
).map(lambda scrap: scrap.replace("§", " "))
SOURCES = st.lists(st.one_of(SCRAPS, st.text(max_size=4))).map("".join)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.dates()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ab0"), inner, max_size=3)),
    max_leaves=8,
)


@pytest.mark.long
@given(SOURCES, st.dictionaries(st.sampled_from(["a", "b"]), VALUES))
def test_any_template_renders_or_raises_a_template_error(source: str, context: dict[str, object]) -> None:
    with suppress(TemplateError):
        assert isinstance(render_template(source, context), str)


@pytest.mark.long
@given(st.text().filter(lambda text: "{{" not in text))
def test_a_text_without_tags_renders_unchanged(source: str) -> None:
    assert render_template(source, {}) == source


@pytest.mark.failure("G-07")
@given(st.text())
def test_a_value_is_rendered_unchanged(value: str) -> None:
    assert render_template("<{{x}}>", {"x": value}) == f"<{value}>"
