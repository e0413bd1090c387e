//! Edits of TCP options: what a rule's targets say of them, and their way into a packet.
//!
//! Theory of operation. The edits of all of a packet's rules are played in order on the list of its options
//! ([`tcp_options`](mmb_packet::tcp_options): what cannot be read is not in it), before anything is written: if the
//! result has no room, the packet stays as it is. What is written then depends on how the list has changed:
//!
//! * not at all: nothing, so that padding and what cannot be read stay;
//! * only in values, with the same kinds and lengths in the same order: the values, in their places (`writes`; this is
//!   what clamping an MSS does, and it takes no list at all);
//! * otherwise the options are laid out anew (`list`), and if their length changes, the headers before them move: the
//!   payload never does.
//!
//! A value may be written to a header several times, and intermediate lists may be longer than any header: only the
//! result counts.

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

/// Most bytes of options in a header: 15 words less the 5 of the fixed header (RFC 9293, 3.1).
const MOST: usize = 40;

/// One edit of a packet's options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OptionEdit {
    /// Every option of the kind gets this data; if there is none and `add`, it is appended.
    Write { kind: u8, data: Data, add: bool },
    /// The options of these kinds go.
    Strip(Kinds),
}

/// What follows an option's kind and length.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Data {
    bytes: Box<[u8]>,
    /// [`sum_of`] the bytes.
    sum: u16,
}

impl Data {
    fn new(bytes: Box<[u8]>) -> Data {
        Data { sum: sum_of(&bytes), bytes }
    }
}

/// The ones'-complement sum of bytes that begin at an even offset; swapped, it is that of bytes at an odd one (RFC
/// 1071, 2.B).
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

/// Gathers the edits of a rule's targets, one after the other.
#[derive(Debug)]
pub(crate) struct Compiler<'a> {
    targets: &'a [Target],
    edits: Vec<OptionEdit>,
    whitelisted: bool,
}

impl<'a> Compiler<'a> {
    /// For a rule with these targets.
    pub fn new(targets: &'a [Target]) -> Self {
        Compiler { targets, edits: Vec::new(), whitelisted: false }
    }

    /// Adds the edit of one target, in the order of the rule; false: it is none of an option, or of no value that one
    /// has.
    pub fn add(&mut self, action: &Action) -> bool {
        match action {
            Action::Mod { field, value } => self.write(*field, Some(value), false),
            Action::Add { field, value } => self.write(*field, value.as_ref(), true),
            Action::StripAll => self.strip(Kinds::ALL),
            // The whitelist is one edit, at the place of the first `strip !`.
            Action::Strip { keep: true, .. } if std::mem::replace(&mut self.whitelisted, true) => true,
            Action::Strip { keep: true, .. } => self.strip(self.kept().others()),
            Action::Strip { keep: false, field, kind } => self.strip(kinds(*field, *kind)),
            _ => false,
        }
    }

    fn strip(&mut self, kinds: Kinds) -> bool {
        self.edits.push(OptionEdit::Strip(kinds));
        true
    }

    /// What the rule's `strip !` name.
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

/// The kinds that a `strip` is about.
fn kinds(field: FieldId, kind: Option<u8>) -> Kinds {
    kind.or(field.def().option_kind()).map_or(Kinds::ALL, |kind| Kinds::of([kind]))
}

/// Edits the options of a packet as all of its programs say. A packet without a readable TCP header has none.
///
/// # Errors
/// Those of [`crate::apply_programs`]; nothing was done then.
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
    if writes.are_all(area, edits.clone()) {
        header.write(packet.head_mut(), &writes);
        return Ok(());
    }
    let mut new = Area::EMPTY;
    if !list::edited(area, edits, &mut new)? {
        return Ok(());
    }
    let out_port = programs.filter_map(|program| program.out_port).last().unwrap_or(meta.out_port);
    header.replace(packet, meta, &new, || (limits.frame_max)(out_port))
}
