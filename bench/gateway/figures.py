"""From what was measured of the gateway to tables and goals. Pure: documents in, text out."""

import statistics

from gateway.cases import CALLS, CALM, DIRECT, FLOODED, INSIDE, OUTSIDE, PLAIN
from gateway.servers import POOL
from report import Goal, group_rows, number, percentile, table, without

TITLES = {
    "select": "`SELECT 1` over one connection, the same client program",
    "create": "Sessions and executions with grants and without",
    "fair": f"200 sandboxes with 5 connections each, {POOL} server connections for all",
}
TRIP_RATIO_MAX, MORE_MS_MAX, SPREAD_MAX = 1.15, 0.5, 2.0
PERCENTILES = (50, 95, 99)
# Of which the worst round counts.
WORST = ("server_connections", "spread", "spread_to_middle", "connect_most_us", "p99_most_us")
LEAST = ("served", "p99_least_us")
TOTALS = ("wrong", "refused", "late", "answers", "looks")
COLUMNS = {
    "select": [
        ("p50_us", "p50 µs"), ("p95_us", "p95 µs"), ("p99_us", "p99 µs"), ("per_second", "/s"),
        ("cove_cpu_us", "Cove's CPU µs"), ("database_cpu_us", "database's CPU µs"),
        ("client_cpu_us", "client's CPU µs"),
    ],
    "create": [
        ("times_us_p50", "p50 µs"), ("times_us_p95", "p95 µs"), ("times_us_p99", "p99 µs"),
        ("answered_us_p50", "first program p50 µs"), ("answered_us_p99", "p99 µs"),
        ("cpu_us_p50", "server's CPU µs"),
    ],
    "fair": [
        ("served", "served"), ("per_second", "/s"), ("p50_us", "p50 µs"),
        ("p99_least_us", "p99 µs, least"), ("p99_middle_us", "middle"), ("p99_most_us", "most"),
        ("spread", "most ÷ least"), ("spread_to_middle", "most ÷ middle"),
        ("server_connections", "server connections"), ("cove_cpu_us", "Cove's CPU µs"),
        ("client_cpu_us", "client's CPU µs"),
    ],
}  # fmt: skip
HIDDEN = f"""\
- Sandboxes, Cove, the databases and the clients share the cores. A round trip is four changes of
  process, so what else the machine does is in all of them; compare rows of one table.
- Percentiles of a round trip are medians of the batches' own, ratios medians of those of batches
  that followed each other. Those of sessions and executions are of all samples together; what a
  grant costs is the median of the differences between those that were made one after the other.
- "Cove's CPU" is that of the server's process, logins included, and not that of the helpers that
  make sandboxes; the database's is counted in ticks of 10 ms.
- A closed loop: who waits asks nothing meanwhile. In "{CALM}" pauses are between
  nothing and a second, evenly.
- "Server connections" is the most that `pg_stat_activity` ever showed, looked at every 50 ms.
- One machine, loopback: no network lies between Cove and a database."""


def group(found):
    """By case and key, by rival: figures over all rounds. A file that a run left has no samples, but
    what was made of them."""
    by = group_rows(found, summarise)
    for it in found.get("figures", []):
        turns = {"p50_by_turn": {tuple(turn): us for turn, us in it.get("p50_by_turn", [])}}
        kept = {**it, **(turns if "p50_by_turn" in it else {})}
        by.setdefault((it["case"], it["key"]), {}).setdefault(it["rival"], {}).update(kept)
    return by


def summarise(rows):
    """Rows of one rival as one set of figures."""
    good = [row for row in rows if "failure" not in row]
    figures = {"failures": [row["failure"] for row in rows if "failure" in row]}
    figures["examples"] = sorted({text for row in good for text in row.get("examples", [])})[:3]
    figures["p50_by_turn"] = {tuple(row["turn"]): row["p50_us"] for row in good if "p50_us" in row}
    figures["samples"] = [sample for row in good for sample in row.get("times_us", [])]
    figures["rounds"] = len(good)
    for name in sorted({name for row in good for name in row}):
        values = [row[name] for row in good if name in row]
        if all(isinstance(value, (int, float)) for value in values):
            figures[name] = combined(name)(values)
        elif name.endswith("_us") and all(isinstance(value, list) for value in values):
            samples = [sample for value in values for sample in value]
            for percent in PERCENTILES:
                figures[f"{name}_p{percent}"] = percentile(samples, percent)
    return figures


