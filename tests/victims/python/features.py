"""features.py NAME: what Python programs do beside calling functions, each with work that says who did it."""
import gc
import os
import signal
import sys
import threading
import time


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def recursion(levels=1000):
    sys.setrecursionlimit(1100)
    if levels > 1:
        return recursion(levels - 1)
    spin(0.1)


def awaits():
    import asyncio

    async def inner():
        spin(0.1)

    async def middle():
        await inner()

    async def outer():
        await middle()

    asyncio.run(outer())


def tasks():
    """A task that another one awaits, and one that a third has gathered, which the first of all awaits."""
    import asyncio

    async def single():
        spin(0.1)

    async def gathered():
        spin(0.1)

    async def inner(task):
        await task

    async def waits():
        await inner(asyncio.create_task(single()))

    async def gathers():
        await asyncio.gather(gathered())

    async def first():
        await asyncio.create_task(waits())
        await asyncio.create_task(gathers())

    asyncio.run(first())


def replaced(seconds=0.2):
    """Code objects that take each other's place: each is named after the line it is on."""
    end = time.thread_time() + seconds
    line = 0
    while time.thread_time() < end:
        line = line % 50 + 1
        space = {}
        source = "\n" * (line - 1) + f"def on_line_{line:02}(spin): spin(0.001)"
        exec(compile(source, "made.py", "exec"), space)
        space[f"on_line_{line:02}"](spin)
    exec("def long(spin):\n" + "    a = 1\n" * 5000 + "    spin(0.03)", space)
    space["long"](spin)


def killed():
    spin(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


def forked():
    def in_parent():
        spin(0.1)

    def in_child():
        spin(0.1)

    child = os.fork()
    if child == 0:
        in_child()
        os._exit(0)
    in_parent()
    assert os.waitpid(child, 0)[1] == 0


def gil():
    """Two threads that want the GIL all the time, and one that works without it."""
    import hashlib

    def without(seconds):
        data = bytes(1 << 22)
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            hashlib.sha256(data)

    works = [(spin, 0.2), (spin, 0.2), (without, 0.2)]
    threads = [threading.Thread(target=work, args=(seconds,)) for work, seconds in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def interpreters():
    """The module of this version that makes others in the process; it is private, and has had two names."""
    try:
        import _interpreters as module
    except ImportError:
        import _xxsubinterpreters as module
    return module


IN_ANOTHER = """
import time
def inside(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
inside({})
"""


def another_interpreter():
    module = interpreters()
    other = module.create()
    module.run_string(other, IN_ANOTHER.format(0.1))
    module.destroy(other)


def storm(seconds=0.4):
    """Threads, interpreters, code objects and garbage come and go."""
    module = interpreters()
    end = time.process_time() + seconds

    def made(number):
        space = {}
        exec(compile(f"def f{number}(n):\n return n and f{number}(n - 1)", f"{number}.py", "exec"), space)
        return space[f"f{number}"]

    def work(number, shared):
        made(number)(50)
        shared(50)
        sum(i * i for i in range(500))

    number = 0
    while time.process_time() < end:
        number += 1
        shared = made(0)
        threads = [threading.Thread(target=work, args=(number + each, shared)) for each in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if number % 20 == 1:
            other = module.create()
            module.run_string(other, IN_ANOTHER.format(0.002))
            module.destroy(other)
        gc.collect(0)
    print("right")


class Described(threading.Thread):
    """Its name is not among the first of its attributes, nor in a table that others share."""

    def __init__(self, name):
        for number in range(40):
            setattr(self, f"before_{number}", number)
        super().__init__(name=name, target=spin, args=(0.01,))


def thread_names():
    def renamed():
        spin(0.01)
        threading.current_thread().name = "has another by now"
        spin(0.05)

    def work():
        spin(0.01)

    looked_at = threading.Thread(target=work, name="Ж, die längste von allen 𝄞")
    vars(looked_at)
    threads = [threading.Thread(target=work), looked_at, Described("described"), threading.Thread(target=renamed)]
    for thread in threads:
        thread.start()
        thread.join()
    print("|".join(thread.name for thread in threads))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
