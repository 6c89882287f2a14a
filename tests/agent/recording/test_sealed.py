from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ConfigError, MediaError
from agent.recording.sealed import Sealer, parse_key, unseal

KEY = bytes(range(32))


def sealed(*pieces: bytes, end: bool = True, salt: bytes | None = None) -> list[bytes]:
    sealer = Sealer(KEY, salt)
    return [sealer.begin(), *(sealer.push(piece) for piece in pieces), *([sealer.finish()] if end else [])]


@given(st.lists(st.binary(max_size=300)))
def test_what_was_sealed_comes_out(pieces: list[bytes]) -> None:
    assert unseal(b"".join(sealed(*pieces)), KEY) == (b"".join(pieces), True)


def test_a_piece_larger_than_a_chunk_is_cut_into_several() -> None:
    large = bytes(3_000_000)
    assert unseal(b"".join(sealed(large)), KEY) == (large, True)


@given(st.integers(min_value=25, max_value=200))
def test_a_file_that_was_cut_off_gives_its_whole_chunks_and_says_so(length: int) -> None:
    data = b"".join(sealed(b"a" * 40, b"b" * 40, b"c" * 40))
    plain, whole = unseal(data[: min(length, len(data) - 1)], KEY)
    assert not whole
    assert plain in (b"", b"a" * 40, b"a" * 40 + b"b" * 40, b"a" * 40 + b"b" * 40 + b"c" * 40)


def test_another_key_is_told() -> None:
    with pytest.raises(MediaError, match="REJOINDER_RECORDING__KEY"):
        unseal(b"".join(sealed(b"secret")), bytes(32))


def test_nothing_of_the_plain_text_is_in_the_file() -> None:
    assert b"secret words" not in b"".join(sealed(b"secret words"))


def test_two_files_of_one_content_have_nothing_in_common() -> None:
    first, second = (b"".join(sealed(b"the same words"))[25:] for _ in range(2))
    assert first[4:] != second[4:]


@pytest.mark.parametrize("order", [(0, 2, 1, 3, 4), (0, 1, 1, 2, 3, 4), (0, 1, 3, 4), (0, 1, 2, 4)])
def test_chunks_cannot_be_swapped_repeated_or_left_out(order: tuple[int, ...]) -> None:
    parts = sealed(b"one", b"two", b"three")
    with pytest.raises(MediaError):
        unseal(b"".join(parts[index] for index in order), KEY)


def test_chunks_of_another_file_are_refused() -> None:
    first, second = sealed(b"one", b"two"), sealed(b"uno", b"due")
    with pytest.raises(MediaError):
        unseal(b"".join([first[0], first[1], second[2], first[3]]), KEY)


def test_nothing_can_be_added() -> None:
    with pytest.raises(MediaError, match="added"):
        unseal(b"".join(sealed(b"one")) + b"more", KEY)


@given(st.data())
def test_a_changed_byte_never_goes_unnoticed(data: st.DataObject) -> None:
    whole = bytearray(b"".join(sealed(b"some plain words", b"and more", salt=bytes(16))))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    try:
        plain, complete = unseal(bytes(whole), KEY)
    except MediaError:
        return
    # A length that grew looks like a file that was cut off; what comes out is true all the same.
    assert not complete
    assert b"some plain wordsand more".startswith(plain)


@pytest.mark.parametrize("text", ["", "short", "!!!", base64.b64encode(bytes(31)).decode(), "x" * 44])
def test_a_key_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"recording\.key"):
        parse_key(text)


def test_a_key_is_read_from_base64() -> None:
    assert parse_key(base64.b64encode(KEY).decode() + "\n") == KEY