def combined(name):
    """How figures of rounds become one."""
    if name in TOTALS:
        return sum
    if name in WORST:
        return max
    return min if name in LEAST else statistics.median


def without_samples(found):
    """A document that is not a hundred times as long: single times say little more."""
    if not found:
        return found
    figures = []
    for (case, key), rivals in group(found).items():
        for rival, of in rivals.items():
            row = {"case": case, "key": key, "rival": rival, **jsonable(of)}
            if case == "create" and rival != PLAIN and of["samples"] and PLAIN in rivals:
                row["more_us"] = more_of(of, rivals[PLAIN])
            figures.append(row)
    return {**without(found, "rows"), "figures": figures}


def jsonable(figures):
    turns = [[list(turn), us] for turn, us in figures["p50_by_turn"].items()]
    return {**without(figures, "samples"), "p50_by_turn": turns}


def failed(found):
    """Whether anything went wrong but for who was refused without Cove."""
    if not found:
        return False
    rows = found.get("rows", [])
    wrong = any(row.get(name) for row in rows for name in ("failure", "wrong"))
    ours = [row for row in rows if row["rival"] != DIRECT]
    refused = any(row.get(name) for row in ours for name in ("refused", "late"))
    return wrong or refused or bool(found.get("left"))


# --- goals


def goals(found):
    """The goals of the gateway; none when it was not measured."""
    if not found:
        return []
    f = group(found)
    return [*trip_goals(f), *create_goals(f), *fair_goals(f)]


def trip_goals(f):
    for (case, key), rivals in f.items():
        mine, theirs = rivals.get(INSIDE), rivals.get(OUTSIDE)
        if case != "select" or not mine or not theirs or mine.get("p50_us") is None:
            continue
        ratio = ratio_of(mine, theirs)
        if ratio is None:
            continue
        yield Goal(
            f"`SELECT 1` from a sandbox, {key}",
            f"≤ {TRIP_RATIO_MAX} × outside through the bouncer",
            f"p50 {number(mine['p50_us'])} µs",
            f"outside {number(theirs['p50_us'])} µs",
            number(ratio, 3),
            ratio <= TRIP_RATIO_MAX,
        )


def ratio_of(mine, theirs):
    """The median of the ratios of batches that followed each other."""
    ours, others = mine["p50_by_turn"], theirs["p50_by_turn"]
    ratios = [ours[turn] / others[turn] for turn in ours if others.get(turn)]
    return statistics.median(ratios) if ratios else None


def create_goals(f):
    for (case, key), rivals in f.items():
        plain = rivals.get(PLAIN, {}).get("times_us_p50")
        if case != "create" or plain is None:
            continue
        for rival, figures in rivals.items():
            mine = figures.get("times_us_p50")
            if rival == PLAIN or mine is None:
                continue
            more = more_of(figures, rivals[PLAIN]) / 1000
            yield Goal(
                f"{key}, with {rival}",
                f"≤ {MORE_MS_MAX} ms more",
                f"p50 {number(mine / 1000)} ms",
                f"without {number(plain / 1000)} ms",
                f"{more:+.2f} ms",
                more <= MORE_MS_MAX,
            )


def more_of(figures, plain):
    """Microseconds more than without: the median of the differences of those made together. A file
    that a run left has no samples, but that figure."""
    if "more_us" in figures:
        return figures["more_us"]
    pairs = zip(figures["samples"], plain["samples"], strict=True)
    return statistics.median(mine - theirs for mine, theirs in pairs)


