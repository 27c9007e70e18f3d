"""Browsers without scripts for the tests of pages: they keep cookies, follow links and post forms as a person would."""

from __future__ import annotations

import httpx
from selectolax.lexbor import LexborHTMLParser, LexborNode

from tests.running_hub import RunningHub


class Browser:
    """Somebody in front of a hub's pages; `page` is what they see, `response` how it came."""

    def __init__(self, hub: RunningHub, key: str | None = None) -> None:
        self.client = httpx.Client(base_url=hub.url, timeout=30, trust_env=False, headers={"Accept": "text/html"})
        self.response = httpx.Response(0)
        self.page = LexborHTMLParser("")
        if key is not None:
            self.open("/dashboard/signin")
            assert self.submit("/dashboard/signin", api_key=key) == 200

    def open(self, path: str) -> int:
        """Go to a page, by redirects too, and return its status."""
        return self._see(self.client.get(path, follow_redirects=True))

    def submit(self, action: str, **fields: str | list[str]) -> int:
        """Fill in the form of this page that is sent to `action`, send it, and return the status of what follows."""
        form = self.one(f'form[action="{action}"]')
        filled = {**_values(form), **fields}
        send = self.client.post if form.attributes.get("method") == "post" else self.client.get
        named = {"data": filled} if send == self.client.post else {"params": filled}
        return self._see(send(action, follow_redirects=True, **named))  # type: ignore[arg-type]

    def one(self, selector: str) -> LexborNode:
        """Return the one element that fits."""
        (found,) = self.page.css(selector)
        return found

    def texts(self, selector: str) -> list[str]:
        """Return the words of all elements that fit."""
        return [" ".join(node.text().split()) for node in self.page.css(selector)]

    def links(self, selector: str = "a") -> dict[str, str]:
        """Return where the links that fit lead, by their words."""
        found = self.page.css(selector)
        return {" ".join(node.text().split()): node.attributes.get("href") or "" for node in found}

    @property
    def words(self) -> str:
        """All words of the page's content."""
        return " ".join(self.one("main").text(separator=" ").split())

    def _see(self, response: httpx.Response) -> int:
        self.response, self.page = response, LexborHTMLParser(response.text)
        return response.status_code


def _values(form: LexborNode) -> dict[str, str | list[str]]:
    """Return what a form holds before anybody touches it; boxes that are not ticked are left out."""
    values: dict[str, str | list[str]] = {}
    for field in form.css("input[name]"):
        of = field.attributes
        if of.get("type") not in ("checkbox", "radio") or "checked" in of:
            values[str(of["name"])] = of.get("value") or ""
    for choice in form.css("select[name]"):
        chosen = choice.css_first("option[selected]") or choice.css_first("option")
        values[str(choice.attributes["name"])] = chosen.attributes.get("value") or "" if chosen else ""
    return values
