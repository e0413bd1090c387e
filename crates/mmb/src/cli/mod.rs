//! The command line and its help.

mod bench;
mod offline;

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::network::{NetworkArgs, TokenArgs};
use crate::target::Target;
use crate::top::View;
use clap::{Args, Parser, Subcommand, ValueEnum};
use mmb_dataplane::{DEFAULT_SCRATCHPAD, DEFAULT_SESSIONS};

pub use bench::{BenchArgs, Case, Mode, Order, Proto};
pub use offline::{ExplainArgs, FileArgs, FilterArgs, ImportCmd, ReplayArgs, SessionMemoryArgs};

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "mmb",
    version,
    about = "Modular MiddleBox: real traffic through one-line rules",
    after_help = "Without a command, mmb opens a shell on the running daemon, or runs the lines of standard input.",
    max_term_width = 100
)]
pub struct Cli {
    /// Options of all commands.
    #[command(flatten)]
    pub options: Options,
    /// The command; the shell if absent.
    #[command(subcommand)]
    pub command: Option<Cmd>,
}

/// Options that all commands have.
#[derive(Debug, Parser)]
pub struct Options {
    /// The daemon.
    #[command(flatten)]
    pub target: Target,
    /// Answer with JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Print long output on the terminal, without $MMB_PAGER, $PAGER or less
    #[arg(long, global = true)]
    pub no_pager: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Cmd {
    /// Run the daemon in the foreground
    Run(RunArgs),
    /// Check a configuration file, without a daemon
    Check(CheckArgs),
    /// Make a file the configuration of the daemon, all of it or nothing
    Apply(ApplyArgs),
    /// Show the changes that `apply` would make
    Diff(FileArgs),
    /// Write the running configuration to a file
    Save(SaveArgs),
    /// Send the packets of a capture through a configuration, without a daemon
    Replay(ReplayArgs),
    /// Tell what happens to each packet of a capture, and why, without a daemon
    Explain(ExplainArgs),
    /// Measure the cost of a configuration, with generated traffic
    Bench(BenchArgs),
    /// Convert rules of another system to rules of mmb, without a daemon
    #[command(subcommand)]
    Import(ImportCmd),
    /// Check whether this machine has what the daemon needs, and tell what to do; needs no daemon
    Doctor(DoctorArgs),
    /// Watch ports, rules, sessions, drops, NAT, functions, nodes and workers, live
    Top(TopArgs),
    /// Make a token for a user of `mmb run --api`, and print it
    Token(TokenArgs),
    /// Print the completion of a shell: `source <(mmb completion bash)`
    Completion(CompletionArgs),
    /// Write the manual pages to a directory
    Man(ManArgs),
    /// Print the words that can stand in place of the last one; for the completion of shells
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Add a rule: `add tcp-dport 80 mod tcp-dport 8080`
    Add(Line),
    /// Add a rule that applies to single packets (an alias of `add`)
    AddStateless(Line),
    /// Add a rule that applies to whole sessions: `add-stateful ip-saddr 10.0.0.0/8 nat POOL`
    AddStateful(Line),
    /// Delete a rule by its index or its name
    Del(Line),
    /// Delete every rule
    Flush(Line),
    /// List the rules with their index, packets and bytes
    List(Line),
    /// Show connections, nat, sets, chains, functions, domains, brokers, fast-path, interfaces, fib,
    /// neighbors, tables, runtime, drops, fields, version or config
    Show(Line),
    /// Repeat a command that shows something: `watch [-n SECONDS] show drops`
    Watch(WatchArgs),
    /// End sessions: `clear connections [MATCH…]`
    Clear(Line),
    /// Show the path of the next packets, live: `trace [MATCH…] [why RULE] [count N] [seconds S]`
    Trace(Line),
    /// Show or record packets, live: `capture [MATCH…] [drops] [rule RULE] [session ID] [count N] [seconds S]
    /// [-w FILE]`
    Capture(CaptureArgs),
    /// Add or delete a NAT pool or a port forward: `nat pool add NAME ADDRESSES`
    Nat(Line),
    /// Add or delete an interface: `interface add NAME af-xdp IFNAME`
    Interface(Line),
    /// Connect two interfaces: `wire A B`; `wire del A` removes the wire
    Wire(Line),
    /// Route the packets of interfaces by the kernel's routes: `route NAME…`; `route del NAME` ends it
    Route(Line),
    /// Apply rules to packets received on these interfaces (the default)
    Enable(Line),
    /// Forward packets received on these interfaces without rules
    Disable(Line),
    /// Change a named set (`set add NAME KIND`, `set NAME add ELEMENT…`) or a setting:
    /// `set on-error forward|drop`, `set timeout NAME SECONDS`, `set tcp-pickup on|off`
    Set(Line),
    /// Add or delete memory for functions in processes of their own: `domain add NAME private|zero-copy`
    Domain(Line),
    /// Add, delete or configure an instance of a network function: `nf add NAME TYPE [ARG…]`
    Nf(Line),
    /// Show who changed the configuration, or what one change did: `history [REVISION]`
    History(Line),
    /// Return to the configuration before the last change, or to a revision: `rollback [REVISION]`
    Rollback(Line),
    /// Keep the change that `apply --confirm` made
    Confirm(Line),
    /// Add, replace or delete a service chain: `chain add NAME FUNCTION then FUNCTION …`
    Chain(Line),
    /// Add or delete a broker: `broker add NAME listen ADDRESS:PORT chain CHAIN`
    Broker(Line),
}

/// A line of the language for the daemon.
#[derive(Debug, Args)]
pub struct Line {
    /// The rest of the line, as in a configuration file
    #[arg(value_name = "WORD", allow_negative_numbers = true)]
    pub words: Vec<String>,
}

/// `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Seconds between two runs
    #[arg(short = 'n', long, value_name = "SECONDS", default_value_t = 2.0, value_parser = interval)]
    pub interval: f64,
    /// End after this number of runs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// The command: `list`, `show` or `history`
    #[arg(value_name = "WORD", required = true)]
    pub words: Vec<String>,
}

