//! Compiles targets to option edits.

use mmb_lang::{Action, FieldId, Target, Value};
use mmb_packet::Loc;

use super::edit::{Data, Kinds, OptionEdit};

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
