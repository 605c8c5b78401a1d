"""Plots as small SVG files: text in, text out, the same for the same figures.

They are read on a light and on a dark page: colours follow the reader's scheme, and nothing is filled
behind them.
"""

import math
from html import escape

WIDTH = 720
# Two series and more are told apart by these; both schemes have contrast with all of them.
COLOURS = ("#3b82c4", "#c2622d", "#4a9a5b", "#9a6fc0", "#b08a1e")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.quiet{fill:#6b7280}"
    ".axis{stroke:#8b949e;stroke-width:1;fill:none}.ahead{fill:#3b82c4}.behind{fill:#c2622d}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#9aa4af}}"
)
# Heights of a bar and of what is between two; the rooms for labels before and words behind the bars.
BAR, GAP, TOP, LABELS, WORDS = 14, 8, 40, 330, 165


def document(height, title, body):
    """An SVG file. The title is what a reader hears who does not see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def text(x, y, words, kind="", anchor="start"):
    """A line of text."""
    kind = f' class="{kind}"' if kind else ""
    anchor = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:g}" y="{y:g}"{kind}{anchor}>{escape(words)}</text>'


def ratio_bars(title, rows):
    """Bars of ratios on a scale of powers: to the right of the line at 1 is ahead.

    `rows` are (label, ratio, words behind the bar).
    """
    logs = [math.log10(ratio) for _, ratio, _ in rows]
    low, high = min([*logs, -0.3]), max([*logs, 0.3])
    scale = (WIDTH - LABELS - WORDS) / (high - low)
    zero = LABELS - low * scale
    lines = [text(0, 16, title)]
    for n, ((label, _, words), value) in enumerate(zip(rows, logs, strict=True)):
        y = TOP + n * (BAR + GAP)
        start, width = min(zero, zero + value * scale), max(abs(value) * scale, 1)
        kind = "ahead" if value >= 0 else "behind"
        lines.append(text(LABELS - 10, y + 11, label, anchor="end"))
        lines.append(
            f'<rect class="{kind}" x="{start:.1f}" y="{y}" width="{width:.1f}" height="{BAR}"/>'
        )
        lines.append(text(round(max(start + width, zero) + 5, 1), y + 11, words, "quiet"))
    bottom = TOP + len(rows) * (BAR + GAP)
    lines.append(f'<path class="axis" d="M{zero:.1f} {TOP - 6}V{bottom}"/>')
    lines.append(text(round(zero, 1), TOP - 10, "1 ×", "quiet", "middle"))
    return document(bottom + 4, title, "\n".join(lines))


def thinned(values, most=180):
    """At most so many points of a series: the largest of each stretch, which is what must not hide."""
    step = max(1, math.ceil(len(values) / most))
    return [max(values[n : n + step]) for n in range(0, len(values), step)]


def lines(title, minutes, series, marks=()):
    """A small plot below the other for each of `series`, which are (label, values), over the same time.

    `marks` are (minute, words): what was done to the thing that is measured, as strokes at the top.
    """
    height, left, right = 78, 10, WIDTH - 10
    parts = [text(0, 16, title)]

    def at(minute):
        return left + (right - left) * minute / max(minutes, 1e-9)

    bottom, ticks = 34 + len(series) * height, {}
    for minute, words in marks:
        ticks[words] = ticks.get(words, "") + f"M{at(minute):.0f} 22v8"
    for words, path in ticks.items():
        parts.append(f'<path class="axis" d="{path}"><title>{escape(words)}</title></path>')
    # Many lines have fewer points each, so that the file stays small.
    most = max(40, 560 // max(len(series), 1))
    for n, (label, values) in enumerate(series):
        shown, top = thinned(values, most), max([*values, 1e-9])
        y = 34 + n * height
        points = " ".join(
            f"{at(minutes * i / max(len(shown) - 1, 1)):.0f},"
            f"{y + height - 14 - (height - 38) * value / top:.1f}"
            for i, value in enumerate(shown)
        )
        parts.append(text(left, y + 10, f"{label}: at most {figure(top)}, last {figure(values[-1])}"))
        parts.append(f'<path class="axis" d="M{left} {y + height - 14}H{right}"/>')
        colour = COLOURS[n % len(COLOURS)]
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>'
        )
    parts.append(text(left, bottom + 6, "0 min", "quiet"))
    parts.append(text(right, bottom + 6, f"{minutes:g} min", "quiet", "end"))
    return document(bottom + 12, title, "\n".join(parts))


def figure(value):
    """A figure with three digits or so."""
    return f"{value:,.0f}".replace(",", " ") if value >= 100 else f"{value:.3g}"
