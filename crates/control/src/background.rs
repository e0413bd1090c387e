//! Threads of network functions: health checks, export, whatever needs sockets, files or a clock.
//!
//! Theory of operation. An instance whose function asks for it ([`mmb_nf::Function::background`]) has a thread from the
//! publication of the first program that it is in until that of the first it is not in, or until the daemon ends. A
//! change waits for no thread to end: it is told to, and left to it. The daemon's end waits for all of them, so that what
//! is to be written is written.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use mmb_nf::{Instance, Program, StopSignal};

/// The threads there are.
#[derive(Default)]
pub(crate) struct Background(Mutex<Threads>);

#[derive(Default)]
struct Threads {
    /// The instances of the program that runs: each was asked for its work.
    asked: Vec<Arc<Instance>>,
    at_work: Vec<Thread>,
    /// Told to end.
    leaving: Vec<Thread>,
}

struct Thread {
    instance: Arc<Instance>,
    stop: Arc<StopSignal>,
    handle: JoinHandle<()>,
}

impl Background {
    /// Starts the threads of instances that have come with a program, and has those end whose instance has gone.
    pub fn follow(&self, program: &Program) {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = &mut *threads;
        let stays = |old: &Arc<Instance>| program.instances().iter().any(|new| Arc::ptr_eq(old, new));
        threads.leaving.retain(|thread| !thread.handle.is_finished());
        let (at_work, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut threads.at_work).into_iter().partition(|thread| stays(&thread.instance));
        gone.iter().for_each(|thread| thread.stop.stop());
        threads.at_work = at_work;
        threads.leaving.extend(gone);
        threads.asked.retain(stays);
        for instance in program.instances() {
            if threads.asked.iter().all(|known| !Arc::ptr_eq(known, instance)) {
                threads.asked.push(instance.clone());
                threads.at_work.extend(start(instance));
            }
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let threads = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = threads.at_work.drain(..).chain(threads.leaving.drain(..)).collect();
        all.iter().for_each(|thread| thread.stop.stop());
        for thread in all {
            // One that panicked has said so.
            let _ = thread.handle.join();
        }
    }
}

/// Starts the thread of an instance, if it wants one.
fn start(instance: &Arc<Instance>) -> Option<Thread> {
    let work = instance.background()?;
    let stop = Arc::new(StopSignal::default());
    let (told, name) = (stop.clone(), instance.name());
    match thread::Builder::new().name(format!("nf-{name}")).spawn(move || work(&told)) {
        Ok(handle) => Some(Thread { instance: instance.clone(), stop, handle }),
        Err(error) => {
            // A log that cannot be written is no reason to stop.
            let _ =
                writeln!(io::stderr(), "function {name}: no thread for its work in the background: {error}");
            None
        }
    }
}
