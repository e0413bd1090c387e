//! The options of `bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use mmb_dataplane::DEFAULT_SCRATCHPAD;

/// `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Configuration; no rules if absent
    #[arg(short, long = "config", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Generate the rules of a case instead of a configuration
    #[arg(long, value_enum, value_name = "CASE", conflicts_with = "config")]
    pub case: Option<Case>,
    /// Send all flows through a service chain: of N monitors (24 bytes each), of functions by their types and
    /// arguments (`nat+match:attack mask`), or of seven as in MiddleClick's evaluation (`paper`)
    #[arg(long, value_name = "N|TYPE[:ARGUMENTS]+…", conflicts_with_all = ["config", "case"])]
    pub chain: Option<String>,
    /// Each function of the chain looks up its sessions in a table of its own
    #[arg(long, requires = "chain")]
    pub independent: bool,
    /// Filter set of the case `classbench`
    #[arg(value_name = "FILE", requires = "case")]
    pub filters: Option<PathBuf>,
    /// Number of rules to generate
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub rules: usize,
    /// Take the packets from a capture instead of generating them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["flows", "size", "proto", "order", "ip6"])]
    pub pcap: Option<PathBuf>,
    /// Generate the packets of a ClassBench trace
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pcap", "null_ports", "flows", "proto", "order", "ip6"])]
    pub trace: Option<PathBuf>,
    /// Receive and send on DPDK's null ports, whose frames are all zero, as testpmd's benchmarks do
    #[arg(long, conflicts_with_all = ["pcap", "flows", "proto", "order", "ip6"])]
    pub null_ports: bool,
    /// Number of flows to generate
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub flows: u32,
    /// Frame length in bytes, without the checksum; longer if headers need it
    #[arg(long, value_name = "B", default_value_t = 64)]
    pub size: usize,
    /// Seconds to measure
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    pub seconds: f64,
    /// Transport protocols of the flows; by default mix, and tcp for the case `options`
    #[arg(long, value_enum)]
    pub proto: Option<Proto>,
    /// Order of the flows
    #[arg(long, value_enum, default_value_t = Order::Uniform)]
    pub order: Order,
    /// IPv6 instead of IPv4; of the cases, `stateful` and `new-sessions` have it
    #[arg(long)]
    pub ip6: bool,
    /// The other end.
    #[command(flatten)]
    pub answers: AnswerArgs,
    /// What the payload of each generated packet begins with
    #[arg(long, value_name = "TEXT", default_value = "", conflicts_with_all = ["pcap", "trace", "null_ports"])]
    pub payload: String,
    /// Comparisons by turns.
    #[command(flatten)]
    pub turns: TurnArgs,
    /// How packets are forwarded
    #[arg(long, value_enum, default_value_t = Mode::Wire)]
    pub mode: Mode,
    /// Number of random routes of the mode routed, which contain all destinations; 10 if absent
    #[arg(long, value_name = "N")]
    pub routes: Option<usize>,
    /// Worker threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub workers: usize,
    /// Maximum number of sessions; as many as the flows need if absent
    #[arg(long, value_name = "N")]
    pub sessions: Option<usize>,
    /// Maximum size of a session's scratchpad for functions of service chains
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_SCRATCHPAD)]
    pub scratchpad: usize,
    /// Seed of random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
}

/// What two workers measure by turns.
#[derive(Debug, Args)]
pub struct TurnArgs {
    /// Measure what counting costs, too: rule counters, and the test for traces and captures
    #[arg(long)]
    pub counting: bool,
    /// Compare the case with another case of stateless rules, too: what it costs more
    #[arg(long, value_enum, value_name = "CASE", requires = "case", conflicts_with_all = ["config", "chain"])]
    pub against: Option<Case>,
}

/// What the other end of generated TCP flows does.
#[derive(Debug, Args)]
pub struct AnswerArgs {
    /// The TCP segments of a flow follow each other, and the other end acknowledges every second one; always
    /// so with functions that read streams
    #[arg(long, conflicts_with_all = ["pcap", "trace", "null_ports"])]
    pub answered: bool,
    /// The other end acknowledges a segment when N further ones of each flow have left, on average
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with_all = ["pcap", "trace", "null_ports"])]
    pub in_flight: u32,
}

/// Kinds of generated rules. No stateless rule matches a generated packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// Exact 5-tuples
    Exact,
    /// Random prefixes and port ranges
    Mixed,
    /// As many distinct masks as rules (up to 1,156): prefix lengths, ports or none
    Masks,
    /// As many distinct masks as rules: any fields, and all prefix lengths from 8 on
    FieldMasks,
    /// Random values of random TCP options
    Options,
    /// Ranges and inequalities on several fields
    Ranges,
    /// Source addresses
    Sources,
    /// The source addresses of the case `sources` as the elements of one set
    Set,
    /// The ClassBench filter set in FILE
    Classbench,
    /// Stateful rules; every packet belongs to an open session
    Stateful,
    /// Source NAT; every packet belongs to an open session
    Nat,
    /// Stateful rules and source NAT on the same sessions
    StatefulNat,
    /// Stateful rules; every packet opens a session
    NewSessions,
    /// Source NAT; every packet opens a session
    NewNat,
}

/// Transport protocols of generated flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Proto {
    /// TCP segments with a timestamp option
    Tcp,
    /// UDP datagrams
    Udp,
    /// Both, flow by flow
    Mix,
}

/// Order of the packets of generated flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// Uniformly random flows
    Uniform,
    /// Few flows send most of the packets
    Zipf,
    /// Trains of packets of one flow
    Burst,
}

/// How packets are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// From one port to the other
    Wire,
    /// By routes
    Routed,
}
