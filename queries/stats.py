"""Give DuckDB the statistics that reports need, as vectorised functions over SciPy.

Only reports use them: views stay pure SQL, so that any client can read the database. SciPy is
imported when a function is first called, a report without statistics does not wait for it.
Arguments that are NULL give NULL.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


def register(con: duckdb.DuckDBPyConnection) -> None:
    """Register all functions of this module on a connection that has not got them yet."""
    if con.execute("FROM duckdb_functions() WHERE function_name = 'bh_q'").fetchall():
        return
    # The names are taken by every version; the module of the enumerations has moved.
    options: Any = {"type": "arrow", "null_handling": "special"}
    for function, arity in _FUNCTIONS:
        call = _vectorised(function, arity)
        con.create_function(function.__name__, call, ["DOUBLE"] * arity, "DOUBLE", **options)
    con.create_function("bh_q", _bh_q, ["DOUBLE[]"], "DOUBLE[]", **options)


def fisher_greater(n11: Floats, n10: Floats, n01: Floats, n00: Floats) -> Floats:
    """One-sided Fisher exact test of a 2x2 table: P(X >= n11) with its margins fixed."""
    from scipy.stats import hypergeom

    return _once(
        lambda a, b, c, d: hypergeom.sf(a - 1, a + b + c + d, a + b, a + c), n11, n10, n01, n00
    )


def fisher_less(n11: Floats, n10: Floats, n01: Floats, n00: Floats) -> Floats:
    """The other tail: P(X <= n11)."""
    from scipy.stats import hypergeom

    return _once(
        lambda a, b, c, d: hypergeom.cdf(a, a + b + c + d, a + b, a + c), n11, n10, n01, n00
    )


def sign_test(ups: Floats, downs: Floats) -> Floats:
    """Two-sided sign test: Bin(ups + downs, 1/2); NULL where both are 0."""
    import numpy as np
    from scipy.stats import binom

    n = ups + downs
    p = np.minimum(1.0, 2 * binom.cdf(np.minimum(ups, downs), n, 0.5))
    return np.where(n > 0, p, np.nan)


def poisson_lo(count: Floats, alpha: Floats) -> Floats:
    """Exact (Garwood) lower limit of a Poisson mean at confidence 1 - alpha; 0 for no event."""
    import numpy as np
    from scipy.stats import chi2

    return np.where(count > 0, chi2.ppf(alpha / 2, 2 * np.maximum(count, 1)) / 2, 0.0)


def poisson_hi(count: Floats, alpha: Floats) -> Floats:
    """Exact (Garwood) upper limit of a Poisson mean at confidence 1 - alpha."""
    from scipy.stats import chi2

    return _array(chi2.isf(alpha / 2, 2 * count + 2) / 2)


def poisson_quantile(share: Floats, mean: Floats) -> Floats:
    """Smallest k with P(X <= k) >= share, X Poisson of this mean."""
    from scipy.stats import poisson

    return _array(poisson.ppf(share, mean))


def wilson_lo(count: Floats, n: Floats) -> Floats:
    """Lower limit of the 95 % Wilson score interval of count / n; NULL where n is 0."""
    return _wilson(count, n, -1)


def wilson_hi(count: Floats, n: Floats) -> Floats:
    """Upper limit of the 95 % Wilson score interval of count / n; NULL where n is 0."""
    return _wilson(count, n, 1)


def _wilson(count: Floats, n: Floats, side: int) -> Floats:
    import numpy as np
    from scipy.special import ndtri

    z = ndtri(0.975)
    trials = np.where(n > 0, n, np.nan)
    p = count / trials
    half = z * np.sqrt(p * (1 - p) / trials + (z / (2 * trials)) ** 2)
    return _array((p + z**2 / (2 * trials) + side * half) / (1 + z**2 / trials))


def _bh_q(lists: Any) -> Any:
    """Benjamini-Hochberg q of each list of p-values; the family is the list."""
    import pyarrow as pa
    from scipy.stats import false_discovery_control

    return pa.array(
        [
            None if ps is None else false_discovery_control(ps).tolist() if ps else []
            for ps in lists.to_pylist()
        ],
        pa.list_(pa.float64()),
    )


def _once(function: Callable[..., Any], *columns: Floats) -> Floats:
    """Apply a slow function to each distinct row of its arguments once."""
    import numpy as np

    rows, back = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return _array(function(*rows.T))[back.reshape(-1)]


def _array(values: Any) -> Floats:
    import numpy as np

    return np.asarray(values, dtype=np.float64)


def _vectorised(function: Callable[..., Floats], arity: int) -> Callable[..., Any]:
    def call(*columns: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        arrays = [column.to_numpy().astype(np.float64) for column in columns]
        with np.errstate(invalid="ignore"):
            values = function(*arrays)
        return pa.array(values, pa.float64(), mask=np.isnan(values))

    # DuckDB counts the parameters.
    names = [inspect.Parameter(f"x{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(arity)]
    call.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    return call


def binomial_le(count: Floats, n: Floats, share: Floats) -> Floats:
    """P(X <= count), X binomial of n trials with this share of hits."""
    from scipy.stats import binom

    return _array(binom.cdf(count, n, share))


def gamma_quantile(share: Floats, shape: Floats) -> Floats:
    """The x with P(X <= x) = share, X gamma of this shape and scale 1."""
    from scipy.special import gammaincinv

    return _array(gammaincinv(shape, share))


_FUNCTIONS: tuple[tuple[Callable[..., Floats], int], ...] = (
    (fisher_greater, 4),
    (fisher_less, 4),
    (sign_test, 2),
    (poisson_lo, 2),
    (poisson_hi, 2),
    (poisson_quantile, 2),
    (wilson_lo, 2),
    (wilson_hi, 2),
    (binomial_le, 3),
    (gamma_quantile, 2),
)
