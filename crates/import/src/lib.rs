//! Rule sets of other systems as rules of mmb's language.
//!
//! Theory of operation. Each format has a module that reads it: [`classbench`], `ipset`, `iptables` and
//! `nft`. The result is a [`Script`]: rules, comments, and remarks on what has no equal rule. ClassBench
//! filter sets have no order and are converted line by line. In packet filters, the first rule that matches
//! decides. They are read as filters (`filter`), and `ordered` converts them to rules without order that
//! decide the same. `nat` converts translations, and `matches` writes filters in the language.

#![forbid(unsafe_code)]

pub mod classbench;
mod error;
mod filter;
mod intervals;
mod ipset;
mod iptables;
mod matches;
mod names;
mod nat;
mod nft;
mod ordered;
mod script;
mod states;
mod values;

pub use error::{ClassbenchError, ImportError, IptablesError, NftError};
pub use ipset::IpsetError;
pub use nat::Machine;
pub use script::{Kind, Remark, Script};

/// Converts a ClassBench filter set. Every rule gets the targets `target`, since the format has none.
pub fn from_classbench(text: &str, target: &str) -> Script {
    let (mut script, mut total) = (Script::default(), 0);
    for (number, line) in (1..).zip(text.lines()) {
        let place = format!("line {number}");
        let rules = classbench::parse(line).and_then(|rule| rule.map(|rule| rule.matches()).transpose());
        total += usize::from(!matches!(rules, Ok(None)));
        match rules {
            Ok(rules) => {
                for matches in rules.into_iter().flatten() {
                    script.rule(&format!("add{matches} {target}"), &place, line);
                }
            }
            Err(error) => script.remark(Kind::NotMapped, &place, line, error.to_string()),
        }
    }
    script.set_total(total);
    script
}

/// Converts the sets in the output of `ipset save`.
pub fn from_ipset(text: &str) -> Script {
    let mut script = Script::default();
    ipset::convert(text, &mut script);
    script
}

/// Converts one chain of the table `filter` in the output of `iptables-save` or `ip6tables-save`, and the
/// table `nat` if it is the chain of forwarded packets.
///
/// # Errors
/// The text is no such output, or it does not have the chain.
pub fn from_iptables(text: &str, chain: Option<&str>, machine: &Machine) -> Result<Script, ImportError> {
    let mut script = Script::default();
    iptables::convert(text, chain, machine, &mut script)?;
    Ok(script)
}

/// Converts one base chain in the output of `nft -j list ruleset`, and the chains for NAT if it has forwarded
/// packets.
///
/// # Errors
/// The text is no such output, or it does not have the chain.
pub fn from_nft(text: &str, chain: Option<&str>, machine: &Machine) -> Result<Script, ImportError> {
    let mut script = Script::default();
    nft::convert(text, chain, machine, &mut script)?;
    Ok(script)
}
