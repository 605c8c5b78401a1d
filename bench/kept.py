"""What is kept of a measurement: a file in `results/`, which the pages are rendered from."""

import datetime
import json
import pathlib
import subprocess

import machine

BENCH = pathlib.Path(__file__).resolve().parent


def git(*arguments):
    """What git says of this checkout; nothing outside of one."""
    argv = ["git", "-C", str(BENCH), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def about():
    """When and where, and of which commit. A binary that was named is not asked for its own."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "date": now.strftime("%Y-%m-%d %H:%M UTC"),
        "commit": git("rev-parse", "--short", "HEAD") or "unknown",
        "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        "machine": machine.describe(),
        "load_start": machine.load_average(),
    }


def publish(part, document, directory=BENCH / "results"):
    """Writes the file of one measurement; answers where."""
    name = f"{document['date'][:10]}-{document['commit']}-{part}.json"
    (directory / name).write_text(json.dumps(document, ensure_ascii=False) + "\n", encoding="utf-8")
    return directory / name
