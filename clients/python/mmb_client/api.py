"""The documents and operations of mmb's API. Written by tools/generate-client: do not edit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict

from .transport import Transport


class ApplyReply(TypedDict):
    """The result of applying a file."""

    # Rules that were added.
    added: int

    # A sentence on the change.
    done: str

    # Interfaces of the new configuration.
    interfaces: int

    # Rules that were kept, with their counters.
    kept: int

    # Rules that were removed.
    removed: int

    # The lines that were removed: all that are not rules, and then the first 20 rules.
    removed_lines: NotRequired[list[str]]

    # Rules of the new configuration.
    rules: int

    # Rules that never do what they say: sentences.
    warnings: NotRequired[list[str]]


class BrokerEntry(TypedDict):
    """A broker."""

    # The chain that requests pass.
    chain: str

    # Counters since the broker was added, by name; `clients` and `servers` are the connections now.
    counters: dict[str, int]

    # Why it does not listen; absent if it does.
    down: NotRequired[str | None]

    # The address and port on which it listens; absent if it is transparent only.
    listen: NotRequired[str | None]

    # Its name.
    name: str

    # Limits and times in seconds that are not the defaults, by their keywords.
    options: dict[str, int]

    # Whether its process is being started; clients wait meanwhile.
    starting: NotRequired[bool]

    # Whether it gets the connections that rules with the target `broker` select.
    transparent: NotRequired[bool]


class BrokerList(TypedDict):
    """`show brokers`."""

    # The brokers, in the order in which they were added.
    brokers: list[BrokerEntry]


class CapabilityEntry(TypedDict):
    """A capability of a device."""

    # The query to the driver and its answer.
    detail: str

    # Name of the capability.
    name: str

    # Whether the device supports it.
    supported: bool


class ChainEntry(TypedDict):
    """A service chain."""

    # The functions, as in `chain add`.
    body: str

    # Bytes of scratchpad that the chain needs.
    bytes: int

    # Name of the chain.
    name: str

    # The paths through the chain, one for each choice of outputs.
    paths: list[PathEntry]

    # Indexes of the rules with this chain.
    rules: list[int]

    # The traffic that the chain processes: matches that must all hold; empty: all traffic.
    traffic: str

    # Whether its functions translate addresses or ports.
    translates: bool


class ChainList(TypedDict):
    """`show chains`."""

    # The chains, in the order they were added.
    chains: list[ChainEntry]

    # Cost of the functions that are in a chain.
    functions: list[CostEntry]

    # The layout of the scratchpad that every session of a chain has.
    scratchpad: ScratchpadEntry


class CheckReply(TypedDict):
    """A file without errors."""

    # Number of interfaces.
    interfaces: int

    # Number of rules.
    rules: int

    # Rules that never do what they say: sentences.
    warnings: NotRequired[list[str]]


class ClearReply(TypedDict):
    """`clear connections`."""

    # Sessions that were ended.
    cleared: int

    # A sentence on the change.
    done: str


class CommandReply(TypedDict):
    """The reply to a command."""

    # The document of the matching `GET` endpoint, or a [`Done`].
    json: NotRequired[dict[str, Any] | None]

    # Aligned columns, or a sentence. Ends with a line feed unless it is empty.
    text: NotRequired[str | None]


class CommandRequest(TypedDict):
    """A line of the language to run."""

    # The parts of the reply to fill.
    format: NotRequired[Format]

    # The line, with or without the leading `mmb`.
    line: str


class ConfigEntry(TypedDict):
    """A configuration as text."""

    # The lines of a file with this configuration.
    config: str

    # The file that the daemon was started with.
    file: NotRequired[str | None]


class ConnectionEntry(TypedDict):
    """A session."""

    # Seconds since the session was opened.
    age_seconds: int

    # The service chain of the session.
    chain: NotRequired[str | None]

    # Seconds until the session ends if no packet arrives.
    expires_seconds: int

    # Direction of the packet that opened the session.
    forward: FlowEntry

    # What functions of the chain say about the session, by their names.
    functions: NotRequired[dict[str, str]]

    # Names the session until it ends: `capture session 0.12.345`.
    id: NotRequired[str]

    # Seconds since the last packet.
    idle_seconds: int

    # Name of the transport protocol, or its number.
    protocol: str

    # The drop reason if a function refused the session: its packets are dropped before the chain.
    refused: NotRequired[str | None]

    # Direction of replies.
    reverse: FlowEntry

    # Indexes of the stateful rules of the session.
    rules: list[int]

    # State of the connection tracker.
    state: str

    # Whether addresses or ports are translated, so that one direction is not the reverse of the other.
    translated: bool

    # Distinguishes the session from others that use the same slot of the worker's table.
    uid: NotRequired[int]

    # The worker that owns the session.
    worker: int


class ConnectionList(TypedDict):
    """`show connections`, sent while it is read, one connection per line."""

    # The sessions, in no order. Sessions that open or end meanwhile may be missing; all others appear
    # once.
    connections: list[ConnectionEntry]


class CostEntry(TypedDict):
    """Counters of an instance over all chains."""

    # Packets in whose place the function sent others with the edited bytes, or none.
    consumed: NotRequired[int]

    # Packets dropped.
    drops: int

    # Packets that the function held.
    held: NotRequired[int]

    # Name of the instance.
    name: str

    # Packets processed.
    packets: int

    # Dropped packets with which the function refused or ended their session.
    refused: int

    # Held packets that went on. Others wait or were dropped.
    released: NotRequired[int]

    # Clock ticks (TSC) spent.
    ticks: int

    # Clock ticks per packet; 0 without packets.
    ticks_per_packet: float


class DiagnosticEntry(TypedDict):
    """One error in a line or a file."""

    # Column of the first character of the wrong word, in characters from 1.
    column: int

    # Offset of the end of the wrong word, in bytes.
    end: int

    # How to correct it.
    help: NotRequired[str | None]

    # Line number, from 1; 0 for a text of one line.
    line: int

    # The error, in one sentence.
    message: str

    # Offset of the wrong word in the line, in bytes.
    start: int


class DiffReply(TypedDict):
    """The changes that applying a file would make."""

    # Lines that would be added.
    added: list[str]

    # Lines that would be removed.
    removed: list[str]

    # Whether the order of the remaining rules would change, and with it the order of their edits.
    reordered: bool


class DomainEntry(TypedDict):
    """A domain: functions in processes that share memory."""

    # Buffers for packets.
    buffers: int

    # The functions of the domain.
    functions: list[str]

    # `private` or `zero-copy`.
    kind: str

    # Name of the domain.
    name: str

    # What becomes of packets while the process of a function is not there: `drop` or `pass`.
    on_failure: str


class DomainList(TypedDict):
    """`show domains`."""

    # The domains, in the order in which they were added.
    domains: list[DomainStatus]


class DomainStatus(TypedDict):
    """A domain: memory that functions in processes share."""

    # Buffers for packets.
    buffers: int

    # The functions of the domain.
    functions: list[ProcessEntry]

    # `private`: packets are copied into the memory of the domain; `zero-copy`: functions that change no
    # packet read packets where they are.
    kind: str

    # Its name.
    name: str

    # What becomes of packets while the process of a function is not there: `drop` or `pass`.
    on_failure: str

    # Buffers that are in use.
    used: int


class Done(TypedDict):
    """A change that was made."""

    # A sentence on the change.
    done: str

    # Index of the rule, if the change is about one.
    index: NotRequired[int | None]

    # What the change does not do as it seems: sentences.
    warnings: NotRequired[list[str]]


class DropList(TypedDict):
    """`show drops`."""

    # Dropped packets by reason; all reasons.
    drops: dict[str, int]

    # Packets forwarded unedited because they could not be edited, by reason; all reasons.
    unedited: NotRequired[dict[str, int]]


class ElementEntry(TypedDict):
    """An element of a set."""

    # Why it is there.
    comment: NotRequired[str | None]

    # The address, prefix, port or range of ports, or address with ports.
    element: str

    # Seconds until it is removed; absent if it stays.
    expires: NotRequired[int | None]

    # Whether the set's file lists it.
    from_file: bool


class ElementRequest(TypedDict):
    """Elements to add or to remove."""

    # Why they are there.
    comment: NotRequired[str | None]

    # Addresses, prefixes, ports or ranges of ports; at least one.
    elements: list[str]

    # Seconds that they stay; the time of the set if absent.
    timeout: NotRequired[int | None]


class ErrorReply(TypedDict):
    """A request that was refused and changed nothing."""

    # The errors in the text of the request, at most 20.
    diagnostics: NotRequired[list[DiagnosticEntry]]

    # One sentence; for a file with several errors, on the first of them.
    error: str


class FastInterfaceEntry(TypedDict):
    """Use of an interface by the fast path."""

    # Whether offloaded flows can be sent on it.
    egress: bool

    # Whether flows received on it can be offloaded.
    ingress: bool

    # Name of the interface.
    name: str

    # The program that forwards its flows: `xdp` or `tc`. None: its kind has none.
    program: NotRequired[str | None]

    # Why one of them is not possible.
    reason: NotRequired[str | None]


class FastPathReply(TypedDict):
    """`show fast-path`: flows that the kernel forwards."""

    # Whether flows are offloaded: the fast path is enabled, an interface supports it, and the rules allow
    # it.
    active: bool

    # Bytes of the frames of these packets.
    bytes: int

    # Whether `set fast-path` is not `off`.
    enabled: bool

    # Entries in the kernel.
    entries: int

    # Flows offloaded since the start.
    installed: int

    # The interfaces, in the order they were added.
    interfaces: list[FastInterfaceEntry]

    # Key of an entry while the fast path is active. `flow`: addresses and ports. `pair`: two addresses
    # and a protocol; also ports where a rule may match ports. `destination`: the destination address.
    key: NotRequired[str | None]

    # Value of `set fast-path`: `off`, `auto`, `xdp` or `tc`.
    mode: str

    # Why the configuration does not allow to offload flows, as a sentence.
    obstacle: NotRequired[str | None]

    # Packets that the kernel forwarded; each segment of a large buffer is one.
    packets: int

    # Flows that were not offloaded, by reason; all reasons.
    refused: dict[str, int]


class FibList(TypedDict):
    """`show fib`, sent while it is read, one route per line."""

    # Whether there are more routes than the limit.
    more: NotRequired[bool]

    # The routes, ordered by table, by family (IPv4 first) and by prefix. Routes that change meanwhile may
    # be missing; all others appear once.
    routes: list[RouteEntry]


class FieldEntry(TypedDict):
    """A field of the language."""

    # Width in bits; 0 if it varies.
    bits: int

    # An example of a match.
    example: str

    # Meaning of the field.
    help: str

    # Whether rules can match the field.
    match: bool

    # The conditions of matches on the field, or `no: ` and the reason.
    matched: NotRequired[str]

    # Whether `mod` can write the field.
    mod: bool

    # Name of the field.
    name: str

    # Protocol of the field.
    protocol: str

    # The targets that write the field, or `no: ` and the reason.
    written: NotRequired[str]


class FieldList(TypedDict):
    """`show fields`."""

    # The fields of the language.
    fields: list[FieldEntry]


# One direction of a session, as its packets are received, before any translation.
FlowEntry = TypedDict("FlowEntry", {
    # Bytes of the frames of these packets.
    "bytes": "int",
    # Destination address.
    "destination": "str",
    # Destination port. For ICMP queries the type, for replies the identifier. Absent without ports.
    "destination_port": "NotRequired[int | None]",
    # The interface that receives its packets, once there was one.
    "in": "NotRequired[str | None]",
    # Packets.
    "packets": "int",
    # Source address.
    "source": "str",
    # Source port. For ICMP queries the identifier, for replies the type of the query. Absent without
    # ports.
    "source_port": "NotRequired[int | None]",
})


# The parts of a command's reply that are filled.
Format = Literal["text", "json", "both"]


class ForwardEntry(TypedDict):
    """A port forward."""

    # Inside address.
    inside: str

    # Inside port.
    inside_port: int

    # Outside address.
    outside: str

    # Outside port.
    outside_port: int

    # `tcp` or `udp`.
    protocol: str


class FrameReply(TypedDict):
    """What the rules say about a frame that was not received."""

    # Index of the rule that decides whether it goes on; absent if no rule decides.
    decider: NotRequired[int | None]

    # Bytes of the frame.
    length: int

    # Number of further rules, which do not match.
    more_rules: int

    # The interface by which rules with `out` see it leave; absent if it is not known.
    out: NotRequired[str | None]

    # The drop reason that tells why the headers are malformed; absent if they are not. No rule applies
    # then.
    parse_error: NotRequired[str | None]

    # The rules that match, match by match, and then the first ones that do not.
    rules: list[TraceWhy]

    # Addresses, ports and flags, in one line.
    summary: str


class FunctionEntry(TypedDict):
    """An instance of a network function."""

    # Packets in whose place the function sent others with the edited bytes, or none.
    consumed: NotRequired[int]

    # Packets dropped.
    drops: int

    # Packets that the function held.
    held: NotRequired[int]

    # Name of the instance.
    name: str

    # Packets processed.
    packets: int

    # Dropped packets with which the function refused or ended their session.
    refused: int

    # Held packets that went on. Others wait or were dropped.
    released: NotRequired[int]

    # Clock ticks (TSC) spent.
    ticks: int

    # Clock ticks per packet; 0 without packets.
    ticks_per_packet: float

    # The arguments of `nf add`.
    arguments: list[str]

    # Bytes of state for each key.
    bytes: int

    # The chains with this instance.
    chains: list[str]

    # The domain in whose memory the function runs as a process of its own; empty: it runs in the workers.
    domain: NotRequired[str]

    # Key of its state: `session`, or all sessions of a `source`, a `destination` or a `pair` of
    # addresses.
    key: str

    # What that process does while there are no packets: `poll`, `event` or `adaptive`; empty without one.
    mode: NotRequired[str]

    # The processor on which that process runs.
    processor: NotRequired[int | None]

    # Values that the function reports.
    report: dict[str, str]

    stream: NotRequired[StreamCounts | None]

    # The traffic that the function accepts: matches of the language; empty: all traffic.
    traffic: str

    # Type of the function.
    type: str


class FunctionList(TypedDict):
    """`show functions`."""

    # The domains of functions in processes.
    domains: NotRequired[list[DomainEntry]]

    # The instances, in the order they were added.
    functions: list[FunctionEntry]

    # All types.
    types: list[TypeEntry]


class HistoryList(TypedDict):
    """`history`: the changes that are kept, the latest first."""

    pending: NotRequired[PendingEntry | None]

    # The revisions. The first one is in force.
    revisions: list[RevisionEntry]


class InterfaceEntry(TypedDict):
    """An interface. Numbers are 0 while the interface is down."""

    # Capabilities of the device. Only `show interfaces verbose` asks the driver for them.
    capabilities: NotRequired[list[CapabilityEntry]]

    # Device that the driver opened.
    device: str

    # Driver; empty while the interface is down.
    driver: str

    # Packets received here and dropped, by reason; only reasons that have occurred.
    drops: NotRequired[dict[str, int]]

    # Whether rules apply to packets received here.
    enabled: bool

    # Kind and device, as in `interface add`.
    kind: str

    # Whether the link is up.
    link: bool

    # Ethernet address.
    mac: str

    # Largest IP packet, in bytes.
    mtu: int

    # Name of the interface.
    name: str

    # Remarks on the configuration of the device.
    notes: list[str]

    # Why the interface is down.
    reason: NotRequired[str | None]

    routed: NotRequired[RoutedEntry | None]

    # Bytes received.
    rx_bytes: int

    # Packets received with errors.
    rx_errors: int

    # Packets that the device dropped because it had no free buffer.
    rx_missed: int

    # Packets received.
    rx_packets: int

    # Whether the device is open.
    state: InterfaceState

    # Bytes sent.
    tx_bytes: int

    # Packets that could not be sent.
    tx_errors: int

    # Packets that left as a part of the large frame of a packet before them: `tx_packets` counts that
    # frame once.
    tx_merged: NotRequired[int]

    # Packets sent.
    tx_packets: int

    # The interface at the other end of the wire.
    wire: NotRequired[str | None]


class InterfaceList(TypedDict):
    """`show interfaces`, in the order they were added."""

    # The interfaces.
    interfaces: list[InterfaceEntry]


# State of an interface.
InterfaceState = Literal["up", "down"]


class LimitedEntry(TypedDict):
    """A source address that has reached its limit of sessions."""

    # The source address.
    address: str

    # The limit.
    limit: int

    # Seconds since the limit was last reached.
    seconds_ago: int


class NatReply(TypedDict):
    """`show nat`."""

    # The forwards.
    forwards: list[ForwardEntry]

    # The pools.
    pools: list[PoolEntry]


class NeighborEntry(TypedDict):
    """A host or router on a connected network, from the kernel's neighbour table."""

    # IP address.
    address: str

    # The routed interface of mmb.
    interface: NotRequired[str | None]

    # The kernel interface.
    kernel_interface: str

    # Ethernet address, if it is known.
    mac: NotRequired[str | None]

    # State in the kernel: `reachable`, `stale`, `incomplete`, `failed`, `permanent`, ….
    state: str


