//! Connections of which edits have left constants only.
//!
//! Theory of operation. If all edited bytes of a connection are acknowledged, and no function reads it any
//! more, the numbers of each direction differ by a constant ([`Splices::settled`]). Such a session can leave
//! its chain with these constants ([`EditMemory::take_settled`]): its packets are translated like those of
//! sessions whose rules shuffle numbers. If it passes a chain again, it brings them along
//! ([`EditMemory::put_settled`]).
//!
//! [`Splices::settled`]: mmb_stream::Splices::settled

use mmb_flow::{Direction, EditOffsets};
use mmb_packet::tcp_options;
use mmb_stream::TcpStream;

use super::options::{BLOCK, SACK};
use super::{DetachedEdits, EditMemory};
use crate::Packet;
use crate::tcp_segment::{ACK, ACKNOWLEDGMENT, FIXED, SEQ};

/// What edits of a session have left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettledEdits {
    /// The constant differences of the numbers.
    pub offsets: EditOffsets,
    /// The greatest acknowledgement number for each direction, as its sender counts.
    pub acknowledged: [Option<u32>; 2],
}

impl EditMemory {
    /// Whether nothing of what a session has left behind is under way. `stream`: the connection at the group
    /// that the session passes now.
    pub fn is_settled(&self, session: u32, stream: Option<&TcpStream>) -> bool {
        self.settled(session, stream).is_some()
    }

    fn settled(&self, session: u32, stream: Option<&TcpStream>) -> Option<SettledEdits> {
        let groups = self.groups(session, stream);
        let mut all = SettledEdits::default();
        let mut add = |direction: usize, group: DetachedEdits| {
            let offset = &mut all.offsets.0[direction & 1];
            let added = match group {
                DetachedEdits::Open { is_refused: true, .. } => return None,
                DetachedEdits::Open { number, .. } => {
                    let settled = self.splices.settled(number)?[direction & 1];
                    // The group in front counts as the sender does, behind constants of others.
                    let acknowledged = settled.acknowledged.wrapping_sub(*offset);
                    all.acknowledged[direction & 1].get_or_insert(acknowledged);
                    settled.offset
                }
                DetachedEdits::Settled(EditOffsets(offsets)) => offsets[direction & 1],
            };
            *offset = offset.wrapping_add(added);
            Some(())
        };
        // A packet meets the groups in the order of its direction.
        groups.clone().try_for_each(|group| add(0, group))?;
        groups.rev().try_for_each(|group| add(1, group))?;
        Some(all)
    }

    /// Returns the greatest acknowledgement numbers for the senders of both directions, as they are told.
    /// None: no edits tell. `stream`: the connection at the group that the session passes now.
    pub fn acknowledged(&self, session: u32, stream: Option<&TcpStream>) -> [Option<u32>; 2] {
        let groups = self.groups(session, stream);
        let mut constants = [0u32; 2];
        let mut find = |direction: usize, group: DetachedEdits| match group {
            DetachedEdits::Open { number, .. } => {
                let acknowledged = self.splices.told_acknowledged(number, direction);
                acknowledged.map(|number| number.wrapping_sub(constants[direction]))
            }
            DetachedEdits::Settled(EditOffsets(offsets)) => {
                constants[direction] = constants[direction].wrapping_add(offsets[direction]);
                None
            }
        };
        // A packet meets the groups in the order of its direction.
        [groups.clone().find_map(|group| find(0, group)), groups.rev().find_map(|group| find(1, group))]
    }

    /// Forgets a session's edits if nothing is under way, and returns what they leave. None: it stays.
    pub fn take_settled(&mut self, session: u32, stream: Option<&TcpStream>) -> Option<SettledEdits> {
        let settled = self.settled(session, stream)?;
        if let Some(DetachedEdits::Open { number, .. }) = super::detached::current_edits(stream) {
            self.splices.remove(number);
        }
        self.end_detached(session);
        Some(settled)
    }

    /// A session with these constants passes a chain again.
    pub fn put_settled(&mut self, session: u32, offsets: EditOffsets) {
        self.detached.entry(session).or_default().push(DetachedEdits::Settled(offsets));
    }
}

/// Adds constants to the numbers of a packet.
pub(super) fn shift_numbers(packet: &mut Packet<'_>, offsets: EditOffsets) {
    let direction = packet.direction;
    shift(packet, SEQ, |number| offsets.sequence(direction, number));
    if packet.tcp_flags() & ACK == 0 {
        return;
    }
    shift(packet, ACKNOWLEDGMENT, |number| offsets.acknowledgment(direction, number));
    shift_sack(packet, (offsets, direction));
}

/// Changes the number at an offset of the TCP header.
fn shift(packet: &mut Packet<'_>, at: usize, f: impl FnOnce(u32) -> u32) {
    let bytes = packet.l4().get(at..).and_then(<[u8]>::first_chunk::<4>).copied();
    if let Some(number) = bytes.map(u32::from_be_bytes) {
        let new = f(number);
        if new != number {
            packet.write_l4(at, &new.to_be_bytes());
        }
    }
}

fn shift_sack(packet: &mut Packet<'_>, (offsets, direction): (EditOffsets, Direction)) {
    let found = tcp_options(packet.head, packet.meta).find(|option| option.kind == SACK);
    let Some((first, len)) = found.map(|option| (FIXED + option.at + 2, option.data.len())) else { return };
    for edge in (0..len / BLOCK * BLOCK).step_by(4) {
        shift(packet, first + edge, |number| offsets.acknowledgment(direction, number));
    }
}
