"""The pages of results, from the files that runs left: `RESULTS.md`, a page behind it for each part, plots.

`render` gives their texts and measures nothing, so that a test can compare them with what is there.
"""

import datetime
import json
import pathlib

import bouncer.figures
import catalog.figures
import counts
import gateway.figures
import plots
import report
import sessions.figures
import soak
import summary
from report import number, table

BENCH = pathlib.Path(__file__).resolve().parent

TITLES = {
    "executions": "Executions", "sessions": "Sessions", "bouncer": "Bouncer", "catalog": "Catalog",
    "gateway": "Gateway", "cluster": "Cluster", "failover": "Loss of a node", "pool": "Pool",
}  # fmt: skip
# Parts that `run.py` measures and whose pages are rendered here; the others are written by hand.
FIGURES = {
    "sessions": sessions.figures, "bouncer": bouncer.figures, "catalog": catalog.figures,
    "gateway": gateway.figures,
}  # fmt: skip
# Parts of which a run has the document under their own name.
ALONE = ("pool", "counts")
RENDERED = ("executions", *ALONE, *FIGURES)
PLOT_RATIO_MAX = 1000


def load(directory):
    """The documents of all runs, the oldest first."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in directory.glob("*.json")]
    # Other programs leave files of their own there.
    dated = [document for document in documents if "date" in document and "commit" in document]
    return sorted(dated, key=lambda it: (it["date"], it["commit"]))


def newest(documents, service):
    """The last run in which a service was measured."""
    return next((it for it in reversed(documents) if summary.rows_of(service, it)), None)


def render(documents):
    """Texts of all pages and plots by their path below `bench/`."""
    sources = {name: newest(documents, name) for name in summary.SERVICES}
    # What has no row in the summary, as a single case of a first look, has its page still.
    behind = {
        name: sources.get(name) or next((it for it in reversed(documents) if has(name, it)), None)
        for name in RENDERED
    }
    soaked = next((it for it in reversed(documents) if "soak" in it), None)
    files = {"RESULTS.md": summary_page(sources, behind["counts"], soaked)}
    if soaked:
        files["plots/soak.svg"] = soak.plot(soaked["soak"])
    for name, run in sources.items():
        if run is not None and (plot := plot_of(name, run)):
            files[f"plots/{name}.svg"] = plot
    for name, run in behind.items():
        if run is not None:
            files[page_of(name)] = detail_page(name, run)
    return files


def write(files, directory):
    """Writes pages; answers their paths."""
    paths = []
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


# --- pages behind the summary


def goals_of(part, run):
    """The goals of a part, as they are now: a run of last month is judged by today's."""
    if part == "executions":
        return report.goals(report.figures_of(run), run)
    if part == "pool":
        return list(report.pool_goals(run.get("pool")))
    if part == "counts":
        return []
    return list(FIGURES[part].goals(run["scenarios"][part]))


def has(part, run):
    """Whether a part was measured, in whatever little of it."""
    if part == "executions":
        scenarios = run.get("scenarios", {})
        measured = [scenarios.get(name) for name in ("durability", "slow_reader", "calls")]
        return bool(report.figures_of(run) or run.get("memory")) or any(measured)
    return bool(run.get(part) if part in ALONE else run.get("scenarios", {}).get(part))


def text_of(part, run):
    """The tables of a part."""
    if part == "executions":
        return report.text(run)
    if part == "pool":
        return [report.pool_text(run["pool"]) + "\n"]
    if part == "counts":
        return counts.text(run["counts"])
    return FIGURES[part].text(run["scenarios"][part])


def detail_page(part, run):
    """Everything that was measured of one part."""
    return report.page(run, part, goals_of(part, run), text_of(part, run))


# --- the summary


def day(text):
    """A date in words."""
    date = datetime.date.fromisoformat(text[:10])
    return f"{date.day} {date:%B} {date.year}"


def commit(run):
    """The commit of a run, and whether it says all."""
    return f"`{run['commit']}`{' with changes' if run.get('dirty') else ''}"


def summary_page(sources, counted, soaked):
    """One page: where the figures come from, and a table for each service. `counted` and `soaked` are
    the last run in which instructions were counted and the last soak, if there are such."""
    measured = {name: run for name, run in sources.items() if run is not None}
    rows = {name: summary.rows_of(name, run) for name, run in measured.items()}
    judged = [it.met for of in rows.values() for it in of if it.met is not None]
    parts = [
        "# Results\n",
        "Written by `bench/run.py --render` from the files in `results/`;"
        " [README.md](README.md) says what is measured and how.\n",
        "**Ratio** is how many times better Cove is than the best rival that was measured: above 1"
        " Cove is ahead. The **floor** is what nothing can beat, or what has none of Cove's work to"
        " do: a bare process, a server that answers with fixed bytes, a flush of the disk."
        " Milliseconds of different runs do not compare; ratios do, within a run.\n",
        f"{sum(judged)} of {len(judged)} goals on this page are met.\n",
        source_table(sources) + "\n",
        *one_run(measured.values()),
        *other_pages(counted),
    ]
    for name, of in rows.items():
        parts += service_section(name, measured[name], of)
    parts += soak_section(soaked) if soaked else []
    return "\n".join(parts).rstrip("\n") + "\n"


def one_run(runs):
    """A warning where the figures are of several commits."""
    commits = {run["commit"] for run in runs}
    if len(commits) <= 1:
        return []
    return [f"**These figures are not of one run**: they are of {len(commits)} commits, and of the days"
            " in this table.\n"]  # fmt: skip