class NeighborList(TypedDict):
    """`show neighbors`, ordered by address."""

    # The neighbours.
    neighbors: list[NeighborEntry]


class NextHopEntry(TypedDict):
    """A next hop of a route."""

    # The next router; absent if the destination is on a connected network.
    gateway: NotRequired[str | None]

    # The routed interface of mmb; absent if packets are left to the kernel.
    interface: NotRequired[str | None]

    # The kernel interface.
    kernel_interface: str

    # Ethernet address of the neighbour, if it is known.
    mac: NotRequired[str | None]

    # Largest IP packet, in bytes.
    mtu: int

    # `forward`; `resolve`: the kernel must resolve the neighbour first; `failed`: the neighbour does not
    # answer; `punt`: left to the kernel; `dead`: the link is down.
    state: str

    # Relative share of the flows.
    weight: int


class NodeEntry(TypedDict):
    """A node of a worker's graph."""

    # Packets processed.
    packets: int

    # Packets per vector; 0 without vectors.
    packets_per_vector: float

    # Clock ticks (TSC) spent.
    ticks: int

    # Clock ticks per packet; 0 without packets.
    ticks_per_packet: float

    # Vectors processed.
    vectors: int


class PathEntry(TypedDict):
    """One path through a chain."""

    # Number of functions after a function `flow`. They have their bytes in its own sessions.
    after_flow: NotRequired[int]

    # Bytes of scratchpad that the functions before it need.
    bytes: int

    # Whether packets are dropped at the end of the path.
    drops: bool

    # The functions, in the order in which packets of the opener pass them.
    functions: list[str]

    # Bytes of these that the functions or the engine use; the others are holes.
    used: int


