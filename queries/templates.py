"""Tell which lines are one message with other values in it; hides Drain, its tree and its bounds.

Only reports use it, as `log_templates(lines, similarity)`: what two lines have in common is asked
of all of them together, so it can be no column of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

# Lines that are like no other make a template each, and each line is compared with all of its
# length and first word. Both are bounded, in words, not in seconds: 50 ns a word.
MOST_TEMPLATES = 5000
MOST_COMPARED = 20_000_000
_KEPT_WORDS = 1  # by which the tree keeps lines apart: of an exception, its class


def register(con: duckdb.DuckDBPyConnection) -> None:
    """Register `log_templates` on a connection that has not got it yet."""
    if con.execute("FROM duckdb_functions() WHERE function_name = 'log_templates'").fetchall():
        return
    # The names are taken by every version; the module of the enumerations has moved.
    options: Any = {"type": "arrow", "null_handling": "special"}
    con.create_function(
        "log_templates", _log_templates, ["VARCHAR[]", "DOUBLE"], "VARCHAR[]", **options
    )


def mine(lines: Sequence[str], similarity: float) -> list[str | None]:
    """The template of each line: its words, `<*>` where others like it have another one.

    Lines are alike that have as many words, the same first one, and `similarity`, 0 to 1, of all
    in common. Give the most important first: None is for those that the bounds leave untold. He et
    al., Drain, ICWS'17.
    """
    from drain3.drain import Drain

    miner = Drain(
        depth=_KEPT_WORDS + 3,
        sim_th=similarity,
        max_children=len(lines) + 2,  # with fewer, a first word would be lost by its place
        parametrize_numeric_tokens=False,
    )
    found = []
    compared = 0
    for line in lines:
        words = miner.get_content_as_tokens(line)
        leaf = miner.root_node.key_to_child_node.get(str(len(words)))
        if leaf is not None and len(words) > _KEPT_WORDS:
            leaf = leaf.key_to_child_node.get(words[0])
        rivals = 0 if leaf is None else len(leaf.cluster_ids)
        compared += rivals * len(words)
        bounded = compared > MOST_COMPARED or (
            len(miner.clusters) >= MOST_TEMPLATES
            and (not rivals or miner.tree_search(miner.root_node, words, similarity, False) is None)
        )
        found.append(None if bounded else miner.add_log_message(line)[0])
    return [None if cluster is None else cluster.get_template() for cluster in found]


def _log_templates(lists: Any, similarities: Any) -> Any:
    import pyarrow as pa

    return pa.array(
        [
            None if lines is None or similarity is None else mine(lines, similarity)
            for lines, similarity in zip(lists.to_pylist(), similarities.to_pylist(), strict=True)
        ],
        pa.list_(pa.string()),
    )