def other_pages(counted):
    """Where else figures are."""
    counts = (
        [f"[Instructions of single operations](RESULTS-counts.md) ({day(counted['date'])}, commit"
         f" {commit(counted)})"] if counted else []
    )  # fmt: skip
    more = ["[the code interpreter](RESULTS-interpreter.md)", "[templates](RESULTS-templates.md)"]
    return [f"More: {', '.join([*counts, *more])}.\n"]


def page_of(name):
    """The page behind the summary of a service."""
    if name == "failover":
        return page_of("cluster") + "#when-a-node-dies"
    return f"RESULTS-{name}.md"


def source_table(sources):
    """When, where and from what each service was measured."""
    rows = []
    for name, run in sources.items():
        if run is None:
            rows.append([TITLES[name], "not measured in a run whose figures are here", "–", "–", "–", "–"])
            continue
        machine = run["machine"]
        where = f"{machine['cores']} cores ({machine['cpu']}), Linux {machine['kernel'].split('-')[0]}"
        rounds = run.get("rounds_of", {}).get(name, run.get("rounds"))
        cells = [f"[{TITLES[name]}]({page_of(name)})", day(run["date"]), commit(run)]
        rows.append([*cells, "–" if rounds is None else rounds, busy(name, run), where])
    return table(["service", "date", "commit", "rounds", "machine busy beforehand", "machine"], rows)


def busy(name, run):
    """How busy the machine was with other work before the rounds of a part."""
    percents = run.get("busy_of", {}).get(name) or run.get("background_busy_percent")
    if not percents:
        return "–"
    return f"{number(report.percentile(percents, 50), 0)} %, at most {number(max(percents), 0)} %"


def with_unit(value, unit):
    """A figure with its unit."""
    if value is None:
        return "–"
    digits = 0 if value == int(value) and value < 1000 else None
    return f"{number(value, digits)}{'' if unit.startswith('/') or not unit else ' '}{unit}"


def service_section(name, run, rows):
    """The heading, the plot and the table of one service."""
    header = ["figure", "Cove", "best rival", "ratio", "floor", "goal", "met"]
    cells = []
    for it in rows:
        rival = "–" if it.rival[1] is None else f"{it.rival[0]} {with_unit(it.rival[1], it.unit)}"
        floor = "–" if it.floor is None else f"{it.floor[0]} {with_unit(it.floor[1], it.unit)}"
        ratio = summary.ratio(it)
        met = {True: "yes", False: "**no**", None: "–"}[it.met]
        shown = "–" if ratio is None else f"{number(ratio)} ×"
        cells.append([it.figure, with_unit(it.cove, it.unit), rival, shown, floor, it.goal, met])
    note = f" {run['note']}" if run.get("note") else ""
    caption = f"{day(run['date'])}, commit {commit(run)}. [Details]({page_of(name)}).{note}\n"
    plot = f"![Ratios of {TITLES[name].lower()}](plots/{name}.svg)\n"
    has_plot = any(summary.ratio(it) for it in rows)
    return [f"## {TITLES[name]}\n", caption, *([plot] if has_plot else []), table(header, cells) + "\n"]


def soak_section(run):
    """How long it was, whether all was right, and whether anything grew."""
    found = run["soak"]
    header = ["service", "requests", "failed", "failed beside a fault", "p50 ms", "p99 ms",
              "p99 ms, honest clients alone", "p50: last third ÷ middle third"]  # fmt: skip
    cells = [
        [name, number(row["requests"], 0), row["failed"], row["failed_beside_faults"],
         number(row.get("p50_ms")), number(row.get("p99_ms")),
         number(found["quiet"].get(name, {}).get("p99_ms")),
         number(found["latency_drift"].get(name))]
        for name, row in found["under_attack"].items()
    ]  # fmt: skip
    grown = ", ".join(f"{soak.SERIES[key].split(',')[0]} {number(value)}"
                      for key, value in found["drift"].items())  # fmt: skip
    load = " ".join(f"{it:.1f}" for it in (run["load_start"][0], run["load_end"][0]))
    caption = (
        f"{number(found['minutes'], 0)} minutes, {day(run['date'])}, commit {commit(run)}, load average"
        f" {load} before and after: honest and hostile clients of all services at once, and"
        f" {len(found['faults'])} faults ([how](README.md#the-soak)). Of the server, last third over"
        f" middle third: {grown}. {len(found['errors_logged'])} errors in its log.\n"
    )
    plot = "![Memory, descriptors, disk and latency over time](plots/soak.svg)\n"
    return ["## Soak\n", caption, plot, table(header, cells) + "\n"]


def plot_of(name, run):
    """The ratios of a service as bars; nothing where nobody was beside it."""
    bars = []
    for it in summary.rows_of(name, run):
        ratio = summary.ratio(it)
        if ratio is None:
            continue
        label = it.figure.replace("`", "").split(" (")[0]
        # A long title would leave no room for its bar; the table has it whole.
        label = label if len(label) <= 52 else label[:51] + "…"
        shown = max(min(ratio, PLOT_RATIO_MAX), 1 / PLOT_RATIO_MAX)
        bars.append((label, shown, f"{number(ratio)} × {it.rival[0].split(',')[0]}"))
    title = f"{TITLES[name]}: how many times better than the best rival ({day(run['date'])})"
    return plots.ratio_bars(title, bars) if bars else None