class PendingEntry(TypedDict):
    """A change that is taken back unless it is confirmed."""

    # The revision that comes back.
    revision: int

    # Seconds until then.
    seconds: int


class PoolEntry(TypedDict):
    """A NAT pool and its use."""

    # First and last address; empty while the interface that the pool follows has none.
    addresses: list[str]

    # Ports in a block, if ports are allocated in blocks.
    block: NotRequired[int | None]

    # Blocks of the pool; 0 without blocks.
    blocks_total: int

    # Blocks in use.
    blocks_used: int

    # How often no port was free.
    exhausted: int

    # Filtering behavior for packets from outside (RFC 4787).
    filtering: str

    # Inside hosts with a mapping or a block.
    hosts: int

    # The interface whose address the pool has, if it follows one.
    interface: NotRequired[str | None]

    # Maximum number of sessions of a host, if there is a limit.
    limit: NotRequired[int | None]

    # How often a host had reached its limit.
    limited: int

    # Name of the pool.
    name: str

    # First and last port.
    ports: list[int]

    # Ports of the pool, for each protocol.
    ports_total: int

    # Ports in use, by protocol: `udp`, `tcp`, `icmp` (identifiers).
    ports_used: dict[str, int]

    # Sessions opened by inside hosts.
    sessions: int


