//! The list of a packet's options, its edits and its layout.

use mmb_packet::{DropReason, TcpOptions};

use super::edit::{MAX_BYTES, OptionEdit};

const NOP: u8 = 1;

/// The option bytes behind a fixed header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    bytes: [u8; MAX_BYTES],
    /// Length in bytes; a multiple of 4.
    len: usize,
}

impl Area {
    pub const EMPTY: Area = Area { bytes: [0; MAX_BYTES], len: 0 };

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Applies `edits` to the option bytes `area`. Returns whether they change; the result is written to `new`,
/// which is [`Area::EMPTY`] before.
///
/// # Errors
/// [`DropReason::OptionSpace`]: the result does not fit a header.
pub(super) fn apply_edits<'a, 'e: 'a>(
    area: &'a [u8],
    edits: impl Iterator<Item = &'e OptionEdit> + Clone,
    new: &mut Area,
) -> Result<bool, DropReason> {
    match edit_short_list(area, edits.clone(), new) {
        Some(result) => result,
        None => edit_long_list(area, edits, new),
    }
}

/// The usual case of at most 16 options at any time. Returns `None`, without a change, if there are more.
#[inline(never)]
fn edit_short_list<'a, 'e: 'a>(
    area: &'a [u8],
    edits: impl Iterator<Item = &'e OptionEdit>,
    new: &mut Area,
) -> Option<Result<bool, DropReason>> {
    let mut list = List::<16>::EMPTY;
    list.play(area, edits)?;
    Some(list.layout(area, new))
}

/// The general case: every kind can be appended once to the present options.
#[cold]
#[inline(never)]
fn edit_long_list<'a, 'e: 'a>(
    area: &'a [u8],
    edits: impl Iterator<Item = &'e OptionEdit>,
    new: &mut Area,
) -> Result<bool, DropReason> {
    let mut list = List::<{ MAX_BYTES / 2 + 256 }>::EMPTY;
    list.play(area, edits).ok_or(DropReason::OptionSpace)?;
    list.layout(area, new)
}

/// One option.
#[derive(Clone, Copy)]
struct Item<'a> {
    kind: u8,
    /// Bytes of padding directly before the option.
    padding: u8,
    data: &'a [u8],
}

/// Up to `N` options, in order.
struct List<'a, const N: usize> {
    items: [Item<'a>; N],
    len: usize,
}

impl<'a, const N: usize> List<'a, N> {
    const EMPTY: Self = List { items: [Item { kind: 0, padding: 0, data: &[] }; N], len: 0 };

    /// Reads the options of `area` and applies the edits. Returns `None` if there are more than `N` options
    /// at some time.
    fn play<'e: 'a>(
        &mut self,
        area: &'a [u8],
        mut edits: impl Iterator<Item = &'e OptionEdit>,
    ) -> Option<()> {
        self.read(area)?;
        edits.try_for_each(|edit| self.edit(edit))
    }

    fn read(&mut self, area: &'a [u8]) -> Option<()> {
        let mut end = 0;
        for option in TcpOptions::new(area) {
            let padding = (option.at - end) as u8;
            self.push(Item { kind: option.kind, padding, data: option.data })?;
            end = option.at + 2 + option.data.len();
        }
        Some(())
    }

    fn push(&mut self, item: Item<'a>) -> Option<()> {
        *self.items.get_mut(self.len)? = item;
        self.len += 1;
        Some(())
    }

    fn edit(&mut self, edit: &'a OptionEdit) -> Option<()> {
        match edit {
            OptionEdit::Write { kind, data, add } => {
                let mut found = false;
                for item in self.items[..self.len].iter_mut().filter(|item| item.kind == *kind) {
                    item.data = &data.bytes;
                    found = true;
                }
                if *add && !found {
                    self.push(Item { kind: *kind, padding: 0, data: &data.bytes })?;
                }
            }
            OptionEdit::Strip(kinds) => {
                let mut kept = 0;
                for i in 0..self.len {
                    if !kinds.has(self.items[i].kind) {
                        self.items[kept] = self.items[i];
                        kept += 1;
                    }
                }
                self.len = kept;
            }
        }
        Some(())
    }

    fn layout(&self, area: &[u8], new: &mut Area) -> Result<bool, DropReason> {
        let (items, before) = (&self.items[..self.len], TcpOptions::new(area));
        let shape = |item: &Item| (item.kind, item.data.len());
        if items.iter().map(shape).ne(before.clone().map(|option| (option.kind, option.data.len()))) {
            return lay_out(items, new);
        }
        if items.iter().map(|item| item.data).eq(before.clone().map(|option| option.data)) {
            return Ok(false);
        }
        new.len = area.len();
        new.bytes.get_mut(..area.len()).ok_or(DropReason::OptionSpace)?.copy_from_slice(area);
        for (item, option) in items.iter().zip(before) {
            new.bytes[option.at + 2..][..item.data.len()].copy_from_slice(item.data);
        }
        Ok(true)
    }
}

/// Writes the options with the padding before each, followed by zeros to a multiple of 4.
fn lay_out(items: &[Item<'_>], new: &mut Area) -> Result<bool, DropReason> {
    let length: usize = items.iter().map(|item| usize::from(item.padding) + 2 + item.data.len()).sum();
    new.len = length.next_multiple_of(4);
    if new.len > MAX_BYTES {
        return Err(DropReason::OptionSpace);
    }
    let mut at = 0;
    for item in items {
        let start = at + usize::from(item.padding);
        new.bytes[at..start].fill(NOP);
        let (head, data) = (start + 2, item.data);
        at = head + data.len();
        // The length fits its byte because the option fits the header.
        new.bytes[start..head].copy_from_slice(&[item.kind, (2 + data.len()) as u8]);
        new.bytes[head..at].copy_from_slice(data);
    }
    Ok(true)
}
