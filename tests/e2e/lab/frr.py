"""FRR's zebra and bgpd in a namespace, with their sockets in a directory of their own."""

import json
import pathlib
import shutil
import subprocess
import tempfile

from . import wait
from .netns import end

LIBRARY = pathlib.Path("/usr/lib/frr")


class Speaker:
    """A BGP speaker. With `zebra`, what it learns goes into the namespace's kernel."""

    def __init__(self, namespace, config, zebra=True):
        self.namespace = namespace
        self._directory = tempfile.TemporaryDirectory(prefix="mmb-frr-")
        self.directory = pathlib.Path(self._directory.name)
        # The daemons become the user frr, and make their sockets as that.
        shutil.chown(self.directory, "frr", "frr")
        self._processes = []
        common = ["-A", "127.0.0.1", "-P", "0", "--vty_socket", self.directory]
        if zebra:
            self._start("zebra", "log stdout errors\n", *common, "-z", self.directory / "zserv.api")
            wait.until((self.directory / "zserv.api").exists, "zebra's socket")
        self._start("bgpd", config, *common, "-z", self.directory / "zserv.api", *([] if zebra else ["-Z"]))
        wait.until((self.directory / "bgpd.vty").exists, "bgpd's socket")

    def _start(self, program, config, *options):
        file = self.directory / f"{program}.conf"
        file.write_text(config, encoding="utf-8")
        log = (self.directory / f"{program}.log").open("wb")
        words = ["-f", file, "-i", self.directory / f"{program}.pid", *options]
        self._processes.append(self.namespace.popen(LIBRARY / program, *words, stdout=log, stderr=subprocess.STDOUT))
        log.close()

    def show(self, words):
        """A `show` command of bgpd, decoded."""
        options = ["--vty_socket", self.directory, "-d", "bgpd", "-c", f"show {words} json"]
        return json.loads(self.namespace.run("vtysh", *options).stdout)

    def learned(self, peer):
        """Prefixes accepted from a peer, or None while it is not there."""
        peers = self.show("bgp ipv4 unicast summary").get("peers", {})
        found = peers.get(peer)
        return found["pfxRcd"] if found and found["state"] == "Established" else None

    def close(self):
        for process in reversed(self._processes):
            end(process)
        self._directory.cleanup()
