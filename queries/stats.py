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
    lists: tuple[tuple[Callable[..., list[float | None]], list[Any]], ...] = (
        (poisson_fit, ["DOUBLE[]"] * 3),
        (stratified, ["DOUBLE[][]"]),
        (logrank, ["DOUBLE[][]"] * 2),
    )
    for several, kinds in lists:
        con.create_function(
            several.__name__, _listed(several, len(kinds)), kinds, "DOUBLE[]", **options
        )


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


def poisson_ge(count: Floats, mean: Floats) -> Floats:
    """P(X >= count), X Poisson of this mean."""
    from scipy.stats import poisson

    return _array(poisson.sf(count - 1, mean))


def poisson_le(count: Floats, mean: Floats) -> Floats:
    """P(X <= count), X Poisson of this mean."""
    from scipy.stats import poisson

    return _array(poisson.cdf(count, mean))


def binomial_ge(count: Floats, n: Floats, share: Floats) -> Floats:
    """P(X >= count), X binomial of n trials with this share of hits."""
    from scipy.stats import binom

    return _array(binom.sf(count - 1, n, share))


def chi2_sf(x: Floats, df: Floats) -> Floats:
    """P(X >= x), X chi-square of df degrees of freedom; NULL where there are none."""
    import numpy as np
    from scipy.stats import chi2

    return np.where(df > 0, chi2.sf(x, np.maximum(df, 1)), np.nan)


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


def poisson_fit(counts: Floats, sizes: Floats, exposures: Floats) -> list[float | None]:
    """Regression counts ~ exp(a + b ln size + ln exposure), a row a bucket.

    Gives b, its standard error, the deviance of the model without b, and that model's degrees of
    freedom. b is NULL where the counts do not bound it (fewer than two sizes with events).
    """
    import numpy as np
    from scipy.special import xlogy

    rows = (exposures > 0) & (sizes > 0)
    k, e = counts[rows], exposures[rows]
    if len(k) < 2 or not k.sum():
        return [None, None, None, float(max(len(k) - 1, 0))]
    flat = e * k.sum() / e.sum()
    deviance = float(2 * (xlogy(k, k / flat) - (k - flat)).sum())
    found: list[float | None] = [None, None, deviance, float(len(k) - 1)]
    log_size = np.log(sizes[rows])
    if len(set(log_size[k > 0])) < 2:
        return found
    x = np.stack([np.ones_like(log_size), log_size - log_size.mean()], axis=1)
    beta = np.array([np.log(k.sum() / e.sum()), 0.0])
    for _ in range(50):  # Newton's steps; the log-likelihood is concave
        mean = e * np.exp(x @ beta)
        step = np.linalg.solve((x.T * mean) @ x, x.T @ (k - mean))
        beta += step
        if np.abs(step).max() < 1e-10:
            mean = e * np.exp(x @ beta)
            spread = np.linalg.inv((x.T * mean) @ x)[1, 1]
            return [float(beta[1]), float(np.sqrt(spread)), *found[2:]]
    return found


def stratified(tables: Floats) -> list[float | None]:
    """A 2x2 association over strata, each (n11, n10, n01, n00); strata without a margin drop out.

    Gives the Mantel-Haenszel odds ratio, the Cochran-Mantel-Haenszel chi-square with continuity
    correction (1 degree of freedom), Breslow and Day's chi-square of homogeneity, Woolf's (with
    1/2 added; NULL unless a cell is 0), and the number of strata that take part.
    """
    import numpy as np

    a, b, c, d = tables.reshape(-1, 4).T
    rows = (a + b > 0) & (c + d > 0) & (a + c > 0) & (b + d > 0)
    a, b, c, d = a[rows], b[rows], c[rows], d[rows]
    n, n1, m1 = a + b + c + d, a + b, a + c
    if not len(n):
        return [None, None, None, None, 0.0]
    variance = (n1 * (n - n1) * m1 * (n - m1) / (n**2 * (n - 1))).sum()
    cmh = (abs((a - n1 * m1 / n).sum()) - 0.5) ** 2 / variance
    over, under = (a * d / n).sum(), (b * c / n).sum()
    if not over or not under:
        return [0.0 if under else None, float(cmh), None, None, float(len(n))]
    odds = over / under
    # The a that gives a stratum this odds ratio: (1 - odds) a^2 + (n - n1 - m1 + odds (n1 + m1)) a
    # - odds n1 m1 = 0; this form of the root is stable at odds 1.
    half = n - n1 - m1 + odds * (n1 + m1)
    fitted = 2 * odds * n1 * m1 / (half + np.sqrt(half**2 + 4 * (1 - odds) * odds * n1 * m1))
    precision = 1 / fitted + 1 / (n1 - fitted) + 1 / (m1 - fitted) + 1 / (n - n1 - m1 + fitted)
    breslow_day = ((a - fitted) ** 2 * precision).sum()
    woolf = None
    if (np.stack([a, b, c, d]) == 0).any():
        weight = 1 / (1 / (a + 0.5) + 1 / (b + 0.5) + 1 / (c + 0.5) + 1 / (d + 0.5))
        log_odds = np.log((a + 0.5) * (d + 0.5) / ((b + 0.5) * (c + 0.5)))
        woolf = float((weight * (log_odds - (weight * log_odds).sum() / weight.sum()) ** 2).sum())
    return [float(odds), float(cmh), float(breslow_day), woolf, float(len(n))]


def logrank(at_risk: Floats, failed: Floats) -> list[float | None]:
    """Log-rank test of groups; both arguments have a row a time and a column a group.

    Gives chi-square and degrees of freedom, then the expected failures of each group.
    """
    import numpy as np

    n, d = at_risk.sum(axis=1), failed.sum(axis=1)
    share = at_risk / n[:, None]
    expected = (d[:, None] * share).sum(axis=0)
    weight = d * (n - d) / np.maximum(n - 1, 1)
    variance = np.diag((weight[:, None] * share).sum(axis=0)) - (share.T * weight) @ share
    gap = (failed.sum(axis=0) - expected)[1:]
    df = np.linalg.matrix_rank(variance[1:, 1:])
    if not df:
        return [None, 0.0, *map(float, expected)]
    chi2 = gap @ np.linalg.pinv(variance[1:, 1:], hermitian=True) @ gap
    return [float(chi2), float(df), *map(float, expected)]


def _listed(function: Callable[..., list[float | None]], arity: int) -> Callable[..., Any]:
    """A function of lists that gives a list; a NULL argument gives NULL."""

    def call(*columns: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array(
            [
                None if None in row else function(*(np.array(x, dtype=np.float64) for x in row))
                for row in rows
            ],
            pa.list_(pa.float64()),
        )

    return _named(call, arity)


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

    return _named(call, arity)


def _named(call: Callable[..., Any], arity: int) -> Callable[..., Any]:
    """The function with named parameters: DuckDB counts them."""
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
    (poisson_ge, 2),
    (poisson_le, 2),
    (binomial_ge, 3),
    (chi2_sf, 2),
    (wilson_lo, 2),
    (wilson_hi, 2),
    (binomial_le, 3),
    (gamma_quantile, 2),
)
