//! Ordered clauses of matches, of which the first that a session matches counts: for `acl` and `split`.
//!
//! Theory of operation. Each clause is compiled as a rule of a small policy. A session is tested by the
//! headers that all its forward packets have in common. They are made from its key, so the answer is the same
//! before the session is opened, when it opens, or when a function joins its chain later. Clauses about
//! anything else are refused.

use mmb_flow::Key;
use mmb_lang::Command;
use mmb_nf::ArgError;
use mmb_packet::{ETHERTYPE_IP4, ETHERTYPE_IP6, Kind, Meta};
use mmb_policy::{Batch, Policy, RuleScope};

/// Appends a word to the text of a clause.
pub(crate) fn add_word(text: &mut String, word: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(word);
}

/// Compiled clauses.
#[derive(Debug)]
pub(crate) struct Clauses {
    policy: Policy,
}

impl Clauses {
    /// Compiles clauses from the texts of their matches. An empty text matches everything.
    ///
    /// # Errors
    /// The first clause that is wrong, and why.
    pub fn new(texts: &[String], port: &dyn Fn(&str) -> Option<u16>) -> Result<Clauses, ArgError> {
        let mut policy = Policy::new();
        for text in texts {
            let text = if text.is_empty() { "all" } else { text };
            let wrong = |error: mmb_lang::Diagnostic| match error.help {
                Some(help) => format!("`{text}`: {} ({help})", error.message),
                None => format!("`{text}`: {}", error.message),
            };
            let Some(Command::Add(rule)) =
                mmb_lang::parse_line(&format!("add {text} drop")).map_err(wrong)?
            else {
                return Err(format!("`{text}` is not a list of matches such as `tcp-dport 80`").into());
            };
            if rule.targets.len() != 1 {
                return Err(format!("`{text}` is not a list of matches alone: leave its targets out").into());
            }
            policy.add(&rule, port).map_err(wrong)?;
            // The new rule has the last slot: without deletions, slots are given out in order.
            let slot = u32::try_from(policy.slots()).unwrap_or(u32::MAX).saturating_sub(1);
            if policy.rule_info(slot).scope != RuleScope::Session {
                return Err(format!(
                    "`{text}` asks about single packets, but sessions are decided about as a whole: match by addresses, \
                     ports, protocols and `in`, and leave the rest to rules"
                ).into());
            }
        }
        Ok(Clauses { policy })
    }

    /// Returns the index of the first clause that a session matches, from its key and input port.
    pub fn first(&self, key: &Key, in_port: u16, batch: &mut Batch) -> Option<usize> {
        let (head, meta) = headers(key);
        self.policy.classifier().classify_one(batch, &head, &meta, [in_port, 0]);
        let index = batch.hits.iter().filter_map(|hit| self.policy.index(hit.slot)).min()?;
        usize::try_from(index).ok()?.checked_sub(1)
    }
}

/// Makes the headers of a packet with a key. Other fields are zeros.
fn headers(key: &Key) -> ([u8; 74], Meta) {
    const L3: usize = 14;
    let mut head = [0; 74];
    let l4 = if key.is_ip4() { L3 + 20 } else { L3 + 40 };
    let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
    let ethertype = if key.is_ip4() { ETHERTYPE_IP4 } else { ETHERTYPE_IP6 };
    put(12, &ethertype.to_be_bytes());
    if key.is_ip4() {
        put(L3, &[0x45]);
        put(L3 + 9, &[key.proto]);
        put(L3 + 12, &key.source[..4]);
        put(L3 + 16, &key.destination[..4]);
    } else {
        put(L3, &[0x60]);
        put(L3 + 6, &[key.proto]);
        put(L3 + 8, &key.source);
        put(L3 + 24, &key.destination);
    }
    if matches!(Kind(key.kind).l4(), Kind::TCP | Kind::UDP) {
        put(l4, &key.source_port);
        put(l4 + 2, &key.destination_port);
    }
    if Kind(key.kind).l4() == Kind::TCP {
        put(l4 + 12, &[5 << 4]);
    }
    let meta = Meta {
        ethertype,
        l3_off: L3 as u16,
        l4_off: l4 as u16,
        end: head.len() as u16,
        kind: Kind(key.kind),
        proto: key.proto,
        ..Meta::default()
    };
    (head, meta)
}

#[cfg(test)]
mod tests;
