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
mod command_line;
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

use std::process::ExitCode;
use std::sync::Arc;

use clap::CommandFactory;

use cli::{Cli, Cmd, Options};
use failure::Failure;
use pager::Pager;

pub use mmb_nf as nf;
pub use mmb_nf::Registry;
pub use mmb_nf_builtin::registry;

/// Rules of files are many small objects: they are compiled in a fifth less time than with glibc's allocator.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Runs the program with the arguments of the process and the network functions of `functions`.
pub fn run(functions: Registry) -> ExitCode {
    // Not for users: the daemon executes itself with these words.
    match std::env::args_os().nth(1).as_deref().and_then(|word| word.to_str()) {
        Some(mmb_fabric::SUPERVISOR) => return internal(mmb_fabric::run_supervisor()),
        Some(mmb_fabric::FUNCTION) => {
            return internal(mmb_fabric::run_function(&functions, mmb_broker::run_in_process));
        }
        _ => {}
    }
    let parsed = command_line::parse(std::env::args_os().collect());
    match parsed.and_then(|cli| dispatch(cli, Arc::new(functions))) {
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
    let Cli { options: Options { target, json, no_pager }, command } = cli;
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
