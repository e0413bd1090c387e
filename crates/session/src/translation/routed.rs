//! What routing asks of sessions: the destination of a packet after translation, and the packet before
//! translation.
//!
//! Theory of operation. A packet of a session is translated from the key of its flow to the reverse of the
//! opposite flow's key. Before translation, [`effective_destination`] reads the destination there.
//! It changes nothing: a packet that opens a session is taken to go where NAT lets it in, if it does. After
//! translation, the reverse of the packet's key finds the opposite flow, and [`untranslate`]
//! restores the packet as it came in: an ICMP error of the router quotes what its receiver has sent. A packet
//! that was hairpinned has been translated by two sessions, and both are reversed.

use std::net::IpAddr;

use mmb_flow::{
    FlowFlags, FlowRef, Fragment, FragmentTable, Key, KeyError, SessionFlags, Table, parse_key, parse_quote,
};
use mmb_packet::Meta;

use crate::Environment;
use crate::slow_path::fragments::is_same_session;
use crate::slow_path::packet::FragmentTarget;
use crate::store::SessionStore;

/// Most sessions that translate one packet: its own, and that of the host to which it is hairpinned.
const MAX_TRANSLATIONS: usize = 2;

/// See [`crate::Sessions::effective_destination`].
pub(crate) fn effective_destination(
    store: &SessionStore,
    fragments: &FragmentTable<FragmentTarget>,
    env: &impl Environment,
    head: &[u8],
    meta: &Meta,
) -> Option<IpAddr> {
    match parse_key(head, meta) {
        Ok(key) | Err(KeyError::FirstFragment(key)) => inbound_address(store, env, &key),
        Err(KeyError::IcmpError) => {
            let flow = store.table.find(&parse_quote(head, meta)?.key.reversed());
            translation(&store.table, flow).map(|to| destination(&to))
        }
        Err(KeyError::LaterFragment) => match fragments.target(&Fragment::of(head, meta)?)? {
            FragmentTarget::Session(flow, uid) | FragmentTarget::Error(flow, uid)
                if is_same_session(&store.table, flow, uid) =>
            {
                translation(&store.table, flow).map(|to| destination(&to))
            }
            _ => None,
        },
        Err(KeyError::NotIp) => None,
    }
}

/// Returns the destination of a packet with this key after translation.
fn inbound_address(store: &SessionStore, env: &impl Environment, key: &Key) -> Option<IpAddr> {
    let mut key = *key;
    for _ in 0..MAX_TRANSLATIONS {
        let flow = store.table.find(&key);
        let Some(to) = translation(&store.table, flow) else { break };
        if !is_hairpinned(&store.table, flow) {
            return Some(destination(&to));
        }
        key = to;
    }
    let is_nat = env.nat().is_nat_destination(&key);
    let inside = is_nat.then(|| store.pools.inbound_address(&key)).flatten();
    inside.map(IpAddr::from).or_else(|| Some(destination(&key)))
}

/// Returns the key of a flow's packets after translation. `None`: there is no session.
fn translation(table: &Table, flow: FlowRef) -> Option<Key> {
    let is_session = flow.is_some() && table.redirect_worker(flow).is_none();
    is_session.then(|| table.key(flow.opposite()).reversed())
}

/// Whether packets of the flow, once translated, are for an address of NAT and return from there.
pub(crate) fn is_hairpinned(table: &Table, flow: FlowRef) -> bool {
    let flag = SessionFlags::LOOPS[flow.direction() as usize];
    table.session(flow.session()).flags.contains(flag)
}

/// See [`crate::Sessions::untranslate`].
pub(crate) fn untranslate(store: &SessionStore, head: &mut [u8], meta: &Meta) -> bool {
    let mut is_changed = false;
    for _ in 0..MAX_TRANSLATIONS {
        let (Ok(key) | Err(KeyError::FirstFragment(key))) = parse_key(head, meta) else { break };
        let reply = store.table.find(&key.reversed());
        if !reply.is_some() || store.table.redirect_worker(reply).is_some() {
            break;
        }
        let flow_ref = reply.opposite();
        let (id, flow) = (flow_ref.session(), store.table.flow(flow_ref));
        if !flow.flags.intersects(FlowFlags::XLAT4 | FlowFlags::XLAT_SLOW) {
            break;
        }
        let (to, mangle) = (flow.key(), store.chains.records.mangle(&store.table, id));
        if mmb_flow::untranslate(head, meta, &key, &to, mangle.as_ref(), flow_ref.direction()).is_err() {
            break;
        }
        is_changed = true;
        // A packet from the other side of a hairpinned session was hairpinned there.
        if !is_hairpinned(&store.table, reply) {
            break;
        }
    }
    is_changed
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
