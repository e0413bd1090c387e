//! Sessions: the nodes of stateful rules, NAT and tracking, and what the control side reads of sessions.

pub(crate) mod classify;
pub(crate) mod connections;
pub(crate) mod dispatch;
pub(crate) mod ingress;
pub(crate) mod lookup;
mod packets;
pub(crate) mod saved;
pub(crate) mod state;
pub(crate) mod track;
