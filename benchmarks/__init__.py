"""Benchmarks: ours against peers and baselines, as ratios measured in one run."""
