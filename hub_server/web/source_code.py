"""Colours source code on the server: spans with a few classes that the stylesheet knows, light and dark."""

from __future__ import annotations

from functools import lru_cache
from html import escape

from markupsafe import Markup
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token, _TokenType
from pygments.util import ClassNotFound

MAX_COLOURED = 200_000
# Few and plain ones: what is coloured was written by strangers, and a lexer is a pile of regular expressions.
_LEXERS = {
    "python": "python", "py": "python", "toml": "toml", "json": "json", "yaml": "yaml", "yml": "yaml", "ini": "ini",
    "cfg": "ini", "bash": "bash", "sh": "bash", "shell": "bash", "diff": "diff", "jsonl": "json",
}  # fmt: skip
_CLASS_OF = {
    Comment: "tok-comment", Keyword: "tok-keyword", String: "tok-string", Number: "tok-number",
    Name.Function: "tok-name", Name.Class: "tok-name", Name.Decorator: "tok-name", Name.Tag: "tok-keyword",
    Operator.Word: "tok-keyword", Token.Generic.Deleted: "tok-keyword", Token.Generic.Inserted: "tok-string",
}  # fmt: skip
TOKEN_CLASSES = set(_CLASS_OF.values())


def highlighted(code: str, *, language: str) -> Markup:
    """Return `code` as HTML, coloured where the language is a known one; `language` may be the end of a file name."""
    lexer = _lexer(language.lower())
    if lexer is None or len(code) > MAX_COLOURED:
        return Markup(escape(code))  # noqa: S704  escaped right here
    pieces = []
    for kind, text in lexer.get_tokens(code):
        name = _class_of(kind)
        pieces.append(f'<span class="{name}">{escape(text)}</span>' if name else escape(text))
    return Markup("".join(pieces))  # noqa: S704  each piece is escaped


def numbered_lines(code: str, *, language: str) -> list[Markup]:
    """Return the lines of `code`, each as HTML that stands by itself."""
    lines = str(highlighted(code.removesuffix("\n"), language=language)).split("\n")
    whole = []
    open_tag = ""
    for line in lines:
        started = open_tag + line
        open_tag = _left_open(started)
        whole.append(Markup(started + ("</span>" if open_tag else "")))  # noqa: S704  escaped before
    return whole


def _left_open(line: str) -> str:
    """Return the opening tag of a span that a line does not close: texts over several lines have one."""
    last = line.rfind("<span")
    return line[last : line.index(">", last) + 1] if last > line.rfind("</span>") else ""


@lru_cache(maxsize=32)
def _lexer(language: str) -> Lexer | None:
    if language not in _LEXERS:
        return None
    try:
        return get_lexer_by_name(_LEXERS[language], stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _class_of(kind: _TokenType) -> str | None:
    while kind not in _CLASS_OF and kind.parent is not None:
        kind = kind.parent
    return _CLASS_OF.get(kind)
