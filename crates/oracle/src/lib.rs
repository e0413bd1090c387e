//! The oracle: the effect of a rule set on a frame, computed one rule and one bit at a time.
//!
//! Theory of operation. The engine uses canonical windows, masks, hash tables and incremental checksums.
//! The oracle uses none of them. It reads the headers by itself from the RFCs, evaluates every match of
//! every rule, sets fields bit by bit, and sums whole packets for their checksums. It shares only the
//! rules' syntax tree and the drop reasons with the engine, so an error goes undetected only if both have
//! it. Tests and fuzz targets run both and compare; nothing else uses this crate.
//!
//! [`generate`] makes rules and frames for these comparisons.

#![forbid(unsafe_code)]

mod bits;
mod chains;
mod checksum;
mod fields;
pub mod generate;
mod headers;
mod matching;
mod options;

#[cfg(test)]
mod tests;

pub use chains::{ChainClasses, broker, chain, matching_rules};

use mmb_lang::{Action, ErrorPolicy, FieldId, Rule, Value};
use mmb_packet::DropReason;

use headers::Net;
use matching::Packet;

/// Verdict on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forwarded.
    Pass,
    /// Dropped.
    Drop(DropReason),
    /// Dropped with a probability: a rule with a percentage under 100 matches and no other rule decides.
    /// Otherwise it is forwarded, or dropped if [`Outcome::refused`] is set with [`ErrorPolicy::Drop`].
    MayDrop,
}

/// Whether a named set has a value of a field of so many bits, or an address of so many bits with a port.
pub type InSet<'a> = dyn Fn(&str, usize, u128, Option<u16>) -> bool + 'a;

/// Settings outside the rules.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// Action if edits fail.
    pub on_error: ErrorPolicy,
    /// Maximum frame length in bytes, by output port.
    pub frame_max: &'a dyn Fn(u16) -> usize,
    /// The elements of named sets.
    pub in_set: &'a InSet<'a>,
}

impl Default for Settings<'_> {
    /// Forward packets if edits fail; no limit of frames; sets are empty.
    fn default() -> Self {
        Self { on_error: ErrorPolicy::Forward, frame_max: &|_| usize::MAX, in_set: &|_, _, _, _| false }
    }
}

/// The effect of a rule set on a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the frame goes on.
    pub verdict: Verdict,
    /// Indexes of all matching rules in the given order. Empty for frames that are not (readable) IP.
    pub matched: Vec<u32>,
    /// Index of the rule that decides, if no percentage does: that drops the frame, or accepts it although a
    /// rule with `drop` matches.
    pub decider: Option<u32>,
    /// Why edits failed: the first applicable of `option-space`, `option-fragment` and `option-mtu`. Not
    /// set for a frame that a rule certainly drops.
    pub refused: Option<DropReason>,
    /// The frame after the edits; unchanged if it is dropped or its edits failed.
    pub bytes: Vec<u8>,
    /// The output port; the one before redirections if the edits failed.
    pub out_port: u16,
    /// Offsets in `bytes` of checksums that can be 0x0000 as well as 0xffff (`bytes` has 0xffff): they were
    /// not as a sender writes them, or cover bytes that an implementation need not read.
    pub either_zero: Vec<usize>,
}

/// The first difference between an expected frame and another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// The lengths differ.
    #[error("{actual} bytes instead of {expected}")]
    Length {
        /// Bytes of the frame.
        actual: usize,
        /// Bytes that it should have.
        expected: usize,
    },
    /// A byte differs.
    #[error("byte {at} is {actual:#04x} instead of {expected:#04x}")]
    Byte {
        /// Offset of the byte.
        at: usize,
        /// The byte.
        actual: u8,
        /// What it should be.
        expected: u8,
    },
}

impl Outcome {
    /// Compares the outcome with the frame of an implementation.
    ///
    /// # Errors
    /// The first difference.
    pub fn check_bytes(&self, bytes: &[u8]) -> Result<(), Difference> {
        if bytes.len() != self.bytes.len() {
            return Err(Difference::Length { actual: bytes.len(), expected: self.bytes.len() });
        }
        let mut expected = self.bytes.clone();
        for &at in &self.either_zero {
            if bytes[at..at + 2] == [0, 0] {
                expected[at..at + 2].fill(0);
            }
        }
        match (0..bytes.len()).find(|&i| bytes[i] != expected[i]) {
            None => Ok(()),
            Some(at) => Err(Difference::Byte { at, actual: bytes[at], expected: expected[at] }),
        }
    }
}

