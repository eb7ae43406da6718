# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Holds the pages to the tree and to each other: README.md, the other pages at the top, and docs/.

Every relative link leads to a file, and to a heading of it. Every page that a page or a comment names exists, and so do
the files and functions that a page names. Lines are at most 120 characters long, in tables and code blocks 130. Sentences
do not begin as riddles. An index names every page of docs/.

Arguments: the root of the sources. All findings are printed, not the first.
"""
import io
import itertools
import pathlib
import re
import sys
import tokenize
import unicodedata

LINE, LONGEST = 120, 130
TOP = "llp|mpa|ddp|rdmap|provider|mpi_shim|tests|scripts|docs|cmake"
SOURCES = {".h", ".c", ".cc", ".py", ".lua", ".cmake"}

LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
PAGE = re.compile(r"(?<![\w./-])[\w./-]*\w\.md\b")
# `llp/tcp.{h,cc}`, `tests/wire/*_test.cc`: a file below a folder at the top.
FILE = re.compile(rf"`((?:{TOP})/[\w./{{}},*-]+(?:\.\w+|\}}))`")
# `rdmap/endpoint_tx.cc`: `transmit()`, `start_next()`
FUNCTIONS = re.compile(rf"`((?:{TOP})/[\w./]+\.(?:h|cc|c))`: (`[\w:~]+\(\)`(?:, `[\w:~]+\(\)`)*)")
# A sentence that has to be read twice: its subject is a clause, or its condition stands upside down. The sentence that
# a page begins with names what the page is about, and may do so.
RIDDLE = re.compile(r"(?<=[.;:] )(?:Who|Whoever|Should|What) [a-z][^?:]*?(?=[.;](?: |$))")
# Pages that programs write.
WRITTEN = re.compile(r"/|build/|(?:bench|datagram|engine|figure4|loss|memory|peers(?:_in_short)?|NAME)\.md$")


class Page:
    """A page, line by line, with what each line is."""

    def __init__(self, path):
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.lines = []  # (number, kind, text); kind: text, heading, table, code
        fence, blank = None, True
        for number, line in enumerate(self.text.splitlines(), 1):
            mark = re.match(r"\s*(```+|~~~+)", line)
            if mark and (fence is None or mark[1].startswith(fence)):
                fence = mark[1] if fence is None else None
                kind = "code"
            elif fence is not None:
                kind = "code"
            elif line.startswith("    ") and (blank or (self.lines and self.lines[-1][1] == "code")):
                kind = "code"
            elif line.startswith("#"):
                kind = "heading"
            else:
                kind = "table" if line.lstrip().startswith("|") else "text"
            blank = not line.strip() or kind in ("heading", "code")
            self.lines.append((number, kind, line))

    def prose(self):
        """(number, text): paragraphs, items of lists, rows of tables, headings."""
        rows = [(number, line) for number, kind, line in self.lines if kind in ("table", "heading")]
        return sorted([*rows, *self.paragraphs()])

    def anchors(self):
        """The names of the headings, as GitHub and GitLab make them."""
        found, counts = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", self.text)), {}
        for _, kind, line in self.lines:
            if kind != "heading":
                continue
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()).replace("`", "").lower()
            slug = "".join(c for c in words if c in " -_" or unicodedata.category(c)[0] in "LN").replace(" ", "-")
            counts[slug] = counts.get(slug, -1) + 1
            found.add(slug if counts[slug] == 0 else f"{slug}-{counts[slug]}")
        return found

    def paragraphs(self):
        """(number of the first line, text) of each run of lines of text; items of a list are apart."""
        run = []
        for number, kind, line in [*self.lines, (0, "heading", "")]:
            starts = re.match(r"\s*(?:[*+-]|\d+\.) ", line)
            if run and (kind != "text" or not line.strip() or starts):
                yield run[0][0], " ".join(text for _, text in run)
                run = []
            if kind == "text" and line.strip():
                run.append((number, re.sub(r"^\s*(?:[*+-]|\d+\.) ", "", line).strip()))


def expanded(path):
    """llp/tcp.{h,cc}: both."""
    parts = [part.split(",") for part in re.findall(r"\{([^}]*)\}", path)]
    frame = re.sub(r"\{[^}]*\}", "{}", path)
    return [frame.format(*choice) for choice in itertools.product(*parts)]


def exists(root, path):
    return any(root.glob(path)) if "*" in path else (root / path).exists()


def there(root, path, name):
    """Whether a file, which names a page, means one that exists: by its path from the root, or beside it."""
    return (root / name).exists() or (path.parent / name).exists() or WRITTEN.match(name) is not None


def links(root, page, pages):
    for number, line in page.prose():
        for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if re.match(r"\w+:", target):
                continue
            name, _, anchor = target.partition("#")
            to = (page.path.parent / name).resolve() if name else page.path
            if not to.is_relative_to(root) or not to.exists():
                yield number, f"no such file: {target}"
            elif anchor and to.suffix == ".md" and anchor not in (pages.get(to) or Page(to)).anchors():
                yield number, f"no such heading: {target}"


def named(root, page):
    """Pages, files and functions in the words of the page."""
    for number, line in page.prose():
        for name in PAGE.findall(LINK.sub("", line)):
            if not there(root, page.path, name):
                yield number, f"no such page: {name}"
        for path in FILE.findall(line):
            for one in expanded(path):
                if not exists(root, one) and not one.endswith(".md"):
                    yield number, f"no such file: {one}"
        for path, functions in FUNCTIONS.findall(line):
            code = (root / path).read_text(encoding="utf-8") if (root / path).is_file() else None
            for function in re.findall(r"(?:\w+::)*(~?\w+)\(\)", functions):
                if code is not None and not re.search(rf"\b{function}\(", code):
                    yield number, f"{path} has no {function}()"


def lengths(page):
    for number, kind, line in page.lines:
        most = LONGEST if kind in ("table", "code") else LINE
        if len(line) > most:
            yield number, f"{len(line)} characters, at most {most}"


def riddles(page):
    for index, (number, text) in enumerate(page.paragraphs()):
        for sentence in RIDDLE.findall(text if index == 0 else f". {text}"):
            yield number, f"hard to read: {sentence[:60]}"


def unlisted(root, pages):
    """Pages of docs/ that no index names: docs/README.md, or the README.md of their folder."""
    named_by = {path: {(path.parent / target.partition("#")[0]).resolve() for target in LINK.findall(pages[path].text)}
                for path in pages if path.name == "README.md"}
    for path in pages:
        indices = {path.parent / "README.md", root / "docs" / "README.md"} - {path}
        if path.is_relative_to(root / "docs") and path != root / "docs" / "README.md":
            if not any(path in named_by.get(index, ()) for index in indices):
                yield path


# --- comments ---------------------------------------------------------------------------------------------------------


def python_comments(text):
    """Comments, and the strings that begin a file, a class or a function."""
    before = None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
        elif token.type == tokenize.STRING and before in (None, tokenize.INDENT, tokenize.NEWLINE):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line
        if token.type not in (tokenize.NL, tokenize.COMMENT, tokenize.ENCODING):
            before = token.type


def other_comments(text, mark):
    in_block = False
    for number, line in enumerate(text.splitlines(), 1):
        bare = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)
        if mark == "//" and not in_block and "/*" in bare:
            in_block = True
            bare = "//" + bare.split("/*", 1)[1]
        elif in_block:
            bare = "//" + bare
        if in_block and "*/" in bare:
            in_block = False
        if mark in bare:
            yield number, bare.split(mark, 1)[1]


def comments(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return python_comments(text)
    return other_comments(text, {".lua": "--", ".cmake": "#", ".txt": "#"}.get(path.suffix, "//"))


def citations(root, path):
    """A comment cites a page by its path from the root, or one that lies beside it."""
    for number, line in comments(path):
        for name in PAGE.findall(line):
            if not there(root, path, name):
                yield number, f"no such page: {name}"


def sources(root):
    for top in [*TOP.split("|"), "."]:
        for path in sorted((root / top).glob("*" if top == "." else "**/*")):
            if path.is_file() and (path.suffix in SOURCES or path.name == "CMakeLists.txt"):
                yield path


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]}
    count = 0
    for path, page in pages.items():
        for number, what in sorted({*links(root, page, pages), *named(root, page), *lengths(page), *riddles(page)}):
            print(f"{path.relative_to(root)}:{number}: {what}")
            count += 1
    for path in unlisted(root, pages):
        print(f"{path.relative_to(root)}: not in docs/README.md")
        count += 1
    for path in sources(root):
        for number, what in citations(root, path):
            print(f"{path.relative_to(root)}:{number}: {what}")
            count += 1
    print(f"{len(pages)} pages, {count} problems")
    return 1 if count or len(pages) < 15 else 0


if __name__ == "__main__":
    sys.exit(main())
