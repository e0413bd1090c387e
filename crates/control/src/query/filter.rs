//! Filters sessions by matches of the language, for `show connections` and `clear connections`.
//!
//! Theory of operation. A session passes if one of its directions matches. A direction matches if the header
//! fields that all its packets share match, as the packets are received. The matches become a policy of one
//! rule. Each session becomes two windows, as the classifier reads them.

use mmb_dataplane::{Connection, MAX_PORTS, PortId};
use mmb_flow::Key;
use mmb_lang::{Action, Match, Rule, RuleKind, SourceSpan};
use mmb_packet::{Kind, Meta, OUT_ROUTED, fill_window};
use mmb_policy::{Batch, Policy, VECTOR};

use crate::config::Config;
use crate::error::CommandError;

/// Sessions in a batch: each takes two windows.
const SESSIONS: usize = VECTOR / 2;
/// Offset of the transport header in an IPv4 packet.
const L4_OF_IP4: usize = 20;
/// Offset of the transport header in an IPv6 packet.
const L4_OF_IP6: usize = 40;

/// A filter of sessions.
#[derive(Clone, Debug)]
pub(super) struct SessionFilter {
    /// One rule that accepts what passes.
    policy: Policy,
    /// By port: the other end of its wire, or [`OUT_ROUTED`].
    peers: [u16; MAX_PORTS],
}

impl SessionFilter {
    /// A filter for matches. None: there are no matches, and all sessions pass.
    ///
    /// # Errors
    /// A match on a field that sessions do not have, an unknown interface, or matches that exclude each
    /// other.
    pub fn new(matches: &[Match], config: &Config) -> Result<Option<SessionFilter>, CommandError> {
        if matches.is_empty() {
            return Ok(None);
        }
        mmb_lang::check_filter(matches)?;
        config.check_matches(matches)?;
        let rule = Rule {
            kind: RuleKind::Add,
            matches: matches.to_vec(),
            targets: vec![Action::Accept.into()],
            label: None,
            span: SourceSpan::default(),
        };
        let mut policy = Policy::new().with_sets(config.policy().sets().clone());
        policy.add(&rule, &|name: &str| config.port_of(name))?;
        let mut peers = [PortId::NONE.0; MAX_PORTS];
        for i in config.interfaces() {
            let out = i.peer.map(|peer| peer.0).or(i.routed.map(|_| OUT_ROUTED));
            if let (Some(at), Some(out)) = (i.id.index(), out) {
                peers[at] = out;
            }
        }
        Ok(Some(SessionFilter { policy, peers }))
    }

    /// Keeps the sessions that pass. `batch` is scratch space.
    pub fn retain(&self, connections: &mut Vec<Connection>, batch: &mut Batch) {
        let mut keep = Vec::with_capacity(connections.len());
        for chunk in connections.chunks(SESSIONS) {
            batch.len = 2 * chunk.len();
            for (i, view) in chunk.iter().enumerate() {
                let [forward, reverse] = view.in_port;
                self.window(&view.original, false, [forward, reverse], batch, 2 * i);
                self.window(&view.reply, true, [reverse, forward], batch, 2 * i + 1);
            }
            self.policy.classifier().classify(batch);
            let before = keep.len();
            keep.resize(before + chunk.len(), false);
            for hit in &batch.hits {
                keep[before + usize::from(hit.pkt) / 2] = true;
            }
        }
        let mut keep = keep.into_iter();
        connections.retain(|_| keep.next().unwrap_or(false));
    }

    /// Fills a window with the header fields that packets of one direction share. `ports` are the ingress
    /// ports of this direction and of the other.
    fn window(&self, key: &Key, is_reply: bool, ports: [u16; 2], batch: &mut Batch, at: usize) {
        let (head, meta) = headers(key, is_reply);
        let [in_port, other_in_port] = ports;
        let out_port = match self.peers.get(usize::from(in_port)) {
            // The ingress port of replies. Routes may have changed since, but nothing better is known.
            Some(&OUT_ROUTED) => other_in_port,
            Some(&peer) => peer,
            None => PortId::NONE.0,
        };
        if let Some(window) = batch.windows.get_mut(at) {
            fill_window(&head, &meta, in_port, out_port, self.policy.classifier().chunks(), window);
        }
    }
}

/// The headers of a packet with this key, without Ethernet. Fields that the key does not have are zero.
fn headers(key: &Key, is_reply: bool) -> ([u8; 64], Meta) {
    let mut head = [0; 64];
    let l4;
    if key.is_ip4() {
        l4 = L4_OF_IP4;
        (head[0], head[9]) = (0x45, key.proto);
        head[12..16].copy_from_slice(&key.source[..4]);
        head[16..20].copy_from_slice(&key.destination[..4]);
    } else {
        l4 = L4_OF_IP6;
        (head[0], head[6]) = (0x60, key.proto);
        head[8..24].copy_from_slice(&key.source);
        head[24..40].copy_from_slice(&key.destination);
    }
    let mut kind = Kind(key.kind);
    match kind.l4() {
        Kind::TCP | Kind::UDP => {
            head[l4..l4 + 2].copy_from_slice(&key.source_port);
            head[l4 + 2..l4 + 4].copy_from_slice(&key.destination_port);
        }
        Kind::ICMP | Kind::ICMP6 => match icmp_type(key, is_reply) {
            Some(icmp_type) => head[l4] = icmp_type,
            None => kind = Kind(kind.l3()),
        },
        _ => {}
    }
    let meta = Meta {
        l3_off: 0,
        l4_off: l4 as u16,
        end: head.len() as u16,
        ethertype: if key.is_ip4() { 0x0800 } else { 0x86dd },
        kind,
        proto: key.proto,
        ..Meta::default()
    };
    (head, meta)
}

/// The type of ICMP messages with this key. None: the messages are not queries, and share no type.
fn icmp_type(key: &Key, is_reply: bool) -> Option<u8> {
    let [_, query] = if is_reply { key.source_port } else { key.destination_port };
    match (is_reply, query) {
        (_, 0) => None,
        (false, query) => Some(query),
        // RFC 792: an echo request is 8, its reply 0. Other replies have the number after their request.
        (true, 8) => Some(0),
        (true, query) => query.checked_add(1),
    }
}

#[cfg(test)]
mod tests;
