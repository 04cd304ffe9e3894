"""Owns the words of the suite: what a row of the table says, what a case ends in, and how results are counted."""

from collections.abc import Callable
from dataclasses import dataclass, field

PASS, DIFFERENCE, NOT_OFFERED, FAILURE = "pass", "difference", "not offered", "failure"


@dataclass(frozen=True)
class Difference:
    """An expected difference: why, and for which samples (a function of input, args, kwargs as torch gives them)."""

    reason: str
    when: Callable = lambda input, *args, **kwargs: True
    # Part of the case that differs: a "call" raises or gives other values; a "backward" gives other gradients only.
    where: str = "call"


@dataclass(frozen=True)
class Row:
    """One operator of torch's sample database and how agtape is called for it.

    `call` takes the arguments that torch's operator takes, with agtape tensors in the tensors' places.
    """

    op: str
    offered: str
    call: Callable
    differs: tuple = ()
    # Samples that use an argument which agtape's function does not have: (reason, when) pairs, counted apart.
    not_offered: tuple = ()
    # "all", or "shape" for random values: shape and dtype are compared alone; or a function of the sample that says which.
    compares: str | Callable = "all"
    # Factor on the tolerances of `torch.testing`.
    slack: float = 1.0


@dataclass
class Count:
    """Cases of one agtape function under one judge."""

    passed: int = 0
    differences: dict = field(default_factory=dict)
    not_offered: dict = field(default_factory=dict)
    failures: list = field(default_factory=list)

    @property
    def cases(self):
        """How many cases were judged."""
        return self.passed + sum(self.differences.values()) + len(self.failures)

    def add(self, outcome, text=""):
        """Count one case; `text` is the reason of a difference or the message of a failure."""
        if outcome == PASS:
            self.passed += 1
        elif outcome == FAILURE:
            self.failures.append(text)
        else:
            reasons = self.differences if outcome == DIFFERENCE else self.not_offered
            reasons[text] = reasons.get(text, 0) + 1

    def merge(self, other):
        """Add the counts of another."""
        self.passed += other.passed
        self.failures += other.failures
        for mine, theirs in ((self.differences, other.differences), (self.not_offered, other.not_offered)):
            for reason, n in theirs.items():
                mine[reason] = mine.get(reason, 0) + n


def total(counts):
    """The sum of many counts."""
    result = Count()
    for count in counts:
        result.merge(count)
    return result
