//! `mmb import`: rule sets of other systems as lines of the language.
//!
//! Each format has a module that reads it; what they give is written by [`script`]. Filter sets of ClassBench have no
//! order and are written as they are ([`classbench`]); packet filters decide by the first rule that matches, and go
//! through [`filter`] and [`ordered`] so that rules without order decide the same.

mod classbench;
mod filter;
mod intervals;
mod iptables;
mod names;
mod nft;
mod nft_match;
mod ordered;
mod script;
mod words;

use crate::cli::{ClassbenchArgs, FilterArgs, ImportCmd};
use crate::failure::{Failure, PARTLY, print, print_json};
use crate::remote::{name, read_file};
use script::{Kind, Script};

/// `mmb import FORMAT FILE`.
pub fn run(command: &ImportCmd, json: bool) -> Result<(), Failure> {
    let script = match command {
        ImportCmd::Classbench(args) => from_classbench(args)?,
        ImportCmd::IptablesSave(args) => from_filter(args, iptables::convert)?,
        ImportCmd::Nft(args) => from_filter(args, nft::convert)?,
    };
    if json {
        print_json(&script.json())?
    } else {
        print(&script.text())?
    }
    script.failures().map_or(Ok(()), |text| Err(Failure { text, status: PARTLY }))
}

fn from_classbench(args: &ClassbenchArgs) -> Result<Script, Failure> {
    let bytes = read_file(&args.file)?;
    let mut script = Script::default();
    script.comment(format!(
        "from {}, a filter set of ClassBench; every rule: {}",
        name(&args.file),
        args.target
    ));
    five_tuples(&String::from_utf8_lossy(&bytes), &args.target, &mut script);
    Ok(script)
}

/// A filter set of ClassBench as lines of the language that drop; what does not map is a comment.
pub fn classbench(text: &str) -> String {
    let mut script = Script::default();
    five_tuples(text, "drop", &mut script);
    script.text()
}

fn five_tuples(text: &str, target: &str, script: &mut Script) {
    for (number, line) in (1..).zip(text.lines()) {
        let place = || format!("line {number}");
        match classbench::parse(line).and_then(|rule| rule.map_or(Ok(Vec::new()), |rule| rule.matches())) {
            Ok(rules) => {
                for matches in rules {
                    script.rule(&format!("add{matches} {target}"), &place(), line);
                }
            }
            Err(reason) => script.remark(Kind::NotMapped, &place(), line, reason),
        }
    }
}

/// Reads the text of a packet filter and the chain to take from it; an error is about the file as a whole.
type Convert = fn(text: &str, chain: Option<&str>, script: &mut Script) -> Result<(), String>;

fn from_filter(args: &FilterArgs, convert: Convert) -> Result<Script, Failure> {
    let bytes = read_file(&args.file)?;
    let name = name(&args.file);
    let mut script = Script::default();
    script.comment(format!("from {name}"));
    convert(&String::from_utf8_lossy(&bytes), args.chain.as_deref(), &mut script)
        .map_err(|reason| Failure::new(format!("{name}: {reason}")))?;
    Ok(script)
}
