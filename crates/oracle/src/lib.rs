//! The oracle: what a rule set does to a frame, worked out one rule and one bit at a time.
//!
//! Theory of operation. The engine is fast because it is clever: canonical windows, masks, hash tables, incremental
//! checksums. The oracle is none of that. It reads the headers on its own from the RFCs, looks at every match of every
//! rule, sets fields bit by bit and sums whole packets for their checksums. It shares the rules' syntax tree and the
//! drop reasons with the engine and nothing else, so that a mistake has to be made twice to go unseen. Tests and fuzz
//! targets run both and compare; nothing else uses this crate.
//!
//! [`generate`] makes the rules and frames for that.

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

pub use chains::{ChainClasses, chain, matching_rules};

use mmb_lang::{Action, ErrorPolicy, FieldId, Rule, Value};
use mmb_packet::DropReason;

use headers::Net;
use matching::Packet;

/// What happens to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It is dropped.
    Drop(DropReason),
    /// It is dropped sometimes: a rule with a percentage under 100 matches and nothing else decides. What is not dropped
    /// so goes on, or with [`Outcome::refused`] and [`ErrorPolicy::Drop`] is dropped for that reason.
    MayDrop,
}

/// What surrounds the rules.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// What becomes of packets whose edits cannot be made.
    pub on_error: ErrorPolicy,
    /// The longest frame, in bytes, that goes out at a port.
    pub frame_max: &'a dyn Fn(u16) -> usize,
}

impl Default for Settings<'_> {
    /// Forward, and frames of any length.
    fn default() -> Self {
        Self { on_error: ErrorPolicy::Forward, frame_max: &|_| usize::MAX }
    }
}

/// What a rule set does to a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the frame goes on.
    pub verdict: Verdict,
    /// Indexes of all rules that match, in the order they were given. Empty for what is not (readable) IP.
    pub matched: Vec<u32>,
    /// Why none of the edits is made, if that is so: `option-space`, `option-fragment` or `option-mtu`, the first of these
    /// that holds. Not set for what a rule drops for sure.
    pub refused: Option<DropReason>,
    /// The frame as it goes on; as it came if it is dropped or its edits are refused.
    pub bytes: Vec<u8>,
    /// The port it goes out at; the one it was to leave at if its edits are refused.
    pub out_port: u16,
    /// Offsets in `bytes` of checksums that may be 0x0000 just as well as 0xffff (`bytes` has 0xffff): they were not
    /// what a sender would have written before, or cover bytes that nobody need look at.
    pub either_zero: Vec<usize>,
}

impl Outcome {
    /// Compares the frame that goes on with what an implementation made of it.
    ///
    /// # Errors
    /// The first difference, in words.
    pub fn check_bytes(&self, bytes: &[u8]) -> Result<(), String> {
        if bytes.len() != self.bytes.len() {
            return Err(format!("{} bytes instead of {}", bytes.len(), self.bytes.len()));
        }
        let mut expected = self.bytes.clone();
        for &at in &self.either_zero {
            if bytes[at..at + 2] == [0, 0] {
                expected[at..at + 2].fill(0);
            }
        }
        match (0..bytes.len()).find(|&i| bytes[i] != expected[i]) {
            None => Ok(()),
            Some(i) => Err(format!("byte {i} is {:#04x} instead of {:#04x}", bytes[i], expected[i])),
        }
    }
}

/// Applies `rules`, each with its index and in the order of their indexes, to a frame that came in at `in_port` and is
/// to leave at `out_port`. `ifaces` gives the port of an interface; a name without a port never equals one, and writing
/// it does nothing.
///
/// What claims to be IP and cannot be read is dropped with the reason, what is not IP passes: neither sees the rules.
/// Otherwise every rule is tried on the frame as it came. Any matching `accept` keeps the frame; else any matching
/// `drop` drops it; if it goes on, all matching rules' edits apply in order, and lengths and checksums follow. If the TCP
/// options that come out do not fit, no edit is made at all, and `settings` say whether the frame goes on.
///
/// # Panics
/// On stateful rules with targets that no stateless rule has (but `chain`, which does nothing to a packet), and on rules that [`mmb_lang::check`] refuses for more than a
/// contradiction.
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
    let packet = Packet { frame, headers: &headers, in_port, out_port, ifaces };
    let matching: Vec<_> = rules.iter().filter(|(_, rule)| matching::rule_matches(rule, &packet)).collect();
    outcome.matched = matching.iter().map(|(index, _)| *index).collect();
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

/// [`evaluate_with`] the default settings.
///
/// # Panics
/// On stateful rules with targets that no stateless rule has, and on rules that [`mmb_lang::check`] refuses for more than a
/// contradiction.
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

fn verdict<'a>(actions: impl Iterator<Item = &'a Action>) -> Verdict {
    let (mut accept, mut always, mut sometimes) = (false, false, false);
    for action in actions {
        match action {
            Action::Accept => accept = true,
            Action::Drop { ten_thousandths: 10_000 } => always = true,
            Action::Drop { .. } => sometimes = true,
            _ => {}
        }
    }
    match (accept, always, sometimes) {
        (false, true, _) => Verdict::Drop(DropReason::Rule),
        (false, false, true) => Verdict::MayDrop,
        _ => Verdict::Pass,
    }
}

/// A frame that was edited.
struct Edited {
    bytes: Vec<u8>,
    out_port: u16,
    either_zero: Vec<usize>,
}

/// The edits of all matching `rules`: one header field after the other, then the options, then lengths and checksums.
fn edit(settings: &Settings<'_>, rules: &[&Rule], packet: &Packet<'_>) -> Result<Edited, DropReason> {
    let (frame, headers) = (packet.frame, packet.headers);
    let mut edited = Edited { bytes: frame.to_vec(), out_port: packet.out_port, either_zero: Vec::new() };
    // A checksum is looked at if any rule's edits made a difference, even if a later rule's undid it; edits of options
    // are taken to have made one, so that of the two spellings of zero either may come out.
    let mut touched = false;
    for rule in rules {
        for action in actions(rule) {
            match action {
                Action::Mod { field, .. } if options::is_option(*field) => touched = true,
                Action::Mod { field, value } => modify(*field, value, packet, &mut edited),
                Action::Add { .. } | Action::Strip { .. } | Action::StripAll => touched = true,
                Action::Drop { .. } | Action::Accept | Action::Chain { .. } => {}
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

/// Puts `options` where the options are; data offset and IP length follow.
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
