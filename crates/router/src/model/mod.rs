//! The mirrored state of the kernel, and the routes that it compiles to. This module uses no sockets.

mod family;
mod groups;
mod interfaces;
mod paths;
mod prefix;
mod query;
mod route_list;
mod state;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use interfaces::{by_interface, l3_interfaces, link_of, local_traffic};
pub(crate) use state::Model;
