//! Whether a configuration allows flows on the fast path.

use mmb_flow::{NatConfig, SessionSettings};
use mmb_policy::{Policy, PortDependence, RuleScope};

/// Why no flow can be installed under a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// A rule whose effect differs from packet to packet.
    #[error("rule {index} has to see each packet: `{words}`")]
    PerPacketRule {
        /// The rule's index.
        index: u32,
        /// Its words.
        words: String,
    },
    /// The window check needs the sequence numbers of each segment.
    #[error("tcp-window-check has to see each segment")]
    WindowCheck,
    /// A rule that depends on the egress port, which may change while a session lives.
    #[error("rule {index} depends on the egress port of sessions' packets: `out`")]
    OutPort {
        /// The rule's index.
        index: u32,
    },
}

/// Why no flow can be installed under these rules; None: flows can.
pub fn fast_path_obstacle(policy: &Policy, nat: &NatConfig, settings: &SessionSettings) -> Option<Obstacle> {
    if let Some((index, words)) = policy.offload_obstacle() {
        return Some(Obstacle::PerPacketRule { index, words: words.to_string() });
    }
    if !policy.is_stateful() && nat.is_empty() {
        return None;
    }
    if settings.tcp_window_check {
        return Some(Obstacle::WindowCheck);
    }
    policy.per_packet()?;
    let rule = policy.rules_of(|info| info.scope == RuleScope::Packet).next()?;
    Some(Obstacle::OutPort { index: rule.index })
}

/// The address pairs whose ports do not matter to the rules, if there are any. `needs_sessions`: packets open
/// sessions.
pub fn address_pairs(policy: &Policy, needs_sessions: bool) -> Option<PortDependence> {
    policy.port_dependence().filter(|pairs| !needs_sessions && pairs.has_port_independent()).cloned()
}
