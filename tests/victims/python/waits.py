"""Waits, in one function by one call of the kernel and in another by another, by turns."""

import select
import threading
import time


def by_sleep(seconds):
    time.sleep(seconds)  # at by_sleep


def by_select(seconds):
    select.select([], [], [], seconds)  # at by_select


def deep(depth, function, seconds):
    if depth:
        deep(depth - 1, function, seconds)  # at deep
    else:
        max([0], key=lambda _: function(seconds))  # at deepest


def by_turns():
    for turn in range(60):
        deep(turn % 4, by_sleep, 0.002 + turn % 5 * 0.002)
        deep(turn % 3, by_select, 0.002 + turn % 7 * 0.002)


def waits_long():
    threading.Event().wait(1.2)


waiter = threading.Thread(target=waits_long)
waiter.start()
by_turns()
waiter.join()
