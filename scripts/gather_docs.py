#!/usr/bin/env python3
"""Puts the pages of the documentation together for MkDocs: gather_docs.py FOLDER

The folder then looks like the project: documents and what they link to lie at the same places, so that links hold.
Public headers, which are the reference of the C++ library, become pages.
"""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = [
    "flashoverlap.operations",
    "flashoverlap.host",
    "flashoverlap.gpu",
    "flashoverlap.torch.operations",
    "flashoverlap.torch.linear",
    "flashoverlap.torch.activation",
    "flashoverlap.torch.feed_forward",
    "flashoverlap.torch.experts",
    "flashoverlap.torch.norm",
    "flashoverlap.torch.ulysses",
    "flashoverlap.torch.parallelize",
    "flashoverlap.torch.rewrite",
]
LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")


def page_of(path: Path) -> Path:
    """Where a file of the project is found on the site."""
    return path.with_name(path.name + ".md") if path.suffix == ".hpp" else path


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("bench/**/*.md")]
    public_headers = sorted(ROOT.glob("include/flashoverlap/*.hpp"))
    linked: set[Path] = set(public_headers)
    for document in documents:

        def follow(match: re.Match[str]) -> str:
            text, link, place = match[1], Path(match[2]), match[3] or ""
            target = (document.parent / link).resolve()
            if target.is_dir() and not (target / "README.md").exists():
                return text  # the site has no page for it
            if target.is_dir():
                link, target = link / "README.md", target / "README.md"
            linked.add(target)
            return f"[{text}]({page_of(link).as_posix()}{place})"

        write(folder / document.relative_to(ROOT), LINK.sub(follow, document.read_text()))
    for path in linked - set(documents):
        place = folder / page_of(path.relative_to(ROOT))
        if path.suffix == ".hpp":
            write(place, f"# {path.name}\n\n```cpp\n{path.read_text()}```\n")
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    write(folder / "python-reference.md", "# Python\n\n" + "\n".join(f"::: {module}" for module in MODULES) + "\n")
    table = "".join(
        f"| [{path.name}](include/flashoverlap/{path.name}.md) | {summary(path)} |\n" for path in public_headers
    )
    write(folder / "cpp-reference.md", f"# C++\n\n| header | what it has |\n| --- | --- |\n{table}")


def summary(header: Path) -> str:
    """The first sentence of a header's comment."""
    lines = header.read_text().splitlines()
    comment = " ".join(line[4:] for line in lines[: next(i for i, line in enumerate(lines) if line[:3] != "///")])
    return comment.split(". ")[0].rstrip(".")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    main()
