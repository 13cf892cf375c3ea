"""From rows of the summary to a decision: limits and their verdicts, ties, the one to ship, and the words for it."""

from strop.decide.choice import check_question, decide
from strop.decide.limits import Evidence
from strop.decide.noise import noise_floor
from strop.decide.words import control, losers, sentence

__all__ = ["Evidence", "check_question", "control", "decide", "losers", "noise_floor", "sentence"]
