"""What several test modules share: small catalogues, and where the public data lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from matcher.catalogue import Catalogue, Failure, Signature

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"


def shared(*parts: str) -> Path:
    """A path of the shared data, or a visible skip where it is absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs {'/'.join(('shared', *parts))}")
    return path


def signature(id_: str, pattern: str, role: str = "cause", **keys: object) -> Signature:
    """A signature of the failure `f-<id>` with placeholder examples."""
    return Signature(
        id=id_,
        failure=f"f-{id_}",
        role=role,
        pattern=pattern,
        match=("m",),
        no_match=("n",),
        **keys,
    )  # type: ignore[arg-type]


def catalogue(*signatures: Signature) -> Catalogue:
    """A catalogue with one failure a signature."""
    return Catalogue(
        tuple(
            Failure(
                id=s.failure,
                title=s.failure,
                component="test",
                category="data",
                severity="high",
                mechanism="m",
                confirm=("c",),
                fix=("f",),
                signatures=(s,),
            )
            for s in signatures
        )
    )
