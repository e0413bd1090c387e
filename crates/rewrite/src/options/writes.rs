//! Edits that keep the layout of the options.

use mmb_packet::TcpOptions;

use super::edit::{Data, OptionEdit};

/// Maximum number of values that are overwritten in place; more take the general path, with the same
/// result.
const MAX_WRITES: usize = 4;

/// Values and their offsets in the options, in the order of writing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Writes<'a> {
    writes: [Option<(usize, &'a Data)>; MAX_WRITES],
    len: usize,
}

impl<'a> Writes<'a> {
    /// Collects the values that the edits write into `area`. Returns false if some edit adds, removes or
    /// resizes an option, or if there are too many values.
    #[inline]
    pub fn collect(&mut self, area: &[u8], edits: impl Iterator<Item = &'a OptionEdit>) -> bool {
        for edit in edits {
            match edit {
                OptionEdit::Strip(kinds) => {
                    if TcpOptions::new(area).any(|option| kinds.has(option.kind)) {
                        return false;
                    }
                }
                OptionEdit::Write { kind, data, add } => {
                    let mut found = false;
                    for option in TcpOptions::new(area) {
                        if option.kind != *kind {
                            continue;
                        }
                        let Some(write) = self.writes.get_mut(self.len) else { return false };
                        if option.data.len() != data.bytes.len() {
                            return false;
                        }
                        *write = Some((option.at + 2, data));
                        self.len += 1;
                        found = true;
                    }
                    if *add && !found {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Iterates over the values and their offsets from the end of the fixed header.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, &'a Data)> {
        self.writes.iter().map_while(|write| *write)
    }
}