/// Reads an interval of `watch`.
fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "must be a number of seconds from 0.1 to 86400".to_owned())
}

/// `capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// Matches, `drops`, `rule RULE`, `count N`, `seconds S`
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
    /// Write the packets to this file (pcapng); `-` is standard output
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Configuration to start with
    #[arg(short, long = "config", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Take ports, sessions and the control socket over from the running daemon, which ends; without `-c`,
    /// its configuration too
    #[arg(long)]
    pub takeover: bool,
    /// Directory for what the daemon keeps; commands may name files in its directory `files` only
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Run as this user, with the capabilities that ports need
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Group that may use the control socket; `mmb` by default, if it exists
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// Group that may read, by a second socket whose path ends in `.read`
    #[arg(long, value_name = "NAME")]
    pub read_group: Option<String>,
    /// Serve metrics to Prometheus by TCP at this address: anyone who reaches it may read them
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Socket of the system's log, for `set log-to syslog`
    #[arg(long, value_name = "PATH", default_value = mmb_system::syslog::DEFAULT_SOCKET)]
    pub syslog_socket: PathBuf,
    /// The API on the network.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Append a line of JSON to this file for each change and each refused login; SIGHUP opens it again
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    /// Do not limit the system calls of the daemon
    #[arg(long)]
    pub no_seccomp: bool,
    /// Let brokers listen on ports below 1024 that the configuration to start with does not name
    #[arg(long)]
    pub low_ports: bool,
    /// Worker threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub workers: usize,
    /// Memory for packets, in MiB [default: 256, of which af-xdp ports take what they need]
    #[arg(long, value_name = "MB")]
    pub memory: Option<u32>,
    /// Maximum number of sessions of all workers
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SESSIONS)]
    pub sessions: usize,
    /// Maximum size of a session's scratchpad for functions of service chains
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_SCRATCHPAD)]
    pub scratchpad: usize,
    /// Seed of all secrets, for tests only: senders can then predict ports, cookies and workers
    #[arg(long, value_name = "N", hide = true)]
    pub seed: Option<u64>,
}

/// `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Configuration file; `-` is standard input
    pub file: PathBuf,
    /// Maximum size of a session's scratchpad for functions of service chains, as in `run`
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_SCRATCHPAD)]
    pub scratchpad: usize,
}

/// `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// The view at the start
    #[arg(long, value_name = "VIEW", default_value = "ports",
        value_parser = clap::builder::PossibleValuesParser::new(View::ALL.map(View::name)))]
    pub view: String,
    /// Seconds between two samples
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    pub interval: u16,
    /// Matches of rules and sessions to show
    #[arg(value_name = "MATCH")]
    pub matches: Vec<String>,
}

/// `completion`.
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: UserShell,
}

/// Shells of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UserShell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The directory, which must exist
    pub directory: PathBuf,
}