class ProcessEntry(TypedDict):
    """The process of a function."""

    # Buffers in use for the function.
    buffers: int

    # Processor time of the process, in seconds.
    cpu_seconds: float

    # Descriptors that can be sent now.
    credits: int

    # Descriptors that were sent to the function.
    descriptors: int

    # Packets for which there was no room.
    full: int

    # Name of the function.
    function: str

    # Packets that the function has read where they were, without a copy.
    in_place: int

    # Why the last process ended, or has not started; absent: nothing has failed.
    last_failure: NotRequired[str | None]

    # Packets that were in a process when it ended.
    lost: int

    # What the process does while there are no packets: `poll`, `event` or `adaptive`.
    mode: str

    # Number of the process; absent: it does not run now.
    process: NotRequired[int | None]

    # The processor on which it runs; absent: any.
    processor: NotRequired[int | None]

    # Descriptors from the process that were refused.
    refused: int

    # How often another process was started.
    restarts: int

    # Descriptors that wait for the workers.
    returned: int

    # Slots of the rings in one direction, of all workers.
    slots: int

    # Descriptors that wait for the process.
    waiting: int

    # How often a sleeping process was woken up.
    wakeups: int


class PuntCounts(TypedDict):
    """Packets handed to the kernel, by class."""

    # Other IP packets to a unicast address.
    local: int

    # ARP and IPv6 neighbour discovery.
    neighbor: int

    # All other frames.
    other: int

    # Routing protocols.
    routing: int


