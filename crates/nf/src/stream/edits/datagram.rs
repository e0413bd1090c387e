//! Edits of datagrams.
//!
//! Theory of operation. A datagram of UDP is edited alone: nothing of it can wait, and what has left in an
//! earlier one cannot be changed. A function may have the end of a datagram kept ([`StreamEdit::keep_from`]),
//! and gets these bytes again in front of the next one, to read. So it finds a word in two datagrams. A
//! datagram with other bytes of the same length is overwritten; in the place of one with another length,
//! a new frame leaves. It has the headers of the old one. Its checksum is updated (RFC 1624), so that one
//! that was wrong stays wrong. A checksum of zero stays zero (RFC 768; RFC 6936, 5).
//!
//! A datagram may not become longer than the output takes, and only a whole one with one length in both of
//! its headers can become longer or shorter. Fragments are read, and not edited.

use mmb_packet::checksum::{fold, sum, update16};
use mmb_packet::{Kind, PacketFlags};
use mmb_stream::{Change, View};

use super::counters::{DATAGRAMS, NO_ROOM_FOR_END};
use super::data::{EditInput, StreamEdit, Target, count_changes};
use super::ends::{Datagrams, IS_END};
use super::error::EditError;
use super::{EditMemory, Work};
use crate::context::Emissions;
use crate::set::VECTOR;
use crate::stream::StreamData;
use crate::{EmitTarget, Packet, Verdict};

/// Most bytes that are kept of a datagram: those of one block of memory.
const MOST_KEPT: usize = 2048;
/// Bytes of a header of UDP, and its fields (RFC 768).
const HEADER: usize = 8;
const LENGTH: usize = 4;
const CHECKSUM: usize = 6;

/// Returns the bytes of the header of IP, with its options and extension headers.
fn ip_header_len(packet: &Packet<'_>) -> usize {
    usize::from(packet.meta.l4_off).saturating_sub(usize::from(packet.meta.l3_off))
}

impl EditMemory {
    /// A packet that is not TCP is in front of the functions.
    #[inline]
    pub fn begin_datagram(&mut self, i: usize, packet: &Packet<'_>) {
        if packet.meta.kind.l4() == Kind::UDP && !packet.meta.flags.contains(PacketFlags::FRAGMENT) {
            self.datagrams.editable.insert(i);
            self.datagrams.new.insert(i);
        }
    }

    /// Whether functions have changed a packet that is a datagram.
    pub fn is_changed_datagram(&self, i: usize) -> bool {
        self.changed.contains(i) && self.datagrams.editable.contains(i)
    }

    /// Calls a closure with the bytes of a datagram, and does what it has asked for. See
    /// [`EditMemory::edit`].
    pub(super) fn edit_datagram<R>(
        &mut self,
        packet: &Packet<'_>,
        input: EditInput<'_>,
        f: impl FnOnce(&mut StreamEdit<'_, '_>) -> R,
    ) -> Option<R> {
        let EditInput { at, view, tail } = input;
        let (direction, is_changed) = (packet.direction as usize, self.is_changed_datagram(at));
        let gone = self.load_end(*tail, direction);
        let is_copied = gone != 0 || is_changed;
        if is_copied {
            self.collect_datagram(packet, (at, view));
        }
        let target = match self.datagrams.editable.contains(at) {
            true => self.target(packet, (at, view), gone),
            false => Target::None(EditError::of_packet(packet)),
        };
        let Work { datagram, changes, bytes, .. } = &mut self.work;
        changes.clear();
        bytes.clear();
        let data = match is_copied {
            true => StreamData::of_bytes(packet, view, datagram),
            false => StreamData::new(packet, view),
        };
        if data.len() == gone {
            return None;
        }
        let mut edit = StreamEdit::new(data, gone, target, (changes, bytes), &mut self.tally);
        if self.recorder.is_some() {
            edit.set_recorded();
        }
        let (result, len) = (f(&mut edit), edit.len());
        let kept = edit.kept();
        self.record(at, (len, gone, kept));
        if !is_copied && (!self.work.changes.is_empty() || kept.is_some()) {
            self.work.datagram.clear();
            self.collect_datagram(packet, (at, view));
        }
        if kept.is_some() || *tail != 0 {
            self.keep_end(tail, direction, kept.unwrap_or(usize::MAX));
        }
        if !self.work.changes.is_empty() {
            count_changes(&self.work.changes, &mut self.tally);
            self.change_datagram(at, gone);
        }
        Some(result)
    }