/// `complete`.
#[derive(Debug, Args)]
pub struct CompleteArgs {
    /// The words of the command line up to the cursor, without the first one
    #[arg(last = true)]
    pub words: Vec<String>,
}

/// `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Kernel interfaces to check
    #[arg(value_name = "IFNAME")]
    pub interfaces: Vec<String>,
    /// State directory of the daemon, as in `run`
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// `apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Configuration file; `-` is standard input
    pub file: PathBuf,
    /// Take a file without commands, which removes all rules and settings
    #[arg(long)]
    pub allow_empty: bool,
    /// Take the change back after this time (`60`, `60s`, `5m`), unless `mmb confirm` comes
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub confirm: Option<u32>,
}

/// `save`.
#[derive(Debug, Args)]
pub struct SaveArgs {
    /// File to write; the one that the daemon was started with if absent
    pub file: Option<PathBuf>,
}

/// Reads a number of seconds or minutes.
fn seconds(text: &str) -> Result<u32, String> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(number) => (number, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let number = number.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
    number.filter(|seconds| *seconds > 0).ok_or_else(|| "must be a time such as 60s or 5m".to_owned())
}

/// The words of a command that the shell runs itself.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub struct ShellLine<A: Args> {
    /// Arguments of the command.
    #[command(flatten)]
    pub args: A,
}

/// Makes the command of a line.
type LineCommand = fn(Line) -> Cmd;

/// Lists the commands that are lines of the language.
macro_rules! lines {
    ($($word:literal $command:ident,)*) => {
        /// The commands that are lines of the language, by keyword.
        pub const LINES: &[(&str, LineCommand)] = &[$(($word, Cmd::$command)),*];

        impl Cmd {
            /// The keyword and the words of a line for the daemon, if the command is one.
            pub fn line(&self) -> Option<(&'static str, &Line)> {
                match self {
                    $(Cmd::$command(line) => Some(($word, line)),)*
                    _ => None,
                }
            }
        }
    };
}

lines! {
    "add" Add,
    "add-stateless" AddStateless,
    "add-stateful" AddStateful,
    "del" Del,
    "flush" Flush,
    "list" List,
    "show" Show,
    "clear" Clear,
    "trace" Trace,
    "nat" Nat,
    "interface" Interface,
    "wire" Wire,
    "route" Route,
    "enable" Enable,
    "disable" Disable,
    "set" Set,
    "domain" Domain,
    "nf" Nf,
    "chain" Chain,
    "history" History,
    "rollback" Rollback,
    "confirm" Confirm,
    "broker" Broker,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn rule_words_are_kept_and_options_may_stand_anywhere() {
        let line = ["mmb", "add", "--json", "tcp-dport", "80", "!", "ip-df", "-5", "drop", "--socket", "/s"];
        let cli = Cli::parse_from(line);
        let command = cli.command.unwrap();
        let (word, line) = command.line().unwrap();
        assert_eq!(word, "add");
        assert_eq!(line.words, ["tcp-dport", "80", "!", "ip-df", "-5", "drop"]);
        assert!(cli.options.json);
        assert_eq!(cli.options.target.socket, Some("/s".into()));
        let cli = Cli::parse_from(["mmb", "--socket", "/s", "--json", "list"]);
        assert!(cli.options.json);
        assert_eq!(cli.options.target.socket, Some("/s".into()));
    }

    #[test]
    fn every_line_is_in_the_list() {
        let words = || Line { words: vec!["x".into()] };
        for (name, command) in LINES.iter().copied() {
            assert_eq!(
                command(words()).line().map(|(keyword, line)| (keyword, line.words.len())),
                Some((name, 1))
            );
        }
        let parsed = |name: &str| Cli::try_parse_from(["mmb", name, "x"]).ok()?.command;
        let is_line = |name: &&str| parsed(name).is_some_and(|command| command.line().is_some());
        let cli = Cli::command();
        assert_eq!(cli.get_subcommands().map(|c| c.get_name()).filter(is_line).count(), LINES.len());
    }

    #[test]
    fn times_have_units() {
        assert_eq!(["60", "60s", "5m"].map(seconds), [Ok(60), Ok(60), Ok(300)]);
        for text in ["", "0", "0m", "-1", "1h", "s", "5000000000", "100000000m"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn unknown_commands_and_options_are_usage_errors() {
        for line in [&["mmb", "frobnicate"][..], &["mmb", "list", "--frob"], &["mmb", "check"]] {
            assert_eq!(Cli::try_parse_from(line).unwrap_err().exit_code(), 2, "{line:?}");
        }
    }
}