def fair_goals(f):
    direct = f.get(("fair", next(iter(CALLS))), {}).get(DIRECT)
    for key in CALLS:
        mine = f.get(("fair", key), {}).get(INSIDE)
        if not mine or "served" not in mine:
            continue
        wrong = sum(mine.get(name, 0) for name in ("wrong", "refused", "late"))
        beside = "–"
        if direct and "refused" in direct and key == next(iter(CALLS)):
            refused = number(direct["refused"] / direct["rounds"], 0)
            beside = f"direct: {refused} of 1 000 connections refused"
        yield Goal(
            f"200 sandboxes × 5, {key}: all served",
            f"none refused, never more than {POOL} server connections",
            f"{number(mine['served'], 0)} sandboxes, {number(wrong, 0)} failures, at most"
            f" {number(mine['server_connections'], 0)} connections",
            beside,
            "–",
            not wrong
            and mine["served"] == mine["sandboxes"]
            and mine["server_connections"] <= POOL,
        )
        if key in (CALM, FLOODED):
            continue  # Nobody waits for a connection: what the machine does is in the tails.
        yield Goal(
            f"200 sandboxes × 5, {key}: p99 of each",
            f"largest ≤ {SPREAD_MAX:g} × smallest",
            f"{number(mine['p99_most_us'] / 1000)} ms",
            f"smallest {number(mine['p99_least_us'] / 1000)} ms",
            number(mine["spread"], 2),
            mine["spread"] <= SPREAD_MAX,
        )


# --- tables


def text(found):
    """Lines of Markdown; none when it was not measured."""
    if not found:
        return []
    lines, f = ["## The gateway", ""], group(found)
    for case, title in TITLES.items():
        rows = [
            (key, rival, figures)
            for (of_case, key), rivals in f.items()
            if of_case == case
            for rival, figures in sorted(rivals.items(), key=lambda it: order_of(it[0]))
        ]
        if rows:
            lines += [f"### {title}", "", *case_table(case, rows), ""]
    lines += flood_text(f)
    versions = found.get("versions", {})
    lines += [f"- {name}: {version}" for name, version in versions.items()]
    lines += [f"- {name} is missing: {why}" for name, why in found.get("unavailable", {}).items()]
    lines += [f"- Left behind: {words}" for words in found.get("left", [])]
    return [*lines, "", "### What these figures do not show", "", HIDDEN, ""]


def order_of(rival):
    """Rivals as they are always named: those without grants first, direct connections last."""
    return (rival == DIRECT, rival == OUTSIDE, rival != PLAIN, len(rival))


def case_table(case, rows):
    columns = COLUMNS[case]
    header = ["what", "who", *(title for _, title in columns)]
    is_trip = case == "select"
    header += ["inside ÷ it"] if is_trip else []
    inside = {key: figures for key, rival, figures in rows if rival == INSIDE}
    cells = []
    for key, rival, figures in rows:
        cell = [key, rival, *(number(figures.get(name)) for name, _ in columns)]
        if is_trip:
            is_other = rival != INSIDE and key in inside
            cell.append(number(ratio_of(inside[key], figures), 3) if is_other else "–")
        cells.append([*cell, failures_of(figures)])
    told = [
        f"- {key}, {rival}: {words}"
        for key, rival, figures in rows
        for words in [*figures["failures"][:1], *figures["examples"]]
    ]
    return [table([*header, "failures"], cells), *(["", *told] if told else [])]


def failures_of(figures):
    """What went wrong, in a few words."""
    counts = {"wrong": figures.get("wrong", 0), "refused": figures.get("refused", 0)}
    counts |= {"late": figures.get("late", 0), "rounds": len(figures["failures"])}
    return ", ".join(f"{number(n, 0)} {name}" for name, n in counts.items() if n) or "0"


def flood_text(f):
    """What a sandbox that floods does to the others."""
    calm, flooded = (f.get(("fair", key), {}).get(INSIDE, {}) for key in (CALM, FLOODED))
    if "p99_middle_us" not in calm or "p99_middle_us" not in flooded:
        return []
    ratio = flooded["p99_middle_us"] / calm["p99_middle_us"]
    return [
        "One sandbox that asks without a pause over five connections and makes new ones all the"
        f" time: the median p99 of the other 199 goes from {number(calm['p99_middle_us'] / 1e3)} to"
        f" {number(flooded['p99_middle_us'] / 1e3)} ms ({number(ratio, 2)} ×).",
        "",
    ]
