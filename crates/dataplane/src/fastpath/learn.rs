//! What a packet that was watched teaches: what the kernel is to do with others of its flow, and whom they are to be credited to.

use mmb_dpdk::{FastAction, FastKey, Packet};
use mmb_policy::Policy;
use mmb_route::{NextHopKind, Routes};
use mmb_session::OffloadCandidate;

use super::entries::{Credit, Due, Matched};
use super::{FastCounters, FastSetup, Refused, flow};
use crate::engine::snapshot::{Snapshot, path};

/// Rules that may match a flow: each is credited one by one.
const MOST_RULES: usize = 64;
/// Bytes of an Ethernet header.
const ETHERNET: u16 = 14;

/// What has been learnt of a flow.
pub(super) struct Learnt {
    pub key: FastKey,
    /// Its packets come from another worker.
    pub handed: bool,
    pub action: FastAction,
    pub generation: u64,
    pub credit: Credit,
    /// There have been several packets of it.
    pub often: bool,
    /// Its place in the kernel is paid for.
    pub paid: bool,
}

/// What is known of a packet that was watched, besides what it was and is.
pub(crate) struct Known {
    /// The slots of the rules that match it.
    pub rules: Vec<u32>,
    /// Its session.
    pub session: Option<OffloadCandidate>,
}

/// A packet that was watched: its flow, as it came, and as it goes.
pub(super) struct Seen<'a> {
    pub key: FastKey,
    pub handed: bool,
    pub port: u16,
    pub before: &'a [u8],
    pub packet: &'a Packet,
}

impl Seen<'_> {
    /// What the kernel is to do with the packets of its flow, and what for; with the generation that was in force.
    pub fn teaches(
        &self,
        setup: &FastSetup,
        (snapshot, routes): (&Snapshot, &Routes),
        Known { rules, session }: Known,
        (generation, often, paid): (u64, bool, bool),
    ) -> Result<Learnt, Refused> {
        let mut action = self.action(setup, snapshot, routes)?;
        match session {
            // What opens and resets connections changes their state at once.
            Some(_) => {
                let is_tcp = self.key.proto == flow::TCP;
                (action.track_tcp, action.pass_fin) = (is_tcp, is_tcp);
            }
            None => action.pass_control = true,
        }
        let rules = matched(rules, &snapshot.policy).ok_or(Refused::Rules)?;
        let (from, to) = ((self.port, self.key.port), (self.packet.meta().out_port, action.out));
        let credit = Credit { from, to, rules, session };
        Ok(Learnt { key: self.key, handed: self.handed, action, generation, credit, often, paid })
    }

    fn action(&self, setup: &FastSetup, snapshot: &Snapshot, routes: &Routes) -> Result<FastAction, Refused> {
        let Seen { key, port, before, packet, .. } = self;
        let (meta, is_routed) = (packet.meta(), snapshot.is_routed(*port));
        let out = setup.to(meta.out_port).ok_or(Refused::Target)?;
        if packet.nb_segs() != 1 {
            return Err(Refused::Otherwise);
        }
        let done = flow::compare(key.port, is_routed, before, packet.data())?;
        let longest = snapshot.frame_max(meta.out_port, ETHERNET).saturating_sub(usize::from(ETHERNET));
        let mut max_len = u16::try_from(longest).unwrap_or(u16::MAX);
        if is_routed {
            // What the engine has found, for the length that it allows. A next hop that is being asked after is to see packets of
            // the engine's, which asks the kernel to ask.
            let hop = routes.hops.get(meta.stage.next_hop());
            let addresses = packet.data().first_chunk::<12>();
            let is_it = hop.kind == NextHopKind::Forward
                && hop.port == meta.out_port
                && addresses == Some(&hop.header);
            if !is_it || hop.neighbor_stale {
                return Err(Refused::NextHop);
            }
            max_len = max_len.min(hop.mtu);
        }
        Ok(done.by(out, max_len))
    }
}

/// The rules in these slots; none if they are too many.
fn matched(slots: Vec<u32>, policy: &Policy) -> Option<Box<[Matched]>> {
    if slots.len() > MOST_RULES {
        return None;
    }
    slots.into_iter().map(|slot| Some((slot, policy.rule_id(slot)?))).collect()
}

/// Whether rules apply to what comes in by a port.
pub(crate) fn is_ruled(snapshot: &Snapshot, port: u16) -> bool {
    snapshot.path(port) & path::RULES != 0
}

/// Credits packets that the kernel has sent on. Rules and ports that are gone, or are others now, get nothing.
pub(super) fn pay(due: &Due<'_>, snapshot: &Snapshot, worker: usize, counters: &FastCounters) {
    counters.packets.add(due.packets);
    counters.bytes.add(due.bytes);
    let (from, to) = (due.credit.from, due.credit.to);
    for (is_in, (id, number)) in [(true, from), (false, to)] {
        if let Some(port) = snapshot.port(id).filter(|port| port.device().fast_port() == Some(number)) {
            port.credit(is_in, due.packets, due.bytes);
        }
    }
    let packets = u32::try_from(due.packets).unwrap_or(u32::MAX);
    for (slot, id) in &due.credit.rules {
        if snapshot.policy.rule_id(*slot) == Some(*id) {
            snapshot.counters[worker].count(*slot, packets, due.bytes);
        }
    }
}
