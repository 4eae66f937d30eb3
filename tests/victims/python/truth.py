"""truth.py UNIT [THREADS]: one thing after the other that Python programs do, each with a unit of CPU time, or more, in
`spin`; the same then in so many threads at a time.

Python itself says which stacks there are: `spin` asks it before it works, and they are printed as JSON: for each thing its
weight, and its functions, outermost first, with the lines that they are at, as often as it is done.
"""
import ctypes
import functools
import json
import os
import re
import sys
import threading
import time

UNIT = float(sys.argv[1])
# By the thing that is done: its weight, and its stacks.
truth = {}
lock = threading.Lock()


def spin(what, units=1):
    frame, stack = sys._getframe(1), []
    while frame:
        code = frame.f_code
        stack.append([getattr(code, "co_qualname", code.co_name), frame.f_lineno])
        frame = frame.f_back
    with lock:
        known = truth.setdefault(what, [0, []])
        known[0] += units
        if stack[::-1] not in known[1]:
            known[1].append(stack[::-1])
    end = time.thread_time() + units * UNIT
    while time.thread_time() < end:
        pass


def recursion(levels=1000):
    if levels > 1:
        return recursion(levels - 1)
    spin("recursion", 3)


def generators():
    def inner():
        spin("generators")
        yield 1

    def outer():
        yield from inner()

    def catches():
        try:
            yield
        except KeyError:
            spin("generators", 2)
            yield

    def passes():
        yield from catches()

    passing = passes()
    next(passing)
    passing.throw(KeyError())
    return list(value for value in outer())


def awaits():
    async def inner():
        spin("awaits")

    async def middle():
        await inner()

    async def outer():
        async with Context():
            await middle()

    class Context:
        async def __aenter__(self):
            spin("awaits")

        async def __aexit__(self, *_):
            spin("awaits")

    coroutine = outer()
    try:
        coroutine.send(None)
    except StopIteration:
        pass


def comparators():
    def key(number):
        spin("comparators")
        return -number

    def compare(a, b):
        spin("comparators")
        return a - b

    return sorted([1, 2], key=key) + sorted([1, 2], key=functools.cmp_to_key(compare))


def tools():
    @functools.lru_cache(maxsize=None)
    def cached(number):
        spin("tools")
        return number

    @functools.wraps(cached)
    def wrapped(*numbers):
        return functools.reduce(lambda a, b: cached(a) + b, numbers)

    return functools.partial(wrapped, 1)(2)


def foreign():
    """Calls back through C, and on a thread that Python did not make."""
    def called(*_):
        spin("foreign")
        return 0

    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(called)
    libc = ctypes.CDLL(None)
    numbers = (ctypes.c_int * 2)(2, 1)
    libc.qsort(numbers, 2, 4, compare)
    begins = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(called)
    thread = ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, begins, None) == 0
    assert libc.pthread_join(thread, None) == 0


def expressions():
    def replacement(match):
        spin("expressions")
        return match[0]

    return re.sub("[ab]", replacement, "a-b")


def exceptions():
    class Context:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            spin("exceptions")
            return True

    def raises():
        try:
            spin("exceptions")
            raise KeyError
        except KeyError:
            spin("exceptions")
            raise ValueError from None
        finally:
            spin("exceptions")

    with Context():
        raises()


class Mensch:
    def __getattr__(self, name):
        spin("classes")
        return name

    @property
    def größe(self):
        spin("classes")
        return 1

    @classmethod
    def of_class(cls):
        spin("classes")

    @staticmethod
    def of_none():
        spin("classes")

    def __eq__(self, other):
        spin("classes")
        return True

    def __del__(self):
        spin("classes")


def classes():
    one = Mensch()
    one.größe + len(one.missing)
    one.of_class(), one.of_none()
    assert one in [Mensch()]


def comprehensions():
    [spin("comprehensions") for _ in range(1)]
    {spin("comprehensions"): 1 for _ in range(1)}
    list(map(lambda _: spin("comprehensions"), [1]))
    (lambda: (lambda: spin(
        "comprehensions"))())()


def executed():
    exec(compile("\n\ndef made():\n\n    spin('executed')\nmade()", "made.py", "exec"), {"spin": spin})
    eval("spin('executed')")


def threads():
    thread = threading.Thread(target=lambda: spin("threads"))
    thread.start()
    thread.join()


def processes():
    import multiprocessing
    context = multiprocessing.get_context("fork")
    there, here = context.Pipe()

    def child():
        truth.clear()
        spin("processes")
        there.send(truth)

    process = context.Process(target=child)
    process.start()
    for what, (weight, stacks) in here.recv().items():
        known = truth.setdefault(what, [0, []])
        known[0] += weight
        known[1] += [stack for stack in stacks if stack not in known[1]]
    process.join()


def main():
    for thing in (recursion, generators, awaits, comparators, tools, foreign, expressions, exceptions, classes,
                  comprehensions, executed, threads):
        thing()


def at_once(count):
    begins = threading.Barrier(count)

    def runs():
        begins.wait()
        for _ in range(3):
            main()

    running = [threading.Thread(target=runs) for _ in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


if __name__ == "__main__":
    sys.setrecursionlimit(2000)
    for _ in range(3):
        main()
        processes()
    if len(sys.argv) > 2:
        at_once(int(sys.argv[2]))
    json.dump(truth, sys.stdout)
