# SPDX-License-Identifier: Apache-2.0
"""Read pages strictly: every tag closed in order, closed to the network, and the cells of their tables."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

VOID_TAGS = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Tags with their attributes; texts, scripts and styles; and each row of a table by the names of its columns."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.rows: list[dict[str, str]] = []
        self.cell = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        named = {name: value or "" for name, value in attrs}
        self.tags.append((tag, named))
        if tag not in VOID_TAGS:
            self.open.append(tag)
        if tag == "th" and named.get("role") == "rowheader":
            self.rows.append({"Plan": ""})
            self.cell = "Plan"
        elif tag == "td" and "data-name" in named:
            self.cell = named["data-name"]
            self.rows[-1][self.cell] = ""
        elif tag == "small":
            self.cell = ""

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.cell = ""

    def handle_data(self, data):
        tag = self.open[-1] if self.open else ""
        if tag in ("script", "style"):
            {"script": self.scripts, "style": self.styles}[tag].append(data)
        elif data.strip():
            self.texts.append((tag, " ".join(data.split())))
            if self.cell:
                self.rows[-1][self.cell] += data.replace("\u00a0", " ").strip()

    @property
    def text(self) -> str:
        return " ".join(text for _, text in self.texts)

    @property
    def data(self):
        """What a frontier's script reads."""
        return json.loads(self.scripts[0])

    def having(self, name: str) -> list[str]:
        return [attrs[name] for _, attrs in self.tags if name in attrs]

    def named_rows(self) -> dict[str, dict[str, str]]:
        return {row["Plan"]: row for row in self.rows}


def plain(text: str) -> str:
    return Page(text).text.replace("\u00a0", " ")


def check_closed(text: str, *, scripts: int = 0) -> Page:
    """Check that a page is well formed, names nothing outside itself, and allows its own style and script alone."""
    page = Page(text)
    digest = [
        base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in (*page.styles, *page.scripts[1:])
    ]
    allowed = "".join(f"{kind}-src 'sha256-{one}'; " for kind, one in zip(("style", "script"), digest, strict=False))
    (policy,) = [attrs["content"] for _, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy == f"default-src 'none'; {allowed}base-uri 'none'; form-action 'none'"
    assert (len(page.styles), len(page.scripts)) == (1, scripts)
    ids = page.having("id")
    assert len(ids) == len(set(ids))
    forbidden = {
        "link",
        "img",
        "iframe",
        "object",
        "image",
        "use",
        "form",
        "base",
        *(["script"] if not scripts else []),
    }
    assert not forbidden & {tag for tag, _ in page.tags}
    assert not [name for name in ("src", "href", "xlink:href", "srcset", "style") if page.having(name)]
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert not re.search(r"https?://|url\((?!#)|@import|@font-face", re.sub(r"\n\s*//.*", "", text))
    assert not re.search(r"\b(nan|NaN|inf|Infinity|None|undefined)\b", page.text)
    assert "inf%" not in text
    charts = [attrs for tag, attrs in page.tags if tag == "svg" and attrs.get("class", "").startswith("chart")]
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in charts)
    return page
