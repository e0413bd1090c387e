//! Brokers: HTTP connections on the kernel's TCP, whose requests pass chains of functions of layer 7.
//!
//! Theory of operation. A broker has one thread, which sleeps in `epoll_wait` until a socket is ready or a
//! deadline has come; there is no periodic wake-up. A client has one exchange at a time: a request, and the
//! response to it. Pipelined requests wait in the socket. When the head of a request is complete, it passes
//! the functions of the chain ([`chain`]); then the broker asks for a server ([`mmb_nf::Upstream`]), takes a
//! kept connection to it or opens one, and copies both bodies as they come.
//!
//! Each side has a bounded buffer for what the other has not taken. While it is full, the broker does not
//! read, so that TCP stops the sender. A connection without bytes under way holds no buffer.
//!
//! If the functions of the chain are in a domain, the same event loop runs in a process ([`process`]): it has
//! no right to make sockets, and gets all of them from the daemon.
//!
//! Messages are parsed by `mmb-http`, strictly, and written anew: no byte of a head reaches the other side
//! without having been understood ([`exchange`]).
//!
//! ```text
//! client ─► io::Channel ─► exchange: head ─► chain ─► server ─► io::Channel ─► server
//!                              └── event_loop: sockets, deadlines, limits, commands
//! ```

#![forbid(unsafe_code)]

mod broker;
mod chain;
mod counters;
mod event_loop;
mod exchange;
mod io;
mod process;
mod settings;

pub use broker::{Broker, BrokerView, Listener};
pub use counters::{Count, Counters};
pub use process::run_in_process;
pub use settings::Settings;
