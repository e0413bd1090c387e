//! The shell: lines for the daemon, typed or read from a script.

use std::io::{BufRead, IsTerminal, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser;
use mmb_control::api::{
    BrokerList, ChainList, FunctionList, InterfaceList, NatReply, RuleList, SetEntry, SetList, VersionEntry,
};
use mmb_control::{Client, ClientError, Config, render};
use mmb_dataplane::DEFAULT_SCRATCHPAD;
use mmb_lang::SetKind;
use mmb_nf::Registry;
use rustyline::Editor;
use rustyline::config::{CompletionType, Config as EditorConfig};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;

use crate::cli::ShellLine;
use crate::failure::Failure;
use crate::offline;
use crate::pager::Pager;
use crate::remote::{apply_file, command, diff_file, name, read_file, save_file};
use crate::target::Target;

mod arguments;
mod assist;
pub mod external;

use assist::{KnownNames, LineHelper};

/// Maximum length of a line of a script, in bytes. The limit of the language is lower.
const LINE_LIMIT: u64 = 16 << 20;

const HELP: &str = "\
rules       add MATCH… TARGET… [name NAME] [comment \"TEXT\"]   del INDEX|NAME   flush   list [MATCH…]
            add tcp-dport 80 mod tcp-dport 8080
            add ip-proto udp ! in lan drop
sessions    add-stateful MATCH… accept|drop|block|mod|map|shuffle|lb|nat|chain …   clear connections [MATCH…]
            add-stateful in lan accept
chains      nf add NAME TYPE [ARG…]   nf del NAME   nf set NAME WORD…   `show functions verbose` lists the types
            chain add NAME FUNCTION | FUNCTION [OUTPUT: …, OUTPUT: drop] …   chain set NAME …   chain del NAME
            add-stateful tcp-dport 80 chain NAME
nat         nat pool add NAME ADDRESSES [ports LO-HI] [block N] [limit N] [filtering HOW]   nat pool del NAME
            nat forward add tcp|udp ADDRESS PORT to ADDRESS PORT   nat forward del tcp|udp ADDRESS PORT
interfaces  interface add NAME af-xdp|af-packet IFNAME | tap [IFNAME] | pci ADDRESS | memif SOCKET | pcap RX TX | null
            interface del NAME   wire A B   wire del A   enable NAME…   disable NAME…
routing     route NAME…   route del NAME   show fib [ADDRESS|PREFIX]   show neighbors [ADDRESS|PREFIX]
settings    set on-error forward|drop   set timeout NAME SECONDS   set rpf strict|loose|off [INTERFACE…]
            set tcp-pickup|tcp-window-check|martian-check on|off
            set fast-path auto|xdp|tc|off   set log-format text|json   set log-to stderr|syslog
            set worker-mode poll|event|adaptive   set gro on|off
            set punt-limit neighbor|routing|local|other NUMBER|off   set session-limit source NUMBER|default|off
            set held-packets session|worker NUMBER
            set stream-pickup pass|inspect|reset   set stream-overflow drop|pass|reset
            set stream-mptcp strip|pass   set stream-hold-time MILLISECONDS
show        show interfaces|nat|chains|functions|fast-path|drops|runtime|tables|fields|version|config [verbose]
            show connections [verbose] [MATCH…]
            trace [MATCH…] [why RULE] [count N]   capture [MATCH…] [drops] [rule RULE] [session ID] [count N]
files       apply [--confirm TIME] FILE   diff FILE   check FILE   save [FILE]
changes     history [REVISION]   rollback [REVISION]   confirm
shell       help [WORD]   exit
Tab completes words. A line that ends with ? shows the words that can follow. `show fields` lists all fields.
Long output goes through $MMB_PAGER, $PAGER or less; `mmb --no-pager` opens a shell without one.
";

/// Opens the shell. If standard input is not a terminal, its lines are run as a script.
pub fn run(functions: &Arc<Registry>, target: &Target, pager: &Pager) -> Result<(), Failure> {
    let mut client = target.connect()?;
    let base = offline::base(functions.clone(), DEFAULT_SCRATCHPAD);
    match std::io::stdin().is_terminal() {
        true => interactive(&mut client, &base, pager),
        false => script(&mut client, &base),
    }
}

/// Runs one line. `number` is the number of the line in a script. `Break` ends the shell.
fn run_line(
    client: &mut Client,
    base: &Config,
    line: &str,
    number: Option<u32>,
    pager: &Pager,
) -> Result<ControlFlow<()>, Failure> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = match words.as_slice() {
        ["exit" | "quit"] => return Ok(ControlFlow::Break(())),
        // Before all others: `save ?` must not write a file.
        _ if line.trim_end().ends_with('?') => assist::candidates_text(
            line.trim_end().trim_end_matches('?'),
            &LineHelper::new(known_names(client)),
        ),
        ["help"] => HELP.to_owned(),
        ["help", word] => assist::explain(word)?,
        ["apply", words @ ..] => apply_file(client, &arguments(words)?, false)?,
        ["save", words @ ..] => save_file(client, &arguments(words)?, false)?,
        ["diff", file] => diff_file(client, Path::new(file), false)?,
        ["check", file] => check(Path::new(file), base)?,
        _ => {
            command(client, line, number, false, pager)?;
            return Ok(ControlFlow::Continue(()));
        }
    };
    pager.print(&output)?;
    Ok(ControlFlow::Continue(()))
}

