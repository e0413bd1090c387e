//! Translation that is stored with sessions, and its reverse for routing.

pub(crate) mod record;
pub(crate) mod routed;
