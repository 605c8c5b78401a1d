"""A run of many parts: their rounds follow each other in turns, until the time is over.

What a shared machine does for a few minutes is then in one round of each part and not in all rounds of
one. Each round is written down when it is over, so that a part that fails, or a run that is stopped,
loses nothing else; a run that was stopped goes on where it was.
"""

import json
import pathlib
import random
import sys
import time
import traceback

from rivals import say

# Rounds that a short part may have more than the one with fewest. More would say nothing new about
# this machine at this time.
AHEAD_MAX = 4


class Plan:
    """Which part is next, and whether there is time for it."""

    def __init__(self, names, rounds_max, minutes, seed):
        self.names, self.rounds_max, self.seed = list(names), rounds_max, seed
        self.seconds_max = None if minutes is None else 60 * minutes
        self.took = {name: [] for name in self.names}

    def elapsed(self):
        """Seconds of all rounds so far, those of a run that was stopped as well."""
        return sum(seconds for of in self.took.values() for seconds in of)

    def left(self):
        """Seconds that are left; none where nothing bounds the run."""
        return None if self.seconds_max is None else self.seconds_max - self.elapsed()

    def fits(self, name):
        """Whether one more round of a part ends in time. The first one always takes place."""
        if self.left() is None or not self.took[name]:
            return True
        # A first round has what is done once: the quickest so far is nearer to the next.
        return min(self.took[name]) <= self.left()

    def order(self, number):
        """The parts of a round, in an order of its own."""
        names = list(self.names)
        random.Random(f"{self.seed} {number}").shuffle(names)
        return names

    def slices(self):
        """(number, part) one after the other; whoever takes them says how long each took."""
        for number in range(self.rounds_max):
            fitting = [name for name in self.order(number) if self.fits(name)]
            if not fitting or number >= min(map(len, self.took.values())) + AHEAD_MAX:
                return
            for name in fitting:
                # The others of this round took some of what was left.
                if self.fits(name) and len(self.took[name]) == number:
                    yield number, name


def told(plan, number, name):
    """What is next and how long it goes on, in a line."""
    words = f"[{plan.elapsed() / 60:.0f} min"
    if plan.seconds_max is not None:
        words += f" of {plan.seconds_max / 60:g}, {max(plan.left(), 0) / 60:.0f} left"
    about = f", about {min(plan.took[name]) / 60:.1f} min" if plan.took[name] else ""
    return f"{words}] {name}, round {number + 1}{about}"


class Kept:
    """What each round found, in files."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)

    def path(self, number, name):
        """The file of one round of a part."""
        return self.directory / f"{number:02}-{name}.json"

    def read(self, number, name):
        """What an earlier run found there; none if it was not that far, or it failed."""
        try:
            kept = json.loads(self.path(number, name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return None if "error" in kept else kept

    def write(self, number, name, kept):
        """Writes it so that a file is whole if it is there."""
        path = self.path(number, name)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(kept, ensure_ascii=False), encoding="utf-8")
        part.replace(path)


def run(plan, kept, measure, clock=time.monotonic):
    """Runs all rounds; what each part found in its rounds, and what failed.

    `measure(name, number)` gives the document of one round.
    """
    found, failures = {name: [] for name in plan.names}, []
    for number, name in plan.slices():
        before = kept.read(number, name)
        if before is None:
            say(told(plan, number, name))
            before = one(number, name, measure, clock)
            kept.write(number, name, before)
        plan.took[name].append(before["seconds"])
        if "error" in before:
            failures.append({"part": name, "round": number + 1, "error": before["error"]})
        else:
            found[name].append(before["found"])
    return found, failures


def one(number, name, measure, clock):
    """One round of a part. One that breaks must not lose the others' figures."""
    began = clock()
    try:
        found = measure(name, number)
        return {"seconds": clock() - began, "found": found}
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        say(f"{name}, round {number + 1} failed: {error}")
        return {"seconds": clock() - began, "error": repr(error)[-400:]}