/// Applies `rules` to a frame that arrived at `in_port` and leaves by `out_port`.
///
/// Each rule comes with its index, in ascending order. `ifaces` maps an interface to its port; an unknown
/// name equals no port, and a redirection to it has no effect.
///
/// An unreadable IP packet is dropped with its reason; a frame that is not IP is forwarded. No rule applies
/// to either. Otherwise every rule is matched against the original frame. A matching `accept` forwards the
/// frame; otherwise a matching `drop` drops it. If it is forwarded, the edits of all matching rules apply
/// in order, and lengths and checksums are updated. If the resulting TCP options do not fit, no edit is
/// made, and `settings` decide whether the frame is forwarded.
///
/// # Panics
/// On stateful rules with targets that stateless rules cannot have, except `chain` and `broker`, which have
/// no effect on a packet alone. On
/// rules that [`mmb_lang::check`] rejects for more than a contradiction.
pub fn evaluate_with(
    settings: &Settings<'_>,
    rules: &[(u32, Rule)],
    ifaces: &dyn Fn(&str) -> Option<u16>,
    in_port: u16,
    out_port: u16,
    frame: &[u8],
) -> Outcome {
    let mut outcome = Outcome {
        verdict: Verdict::Pass,
        matched: Vec::new(),
        decider: None,
        refused: None,
        bytes: frame.to_vec(),
        out_port,
        either_zero: Vec::new(),
    };
    let headers = match headers::read(frame) {
        Ok(Some(headers)) => headers,
        Ok(None) => return outcome,
        Err(reason) => {
            outcome.verdict = Verdict::Drop(reason);
            return outcome;
        }
    };
    let packet = Packet { frame, headers: &headers, in_port, out_port, ifaces, in_set: settings.in_set };
    let matching: Vec<_> = rules.iter().filter(|(_, rule)| matching::rule_matches(rule, &packet)).collect();
    outcome.matched = matching.iter().map(|(index, _)| *index).collect();
    outcome.decider = decider(&matching);
    outcome.verdict = verdict(matching.iter().flat_map(|(_, rule)| actions(rule)));
    if matches!(outcome.verdict, Verdict::Drop(_)) {
        return outcome;
    }
    let rules: Vec<_> = matching.iter().map(|(_, rule)| rule).collect();
    match edit(settings, &rules, &packet) {
        Ok(edited) => {
            outcome.bytes = edited.bytes;
            outcome.out_port = edited.out_port;
            outcome.either_zero = edited.either_zero;
        }
        Err(reason) => {
            outcome.refused = Some(reason);
            if settings.on_error == ErrorPolicy::Drop && outcome.verdict == Verdict::Pass {
                outcome.verdict = Verdict::Drop(reason);
            }
        }
    }
    outcome
}

/// Calls [`evaluate_with`] with the default settings.
///
/// # Panics
/// On stateful rules with targets that stateless rules cannot have, and on rules that [`mmb_lang::check`]
/// rejects for more than a contradiction.
pub fn evaluate(
    rules: &[(u32, Rule)],
    ifaces: &dyn Fn(&str) -> Option<u16>,
    in_port: u16,
    out_port: u16,
    frame: &[u8],
) -> Outcome {
    evaluate_with(&Settings::default(), rules, ifaces, in_port, out_port, frame)
}

fn actions(rule: &Rule) -> impl Iterator<Item = &Action> {
    rule.targets.iter().map(|target| &target.action)
}

/// Index of the rule that decides, if no random number does: of the rules that block the first; else of those
/// that accept the first, if some rule drops; else of those that drop all packets the first.
fn decider(matching: &[&(u32, Rule)]) -> Option<u32> {
    let first = |wanted: fn(&Action) -> bool| {
        matching.iter().find(|(_, rule)| actions(rule).any(wanted)).map(|(index, _)| *index)
    };
    let drops = first(|action| matches!(action, Action::Reject | Action::Drop { .. }));
    first(|action| matches!(action, Action::Block)).or_else(|| {
        match first(|action| matches!(action, Action::Accept)) {
            Some(accept) => drops.map(|_| accept),
            None => {
                first(|action| matches!(action, Action::Reject | Action::Drop { ten_thousandths: 10_000 }))
            }
        }
    })
}