class RegionEntry(TypedDict):
    """The bytes of a function in the scratchpad of a session."""

    # Number of bytes.
    bytes: int

    # Name of the instance.
    function: str

    # Offset of the first byte.
    offset: int


class RevisionEntry(TypedDict):
    """A configuration that was in force."""

    # Address of that user.
    address: NotRequired[str | None]

    # The command.
    change: str

    # Name of the user on the network who made the change.
    name: NotRequired[str | None]

    # Id of the user's process.
    process: NotRequired[int | None]

    # Its number. The configuration at the start has 1.
    revision: int

    # When it came into force, in UTC (RFC 3339).
    time: str

    # Id of the local user who made the change; absent if the daemon or a user on the network did.
    user: NotRequired[int | None]


class RouteEntry(TypedDict):
    """A route."""

    # Type of the route in the kernel: `unicast`, `local`, `blackhole`, …; `neighbor` for a host on a
    # connected network.
    kind: str

    # Metric; of two routes to a prefix the one with the lower metric is used.
    metric: int

    # Next hops; a hash of the flow chooses among several. Empty for local routes and routes that drop.
    next_hops: list[NextHopEntry]

    # Destination prefix, as `ADDRESS/LENGTH`.
    prefix: str

    # Origin of the route: `kernel`, `static`, `bgp`, …, or a number.
    protocol: str

    # Number of the kernel's table. 254 is the main table; it includes the table of local addresses.
    table: int


class RoutedEntry(TypedDict):
    """The kernel's side of a routed interface."""

    # The kernel interface with its addresses.
    interface: str

    twin: NotRequired[TwinEntry | None]


class RoutingCounts(TypedDict):
    """Counters of routing since the first interface was routed: the mirror of the kernel's routes, and the
    workers.
    """

    # Packets that were fragmented.
    fragmented: int

    # Fragments sent for these packets.
    fragments: int

    # ICMP errors sent.
    icmp_errors: int

    # ICMP errors that were not sent because of the rate limit.
    icmp_suppressed: int

    # Microseconds from the last change in the kernel until packets followed it.
    lag_last_us: int

    # Maximum of this time, in microseconds.
    lag_max_us: int

    # Messages from the kernel.
    messages: int

    # Neighbours.
    neighbors: int

    # Next hops and groups of next hops.
    next_hops: int

    # How often this was because the kernel sent more messages than could be read.
    overruns: int

    # How often new routes were published to the workers.
    publications: int

    # Packets handed to the kernel.
    punted: int

    # These packets by class.
    punted_by_class: PuntCounts

    # Packets that were queued until their neighbour was resolved.
    queued: int

    # How often the kernel was asked to resolve a neighbour.
    requests: int

    # How often the whole mirror was compared with the kernel.
    resyncs: int

    # IPv4 routes.
    routes_ip4: int

    # IPv6 routes.
    routes_ip6: int

    # Packets that are queued now.
    waiting: int


class RuleEntry(TypedDict):
    """A rule and its counters."""

    # Bytes of the frames of these packets.
    bytes: int

    # The comment on the rule.
    comment: NotRequired[str | None]

    # Packets that the rule dropped, or accepted although a rule with `drop` matched. Absent for rules
    # that do neither.
    decided: NotRequired[int | None]

    # Index of the rule. It does not change when other rules are deleted.
    index: int

    # The rule's name.
    name: NotRequired[str | None]

    # Packets that the rule matched.
    packets: int

    # Canonical text, with name and comment.
    text: str


class RuleList(TypedDict):
    """`list`: the rules in the order of their indexes."""

    # The rules.
    rules: list[RuleEntry]


class RuleRequest(TypedDict):
    """A rule to add."""

    # The rule as a line of the language, `add …`.
    rule: str


class Runtime(TypedDict):
    """`show runtime`."""

    routing: NotRequired[RoutingCounts | None]

    # Sessions of all workers.
    sessions: NotRequired[SessionCounts]

    # The workers.
    workers: list[WorkerEntry]


class ScratchpadEntry(TypedDict):
    """Layout of the scratchpad of a session."""

    # Bytes that the chains need.
    bytes: int

    # Bytes at the beginning that the engine uses.
    header: int

    # Bytes available (`--scratchpad`).
    limit: int

    # The regions of the functions, by offset. Functions that never share a session may share bytes.
    regions: list[RegionEntry]


class SessionCounts(TypedDict):
    """Sessions now, and counters since the start, of one worker or of all."""

    # Maximum number of sessions.
    capacity: int

    # Sessions that were opened.
    created: int

    # Sessions that ended, by reason: `expired`, `aged`, `replaced`, `evicted`, `ended`, `cleared`.
    ended: dict[str, int]

    # Open sessions without a reply so far. They are evicted when the table is full.
    half_open: int

    # Packets that functions of chains hold.
    held_packets: NotRequired[int]

    # Source addresses that have reached their limit of sessions, the latest first.
    limited_sources: NotRequired[list[LimitedEntry]]

    # Packets that could not open a session, by drop reason.
    refused: dict[str, int]

    # Open sessions.
    sessions: int


class SetElementList(TypedDict):
    """`show set NAME`."""

    # Its elements in ascending order.
    elements: list[ElementEntry]

    # The set.
    set: str


