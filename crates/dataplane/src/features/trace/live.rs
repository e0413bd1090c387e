//! Traces of a running engine.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mmb_policy::Policy;

use super::record::{PacketTrace, TraceDetail, TraceRequest};
use crate::engine::control::Engine;
use crate::engine::shared::Shared;
use crate::engine::thread::mailbox::WorkerTask;

/// Most traces that wait for their reader.
const QUEUED: u32 = 1024;

/// Which packets are traced, and how.
#[derive(Clone)]
pub struct TraceSelection {
    /// The packets, as they come in: those that some rule of this policy matches. None: all.
    pub filter: Option<Policy>,
    /// Which of them are wanted, when they have left the graph.
    pub wants: Arc<dyn Fn(&PacketTrace) -> bool + Send + Sync>,
    /// How many are wanted.
    pub count: u32,
    /// How much of each is noted.
    pub detail: TraceDetail,
}

/// Traces of packets under way, while it exists. There is one at a time.
pub struct LiveTrace {
    traces: Mutex<Receiver<PacketTrace>>,
    missed: Arc<AtomicU64>,
    shared: Arc<Shared>,
}

/// What [`LiveTrace::next`] returns.
#[derive(Debug)]
pub enum NextTrace {
    /// A packet has left the graph.
    Packet(Box<PacketTrace>),
    /// No packet has come in time.
    TimedOut,
    /// There are no more: all packets have been traced, or the workers have ended.
    Ended,
}

impl Engine {
    /// Traces packets. None: another trace runs.
    pub fn trace(&self, selection: &TraceSelection) -> Option<LiveTrace> {
        let shared = self.shared_arc();
        if shared.is_traced.swap(true, Relaxed) {
            return None;
        }
        let TraceSelection { filter, wants, count, detail } = selection;
        let (sender, traces) = sync_channel((*count).min(QUEUED) as usize);
        let (left, missed) = (Arc::new(AtomicU32::new(*count)), Arc::new(AtomicU64::new(0)));
        for worker in &shared.workers {
            let (sender, left, lost, wants) = (sender.clone(), left.clone(), missed.clone(), wants.clone());
            let sink = move |trace| {
                if !wants(&trace) {
                    return true;
                }
                let taken = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
                let Ok(before) = taken else { return false };
                match sender.try_send(trace) {
                    Ok(()) => before > 1,
                    Err(TrySendError::Full(_)) => {
                        left.fetch_add(1, Relaxed);
                        lost.fetch_add(1, Relaxed);
                        true
                    }
                    Err(TrySendError::Disconnected(_)) => false,
                }
            };
            let (filter, missed, detail) = (filter.clone(), missed.clone(), *detail);
            let request = TraceRequest { filter, detail, missed, sink: Box::new(sink) };
            worker.mailbox.push(WorkerTask::Trace(Some(Box::new(request))));
            worker.wake_if_sleeping();
        }
        Some(LiveTrace { traces: Mutex::new(traces), missed, shared })
    }
}

impl LiveTrace {
    /// Packets that were selected and not traced, as there were too many at once.
    pub fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }

    /// The next trace. Waits for it.
    pub fn next(&self, patience: Duration) -> NextTrace {
        let traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        match traces.recv_timeout(patience) {
            Ok(trace) => NextTrace::Packet(Box::new(trace)),
            Err(RecvTimeoutError::Timeout) => NextTrace::TimedOut,
            Err(RecvTimeoutError::Disconnected) => NextTrace::Ended,
        }
    }
}

impl Drop for LiveTrace {
    fn drop(&mut self) {
        for worker in &self.shared.workers {
            worker.mailbox.push(WorkerTask::Trace(None));
            worker.wake_if_sleeping();
        }
        self.shared.is_traced.store(false, Relaxed);
    }
}
