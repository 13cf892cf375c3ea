"""Intervals are true on machines that drift, burst and have moods, with luck of sessions and processes, and tails.

Everything is simulated, from calls upwards, through the coordinator with its warm-up and its stopping rule.
"""

import numpy as np
import pytest
from simulated import Machine, bursts, compared, drifting, moods

from strop.measure.paired import Rules

MACHINES = {
    "calm": lambda _: Machine(),
    "drift": lambda _: Machine(drifting()),
    "bursts": lambda seed: Machine(bursts(seed)),
    "bimodal": lambda seed: Machine(moods(seed)),
}
LUCK = {
    "sessions of 2 %": {"luck": 0.02},
    "processes as well": {"luck": 0.02, "process_luck": 0.01},
    "heavy tails": {"luck": 0.02, "tail": 0.02},
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("luck", LUCK)
def test_ninety_five_per_cent_intervals_hold_the_truth_in_nine_of_ten_and_more(machine, luck):
    held, errors, widths = 0, [], []
    for seed in range(120):
        rules = Rules(6, min_time_s=2, max_time_s=30, min_calls=100, max_calls=10**6, precision=0.02, seed=seed)
        done, _ = compared(MACHINES[machine](seed), 1.5, rules, seed + 1000, noise=0.03, **LUCK[luck])
        held += done.ratio.low <= 1.5 <= done.ratio.high
        errors.append(np.log(done.ratio.ratio / 1.5))
        widths.append(done.ratio.half_width)
    assert held / 120 >= 0.9
    assert np.median(np.abs(errors)) < 0.03
    assert np.median(widths) < 0.1
