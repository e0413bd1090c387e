//! What routing asks of sessions: where a packet is really going before it is translated, and what it was after that.
//!
//! Theory of operation. A packet of a session is translated from the key of its direction to the reverse of the other
//! direction's key. Before, [`Sessions::effective_destination`] reads there where it will go; it changes nothing, so a
//! packet that opens a session is taken to be for whom NAT has let it in to, if anybody. After, the reverse of what the
//! packet has become finds the other direction, and [`Sessions::untranslate`] goes the way back: an ICMP error that routing
//! sends quotes what its receiver has sent. A packet that was turned back to the inside has been translated by two
//! sessions, and both are looked at.

use std::net::IpAddr;

use mmb_flow::{DatagramKey, FlowRef, Key, KeyError, flow_flags, parse_key, parse_quote, untranslate};
use mmb_packet::Meta;

use crate::Environment;
use crate::engine::{Sessions, session_flags};
use crate::fragment::Target;

/// Sessions that translate one packet: its own, and that of the host which it is turned back to.
const SESSIONS: usize = 2;

impl Sessions {
    /// Where a packet will go once it is translated, for a lookup of the route before rules are asked; `head` and `meta`
    /// are as for [`Sessions::lookup`], and nothing is changed. None: where it says itself.
    ///
    /// That is so, too, if a rule is to give a new destination (`map`, `lb`) to the session that the packet opens: rules
    /// that read `out` are asked first, and see the way to the destination as it came in. And of a packet from inside for
    /// another host inside by its external address, as long as that one's sessions are another worker's.
    pub fn effective_destination(&self, host: &impl Environment, head: &[u8], meta: &Meta) -> Option<IpAddr> {
        match parse_key(head, meta) {
            Ok(key) | Err(KeyError::FirstFragment(key)) => self.inbound_address(host, &key),
            Err(KeyError::IcmpError) => {
                let found = self.table.find(&parse_quote(head, meta)?.key.reversed());
                self.translation(found).map(|to| destination(&to))
            }
            Err(KeyError::LaterFragment) => match self.fragments.target(&DatagramKey::of(head, meta)?)? {
                Target::Session(found, uid) if self.is_still(found, uid) => {
                    self.translation(found).map(|to| destination(&to))
                }
                _ => None,
            },
            Err(KeyError::NotIp) => None,
        }
    }

    /// The same of a packet with a key.
    fn inbound_address(&self, host: &impl Environment, key: &Key) -> Option<IpAddr> {
        let mut key = *key;
        for _ in 0..SESSIONS {
            let found = self.table.find(&key);
            let Some(to) = self.translation(found) else { break };
            if self.table.session(found.session()).flags & session_flags::LOOPS[found.direction() as usize]
                == 0
            {
                return Some(destination(&to));
            }
            key = to;
        }
        let inside = host.nat().is_nat_destination(&key).then(|| self.nat.inbound_address(&key)).flatten();
        inside.map(IpAddr::from).or_else(|| Some(destination(&key)))
    }

    /// What packets of a direction become; none if there is no session.
    fn translation(&self, found: FlowRef) -> Option<Key> {
        let is_session = found.is_some() && self.table.redirect_worker(found).is_none();
        is_session.then(|| self.table.key(found.opposite()).reversed())
    }

    /// Turns a packet that this worker has translated back to what came in: addresses, ports or identifier, sequence
    /// numbers, checksums. Edits of rules stay, a fixed `ip-id` too. False, and untouched: it belongs to no translated
    /// session here. That is said of fragments but the first, and of ICMP errors, about which nobody is told (RFC 1122,
    /// 3.2.2).
    ///
    /// A packet from inside for another host inside, whose session is another worker's, becomes what this worker was given.
    pub fn untranslate(&self, head: &mut [u8], meta: &Meta) -> bool {
        let mut turned = false;
        for _ in 0..SESSIONS {
            let (Ok(key) | Err(KeyError::FirstFragment(key))) = parse_key(head, meta) else { break };
            let back = self.table.find(&key.reversed());
            if !back.is_some() || self.table.redirect_worker(back).is_some() {
                break;
            }
            let found = back.opposite();
            let half = self.table.flow(found);
            if half.flags & (flow_flags::XLAT4 | flow_flags::XLAT_SLOW) == 0 {
                break;
            }
            let (to, mangle) = (half.key(), self.mangle(found.session()));
            if untranslate(head, meta, &key, &to, mangle.as_ref(), found.direction()).is_err() {
                break;
            }
            turned = true;
            // What came back from a session's other side was turned back there.
            if self.table.session(found.session()).flags & session_flags::LOOPS[back.direction() as usize]
                == 0
            {
                break;
            }
        }
        turned
    }
}

fn destination(key: &Key) -> IpAddr {
    match key.is_ip4() {
        true => {
            let [a, b, c, d, ..] = key.destination;
            [a, b, c, d].into()
        }
        false => key.destination.into(),
    }
}
