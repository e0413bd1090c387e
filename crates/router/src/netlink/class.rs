//! The classes of kernel state that are dumped one after the other.

/// A class of kernel state. Each class is dumped separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum StateClass {
    Links,
    Addresses,
    Settings4,
    Settings6,
    Objects,
    Neighbors4,
    Neighbors6,
    Routes4,
    Routes6,
}