/// The arguments of a command that the shell runs itself.
fn arguments<A: clap::Args>(words: &[&str]) -> Result<A, Failure> {
    let parsed = ShellLine::<A>::try_parse_from(words);
    parsed.map(|line| line.args).map_err(|e| Failure::usage(e.to_string().trim_end()))
}

fn check(file: &Path, base: &Config) -> Result<String, Failure> {
    let text = read_file(file)?;
    match mmb_control::file::check(&text, base) {
        Ok(reply) => Ok(format!("{}: ok\n", name(file)) + &render::warnings(&reply.warnings)),
        Err(refusal) => Err(Failure::of_file(&name(file), &text, &refusal)),
    }
}

/// The names of the running configuration; empty without a daemon.
fn known_names(client: &mut Client) -> KnownNames {
    let interfaces = client.get::<InterfaceList>("/v1/interfaces").unwrap_or_default().interfaces;
    let pools = client.get::<NatReply>("/v1/nat").unwrap_or_default().pools;
    let chains = client.get::<ChainList>("/v1/chains").unwrap_or_default().chains;
    let FunctionList { domains, functions, types } = client.get("/v1/functions").unwrap_or_default();
    KnownNames {
        rules: known_rules(client),
        interfaces: interfaces.into_iter().map(|i| i.name).collect(),
        pools: pools.into_iter().map(|p| p.name).collect(),
        domains: domains.into_iter().map(|d| d.name).collect(),
        chains: chains.into_iter().map(|c| c.name).collect(),
        brokers: client
            .get::<BrokerList>("/v1/brokers")
            .unwrap_or_default()
            .brokers
            .into_iter()
            .map(|b| b.name)
            .collect(),
        sets: client
            .get::<SetList>("/v1/sets")
            .unwrap_or_default()
            .sets
            .iter()
            .filter_map(known_set)
            .collect(),
        instances: functions.into_iter().map(|f| f.cost.name).collect(),
        usages: types.iter().map(|t| t.usage.clone()).collect(),
        types: types.into_iter().map(|t| (t.name, t.help)).collect(),
    }
}

fn known_set(set: &SetEntry) -> Option<(String, SetKind)> {
    let kind = SetKind::ALL.into_iter().find(|kind| kind.word() == set.kind)?;
    Some((set.name.clone(), kind))
}

/// Most rules whose names and indexes are completed.
const COMPLETED_RULES: u64 = 2000;

/// Names and indexes of the rules, each with the text of its rule; empty if there are too many.
fn known_rules(client: &mut Client) -> Vec<(String, String)> {
    let are_few =
        client.get::<VersionEntry>("/v1/version").is_ok_and(|version| version.rules <= COMPLETED_RULES);
    if !are_few {
        return Vec::new();
    }
    let RuleList { rules } = client.get("/v1/rules").unwrap_or_default();
    let names = rules.iter().filter_map(|rule| Some((rule.name.clone()?, rule.text.clone())));
    names.chain(rules.iter().map(|rule| (rule.index.to_string(), rule.text.clone()))).collect()
}

/// Runs the lines of a script, up to the first failure.
fn script(client: &mut Client, base: &Config) -> Result<(), Failure> {
    let mut input = std::io::stdin().lock();
    let mut bytes = Vec::new();
    for number in 1u32.. {
        bytes.clear();
        let read = input.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut bytes);
        if read.map_err(|e| Failure::new(format!("cannot read standard input: {e}")))? == 0 {
            break;
        }
        let line = match std::str::from_utf8(&bytes) {
            Ok(line) => line.trim_end_matches(['\n', '\r']),
            Err(e) => {
                let sentence = format!("byte {} is not UTF-8 text", e.valid_up_to() + 1);
                return Err(Failure::new(sentence).at_line(number));
            }
        };
        if let ControlFlow::Break(()) =
            run_line(client, base, line, Some(number), &Pager::Off).map_err(|f| f.at_line(number))?
        {
            break;
        }
    }
    Ok(())
}

/// Runs lines typed by a user. An error is printed, and the shell goes on.
fn interactive(client: &mut Client, base: &Config, pager: &Pager) -> Result<(), Failure> {
    let failed = |e: ReadlineError| Failure::new(format!("the shell cannot use this terminal: {e}"));
    let config = EditorConfig::builder().completion_type(CompletionType::List).auto_add_history(true).build();
    let mut editor: Editor<LineHelper, FileHistory> = Editor::with_config(config).map_err(failed)?;
    let history = history_file();
    if let Some(file) = &history {
        // There is no file before the first use.
        let _ = editor.load_history(file);
    }
    if let Err(e @ (ClientError::NoDaemon(_) | ClientError::Unreachable(_))) =
        client.get::<InterfaceList>("/v1/interfaces")
    {
        eprintln!("{e}");
    }
    loop {
        editor.set_helper(Some(LineHelper::new(known_names(client))));
        match editor.readline("mmb> ") {
            Ok(line) => match run_line(client, base, &line, None, pager) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(failure) => eprintln!("{}", failure.text),
            },
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(e) => return Err(failed(e)),
        }
        if let Some(file) = &history {
            // An error of the history file does not end the shell.
            let _ = editor.append_history(file);
        }
    }
    Ok(())
}

/// The history file, in the state directory of the user (XDG base directories).
fn history_file() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let dir =
        variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")))?;
    let dir = dir.join("mmb");
    std::fs::create_dir_all(&dir).ok()?;
    Some(dir.join("history"))
}
