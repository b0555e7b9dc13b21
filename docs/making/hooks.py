"""The hooks of MkDocs: they add the generated pages, and point links to the site's pages."""

from __future__ import annotations

from typing import Any

from mkdocs.structure.files import File

from docs.making import links, pages


def on_config(config: Any) -> Any:
    """Adds every method to the menu, below its family."""
    for entry in config.nav:
        if "Methods" in entry:
            entry["Methods"] += [
                {title: [f"methods/{name}.md" for name in names]}
                for title, names in pages.families().items()
            ]
    return config


def on_files(files: Any, config: Any) -> Any:
    for uri, text in pages.made().items():
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, content=text))
    for path in sorted((links.ROOT / links.BENCHMARKS).glob("*.png")):
        uri = f"benchmarks/{path.name}"
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return links.for_site(markdown, page.file.src_uri)
