//! Results of functions that edit in processes.
//!
//! Theory of operation. The worker keeps the numbers, the output and the tails of a connection. A process
//! gets the bytes of a packet, with what may be done to them ([`EditRights`]). It has tails of its own, with
//! the same bytes. It calls the function and writes down what that has asked for ([`EditRecorder`]). When the
//! result is back, the worker does it to its own bytes ([`EditMemory::replay`]). So ropes, tails and output
//! are those of any other function that edits, and a process cannot damage them: each number of a result is
//! checked like a request of a function.
//!
//! If functions in front have changed the bytes of a packet, its process gets a frame with what they have
//! left, and what that stands for ([`ChangedBytes`]). The worker keeps their rope until the packet is back.
//!
//! A result is a row of numbers of variable length (LEB128): the bytes that the function got, how many of
//! them it had got before, and 1 more than the position from which on they are held back or kept (0: none
//! are). Then for each change: the bytes behind the change before that stay, the bytes that are removed, the
//! number of those that are inserted, and these bytes.
//!
//! A function that sees packets has a [`SessionNote`] behind it.

use mmb_packet::{Kind, Meta};
use mmb_stream::{Change, TcpStream, View};

use super::EditMemory;
use super::datagram::set_payload_length;
use super::detached::number_of;
use crate::Packet;
use crate::set::{Set, VECTOR};
use crate::stream::StreamData;
use crate::stream::answers::SessionNote;
use crate::verdict::{ChangedBytes, EditRights, MOST_RESULT};

/// Most bytes in front of the changes of a result.
const RESULT_HEADER: usize = 15;
/// Most bytes of a number: that of a position is below 2^35.
const MOST_DIGITS: usize = 5;
/// What functions have asked for, by the positions of their packets: the results of a vector.
#[derive(Debug)]
pub(crate) struct EditRecorder {
    bytes: Vec<u8>,
    /// Where the result of each packet is in `bytes`.
    ranges: [(usize, usize); VECTOR],
    /// Packets whose clients the function may answer.
    pub answerable: Set,
    /// Packets whose clients it answers.
    pub answered: Set,
}

impl EditRecorder {
    /// Bytes that the changes of a packet may take.
    pub const ROOM: usize = MOST_RESULT - RESULT_HEADER - SessionNote::BYTES;

    pub fn new() -> EditRecorder {
        let (answerable, answered) = (Set::EMPTY, Set::EMPTY);
        EditRecorder { bytes: Vec::new(), ranges: [(0, 0); VECTOR], answerable, answered }
    }

    /// A vector begins.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ranges.fill((0, 0));
        (self.answerable, self.answered) = (Set::EMPTY, Set::EMPTY);
    }

    /// Returns the result for the packet at a position. It is empty if the function got no bytes.
    pub fn result(&self, at: usize) -> &[u8] {
        let (from, to) = self.ranges[at & (VECTOR - 1)];
        self.bytes.get(from..to).unwrap_or(&[])
    }

    /// Writes down what a function that sees packets tells behind what it has asked for.
    pub fn note_session(&mut self, at: usize, note: SessionNote) {
        let range = &mut self.ranges[at & (VECTOR - 1)];
        let from = if *range == (0, 0) { self.bytes.len() } else { range.0 };
        note.write(&mut self.bytes);
        *range = (from, self.bytes.len());
        self.answered.insert_if(at, note.answer.is_some());
    }

    /// Writes down what a function has asked for. `open`: the position from which on bytes are held or kept.
    pub fn note(
        &mut self,
        at: usize,
        (len, before, open): (usize, usize, Option<usize>),
        (changes, new_bytes): (&[Change], &[u8]),
    ) {
        let (from, out) = (self.bytes.len(), &mut self.bytes);
        for number in [len, before, open.map_or(0, |open| open + 1)] {
            push_number(out, number);
        }
        let mut done = 0;
        for Change { start, end, new } in changes.iter().copied() {
            let new = new_bytes.get(new.0..new.1).unwrap_or(&[]);
            for number in [start - done, end - start, new.len()] {
                push_number(out, number);
            }
            out.extend_from_slice(new);
            done = end;
        }
        self.ranges[at & (VECTOR - 1)] = (from, out.len());
    }
}

