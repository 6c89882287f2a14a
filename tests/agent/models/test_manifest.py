"""The shipped manifest is complete, and a wrong one is refused with the entry's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.models.manifest import MANIFEST_FILE, load_manifest, parse_manifest

ENTRY = """
schema = 1
[[model]]
name = "one"
set = "en"
purpose = "p"
licence = "MIT"
author = "a"
alternative = "b"
carriers = [ { kind = "pypi", package = "pkg", version = "1.0", size = 10 } ]
files = [ { name = "f.bin", size = 4, sha256 = "SHA", carrier = "pkg", path = "pkg/f.bin" } ]
""".replace("SHA", "ab" * 32)


def test_every_promised_model_is_in_its_set() -> None:
    sets = {model.name: model.set for model in load_manifest().models}
    assert sets == {
        "moonshine-base-en": "en",
        "silero-vad": "en",
        "hibari-tts": "en",
        "smart-turn": "turn",
        "whisper-base": "zh",
        "kokoro-82m": "zh",
    }


def test_engines_find_the_file_names_they_open() -> None:
    files = {model.name: {file.name for file in model.files} for model in load_manifest().models}
    assert files["moonshine-base-en"] == {"encoder.onnx", "cross.onnx", "decoder.onnx", "tokens.bin"}
    assert files["silero-vad"] == {"silero_vad.onnx"}
    assert files["smart-turn"] == {"smart-turn.onnx"}
    assert files["whisper-base"] == {"model.bin", "config.json", "tokenizer.json", "vocabulary.json"}
    voices = {name.split("/")[1][:2] for name in files["kokoro-82m"] if name.startswith("voices/")}
    assert files["kokoro-82m"] > {"kokoro.onnx", "vocab.json"}
    assert voices == {"zf", "zm", "jf", "jm", "af", "am", "bf", "bm"}


def test_every_model_says_whose_it_is_and_where_else_to_get_it() -> None:
    for model in load_manifest().models:
        assert model.licence
        assert model.author
        assert model.alternative
        assert model.package or model.carriers


def test_kokoro_voices_have_the_size_of_style_vectors() -> None:
    for file in load_manifest().model("kokoro-82m").files:
        if file.name.startswith("voices/"):
            assert file.size % (256 * 4) == 0, file.name


def test_the_manifest_names_no_host() -> None:
    text = MANIFEST_FILE.read_text(encoding="utf-8")
    assert "://" not in text
    assert ".org" not in text


def test_the_licences_are_in_the_documentation() -> None:
    lines = (Path(__file__).parents[3] / "docs" / "dependencies.md").read_text(encoding="utf-8").splitlines()
    for model in load_manifest().models:
        rows = [line for line in lines if line.startswith(f"| `{model.name}` | {model.set} |")]
        assert len(rows) == 1, model.name
        assert f"| {model.licence} |" in rows[0]
        for carrier in model.carriers:
            assert any(f"`{carrier.package}`" in line and carrier.version in line for line in lines), carrier.package


def test_a_set_and_a_model_can_both_be_asked_for() -> None:
    manifest = load_manifest()
    assert [model.name for model in manifest.select(["zh"])] == ["whisper-base", "kokoro-82m"]
    assert [model.name for model in manifest.select(["smart-turn", "turn"])] == ["smart-turn"]


def test_an_unknown_set_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'de' is unknown; expected a set \(en, turn, zh\)"):
        load_manifest().select(["en", "de"])


def test_an_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'gpt' is unknown; the models are: moonshine-base-en"):
        load_manifest().model("gpt")


def test_the_sample_entry_is_good() -> None:
    assert parse_manifest(ENTRY, "m.toml").model("one").size_bytes == 4


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"f.bin"', '"../f.bin"', "files.0.name"),
        ('"f.bin"', '"/etc/f.bin"', "files.0.name"),
        ("abab", "xyab", "sha256"),
        ("size = 4", "size = 0", "files.0.size"),
        ('package = "pkg"', 'package = "--index=x"', "carriers.0.package"),
        ('version = "1.0"', 'version = "-1.0"', "carriers.0.version"),
        ('carrier = "pkg"', 'carrier = "other"', "unknown carriers"),
        (', path = "pkg/f.bin"', "", "give one of"),
        ('kind = "pypi"', 'kind = "ftp"', "carriers.0.kind"),
        ('licence = "MIT"', "", "licence"),
        ('licence = "MIT"', 'licence = "MIT"\nlicense = "MIT"', "license"),
        ("schema = 1", "schema = 2", "schema"),
        ("schema = 1", "schema = ", "not valid TOML"),
        ('name = "one"', 'name = "en"', "unique"),
    ],
)
def test_a_wrong_entry_is_named(old: str, new: str, complaint: str) -> None:
    text = ENTRY.replace(old, new)
    assert text != ENTRY
    with pytest.raises(ConfigError) as caught:
        parse_manifest(text, "m.toml")
    assert str(caught.value).startswith("m.toml")
    assert complaint in str(caught.value)


def test_the_digest_follows_the_checksums() -> None:
    one = parse_manifest(ENTRY, "m.toml").model("one")
    other = parse_manifest(ENTRY.replace("abab", "cdab"), "m.toml").model("one")
    assert one.digest != other.digest
