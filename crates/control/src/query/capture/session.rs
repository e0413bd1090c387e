//! The session of `capture session`: which packets belong to it, and when it ends.
//!
//! Theory of operation. A session keeps the keys of its two directions. A packet with one of them is
//! recognised as it comes in, whatever becomes of it; fragments and ICMP errors are recognised by the session
//! that the engine finds for them. While the session is captured, the fast path does not forward its packets.
//! Several times a second, the worker of the session is asked whether it is still open. A TCP connection that
//! both sides have closed or one has reset is over when nothing has come for a second: the table remembers it
//! for minutes, only to recognise late packets.

use std::sync::{Arc, Mutex, PoisonError};

use mmb_dataplane::{Connection, ConnectionId, Engine, KeptSession, PacketTrace, Policy, TraceEnd};
use mmb_flow::{Key, KeyError, parse_key};
use mmb_lang::{Command, SessionName, SourceSpan};
use mmb_packet::{Kind, Meta, parse};

use crate::config::Config;
use crate::error::CommandError;
use crate::query::connections::{address, name};

/// States of connections to which no packet belongs any more, and for how many milliseconds none may have
/// come.
const CLOSED: [&str; 2] = ["closed", "reset"];
const QUIET: u32 = 1000;

/// A session that is captured.
pub(super) struct CapturedSession {
    id: ConnectionId,
    keys: [Key; 2],
    /// As it was when it was last seen, and whether it had ended.
    last: Mutex<(Connection, bool)>,
    engine: Arc<Engine>,
    _kept: KeptSession,
}

impl CapturedSession {
    /// Finds the session, and returns its packets to the engine.
    ///
    /// # Errors
    /// There is no such session.
    pub fn find(engine: &Arc<Engine>, session: SessionName) -> Result<CapturedSession, CommandError> {
        let id = ConnectionId::new(session.worker, session.number, session.uid);
        let Some(view) = engine.connection(id) else {
            let message = format!("there is no session {session}; `show connections verbose` lists them");
            return Err(CommandError::not_found(message, SourceSpan::default()));
        };
        Ok(CapturedSession {
            id,
            keys: [view.original, view.reply],
            last: Mutex::new((view, false)),
            engine: engine.clone(),
            _kept: engine.keep_in_engine(id),
        })
    }

    /// A policy of rules that match all packets of the session, and some others.
    ///
    /// # Errors
    /// The policy refuses a rule.
    pub fn filter(&self, config: &Config) -> Result<Policy, CommandError> {
        let mut policy = Policy::new();
        for line in self.keys.iter().flat_map(lines) {
            if let Some(Command::Add(rule)) = mmb_lang::parse_line(&line)? {
                policy.add(&rule, &|name: &str| config.port_of(name))?;
            }
        }
        Ok(policy)
    }

    /// Whether a packet belongs to the session. A packet that is handed to another worker is seen there
    /// again.
    pub fn has(&self, trace: &PacketTrace) -> bool {
        match (&trace.session, trace.steps.first()) {
            _ if trace.end == TraceEnd::HandedOver => false,
            (Some(session), _) => ConnectionId::from(&session.view) == self.id,
            (None, Some(first)) => key_of(&first.head, first.len).is_some_and(|key| self.keys.contains(&key)),
            (None, None) => false,
        }
    }

    /// Whether the session has ended; asks its worker.
    pub fn has_ended(&self) -> bool {
        let now = self.engine.connection(self.id);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.1 = now.as_ref().is_none_or(|view| CLOSED.contains(&view.state) && view.idle >= QUIET);
        if let Some(view) = now {
            last.0 = view;
        }
        last.1
    }

    /// A sentence, if [`CapturedSession::has_ended`] has found that the session has ended.
    pub fn end(&self) -> Option<String> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.1.then(|| sentence(&last.0))
    }
}

fn sentence(last: &Connection) -> String {
    let [forward, reverse] = last.packets;
    format!(
        "session {} has ended: {}, {forward} packets forward and {reverse} back in {} s",
        name(last),
        last.state,
        last.age / 1000
    )
}

/// Rules that match packets with this key, their fragments, and ICMP errors.
fn lines(key: &Key) -> Vec<String> {
    let [from, to] = [&key.source, &key.destination].map(|bytes| address(key, bytes));
    let v = if key.is_ip4() { "" } else { "6" };
    let ends = format!("add ip{v}-saddr {from} ip{v}-daddr {to}");
    let [sport, dport] = [key.source_port, key.destination_port].map(u16::from_be_bytes);
    let own = match Kind(key.kind).l4() {
        Kind::TCP => format!("{ends} tcp-sport {sport} tcp-dport {dport} accept"),
        Kind::UDP => format!("{ends} udp-sport {sport} udp-dport {dport} accept"),
        _ => format!("{ends} accept"),
    };
    let (fragments, errors) = match key.is_ip4() {
        true => ("ip-frag-offset > 0", "ip-proto icmp icmp-type {3,4,5,11,12}"),
        false => ("ip6-eh-fragment", "ip6-next icmp6 icmp6-type 1-4"),
    };
    vec![own, format!("{ends} {fragments} accept"), format!("add {errors} accept")]
}

/// The key of a packet as it came in.
fn key_of(head: &[u8], len: usize) -> Option<Key> {
    let mut meta = Meta::default();
    parse(head, len, &mut meta).ok()?;
    match parse_key(head, &meta) {
        Ok(key) | Err(KeyError::FirstFragment(key)) => Some(key),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use mmb_packet::build::{Frame, Ip4, Ip6, Tcp, Udp};

    use super::*;

    fn key(frame: &[u8]) -> Key {
        key_of(frame, frame.len()).unwrap()
    }

    /// Each rule is one that the language takes, also with IPv6 and without ports.
    #[test]
    fn the_rules_of_a_session_are_valid() {
        let frames = [
            Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Udp::new(7, 53)).build(),
            Frame::new(Ip6::new([1; 16], [2; 16]), Udp::new(7, 53)).build(),
            Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp::new(7, 80)).build(),
        ];
        let mut keys = frames.map(|frame| key(&frame)).to_vec();
        keys.push(Key { kind: Kind::IP4, proto: 47, ..keys[0] });
        for key in keys {
            for line in lines(&key) {
                let command = mmb_lang::parse_line(&line).unwrap_or_else(|e| panic!("{line}: {e:?}"));
                let Some(Command::Add(rule)) = command else { panic!("{line}") };
                Policy::new().add(&rule, &|_: &str| None).unwrap_or_else(|e| panic!("{line}: {e:?}"));
            }
        }
    }

    #[test]
    fn the_filter_tells_ports_and_addresses() {
        let frame = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp::new(7, 80)).build();
        let lines = lines(&key(&frame));
        assert_eq!(lines[0], "add ip-saddr 10.0.0.1 ip-daddr 10.0.0.2 tcp-sport 7 tcp-dport 80 accept");
    }
}
