"""Short literals crowd the literal matcher: which signatures have nothing longer is fixed."""

from matcher.catalogue import load
from matcher.check import longest_literal

# Hyperscan looks at eight bytes at most; a shorter literal takes a bucket from all others.
SHORT = set(
    """
    edac-corrected edac-uncorrected epoch-batch-step generic-step-loss gpfs-daemon-line
    kernel-segfault kernel-trap lightning-epoch-bar-full lightning-step df-row
    machine-check-corrected mmengine-step nanochat-step nanogpt-step nvrx-rank-score
    torchelastic-failure-host torchelastic-failure-time tqdm-step
    """.split()
)


def test_no_further_signature_lacks_a_literal_of_eight_bytes() -> None:
    signatures = load().signatures
    assert {s.id for s in signatures if longest_literal(s.pattern) < 8} == SHORT
