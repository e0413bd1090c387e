//! The built-in functions, a file each.

mod count;
mod direction;
mod ends;
mod lines;
mod log;
mod mark;
mod mirror;
mod monitor;
mod mss_clamp;
mod outbox;
mod police;
mod tally;
#[cfg(test)]
pub(crate) mod testing;

mod acl;
mod clauses;
mod lb;
mod nat;
mod segment;
mod split;
mod synproxy;

use crate::Registry;

/// Makes the built-in functions known.
pub(crate) fn register(registry: &mut Registry) {
    registry.add::<count::Count>();
    registry.add::<log::Log>();
    registry.add::<mark::Mark>();
    registry.add::<mirror::Mirror>();
    registry.add::<monitor::Monitor>();
    registry.add::<mss_clamp::MssClamp>();
    registry.add::<police::Police>();
    registry.add::<acl::Acl>();
    registry.add::<lb::Lb>();
    registry.add::<nat::Nat>();
    registry.add::<split::Split>();
    registry.add::<synproxy::Synproxy>();
}
