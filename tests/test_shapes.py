from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matcher.catalogue import BUILT_IN, load
from matcher.mask import Masker
from matcher.shapes import shape, takes_any_digit, widened
from tests.planted import corpus


def test_shape_is_the_text_with_its_digits_put_to_naught() -> None:
    assert shape(b"rank 17 of 256: 3.5e-9 \xc2\xb9") == b"rank 00 of 000: 0.0e-0 \xc2\xb9"


@pytest.mark.parametrize(
    "pattern",
    [r"rank \d+", r"[0-9a-f]{8}", r"\w{3,12}x", r"[^0-9]a", r"\[\d{1,3}\]", r"(?P<x>[\w.]+) \x1b"],
)
def test_pattern_that_takes_any_digit(pattern: str) -> None:
    assert takes_any_digit(pattern)
    assert widened(pattern) == pattern


@pytest.mark.parametrize(
    ("pattern", "wide"),
    [(r"errno 28\b", r"errno 00\b"), (r"r8_[a-z0-9]{32}", r"r0_[a-z0-9]{32}")],
)
def test_digit_of_its_own_is_widened_and_a_quantifier_is_not(pattern: str, wide: str) -> None:
    assert not takes_any_digit(pattern)
    assert widened(pattern) == wide


@pytest.mark.parametrize("pattern", [r"[0-5]\d", r"[^1]x", r"(a)\1", r"(?P<a>\d)(?P=a)", r"\x31"])
def test_pattern_that_tells_digits_apart_elsewhere_has_no_wider_one(pattern: str) -> None:
    assert not takes_any_digit(pattern)
    with pytest.raises(ValueError, match="no shape stands for it"):
        widened(pattern)


def test_signatures_that_take_any_digit_capture_in_the_same_places() -> None:
    """Of each example whose digits are replaced: the same spans, or no match in either."""
    checked = 0
    for signature in load(BUILT_IN).signatures:
        if not takes_any_digit(signature.pattern):
            continue
        search = re.compile(signature.pattern.encode()).search
        for line in signature.match:
            text = line.encode()
            first = search(text)
            for digit in b"059":
                other = search(re.sub(rb"\d", b"%c" % digit, text))
                assert (first and first.regs) == (other and other.regs), (signature.id, line)
                checked += 1
    assert checked > 1000


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.permutations(b"0123456789"))
def test_no_shape_that_a_secret_has_is_spared(seed: int, digits: list[int]) -> None:
    """Nor that of a text in which its digits are others."""
    masker = Masker("strict")
    for planted in corpus(seed):
        line = planted.line.encode()
        other = line.translate(bytes.maketrans(b"0123456789", bytes(digits)))
        for text in (line, other):
            assert not (masker.mask(text)[1] and masker.spares(shape(text))), text


def test_shape_of_a_plain_line_is_spared() -> None:
    assert Masker().spares(shape(b"RuntimeError: CUDA error: rank 17, 0x7f0d12, step 1200"))
