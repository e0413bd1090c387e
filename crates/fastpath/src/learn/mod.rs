//! Learning: which packets are sampled, and what a sampled packet teaches.

mod budget;
mod frame;
mod learned;
mod pending;
mod rewrite;
mod sample_cache;
mod sampled;

pub(crate) use budget::LearningBudget;
pub(crate) use frame::{PacketRole, TCP, has_syn, is_tcp_answer, packet_role, parse_key};
pub(crate) use learned::{LearnedFlow, SessionTreatment, Treatment, learn};
pub(crate) use pending::PendingFlows;
#[cfg(feature = "testing")]
pub(crate) use rewrite::derive_rewrite;
pub(crate) use sample_cache::SampleCache;
pub(crate) use sampled::{SampledFlow, SampledPackets, frame_of};
