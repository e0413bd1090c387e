//! IP input: the parse of IPv4 and IPv6 headers, and the checks of a router.

pub(crate) mod checksums;
pub(crate) mod hook;
pub(crate) mod input;
pub(crate) mod locals;
pub(crate) mod sources;
pub(crate) mod version;