class SetEntry(TypedDict):
    """A named set."""

    # What the set is for.
    comment: NotRequired[str | None]

    # Number of elements.
    elements: int

    # Number of elements that expire.
    expiring: int

    # The file with elements.
    file: NotRequired[str | None]

    # What its elements are: `address`, `prefix` or `port`.
    kind: str

    # Its name.
    name: str

    # Packets that these rules matched.
    packets: int

    # Indexes of the rules that refer to the set.
    rules: list[int]

    # Seconds that elements stay that are added without a time; absent if they stay.
    timeout: NotRequired[int | None]


class SetList(TypedDict):
    """`show sets`."""

    # The sets, in the order in which they were added.
    sets: list[SetEntry]


class StreamCounts(TypedDict):
    """Counters of a stream context, by name."""

    # Bytes of payload: `read` by functions, `removed` and `inserted` by edits, `pre-acknowledged`.
    bytes: dict[str, int]

    # Packets, segments, connections and edits.
    events: dict[str, int]

    # What could not be read or edited, by reason.
    refused: dict[str, int]


class TableEntry(TypedDict):
    """One part of the classifier's tree. A part comes before the parts below it."""

    # Memory, in bytes, without the parts below.
    bytes: int

    # Maximum number of keys.
    capacity: NotRequired[int]

    # Number of parts above this one.
    depth: NotRequired[int]

    # The mask as fields of the language. Fields of TCP also stand for those of UDP and ICMP at the same
    # offset.
    fields: NotRequired[str]

    # Distinct keys of a hash table.
    keys: int

    # Maximum number of rules that are compared one by one with a packet.
    longest: NotRequired[int]

    # The bits that a hash table compares, as chunks `NUMBER:HEX` of 16 bytes of the header window. Chunks
    # that are zero are left out.
    mask: str

    # Number of keys that lead to parts below.
    nodes: NotRequired[int]

    # Rules in this part and below. A rule with several entries counts several times.
    rules: int

    # Data structure: `hash` (hash table over the fields of the mask), `leaf` (rules compared one by one),
    # `bits` (bit vectors over the values of fields), `always` (every packet that gets here matches),
    # `predicate` (tests of the packet's bytes).
    structure: NotRequired[str]


class TableList(TypedDict):
    """`show tables`."""

    # Whether many rules were added or deleted one by one, so that the classifier will be rebuilt.
    stale: NotRequired[bool]

    # The parts of the classifier.
    tables: list[TableEntry]


class TraceChange(TypedDict):
    """A field that was changed."""

    # The value after; absent if the packet does not have the field any more.
    after: NotRequired[str | None]

    # The value before; absent if the packet did not have the field.
    before: NotRequired[str | None]

    # The field, by its name in rules.
    field: str


class TraceCheck(TypedDict):
    """A match of a rule, and a packet."""

    # Whether it holds.
    holds: bool

    # The match, as in the rule.
    match: str

    # The packet's value of the field; absent if it has no such field.
    value: NotRequired[str | None]


# What happened to a packet.
TraceEntry = TypedDict("TraceEntry", {
    # The neighbour that it was sent to, if it was routed.
    "gateway": "NotRequired[str | None]",
    # The interface that received it.
    "in": "NotRequired[str | None]",
    # Bytes of the frame as it came in.
    "length": "int",
    # The nodes that it passed, in order.
    "nodes": "list[TraceNode]",
    # The interface that it was given to.
    "out": "NotRequired[str | None]",
    # Number of the packet: in the capture, or among those that the worker has traced.
    "packet": "int",
    # The drop reason that tells why the headers are malformed; absent if they are not.
    "parse_error": "NotRequired[str | None]",
    # Why it was dropped.
    "reason": "NotRequired[str | None]",
    # The drop reason in words.
    "reason_help": "NotRequired[str | None]",
    # `sent`, `dropped`, `handed-over` to another worker, `consumed` by a function that sends its bytes in
    # other frames, or `kept`: it waits in the last node.
    "result": "str",
    "rules": "NotRequired[TraceRules | None]",
    "session": "NotRequired[TraceSession | None]",
    # Addresses, ports and flags as it came in, in one line.
    "summary": "str",
    # When it came in, in nanoseconds since 1970.
    "time_ns": "int",
    "why": "NotRequired[TraceWhy | None]",
    # The worker that processed it.
    "worker": "int",
})


class TraceFunction(TypedDict):
    """A function that a packet passed."""

    # What the function changed.
    changes: NotRequired[list[TraceChange]]

    # Name of the instance.
    function: str

    # `pass`, `output N`, `drop REASON`, `consume`, `refuse REASON`, `end REASON` or `hold`.
    verdict: str


class TraceList(TypedDict):
    """The packets of `mmb explain` and `trace`, sent while they are processed, one per line."""

    # The packets, in the order in which they left the graph.
    packets: list[TraceEntry]


class TraceNode(TypedDict):
    """A node that a packet passed."""

    # What the node changed.
    changes: NotRequired[list[TraceChange]]

    # What the functions of the session's chain did in this node, in order.
    functions: NotRequired[list[TraceFunction]]

    # The node.
    node: str


class TraceRule(TypedDict):
    """A rule that applies to a packet."""

    # Index of the rule.
    index: int

    # Canonical text.
    text: str


class TraceRules(TypedDict):
    """The rules that apply to a packet."""

    # Index of the rule that decides whether it goes on: `block` over `accept` over `drop`, and of several
    # the first one. Absent if no rule decides.
    decider: NotRequired[int | None]

    # The rules that match it, in their order.
    matched: list[TraceRule]

    # Rules of its session that apply although they do not match it.
    of_session: NotRequired[list[TraceRule]]


