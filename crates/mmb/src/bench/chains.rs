//! Generated service chains, as lines of the language.
//!
//! Theory of operation. One rule sends all flows through one chain. With `independent`, each function but the
//! first comes after a flow manager of its own, which looks up packets in a table of its own. This shows the
//! cost of a chain whose functions do not share sessions.

use mmb_simulate::bench::ChainCost;

use super::sessions::pool;

/// Maximum number of functions of a chain.
const MAX_FUNCTIONS: usize = 32;

/// The seven functions of the paper (Barbette et al., "Combined stateful classification and session
/// splicing", V-E), or the closest ones: NAT, bytes of each session, TCP, statistics of each session, load
/// balancer, checksums, inspection. The flow manager itself tracks the state of TCP connections.
const PAPER: [&str; 7] = ["nat", "monitor", "mss-clamp", "count", "lb", "mark", "acl"];

/// The chain has too many functions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid chain {chain}: a chain has at most {MAX_FUNCTIONS} functions here")]
pub struct ChainTooLong {
    /// The value of `--chain`.
    chain: String,
}

/// The functions of the value of `--chain`: types, each with its arguments behind a colon.
///
/// # Errors
/// The chain has too many functions.
pub fn functions(text: &str) -> Result<Vec<&str>, ChainTooLong> {
    let functions = match text.parse::<usize>() {
        Ok(n) => vec!["monitor"; n.min(MAX_FUNCTIONS + 1)],
        Err(_) if text == "paper" => PAPER.to_vec(),
        Err(_) => text.split('+').collect(),
    };
    if functions.len() > MAX_FUNCTIONS {
        return Err(ChainTooLong { chain: text.to_owned() });
    }
    Ok(functions)
}

/// The configuration: a chain of functions for `flows` flows. Without functions, a stateful rule only.
pub fn lines(functions: &[&str], independent: bool, flows: u32) -> Vec<String> {
    if functions.is_empty() {
        return vec!["add-stateful all accept".to_owned()];
    }
    let mut lines = Vec::new();
    if functions.iter().any(|function| split(function).0 == "nat") {
        lines.push(pool(flows));
    }
    let mut chain: Vec<String> = Vec::new();
    for (at, function) in functions.iter().enumerate() {
        if independent && at > 0 {
            lines.push(format!("nf add again{at} flow {}", flows.saturating_mul(2).max(1)));
            chain.push(format!("again{at}"));
        }
        let (kind, arguments) = split(function);
        lines.push(format!("nf add f{} {kind} {arguments}", at + 1));
        chain.push(format!("f{}", at + 1));
    }
    lines.push(format!("chain add bench {}", chain.join(" | ")));
    lines.push("add-stateful all chain bench".to_owned());
    lines
}

/// Type and arguments of a function. Without arguments, those that a bench of the type needs.
fn split(function: &str) -> (&str, &str) {
    function.split_once(':').unwrap_or((
        function,
        match function {
            "nat" => "bench",
            "lb" => "198.51.100.1 198.51.100.2",
            "acl" => "allow all",
            "mark" => "dscp 10",
            "match" => "attack alert",
            "mss-clamp" => "1400",
            "police" => "1000gbit",
            _ => "",
        },
    ))
}

/// The part of the report on chains.
pub fn text(cost: &ChainCost) -> String {
    let mut text = format!(
        "session lookup and chain: {:.1} ticks a packet; a session has {} bytes, {} of them scratchpad\n",
        cost.ticks_per_packet, cost.session_bytes, cost.scratchpad_bytes
    );
    let name = cost.functions.iter().map(|f| f.function.len()).max().unwrap_or(0).max("function".len());
    let kind = cost.functions.iter().map(|f| f.kind.len()).max().unwrap_or(0).max("type".len());
    text += &format!(
        "{:name$}  {:kind$}  {:>12}  {:>10}  {:>6}\n",
        "function", "type", "packets", "drops", "ticks"
    );
    for f in &cost.functions {
        let ticks = f.ticks_per_packet;
        text += &format!(
            "{:name$}  {:kind$}  {:>12}  {:>10}  {ticks:>6.1}\n",
            f.function, f.kind, f.packets, f.drops
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_numbers_or_names() {
        assert_eq!(functions("3"), Ok(vec!["monitor"; 3]));
        assert_eq!(functions("0"), Ok(vec![]));
        assert_eq!(functions("nat+monitor"), Ok(vec!["nat", "monitor"]));
        assert_eq!(functions("paper").map(|f| f.len()), Ok(7));
        assert!(functions("33").is_err() && functions("99999999999").is_err());
    }

    #[test]
    fn lines_are_in_the_language() {
        for chain in ["0", "1", "5", "nat+monitor", "match:attack mask+payload-count", "paper"] {
            for independent in [false, true] {
                let lines = lines(&functions(chain).unwrap(), independent, 1_000);
                for line in &lines {
                    assert!(matches!(mmb_lang::parse_line(line), Ok(Some(_))), "{line}");
                }
            }
        }
        let lines = lines(&["monitor", "monitor"], true, 1_000);
        assert_eq!(lines[3], "chain add bench f1 | again1 | f2");
        assert_eq!(super::lines(&["match:attack mask"], false, 1)[0], "nf add f1 match attack mask");
    }
}
