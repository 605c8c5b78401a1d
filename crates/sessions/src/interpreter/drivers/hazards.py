# Finds modules of this installation that prevent an interpreter from forking, for `cove doctor`.
# The definitions of the parked interpreter stand before this file.
#
# Two processes import the modules: one as the parked interpreter does, one without the variables
# that keep libraries from starting threads. One line of JSON reports the threads and libraries of
# each module.

import re

# Time limit of each process.
STEP_SECONDS = 45
# File names of libraries that start threads.
LIBRARIES = re.compile(
    r"lib(?:[a-z]*openblas|gomp|[io]omp5?|omp|mkl|blis|arrow|jemalloc|tbb|torch)[^/ ]*\.so")


def in_child(work):
    """Returns the result of a function in a forked process, or None if that process fails."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            signal.alarm(STEP_SECONDS)
            data = json.dumps(work()).encode()
            while data:
                data = data[os.write(writing, data):]
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    return json.loads(data) if data else None


def loaded_libraries():
    with open("/proc/self/maps") as file:
        return set(LIBRARIES.findall(file.read()))


def import_one(name):
    if name == "IPython":
        make_ipython()
    else:
        importlib.import_module(name)


def module_hazards(modules):
    """Imports modules in order. Returns the threads that each started and the libraries loaded."""
    rows = []
    for name in modules:
        threads, libraries = set(other_tasks()), loaded_libraries()
        row = {"module": name, "error": None}
        try:
            import_one(name)
        except ModuleNotFoundError as error:
            row["error"] = "not installed" if error.name in name.split(".") else str(error)
        except Exception as error:
            row["error"] = "%s: %s" % (type(error).__name__, error)
        tasks = other_tasks()
        row["threads"] = [tasks[task] for task in tasks if task not in threads]
        row["libraries"] = sorted(loaded_libraries() - libraries)
        rows.append(row)
    return rows


def as_parked(modules):
    rows = module_hazards(modules)
    numpy = sys.modules.get("numpy")
    # A product and a decomposition hang in a copy if a library's lock was held during the fork.
    works = None if numpy is None or other_tasks() else in_child(lambda: calculates(numpy))
    return {"modules": rows, "copy_calculates": None if numpy is None else bool(works)}


def calculates(numpy):
    square = numpy.ones((256, 256)) + numpy.eye(256)
    return bool(numpy.dot(square, square).shape == numpy.linalg.svd(square)[0].shape)


def without_variables(modules):
    for name in THREAD_VARIABLES:
        os.environ.pop(name, None)
    return module_hazards(modules)


def report_hazards(modules):
    print(json.dumps({
        "python": "%d.%d.%d" % sys.version_info[:3],
        "parked": in_child(lambda: as_parked(modules)),
        "plain": in_child(lambda: without_variables(modules)),
    }), flush=True)
