//! `mmb import`: reads a rule set of another system and prints it as lines of the language.

use mmb_import::{ImportError, Machine, Script};

use crate::cli::{FilterArgs, ImportCmd};
use crate::failure::{Failure, PARTIAL};
use crate::pager::Pager;
use crate::remote::{name, read_file};

/// `mmb import FORMAT FILE`.
pub fn run(command: &ImportCmd, json: bool, pager: &Pager) -> Result<(), Failure> {
    let script = match command {
        ImportCmd::Classbench(args) => {
            let text = read_file(&args.file)?;
            let (name, target) = (name(&args.file), &args.target);
            let comment = format!("from {name}, a filter set of ClassBench; every rule: {target}");
            mmb_import::from_classbench(&String::from_utf8_lossy(&text), target).with_title(&comment)
        }
        ImportCmd::Ipset(args) => {
            let text = read_file(&args.file)?;
            let script = mmb_import::from_ipset(&String::from_utf8_lossy(&text));
            script.with_title(&format!("from {}", name(&args.file)))
        }
        ImportCmd::IptablesSave(args) => from_filter(args, mmb_import::from_iptables)?,
        ImportCmd::Nft(args) => from_filter(args, mmb_import::from_nft)?,
    };
    if json {
        pager.print_json(&script.json())?
    } else {
        pager.print(&script.text())?
    }
    match script.failures() {
        failures if failures.is_empty() => {
            eprintln!("{}", script.summary());
            Ok(())
        }
        failures => Err(Failure { text: failures + &script.summary(), status: PARTIAL }),
    }
}

/// Converts one chain of a packet filter.
type Convert = fn(text: &str, chain: Option<&str>, machine: &Machine) -> Result<Script, ImportError>;

fn from_filter(args: &FilterArgs, convert: Convert) -> Result<Script, Failure> {
    let text = read_file(&args.file)?;
    let name = name(&args.file);
    let machine = Machine { outside: args.outside.clone(), addresses: args.local.clone() };
    let script = convert(&String::from_utf8_lossy(&text), args.chain.as_deref(), &machine);
    let script = script.map_err(|error| Failure::new(format!("{name}: {error}")))?;
    Ok(script.with_title(&format!("from {name}")))
}
