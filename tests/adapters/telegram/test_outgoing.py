"""Conversion of Markdown to Telegram texts: nothing is lost, nothing exceeds the limits."""

import random
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from telegram import Chat, Message

from adapters.telegram import outgoing
from bot import Attachment, Choice, Content, MediaKind
from bot.models import TextRequest
from bot.testing import model_answer
from tests.adapters.telegram.conftest import OpenHarness

MARKDOWN = st.lists(
    st.sampled_from(["**", "*", "_", "`", "```\n", "~~", "[x](", ")", "# ", "- ", "> ", "|", "\n", "a", "😀", " "])
    | st.text(max_size=6),
    max_size=60,
).map("".join)


def marks(markdown: str) -> list[tuple[str, str, str]]:
    result = outgoing.parse_markdown(markdown)
    return [(item.kind, result.text[item.start : item.end], item.detail) for item in result.spans]


def test_links_to_user_ids_are_not_sent() -> None:
    assert outgoing.parse_markdown("[you](tg://user?id=4711)") == outgoing.FormattedText("you (tg://user?id=4711)")


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("**bold** and _italic_", "bold and italic"),
        ("# Title\n\nbody", "Title\n\nbody"),
        ("- one\n- two\n  - three", "• one\n• two\n  • three"),
        ("3. three\n4. four", "3. three\n4. four"),
        ("a\nb\n\nc", "a\nb\n\nc"),
        ("Text:\n- a\n- b", "Text:\n• a\n• b"),
        ("snake_case_word * 5 < 6", "snake_case_word * 5 < 6"),
        ("<b>hi</b> &amp; <script>", "<b>hi</b> & <script>"),
        ("*unclosed and [broken](", "*unclosed and [broken]("),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("[x](javascript:alert)", "[x](javascript:alert)"),
        ("[x](notes.txt)", "x (notes.txt)"),
        ("#", "#"),
        ("", ""),
    ],
)
def test_markdown_becomes_plain_text(markdown: str, text: str) -> None:
    assert outgoing.parse_markdown(markdown).text == text


def test_formatting_becomes_entities() -> None:
    assert marks("**a `b` c**") == [("bold", "a ", ""), ("code", "b", ""), ("bold", " c", "")]
    assert marks("```py\nx = 1\n```") == [("pre", "x = 1", "py")]
    assert marks("[here](https://example.com/?a=b)") == [("text_link", "here", "https://example.com/?a=b")]
    assert marks("> said\n> > twice") == [("blockquote", "said\ntwice", "")]
    assert marks("~~gone~~") == [("strikethrough", "gone", "")]


@given(st.text(alphabet="Ab é1.-=#+>:!)' \n\t\u00a0", max_size=60))
def test_text_without_markdown_is_what_the_parser_makes_of_it(text: str) -> None:
    parsed = outgoing.parse_markdown(f"{text}\n\n*end*")  # which is never taken as plain
    assert outgoing.parse_markdown(f"{text}\n\nend").text == parsed.text


@pytest.mark.failure("F-16", "O-07")
def test_a_part_notifies_at_most_three_known_users() -> None:
    people = {"ann", "bea", "carl", "dora"}
    [part] = outgoing.split_reply(Content(text="**@eve** @Ann, @ann @bea @carl @dora: write to ann@example.com"))
    limited = outgoing.limit_mentions(part, people)
    assert limited.text == "＠eve @Ann, @ann @bea @carl ＠dora: write to ann@example.com"
    assert outgoing.build_text(limited).entities == outgoing.build_text(part).entities
    assert outgoing.build_plain_text(limited).text == "**＠eve** @Ann, @ann @bea @carl ＠dora: write to ann@example.com"


def test_names_in_code_and_links_are_left_unchanged() -> None:
    [part] = outgoing.split_reply(Content(text="`@property` https://example.com/@eve (@eve)"))
    assert outgoing.limit_mentions(part, ()).text == "@property https://example.com/@eve (＠eve)"


@pytest.mark.long
@pytest.mark.failure("F-17")
@given(MARKDOWN)
def test_every_entity_lies_within_the_text(markdown: str) -> None:
    result = outgoing.parse_markdown(markdown)
    assert all(0 <= item.start < item.end <= len(result.text) for item in result.spans)
    for part in outgoing.split_reply(Content(text=markdown)):
        letter = outgoing.build_text(part)
        assert outgoing.utf16_length(letter.text) <= outgoing.MAX_TEXT_LENGTH
        assert all(
            item.offset >= 0 and item.offset + item.length <= outgoing.utf16_length(letter.text)
            for item in letter.entities
        )


@pytest.mark.failure("D-16")
@given(st.text(alphabet="ab \n.😀👨‍👩‍👧é\u0301🇩🇪", max_size=400), st.integers(min_value=20, max_value=60))
def test_a_split_text_keeps_its_limit_and_loses_only_white_space(text: str, limit: int) -> None:
    cut = list(outgoing.split_text(outgoing.FormattedText(text), limit))
    assert all(outgoing.utf16_length(item.text) <= limit for item in cut)
    assert "".join("".join(item.text.split()) for item in cut) == "".join(text.split())


@pytest.mark.failure("D-16")
@pytest.mark.parametrize("sign", ["😀", "👨‍👩‍👧", "🇩🇪", "👍🏽", "e\u0301"])
def test_no_grapheme_is_split(sign: str) -> None:
    text = sign * 300
    assert all(len(item.text) % len(sign) == 0 for item in outgoing.split_text(outgoing.FormattedText(text), 101))


