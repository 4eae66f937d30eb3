"""work.py UNIT: work of known shares, one unit in `one` and three in `three`, on the main thread and on another.

A line that a frame stands at while it waits for `spin` ends in `# at` and the frame's name.
"""
import sys
import threading
import time


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Töpfer:
    def one(self, unit):
        spin(unit)  # at one

    def three(self, unit):
        spin(3 * unit)  # at three

    def both(self, unit):
        def each(work):
            work(unit)  # at each

        # Through C, and back into Python.
        return list(map(each, [self.one, self.three]))  # at both


def generated(unit):
    yield Töpfer().both(unit)  # at generated


def deep(levels, unit):
    if levels:
        return deep(levels - 1, unit)  # at deep
    for _ in generated(unit):  # at deepest
        pass


def main(unit):
    deep(3, unit)  # at main


if __name__ == "__main__":
    thread = threading.Thread(target=main, args=(float(sys.argv[1]),))
    thread.start()
    main(float(sys.argv[1]))  # at <module>
    thread.join()
