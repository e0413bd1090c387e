//! Edits of packets: a rule's `mod`, `add` and `strip` targets, compiled once, applied to every packet that matches.
//!
//! Theory of operation. An [`EditProgram`] holds, for each header it writes to, the 16-bit words that change, as
//! `new = (old & keep) | key`. Fields that share a word share its edit, and a later `mod` of the same bits replaces an
//! earlier one when the program is compiled. Words are grouped by which checksums cover them (`words::Part`), so that
//! applying a program is: edit the words of the network header, edit those of the transport header, and bring the
//! checksums up to date by the difference that this made (RFC 1624, equation 3), without looking at the payload.
//!
//! What incremental updates mean at the edges:
//!
//! * A checksum that was wrong stays wrong by the same difference: a receiver finds the fault it would have found
//!   without us.
//! * A UDP checksum of zero means "none" and stays; one that comes to zero is written as 0xffff (RFC 768).
//! * ICMP has no pseudo header, so its words may all be zero, and then only 0xffff verifies. A message of type and code
//!   zero whose checksum comes to zero therefore gets 0xffff, which verifies whatever the rest is.
//! * Addresses are part of the transport checksum's pseudo header, except for `ip6-daddr` when a routing header has
//!   segments left (RFC 8200, 8.1).
//! * The first fragment of a datagram carries its transport checksum, which the difference keeps right although the
//!   other fragments are not seen. Later fragments have neither transport header nor checksum.
//! * Fields of headers that a packet does not have are left out.
//!
//! TCP options stand at no fixed place and change the packet's length: they have edits of their own (see `options`),
//! which are computed for all of a packet's rules before anything is written, so that a packet whose options would not
//! fit stays as it came.

#![forbid(unsafe_code)]

mod apply;
mod options;
mod words;

#[cfg(test)]
mod tests;

use mmb_lang::{Action, Diagnostic, FieldId, Target, Value};
use mmb_packet::Loc;
use std::net::IpAddr;

pub use apply::{EditLimits, apply_programs};
use options::OptionEdit;
use words::{Part, Word, Words};

/// The edits of one rule: what its targets do to a packet that it matches, other than to drop it. Equal programs have
/// the same effect on every packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EditProgram {
    /// Where the packet is sent instead.
    out_port: Option<u16>,
    /// Words in the order of [`Part`], each part's in the order of their offsets.
    words: Box<[Word]>,
    /// End of each part's words.
    ends: [u8; Part::COUNT],
    /// The parts that have any: [`Part::bit`].
    used: u16,
    /// Edits of TCP options, in order.
    options: Box<[OptionEdit]>,
}

impl EditProgram {
    /// Compiles the `mod`, `add` and `strip` targets among `targets`. `drop` and `accept` are verdicts, not edits: they
    /// add nothing.
    ///
    /// `ifaces` gives the port of an interface, as an index of the dataplane's port table. Values are taken to fit
    /// their fields, which [`mmb_lang::check`] makes sure of; bits beyond a field's width are ignored.
    ///
    /// # Errors
    /// One that marks the offending word: an interface that does not exist, or a target other than those five.
    pub fn compile(
        targets: &[Target],
        ifaces: &dyn Fn(&str) -> Option<u16>,
    ) -> Result<EditProgram, Diagnostic> {
        let (mut out_port, mut words) = (None, Words::default());
        let mut options = options::Compiler::new(targets);
        for target in targets {
            match &target.action {
                Action::Drop { .. } | Action::Accept => {}
                Action::Mod { field: FieldId::Out, value: Value::Iface(name) } => {
                    out_port = Some(ifaces(name).ok_or_else(|| unknown_interface(name))?);
                }
                action => {
                    let set = match fixed_field(action) {
                        Some((loc, width, value)) => words.set(loc, width, value),
                        None => options.add(action),
                    };
                    if !set {
                        return Err(unsupported(target));
                    }
                }
            }
        }
        let used = words.parts();
        let (words, ends) = words.finish();
        Ok(EditProgram { out_port, words, ends, used, options: options.finish() })
    }

    /// Whether there is nothing to do, whatever the packet.
    pub fn is_empty(&self) -> bool {
        self.out_port.is_none() && self.words.is_empty() && self.options.is_empty()
    }

    /// Whether TCP options are edited, so that the packet's length may change.
    #[inline]
    pub fn edits_options(&self) -> bool {
        !self.options.is_empty()
    }

    fn part(&self, part: Part) -> &[Word] {
        let i = part as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        self.words.get(usize::from(start)..usize::from(self.ends[i])).unwrap_or(&[])
    }
}

/// Place, width in bits and value of a `mod` of a field at a fixed place.
fn fixed_field(action: &Action) -> Option<(Loc, u16, u128)> {
    let Action::Mod { field, value } = action else { return None };
    let def = field.def();
    if !def.in_header() {
        return None;
    }
    let value = match value {
        Value::Int(n) => u128::from(*n),
        Value::Prefix { addr: IpAddr::V4(addr), .. } => u32::from(*addr).into(),
        Value::Prefix { addr: IpAddr::V6(addr), .. } => u128::from(*addr),
        _ => return None,
    };
    Some((def.loc?, def.width_bits, value))
}

fn unknown_interface(name: &mmb_lang::Word) -> Diagnostic {
    Diagnostic::new(name.span.span(), format!("there is no interface {:?}", &*name.text))
        .with_help("`show interfaces` lists those there are")
}

/// [`mmb_lang::check`] refuses such targets first, with its own reasons.
fn unsupported(target: &Target) -> Diagnostic {
    Diagnostic::new(target.span.span(), format!("the engine cannot do `{target}` to a packet"))
        .with_help("`show fields` says which fields can be written")
}