@pytest.mark.failure("D-16")
def test_split_code_is_code_in_both_parts() -> None:
    code = "\n".join(f"line {number}" for number in range(1000))
    cut = outgoing.split_reply(Content(text=f"Look:\n```py\n{code}\n```"))
    assert len(cut) > 1
    assert [{item.type for item in outgoing.build_text(part).entities} for part in cut] == [{"pre"}] * len(cut)


def test_the_duplicate_notice_always_fits() -> None:
    [first, *_] = outgoing.split_reply(Content(text="x" * 9000))
    assert outgoing.utf16_length(outgoing.build_text(outgoing.with_duplicate_notice(first)).text) == 4096
    assert outgoing.build_text(outgoing.with_duplicate_notice(first)).text.startswith(outgoing.DUPLICATE_NOTICE)


def test_the_plain_fallback_contains_the_whole_text() -> None:
    [short] = outgoing.split_reply(Content(text="**a** [b](https://c.example)"))
    assert outgoing.build_plain_text(short).text == "**a** [b](https://c.example)"
    long = outgoing.split_reply(Content(text="word " * 1000 + "[b](https://c.example)"))
    assert outgoing.build_plain_text(long[-1]).text.endswith("b (https://c.example)")


def test_a_single_file_carries_the_text_as_its_caption() -> None:
    files = tuple(Attachment(str(number), MediaKind.IMAGE, data=b"x") for number in range(3))
    [item] = outgoing.split_reply(Content(text="A boat.", attachments=files[:1]))
    assert (item.text, len(item.attachments)) == ("A boat.", 1)
    several = outgoing.split_reply(Content(text="Boats.", attachments=files))
    assert [(part.text, len(part.attachments)) for part in several] == [("Boats.", 0), ("", 1), ("", 1), ("", 1)]
    long = outgoing.split_reply(Content(text="x" * (outgoing.MAX_CAPTION_LENGTH + 1), attachments=files[:1]))
    assert [len(part.attachments) for part in long] == [0, 1]


def test_choices_are_on_the_last_part_only() -> None:
    choices = (Choice("Yes", "1"),)
    cut = outgoing.split_reply(Content(text="word " * 2000, choices=choices))
    assert [part.choices for part in cut] == [()] * (len(cut) - 1) + [choices]


def test_a_link_attachment_is_written_into_the_text() -> None:
    link = Attachment("1", MediaKind.LINK, url="https://example.com")
    [part] = outgoing.split_reply(Content(text="See:", attachments=(link,)))
    assert (part.text, part.attachments) == ("See:\nhttps://example.com", ())


def test_a_recording_is_a_voice_message_only_in_a_supported_format() -> None:
    assert outgoing.upload_method_of(Attachment("1", MediaKind.AUDIO, content_type="audio/ogg; codecs=opus")) == "voice"
    assert outgoing.upload_method_of(Attachment("1", MediaKind.AUDIO, content_type="audio/mpeg")) == "audio"


@pytest.mark.long
def test_a_long_text_without_breaks_is_split_quickly() -> None:
    chance = random.Random(1)
    text = "".join(chance.choice("ab 😀*_`[]()\n>#-|~") for _ in range(32_000))
    assert outgoing.split_reply(Content(text=text))


# What models write in Markdown is shown as they mean it; what only looks like Markdown arrives unchanged.

