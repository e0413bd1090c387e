"""The mmb binary: the daemon under test, and its one-shot commands."""

import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile

from . import wait
from .netns import end, run

ROOT = pathlib.Path(__file__).resolve().parents[3]


def binary():
    """The path of mmb: $MMB_BIN, or the output of `make build`."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return pathlib.Path(os.environ.get("MMB_BIN", target / "release" / "mmb"))


def mmb(*words, **options):
    """Runs an mmb command that needs no daemon."""
    return run(binary(), *words, **options)


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=wait.PATIENCE)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def http_connection(daemon):
    """A connection to the control socket that stays open for many requests."""
    return _SocketConnection(daemon.socket)


class DidNotStart(AssertionError):
    """The daemon ended before it was ready; the text has its output."""


class Daemon:
    """`mmb run` in a namespace (or none), with its own directory for socket, configuration and log.

    wrapper: a command that runs the rest of its arguments.
    seed:    flows get the same workers and ports in each run; None: the daemon draws its secrets.
    """

    def __init__(self, namespace=None, config="", workers=1, directory=None, arguments=(), wrapper=(), seed=1):
        self.namespace = namespace
        self.wrapper = wrapper
        self.directory = pathlib.Path(directory or tempfile.mkdtemp(prefix="mmb-e2e-"))
        self.socket = self.directory / "control.sock"
        self.log_file = self.directory / "log"
        self.state_directory = self.directory / "state"
        self.arguments = ["run", "--socket", self.socket, "--state-dir", self.state_directory, "--workers", workers, *arguments]
        self.arguments += [] if seed is None else ["--seed", seed]
        if config is not None:
            self.config = self.directory / "mmb.conf"
            self.config.write_text(config, encoding="utf-8")
            self.arguments += ["-c", self.config]
        self.process = None
        self._notify = None

    def start(self):
        """Starts the daemon and waits for its readiness notification (sd_notify)."""
        notify_path = self.directory / "notify"
        notify_path.unlink(missing_ok=True)
        # Open for as long as the daemon may have something to say.
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(notify_path))
        # As systemd's: the daemon may have another user.
        notify_path.chmod(0o777)
        self.launch({"NOTIFY_SOCKET": str(notify_path)})
        self._await_ready()
        return self

    def launch(self, environment=None):
        """Starts the process without waiting for readiness."""
        command = [str(word) for word in (*self.wrapper, binary(), *self.arguments)]
        with self.log_file.open("ab") as log:
            options = {
                "stdin": subprocess.DEVNULL,
                "stdout": log,
                "stderr": log,
                "env": {**os.environ, **(environment or {})},
            }
            if self.namespace:
                self.process = self.namespace.popen(*command, **options)
            else:
                self.process = subprocess.Popen(command, **options)

    def _await_ready(self):
        ended = os.pidfd_open(self.process.pid)
        try:
            while True:
                ready = wait.readable([self._notify, ended], wait.PATIENCE)
                if self._notify in ready:
                    if b"READY=1" in self._notify.recv(4096).splitlines():
                        return
                elif ready:
                    raise DidNotStart(f"mmb ended with {self.process.wait()} before it was ready:\n{self.log()}")
                else:
                    raise wait.Late(f"mmb was not ready after {wait.PATIENCE:g} s:\n{self.log()}")
        finally:
            os.close(ended)

    def log(self):
        return self.log_file.read_text(encoding="utf-8", errors="replace") if self.log_file.exists() else ""

    def running(self):
        return self.process is not None and self.process.poll() is None

    def process_directory(self):
        """The kernel's files about the process."""
        return pathlib.Path("/proc") / str(self.process.pid)

    def status(self):
        """What the kernel tells of the process (proc_pid_status(5)), by field."""
        text = (self.process_directory() / "status").read_text(encoding="utf-8")
        return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)

    def memory(self, field="VmRSS"):
        """A size in the kernel's status of the process, in KiB; the resident memory if none is named."""
        return int(self.status()[field].split()[0])

    def thread(self, name):
        """The id of the thread with a name."""
        paths = (self.process_directory() / "task").glob("*/comm")
        (thread,) = (int(path.parent.name) for path in paths if path.read_text(encoding="utf-8").strip() == name)
        return thread

    def command(self, *words, **options):
        """Runs one command against this daemon, e.g. command("add", "all", "drop")."""
        return mmb(*words, "--socket", self.socket, **options)

    def line(self, text, **options):
        """Runs a command given as one line."""
        return self.command(*text.split(), **options)

    def json(self, *words):
        """The answer of a command with --json, decoded."""
        return json.loads(self.command(*words, "--json").stdout)

    def add(self, text):
        """Adds a rule and returns its index."""
        return self.json("add", *text.split())["index"]

    def rules(self):
        """The rules by index: {index: {"index", "text", "packets", "bytes"}}."""
        return {rule["index"]: rule for rule in self.json("list")["rules"]}

    def hits(self, index):
        return self.rules()[index]["packets"]

    def drops(self):
        """Dropped packets by reason, reasons that never occurred included."""
        return self.json("show", "drops")["drops"]

    def interfaces(self):
        return {interface["name"]: interface for interface in self.json("show", "interfaces")["interfaces"]}

    def nodes(self):
        """Packets of each node of the graph, over all workers: {name: packets}."""
        packets = {}
        for worker in self.json("show", "runtime")["workers"]:
            for name, node in worker["nodes"].items():
                packets[name] = packets.get(name, 0) + node["packets"]
        return packets

    def state(self):
        """The whole configuration and all counters, for comparison before and after a command."""
        interfaces = {
            name: (i["kind"], i["state"], i.get("wire"), i["enabled"]) for name, i in self.interfaces().items()
        }
        return self.json("list"), interfaces, self.json("show", "tables"), self.json("show", "config")

    def request(self, method, path, body=None):
        """A plain HTTP request on the control socket: (status, body as bytes)."""
        connection = _SocketConnection(self.socket)
        try:
            # A daemon that does not want the body answers and closes without reading it.
            with contextlib.suppress(BrokenPipeError):
                connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def send_signal(self, number):
        os.kill(self.process.pid, number)

    def stop(self, number=signal.SIGTERM):
        """Signals the daemon and waits for its end; returns the exit status (negative: killed by a signal)."""
        self.send_signal(number)
        return wait.for_end(self.process, "mmb")

    def close(self):
        """Stops the daemon in any state; for finalizers."""
        if self.process is not None:
            end(self.process)
        if self._notify is not None:
            self._notify.close()


PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


class FrozenThread:
    """`with FrozenThread(id):` stops the thread. The thread that enters must leave, too."""

    def __init__(self, thread):
        self.thread = thread

    def _trace(self, request):
        if _LIBC.ptrace(request, self.thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of thread {self.thread}")

    def __enter__(self):
        self._trace(PTRACE_SEIZE)
        self._trace(PTRACE_INTERRUPT)
        os.waitpid(self.thread, WALL)
        return self

    def __exit__(self, *_):
        self._trace(PTRACE_DETACH)


def children(process):
    """The processes below a process, with the words of their commands."""
    found = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])
            words = (stat.parent / "cmdline").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if parent == process:
            found[int(stat.parent.name)] = words[1].decode() if len(words) > 1 else ""
    return found


def functions_of(daemon):
    """The processes of functions of a daemon."""
    supervisors = [pid for pid, word in children(daemon.process.pid).items() if word == "function-supervisor"]
    return [pid for parent in supervisors for pid, word in children(parent).items() if word == "function-process"]


def report(daemon, name="f"):
    """What `show functions` reports of a function."""
    return next(one for one in daemon.json("show", "functions")["functions"] if one["name"] == name)["report"]


def process_of(daemon, name):
    return int(report(daemon, name)["process"].split(",")[0])