    /// Returns what the changes of a datagram have to respect.
    fn target(&self, packet: &Packet<'_>, (at, view): (usize, View), gone: usize) -> Target {
        let field = packet.l4().get(LENGTH..LENGTH + 2).map_or([0; 2], |field| [field[0], field[1]]);
        let is_whole = usize::from(u16::from_be_bytes(field)) == HEADER + packet.l4_payload_len() as usize;
        let most = usize::from(self.datagrams.most[at & (VECTOR - 1)]);
        let most = most.saturating_sub(ip_header_len(packet) + HEADER);
        let len = match self.changed.contains(at) {
            true => self.ropes.get(at).map_or(0, |rope| rope.bytes().len()),
            false => usize::from(view.len),
        };
        Target::Datagram { gone, len, most, is_whole }
    }

    /// Reads the end of the datagram before into `work.datagram`. Returns its length.
    fn load_end(&mut self, number: u32, direction: usize) -> usize {
        let EditMemory { datagrams, work, .. } = self;
        let number = number & !IS_END;
        let len = datagrams.ends.len(number, direction);
        work.datagram.clear();
        datagrams.ends.read(number, direction, 0, len, &mut work.datagram);
        len
    }

    /// Appends the bytes in front of a function to `work.datagram`.
    fn collect_datagram(&mut self, packet: &Packet<'_>, (at, view): (usize, View)) {
        let is_changed = self.is_changed_datagram(at);
        let EditMemory { work, ropes, .. } = self;
        match ropes.get(at).filter(|_| is_changed) {
            Some(rope) => work.datagram.extend_from_slice(rope.bytes()),
            None => StreamData::new(packet, view).append_to(&mut work.datagram),
        }
    }

    /// Keeps the bytes of `work.datagram` from a position on, under a number.
    fn keep_end(&mut self, number: &mut u32, direction: usize, from: usize) {
        let EditMemory { datagrams: Datagrams { ends, .. }, work, tally, .. } = self;
        let bytes = work.datagram.get(from..).unwrap_or(&[]);
        let mut end = *number & !IS_END;
        ends.clear(end, direction);
        if !bytes.is_empty() {
            if end == 0 {
                end = ends.insert().unwrap_or(0);
            }
            let fits = bytes.len() <= MOST_KEPT && ends.has_room(end, direction, bytes.len());
            if !(fits && ends.append(end, direction, 0, bytes)) {
                tally.add(NO_ROOM_FOR_END, 1);
            }
        }
        if end != 0 && ends.is_empty(end) {
            ends.remove(end);
            end = 0;
        }
        *number = if end == 0 { 0 } else { end | IS_END };
    }

    /// Applies the changes that a function has asked for. The result is the packet's rope.
    fn change_datagram(&mut self, at: usize, gone: usize) {
        let EditMemory { work, ropes, changed, .. } = self;
        let Some(rope) = ropes.get_mut(at) else { return };
        let (old, mut done) = (work.datagram.as_slice(), gone);
        rope.clear(0);
        for Change { start, end, new } in work.changes.iter().copied() {
            rope.push_plain(old.get(done..start).unwrap_or(&[]));
            rope.push_plain(work.bytes.get(new.0..new.1).unwrap_or(&[]));
            done = end;
        }
        rope.push_plain(old.get(done..).unwrap_or(&[]));
        changed.insert(at);
    }