class TraceSession(TypedDict):
    """The session of a packet."""

    # The session, after the packet.
    connection: ConnectionEntry

    # `forward`: the packet has the direction of the one that opened the session. Otherwise `reverse`.
    direction: str

    # The packet has opened it.
    is_new: bool


class TraceWhy(TypedDict):
    """Why a rule matches a packet or not."""

    # The matches of the rule.
    checks: list[TraceCheck]

    # Index of the rule.
    index: int

    # Whether it matches the packet.
    matches: bool

    # A sentence, if the matches alone do not explain it.
    note: NotRequired[str | None]

    # Canonical text.
    text: str


class TwinEntry(TypedDict):
    """Counters of the TAP twin of a routed interface."""

    # Packets received from the kernel.
    from_kernel: int

    # Packets sent to the kernel.
    to_kernel: int


class TypeEntry(TypedDict):
    """A type of network function."""

    # Bytes of state for each key.
    bytes: int

    # What functions of this type do.
    help: str

    # Name of the type.
    name: str

    # Syntax of the arguments.
    usage: str


class VersionEntry(TypedDict):
    """The daemon."""

    # Workers, pages and memory in use.
    engine: str

    # Process id.
    pid: int

    # Number of rules.
    rules: int

    # Seconds since the start.
    uptime_seconds: int

    # Release.
    version: str


class WorkerEntry(TypedDict):
    """Counters of a worker since its start."""

    # Transport checksums completed for a kernel peer that had left them to hardware.
    checksum_repairs: int

    # The core that the worker is bound to.
    cpu: NotRequired[int | None]

    # The nodes of the worker's graph by name.
    nodes: dict[str, NodeEntry]

    # Sessions that the worker owns.
    sessions: NotRequired[int]

    # How often the worker slept because there were no packets.
    sleeps: int

    # Number of the worker, from 0.
    worker: int


