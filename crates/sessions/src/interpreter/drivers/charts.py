"""Chart data of matplotlib figures, in the format of E2B's clients.

A chart has a `type`, a title, axes and elements.
"""

import re

# Most points of one chart's data. A chart with more points is sent as a picture without data.
POINTS_MAX = 20000


def chart_of(figure):
    """Returns the data of a figure. Raises ValueError if a series has too many points."""
    watch_boxes()
    charts = [axes_chart(axes) for axes in figure.axes if axes.get_visible()]
    if len(charts) == 1:
        chart = charts[0]
    elif charts:
        chart = {"type": "superchart", "title": None, "elements": charts}
    else:
        chart = {"type": "unknown", "title": None, "elements": []}
    overall = getattr(figure, "_suptitle", None)
    if overall is not None and (len(charts) != 1 or chart["title"] is None):
        chart["title"] = overall.get_text() or None
    return chart


def watch_boxes():
    """Patches `Axes.bxp` to record the statistics of box plots, which drawn lines do not have."""
    axes = sys.modules["matplotlib.axes"].Axes
    draw = axes.bxp
    if getattr(draw, "is_watched", False):
        return

    def bxp(self, bxpstats, *args, **kwargs):
        drawn = draw(self, bxpstats, *args, **kwargs)
        vert = kwargs.get("vert", True)
        if kwargs.get("orientation") == "horizontal" or vert is False:
            self._cove_boxes_lie = True
        self._cove_boxes = getattr(self, "_cove_boxes", []) + list(bxpstats)
        return drawn

    bxp.is_watched = True
    bxp.__doc__ = draw.__doc__
    axes.bxp = bxp


def axes_chart(axes):
    title = axes.get_title() or None
    collections = sys.modules["matplotlib.collections"]
    patches = sys.modules["matplotlib.patches"]
    wedges = [patch for patch in axes.patches if isinstance(patch, patches.Wedge)]
    if wedges:
        return {"type": "pie", "title": title, "elements": [slice_of(wedge) for wedge in wedges]}
    chart = {"type": "unknown", "title": title}
    chart.update(labels_of(axes))
    boxes = getattr(axes, "_cove_boxes", None)
    bars = [it for it in axes.containers if type(it).__name__ == "BarContainer"]
    dots = [it for it in axes.collections if isinstance(it, collections.PathCollection)]
    lines = [line for line in axes.lines if len(line.get_xdata(orig=False)) > 0]
    if boxes:
        chart.update(type="box_and_whisker", elements=[box_of(box, at) for at, box in
                                                       enumerate(boxes)])
        if getattr(axes, "_cove_boxes_lie", False):
            turn(chart)
    elif bars:
        chart.update(type="bar", elements=[])
        for number, container in enumerate(bars):
            chart["elements"] += bars_of(axes, container, number)
        if getattr(bars[0], "orientation", "vertical") == "horizontal":
            turn(chart)
    elif dots:
        chart.update(type="scatter", **scales_of(axes))
        chart["elements"] = [
            series(axes, dot.get_label(), number, dot.get_offsets(), "Dataset")
            for number, dot in enumerate(dots)
        ]
    elif lines:
        chart.update(type="line", **scales_of(axes))
        chart["elements"] = [
            series(axes, line.get_label(), number, line.get_xydata(), "Line")
            for number, line in enumerate(lines)
        ]
    else:
        return {"type": "unknown", "title": title, "elements": []}
    return chart


def turn(chart):
    """Swaps the labels and units of the axes of a horizontal chart."""
    for name in ("label", "unit"):
        x, y = "x_" + name, "y_" + name
        chart[x], chart[y] = chart[y], chart[x]


def labels_of(axes):
    labels = {"x_label": axes.get_xlabel() or None, "y_label": axes.get_ylabel() or None}
    return {**labels, "x_unit": unit_of(labels["x_label"]), "y_unit": unit_of(labels["y_label"])}


def unit_of(label):
    """Returns the unit of a label: its text in brackets."""
    found = re.search(r"[(\[]([^()\[\]]+)[)\]]", label or "")
    return found.group(1).strip() or None if found else None


def scale_of(axis):
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    kind = type(converter).__name__
    if "Category" in kind:
        return "categorical"
    if "Date" in kind or "Period" in kind or "Timestamp" in kind:
        return "datetime"
    return axis.get_scale()


def scales_of(axes):
    scales = {}
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        scale = scale_of(axis)
        labels = [label.get_text() for label in axis.get_ticklabels()]
        places = [float(place) for place in axis.get_ticklocs()]
        scales[name + "_scale"] = scale
        scales[name + "_ticks"] = [on_scale(place, scale) for place in places]
        scales[name + "_tick_labels"] = labels
        if scale == "categorical":
            scales[name + "_ticks"] = labels
    return scales


def on_scale(value, scale):
    """Converts a position on an axis to a value: a date in ISO 8601, or a number."""
    if scale == "datetime":
        from matplotlib import dates

        return dates.num2date(value).isoformat()
    return float(value)


def category(axis, value):
    units = getattr(axis.units, "_mapping", None) or {}
    for name, place in units.items():
        if place == value:
            return str(name)
    return float(value)


def series(axes, label, number, points, kind):
    if len(points) > POINTS_MAX:
        raise ValueError("too many points")
    label = str(label)
    if not label or label.startswith("_"):
        label = "%s %d" % (kind, number)
    scales = [(axis, scale_of(axis)) for axis in (axes.xaxis, axes.yaxis)]
    told = []
    for point in points:
        told.append([
            category(axis, value) if scale == "categorical" else on_scale(value, scale)
            for (axis, scale), value in zip(scales, point)
        ])
    return {"label": label, "points": told}


def bars_of(axes, container, number):
    group = str(container.get_label())
    if not group or group.startswith("_"):
        group = "Group %d" % number
    lies = getattr(container, "orientation", "vertical") == "horizontal"
    axis = axes.yaxis if lies else axes.xaxis
    names = [label.get_text() for label in axis.get_ticklabels()]
    places = [float(place) for place in axis.get_ticklocs()]
    if len(container) > POINTS_MAX:
        raise ValueError("too many bars")
    bars = []
    for bar in container:
        start, width = (bar.get_y(), bar.get_height()) if lies else (bar.get_x(), bar.get_width())
        value = bar.get_width() if lies else bar.get_height()
        bars.append({
            "label": name_at(start + width / 2, abs(width), places, names),
            "group": group,
            "value": round_off(value),
        })
    return bars


def name_at(middle, width, places, names):
    """Returns the label of the tick nearest to a bar, or the position of a bar without one."""
    near = [
        (abs(place - middle), name) for place, name in zip(places, names)
        if abs(place - middle) <= width and name
    ]
    return min(near)[1] if near else "%g" % middle


def slice_of(wedge):
    return {
        "label": str(wedge.get_label()),
        "angle": round_off(abs(wedge.theta2 - wedge.theta1)),
        "radius": round_off(wedge.r),
    }


def box_of(box, number):
    return {
        "label": str(box.get("label") or number + 1),
        "min": round_off(box["whislo"]),
        "first_quartile": round_off(box["q1"]),
        "median": round_off(box["med"]),
        "third_quartile": round_off(box["q3"]),
        "max": round_off(box["whishi"]),
        "outliers": [round_off(value) for value in box.get("fliers", [])],
    }


def round_off(value):
    """Rounds a number to six digits, which removes the errors of single precision."""
    return float("%.6g" % float(value))
