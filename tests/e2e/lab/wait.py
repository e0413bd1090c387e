"""Waiting on events, with a deadline."""

import os
import select
import time

PATIENCE = 20.0


class Late(AssertionError):
    """An event did not happen in time."""


def readable(handles, seconds):
    """The readable ones of `handles`, as soon as there is one; none after `seconds`."""
    poller = select.poll()
    by_number = {}
    for handle in handles:
        number = handle if isinstance(handle, int) else handle.fileno()
        by_number[number] = handle
        poller.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poller.poll(max(0.0, seconds) * 1000)]


def until(condition, what, patience=PATIENCE):
    """Polls until the result is true and returns it; for state that gives no events."""
    deadline = time.monotonic() + patience
    pause = 0.002
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise Late(f"waited {patience:g} s for {what}")
        select.select([], [], [], pause)
        pause = min(pause * 1.5, 0.05)
    return answer


def for_end(process, what, patience=PATIENCE):
    """Waits until a process ends and returns its exit status."""
    handle = os.pidfd_open(process.pid)
    try:
        if not readable([handle], patience):
            raise Late(f"waited {patience:g} s for {what} to end")
    finally:
        os.close(handle)
    return process.wait()