class Client(Transport):
    """A client of the daemon: one method for each operation. Errors raise ApiError."""

    def scrape(self) -> str:
        """Counters for Prometheus: OpenMetrics for clients that accept it, else the text format of Prometheus.
        """
        return self._text("GET", "/metrics", {}, {})

    def apply(self, text: str, allow_empty: bool | None = None, confirm: int | None = None) -> ApplyReply:
        """Make the text the configuration, all of it or nothing. Rules that remain keep their counters."""
        # allow_empty: take a text without commands, which removes all rules
        # confirm: seconds after which the change is taken back, unless it is confirmed
        return self._json("POST", "/v1/apply", {}, {"allow_empty": allow_empty, "confirm": confirm}, text)

    def brokers(self) -> BrokerList:
        """Brokers: their state, their limits and their counters."""
        return self._json("GET", "/v1/brokers", {}, {})

    def capture(self, line: str, format: Format | None = None) -> Iterator[bytes]:
        """Packets as they come in and leave, as a pcapng file that is sent while they are processed. Comments
        tell why packets were dropped, and by which rule. The request is a line `capture …`. Ends behind the
        last packet, or when the client disconnects.
        """
        return self._pieces("POST", "/v1/capture", {}, {}, {"format": format, "line": line})

    def chains(self) -> ChainList:
        """Service chains: their traffic, the layout of their scratchpads, and the cost of their functions."""
        return self._json("GET", "/v1/chains", {}, {})

    def check(self, text: str) -> CheckReply:
        """Check the text as a complete configuration of its own."""
        return self._json("POST", "/v1/check", {}, {}, text)

    def command(self, line: str, format: Format | None = None) -> CommandReply:
        """Run one line of the language."""
        return self._json("POST", "/v1/command", {}, {}, {"format": format, "line": line})

    def config(self) -> ConfigEntry:
        """The running configuration, as the text of a file."""
        return self._json("GET", "/v1/config", {}, {})

    def confirm(self) -> Done:
        """Keep the change that waits for its confirmation."""
        return self._json("POST", "/v1/confirm", {}, {})

    def clear_connections(self, match: str | None = None) -> ClearReply:
        """End sessions."""
        # match: matches of the language; all sessions if absent
        return self._json("DELETE", "/v1/connections", {}, {"match": match})

    def connections(self, match: str | None = None) -> ConnectionList:
        """Sessions, sent while they are read."""
        # match: matches of the language; all sessions if absent
        return self._json("GET", "/v1/connections", {}, {"match": match})

    def diff(self, text: str) -> DiffReply:
        """The changes that `apply` would make."""
        return self._json("POST", "/v1/diff", {}, {}, text)

    def domains(self) -> DomainList:
        """Domains: their buffers, and the processes of their functions."""
        return self._json("GET", "/v1/domains", {}, {})

    def drops(self) -> DropList:
        """Packets dropped, by reason; all reasons."""
        return self._json("GET", "/v1/drops", {}, {})

    def explain(self, interface: str, data: bytes, out: str | None = None) -> FrameReply:
        """What the rules say about a frame that is not received: the rules that match, the one that decides, and
        why others do not match. Sessions, translation and routes are not asked, and nothing is counted.
        """
        # interface: the interface that receives the frame
        # out: the interface that sends it, for rules with `out`; the other end of the wire if absent
        return self._json("POST", "/v1/explain", {}, {"interface": interface, "out": out}, data)

    def explain_capture(self, interface: str, packet: int, data: bytes) -> TraceList:
        """What happens to a packet of a capture, as `mmb explain` tells it, under the running configuration and
        the routes of now: nodes, rules, session, translation, chain, and where it goes. Packets before it are
        processed, too, so that it finds its session; sessions in service are not asked, and nothing is
        counted.
        """
        # interface: the interface that receives the packets
        # packet: the number of the packet, from 1
        return self._json("POST", "/v1/explain/capture", {}, {"interface": interface, "packet": packet}, data)

    def fast_path(self) -> FastPathReply:
        """Flows that the XDP program forwards in the kernel."""
        return self._json("GET", "/v1/fast-path", {}, {})

    def fib(self, prefix: str | None = None, limit: int | None = None) -> FibList:
        """Routes that packets follow, sent while they are read."""
        # prefix: an address: the routes to it; a subnet: the routes inside it; all if absent
        # limit: maximum number of routes; all if absent
        return self._json("GET", "/v1/fib", {}, {"prefix": prefix, "limit": limit})

    def fields(self) -> FieldList:
        """The fields of the language."""
        return self._json("GET", "/v1/fields", {}, {})

    def functions(self) -> FunctionList:
        """Network functions: instances with counters and reports, and all types."""
        return self._json("GET", "/v1/functions", {}, {})

    def history(self) -> HistoryList:
        """The changes of the configuration: who, when and what, the latest first."""
        return self._json("GET", "/v1/history", {}, {})

    def revision(self, revision: int) -> DiffReply:
        """What the change of a revision removed and added."""
        # revision: number of the revision
        return self._json("GET", "/v1/history/{revision}", {"revision": revision}, {})

    def interfaces(self) -> InterfaceList:
        """Interfaces, wires and port counters."""
        return self._json("GET", "/v1/interfaces", {}, {})

    def nat(self) -> NatReply:
        """NAT pools with their usage, and port forwards."""
        return self._json("GET", "/v1/nat", {}, {})

    def neighbors(self, prefix: str | None = None) -> NeighborList:
        """Hosts and routers on connected networks, from the kernel."""
        # prefix: an address or a subnet; all if absent
        return self._json("GET", "/v1/neighbors", {}, {"prefix": prefix})

    def openapi(self) -> dict[str, Any]:
        """This document."""
        return self._json("GET", "/v1/openapi.json", {}, {})

    def print(self, line: str, format: Format | None = None) -> str:
        """Run one line of the language and return its printed output: text, or with the format `json` the
        document and a line feed. Long output is sent while it is produced.
        """
        return self._text("POST", "/v1/print", {}, {}, {"format": format, "line": line})

    def rollback(self, revision: int | None = None) -> Done:
        """Make the configuration of a revision the current one."""
        # revision: its number; the one before the last change if absent
        return self._json("POST", "/v1/rollback", {}, {"revision": revision})

    def flush(self) -> Done:
        """Delete every rule."""
        return self._json("DELETE", "/v1/rules", {}, {})

    def rules(self, match: str | None = None) -> RuleList:
        """Rules with their counters."""
        # match: only rules that such packets can match; all if absent
        return self._json("GET", "/v1/rules", {}, {"match": match})

    def add_rule(self, rule: str) -> Done:
        """Add a rule."""
        return self._json("POST", "/v1/rules", {}, {}, {"rule": rule})

    def delete_rule(self, rule: str) -> Done:
        """Delete a rule."""
        # rule: the rule's index or name
        return self._json("DELETE", "/v1/rules/{rule}", {"rule": rule}, {})

    def runtime(self) -> Runtime:
        """Counters of the graph nodes of each worker."""
        return self._json("GET", "/v1/runtime", {}, {})

    def sets(self) -> SetList:
        """Named sets: their kinds, sizes, and the rules that refer to them."""
        return self._json("GET", "/v1/sets", {}, {})

    def set(self, set: str) -> SetElementList:
        """The elements of a named set."""
        # set: name of the set
        return self._json("GET", "/v1/sets/{set}", {"set": set}, {})

    def delete_elements(self, set: str, elements: list[str], comment: str | None = None, timeout: int | None = None) -> Done:
        """Remove elements from a named set."""
        # set: name of the set
        return self._json("DELETE", "/v1/sets/{set}/elements", {"set": set}, {}, {"comment": comment, "elements": elements, "timeout": timeout})

    def add_elements(self, set: str, elements: list[str], comment: str | None = None, timeout: int | None = None) -> Done:
        """Add elements to a named set, or give known elements another time and comment. Sessions stay open, but
        for those that rules with the set do not allow any more.
        """
        # set: name of the set
        return self._json("POST", "/v1/sets/{set}/elements", {"set": set}, {}, {"comment": comment, "elements": elements, "timeout": timeout})

    def tables(self) -> TableList:
        """The classifier's tables."""
        return self._json("GET", "/v1/tables", {}, {})

    def trace(self, match: str | None = None, why: str | None = None, count: int | None = None, seconds: int | None = None) -> TraceList:
        """The path of packets through the graph, each sent when its packet has left. Ends behind the last
        packet, or when the client disconnects.
        """
        # match: matches of the language; all packets if absent
        # why: index or name of a rule to explain match by match
        # count: number of packets, at most 1000; 10 if absent
        # seconds: time; no limit if absent
        return self._json("GET", "/v1/trace", {}, {"match": match, "why": why, "count": count, "seconds": seconds})

    def version(self) -> VersionEntry:
        """The release, the process and the engine of the daemon."""
        return self._json("GET", "/v1/version", {}, {})