    /// A datagram that functions have changed leaves: itself, or another frame in its place.
    pub fn leave_datagram(
        &mut self,
        packet: &mut Packet<'_>,
        (at, view): (usize, View),
        emissions: &mut Emissions,
    ) -> Verdict {
        let EditMemory { work: Work { saved: old, frame, .. }, ropes, tally, .. } = self;
        let Some(new) = ropes.get(at).map(|rope| rope.bytes()) else { return Verdict::Pass };
        old.clear();
        StreamData::new(packet, view).append_to(old);
        if old == new {
            return Verdict::Pass;
        }
        tally.add(DATAGRAMS, 1);
        let (l3, l4) = (usize::from(packet.meta.l3_off), usize::from(packet.meta.l4_off));
        let is_ip4 = packet.meta.kind.l3() == Kind::IP4;
        let is_same_length = old.len() == new.len();
        if let Some(payload) = packet.head.get_mut(l4 + HEADER..l4 + HEADER + new.len())
            && is_same_length
        {
            payload.copy_from_slice(new);
            update_checksum(packet.head, l4, old, new);
            return Verdict::Pass;
        }
        let Some(headers) = packet.head.get(..l4 + HEADER) else { return Verdict::Pass };
        frame.clear();
        frame.extend_from_slice(headers);
        frame.extend_from_slice(new);
        if is_same_length {
            // Bytes behind the length of the header stay.
            let mut skip = new.len();
            for slice in packet.payload() {
                let from = skip.min(slice.len());
                skip -= from;
                frame.extend_from_slice(&slice[from..]);
            }
        } else {
            set_lengths(frame, (l3, l4), new.len(), is_ip4);
        }
        update_checksum(frame, l4, old, new);
        emissions.push_in_order(EmitTarget::Egress, at, &[frame]);
        Verdict::Consume
    }
}

/// Corrects the length in the header of a datagram whose payload is replaced by another one. One that was
/// wrong stays wrong.
pub(super) fn set_payload_length(frame: &mut [u8], l4: usize, old: u16, new: u16) {
    if let Some([high, low]) = frame.get_mut(l4 + LENGTH..l4 + LENGTH + 2) {
        let len = u16::from_be_bytes([*high, *low]);
        [*high, *low] = len.wrapping_sub(old).wrapping_add(new).to_be_bytes();
    }
}

/// Writes the lengths of a frame with `len` bytes of payload.
fn set_lengths(frame: &mut [u8], (l3, l4): (usize, usize), len: usize, is_ip4: bool) {
    let udp = (HEADER + len) as u16;
    if let Some(field) = frame.get_mut(l4 + LENGTH..l4 + LENGTH + 2) {
        field.copy_from_slice(&udp.to_be_bytes());
    }
    let Some(ip) = frame.get_mut(l3..l4) else { return };
    let (at, fixed) = if is_ip4 { (2, 0) } else { (4, 40) };
    let total = (ip.len() - fixed.min(ip.len())) as u16 + udp;
    let Some([high, low]) = ip.get_mut(at..at + 2) else { return };
    let old = u16::from_be_bytes([*high, *low]);
    [*high, *low] = total.to_be_bytes();
    if let Some([high, low]) = ip.get_mut(10..12).filter(|_| is_ip4) {
        [*high, *low] = update16(u16::from_be_bytes([*high, *low]), old, total).to_be_bytes();
    }
}

/// Updates the checksum of a datagram whose payload has changed (RFC 1624). Its length counts twice: it is in
/// the header, and in the pseudo header.
fn update_checksum(frame: &mut [u8], l4: usize, old: &[u8], new: &[u8]) {
    let Some([high, low]) = frame.get_mut(l4 + CHECKSUM..l4 + CHECKSUM + 2) else { return };
    let checksum = u16::from_be_bytes([*high, *low]);
    if checksum == 0 {
        return;
    }
    let removed = fold(sum(old, 2 * (HEADER + old.len()) as u32));
    let added = sum(new, 2 * (HEADER + new.len()) as u32);
    let updated = !fold(u32::from(!checksum) + u32::from(!removed) + u32::from(fold(added)));
    // Zero means that there is no checksum (RFC 768).
    [*high, *low] = if updated == 0 { [0xff; 2] } else { updated.to_be_bytes() };
}
