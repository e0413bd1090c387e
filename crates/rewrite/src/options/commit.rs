//! Writes edited options into a packet: room, lengths and checksums.

use mmb_packet::checksum::update16;
use mmb_packet::{DropReason, Kind, Meta, PacketBuf, PacketFlags};

use super::edit::sum_of;
use super::list::Area;
use super::writes::Writes;

/// Lengths of the fixed headers, and offsets in them.
const TCP: usize = 20;
const TCP_OFFSET: usize = 12;
const TCP_CHECKSUM: usize = 16;
const IP4: usize = 20;
const IP4_LENGTH: usize = 2;
const IP4_CHECKSUM: usize = 10;
const IP6: usize = 40;
const IP6_LENGTH: usize = 4;

/// Offsets of a TCP header and its network header; both lie in the head of the packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    l3: usize,
    l4: usize,
    /// Length of the options in bytes.
    options: usize,
    over_ip4: bool,
}

impl Header {
    /// Returns `None` if `meta` has no TCP header, or places the headers beyond `head`.
    #[inline]
    pub fn of(head: &[u8], meta: &Meta) -> Option<Header> {
        if meta.kind.l4() != Kind::TCP {
            return None;
        }
        let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
        let over_ip4 = meta.kind.l3() == Kind::IP4;
        let network = if over_ip4 { IP4 } else { IP6 };
        let length = usize::from(head.get(l4 + TCP_OFFSET)? >> 4) * 4;
        let whole = l3 + network <= l4 && l4 + length <= head.len();
        let is_ip = over_ip4 || meta.kind.l3() == Kind::IP6;
        let options = length.checked_sub(TCP)?;
        (is_ip && whole).then_some(Header { l3, l4, options, over_ip4 })
    }

    /// The bytes behind the fixed header.
    #[inline]
    pub fn area<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        &head[self.l4 + TCP..][..self.options]
    }

    /// Overwrites option values in place.
    #[inline]
    pub fn write(&self, head: &mut [u8], writes: &Writes<'_>) {
        for (at, data) in writes.iter() {
            let value = &mut head[self.l4 + TCP..][..self.options][at..][..data.bytes.len()];
            if *value == *data.bytes {
                continue;
            }
            let change = (sum_of(value), data.sum);
            value.copy_from_slice(&data.bytes);
            // Values can be at odd offsets.
            let swapped = (change.0.swap_bytes(), change.1.swap_bytes());
            self.update(head, [if at % 2 == 0 { change } else { swapped }]);
        }
    }

    /// Updates the TCP checksum, given sums before and after each change.
    #[inline]
    fn update<const N: usize>(&self, head: &mut [u8], changes: [(u16, u16); N]) {
        let at = self.l4 + TCP_CHECKSUM;
        let old = word(head, at);
        set_word(
            head,
            at,
            changes.iter().fold(old, |checksum, (before, after)| update16(checksum, *before, *after)),
        );
    }

    /// Replaces the options by `new`.
    ///
    /// # Errors
    /// The errors of [`crate::apply_programs`]; the packet is unchanged after an error.
    pub fn replace(
        &self,
        packet: &mut impl PacketBuf,
        meta: &mut Meta,
        new: &Area,
        frame_max: impl FnOnce() -> usize,
    ) -> Result<(), DropReason> {
        let (old_len, new_len) = (self.options, new.bytes().len());
        let before = sum_of(self.area(packet.head()));
        if new_len != old_len {
            self.check_lengths(packet, meta, new_len)?;
            self.move_headers(packet, new_len, frame_max)?;
        }
        let head = packet.head_mut();
        head[self.l4 + TCP..][..new_len].copy_from_slice(new.bytes());
        self.update(head, [(before, sum_of(new.bytes()))]);
        if new_len != old_len {
            self.set_lengths(head, meta, new_len);
        }
        Ok(())
    }

    /// Offset of the network header's length field, and offset from which it counts.
    fn length_field(&self) -> (usize, usize) {
        if self.over_ip4 { (self.l3 + IP4_LENGTH, self.l3) } else { (self.l3 + IP6_LENGTH, self.l3 + IP6) }
    }

    /// Checks that IP's length field can hold the new length and that the packet is not a fragment.
    fn check_lengths(&self, packet: &impl PacketBuf, meta: &Meta, options: usize) -> Result<(), DropReason> {
        let (at, _) = self.length_field();
        let length = usize::from(word(packet.head(), at)) + options;
        let countable = length.checked_sub(self.options).is_some_and(|length| length <= u16::MAX.into());
        match countable {
            false => Err(DropReason::OptionSpace),
            true if meta.flags.contains(PacketFlags::FRAGMENT) => Err(DropReason::OptionFragment),
            true => Ok(()),
        }
    }

    /// Resizes the space between the fixed header and the payload to `options` bytes.
    fn move_headers(
        &self,
        packet: &mut impl PacketBuf,
        options: usize,
        frame_max: impl FnOnce() -> usize,
    ) -> Result<(), DropReason> {
        let headers = self.l4 + TCP;
        let Some(more) = options.checked_sub(self.options) else {
            let less = self.options - options;
            packet.head_mut().copy_within(..headers, less);
            // The head contains the removed bytes, so this succeeds.
            return if packet.shrink_front(less) { Ok(()) } else { Err(DropReason::OptionRoom) };
        };
        if packet.longest_frame() + more > frame_max() {
            return Err(DropReason::OptionMtu);
        }
        if !packet.grow_front(more) {
            return Err(DropReason::OptionRoom);
        }
        packet.head_mut().copy_within(more..more + headers, 0);
        Ok(())
    }

    /// Updates the data offset, the IP length and the checksums that cover them.
    fn set_lengths(&self, head: &mut [u8], meta: &mut Meta, options: usize) {
        let (length_at, counted_from) = self.length_field();
        let old_length = word(head, length_at);
        let new_length = (usize::from(old_length) + options - self.options) as u16;
        set_word(head, length_at, new_length);
        if self.over_ip4 {
            let checksum = word(head, self.l3 + IP4_CHECKSUM);
            set_word(head, self.l3 + IP4_CHECKSUM, update16(checksum, old_length, new_length));
        }
        let old_offset = word(head, self.l4 + TCP_OFFSET);
        let new_offset = old_offset & 0x0fff | ((TCP + options) as u16 / 4) << 12;
        set_word(head, self.l4 + TCP_OFFSET, new_offset);
        // The pseudo header's length changes by the same difference as the network header's.
        self.update(head, [(old_offset, new_offset), (old_length, new_length)]);
        let end = counted_from + usize::from(new_length);
        meta.end = u16::try_from(end).unwrap_or(u16::MAX);
    }
}

#[inline]
fn word(head: &[u8], at: usize) -> u16 {
    head.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

#[inline]
fn set_word(head: &mut [u8], at: usize, word: u16) {
    if let Some(bytes) = head.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *bytes = word.to_be_bytes();
    }
}