UNCHANGED = [
    "x.org/?a=_b_&c=*d* and (www.example.org/#_a_) and en.wikipedia.org/a%20#*y*.~*y",
    "(2+x)**96 = z**(1+z) and [1]**2 = y**[3]",
    "10%*x + 5°*y*2 and 3€*2*x",
    "Lines:\n– one\n– two",
    "mail_me_now@example.org or __dunder__@x.org",
    "Use <b>bold</b> and <br> please.",
    "So \\(x^2 + y_1\\) and \\[\\frac{a}{b}\\] and $a_1*b_2$.",
    "1986. A great year.",
    "Edit /home/kim/__main__.py and run *.py or **/*.md",
    "Set snake_case_name and __init__ and 2*3*4 and a_b.",
    "a\tb\n    indented four\nback",
    "Ask @kim_h or @everyone.",
    "See https://github.com/x/y/blob/main/pkg/__init__.py for it.",
    "https://en.wikipedia.org/wiki/Set_*_(math) and https://x.org/?a=*b*",
    "Use __name__, __main__, __post_init__, __call__ and __custom__.py and obj.__dict__ here",
    "x**2 + y**2 = z**2",
    "2**3**4 and a*b*c",
    "f(*args, **kwargs) and g(*more)",
    "un*frigging*believable",
    "f**k that s**t",
    "価格*2和数量*3",
    "SELECT COUNT(*) and SUM(*) FROM t",
    '"*" and "*" mean all',
    "src/**/*.py or **/test or src/**",
    "/* a */ and /* b */",
    "*/5 * * * * cron",
    "* * * * * /bin/x",
    ".*bar and baz.*qux and (.*) and .*? or .*?",
    "^.*$ or ^a*$",
    "char* p and int* q",
    "(a+b)*(c+d)*(e)",
    "(a)*b*c",
    "^_^ and ^_^",
    "-_- and >_< and ;_; and ._. and T_T",
    "*_* wow *_* and *-* and *-*",
    "¯\\_(ツ)_/¯",
    ">_< hey",
    ">>> print(1_000)",
    "~~~ wavy ~~~\nmore text",
    "so cute~~~ ~~~hi~~~",
    "a~~b~~c 5~~6 and 7~~8",
    "ftp://x.org/_a_ tg://user?id=_1_",
    "www.x.org/__a__/_b_",
    "@_kim_ and #_tag_ and $_GET and /_cmd_",
    "\\\\server\\_share_\\x and ..\\_build\\*.log",
    "C:\\Users\\",
    "$$\na_1\n+ b_2\n- c\n$$",
    "\\[\n- x_1 = *y*\n\\]",
    "two  \nspaces",
    "vector<std::string> a<b>c</b> Kim <kim@x.org>",
    "handlers[name](event) f[0](x)",
    "[Kim]: hello there\n[Ann]: hi",
    "Sources:\n\n[1]: https://x.org",
    "foot[^1]\n\n[^1]: note",
    "#hashtag # x",
    "#\n# # #",
    "yes\n-\nno",
    "0. zero\n1. one",
    "10. a\n9. b\n8. c",
    "1986. A\n1990. B",
    "007. Bond",
    "2024. 12. 25. foo",
    "1) a\n2) b",
    "- - x",
    "   three spaces\n  two",
    "```\n```",
    "**unclosed and *also",
    "x | y and a || b",
    "run \\\n  -p",
    "5*5=25",
    "3 * 4 * 5",
    "a * b",
    "**",
    "__",
    "*",
    "`",
    "```",
    "||",
    "> ",
    "\\",
    "\\\\",
    "1.",
    "[",
    "[]()",
    "![]()",
    "#",
    "~~",
    "$$",
    "$",
    "\\(",
    "http://",
    "https://x",
    "/_",
    "_ _ _",
    "I'm *so*happy",
    "__init__.py",
    "__all__",
    "(__init__)",
    '"__init__"',
    "__a__b__",
    "__a_b__",
    "a_b_c*d*e",
    "x_1*y_2",
    "``",
    "C:\\Program Files\\_x\\y",
    "D:\\*.txt",
    "path\\to\\_x\\*.py",
    "\\\\server\\share",
    "~/_config/*.d/**",
    "./*.sh --_flag",
    "$HOME/_x_",
    "%APPDATA%\\_x",
    "{*}",
    "**kwargs",
    "*args",
    "lambda *a, **k: (*a, *k)",
    "print(*a); print(*b)",
    "[a](https://x.y/a b)",
    "https://x.y/(a)_b",
    "https://x.y/~user/__x__",
    "https://x.y#_a_",
    '<div class="a_b">x</div> <!-- c --> </s> <a href="https://x.org/_a_">t</a>',
    "https://x.org/a[1]_b_[2] https://x.org/[a]_(b)*c* https://x.org/?q=a*b&r=_c_",
    "~/path/~x a ~ b ~x~",
    "Name:\n\tfoo\n\tbar_baz_\nend",
    "a\t- b\n\t* c",
    "C:\\Users\\kim. C:\\new_folder\\_tmp_ and D:\\ and E:\\*",
    "\\[ \\sum_{i=1}^{n} x_i * y_i \\] $$x_1 * x_2$$ \\( a * b \\) $E=mc^2$ $x$ \\alpha_1 \\beta_2 \\text{a_b}",
    "In\n1986. A",
    "1. e4 e5 2. Nf3 Nc6",
    "3. August\n12. Mai 2024 war\n1.5 liters\n1.Foo",
    "2) foo\n12) bar",
    "2 ** 3 and 5*x*y, 10*10*10=1000, 3*(4+5)*6, 2*π*r, ½*m*v², -2*-3*-4",
    "5€*3 and 4€*2, 50%*3*2%",
    "Text `a and ``b",
    "*** bold ***",
    "foo_bar@x.org, kim_@x.org and _kim@x.org",
    "http://localhost:8000/__health__ ws://a/_b_",
    "| a | b |\n| 1 | 2 |",
    "#1 is #2\n#hash_tag_ and # not",
    "-dash\n*star\n+plus\n– en\n— em\n• dot",
    "a == b, a != b, a => b, a -> b, a <- b, <-- x",
    "x < y > z && a || b",
    "SELECT * FROM a_b WHERE c_d = '*' AND e LIKE '%_f_%'",
    "regex: ^\\w+\\s*\\(.*\\)$ and [a-z_]*\\.[a-z]*",
    "cron: 0 0 * * * and */15 * * * 1-5",
    "Ratings: 4* and 5*; note* and *footnote",
    "*footnote: see x",
    "f*ck, sh*t, f**k, ****, b***h",
    ":) ;) :-* <3 :* xoxo :**",
    "(*^_^*) (*_*) \\o/ o_o (^_~) ^^ *^▽^* (*´▽`*)",
    "_____ and __ and ___ and *** x",
]
FORMATTED = [
    (
        "Boats:\n\n| Boat | Length | Owner |\n|---|---|---|\n"
        "| **Ada** | 12 m | [Kim](https://x.org/k) of the northern quay |\n| Bo | | Robin |\n\nDone.",
        'Boats:\n\n<b>Ada</b>\nLength: 12 m\nOwner: <a href="https://x.org/k">Kim</a> of the northern quay\n\n'
        "<b>Bo</b>\nOwner: Robin\n\nDone.",
    ),
    ("**x.org/a_b** and *x.org/?a=b*, _x.org/c_", "<b>x.org/a_b</b> and <i>x.org/?a=b</i>, <i>x.org/c</i>"),
    ("1)**First** and Node.js/**React**", "1)<b>First</b> and Node.js/<b>React</b>"),
    ("C:\\Users\\kim\\new \\* literal", "C:\\Users\\kim\\new * literal"),
    ("* one\n* two **bold**\n* three", "• one\n• two <b>bold</b>\n• three"),
    (
        'Run `a*b` or:\n```python\nprint("x_y*z")\n```\nthen go.',
        'Run <code>a*b</code> or:\n<pre><code class="python">print(&quot;x_y*z&quot;)</code></pre>\nthen go.',
    ),
    ("## **Title** of it\ntext", "<b>Title of it</b>\ntext"),
    (
        "See [the map](https://example.org/a_(b)) and https://example.org/x_y_z?q=*a*.",
        'See <a href="https://example.org/a_(b)">the map</a> and https://example.org/x_y_z?q=*a*.',
    ),
    (
        "- one\n  - two\n    - three\n- four\n1. a\n2. b\n   - c",
        "• one\n  • two\n    • three\n• four\n1. a\n2. b\n  • c",
    ),
    ("> he said\n> - item\n\nok", "<blockquote>he said\n• item</blockquote>\n\nok"),
    ("The end: ||he dies||.", 'The end: <span class="tg-spoiler">he dies</span>.'),
    ("***both*** and **bold *inner* more**", "<b><i>both</i></b> and <b>bold <i>inner</i> more</b>"),
    (
        "At sea:\n\n| fare | price |\n|---|---|\n| **adult** | 5 € |\n| child | 2 € |\n\nAll.",
        "At sea:\n\n<pre>| fare  | price |\n|-------|-------|\n| adult | 5 €   |\n| child | 2 €   |</pre>\n\nAll.",
    ),
    (
        "| a | b |\n|--|--|\n| [map](https://x.org) | `c` **d** |",
        '<b>a | b</b>\n<a href="https://x.org">map</a> | <code>c</code> <b>d</b>',
    ),
    ("~~old~~ ~5 minutes~ ~", "<s>old</s> ~5 minutes~ ~"),
    ("Here:\n```python\nprint(1)\n", 'Here:\n<pre><code class="python">print(1)</code></pre>'),
    ("__bold__ and _it_ and *it* and **b**", "<b>bold</b> and <i>it</i> and <i>it</i> and <b>b</b>"),
    ("__really__ important, __Note:__ this", "<b>really</b> important, <b>Note:</b> this"),
    ("self._private_ and foo._bar_ and _x_", "self._private_ and foo._bar_ and <i>x</i>"),
    ("snake_case_ and _leading and trailing_ ok", "snake_case_ and <i>leading and trailing</i> ok"),
    ("**A**pple, **H**yper**T**ext, Hyper**T**ext", "<b>A</b>pple, <b>H</b>yper<b>T</b>ext, Hyper<b>T</b>ext"),
    ("这是**重点**内容，*微笑着。*你好", "这是<b>重点</b>内容，<i>微笑着。</i>你好"),
    ("他说：*“你好”*然后走了", "他说：<i>“你好”</i>然后走了"),
    ("**注意：**请看 **「重点」**是", "<b>注意：</b>请看 <b>「重点」</b>是"),
    (
        "**Note:**text and **Note**: text and **Note:** text",
        "<b>Note:</b>text and <b>Note</b>: text and <b>Note:</b> text",
    ),
    ("有**3个**苹果，共**第2**章", "有<b>3个</b>苹果，共<b>第2</b>章"),
    ("**강조**는 좋다", "<b>강조</b>는 좋다"),
    ("**/start** and **/help me**", "<b>/start</b> and <b>/help me</b>"),
    ("**.NET** rocks and *.txt", "<b>.NET</b> rocks and *.txt"),
    (
        "*smiles* Hello *waves.* Hi *she's 5'2\" tall*",
        "<i>smiles</i> Hello <i>waves.</i> Hi <i>she&#x27;s 5&#x27;2&quot; tall</i>",
    ),
    ("¯\\\\_(ツ)_/¯", "¯\\_(ツ)_/¯"),
    ("> real quote", "<blockquote>real quote</blockquote>"),
    (">> double", "<blockquote>double</blockquote>"),
    ("> quote\nand then text", "<blockquote>quote</blockquote>\nand then text"),
    ("> a\n> b\n\n> c", "<blockquote>a\nb</blockquote>\n\n<blockquote>c</blockquote>"),
    ("~~~\ncode\n~~~", "<pre>code</pre>"),
    ("~5~ ~~gone~~ ~", "~5~ <s>gone</s> ~"),
    (
        "||spoiler|| a || b a||b||c if (a||b)||(c||d)",
        '<span class="tg-spoiler">spoiler</span> a || b a||b||c if (a||b)||(c||d)',
    ),
    ("||**he** dies `now`||", '<span class="tg-spoiler"><b>he</b> dies now</span>'),
    ("||a\nb||", '<span class="tg-spoiler">a\nb</span>'),
    (
        "https://x.org/a_b_c_ and **https://x.org/__a__** and _https://x.org/a_",
        "https://x.org/a_b_c_ and <b>https://x.org/__a__</b> and <i>https://x.org/a</i>",
    ),
    ("*https://x.org/a*b*", "<i>https://x.org/a*b</i>"),
    ("[https://x.org/_a_](https://y.org/_b_)", '<a href="https://y.org/_b_">https://x.org/_a_</a>'),
    (
        "(https://x.org/a_(b)) <https://x.org/_a_>",
        '(https://x.org/a_(b)) <a href="https://x.org/_a_">https://x.org/_a_</a>',
    ),
    (
        "_me_@x.org a_b@x_y.org mail: **me@x.org** _me@x.org_",
        "_me_@x.org a_b@x_y.org mail: <b>me@x.org</b> <i>me@x.org</i>",
    ),
    (
        "C:\\Users\\_a\\*.txt and **C:\\Users\\kim** and `C:\\x`",
        "C:\\Users\\_a\\*.txt and <b>C:\\Users\\kim</b> and <code>C:\\x</code>",
    ),
    ("\\*not bold\\* \\_x\\_ \\# \\> \\~ \\| \\[a\\] \\`c\\`", "*not bold* _x_ # &gt; ~ | [a] `c`"),
    ("1986\\. A great year. 5\\.5 \\- x \\d+\\.\\d+ \\w+", "1986. A great year. 5.5 - x \\d+\\.\\d+ \\w+"),
    (
        "\\(x\\) \\[ x^2 \\] \\[citation needed\\] $x_1$ costs $5 *or* $10",
        "\\(x\\) \\[ x^2 \\] [citation needed] $x_1$ costs $5 <i>or</i> $10",
    ),
    ("AT&T &amp; &lt;b&gt; <b>x</b> <br/>", "AT&amp;T &amp; &lt;b&gt; &lt;b&gt;x&lt;/b&gt; &lt;br/&gt;"),
    ("[x](notes.txt) [you](tg://user?id=1) [a](javascript:x)", "x (notes.txt) you (tg://user?id=1) [a](javascript:x)"),
    (
        "[](https://x.org) ![pic](https://x.org/p.png) ![](https://x.org/p.png)",
        'https://x.org <a href="https://x.org/p.png">pic</a> https://x.org/p.png',
    ),
    ("[![badge](https://x.org/b.svg)](https://x.org)", '<a href="https://x.org">badge</a>'),
    (
        "[`code`](https://x.org) [**b** _i_](https://x.org)",
        '<a href="https://x.org">code</a> <a href="https://x.org"><b>b</b> <i>i</i></a>',
    ),
    (
        "[a][1] and [b]\n\n[1]: https://x.org\n[b]: https://y.org",
        '<a href="https://x.org">a</a> and <a href="https://y.org">b</a>',
    ),
    ("# Title\ntext", "<b>Title</b>\ntext"),
    ("## C#", "<b>C#</b>"),
    ("Title\n=====\ntext", "<b>Title</b>\ntext"),
    ("text here.\n---\nmore", "text here.\n———\nmore"),
    ("a\n---\nb", "<b>a</b>\nb"),
    ("---\na\n***\nb\n___\nc\n______", "———\na\n———\nb\n___\nc\n______"),
    ("1. a\n1. b\n1. c", "1. a\n2. b\n3. c"),
    ("- \n- x\n-", "• \n• x\n•"),
    ("+ one\n+ two", "• one\n• two"),
    ("- [ ] a\n- [x] b", "• [ ] a\n• [x] b"),
    ("- a\n\n- b\n\n\n\nc", "• a\n\n• b\n\n\n\nc"),
    ("1. a\n  - b\n2. c", "1. a\n  • b\n2. c"),
    ("1. a\n   ```py\n   x = 1\n   ```\n2. b", '1. a\n<pre><code class="py">x = 1</code></pre>\n2. b'),
    ("- a\n\n  para", "• a\n\npara"),
    (" - a\n - b", " • a\n • b"),
    ("-5 degrees\n- 5 degrees", "-5 degrees\n• 5 degrees"),
    ("\tcode tab", "<pre>\tcode tab</pre>"),
    ("def f():\n    # c\n    return 1\n\n    x = 2", "def f():\n    # c\n    return 1\n\n<pre>    x = 2</pre>"),
    ("``` \na\n```", "<pre>a</pre>"),
    ('```python title="a.py"\nx\n```', '<pre><code class="python">x</code></pre>'),
    ("```Hello there\nmore```", "<pre>Hello there\nmore</pre>"),
    ("```py\nx```", '<pre><code class="py">x</code></pre>'),
    ("a\n```\nb\n```\nc", "a\n<pre>b</pre>\nc"),
    ("````\n```\nx\n```\n````", "<pre>```\nx\n```</pre>"),
    ("`a``b` ``a`b`` `unclosed", "<code>a``b</code> <code>a`b</code> `unclosed"),
    ("**bold `code` more** ~~`x`~~", "<b>bold </b><code>code</code><b> more</b> <s>x</s>"),
    ("***a** b* **a *b***", "<i><b>a</b> b</i> <b>a <i>b</i></b>"),
    ("**bold ** x** ", "<b>bold ** x</b>"),
    ("| a | b |\n|---|--:|\n| `x | y` | 1 |", "<pre>| a | b |\n|---|--:|\n| `x | y` | 1 |</pre>"),
    ("| a | b |\n|---|---|\n| 1 | 2 |\nafter", "<pre>| a | b |\n|---|---|\n| 1 | 2 |</pre>\nafter"),
    ("| a | b |\n|---|---|\n| ~~1~~ | 2 |", "<b>a | b</b>\n<s>1</s> | 2"),
    ("| 名 | b |\n|---|---|\n| é | 2 |", "<pre>| 名 | b |\n|----|---|\n| é  | 2 |</pre>"),
    ("a | b\n--|--\n1 | 2", "<pre>| a | b |\n|---|---|\n| 1 | 2 |</pre>"),
    ("> | a | b |\n> |---|---|\n> | 1 | 2 |", "<blockquote><pre>| a | b |\n|---|---|\n| 1 | 2 |</pre></blockquote>"),
    ("> ```py\n> x\n> ```", '<blockquote><pre><code class="py">x</code></pre></blockquote>'),
    ("> # t\n> text **b**", "<blockquote><b>t</b>\ntext <b>b</b></blockquote>"),
    ("😀 **b😀** `c`", "😀 <b>b😀</b> <code>c</code>"),
    ("a\r\nb **c**\r\n\r\n- d", "a\nb <b>c</b>\n\n• d"),
    ("word\\\nnext", "word\nnext"),
    ("[write](mailto:a@b.org) [a@b.org](mailto:a@b.org) <kim@x.org>", "write (a@b.org) a@b.org &lt;kim@x.org&gt;"),
    ("**a@b.org** *a_b@c.org*", "<b>a@b.org</b> <i>a_b@c.org</i>"),
    ("`a`_b_ c", "<code>a</code><i>b</i> c"),
    ("a_`b`_", "a_<code>b</code>_"),
    ("1. **Bold**: text\n2. *it*", "1. <b>Bold</b>: text\n2. <i>it</i>"),
    (
        "**Ingredients:**\n* 2 eggs\n* **flour** (200g)\n\n**Steps**\n1. mix",
        "<b>Ingredients:</b>\n• 2 eggs\n• <b>flour</b> (200g)\n\n<b>Steps</b>\n1. mix",
    ),
    ("**A:** *b* — ~~c~~", "<b>A:</b> <i>b</i> — <s>c</s>"),
    ('_(aside)_, _"q"_.', "<i>(aside)</i>, <i>&quot;q&quot;</i>."),
    ("(**bold**) \"*it*\" '**x**'", "(<b>bold</b>) &quot;<i>it</i>&quot; &#x27;<b>x</b>&#x27;"),
    ("*a **b** c*", "<i>a <b>b</b> c</i>"),
    ("**a** **b**", "<b>a</b> <b>b</b>"),
    ("*a*-*b*", "<i>a</i>-<i>b</i>"),
    ("**1.** one", "<b>1.</b> one"),
    ("* not closed", "• not closed"),
    ("---", "———"),
    ("* * *", "———"),
    ("- - -", "———"),
    ("a\n\n\n\nb *c*", "a\n\n\n\nb <i>c</i>"),
    ("*a*\n\n\n*b*", "<i>a</i>\n\n\n<i>b</i>"),
    ("line  with   spaces *x*", "line  with   spaces <i>x</i>"),
    ("tab\there *x*", "tab\there <i>x</i>"),
    ("“*it*”", "“<i>it</i>”"),
    ("…*it*…", "…<i>it</i>…"),
    ("—*it*—", "—<i>it</i>—"),
    ("*it*'s **it**'s", "<i>it</i>&#x27;s <b>it</b>&#x27;s"),
    ("**it**s", "<b>it</b>s"),
    ("**Step 1: do_this_thing**", "<b>Step 1: do_this_thing</b>"),
    ("**my_var_name**", "<b>my_var_name</b>"),
    ("*__init__*", "<i>__init__</i>"),
    ("**`__init__`**", "<code>__init__</code>"),
    ("`__init__`", "<code>__init__</code>"),
    ("__a b__", "<b>a b</b>"),
    ("_a_b_", "<i>a_b</i>"),
    ("**a*b**", "<b>a*b</b>"),
    ("*a_b*", "<i>a_b</i>"),
    ("_a*b_", "<i>a*b</i>"),
    ("E = mc^2 * *x*", "E = mc^2 * <i>x</i>"),
    ("`*`", "<code>*</code>"),
    ("1 * 2 * 3 *4* 5", "1 * 2 * 3 <i>4</i> 5"),
    ("http://a.b/c_d_e (see _x_)", "http://a.b/c_d_e (see <i>x</i>)"),
    ("[a_b_c](https://x.y/a_b_c)", '<a href="https://x.y/a_b_c">a_b_c</a>'),
    ("[*a*](https://x.y)", '<i><a href="https://x.y">a</a></i>'),
    ("[a [b] c](https://x.y)", '<a href="https://x.y">a [b] c</a>'),
    ("[a](<https://x.y/a b>)", '<a href="https://x.y/a%20b">a</a>'),
    ('[a](https://x.y "title")', '<a href="https://x.y">a</a>'),
    ("https://x.y/a*b*c, and *d*", "https://x.y/a*b*c, and <i>d</i>"),
    ("**https://x.y/a**: z", "<b>https://x.y/a</b>: z"),
    ("x@y_z_ and _q_", "x@y_z_ and <i>q</i>"),
    ("x\n\n    code\n      more\n\ny", "x\n\n<pre>    code\n      more</pre>\n\ny"),
    (
        "[link](https://x.org/a_b*c*d) [x](https://x.org/a(b)c_d) [y](https://x.org/[z])",
        '<a href="https://x.org/a_b*c*d">link</a> <a href="https://x.org/a(b)c_d">x</a> <a href="https://x.org/%5Bz%5D">y</a>',
    ),
    ("- a\n\t- b\n\t\t- c", "• a\n  • b\n    • c"),
    ("1. a\n\t1. b\n\t2. c\n2. d", "1. a\n  1. b\n  2. c\n2. d"),
    ("> a\n>\n> b\n> 1. c\n> `d`", "<blockquote>a\n\nb\n1. c\n<code>d</code></blockquote>"),
    ("> a\n> > b\n> c", "<blockquote>a\nb\nc</blockquote>"),
    ("### `code` and [l](https://x.org)", '<code>code</code><b> and <a href="https://x.org">l</a></b>'),
    ("#### 1. Title\n- # x", "<b>1. Title</b>\n• <b>x</b>"),
    ("**a\nb** *c\nd*", "<b>a\nb</b> <i>c\nd</i>"),
    ("@kim_h_ and @kim_h, _really_ @a_b_c", "@kim_h_ and @kim_h, <i>really</i> @a_b_c"),
    ("\\[\nx_1 = 2*y*z\n\\]\n**done**", "\\[\nx_1 = 2*y*z\n\\]\n<b>done</b>"),
    ("2*3 *and* 4*5 **bold** 6*7", "2*3 <i>and</i> 4*5 <b>bold</b> 6*7"),
    ("Here:\n```\nfoo\nbar\n\nbaz", "Here:\n<pre>foo\nbar\n\nbaz</pre>"),
    ("```\n<b>x</b>\n```", "<pre>&lt;b&gt;x&lt;/b&gt;</pre>"),
    (
        '```json\n{"a_b": "*"}\n```\nThen **x**',
        '<pre><code class="json">{&quot;a_b&quot;: &quot;*&quot;}</code></pre>\nThen <b>x</b>',
    ),
    (
        "1. one\n\n   ```sh\n   a_b *c\n   ```\n\n2. two",
        '1. one\n\n<pre><code class="sh">a_b *c</code></pre>\n\n2. two',
    ),
    (
        "- **a**: `b` — [c](https://x.org)\n- ~~d~~",
        '• <b>a</b>: <code>b</code> — <a href="https://x.org">c</a>\n• <s>d</s>',
    ),
    ("***\ntext\n***", "———\ntext\n———"),
    (
        '**"Quoted"** and **(paren)** and **a**, **b**; (*c*) "**e**"',
        "<b>&quot;Quoted&quot;</b> and <b>(paren)</b> and <b>a</b>, <b>b</b>; (<i>c</i>) &quot;<b>e</b>&quot;",
    ),
    (
        '_a_, _b_. (_c_) "_d_" _e_: _f_! _g_?',
        "<i>a</i>, <i>b</i>. (<i>c</i>) &quot;<i>d</i>&quot; <i>e</i>: <i>f</i>! <i>g</i>?",
    ),
    (
        "*a*, *b*. *c*! *d*? *e*: *f*; *g*… *h*—*i*",
        "<i>a</i>, <i>b</i>. <i>c</i>! <i>d</i>? <i>e</i>: <i>f</i>; <i>g</i>… <i>h</i>—<i>i</i>",
    ),
    ('**bold**: *"it"* — **_bi_**', "<b>bold</b>: <i>&quot;it&quot;</i> — <i><b>bi</b></i>"),
    ("👍 *ok* 👍🏽**x**👍🏽", "👍 <i>ok</i> 👍🏽<b>x</b>👍🏽"),
    ("*😀* **😀** ||😀||", '<i>😀</i> <b>😀</b> <span class="tg-spoiler">😀</span>'),
    ("word_with_underscores_ _start_ mid_dle", "word_with_underscores_ <i>start</i> mid_dle"),
    ("`a_b` and a_b and `*` and **`x`**", "<code>a_b</code> and a_b and <code>*</code> and <code>x</code>"),
    (
        "[**bold link**](https://x.org/_a_) and [a_b_c_](https://x.org)",
        '<b><a href="https://x.org/_a_">bold link</a></b> and <a href="https://x.org">a_b_c_</a>',
    ),
    (
        '[text](https://x.org "a_b_") [text]( https://x.org ) [t](/rel) [t](#anchor)',
        '<a href="https://x.org">text</a> <a href="https://x.org">text</a> t (/rel) t (#anchor)',
    ),
    ("![a_b](https://x.org/a_b.png)", '<a href="https://x.org/a_b.png">a_b</a>'),
    (
        "[tel](tel:+123) [m](mailto:a_b@x.org) [t](tg://resolve?domain=x) [f](ftp://x.org/a) [s](steam://run/1)",
        "tel (tel:+123) m (a_b@x.org) t (tg://resolve?domain=x) f (ftp://x.org/a) s (steam://run/1)",
    ),
    (
        "| Name | Value |\n|:-----|------:|\n| `a|b` | x |\n| c\\|d | **y** |",
        "<pre>| Name | Value |\n|:-----|------:|\n| `a|b` | x |\n| c\\|d | **y** |</pre>",
    ),
    ("| a |\n|---|\n| [x](https://x.org) and `y` |", '<b>a</b>\n<a href="https://x.org">x</a> and <code>y</code>'),
    ("|a|b|\n|-|-|\n||c|\n|d||", "<pre>| a | b |\n|---|---|\n|   | c |\n| d |   |</pre>"),
    (
        "Table:\n| a | b |\n|---|---|\n| 1 | 2 |\n\n**After**",
        "Table:\n<pre>| a | b |\n|---|---|\n| 1 | 2 |</pre>\n\n<b>After</b>",
    ),
    ("Hello!\n\n\n\n\nBye *x*", "Hello!\n\n\n\n\nBye <i>x</i>"),
    ("**Warning**:do_not_touch", "<b>Warning</b>:do_not_touch"),
    ("I said *no*. *No!* **NO!** ***NO!***", "I said <i>no</i>. <i>No!</i> <b>NO!</b> <b><i>NO!</i></b>"),
    ('*He nods, "yes."* "Well," *he says*', "<i>He nods, &quot;yes.&quot;</i> &quot;Well,&quot; <i>he says</i>"),
    ("*“Hi,”* she said; *'tis*", "<i>“Hi,”</i> she said; <i>&#x27;tis</i>"),
]
PIECES = [
    *(
        "**",
        "*",
        "_",
        "__",
        "~~",
        "||",
        "`x`",
        "```\n",
        "# ",
        "- ",
        "> ",
        "|",
        "\n",
        "\n\n",
        "    ",
        "\\",
        "$",
        "/",
        "@",
    ),
    *(
        "a",
        "b c",
        "é",
        "😀",
        " ",
        "(",
        ")",
        ".",
        "\n\na|b\n--|--\nc|d\n\n",  # next to other lines it would be wide, and written without its first heading
        "~~~",
        "---\n",
        "===\n",
        "https://",
        ":",
        "<",
        "*.a",
    ),
]
STYLES = {"bold", "italic", "strikethrough", "spoiler"}  # may contain all but code, and be part of all but code


