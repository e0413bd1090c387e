//! The options of commands that read captures and the rules of other systems, without a daemon.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use mmb_dataplane::{DEFAULT_SCRATCHPAD, DEFAULT_SESSIONS};
use mmb_lang::{RuleRef, SourceSpan};

/// A file of `diff` or `import`.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// Configuration file; `-` is standard input
    pub file: PathBuf,
}

/// `import`: the format of the file.
#[derive(Debug, Subcommand)]
pub enum ImportCmd {
    /// A filter set of ClassBench
    Classbench(ClassbenchArgs),
    /// The output of `ipset save`: sets and their elements
    Ipset(FileArgs),
    /// The output of `iptables-save` or `ip6tables-save`: one chain of the table filter, the table
    /// nat, and TCPMSS of mangle
    #[command(visible_alias = "iptables")]
    IptablesSave(FilterArgs),
    /// The output of `nft -j list ruleset`: one base chain, and the chains for NAT
    Nft(FilterArgs),
}

/// `import classbench`.
#[derive(Debug, Args)]
pub struct ClassbenchArgs {
    /// The filter set; `-` is standard input
    pub file: PathBuf,
    /// Targets of every rule; the format has none
    #[arg(long, value_name = "TARGETS", default_value = "drop")]
    pub target: String,
}

/// `import iptables-save` and `import nft`.
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// The rules; `-` is standard input
    pub file: PathBuf,
    /// The chain to convert; by default the one of forwarded packets, or else of received packets. `nft`
    /// also takes TABLE/CHAIN and FAMILY/TABLE/CHAIN
    #[arg(long, value_name = "NAME")]
    pub chain: Option<String>,
    /// The interface of masqueraded packets, for rules that do not name it
    #[arg(long, value_name = "IFACE")]
    pub outside: Option<String>,
    /// An address of the machine, for rules that forward ports of any of them; repeatable
    #[arg(long, value_name = "ADDRESS")]
    pub local: Vec<Ipv4Addr>,
}

/// `replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Configuration
    #[arg(short, long = "config", value_name = "FILE")]
    pub config: PathBuf,
    /// Capture to read (pcap or pcapng)
    #[arg(value_name = "IN.pcap")]
    pub input: PathBuf,
    /// Write forwarded packets to this capture (pcap)
    #[arg(short = 'w', long = "write", value_name = "OUT.pcap")]
    pub output: Option<PathBuf>,
    /// Interface of the configuration that receives the packets; the first one if absent
    #[arg(long = "in", value_name = "IFACE")]
    pub interface: Option<String>,
    /// The memory of sessions.
    #[command(flatten)]
    pub memory: SessionMemoryArgs,
}

/// Reads the index or the name of a rule.
fn rule(text: &str) -> Result<RuleRef, &'static str> {
    RuleRef::read(text, SourceSpan::default()).ok_or("it is not the index or the name of a rule")
}

/// `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Configuration
    #[arg(short, long = "config", value_name = "FILE")]
    pub config: PathBuf,
    /// Capture to read (pcap or pcapng)
    #[arg(value_name = "IN.pcap")]
    pub input: PathBuf,
    /// Number of the only packet to tell about; those before it are processed, too
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub packet: Option<u64>,
    /// Index or name of a rule: tell which of its matches hold
    #[arg(long, value_name = "RULE", value_parser = rule)]
    pub why: Option<RuleRef>,
    /// Interface of the configuration that receives the packets; the first one if absent
    #[arg(long = "in", value_name = "IFACE")]
    pub interface: Option<String>,
    /// The memory of sessions.
    #[command(flatten)]
    pub memory: SessionMemoryArgs,
}

/// The memory of sessions, of `replay` and `explain`.
#[derive(Debug, Args)]
pub struct SessionMemoryArgs {
    /// Maximum number of sessions
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SESSIONS)]
    pub sessions: usize,
    /// Maximum size of a session's scratchpad for functions of service chains
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_SCRATCHPAD)]
    pub scratchpad: usize,
}
