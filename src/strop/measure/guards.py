"""Guards against numbers that mean nothing: outputs that go wrong under load, answers that come from memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from strop.check import join
from strop.compare import Outputs, compare, problem_of
from strop.errors import StageFailure
from strop.measure.paired import Arm, Block
from strop.measure.split import lead_in_calls

SAME_INPUT = 0.01  # relative difference of two answers to one input: sums in another order stay far below
LOOKS = 3  # instances in which inputs that were not seen before are timed
MOST_TWINS = 4
TWINS_S = 0.1  # of calls that one look at an arm may take
LOW = 0.25  # quantile of the ratios that is judged: bursts of other processes make many an honest call slow, never most
FROM_MEMORY = 1.5  # times as long for an unseen input: cold caches cost a few percent, a model's work more than this


class OutputGuard:
    """Holds the outputs of timed calls against the reference's, and against earlier ones for the same batch.

    The last call of each timed block is looked at: which batch it is, is random, and the calls before it are what
    the session has to bear.

    Args:
        min_cosine: floor of agreement with the reference (`strop.compare.problem_of`) [1].
    """

    def __init__(self, min_cosine: float) -> None:
        self._min_cosine = min_cosine
        self._first: dict[str, dict[int, Outputs]] = {}

    def look(self, batch: int, blocks: Mapping[str, Block]) -> None:
        """Look at what blocks of both arms ended with.

        Raises:
            StageFailure: `wrong_output`: an arm answers a batch otherwise than it did before.
        """
        for name, block in blocks.items():
            if block.outputs is None:
                continue
            known = self._first.setdefault(name, {})
            if batch not in known:
                known[batch] = block.outputs
            for difference in compare(known[batch], block.outputs):
                if difference.problem or difference.relative_l2 > SAME_INPUT:
                    reason = difference.problem or (
                        f"output '{difference.output}' differs by {difference.relative_l2:.3g} of its norm"
                    )
                    raise StageFailure(
                        "wrong_output", f"while it was timed: the {name} answers one input in two ways: {reason}"
                    )

    def judge(self) -> None:
        """Compare all that was seen of both arms.

        Raises:
            StageFailure: `wrong_output`: the variant's outputs are not the reference's.
        """
        theirs, ours = (self._first.get(name, {}) for name in ("reference", "variant"))
        both = sorted(theirs.keys() & ours.keys())
        if not both:
            return
        for difference in compare(join([theirs[at] for at in both]), join([ours[at] for at in both])):
            if reason := problem_of(difference, self._min_cosine):
                raise StageFailure("wrong_output", f"while it was timed: {reason}")


class MemoryGuard:
    """Times inputs that a session has never seen beside others of the same shape that it has.

    A session that keeps its answers is fast on what it has seen, and its speedup is worth nothing.

    Args:
        twins: pairs of batches of one shape: one that is called in blocks, and one that is not.
        seed: of the choice among them.
    """

    def __init__(self, twins: Sequence[tuple[int, int]], seed: int) -> None:
        self._twins = list(twins)
        self._rng = np.random.default_rng(seed)
        self._looks = 0
        self._times: dict[str, list[float]] = {}  # as long as for seen inputs, for each unseen one

    def look(self, arms: Mapping[str, Arm], call_s: float) -> None:
        """Time unseen inputs on both arms' open sessions.

        Args:
            arms: by name.
            call_s: usual time of a call, for how many are called [s].
        """
        if self._looks >= LOOKS or not self._twins:
            return
        self._looks += 1
        count = int(np.clip(TWINS_S / (3 * call_s), 1, min(MOST_TWINS, len(self._twins))))
        picked = [self._twins[at] for at in self._rng.permutation(len(self._twins))[:count]]
        for name, arm in arms.items():
            known = arm.block([seen for seen, _ in picked])
            lead_in = lead_in_calls(float(np.median(known.latency_s)))  # it is made untimed, of a block's first calls
            seen_only = [picked[at % count][0] for at in range(lead_in)]
            trios = [batch for seen, unseen in picked for batch in (seen, unseen, seen)]
            latency_s = arm.block(seen_only + trios).latency_s[lead_in:]
            before_s, unseen_s, after_s = latency_s.reshape(-1, 3).T
            self._times.setdefault(name, []).extend(unseen_s / np.maximum(before_s, after_s))

    def judge(self) -> None:
        """Judge all looks: of a single one, a burst of another process may be the reason.

        Raises:
            StageFailure: `wrong_output`: an arm needs much longer for inputs that it has not seen.
        """
        for name, found in self._times.items():
            times = float(np.quantile(found, LOW, method="lower"))
            if times > FROM_MEMORY:
                raise StageFailure(
                    "wrong_output",
                    f"the {name} answers from memory: an input that it has not seen takes {times:.1f} times as long "
                    "as one of the same shape that it has",
                )