def shown(markdown: str) -> str:
    """Return the message that the client library makes of a reply, as HTML."""
    [part] = outgoing.split_reply(Content(text=markdown))
    sent = outgoing.build_text(part)
    message = Message(1, datetime(2026, 6, 1, tzinfo=UTC), Chat(1, "private"), text=sent.text, entities=sent.entities)
    return message.text_html or ""


@pytest.mark.parametrize("text", UNCHANGED)
def test_text_that_only_looks_like_markdown_arrives_unchanged(text: str) -> None:
    result = outgoing.parse_markdown(text)
    assert (result.text, result.spans) == (text, ())


@pytest.mark.parametrize(("markdown", "html"), FORMATTED)
def test_markdown_is_shown_as_it_is_meant(markdown: str, html: str) -> None:
    assert shown(markdown) == html


@pytest.mark.parametrize(("markdown", "html"), FORMATTED)
def test_a_formatted_text_between_others_is_shown_the_same(markdown: str, html: str) -> None:
    if not markdown.startswith((" ", "\t")) and "\n[" not in markdown:
        assert shown(f"😀 before\n\n{markdown.strip()}").endswith(html)


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
@example("a|b\n--|--\nc|d\n|||x|y\n")
def test_every_letter_of_a_text_arrives(markdown: str) -> None:
    shown = outgoing.parse_markdown(markdown)
    languages = [span.detail for span in shown.spans if span.kind == "pre"]  # of code: shown above it
    assert sorted(filter(str.isalpha, "".join([shown.text, *languages]))) == sorted(filter(str.isalpha, markdown))


