//! The program `mmb` as a library: daemon, one-shot commands, offline tools and shell, with a registry of
//! network functions.
//!
//! A crate with a function of its own has this `main`:
//!
//! ```ignore
//! fn main() -> std::process::ExitCode {
//!     let mut functions = mmb::registry();
//!     functions.add::<Hello>();
//!     mmb::run(functions)
//! }
//! ```
//!
//! The result is `mmb` with the additional command `nf add NAME hello`. See `docs/nf-guide.md`.

#![forbid(unsafe_code)]

mod bench;
mod cli;
mod daemon;
mod doctor;
mod explain;
mod failure;
mod import;
mod network;
mod offline;
mod pager;
mod remote;
mod shell;
mod state_dir;
mod target;
pub mod testing;
mod top;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser};

use cli::{Cli, Cmd};
use failure::Failure;
use pager::Pager;

pub use mmb_nf as nf;
pub use mmb_nf::Registry;
pub use mmb_nf_builtin::registry;

/// Runs the program with the arguments of the process and the network functions of `functions`.
pub fn run(functions: Registry) -> ExitCode {
    // Not for users: the daemon executes itself with these words.
    match std::env::args_os().nth(1).as_deref().and_then(|word| word.to_str()) {
        Some(mmb_fabric::SUPERVISOR) => return internal(mmb_fabric::run_supervisor()),
        Some(mmb_fabric::FUNCTION) => return internal(mmb_fabric::run_function(&functions)),
        _ => {}
    }
    let cli = Cli::parse_from(split_line(std::env::args_os().collect()));
    match dispatch(cli, Arc::new(functions)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.text.is_empty() {
                eprintln!("{}", failure.text);
            }
            ExitCode::from(failure.status)
        }
    }
}

/// The exit code of a process that the daemon has started.
fn internal(result: Result<(), String>) -> ExitCode {
    result.map_or_else(
        |reason| {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn dispatch(cli: Cli, functions: Arc<Registry>) -> Result<(), Failure> {
    let Cli { target, json, no_pager, command } = cli;
    let pager = &Pager::new(no_pager);
    match command {
        None | Some(Cmd::Run(_)) if json => Err(Failure::usage("--json needs a command with output")),
        None => shell::run(&functions, &target, pager),
        Some(Cmd::Run(args)) => daemon::run(&args, functions, target.local("run")?),
        Some(Cmd::Check(args)) => offline::check(&args, functions, json, pager),
        Some(Cmd::Apply(args)) => remote::apply(&args, &target, json),
        Some(Cmd::Diff(args)) => remote::diff(&args.file, &target, json, pager),
        Some(Cmd::Save(args)) => remote::save(&args, &target, json),
        Some(Cmd::Replay(args)) => offline::replay(&args, functions, json, pager),
        Some(Cmd::Explain(args)) => explain::run(&args, functions, json, pager),
        Some(Cmd::Watch(_)) if json => Err(Failure::usage("`watch` prints text only")),
        Some(Cmd::Watch(args)) => watch::run(&args, &target),
        Some(Cmd::Capture(args)) => remote::capture(&args, &target, json),
        Some(Cmd::Bench(args)) => bench::bench(&args, functions, json, pager),
        Some(Cmd::Doctor(args)) => doctor::run(&args, target.local("doctor")?, json, pager),
        Some(Cmd::Top(_)) if json => Err(Failure::usage("`mmb top` has no JSON; `mmb show` has")),
        Some(Cmd::Top(args)) => top::run(&args, &target),
        Some(Cmd::Token(_)) if json => Err(Failure::usage("`mmb token` prints a token only")),
        Some(Cmd::Token(args)) => network::token(&args),
        Some(Cmd::Completion(args)) => failure::print(shell::external::script(args.shell)),
        Some(Cmd::Man(args)) => shell::external::manual(Cli::command(), &args.directory),
        Some(Cmd::Complete(args)) => {
            shell::external::complete(&Cli::command(), &args.words, target.connect().ok())
        }
        Some(Cmd::Import(command)) => import::run(&command, json, pager),
        Some(command) => match command.line() {
            Some((first, line)) => remote::line(first, &line.words, &target, json, pager),
            None => Ok(()),
        },
    }
}

/// Splits a line that is given as one argument (`mmb 'add in a ! ip-df drop'`) into words.
fn split_line(mut args: Vec<OsString>) -> Vec<OsString> {
    let mut at = 1;
    while let Some(option) = args.get(at).filter(|a| a.as_encoded_bytes().starts_with(b"-")) {
        at += if target::WITH_VALUE.iter().any(|name| option == name) { 2 } else { 1 };
    }
    let Some(line) = args.get(at).and_then(|a| a.to_str()).filter(|a| a.contains(' ')) else { return args };
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    args.splice(at..=at, words);
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_in_quotes_is_split() {
        let split = |args: &[&str]| split_line(args.iter().map(OsString::from).collect());
        assert_eq!(split(&["mmb", "add all drop", "--json"]), ["mmb", "add", "all", "drop", "--json"]);
        assert_eq!(split(&["mmb", "--socket", "/a b", "del 1"]), ["mmb", "--socket", "/a b", "del", "1"]);
        assert_eq!(split(&["mmb", "--remote", "a b", "del 1"]), ["mmb", "--remote", "a b", "del", "1"]);
        assert_eq!(split(&["mmb", "check", "my file"]), ["mmb", "check", "my file"]);
        assert_eq!(split(&["mmb"]), ["mmb"]);
    }
}
