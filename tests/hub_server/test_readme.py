"""READMEs as HTML: what authors mean is shown, what could do anything is gone."""

from __future__ import annotations

import re
import time

import pytest
from selectolax.lexbor import LexborHTMLParser

from hub_server.web.readme import render_readme

FILES = "/dashboard/environments/lab/task/versions/1.0/files"


def rendered(text: str, *, files_url: str | None = FILES) -> LexborHTMLParser:
    return LexborHTMLParser(str(render_readme(text, "text/markdown", files_url)))


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<svg onload=alert(1)><a xlink:href='javascript:alert(1)'>x</a></svg>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        "[x](vbscript:msgbox)",
        "<a href='java\nscript:alert(1)'>x</a>",
        "<a href='&#106;avascript:alert(1)'>x</a>",
        "![x](javascript:alert(1))",
        '![x](" onerror="alert(1))',
        "<p style='position:fixed;inset:0'>x</p>",
        "<iframe src='https://evil.example'></iframe>",
        "<form action='https://evil.example'><input name=api_key type=password><button>Sign in</button></form>",
        "<meta http-equiv=refresh content='0;url=https://evil.example'>",
        "<base href='https://evil.example/'>",
        "<link rel=stylesheet href='https://evil.example/x.css'>",
        "<style>body{display:none}</style>",
        "<details open ontoggle=alert(1)><summary>x</summary></details>",
        "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
        "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
        '```"><script>alert(1)</script>\nx\n```',
        "```python <img src=x onerror=alert(1)>\n'<script>'\n```",
        "<!--><script>alert(1)</script>-->",
        "<div class='skip' id='main'>x</div>",
    ],
)
def test_nothing_that_could_act_comes_through(hostile: str) -> None:
    page = rendered(hostile)
    allowed = {
        "a", "b", "blockquote", "body", "br", "code", "dd", "del", "details", "dl", "dt", "em", "h3", "h4", "h5", "h6",
        "head", "hr", "html", "i", "kbd", "li", "ol", "p", "pre", "s", "span", "strong", "sub", "summary", "sup",
        "table", "tbody", "td", "th", "thead", "tr", "ul", "-text",
    }  # fmt: skip
    for node in page.root.traverse() if page.root else ():
        assert node.tag in allowed
        for name, value in node.attributes.items():
            assert name in ("href", "rel", "class", "id", "title", "start", "tabindex"), (name, value)
            if name == "href":
                assert re.match(r"https?://|mailto:|#readme-|/dashboard/environments/lab/task/", value or ""), value
            if name == "class":
                assert re.match(r"tok-|centred$|right$", value or ""), value
            if name == "id":
                assert (value or "").startswith("readme-")


def test_headings_begin_below_those_of_the_page_and_can_be_linked_to() -> None:
    page = rendered("# Task\n\n## How to run it?\n\n## How to run it?\n\n###### Deep\n\n[go](#how-to-run-it)")
    assert [node.tag for node in page.css("h3, h4, h6")] == ["h3", "h4", "h4", "h6"]
    assert [node.attributes.get("id") for node in page.css("h4")] == ["readme-how-to-run-it", "readme-how-to-run-it-1"]
    link = page.css_first("a")
    assert link is not None
    assert link.attributes["href"] == "#readme-how-to-run-it"


@pytest.mark.parametrize(
    ("target", "leads_to"),
    [
        ("docs/notes.md", f"{FILES}/docs/notes.md"),
        ("./task.py#L12", f"{FILES}/task.py#L12"),
        ("docs/../a b.txt", None),  # Markdown ends a target at a space
        ("docs/../a%20b.txt", f"{FILES}/a%20b.txt"),
        ("../../../../signout", None),
        ("/dashboard/signin", None),
        ("//evil.example/x", None),
        ("\\\\evil.example/x", None),
        ("https://example.org/x", "https://example.org/x"),
        ("mailto:me@example.org", "mailto:me@example.org"),
        ("ftp://example.org/x", None),
    ],
)
def test_links_lead_to_files_of_the_version_or_to_the_web(target: str, leads_to: str | None) -> None:
    link = rendered(f"[x]({target})").css_first("a")
    assert (link.attributes.get("href") if link else None) == leads_to


def test_relative_links_lead_nowhere_where_no_files_are_shown() -> None:
    link = rendered("[x](docs/notes.md)", files_url=None).css_first("a")
    assert link is not None
    assert "href" not in link.attributes


def test_images_become_links_and_words_inside_links() -> None:
    page = rendered(
        "![a curve](https://example.org/curve.png) [![build](https://ci.example/b.svg)](https://ci.example)"
    )
    assert not page.css("img")
    assert [(link.text(), link.attributes["href"]) for link in page.css("a")] == [
        ("Image: a curve", "https://example.org/curve.png"),
        ("build", "https://ci.example"),
    ]


def test_file_names_are_not_taken_for_hosts() -> None:
    assert not rendered("Look at env.py, README.md and me@example.org").css("a")
    assert [link.attributes["href"] for link in rendered("see https://example.org/x").css("a")] == [
        "https://example.org/x"
    ]


def test_code_is_coloured_where_its_language_is_known() -> None:
    page = rendered("```python\ndef f():\n    return '<b>'\n```\n\n```unheard\ndef f()\n```")
    known, unknown = page.css("pre")
    assert known.text() == "def f():\n    return '<b>'\n"
    assert [span.text() for span in known.css(".tok-keyword")] == ["def", "return"]
    assert not unknown.css("span")


def test_tables_keep_their_alignment_without_styles() -> None:
    page = rendered("| a | b |\n|:-:|--:|\n| 1 | 2 |")
    assert [cell.attributes.get("class") for cell in page.css("td")] == ["centred", "right"]


@pytest.mark.parametrize("content_type", ["text/x-rst", "text/plain; charset=UTF-8", "text/html"])
def test_what_is_not_markdown_is_shown_as_it_stands(content_type: str) -> None:
    html = str(render_readme("Title\n=====\n<b>x</b>", content_type, None))
    assert html == '<pre class="text" tabindex="0">Title\n=====\n&lt;b&gt;x&lt;/b&gt;</pre>'


@pytest.mark.parametrize(
    "text",
    ["[" * 50_000, "*a_" * 40_000, "> " * 20_000 + "x", "![" * 40_000, "|a" * 20_000 + "\n" + "|-" * 20_000,
     "<" * 90_000, "x" * 2_000_000, ("![" * 3_900 + "\n\n") * 12, "- " * 10_000 + "x", "`" * 70_001 + "a"],
    ids=["brackets", "emphasis", "quotes", "images", "columns", "tags", "length", "many", "lists", "ticks"],
)  # fmt: skip
def test_a_readme_made_to_take_long_does_not(text: str) -> None:
    began = time.monotonic()
    render_readme(text, "text/markdown", FILES)
    assert time.monotonic() - began < 5
