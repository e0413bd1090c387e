//! Edits of TCP options.
//!
//! Theory of operation. The edits of all matching rules are applied in order to a list of the packet's
//! options before anything is written. The list holds the readable options
//! ([`tcp_options`](mmb_packet::tcp_options)). If the result does not fit, the packet stays unchanged. The
//! write depends on how the list has changed:
//!
//! * Not at all: nothing is written, so padding and unreadable bytes stay.
//! * Only in values, with the same kinds and lengths in the same order: the values are overwritten in place
//!   (`writes`). MSS clamping is this case; it needs no list.
//! * Otherwise the options are laid out again (`list`). If their length changes, the headers before them
//!   move; the payload never does.
//!
//! A header value may be written several times, and intermediate lists may exceed the maximum length. Only
//! the result counts.

mod commit;
mod list;
mod writes;

#[cfg(test)]
mod tests;

use mmb_lang::{Action, FieldId, Target, Value};
use mmb_packet::checksum::{fold, sum};
use mmb_packet::{DropReason, Loc, Meta, PacketBuf};

use crate::{EditLimits, EditProgram};
use commit::Header;
use list::Area;
use writes::Writes;

/// Maximum bytes of options in a header: 15 words less the 5 of the fixed header (RFC 9293, 3.1).
const MAX_BYTES: usize = 40;

/// One edit of a packet's options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OptionEdit {
    /// Every option of the kind gets this data. With `add`, the option is appended if the packet has none.
    Write { kind: u8, data: Data, add: bool },
    /// Removes the options of these kinds.
    Strip(Kinds),
}

/// An option's bytes behind kind and length.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Data {
    bytes: Box<[u8]>,
    /// Result of [`sum_of`] over the bytes.
    sum: u16,
}

impl Data {
    fn new(bytes: Box<[u8]>) -> Data {
        Data { sum: sum_of(&bytes), bytes }
    }
}

/// Ones'-complement sum of bytes at an even offset. Swap the result for bytes at an odd offset (RFC 1071,
/// 2.B).
#[inline]
fn sum_of(bytes: &[u8]) -> u16 {
    match bytes {
        [byte] => u16::from(*byte) << 8,
        [high, low] => u16::from_be_bytes([*high, *low]),
        _ => fold(sum(bytes, 0)),
    }
}

/// A set of option kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kinds([u64; 4]);

impl Kinds {
    const ALL: Kinds = Kinds([u64::MAX; 4]);

    fn of(kinds: impl IntoIterator<Item = u8>) -> Kinds {
        let mut set = [0; 4];
        kinds.into_iter().for_each(|kind| set[usize::from(kind / 64)] |= 1 << (kind % 64));
        Kinds(set)
    }

    fn others(self) -> Kinds {
        Kinds(self.0.map(|bits| !bits))
    }

    #[inline]
    fn has(&self, kind: u8) -> bool {
        self.0[usize::from(kind / 64)] >> (kind % 64) & 1 == 1
    }
}

/// Collects the edits of a rule's targets in order.
#[derive(Debug)]
pub(crate) struct Compiler<'a> {
    targets: &'a [Target],
    edits: Vec<OptionEdit>,
    has_strip_all_but: bool,
}

impl<'a> Compiler<'a> {
    /// A compiler for a rule with these targets.
    pub fn new(targets: &'a [Target]) -> Self {
        Compiler { targets, edits: Vec::new(), has_strip_all_but: false }
    }

    /// Adds the edit of one target. Returns false if the target is not an option edit, or its value is
    /// invalid for the option.
    pub fn add(&mut self, action: &Action) -> bool {
        match action {
            Action::Mod { field, value } => self.write(*field, Some(value), false),
            Action::Add { field, value } => self.write(*field, value.as_ref(), true),
            Action::StripAll => self.strip(Kinds::ALL),
            // All `strip !` targets are one edit, in the position of the first.
            Action::Strip { keep: true, .. } if std::mem::replace(&mut self.has_strip_all_but, true) => true,
            Action::Strip { keep: true, .. } => self.strip(self.kept().others()),
            Action::Strip { keep: false, field, kind } => self.strip(kinds(*field, *kind)),
            _ => false,
        }
    }

    fn strip(&mut self, kinds: Kinds) -> bool {
        self.edits.push(OptionEdit::Strip(kinds));
        true
    }

    /// The kinds that the rule's `strip !` targets name.
    fn kept(&self) -> Kinds {
        let named = self.targets.iter().filter_map(|target| match target.action {
            Action::Strip { keep: true, field, kind } => Some(kinds(field, kind)),
            _ => None,
        });
        named.fold(Kinds([0; 4]), |all, one| Kinds(std::array::from_fn(|i| all.0[i] | one.0[i])))
    }

    fn write(&mut self, field: FieldId, value: Option<&Value>, add: bool) -> bool {
        let def = field.def();
        let (kind, data): (u8, Box<[u8]>) = match (def.loc, value) {
            (Some(Loc::TcpOptionAny), Some(Value::Option { kind: kind @ 2.., data })) => {
                (*kind, data.clone())
            }
            (Some(Loc::TcpOption(option)), value) => {
                let data = match value {
                    Some(Value::Int(n)) => n.to_be_bytes()[8 - option.data_len().unwrap_or(8)..].into(),
                    Some(Value::Bytes(data)) => data.clone(),
                    _ => Box::default(),
                };
                if option.data_len().is_some_and(|length| length != data.len()) {
                    return false;
                }
                (option.kind(), data)
            }
            _ => return false,
        };
        self.edits.push(OptionEdit::Write { kind, data: Data::new(data), add });
        true
    }

    /// The edits in order.
    pub fn finish(self) -> Box<[OptionEdit]> {
        self.edits.into()
    }
}

/// The kinds that a `strip` target names.
fn kinds(field: FieldId, kind: Option<u8>) -> Kinds {
    kind.or(field.def().option_kind()).map_or(Kinds::ALL, |kind| Kinds::of([kind]))
}

/// Applies the option edits of all programs to a packet. Does nothing to a packet without a readable TCP
/// header.
///
/// # Errors
/// The errors of [`crate::apply_programs`]; the packet is unchanged after an error.
#[inline(never)]
pub(crate) fn edit<'a>(
    programs: impl Iterator<Item = &'a EditProgram> + Clone,
    packet: &mut impl PacketBuf,
    meta: &mut Meta,
    limits: &EditLimits<impl Fn(u16) -> usize>,
) -> Result<(), DropReason> {
    let Some(header) = Header::of(packet.head(), meta) else { return Ok(()) };
    let edits = programs.clone().flat_map(|program| program.options.iter());
    let area = header.area(packet.head());
    let mut writes = Writes::default();
    if writes.collect(area, edits.clone()) {
        header.write(packet.head_mut(), &writes);
        return Ok(());
    }
    let mut new = Area::EMPTY;
    if !list::apply_edits(area, edits, &mut new)? {
        return Ok(());
    }
    let out_port = programs.filter_map(|program| program.out_port).last().unwrap_or(meta.out_port);
    header.replace(packet, meta, &new, || (limits.frame_max)(out_port))
}
