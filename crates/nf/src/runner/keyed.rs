//! Scratchpads that several sessions share: those of functions with a coarser key.
//!
//! Theory of operation. Each worker has a [`Table`] for such an instance. Its entries are keys instead of
//! sessions, and its scratchpads belong to them. An entry counts the sessions that use it, and is removed
//! with the last one. There are never more entries than sessions.

use std::io;

use mmb_flow::{Direction, FlowRef, Key, ScratchpadStarts, SessionId, Table};
use mmb_packet::Kind;

use crate::{SessionInfo, SessionKey};

/// A number that no entry has.
pub(super) const NO_ENTRY: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct KeyedPads {
    table: Table,
    /// Bytes of a scratchpad.
    bytes: usize,
    key: SessionKey,
    /// No entry has a number below this one. Only used once the instance is deleted.
    removed_below: u32,
}

impl KeyedPads {
    pub fn new(key: SessionKey, sessions: u32, bytes: usize, seed: u64) -> io::Result<KeyedPads> {
        // Packets pass by a function without a scratchpad, so that each entry has one.
        let bytes = bytes.max(1);
        Ok(KeyedPads { table: Table::new(sessions, bytes, seed)?, bytes, key, removed_below: 0 })
    }

    /// Finds or makes the entry for a session's key. True: the entry is new, and its scratchpad is zeros.
    /// None: the table is full.
    pub fn join(&mut self, session: &Key, now: u32) -> Option<(u32, bool)> {
        let key = self.key_of(session);
        let found = self.table.find(&key);
        if found.is_some() {
            let id = found.session();
            self.table.session_mut(id).rule_list += 1;
            return Some((id.0, false));
        }
        let id = self.table.insert(&key, &key, now).ok()?;
        if !self.table.reserve_scratch(id, self.bytes) {
            self.table.remove(id);
            return None;
        }
        self.table.remove_embryonic(id);
        self.table.session_mut(id).rule_list = 1;
        self.table.clear_scratch(id);
        Some((id.0, true))
    }

    /// A session stops using its entry. Returns true for the last one; the caller then calls
    /// [`KeyedPads::remove`].
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

    /// Returns the entry with the lowest number, for an instance that gets no entries any more.
    pub fn first(&mut self) -> Option<SessionId> {
        let first = self.table.next_session(self.removed_below)?;
        self.removed_below = first.0;
        Some(first)
    }

    /// Returns an entry as a session: its key has what the sessions that use it have in common.
    pub fn info(&self, number: u32, now: u32) -> SessionInfo {
        let id = SessionId(number);
        let (key, entry) = (self.table.key(FlowRef::new(id, Direction::Forward)), self.table.session(id));
        SessionInfo {
            id,
            key,
            ingress_key: key,
            egress_key: key,
            created: entry.created,
            now,
            in_port: u16::MAX,
            uid: self.table.uid(id),
            packets: [0; 2],
            bytes: [0; 2],
        }
    }

    /// Returns the scratchpad of an entry.
    pub fn pad(&mut self, number: u32) -> Option<&mut [u8]> {
        self.table.is_live(SessionId(number)).then(|| self.table.scratch_mut(SessionId(number)))
    }

    /// Returns all scratchpads, and their starts.
    pub fn pads(&mut self) -> (&mut [u8], ScratchpadStarts<'_>) {
        self.table.scratchpads_mut()
    }

    /// Returns the number of entries.
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
    fn an_entry_lives_as_long_as_a_session_uses_it() {
        const TCP4: u8 = Kind::IP4 | Kind::TCP;
        let mut keyed = KeyedPads::new(SessionKey::Source, 8, 16, 1).unwrap();
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
    fn pairs_and_ip_versions_are_distinct() {
        let mut keyed = KeyedPads::new(SessionKey::Pair, 8, 0, 1).unwrap();
        for (n, (a, b)) in [(1, 2), (1, 3), (2, 1)].into_iter().enumerate() {
            assert!(keyed.join(&key(a, b, 1, Kind::IP4 | Kind::TCP), 0).unwrap().1);
            assert_eq!(keyed.len() as usize, n + 1);
        }
        assert!(keyed.join(&key(1, 2, 1, Kind::IP6 | Kind::TCP), 0).unwrap().1);
    }

    #[test]
    fn a_full_table_takes_no_entries() {
        let mut keyed = KeyedPads::new(SessionKey::Destination, 2, 4, 1).unwrap();
        let joined: Vec<_> = (0..4).map(|n| keyed.join(&key(0, n, 0, Kind::IP4), 0).is_some()).collect();
        assert_eq!(joined, [true, true, false, false]);
    }
}
