"""Rules, counters and files through the command line."""

import pytest

from lab import frames
from lab.daemon import mmb
from lab.frames import IP, TCP, UDP
from lab.wire import wire_config


@pytest.fixture
def daemon(shared_wire):
    """The module's daemon with its wire and no rules."""
    shared_wire.daemon.command("flush")
    return shared_wire.daemon


def udp(port, **fields):
    return frames.ether() / frames.ip4(**fields) / UDP(sport=1, dport=port) / frames.payload()


def written(tmp_path, text, name="policy"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_indexes_stay_when_another_rule_is_deleted(daemon):
    indexes = [daemon.add(f"udp-dport {port} drop") for port in (1, 2, 3)]
    assert indexes == [1, 2, 3]
    daemon.command("del", 2)
    assert [(index, rule["text"]) for index, rule in daemon.rules().items()] == [
        (1, "add udp-dport 1 drop"),
        (3, "add udp-dport 3 drop"),
    ]
    assert daemon.add("udp-dport 4 drop") == 4
    daemon.command("flush")
    assert daemon.rules() == {}


def test_list_shows_index_text_packets_and_bytes(wire):
    index = wire.daemon.add("udp-dport 2 mod ip-ttl 3")
    packet = udp(2)
    wire.cross(packet, packet, udp(3))
    rule = wire.daemon.rules()[index]
    assert (rule["packets"], rule["bytes"]) == (2, 2 * len(packet))
    (line,) = [line for line in wire.daemon.command("list").stdout.splitlines() if "udp-dport" in line]
    for expected in (str(index), "add udp-dport 2 mod ip-ttl 3", "2", str(2 * len(packet))):
        assert expected in line


@pytest.mark.parametrize("more", [None, "add-stateful udp-dport 77 accept"])
def test_what_rules_decided_adds_up_to_the_drops(wire, more):
    """On the path without sessions and on that with sessions, each packet counts for one rule."""
    for rule in ("udp-dport 1 drop", "udp-dport 1-9 drop", "ip-ttl 9 block", "udp-dport 5 accept"):
        wire.daemon.add(rule)
    if more:
        wire.daemon.line(more)
    before = wire.daemon.drops()["rule"]
    wire.cross(udp(1), udp(1), udp(2), udp(5), udp(5, ttl=9), udp(10))
    decided = {index: rule["decided"] for index, rule in wire.daemon.rules().items() if index < 5}
    assert decided == {1: 2, 2: 1, 3: 1, 4: 1}
    assert wire.daemon.drops()["rule"] - before == 4


def test_rules_are_listed_by_the_packets_they_can_match(daemon):
    for rule in ("udp-dport 1 drop", "tcp-dport 80 drop name web", "all mod ip-ttl 3"):
        daemon.add(rule)
    listed = [line.split()[0] for line in daemon.line("list tcp-dport 80").stdout.splitlines()[1:]]
    assert listed == ["2", "3"]
    daemon.command("del", "web")
    comment = "add ip-ttl 1 drop comment \"the end of traceroute\""
    daemon.command("add", "ip-ttl", "1", "drop", "comment", "the end of traceroute")
    assert comment in daemon.command("show", "config").stdout.splitlines()


def test_socket_before_or_behind_the_command(daemon):
    daemon.add("udp-dport 9 drop")
    for words in (["--socket", daemon.socket, "list"], ["list", "--socket", daemon.socket]):
        assert "udp-dport 9" in mmb(*words).stdout
    assert "udp-dport 9" in mmb("list", env={"MMB_SOCKET": str(daemon.socket)}).stdout


def test_add_stateless_is_add(wire):
    wire.daemon.line("add-stateless udp-dport 2 drop")
    assert not wire.passes(udp(2))


@pytest.mark.parametrize("what", ["tables", "interfaces", "runtime", "drops", "fields", "version", "config"])
def test_show(daemon, what):
    daemon.add("udp-dport 2 drop")
    assert daemon.command("show", what).stdout.strip()
    assert daemon.json("show", what)


DESIGNED_FIELDS = """
    in out net-proto ip-ver ip-ihl ip-dscp ip-ecn ip-non-ect ip-ect0 ip-ect1 ip-ce ip-len ip-id ip-flags ip-res
    ip-df ip-mf ip-frag-offset ip-ttl ip-proto ip-checksum ip-saddr ip-daddr ip-payload ip6-ver ip6-traffic-class
    ip6-flow-label ip6-len ip6-next ip6-hop-limit ip6-saddr ip6-daddr ip6-payload ip6-eh ip6-eh-hopbyhop
    ip6-eh-routing ip6-eh-fragment ip6-eh-esp ip6-eh-ah ip6-eh-destopt ip6-eh-mobility ip6-eh-hip ip6-eh-shim6
    icmp-type icmp-code icmp-checksum icmp-payload udp-sport udp-dport udp-len udp-checksum udp-payload tcp-sport
    tcp-dport tcp-seq-num tcp-ack-num tcp-offset tcp-reserved tcp-urg-ptr tcp-flags tcp-cwr tcp-ece tcp-urg tcp-ack
    tcp-push tcp-rst tcp-syn tcp-fin tcp-win tcp-checksum tcp-payload tcp-opt-mss tcp-opt-wscale tcp-opt-sackp
    tcp-opt-sack tcp-opt-timestamp tcp-opt-fast-open tcp-opt-mptcp
""".split()


def test_show_fields_lists_the_language(daemon):
    names = {field["name"] for field in daemon.json("show", "fields")["fields"]}
    assert names >= set(DESIGNED_FIELDS)


def test_runtime_counts_packets_per_node(wire):
    before = wire.daemon.nodes()
    wire.daemon.add("udp-dport 2 drop")
    wire.cross(*[udp(2)] * 10, *[udp(3)] * 5)
    after = wire.daemon.nodes()
    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert grown["ip4-input"] >= 15 and grown["classify"] >= 15 and grown["drop"] == 10


def test_apply_keeps_the_counters_of_rules_that_stay(wire, tmp_path):
    wire.daemon.add("udp-dport 1 drop")
    wire.daemon.add("udp-dport 2 mod ip-ttl 9")
    wire.cross(udp(1), udp(2), udp(2))
    new = wire_config(wire.driver) + "add udp-dport 2 mod ip-ttl 9\nadd udp-dport 3 drop\n"
    wire.daemon.command("apply", written(tmp_path, new))
    assert [(rule["text"], rule["packets"]) for rule in wire.daemon.json("list")["rules"]] == [
        ("add udp-dport 2 mod ip-ttl 9", 2),
        ("add udp-dport 3 drop", 0),
    ]
    packet = udp(2)
    assert wire.cross(packet, udp(3)) == [frames.changed(packet, IP, ttl=9)]


def test_apply_of_rules_alone_keeps_interfaces(wire, tmp_path):
    wire.daemon.command("apply", written(tmp_path, "# rules only\nadd udp-dport 1 drop\n\n"))
    assert set(wire.daemon.interfaces()) == {"left", "right"}
    assert not wire.passes(udp(1))


def test_apply_is_all_or_nothing(wire, tmp_path):
    wire.daemon.add("udp-dport 1 drop")
    wire.cross(udp(1))
    before = wire.daemon.state()
    bad = wire_config(wire.driver) + "add udp-dport 5 drop\nadd udp-dprot 6 drop\n"
    refused = wire.daemon.command("apply", written(tmp_path, bad), check=False)
    assert refused.returncode != 0
    assert "udp-dprot" in refused.stderr and "^" in refused.stderr and "udp-dport" in refused.stderr
    assert wire.daemon.state() == before
    assert not wire.passes(udp(1)) and wire.passes(udp(5))


def test_apply_whose_port_cannot_be_opened_changes_nothing(wire, tmp_path):
    wire.daemon.add("udp-dport 1 drop")
    before = wire.daemon.state()
    bad = f"interface add other {wire.driver} nowhere0\nadd udp-dport 5 drop\n"
    refused = wire.daemon.command("apply", written(tmp_path, bad), check=False)
    assert refused.returncode != 0 and "nowhere0" in refused.stderr
    assert wire.daemon.state() == before
    assert wire.passes(udp(5)) and not wire.passes(udp(1))


def test_diff_says_what_apply_would_change_and_changes_nothing(daemon, tmp_path):
    daemon.add("udp-dport 1 drop")
    daemon.add("udp-dport 2 drop")
    path = written(tmp_path, "add udp-dport 2 drop\nadd udp-dport 3 drop\n")
    before = daemon.state()
    lines = daemon.command("diff", path, check=False).stdout.splitlines()
    assert [line for line in lines if line[:1] in "+-"] == ["- add udp-dport 1 drop", "+ add udp-dport 3 drop"]
    assert daemon.state() == before
    daemon.command("apply", path)
    assert daemon.command("diff", path).stdout.strip() == ""


def test_the_configuration_shown_gives_the_same_configuration(daemon, tmp_path):
    for rule in (
        "ip-saddr 10.0.0.0/8 drop",
        "! tcp-syn ip-proto tcp accept",
        "in left udp-dport != 53 mod out right mod ip-dscp 46",
        # Not `all`: it would count the multicast reports that the kernels of the ends send.
        "ip-proto udp drop 0.5",
    ):
        daemon.add(rule)
    before = daemon.state()
    path = written(tmp_path, daemon.command("show", "config").stdout)
    daemon.command("apply", path)
    assert daemon.state() == before


def test_comments_of_a_file_are_saved(daemon, tmp_path):
    text = "# Nobody needs UDP.\nadd ip-proto udp drop  # not even DNS\n\n# The rest.\nadd ip-ttl 1 drop\n# The end.\n"
    daemon.command("apply", written(tmp_path, text))
    saved = tmp_path / "saved"
    daemon.command("save", saved)
    assert saved.read_text(encoding="utf-8").endswith(text)
    daemon.command("apply", saved)
    assert daemon.command("show", "config").stdout == saved.read_text(encoding="utf-8")
    # A comment goes with its line.
    daemon.command("del", "1")
    assert daemon.command("show", "config").stdout.endswith("\n\n# The rest.\nadd ip-ttl 1 drop\n# The end.\n")
    assert "UDP" not in daemon.command("show", "config").stdout


def test_hexadecimal_names_and_words_in_place_of_signs(wire):
    wire.daemon.line("add ip-proto ne udp udp-dport 0x2 drop", check=False)
    wire.daemon.command("flush")
    wire.daemon.add("ip-proto ne udp drop")
    wire.daemon.add("udp-dport x35 drop")
    tcp = frames.ether() / frames.ip4() / TCP() / frames.payload()
    kept = udp(0x36)
    assert wire.cross(tcp, udp(0x35), kept) == [bytes(kept)]


def test_commands_piped_in_one_by_one(daemon):
    done = mmb("--socket", daemon.socket, input="add udp-dport 1 drop\n\n# a comment\nadd udp-dport 2 drop\nlist\n")
    assert "udp-dport 2" in done.stdout
    assert len(daemon.rules()) == 2


@pytest.mark.parametrize(
    "rule",
    [
        "tcp-dport 80 mod tcp-dport 443",
        "all mod ip-ecn 0",
        "ip-proto tcp drop",
        "ip-proto 132 drop",
        "! ip-proto tcp ip-saddr != 10.0.0.0/8 drop 0.01",
        "net-proto ip6 ip6-daddr 2001:db8::/32 accept",
    ],
)
def test_rules_that_work_as_written(daemon, rule):
    index = daemon.add(rule)
    assert daemon.rules()[index]["text"].split()[-1] == rule.split()[-1]
