"""Turns what an author wrote about an environment into HTML that cannot do anything but be read.

Two walls: Markdown is rendered by markdown-it, and whatever comes out of it is cut down to a short list of elements and
attributes by nh3 (ammonia). Images become links, so that reading a page tells no other server about it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from urllib.parse import quote, unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup

from hub_server.web.source_code import TOKEN_CLASSES, highlighted

MAX_CHARACTERS = 100_000
# Within a paragraph, text that was made to take long takes time by the square of its length.
_MAX_MARKED_UP, _MAX_BRACKETS = 8_000, 300
_SCHEMES = {"http", "https", "mailto"}
_ID_PREFIX = "readme-"
# A page has one h1 and gives a README an h2.
_FIRST_LEVEL, _LAST_LEVEL = 3, 6
_TAGS = {
    "a", "abbr", "b", "blockquote", "br", "code", "dd", "del", "details", "dl", "dt", "em", "h3", "h4", "h5", "h6",
    "hr", "i", "kbd", "li", "ol", "p", "pre", "q", "s", "span", "strong", "sub", "summary", "sup", "table", "tbody",
    "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {
    "a": {"href", "title"},
    "abbr": {"title"},
    "ol": {"start"},
    "pre": {"tabindex"},
    **{f"h{level}": {"id"} for level in range(_FIRST_LEVEL, _LAST_LEVEL + 1)},
}
_CLASSES = {"span": TOKEN_CLASSES, "td": {"centred", "right"}, "th": {"centred", "right"}}
# What may be wider than its place is scrolled, by keyboard too.
_SCROLLED = {"table": {"tabindex": "0"}}
_ALIGNED = {"text-align:center": "centred", "text-align:right": "right"}


@lru_cache(maxsize=128)
def render_readme(text: str, content_type: str | None, files_url: str | None) -> Markup:
    """Return a README as safe HTML; one that is not Markdown as it stands.

    `files_url` is the page under which the files of the same version are shown: relative links lead there.
    """
    if len(text) > MAX_CHARACTERS:
        text = text[:MAX_CHARACTERS] + "\n\n… (cut off here)"
    kind = (content_type or "text/markdown").partition(";")[0].strip().lower()
    if kind != "text/markdown":
        return Markup('<pre class="text" tabindex="0">{}</pre>').format(text)
    tokens = _MARKDOWN.parse(text)
    _fit_into_page(tokens)
    html = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    return Markup(_cut_down(html, files_url))  # noqa: S704  what nh3 returns holds only what stands in the lists above


def _fit_into_page(tokens: Sequence[Token]) -> None:
    """Move headings below the page's own and give them ids; say alignments by class, since styles are not allowed."""
    seen: dict[str, int] = {}
    for position, token in enumerate(tokens):
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1:]) + _FIRST_LEVEL - 1, _LAST_LEVEL)}"
        if token.type == "heading_open":
            slug = _slug(tokens[position + 1].content)
            seen[slug] = seen.get(slug, -1) + 1
            token.attrSet("id", _ID_PREFIX + slug + (f"-{seen[slug]}" if seen[slug] else ""))
        if (style := token.attrs.pop("style", None)) in _ALIGNED:
            token.attrSet("class", _ALIGNED[str(style)])


def _slug(heading: str) -> str:
    """Return the name by which links in a README refer to a heading, as forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")[:80] or "section"


def _cut_down(html: str, files_url: str | None) -> str:
    def keep(tag: str, attribute: str, value: str) -> str | None:
        if attribute == "href":
            return _link(value, files_url)
        if attribute == "id":
            return value if value.startswith(_ID_PREFIX) else None
        return value

    return nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        set_tag_attribute_values=_SCROLLED,
        attribute_filter=keep,
        url_schemes=_SCHEMES,
        link_rel="nofollow noopener noreferrer ugc",
    )


def _link(target: str, files_url: str | None) -> str | None:
    """Return where a link of a README leads; None for one that leads nowhere from here."""
    if target.startswith("#"):
        return f"#{_ID_PREFIX}{target[1:]}"
    try:
        parts = urlsplit(target)
    except ValueError:
        return None
    if parts.scheme:
        return target if parts.scheme.lower() in _SCHEMES else None
    path = unquote(parts.path)
    if parts.netloc or not path or path.startswith(("/", "\\")) or files_url is None:
        return None
    kept: list[str] = []
    for part in path.split("/"):
        if part == ".." and not kept:
            return None
        if part == "..":
            kept.pop()
        elif part not in ("", "."):
            kept.append(part)
    line = f"#{parts.fragment}" if re.fullmatch(r"L[0-9]{1,6}", parts.fragment) else ""
    return f"{files_url}/{quote('/'.join(kept))}{line}"


def _inline(state: StateCore) -> None:
    """Read the marks within each paragraph; those of a monstrous one stay as they were written."""
    for token in state.tokens:
        if token.type != "inline":
            continue
        if len(token.content) > _MAX_MARKED_UP or token.content.count("[") > _MAX_BRACKETS:
            token.children = [Token("text", "", 0, content=token.content)]
            continue
        token.children = token.children or []
        state.md.inline.parse(token.content, state.md, state.env, token.children)


def _image(_self: RendererHTML, tokens: Sequence[Token], position: int, _options: OptionsDict, _env: EnvType) -> str:
    """Write an image as a link to it; inside a link, as its words."""
    token = tokens[position]
    words = escape(token.content or "image")
    open_links = sum({"link_open": 1, "link_close": -1}.get(before.type, 0) for before in tokens[:position])
    if open_links:
        return words
    return f'<a href="{escape(str(token.attrs.get("src", "")))}">Image: {words}</a>'


def _fence(_self: RendererHTML, tokens: Sequence[Token], position: int, _options: OptionsDict, _env: EnvType) -> str:
    token = tokens[position]
    language = token.info.split()[0] if token.info.split() else ""
    return f'<pre tabindex="0"><code>{highlighted(token.content, language=language)}</code></pre>\n'


def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("gfm-like", {"html": True, "typographer": False})
    assert markdown.linkify is not None
    # `env.py` and `README.md` are files here, not hosts in Paraguay and Moldova.
    markdown.linkify.set({"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False})
    markdown.core.ruler.at("inline", _inline)
    markdown.add_render_rule("image", _image)
    markdown.add_render_rule("fence", _fence)
    markdown.add_render_rule("code_block", _fence)
    return markdown


_MARKDOWN = _markdown()
