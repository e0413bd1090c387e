"""One thread of a process that stands still while the others go on (ptrace(2))."""

import ctypes
import os

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class FrozenThread:
    """`with FrozenThread(id):` stops the thread. The thread that enters must leave, too."""

    def __init__(self, thread):
        self.thread = thread

    def _trace(self, request):
        if _libc.ptrace(request, self.thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of thread {self.thread}")

    def __enter__(self):
        self._trace(PTRACE_SEIZE)
        self._trace(PTRACE_INTERRUPT)
        os.waitpid(self.thread, WALL)
        return self

    def __exit__(self, *_):
        self._trace(PTRACE_DETACH)
