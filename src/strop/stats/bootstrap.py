"""What bootstraps of few groups need: percentiles are too narrow there."""

from __future__ import annotations

import numpy as np

CONFIDENCE = 0.95


def tail(n: int, confidence: float = CONFIDENCE) -> float:
    """Return the lower percentile [1] to take of a bootstrap over `n` >= 2 units, for an interval of `confidence`.

    Percentiles of n units are too narrow by sqrt((n - 1) / n) and by the t quantile; both are put right, as
    T. Hesterberg, "What teachers should know about the bootstrap", The American Statistician 69 (2015) 371-386,
    advises for small n.
    """
    from scipy.stats import norm, t

    return float(norm.cdf(np.sqrt(n / (n - 1)) * t.ppf((1 - confidence) / 2, n - 1)))
