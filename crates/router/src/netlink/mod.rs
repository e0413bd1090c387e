//! Netlink: sockets, messages, dumps.

mod class;
mod decode;
mod dump;
mod event;
mod socket;

pub(crate) use class::StateClass;
pub(crate) use decode::decode;
pub(crate) use dump::Dump;
pub(crate) use event::{
    Address, Event, InsertMode, Link, Neighbor, NextHopSpec, NextHopSpecs, NexthopObject, Route,
};
#[cfg(any(test, feature = "testing"))]
pub(crate) use socket::messages;
pub(crate) use socket::{NetlinkSocket, RECEIVE_BUFFER, ReadResult};
