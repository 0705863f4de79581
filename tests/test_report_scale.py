"""Pairs within clusters and sizes: the worked example, confounding, and what chance makes of it."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pytest

from queries import stats
from tests.database import Event, ask, database, run
from tests.pairing import Stratum, logs

# r04_strata.csv: sizes up to 8 and from 65 to 512 GPUs in two clusters.
STRATA: list[Stratum] = [
    ("c1", 8, (1, 9, 9, 181)),
    ("c1", 512, (8, 12, 32, 48)),
    ("c2", 4, (0, 5, 5, 140)),
    ("c2", 128, (9, 11, 36, 44)),
]
PAIR = ("disk-full", "straggler")


def pooled(rows: list[dict[str, Any]]) -> dict[str, Any]:
    [row] = [row for row in rows if row["row"] == "pooled"]
    return row


def test_strata_reproduce_the_worked_example() -> None:
    with database(*logs(STRATA)) as con:
        rows = ask(con, "co-occurrence-by-scale", buckets="8,64,512")
    whole = pooled(rows)
    assert (whole["a"], whole["b"], whole["cluster"], whole["bucket"]) == (*PAIR, None, None)
    assert [whole[k] for k in ("n_units", "n11", "n10", "n01", "n00")] == [550, 18, 37, 82, 413]
    assert [whole[k] for k in ("lift", "fisher_p", "crude_or")] == pytest.approx(
        [1.8, 0.00448901, 2.450231], rel=1e-6
    )
    assert [whole[k] for k in ("mh_or", "cmh_chi2", "cmh_p")] == pytest.approx(
        [1.039817, 0.003272173, 0.9543836], rel=1e-6
    )
    assert [whole["bd_chi2"], whole["bd_p"]] == pytest.approx([0.6964219, 0.8740452], rel=1e-6)
    assert (whole["strata"], whole["simpson_flag"], whole["verdict"]) == (4, True, "confounded")
    listed = [(r["cluster"], r["bucket"], r["n_units"], r["verdict"]) for r in rows[1:]]
    assert listed == [
        ("c1", "1-8", 200, "not_distinguishable"),
        ("c1", "65-512", 100, "not_distinguishable"),
        ("c2", "1-8", 150, "not_distinguishable"),
        ("c2", "65-512", 100, "not_distinguishable"),
    ]
    assert [r["lift"] for r in rows[1:]] == [2.0, 1.0, 0.0, 1.0]
    assert [r["fisher_p"] for r in rows[1:]] == pytest.approx(
        [0.4085479, 0.5965976, 1.0, 0.5970418], rel=1e-6
    )
    # Benjamini-Hochberg by hand: min(.4085 * 4, .5970 * 4 / 3), ..., 1.
    assert [r["q"] for r in rows[1:]] == pytest.approx([0.7960557] * 2 + [1.0, 0.7960557], rel=1e-6)


def test_a_confounded_pair_is_flagged_and_not_reported() -> None:
    with database(*logs(STRATA)) as con:
        [row] = ask(con, "co-occurrence", buckets="8,64,512")
        one_size = ask(con, "co-occurrence", cluster="c1", buckets="4096")
    assert row["q"] == pytest.approx(0.00448901, rel=1e-6)
    assert row["mh_or"] == pytest.approx(1.039817, rel=1e-6)
    assert row["cmh_p"] == pytest.approx(0.9543836, rel=1e-6)
    assert (row["simpson_flag"], row["verdict"]) == (True, "confounded")
    # Taken as one size there is nothing to compare within.
    assert (one_size[0]["simpson_flag"], one_size[0]["verdict"]) == (False, "associated")


def test_an_association_within_every_stratum_is_reported() -> None:
    strata: list[Stratum] = [("c1", 8, (8, 8, 10, 174)), ("c1", 512, (20, 10, 15, 55))]
    with database(*logs(strata)) as con:
        whole = pooled(ask(con, "co-occurrence-by-scale"))
        [row] = ask(con, "co-occurrence")
    assert (whole["verdict"], row["verdict"]) == ("associated", "associated")
    assert whole["cmh_q"] < 1e-6
    assert whole["bd_p"] > 0.05


def test_strata_that_disagree_are_told() -> None:
    strata: list[Stratum] = [("c1", 8, (30, 5, 5, 100)), ("c1", 512, (12, 18, 22, 30))]
    with database(*logs(strata)) as con:
        whole = pooled(ask(con, "co-occurrence-by-scale"))
    assert whole["verdict"] == "heterogeneous"
    assert whole["bd_p"] < 1e-6


def test_a_stratum_without_a_margin_is_listed_but_takes_no_part() -> None:
    strata: list[Stratum] = [("c1", 8, (8, 4, 6, 182)), ("c2", 8, (0, 0, 5, 30))]
    with database(*logs(strata)) as con:
        rows = ask(con, "co-occurrence-by-scale")
    assert pooled(rows)["strata"] == 1
    assert pooled(rows)["mh_or"] == pytest.approx(8 * 182 / (4 * 6))
    assert [(r["cluster"], r["n_units"], r["verdict"]) for r in rows[1:]] == [
        ("c1", 200, "associated"),
        ("c2", 35, "too_rare"),
    ]


def test_rare_pairs_have_no_strata_and_unknown_sizes_are_a_stratum() -> None:
    strata: list[Stratum] = [("c1", None, (2, 2, 3, 20))]
    with database(*logs(strata)) as con:
        [only] = ask(con, "co-occurrence-by-scale")
    assert (only["row"], only["verdict"], only["q"], only["mh_or"]) == (
        "pooled", "too_rare", None, None,
    )  # fmt: skip
    with database(*logs([("c1", None, (6, 2, 3, 20))])) as con:
        assert [r["bucket"] for r in ask(con, "co-occurrence-by-scale")] == [None, "unknown"]


def test_sizes_are_merged_where_strata_would_be_too_many() -> None:
    strata: list[Stratum] = [(f"c{n}", gpus, (1, 0, 0, 0)) for n in range(101) for gpus in (8, 512)]
    with database(*logs(strata)) as con:
        rows = ask(con, "co-occurrence-by-scale")
    assert {r["bucket"] for r in rows[1:]} == {"all"}
    assert [r["n_units"] for r in rows] == [202] + [2] * 101


def test_two_views_of_one_line_are_an_alias_in_strata_too() -> None:
    both = (Event("disk-full", t=0, line=3), Event("straggler", t=0, line=3))
    files = [run(f"r{n}/log", *(both if n < 8 else ())) for n in range(40)]
    with database(*files) as con:
        assert pooled(ask(con, "co-occurrence-by-scale"))["verdict"] == "alias"


def test_retries_of_one_run_do_not_make_a_pair() -> None:
    both = (Event("disk-full", t=0), Event("straggler", t=60))
    loop = [run(f"loop/{n}/log", *both, attempt=n) for n in range(20)]
    rest = [run(f"r{n}/log", *((both[0],) if n < 8 else (both[1],) if n < 16 else ()))
            for n in range(100)]  # fmt: skip
    with database(*loop, *rest) as con:
        [by_attempt] = ask(con, "co-occurrence")
        [by_run] = ask(con, "co-occurrence", unit="run")
    assert (by_attempt["n11"], by_attempt["run_n11"]) == (20, 1)
    assert by_attempt["q"] < 1e-6
    assert by_attempt["run_fisher_p"] == pytest.approx(by_run["fisher_p"])
    assert by_attempt["run_q"] > 0.05
    assert (by_attempt["verdict"], by_run["verdict"]) == ("not_distinguishable",) * 2
    assert (by_run["run_n11"], by_run["run_q"]) == (None, None)


def planted(seed: int) -> list[Stratum]:
    """Two failures that large jobs have more of, and that know nothing of each other."""
    draw = np.random.default_rng(seed)
    strata: list[Stratum] = []
    for gpus, attempts, share in ((8, 200, 0.03), (512, 120, 0.4)):
        a, b = draw.random((2, attempts)) < share
        cells = [int(both.sum()) for both in (a & b, a & ~b, ~a & b, ~a & ~b)]
        strata.append((f"s{seed:02}", gpus, cells))
    return strata


def test_confounding_by_scale_is_recognised_in_every_seed() -> None:
    with database(*(log for seed in range(20) for log in logs(planted(seed)))) as con:
        found = [ask(con, "co-occurrence", cluster=f"s{seed:02}")[0] for seed in range(20)]
    assert sum(row["q"] < 0.05 for row in found) >= 15  # or there is nothing to recognise
    assert [row["verdict"] for row in found].count("associated") <= 1
    for row in found:
        if row["q"] < 0.05 and row["lift"] >= 1.5 and row["verdict"] != "associated":
            assert (row["verdict"], row["simpson_flag"]) == ("confounded", True)


def test_where_nothing_is_planted_nothing_is_found() -> None:
    names = ("disk-full", "nan-loss", "straggler", "gpu-xid", "wandb-init-hang", "disk-slow")
    files = []
    for seed in range(20):
        draw = np.random.default_rng(1000 + seed).random((200, len(names)))
        for n, row in enumerate(draw):
            hits = [Event(name, t=100 * i) for i, name in enumerate(names) if row[i] < 0.1]
            files.append(run(f"{seed:02}-{n}/log", *hits, cluster=f"s{seed:02}"))
    with database(*files) as con:
        found = [
            [row["q"] for row in ask(con, "co-occurrence", cluster=f"s{seed:02}")]
            for seed in range(20)
        ]
    assert {len(qs) for qs in found} == {15}
    assert sum(min(q for q in qs if q is not None) < 0.05 for qs in found) <= 1


# -- the test behind it ------------------------------------------------------------------------


def stratified(*tables: list[float]) -> list[float | None]:
    con = duckdb.connect()
    stats.register(con)
    [(found,)] = con.execute("SELECT stratified($1::DOUBLE[][])", [list(tables)]).fetchall()
    return found


def test_strata_without_anything_to_compare_give_null() -> None:
    assert stratified([0, 0, 5, 20]) == [None, None, None, None, 0.0]
    assert stratified() == [None, None, None, None, 0.0]
    # No unit with one only: the odds ratio has no bound.
    assert stratified([5, 0, 0, 5])[0] is None
    assert stratified([0, 5, 5, 0])[0] == 0.0


def test_breslow_and_day_holds_at_an_odds_ratio_of_one() -> None:
    # Equal odds in both strata: homogeneous to the last digit.
    odds, _, breslow_day, woolf, strata = stratified([4, 8, 4, 8], [6, 6, 6, 6])
    assert (odds, breslow_day, woolf, strata) == (1.0, pytest.approx(0.0, abs=1e-20), None, 2.0)
