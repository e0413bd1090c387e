//! Compiled edits.

use std::net::IpAddr;

use mmb_lang::{Action, Diagnostic, FieldId, Target, Value};
use mmb_packet::Loc;

use crate::options::{Compiler, OptionEdit};
use crate::words::{Part, Word, Words};

/// The compiled edits of one rule, without its verdict. Equal programs have the same effect on every
/// packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EditProgram {
    /// New output port.
    pub(crate) out_port: Option<u16>,
    /// Words in the order of [`Part`], then by offset.
    pub(crate) words: Box<[Word]>,
    /// End index of each part's words.
    ends: [u8; Part::COUNT],
    /// Set of the parts that have words, as [`Part::bit`]s.
    pub(crate) used: u16,
    /// Edits of TCP options, in order.
    pub(crate) options: Box<[OptionEdit]>,
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
        let mut options = Compiler::new(targets);
        for target in targets {
            match &target.action {
                Action::Drop { .. }
                | Action::Accept
                | Action::Block
                | Action::Reject
                | Action::Log { .. } => {}
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

    pub(crate) fn part(&self, part: Part) -> &[Word] {
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

#[cfg(test)]
mod tests;
