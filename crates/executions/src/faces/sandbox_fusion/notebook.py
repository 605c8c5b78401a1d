# Runs the cells of a notebook one after another in this process, without Jupyter or IPython: the
# driver of `PlainCells`, which stand before it.
#
# Standard input is {"cells": [source, ...], "cell_timeout": seconds}. For each cell, one line of
# JSON goes to standard output: {"stdout", "stderr", "display": [bundle, ...], "error": [error, ...]},
# where an error has `ename`, `evalue` and `traceback`, as in messages of Jupyter.
#
# Whatever cells do to this process, they do to their own results alone.

import json
import signal

# Bytes that are reported of each stream of a cell.
STREAM_BYTES_MAX = 1 << 20


class Capture:
    """Standard output or error of the process and its children, in a file without a name."""

    def __init__(self, descriptor):
        self.file = os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
        os.dup2(self.file, descriptor)

    def take(self):
        length = os.fstat(self.file).st_size
        data = os.pread(self.file, min(length, STREAM_BYTES_MAX), 0)
        os.ftruncate(self.file, 0)
        os.lseek(self.file, 0, os.SEEK_SET)
        return data.decode("utf-8", "replace")


class Notebook:
    """What the cell that runs has shown, and its error."""

    def __init__(self):
        self.shown = []
        self.errors = []
        cells = PlainCells(self.show, self.fail)
        self.cells = cells
        figures = {"matplotlib": lambda module: draw_in_memory(module, cells.display)}
        sys.meta_path[:0] = [DisplayModules(cells), ImportHook(figures)]

    def show(self, bundle, _is_main):
        self.shown.append(bundle)

    def fail(self, name, value, lines):
        lines = [line.rstrip("\n") for line in lines]
        self.errors.append({"ename": name, "evalue": value, "traceback": lines})

    def run(self, source, number):
        self.shown, self.errors = [], []
        self.cells.run(source, number)
        return {"display": self.shown, "error": self.errors}


def main():
    wanted = json.load(sys.stdin)
    results = os.fdopen(os.dup(1), "w", encoding="ascii")
    streams = {"stdout": Capture(1), "stderr": Capture(2)}
    notebook = Notebook()
    for number, source in enumerate(wanted["cells"], 1):
        # The default action of the signal ends the process, whatever it is doing.
        signal.setitimer(signal.ITIMER_REAL, wanted["cell_timeout"])
        shown = notebook.run(source, number)
        signal.setitimer(signal.ITIMER_REAL, 0)
        result = {name: stream.take() for name, stream in streams.items()}
        result.update(shown)
        results.write(json.dumps(result, default=str) + "\n")
        results.flush()
    # Threads that cells have left do not hold up the answer.
    os._exit(0)


main()
