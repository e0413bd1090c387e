//! Scratchpads that several sessions share: those of functions with a coarser key.
//!
//! Theory of operation. Each worker has a table of its own for such an instance, a [`Table`] of the flow manager's kind whose
//! sessions are the keys: it finds entries, and its scratchpads are theirs. An entry counts the sessions that hold it; it
//! goes with the last. There are never more entries than sessions.

use std::io;

use mmb_flow::{FlowRef, Key, SessionId, Table};
use mmb_packet::Kind;

use crate::SessionKey;

/// The number of no entry.
pub(super) const NO_ENTRY: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Keyed {
    table: Table,
    key: SessionKey,
}

impl Keyed {
    pub fn new(key: SessionKey, sessions: u32, bytes: usize, seed: u64) -> io::Result<Keyed> {
        Ok(Keyed { table: Table::new(sessions, bytes, seed)?, key })
    }

    /// Finds the entry of a session with this key, or makes one. True: it is new, and its scratchpad is zeros. None: there
    /// is no room.
    pub fn join(&mut self, session: &Key, now: u32) -> Option<(u32, bool)> {
        let key = self.key_of(session);
        let found = self.table.find(&key);
        if found.is_some() {
            let id = found.session();
            self.table.session_mut(id).rule_list += 1;
            return Some((id.0, false));
        }
        let id = self.table.insert(&key, &key, now).ok()?;
        self.table.remove_embryonic(id);
        self.table.session_mut(id).rule_list = 1;
        self.table.clear_scratch(id);
        Some((id.0, true))
    }

    /// A session lets go of its entry. True: it was the last, and [`Keyed::remove`] has to be called.
    pub fn leave(&mut self, number: u32) -> bool {
        let id = SessionId(number);
        if !self.table.is_live(id) {
            return false;
        }
        let holders = &mut self.table.session_mut(id).rule_list;
        *holders = holders.saturating_sub(1);
        *holders == 0
    }

    pub fn remove(&mut self, number: u32) {
        self.table.remove(SessionId(number));
    }

    /// An entry's scratchpad.
    pub fn pad(&mut self, number: u32) -> Option<&mut [u8]> {
        self.table.is_live(SessionId(number)).then(|| self.table.scratch_mut(SessionId(number)))
    }

    /// All of them, and the bytes from one to the next.
    pub fn pads(&mut self) -> (&mut [u8], usize) {
        self.table.scratchpads_mut()
    }

    /// How many entries.
    #[cfg(test)]
    pub fn len(&self) -> u32 {
        self.table.len()
    }

    fn key_of(&self, session: &Key) -> Key {
        let kind = Kind(session.kind).l3();
        match self.key {
            SessionKey::Session => *session,
            SessionKey::Source => Key { source: session.source, kind, ..Key::default() },
            SessionKey::Destination => Key { destination: session.destination, kind, ..Key::default() },
            SessionKey::Pair => {
                Key { source: session.source, destination: session.destination, kind, ..Key::default() }
            }
        }
    }
}

const _: () = assert!(FlowRef::NONE.0 == NO_ENTRY);

#[cfg(test)]
mod tests {
    use super::*;

    fn key(source: u8, destination: u8, port: u8, kind: u8) -> Key {
        let address = |last| [last, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let (source, destination) = (address(source), address(destination));
        Key { source, destination, source_port: [0, port], kind, proto: 6, ..Key::default() }
    }

    #[test]
    fn an_entry_lives_as_long_as_somebody_holds_it() {
        const TCP4: u8 = Kind::IP4 | Kind::TCP;
        let mut keyed = Keyed::new(SessionKey::Source, 8, 16, 1).unwrap();
        let (one, new) = keyed.join(&key(1, 2, 3, TCP4), 0).unwrap();
        assert!(new);
        keyed.pad(one).unwrap().fill(7);
        assert_eq!(
            keyed.join(&key(1, 9, 8, Kind::IP4 | Kind::UDP), 0),
            Some((one, false)),
            "the source is the same"
        );
        assert_eq!(keyed.len(), 1);
        assert!(!keyed.leave(one) && keyed.leave(one));
        keyed.remove(one);
        assert!(keyed.pad(one).is_none() && !keyed.leave(one) && !keyed.leave(NO_ENTRY));
        let (again, new) = keyed.join(&key(5, 2, 3, TCP4), 0).unwrap();
        assert!(new && keyed.pad(again).unwrap()[..16] == [0; 16]);
    }

    #[test]
    fn pairs_and_versions_of_ip_are_told_apart() {
        let mut keyed = Keyed::new(SessionKey::Pair, 8, 0, 1).unwrap();
        for (n, (a, b)) in [(1, 2), (1, 3), (2, 1)].into_iter().enumerate() {
            assert!(keyed.join(&key(a, b, 1, Kind::IP4 | Kind::TCP), 0).unwrap().1);
            assert_eq!(keyed.len() as usize, n + 1);
        }
        assert!(keyed.join(&key(1, 2, 1, Kind::IP6 | Kind::TCP), 0).unwrap().1);
    }

    #[test]
    fn no_more_than_there_is_room_for() {
        let mut keyed = Keyed::new(SessionKey::Destination, 2, 4, 1).unwrap();
        let joined: Vec<_> = (0..4).map(|n| keyed.join(&key(0, n, 0, Kind::IP4), 0).is_some()).collect();
        assert_eq!(joined, [true, true, false, false]);
    }
}
