"""Long names, large sums, wide tables and text from right to left on the pages, at two widths."""

from dataclasses import replace
from typing import Any

import pytest

from bot import derived_id, system_clock
from bot.store import CostEntry

pytestmark = pytest.mark.long
NAME = "Bartholomew Featherstonehaugh-Cholmondeley the Third"
LONG_WORD = "x" * 60
PLACE = ("discord", "The International Association of Menders", "a-very-long-channel-name-about-knitting-and-darning")
WIDTHS = (390, 1440)
# What is wider than the page, or leaves the card that it is in; what is cut, or scrolls, does neither.
FIND_OVERFLOW = """() => [...document.querySelectorAll("main .card *, main .page-head *")].filter((node) => {
  const box = node.getBoundingClientRect();
  const card = (node.closest(".card") ?? node.closest(".page-head")).getBoundingClientRect();
  const isCut = node.closest(".cut, .vh, .scroll-x, .crumbs, .plot-table, .editor") !== null;
  return box.width > 0 && !isCut && (box.right > card.right + 1 || box.left < card.left - 1);
}).map((node) => `${node.tagName}.${node.getAttribute("class")}: ${node.textContent.slice(0, 40)}`)"""
# Texts of neighbours in a row of a table that lie on each other.
FIND_OVERLAPS = """() => [...document.querySelectorAll("main td > *")].filter((node) => {
  const cell = node.closest("td").getBoundingClientRect();
  return [...node.querySelectorAll("*"), node].some((item) => item.getBoundingClientRect().right > cell.right + 1);
}).map((node) => node.textContent)"""
SHOW_MARKDOWN = """async (text) => {
  const { renderMarkdown } = await import(new URL("pages/js/markdown.js", document.baseURI));
  const box = document.createElement("div");
  box.className = "body md";
  const message = document.createElement("div");
  message.className = "msg";
  message.style.width = "340px";
  message.append(box);
  document.body.append(message);
  renderMarkdown(box, text);
  const styles = (name) => [...box.querySelectorAll(name)].map((node) => getComputedStyle(node));
  const broken = [...box.querySelectorAll("td, th")].filter((cell) => {
    const range = document.createRange();
    return [...cell.textContent.matchAll(/\\S+/g)].some(({ 0: word, index }) => {
      if (cell.firstChild?.nodeType !== Node.TEXT_NODE) return false;
      range.setStart(cell.firstChild, index);
      range.setEnd(cell.firstChild, index + word.length);
      return range.getClientRects().length > 1;
    });
  }).map((cell) => cell.textContent);
  const found = {
    directions: [...box.children].map((node) => getComputedStyle(node).direction),
    code: styles("code, pre").map((style) => style.direction),
    padding: styles("ul, ol").map((style) => [parseFloat(style.paddingLeft) > 0, parseFloat(style.paddingRight) > 0]),
    broken,
  };
  message.remove();
  return found;
}"""
MIXED = """`greenroom.py` הוא קובץ

- אחת
- שתיים

```python
print(1)  # שלום
```

- one
- two

| conversation | environment | value | internationalization |
|---|---|---|---|
| length | CONVERSATION_LENGTH | 32 | configuration |"""


async def store_long_texts(workshop: Any) -> None:
    for name in (NAME, LONG_WORD):
        await workshop.hear(f"Marlo, hello from {name}", name, PLACE)
    entry = CostEntry(
        system_clock().date(),
        "meta-llama/Llama-3.3-70B-Instruct-Q4_K_M-imatrix.gguf",
        derived_id(*PLACE),
        derived_id("discord", NAME),
        calls=40,
        cost=12_345.678,
        purpose="reply",
    )
    await workshop.store.costs.add([entry, replace(entry, model="small", cost=0.0004)])


async def test_nothing_overlaps_the_next_element_or_leaves_its_card(workshop: Any, visitor: Any) -> None:
    await store_long_texts(workshop)
    room = workshop.room(PLACE)
    pages = {
        "people": NAME,
        f"people/{workshop.person(NAME)}": "What is known",
        "costs": "Limits a day",
        "receipts": "Answered",
        "settings": "BUDGET_USD",
        "plugins": "none has a problem",
        f"knowledge?q=who+has+the+key&room={room}": "result",
    }
    for width in WIDTHS:
        tab = await visitor.enter(None, width=width)
        for path, text in pages.items():
            await tab.open(f"console/{path}")
            await tab.page.get_by_text(text).locator("visible=true").first.wait_for()
            assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)
            assert await tab.page.evaluate(FIND_OVERFLOW) == [], (path, width)
            if width == min(WIDTHS):
                assert await tab.page.evaluate(FIND_OVERLAPS) == [], path


async def test_the_field_of_a_question_keeps_its_width_next_to_a_long_room(workshop: Any, visitor: Any) -> None:
    tab = await visitor.enter("console/knowledge", width=1440)
    field = tab.page.get_by_role("searchbox", name="Question")
    await tab.page.get_by_label("In which room").wait_for()
    for length in (8, 24, 40, 56, 90):
        await tab.page.get_by_label("In which room").evaluate(
            "(node, length) => { node.options[0].textContent = 'w'.repeat(length); node.selectedIndex = 0; }", length
        )
        assert (await field.bounding_box())["width"] >= 250


async def test_each_block_has_its_own_direction_code_is_left_to_right_and_words_of_tables_are_whole(
    visitor: Any,
) -> None:
    tab = await visitor.enter("")
    await tab.page.get_by_role("textbox", name="Message to").wait_for()
    found = await tab.page.evaluate(SHOW_MARKDOWN, MIXED)
    assert found["directions"] == ["rtl", "rtl", "ltr", "ltr", "ltr"]
    assert set(found["code"]) == {"ltr"}
    assert found["padding"] == [[False, True], [True, False]]
    assert found["broken"] == []
