"""Tell which lines are one message with other values in it; hides Drain, its tree and its bounds.

Only reports use it, as `log_templates(lines, similarity)`: what two lines have in common is asked
of all of them together, so it can be no column of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

# Templates of one call that new lines are compared with, the last used ones: each comparison takes
# a microsecond, and hostile lines are like none of them. Alike lines are neighbours when sorted.
_COMPARED = 256
# Words by which the tree keeps lines apart: of an exception, its class.
_KEPT_WORDS = 1


def register(con: duckdb.DuckDBPyConnection) -> None:
    """Register `log_templates` on a connection that has not got it yet."""
    if con.execute("FROM duckdb_functions() WHERE function_name = 'log_templates'").fetchall():
        return
    # The names are taken by every version; the module of the enumerations has moved.
    options: Any = {"type": "arrow", "null_handling": "special"}
    con.create_function(
        "log_templates", _log_templates, ["VARCHAR[]", "DOUBLE"], "VARCHAR[]", **options
    )


def mine(lines: Sequence[str], similarity: float) -> list[str]:
    """The template of each line, in their order: its words, `<*>` where others like it differ.

    Lines are alike that have as many words, the same first one, and this share of all in common.
    The order of the lines does not matter. He et al., Drain, ICWS'17.
    """
    from drain3.drain import Drain

    miner = Drain(
        depth=_KEPT_WORDS + 3,
        sim_th=similarity,
        max_children=len(lines) + 2,  # at fewer, a first word would be lost by its place in order
        max_clusters=_COMPARED,
        parametrize_numeric_tokens=False,
    )
    found = {line: miner.add_log_message(line)[0] for line in sorted(set(lines))}
    return [found[line].get_template() for line in lines]


def _log_templates(lists: Any, similarities: Any) -> Any:
    import pyarrow as pa

    return pa.array(
        [
            None if lines is None or similarity is None else mine(lines, similarity)
            for lines, similarity in zip(lists.to_pylist(), similarities.to_pylist(), strict=True)
        ],
        pa.list_(pa.string()),
    )
