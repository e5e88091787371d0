"""Hostile texts do nothing in a browser: as Markdown of replies, as names, as titles."""

import json
from typing import Any

import pytest

from tests.adapters.web.test_websocket import WORDS

# Renders texts with the page's module and returns what is in the document that could do something.
RENDER = """async (texts) => {
  const { renderMarkdown } = await import(new URL("pages/js/markdown.js", document.baseURI));
  window.alerts = [];
  window.alert = (text) => window.alerts.push(text);
  const found = [];
  for (const text of texts) {
    const box = document.createElement("div");
    document.body.append(box);
    renderMarkdown(box, text, { isStreaming: true });
    renderMarkdown(box, text + "\\n", { isStreaming: false });
    for (const node of box.querySelectorAll("*")) {
      const attributes = Object.fromEntries([...node.attributes].map(({ name, value }) => [name, value]));
      found.push({ text, tag: node.localName, attributes });
    }
    box.remove();
  }
  await new Promise((resolve) => setTimeout(resolve));
  return { found, alerts: window.alerts };
}"""
TAGS = {
    *("a", "b", "blockquote", "br", "button", "code", "del", "div", "em", "h2", "hr", "i", "li", "ol", "p", "pre"),
    *("s", "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
ATTRIBUTES = {*("aria-label", "class", "href", "rel", "role", "scope", "start", "tabindex", "target", "title", "type")}


@pytest.mark.long
@pytest.mark.failure("N-12")
async def test_markdown_of_hostile_texts_is_text_and_links_to_the_web(browser: Any) -> None:
    tab = await browser.sign_in()
    result = await tab.page.evaluate(RENDER, WORDS)
    assert len(WORDS) > 200
    assert result["alerts"] == []
    for item in result["found"]:
        assert item["tag"] in TAGS, item
        assert set(item["attributes"]) <= ATTRIBUTES, item
        if item["tag"] == "a":
            assert item["attributes"]["href"].startswith(("http://", "https://", "mailto:")), item
            assert item["attributes"]["rel"] == "noopener noreferrer nofollow", item
            assert item["attributes"]["target"] == "_blank", item


@pytest.mark.long
@pytest.mark.failure("N-12")
async def test_very_long_addresses_do_not_block_the_page(browser: Any) -> None:
    tails = (")", ")]", ").", ".", "(", "[)", "~*")
    texts = [f"https://a.example/{tail * (32_000 // len(tail))}" for tail in tails]
    tab = await browser.sign_in()
    await tab.page.evaluate(RENDER, texts)


@pytest.mark.long
async def test_a_hostile_message_is_shown_as_it_was_written(browser: Any) -> None:
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    tab = await browser.sign_in()
    await tab.page.evaluate("() => { window.alert = () => console.error('a script ran'); }")
    await tab.write(hostile)
    await tab.wait_for_text(f"You said: {hostile}")
    shown = await tab.page.locator(".item .cut").all_inner_texts()
    assert any(text.startswith("<img") for text in shown), json.dumps(shown)