@given(st.lists(st.sampled_from([*PIECES, "[", "](https://a.b)", "![", "1. "]), max_size=40).map("".join))
@example("```\n```\n```\n\n\na|b\n--|--\nc|d\n\n")
def test_entities_are_nested_as_telegram_requires(markdown: str) -> None:
    result = outgoing.parse_markdown(markdown)
    assert all(result.text[span.start : span.end].strip() for span in result.spans)
    for outer, inner in combinations(result.spans, 2):
        if outer.end > inner.start:
            assert outer.end >= inner.end, "two entities overlap"
            assert outer.kind != inner.kind, "an entity contains one of its kind"
            assert outer.kind not in ("code", "pre"), "code contains an entity"
            assert outer.kind in STYLES | {"blockquote"} or inner.kind in STYLES
            assert inner.kind not in ("code", "pre") or outer.kind == "blockquote"


@pytest.mark.parametrize(
    "markdown", ["**" + "word " * 2000 + "end**", "||" + "😀" * 900 + "||", "[a" + " b" * 3000 + "](https://a.b)"]
)
def test_an_entity_that_is_split_continues_in_the_next_part(markdown: str) -> None:
    parts = outgoing.split_reply(Content(text=markdown))
    [kind] = {span.kind for span in outgoing.parse_markdown(markdown).spans}
    for part in parts:
        [entity] = outgoing.build_text(part).entities
        assert (entity.type, entity.offset, entity.length) == (kind, 0, len(part.text.encode("utf-16-le")) // 2)


def test_of_too_many_entities_links_and_spoilers_are_kept() -> None:
    [part] = outgoing.split_reply(Content(text="**a** " * 150 + "[b](https://a.b) ||c||"))
    kinds = [entity.type for entity in outgoing.build_text(part).entities]
    assert (len(kinds), kinds[-2:]) == (outgoing.MAX_ENTITIES, ["text_link", "spoiler"])


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    "piece", ["[", "![", "__a", "^_", "- a|b\n", "> > ", "~~~ a\n", "$x_", "\\[x", "||a", "C:\\a "]
)
def test_a_long_text_of_unclosed_markup_is_parsed(piece: str) -> None:
    assert outgoing.parse_markdown(piece * (20_000 // len(piece))).text


async def test_telegram_receives_the_text_without_markup_and_its_entities(open_harness: OpenHarness) -> None:
    text = "😀 **Tide** of `__init__`:\n\n- [port](https://example.org/a_b)\n- ||6 o'clock||, not 2*3*4"

    def write(request: TextRequest) -> Any:
        return model_answer(text)

    async with open_harness(write) as harness:
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "when?")
        assert await harness.wait_texts(1) == ["😀 Tide of __init__:\n\n• port\n• 6 o'clock, not 2*3*4"]
        [sent] = harness.telegram.recorder.messages
    assert [(item["type"], item["offset"], item["length"]) for item in sent.message["entities"]] == [
        ("bold", 3, 4),
        ("code", 11, 8),
        ("text_link", 24, 4),
        ("spoiler", 31, 9),
    ]
