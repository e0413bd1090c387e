//! Edits that leave every option where it is.

use mmb_packet::TcpOptions;

use super::{Data, OptionEdit};

/// Most values that are written without laying the options out anew. Which way is taken makes no difference to the
/// bytes.
const MOST_WRITES: usize = 4;

/// Values and their places in the options, to be written in order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Writes<'a> {
    writes: [Option<(usize, &'a Data)>; MOST_WRITES],
    len: usize,
}

impl<'a> Writes<'a> {
    /// Gathers what the edits write into `area`, and says whether that is all they do: none takes away or adds an
    /// option or changes its length, and there are not too many.
    #[inline]
    pub fn are_all(&mut self, area: &[u8], edits: impl Iterator<Item = &'a OptionEdit>) -> bool {
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

    /// Offset from behind the fixed header, and what is written there.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, &'a Data)> {
        self.writes.iter().map_while(|write| *write)
    }
}
