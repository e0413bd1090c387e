//! What a sampled packet teaches: the action of its flow, and what the kernel's counters are credited to.

use mmb_dpdk::{FastAction, FastNumbers, Packet};
use mmb_policy::Policy;
use mmb_route::NextHopKind;
use mmb_session::{AddedNumbers, OffloadCandidate};

use super::frame::TCP;
use super::rewrite::derive_rewrite;
use super::sampled::{SampledFlow, SampledPacket};
use crate::config::FastPathConfig;
use crate::entries::{CreditTargets, PortRef, RuleRef};
use crate::host::{FastPathHost, TxContext};
use crate::install::numbers_of;
use crate::refusal::RefusalReason;

/// Rules that may match a flow: each is credited separately.
const RULES_MAX: usize = 64;
/// Bytes of an Ethernet header.
const ETHERNET: u16 = 14;

/// A flow that can be installed.
pub(crate) struct LearnedFlow {
    pub flow: SampledFlow,
    pub action: FastAction,
    pub generation: u64,
    pub credit: CreditTargets,
    /// There were several packets of it.
    pub is_frequent: bool,
    /// The budget for it is spent.
    pub is_paid: bool,
}

/// How a session treats the packets of a flow.
pub(crate) struct SessionTreatment {
    pub candidate: OffloadCandidate,
    /// What it adds to numbers.
    pub added: AddedNumbers,
    /// Whether it needs no FIN at once.
    pub may_pass_fins: bool,
}

/// What determined the treatment of a sampled packet.
pub(crate) enum Treatment {
    /// The rules in these slots.
    Rules(Vec<u32>),
    /// A session.
    Session(SessionTreatment),
}

/// Derives the flow of a sampled packet. `received` is the packet as it was received, `frame` as it is sent.
pub(crate) fn learn(
    config: &FastPathConfig,
    context: &TxContext<'_, impl FastPathHost>,
    (sample, received): (&SampledPacket, &[u8]),
    (sent, frame): (&Packet, &[u8]),
    treatment: Treatment,
) -> Result<LearnedFlow, RefusalReason> {
    let flow = sample.flow;
    let numbers = match &treatment {
        Treatment::Session(session) => numbers_of(&flow.key, session.added),
        Treatment::Rules(_) => None,
    };
    let mut action = derive_action(config, context, (sample, received), (sent, frame), numbers)?;
    let (rules, session) = match treatment {
        // Segments that open and reset connections go to the engine, which compares their numbers with the
        // session. So do those that close them if the session needs them at once.
        Treatment::Session(session) => {
            action.track_tcp = flow.key.proto == TCP;
            action.pass_fin = action.track_tcp && action.numbers.is_none() && session.may_pass_fins;
            (Vec::new(), Some(session.candidate))
        }
        Treatment::Rules(rules) => {
            action.pass_control = true;
            (rules, None)
        }
    };
    let rules = resolve_rules(rules, context.host.policy()).ok_or(RefusalReason::Rules)?;
    let ingress = PortRef { id: sample.port, number: flow.key.port };
    let egress = PortRef { id: sent.meta().out_port, number: action.out };
    Ok(LearnedFlow {
        flow,
        action,
        generation: context.generation,
        credit: CreditTargets { ingress, egress, rules, session },
        is_frequent: sample.is_frequent,
        is_paid: sample.is_paid,
    })
}

/// The action that turns the received packet into the sent one.
fn derive_action(
    config: &FastPathConfig,
    context: &TxContext<'_, impl FastPathHost>,
    (sample, received): (&SampledPacket, &[u8]),
    (sent, frame): (&Packet, &[u8]),
    numbers: Option<FastNumbers>,
) -> Result<FastAction, RefusalReason> {
    let (meta, is_routed) = (sent.meta(), context.host.routed(sample.port));
    let out = config.egress(sample.port, meta.out_port).ok_or(RefusalReason::Target)?;
    let rewrite = derive_rewrite(sample.flow.key.port, is_routed, numbers, received, frame)?;
    let longest = context.host.max_frame(meta.out_port, ETHERNET).saturating_sub(usize::from(ETHERNET));
    let mut max_len = u16::try_from(longest).unwrap_or(u16::MAX);
    if is_routed {
        // The next hop limits the length. While its neighbour entry is stale, packets must go through the
        // engine, which has the kernel confirm it.
        let hop = context.routes.hops.get(meta.stage.next_hop());
        let addresses = sent.data().first_chunk::<12>();
        let is_resolved =
            hop.kind == NextHopKind::Forward && hop.port == meta.out_port && addresses == Some(&hop.header);
        if !is_resolved || hop.neighbor_stale {
            return Err(RefusalReason::NextHop);
        }
        max_len = max_len.min(hop.mtu);
    }
    Ok(rewrite.into_action(out, max_len))
}

/// The rules in these slots; None: there are too many.
fn resolve_rules(slots: Vec<u32>, policy: &Policy) -> Option<Box<[RuleRef]>> {
    if slots.len() > RULES_MAX {
        return None;
    }
    slots.into_iter().map(|slot| Some(RuleRef { slot, id: policy.rule_id(slot)? })).collect()
}