fn push_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number from the beginning of bytes. None: they are none.
pub(super) fn take_number(bytes: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for digit in 0..MOST_DIGITS {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= usize::from(byte & 0x7f) << (7 * digit);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Returns the bytes of a change in a result. `stay`: bytes between the change before and it.
pub(super) fn change_len(stay: usize, removed: usize, inserted: usize) -> usize {
    let digits = |number: usize| (usize::BITS - number.leading_zeros()).div_ceil(7).max(1) as usize;
    digits(stay) + digits(removed) + digits(inserted) + inserted
}

impl EditMemory {
    /// Returns what a function in a process may do with the packet at a position.
    pub fn rights(&self, i: usize) -> EditRights {
        EditRights {
            can_edit: self.number(i) != 0 || self.datagrams.editable.contains(i),
            is_one_way: self.one_way.contains(i),
            most: self.datagrams.most[i & (VECTOR - 1)],
            may_answer: false,
            changed: self
                .rope(i)
                .map(|rope| ChangedBytes { from: rope.from, input: rope.end().wrapping_sub(rope.from) }),
        }
    }

    /// Keeps the bytes of a packet that functions have changed, while the packet waits for a process. `view`:
    /// its new bytes as they came. Returns their number. None: there is no room.
    pub fn park(&mut self, i: usize, packet: &Packet<'_>, view: View) -> Option<u32> {
        let EditMemory { parked, work, ropes, .. } = self;
        work.saved.clear();
        ropes.get(i)?.write(StreamData::new(packet, view).chunks(), &mut work.saved);
        let number = parked.insert()?;
        if parked.append(number, 0, 0, &work.saved) {
            return Some(number);
        }
        parked.remove(number);
        None
    }

    /// Writes the frame of a packet whose bytes functions have changed, with these bytes as its payload, to
    /// `frame`. `view`: its new bytes as they came. Returns what is known of it. A length that was wrong
    /// stays wrong.
    pub fn write_changed(&self, i: usize, packet: &Packet<'_>, view: View, frame: &mut Vec<u8>) -> Meta {
        let l4 = usize::from(packet.meta.l4_off);
        let headers = l4 + packet.l4_header_len();
        frame.clear();
        frame.extend_from_slice(packet.head.get(..headers).unwrap_or(&[]));
        StreamData::new(packet, view).with_edits(&[], self.rope(i)).append_to(frame);
        if packet.meta.kind.l4() == Kind::UDP {
            let (old, new) = (packet.l4_payload_len() as u16, frame.len() - headers);
            set_payload_length(frame, l4, old, new as u16);
        }
        Meta { end: u16::try_from(frame.len()).unwrap_or(u16::MAX), ..*packet.meta }
    }

    /// Packets come back from a process.
    pub fn begin_returned(&mut self) {
        self.resets.clear();
    }

    /// A packet comes back from a process, at a position of another vector. `stream`: its connection. `rope`:
    /// the number of its changed bytes.
    pub fn restore(
        &mut self,
        i: usize,
        packet: &Packet<'_>,
        stream: Option<&TcpStream>,
        (rights, rope): (EditRights, u32),
    ) {
        let stream = stream.filter(|stream| packet.meta.kind.l4() == Kind::TCP && stream.is_edited());
        self.begin(i, stream.map_or(0, number_of));
        self.returned.insert(i);
        self.one_way.insert_if(i, rights.is_one_way);
        self.restore_datagram(i, packet, rights);
        let EditMemory { parked, work, ropes, changed, .. } = self;
        if let Some(place) = ropes.get_mut(i).filter(|_| rope != 0) {
            work.saved.clear();
            parked.read(rope, 0, 0, parked.len(rope, 0), &mut work.saved);
            place.read(&work.saved);
            changed.insert(i);
        }
    }

    /// A vector begins in a process.
    pub fn begin_hosted(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.clear();
        }
    }

    /// A packet of a process is in front of its function, which works on it as in the worker.
    pub fn give(&mut self, i: usize, packet: &Packet<'_>, rights: EditRights) {
        let is_edited = rights.can_edit && packet.meta.kind.l4() == Kind::TCP;
        self.begin(i, is_edited.into());
        self.one_way.insert_if(i, rights.is_one_way);
        self.restore_datagram(i, packet, rights);
        if let Some(recorder) = &mut self.recorder {
            recorder.answerable.insert_if(i, rights.may_answer);
        }
        if let (Some(ChangedBytes { from, input }), Some(rope)) = (rights.changed, self.ropes.get_mut(i)) {
            let bytes = &mut self.work.saved;
            bytes.clear();
            packet.payload().for_each(|slice| bytes.extend_from_slice(slice));
            rope.clear(from);
            if input as usize == bytes.len() || packet.meta.kind.l4() != Kind::TCP {
                rope.push_plain(bytes);
            } else if input != 0 {
                rope.push_edit(input, bytes);
            }
            self.changed.insert(i);
        }
    }

    fn restore_datagram(&mut self, i: usize, packet: &Packet<'_>, rights: EditRights) {
        if rights.can_edit {
            self.begin_datagram(i, packet);
            self.datagrams.new.remove(i);
            self.datagrams.most[i & (VECTOR - 1)] = rights.most;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(bytes: &[u8]) -> (Option<usize>, usize) {
        let mut rest = bytes;
        (take_number(&mut rest), rest.len())
    }

    proptest! {
        #[test]
        fn numbers_come_back(number in 0_usize..1 << 35) {
            let mut bytes = Vec::new();
            push_number(&mut bytes, number);
            bytes.push(7);
            prop_assert_eq!(taken(&bytes), (Some(number), 1));
        }

        #[test]
        fn changes_have_their_length(stay in 0_usize..1 << 20, removed in 0_usize..300, inserted in 0_usize..300) {
            let mut recorder = EditRecorder::new();
            let change = Change { start: stay, end: stay + removed, new: (0, inserted) };
            recorder.note(0, (0, 0, None), (&[change], &vec![0; inserted]));
            prop_assert_eq!(recorder.result(0).len(), 3 + change_len(stay, removed, inserted));
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        assert_eq!(taken(&[]).0, None);
        assert_eq!(taken(&[0x80, 0x80]).0, None);
        assert_eq!(taken(&[0xff; 9]).0, None);
        assert_eq!(taken(&[0xff, 0xff, 0xff, 0xff, 0x7f]), (Some((1 << 35) - 1), 0));
    }

    #[test]
    fn notes_of_sessions_come_back() {
        let mut recorder = EditRecorder::new();
        recorder.note(1, (7, 0, None), (&[], &[]));
        let notes =
            [(1, None, true, None), (2, Some(0), false, Some(0)), (3, Some(u32::MAX), true, Some(63))];
        let note = |(_, answer, watches, output)| SessionNote { answer, watches, output };
        for one in notes {
            recorder.note_session(one.0, note(one));
        }
        for one in notes {
            let ((at, answer, ..), mut result) = (one, recorder.result(one.0));
            assert_eq!(SessionNote::take(&mut result), Some(note(one)));
            assert_eq!(result.len(), if at == 1 { 3 } else { 0 });
            assert_eq!(recorder.answered.contains(at), answer.is_some());
        }
        assert_eq!(SessionNote::take(&mut &[1, 2, 3, 4, 5][..]), None);
    }

    #[test]
    fn the_longest_header_has_its_room() {
        let mut recorder = EditRecorder::new();
        let most = (1 << 35) - 2;
        recorder.note(3, (most, most, Some(most)), (&[], &[]));
        assert_eq!(recorder.result(3).len(), RESULT_HEADER);
        assert_eq!(recorder.result(2), b"");
        recorder.clear();
        assert_eq!(recorder.result(3), b"");
    }
}
