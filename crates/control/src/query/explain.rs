//! What happens to the packets of a capture under the running configuration.
//!
//! Theory of operation. The capture passes through an engine of its own, as with `mmb explain`, with the
//! rules, NAT, ports and settings in force and the routes of now. Its functions are made anew from the lines
//! of the configuration, and run in this process. So nothing in service is asked, counted or changed.
//! Sessions are those that the packets of the capture open.

use std::io::Cursor;
use std::sync::{Mutex, TryLockError};

use axum::body::Bytes;
use mmb_simulate::capture::Reader;
use mmb_simulate::explain;
use mmb_simulate::replay::{ReplayConfig, ReplayError};

use super::trace::{TraceView, trace_entry};
use crate::api::TraceList;
use crate::config::{Config, file};
use crate::error::Refusal;
use crate::text::count;
use crate::transaction::Control;

/// Sessions of an explanation.
const SESSIONS: usize = 4096;

/// Held while a capture is explained: an engine of its own takes memory.
static EXPLAINS: Mutex<()> = Mutex::new(());

impl Control {
    /// What happens to a packet of a capture that comes in by an interface. The packets before it are
    /// processed, too.
    ///
    /// # Errors
    /// There is no such interface or packet, the bytes are no capture, or another one is explained.
    pub(crate) fn explain_capture(
        &self,
        capture: Bytes,
        interface: &str,
        packet: u64,
    ) -> Result<TraceList, Refusal> {
        let _one = match EXPLAINS.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(one)) => one.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Refusal::conflict("another capture is explained; try again".to_owned()));
            }
        };
        let state = self.state();
        let config = &state.config;
        let in_port = config.interface(interface).map(|interface| interface.id);
        let in_port =
            in_port.ok_or_else(|| Refusal::not_found(format!("there is no interface `{interface}`")))?;
        let mut forwarding = config.forwarding(|id| state.is_up(id));
        forwarding.chains = with_new_functions(config)?.chains().program().clone();
        let scratchpad = config.platform().scratchpad;
        let setup =
            ReplayConfig { forwarding, in_port, interfaces: Vec::new(), sessions: SESSIONS, scratchpad };
        let reader = Reader::new(Cursor::new(capture))
            .ok_or_else(|| Refusal::invalid("the body is neither a pcap nor a pcapng capture".to_owned()))?;
        let mut packets = Vec::new();
        let report = explain::run_beside(self.engine(), &setup, reader, Some(packet), |trace| {
            packets.push(trace_entry(&trace, config, TraceView::default()));
            true
        });
        let report = report.map_err(|error: ReplayError| Refusal::failed(error.to_string()))?;
        if packets.is_empty() {
            let read = count(report.packets, "packet");
            return Err(Refusal::not_found(format!("there is no packet {packet}: the capture has {read}")));
        }
        Ok(TraceList { packets })
    }
}

/// The configuration with functions that are not in service.
fn with_new_functions(config: &Config) -> Result<Config, Refusal> {
    let base = Config::with_platform(config.platform().clone()).without_processes();
    file::load(file::text(config).as_bytes(), &base)
}
