"""`ro-crate-metadata.json`: what the files of the site's folder are, by whom, under which licence (RO-Crate 1.1).

https://www.researchobject.org/ro-crate/specification/1.1/
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.files import dump_json, read_json, sha256_file
from harness.report.evidence import Evidence

OURS = {"@id": "https://spdx.org/licenses/Apache-2.0"}
KINDS = {  # by the file's ending
    ".csv": "text/csv",
    ".json": "application/json",
    ".parquet": "application/vnd.apache.parquet",
    ".bib": "application/x-bibtex",
    ".xz": "application/x-xz",
    ".html": "text/html",
    ".js": "text/javascript",
}
SAYS = {  # of the files that are read by themselves
    "index.html": "The overview; every page is reached from it.",
    "downloads/measurements.csv": "Every measurement, one a row.",
    "downloads/measurements.parquet": "The same, typed.",
    "downloads/measurements.json": "The same, as records.",
    "downloads/runs.json": "Every training with its settings, curve and status.",
    "downloads/verdicts.json": "Every claim's verdict, with the numbers behind it.",
    "downloads/bibliography.bib": "The papers whose claims are tested.",
}
FOLDERS = {
    "downloads/tables/": "The papers, the leaderboard and the claims, as CSV, Markdown and LaTeX.",
    "papers/": "A page a paper.",
    "suites/": "A page a suite.",
    "runs/": "A page a run.",
    "raw/": "What models wrote.",
    "logs/": "The ends of the logs of trainings.",
}


def write(evidence: Evidence, out: Path) -> None:
    """Describe the folder `out` in itself; all but `downloads/site.zip`, which is made of the whole of it."""
    files = [
        _file(out, path, text) for name, text in SAYS.items() for path in (name, f"{name}.xz") if (out / path).is_file()
    ]
    folders = [
        {"@id": name, "@type": "Dataset", "description": text, "license": OURS}
        for name, text in FOLDERS.items()
        if (out / name).is_dir()
    ]
    sources = [_source(place, source) for place, source in enumerate(evidence.manifest.get("sources", []))]
    papers = [
        {"@id": f"https://arxiv.org/abs/{paper.arxiv}", "@type": "ScholarlyArticle", "name": paper.title}
        for paper in evidence.papers.values()
    ]
    parts = [*files, *folders, *_vendored(out)]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Attest: claims of {len(papers)} papers on attention, tested",
        "description": "Measurements, verdicts and pages made by Attest.",
        "license": OURS,
        "hasPart": [{"@id": part["@id"]} for part in parts],
        "isBasedOn": [{"@id": source["@id"]} for source in sources],
        "citation": [{"@id": paper["@id"]} for paper in papers],
    }
    if evidence.history:
        root["datePublished"] = evidence.history[-1]["time"].partition(" ")[0]
    about = {
        "@id": "ro-crate-metadata.json",
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
    }
    licence = {**OURS, "@type": "CreativeWork", "name": "Apache License 2.0"}
    graph = [about, root, licence, *parts, *sources, *papers]
    text = dump_json({"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph})
    (out / "ro-crate-metadata.json").write_text(text, encoding="utf-8", newline="\n")


def _file(out: Path, name: str, text: str) -> dict[str, Any]:
    path = out / name
    return {
        "@id": name,
        "@type": "File",
        "description": text,
        "encodingFormat": KINDS[path.suffix],
        "contentSize": str(path.stat().st_size),
        "sha256": sha256_file(path),
        "license": OURS,
    }


def _source(place: int, source: dict[str, Any]) -> dict[str, Any]:
    """A text that models were trained on or suites asked about; its licence is its own."""
    return {
        "@id": f"#source-{place}",
        "@type": "Dataset",
        "name": source.get("name", "text"),
        "version": str(source.get("version", "")),
        "license": source.get("licence", ""),
        "creditText": source.get("credit", ""),
    }


def _vendored(out: Path) -> list[dict[str, Any]]:
    """Third parties' files, as vendor.json names them; the texts of their licences lie beside it."""
    folder = out / "assets" / "vendor"
    return [
        {
            **_file(out, f"assets/vendor/{record['file']}", record["name"]),
            "version": record["version"],
            "license": record["licence"],
            "isBasedOn": record["source"],
        }
        for record in (read_json(folder / "vendor.json") if (folder / "vendor.json").is_file() else [])
    ]
