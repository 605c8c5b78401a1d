"""The pool in one process, beside its counterpart in Go: see `run.py` here."""

import subprocess

import report
from pool import run

NAMES = ["pool"]


def prepare(_options):
    """Builds both sides."""
    run.build()


def measure(_scratch, options):
    """What each side did in some rounds."""
    if options.rival:
        return {}
    try:
        commands = run.build()
        return {"rounds": [run.one_round(commands, bool(number % 2)) for number in options.numbers]}
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return {"error": str(error)}


def merge(founds):
    """One document of those of several rounds: `report.pool_text` has its form."""
    found = report.joined(founds)
    if rounds := found.get("rounds"):
        return {"figures": {"rounds": len(rounds), "rows": run.summary(rounds)}}
    return {"error": found["error"]} if "error" in found else None


def failed(found):
    """Whether an operation of Cove's had a wrong result."""
    rows = ((found or {}).get("figures") or {}).get("rows", [])
    return bool((found or {}).get("error")) or any(not row["cove"]["checked"] for row in rows)
