"""The scripts of benchmarks/ run from end to end; what they find is for people to read."""

import re
import subprocess
import sys

import pytest
from project import ROOT

HARNESSES = [
    "bare loop",
    "strop's loop, same session",
    "LoadGen, same session",
    "strop's worker, own process",
    "bare loop, own process",
]


def cells(line):
    return re.split(r"\s{2,}", line)


@pytest.fixture(scope="module")
def parts():
    """Return what the overhead benchmark prints: the table of harnesses, that of block lengths, the requirements."""
    command = [sys.executable, str(ROOT / "benchmarks" / "overhead.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return [part.splitlines() for part in done.stdout.strip().split("\n\n")]


def test_overhead_sends_both_sessions_through_every_harness(parts):
    head, *lines = map(cells, parts[0])
    assert head == ["session", "harness", "p50 us", "over the bare loop us [95 %]", "% [95 %]"]
    assert [line[:2] for line in lines] == [[name, row] for name in ("20 us", "5 ms") for row in HARNESSES]
    assert all(float(line[2]) > 0 for line in lines)
    for line in lines:
        assert len(line) == (3 if line[1] == "bare loop" else 5), "the bare loop is what others are compared with"


def test_overhead_intervals_hold_their_middles(parts):
    for line in map(cells, parts[0][1:]):
        for cell in line[3:]:
            middle, low, high = (float(number) for number in re.findall(r"[+-][\d.]+", cell))
            assert low <= middle <= high


def test_overhead_tells_the_length_of_a_block_and_the_place_of_a_call(parts):
    head, *lines = map(cells, parts[1])
    assert head[:3] == ["session", "calls a block", "p50 us"]
    assert head[5:] == ["mean %", "call 1", "call 2", "call 3", "call 5", "call 10"]
    assert [line[:2] for line in lines] == [[name, length] for name in ("20 us", "5 ms") for length in ("1", "3")]
    assert [len(line) for line in lines] == [7, 9, 7, 9], "a block of three calls has no fifth"


def test_overhead_answers_each_requirement(parts):
    answers = [line.rpartition(": ")[2] for line in parts[2]]
    assert len(answers) == 8
    assert set(answers) <= {"yes", "no", "undecided"}
