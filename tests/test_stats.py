"""The statistics functions in DuckDB against published and independently computed values."""

from __future__ import annotations

import math
from fractions import Fraction

import duckdb
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from queries import stats


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    stats.register(con)
    return con


def value(con: duckdb.DuckDBPyConnection, expression: str) -> float | None:
    [(found,)] = con.sql(f"SELECT {expression}").fetchall()
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("fisher_greater(8, 2, 4, 186)", 3.894051e-10),
        ("fisher_greater(6, 4, 14, 176)", 7.64145e-05),
        ("fisher_greater(5, 5, 45, 145)", 0.07290812),
        ("fisher_greater(0, 10, 3, 187)", 1.0),
        ("fisher_greater(0, 0, 0, 5)", 1.0),
        ("sign_test(6, 0)", 0.03125),
        ("sign_test(3, 3)", 1.0),
        ("poisson_lo(1, 0.05)", 0.02531781),
        ("poisson_lo(0, 0.05)", 0.0),
        ("poisson_hi(0, 0.05)", 3.68887945),
        ("poisson_hi(9, 0.05)", 17.084803),
        ("poisson_quantile(0.999, 2.5)", 9.0),
        ("wilson_lo(1, 3)", 0.06149194),
        ("wilson_hi(1, 3)", 0.79234040),
        ("wilson_lo(0, 10)", 0.0),
    ],
)
def test_functions_reproduce_known_values(
    con: duckdb.DuckDBPyConnection, expression: str, expected: float
) -> None:
    assert value(con, expression) == pytest.approx(expected, rel=1e-6, abs=1e-15)


def test_null_and_undefined_give_null_beside_values(con: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT fisher_greater(x, 4, 14, 176) FROM (VALUES (6), (NULL)) AS t(x)"
    assert con.sql(query).fetchall() == [(pytest.approx(7.64145e-05, rel=1e-6),), (None,)]
    assert value(con, "sign_test(0, 0)") is None
    assert value(con, "wilson_hi(0, 0)") is None


def test_bh_q_adjusts_each_list_as_a_family(con: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT bh_q([3.894051e-10, 7.64145e-05, 0.07290812]), bh_q([]), bh_q(NULL)"
    assert con.sql(query).fetchall() == [
        (pytest.approx([1.168215e-09, 0.0001146217, 0.07290812], rel=1e-6), [], None)
    ]


cells = st.integers(min_value=0, max_value=12)


@given(cells, cells, cells, cells)
def test_fisher_tails_agree_with_exact_fractions(
    con: duckdb.DuckDBPyConnection, a: int, b: int, c: int, d: int
) -> None:
    assume(a + b + c + d)
    total = math.comb(a + b + c + d, a + c)

    def point(x: int) -> Fraction:
        rest = a + c - x
        ways = math.comb(a + b, x) * math.comb(c + d, rest) if rest >= 0 else 0
        return Fraction(ways, total)

    greater = float(sum(point(x) for x in range(a, a + b + 1)))
    less = float(sum(point(x) for x in range(a + 1)))
    assert value(con, f"fisher_greater({a}, {b}, {c}, {d})") == pytest.approx(greater, rel=1e-9)
    assert value(con, f"fisher_less({a}, {b}, {c}, {d})") == pytest.approx(less, rel=1e-9)
