//! Packet edits: a rule's `mod`, `add` and `strip` targets, compiled once and applied to every matching
//! packet.
//!
//! Theory of operation. An [`EditProgram`] holds, for each header it writes, the 16-bit words that change,
//! as `new = (old & keep) | key`. Fields that share a word share its edit. At compile time a later `mod` of
//! the same bits replaces an earlier one. Words are grouped by the checksums that cover them
//! (`words::Part`). Applying a program edits the words of the network header, then those of the transport
//! header, and updates the checksums by the difference (RFC 1624, equation 3). It does not read the
//! payload.
//!
//! Incremental updates have these corner cases:
//!
//! * An invalid checksum stays invalid by the same difference, so the receiver still detects the error.
//! * A UDP checksum of zero means "none" and stays zero. A computed zero is written as 0xffff (RFC 768).
//! * ICMP has no pseudo header, so all its words can be zero, and then only 0xffff is valid. A message of
//!   type and code zero whose checksum becomes zero therefore gets 0xffff, which is valid in any case.
//! * Addresses are part of the transport checksum's pseudo header, except `ip6-daddr` when a routing header
//!   has segments left (RFC 8200, 8.1).
//! * The first fragment carries the datagram's transport checksum. The incremental update keeps it valid
//!   without the other fragments. Later fragments have neither transport header nor checksum.
//! * Edits of headers that a packet does not have are skipped.
//!
//! TCP options have no fixed offset and change the packet's length. Their edits (see `options`) are
//! computed for all matching rules before anything is written. A packet whose options would not fit stays
//! unchanged.

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

/// The compiled edits of one rule, without its verdict. Equal programs have the same effect on every
/// packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EditProgram {
    /// New output port.
    out_port: Option<u16>,
    /// Words in the order of [`Part`], then by offset.
    words: Box<[Word]>,
    /// End index of each part's words.
    ends: [u8; Part::COUNT],
    /// Set of the parts that have words, as [`Part::bit`]s.
    used: u16,
    /// Edits of TCP options, in order.
    options: Box<[OptionEdit]>,
}

impl EditProgram {
    /// Compiles the `mod`, `add` and `strip` targets among `targets`. The verdicts `drop` and `accept` add
    /// nothing.
    ///
    /// `ifaces` maps an interface name to an index of the dataplane's port table. [`mmb_lang::check`] has
    /// verified that values fit their fields; bits beyond a field's width are ignored.
    ///
    /// # Errors
    /// A diagnostic that marks the offending word: an unknown interface, or any other target.
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

    /// Whether the program changes no packet.
    pub fn is_empty(&self) -> bool {
        self.out_port.is_none() && self.words.is_empty() && self.options.is_empty()
    }

    /// Whether the program edits TCP options, so that the packet's length can change.
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

/// Location, width in bits and value of a `mod` of a fixed-offset field.
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
        .with_help("`show interfaces` lists all interfaces")
}

/// Fallback: [`mmb_lang::check`] rejects such targets first, with specific reasons.
fn unsupported(target: &Target) -> Diagnostic {
    Diagnostic::new(target.span.span(), format!("the target `{target}` cannot be compiled"))
        .with_help("`show fields` lists the fields that can be written")
}
