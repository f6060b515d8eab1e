"""Packages that are installed into a directory of a test's own."""

from pathlib import Path


def package(directory: Path, name: str, version: str, files: dict[str, str], entry_points: str = "") -> str:
    """Install a package into a directory that comes first on the path."""
    for file, content in files.items():
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(content, "utf-8")
    info = directory / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "utf-8")
    (info / "entry_points.txt").write_text(entry_points, "utf-8")
    return str(directory)
