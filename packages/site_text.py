"""Adds the text of the documentation to its site: each page as Markdown, and a list of the pages, `llms.txt`.

Run it after the site was built, with `make docs`.
"""

import re
import shutil
import sys
import tomllib
from pathlib import Path


def main(root: Path) -> None:
    """Write the files into the site of a checkout."""
    project = tomllib.loads((root / "zensical.toml").read_text(encoding="utf-8"))["project"]
    docs, site = root / project["docs_dir"], root / project["site_dir"]
    for page in docs.glob("*.md"):
        shutil.copy(page, site)
    rows = re.findall(r"^- (\[.+?\]\(\S+?\)): (.+)$", (docs / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}", "", "## Documentation", ""]
    lines += [f"- {link}: {text}" for link, text in rows]
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
