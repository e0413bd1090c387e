//! What routing asks of sessions: the destination of a packet after translation, and the packet before
//! translation.
//!
//! Theory of operation. A packet of a session is translated from the key of its flow to the reverse of the
//! opposite flow's key. Before translation, [`Sessions::effective_destination`] reads the destination there.
//! It changes nothing: a packet that opens a session is taken to go where NAT lets it in, if it does. After
//! translation, the reverse of the packet's key finds the opposite flow, and [`Sessions::untranslate`]
//! restores the packet as it came in: an ICMP error of the router quotes what its receiver has sent. A packet
//! that was hairpinned has been translated by two sessions, and both are reversed.

use std::net::IpAddr;

use mmb_flow::{FlowFlags, FlowRef, Fragment, Key, KeyError, parse_key, parse_quote, untranslate};
use mmb_packet::Meta;

use crate::Environment;
use crate::lifetime::session_flags;
use crate::sessions::Sessions;
use crate::slow_path::packet::FragmentTarget;

/// Most sessions that translate one packet: its own, and that of the host to which it is hairpinned.
const MAX_TRANSLATIONS: usize = 2;

impl Sessions {
    /// Returns the destination of a packet after translation, for a route lookup before rules are applied.
    /// `head` and `meta` are as for [`Sessions::lookup`]; nothing is changed. `None`: the destination address
    /// of the packet itself.
    ///
    /// The packet's own destination is returned, too, if a rule gives a new destination (`map`, `lb`) to the
    /// session that the packet opens: rules that read `out` are applied first and see the route to the
    /// original destination. The same holds for a packet from inside to another host inside by its external
    /// address, if another worker owns that host's sessions.
    pub fn effective_destination(&self, env: &impl Environment, head: &[u8], meta: &Meta) -> Option<IpAddr> {
        match parse_key(head, meta) {
            Ok(key) | Err(KeyError::FirstFragment(key)) => self.inbound_address(env, &key),
            Err(KeyError::IcmpError) => {
                let flow = self.table.find(&parse_quote(head, meta)?.key.reversed());
                self.translation(flow).map(|to| destination(&to))
            }
            Err(KeyError::LaterFragment) => match self.fragments.target(&Fragment::of(head, meta)?)? {
                FragmentTarget::Session(flow, uid) | FragmentTarget::Error(flow, uid)
                    if self.is_same_session(flow, uid) =>
                {
                    self.translation(flow).map(|to| destination(&to))
                }
                _ => None,
            },
            Err(KeyError::NotIp) => None,
        }
    }

    /// Returns the destination of a packet with this key after translation.
    fn inbound_address(&self, env: &impl Environment, key: &Key) -> Option<IpAddr> {
        let mut key = *key;
        for _ in 0..MAX_TRANSLATIONS {
            let flow = self.table.find(&key);
            let Some(to) = self.translation(flow) else { break };
            if !self.is_hairpinned(flow) {
                return Some(destination(&to));
            }
            key = to;
        }
        let is_nat = env.nat().is_nat_destination(&key);
        let inside = is_nat.then(|| self.nat.pools.inbound_address(&key)).flatten();
        inside.map(IpAddr::from).or_else(|| Some(destination(&key)))
    }

    /// Returns the key of a flow's packets after translation. `None`: there is no session.
    fn translation(&self, flow: FlowRef) -> Option<Key> {
        let is_session = flow.is_some() && self.table.redirect_worker(flow).is_none();
        is_session.then(|| self.table.key(flow.opposite()).reversed())
    }

    /// Whether packets of the flow, once translated, are for an address of NAT and return from there.
    pub(crate) fn is_hairpinned(&self, flow: FlowRef) -> bool {
        let flag = session_flags::LOOPS[flow.direction() as usize];
        self.table.session(flow.session()).flags & flag != 0
    }

    /// Restores a packet that this worker has translated: addresses, ports or identifier, sequence numbers,
    /// checksums. Edits of rules remain, and so does a fixed `ip-id`. Returns `false`, with the packet
    /// unchanged, if the packet belongs to no translated session of this worker. Later fragments and ICMP
    /// errors are not restored: no error is sent about them (RFC 1122, 3.2.2).
    ///
    /// A packet from inside to another host inside, whose session another worker owns, becomes what this
    /// worker was given.
    pub fn untranslate(&self, head: &mut [u8], meta: &Meta) -> bool {
        let mut is_changed = false;
        for _ in 0..MAX_TRANSLATIONS {
            let (Ok(key) | Err(KeyError::FirstFragment(key))) = parse_key(head, meta) else { break };
            let reply = self.table.find(&key.reversed());
            if !reply.is_some() || self.table.redirect_worker(reply).is_some() {
                break;
            }
            let flow_ref = reply.opposite();
            let (id, flow) = (flow_ref.session(), self.table.flow(flow_ref));
            if !flow.flags.intersects(FlowFlags::XLAT4 | FlowFlags::XLAT_SLOW) {
                break;
            }
            let (to, mangle) = (flow.key(), self.chains.layout.mangle(&self.table, id));
            if untranslate(head, meta, &key, &to, mangle.as_ref(), flow_ref.direction()).is_err() {
                break;
            }
            is_changed = true;
            // A packet from the other side of a hairpinned session was hairpinned there.
            if !self.is_hairpinned(reply) {
                break;
            }
        }
        is_changed
    }
}

/// Returns the destination address of a key.
fn destination(key: &Key) -> IpAddr {
    match key.is_ip4() {
        true => {
            let [a, b, c, d, ..] = key.destination;
            [a, b, c, d].into()
        }
        false => key.destination.into(),
    }
}
