//! Simulation of the engine: the daemon's graph with packets from memory, without devices and threads of its
//! own.
//!
//! | module | contents |
//! |---|---|
//! | [`harness`] | workers of an engine for the calling thread; the base of all others |
//! | [`frames`] | frames in, frames out, one walk at a time: for tests |
//! | [`capture`] | capture files: pcap and pcapng in, pcap out |
//! | [`replay`] | `mmb replay`: a capture through the graph |
//! | [`explain`] | `mmb explain`: the path of single packets of a capture |
//! | [`bench`] | `mmb bench`: the cost of a policy, measured on the graph |

#![forbid(unsafe_code)]

pub mod bench;
pub mod capture;
pub mod explain;
pub mod frames;
pub mod harness;
pub mod replay;

pub use frames::FrameSimulator;
pub use harness::{Harness, HarnessError};