fn verdict<'a>(actions: impl Iterator<Item = &'a Action>) -> Verdict {
    let (mut accept, mut always, mut sometimes) = (false, false, false);
    let mut block = false;
    for action in actions {
        match action {
            Action::Accept => accept = true,
            Action::Block => block = true,
            Action::Reject | Action::Drop { ten_thousandths: 10_000 } => always = true,
            Action::Drop { .. } => sometimes = true,
            _ => {}
        }
    }
    match (accept, always, sometimes) {
        _ if block => Verdict::Drop(DropReason::Rule),
        (false, true, _) => Verdict::Drop(DropReason::Rule),
        (false, false, true) => Verdict::MayDrop,
        _ => Verdict::Pass,
    }
}

/// An edited frame.
struct Edited {
    bytes: Vec<u8>,
    out_port: u16,
    either_zero: Vec<usize>,
}

/// Applies the edits of all matching `rules`: header fields one by one, then options, then lengths and
/// checksums.
fn edit(settings: &Settings<'_>, rules: &[&Rule], packet: &Packet<'_>) -> Result<Edited, DropReason> {
    let (frame, headers) = (packet.frame, packet.headers);
    let mut edited = Edited { bytes: frame.to_vec(), out_port: packet.out_port, either_zero: Vec::new() };
    // A checksum counts as updated if any rule's edits changed a covered byte, even if a later rule
    // restored it. Edits of options always count, so both representations of zero are accepted.
    let mut touched = false;
    for rule in rules {
        for action in actions(rule) {
            match action {
                Action::Mod { field, .. } if options::is_option(*field) => touched = true,
                Action::Mod { field, value } => modify(*field, value, packet, &mut edited),
                Action::Add { .. } | Action::Strip { .. } | Action::StripAll => touched = true,
                Action::Drop { .. }
                | Action::Accept
                | Action::Block
                | Action::Reject
                | Action::Log { .. }
                | Action::Chain { .. }
                | Action::Broker { .. } => {}
                other => panic!("{other:?} is for sessions, or nothing that mmb_lang::check lets pass"),
            }
        }
        touched |= edited.bytes != frame;
    }
    if let Some(area) = headers.option_area(frame)
        && let Some(options) =
            options::edited(&frame[area.clone()], rules).map_err(|_| DropReason::OptionSpace)?
    {
        replace_options(&mut edited.bytes, headers, area, &options)?;
        let (before, after) = (frame.len(), edited.bytes.len());
        if before != after && headers.fragment {
            return Err(DropReason::OptionFragment);
        }
        if after > before && after > (settings.frame_max)(edited.out_port) {
            return Err(DropReason::OptionMtu);
        }
        touched = true;
    }
    if touched {
        edited.either_zero = checksum::settle(frame, &mut edited.bytes, headers);
    }
    Ok(edited)
}

/// Replaces the options by `options` and updates data offset and IP length.
fn replace_options(
    frame: &mut Vec<u8>,
    headers: &headers::Headers,
    area: std::ops::Range<usize>,
    options: &[u8],
) -> Result<(), DropReason> {
    let words = (20 + options.len()) / 4;
    bits::set(&mut frame[headers.transport_at..], 96, 4, words as u128);
    let (start, old_end) = match headers.net {
        Net::Ip4 => (headers.net_at, headers.end),
        Net::Ip6 => (headers.net_at + 40, headers.end),
    };
    let length = u16::try_from(old_end - area.len() + options.len() - start);
    let length = length.map_err(|_| DropReason::OptionSpace)?.to_be_bytes();
    let at = headers.net_at + if headers.net == Net::Ip4 { 2 } else { 4 };
    frame[at..at + 2].copy_from_slice(&length);
    frame.splice(area, options.iter().copied());
    Ok(())
}

fn modify(field: FieldId, value: &Value, packet: &Packet<'_>, edited: &mut Edited) {
    let name = field.name();
    let Some(number) = matching::number(value, packet) else { return };
    if name == "out" {
        edited.out_port = number as u16;
        return;
    }
    let place = fields::place(name).unwrap_or_else(|| panic!("mmb_lang::check lets no `mod {name}` pass"));
    place.write(&mut edited.bytes, packet.headers, number);
}
