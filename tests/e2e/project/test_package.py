"""The Debian package, its unit, its completions and manual pages."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

from lab import daemon as lab_daemon
from lab import traffic
from lab.daemon import ROOT, binary, mmb
from lab.netns import SERVER4, installed, run
from lab.wire import wire_config

UNIT = ROOT / "packaging" / "mmb.service"


def setting(name):
    """The value of a setting of the unit."""
    return re.search(rf"^{name}=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)[1]


def build(directory, version):
    """A package of this binary with a version."""
    environment = {**os.environ, "MMB_DEB_VERSION": version, "MMB_DEB_COMPRESSION": "gzip"}
    command = [ROOT / "tools" / "build-deb", binary(), directory]
    return pathlib.Path(run(*command, env=environment, timeout=600).stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return build(tmp_path_factory.mktemp("package"), "0.1.0-1")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_is_right_and_hardened(tmp_path):
    text = UNIT.read_text(encoding="utf-8").replace("/usr/bin/mmb", str(binary()))
    unit = tmp_path / "mmb.service"
    unit.write_text(text.replace("User=mmb", "User=root").replace("Group=mmb", "Group=root"), encoding="utf-8")
    done = run("systemd-analyze", "verify", "--man=no", unit)
    assert done.stderr == "", done.stderr
    # In tenths: 10 is a service without limits.
    run("systemd-analyze", "security", "--offline=yes", "--threshold=51", UNIT)


def test_the_unit_lets_commands_name_files():
    """systemd cannot look into the arguments of openat2, so RestrictSUIDSGID= lets it fail (ENOSYS)."""
    settings = [line.partition("=")[0] for line in UNIT.read_text(encoding="utf-8").splitlines()]
    assert "RestrictSUIDSGID" not in settings
    # A list of system calls would have to name it.
    assert "SystemCallFilter" not in settings


@pytest.mark.parametrize("driver", ["af-xdp", "af-packet"])
def test_the_rights_of_the_unit_are_enough(make_bench, driver):
    """The daemon as a user with the capabilities of the unit, and packets through it."""
    capabilities = [word.lower().removeprefix("cap_") for word in setting("AmbientCapabilities").split()]
    assert setting("CapabilityBoundingSet") == setting("AmbientCapabilities")
    # Without the capability, the limit lets threads be ahead of others.
    assert setting("LimitNICE") == "-10"
    kept = ",".join(["-all", *(f"+{word}" for word in capabilities)])
    options = ["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]
    options += [f"--{kind}={kept}" for kind in ("inh-caps", "ambient-caps", "bounding-set")]
    bench = make_bench()
    with tempfile.TemporaryDirectory(prefix="mmb-unit-") as directory:
        os.chown(directory, 65534, 65534)
        program = pathlib.Path(directory) / "mmb"
        shutil.copy(binary(), program)
        wrapper = ["setpriv", *options, "--"]
        daemon = lab_daemon.Daemon(bench.mbox, wire_config(driver), directory=directory, wrapper=wrapper)
        try:
            daemon.start()
            assert all(one["state"] == "up" for one in daemon.interfaces().values()), daemon.log()
            sent, received = traffic.bulk_transfer(bench.client, bench.server, SERVER4, size=1 << 16)
            assert sent == received
            assert daemon.stop() == 0
        finally:
            daemon.close()


def test_the_package_has_what_it_should(package):
    listed = run("dpkg-deb", "--contents", package).stdout
    for path in (
        "./usr/bin/mmb", "./lib/systemd/system/mmb.service", "./etc/mmb/mmb.conf", "./etc/default/mmb",
        "./usr/share/man/man1/mmb-run.1.gz", "./usr/share/man/man7/mmb-rules.7.gz",
        "./usr/share/bash-completion/completions/mmb", "./usr/share/zsh/vendor-completions/_mmb",
        "./usr/share/fish/vendor_completions.d/mmb.fish", "./usr/share/doc/mmb/docs/tutorial.md.gz",
    ):  # fmt: skip
        assert f" {path}\n" in listed, path
    control = run("dpkg-deb", "--field", package).stdout
    assert "Version: 0.1.0-1\n" in control and re.search(r"^Depends: .*libc6 \(>= ", control, re.MULTILINE)
    assert mmb("check", ROOT / "packaging" / "mmb.conf").returncode == 0


def test_bash_completes_with_the_script(tmp_path):
    """Commands, words of rules, and names of files."""
    (tmp_path / "mmb").symlink_to(binary())
    (tmp_path / "script").write_text(mmb("completion", "bash").stdout, encoding="utf-8")

    def completed(*words):
        line = " ".join(f"'{word}'" for word in words)
        text = f"source {tmp_path}/script; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _mmb; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "MMB_SOCKET": str(tmp_path / "none")}
        return subprocess.run(["bash", "-c", text], capture_output=True, text=True, env=environment).stdout.split()

    assert completed("mmb", "appl") == ["apply"]
    assert completed("mmb", "add", "tcp-dpo") == ["tcp-dport"]
    assert completed("mmb", "set", "timeout", "udp-r") == ["udp-replied"]
    assert completed("mmb", "completion", "") == ["bash", "zsh", "fish"]
    assert completed("mmb", "check", "") == []


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_manual_pages_are_readable(tmp_path):
    mmb("man", tmp_path)
    assert len(list(tmp_path.iterdir())) > 30
    for page, words in (("mmb-run.1", "--metrics"), ("mmb-rules.7", "tcp-dport")):
        done = run("man", "--warnings", "-l", tmp_path / page, env={**os.environ, "MANWIDTH": "100"})
        assert words in done.stdout and done.stderr == "", done.stderr


LONG = pytest.mark.skipif(not os.environ.get("E2E_LONG"), reason="needs a minute and the archive of Debian; E2E_LONG=1")


@LONG
def test_lintian_finds_no_errors(package):
    run(ROOT / "tools" / "install-packages", "lintian", timeout=600)
    # A package that Debian does not have closes no bugs there.
    hidden = ("--suppress-tags", "initial-upload-closes-no-bugs")
    run("lintian", "--allow-root", "--fail-on", "error,warning", *hidden, package, timeout=300)


@LONG
def test_installed_upgraded_removed_and_purged(package, root, tmp_path):
    """In a pristine Debian 12, without systemd: files, user, configuration files, and what stays."""
    run(ROOT / "tools" / "install-packages", "mmdebstrap", timeout=600)
    packages = (package, build(tmp_path, "0.1.0-2"))
    debian = pathlib.Path(tempfile.mkdtemp(prefix="mmb-debian-", dir="/var/tmp"))
    sources = [
        file
        for pattern in ("sources.list", "sources.list.d/*.list", "sources.list.d/*.sources")
        for file in pathlib.Path("/etc/apt").glob(pattern)
        if "bookworm" in file.read_text(encoding="utf-8")
    ]
    try:
        extra = ["--include=adduser,init-system-helpers,libbpf1,libbsd0,libnuma1,libpcap0.8,libxdp1"]
        run("mmdebstrap", "--quiet", "--mode=root", "--variant=apt", *extra, "bookworm", debian, *sources, timeout=900)
        for file in packages:
            shutil.copy(file, debian)
        (debian / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n", encoding="ascii")

        def inside(*words, **options):
            clean = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive")
            return run(installed("chroot"), debian, *clean, *words, **options)

        inside("dpkg", "-i", f"/{package.name}")
        assert inside("mmb", "--version").stdout.startswith("mmb 0.1.0")
        assert inside("mmb", "check", "/etc/mmb/mmb.conf").stdout == "/etc/mmb/mmb.conf: 0 rules, 0 interfaces: ok\n"
        assert inside("getent", "group", "mmb").stdout.startswith("mmb:")
        wanted = debian / "etc/systemd/system/multi-user.target.wants/mmb.service"
        assert wanted.is_symlink()

        conf = debian / "etc/mmb/mmb.conf"
        conf.write_text("interface add a null\n", encoding="ascii")
        inside("dpkg", "-i", f"/{packages[1].name}")
        assert inside("dpkg-query", "-W", "-f", "${Version}", "mmb").stdout == "0.1.0-2"
        assert conf.read_text(encoding="ascii") == "interface add a null\n"

        (debian / "var/lib/mmb").mkdir()
        inside("dpkg", "--remove", "mmb")
        assert conf.exists() and not (debian / "usr/bin/mmb").exists()
        inside("dpkg", "--purge", "mmb")
        for path in ("etc/mmb", "etc/default/mmb", "var/lib/mmb", "lib/systemd/system/mmb.service"):
            assert not (debian / path).exists(), path
        assert not wanted.is_symlink()
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", str(debian)], check=True)
