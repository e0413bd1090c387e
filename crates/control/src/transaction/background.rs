//! Background threads of network functions, for work that needs sockets, files or a clock.
//!
//! Theory of operation. An instance whose function has background work ([`mmb_nf::Function::background`])
//! gets a thread when the first program with the instance is published. The thread is told to stop when a
//! program without the instance is published, or when the daemon ends. A change does not wait for a thread to
//! stop. The end of the daemon waits for all of them, so that they can write what they hold.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use mmb_nf::{Instance, Program, StopSignal};
use mmb_system::log;

/// The threads of all instances.
#[derive(Default)]
pub(super) struct Background(Mutex<Threads>);

#[derive(Default)]
struct Threads {
    /// The instances of the current program, with or without a thread.
    known: Vec<Arc<Instance>>,
    running: Vec<Thread>,
    /// Threads that were told to stop.
    stopping: Vec<Thread>,
}

struct Thread {
    instance: Arc<Instance>,
    stop: Arc<StopSignal>,
    handle: JoinHandle<()>,
}

impl Background {
    /// Starts the threads of instances that are new in a program, and stops those of instances that are not
    /// in it.
    pub fn sync(&self, program: &Program) {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = &mut *threads;
        let stays = |old: &Arc<Instance>| program.instances().iter().any(|new| Arc::ptr_eq(old, new));
        threads.stopping.retain(|thread| !thread.handle.is_finished());
        let (running, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut threads.running).into_iter().partition(|thread| stays(&thread.instance));
        gone.iter().for_each(|thread| thread.stop.stop());
        threads.running = running;
        threads.stopping.extend(gone);
        threads.known.retain(stays);
        for instance in program.instances() {
            if threads.known.iter().all(|known| !Arc::ptr_eq(known, instance)) {
                threads.known.push(instance.clone());
                threads.running.extend(start(instance));
            }
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let threads = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = threads.running.drain(..).chain(threads.stopping.drain(..)).collect();
        all.iter().for_each(|thread| thread.stop.stop());
        for thread in all {
            // A thread that panicked has printed the reason already.
            let _ = thread.handle.join();
        }
    }
}

/// Starts the thread of an instance, if it has background work.
fn start(instance: &Arc<Instance>) -> Option<Thread> {
    let work = instance.background()?;
    let stop = Arc::new(StopSignal::default());
    let (signal, name) = (stop.clone(), instance.name());
    match thread::Builder::new().name(format!("nf-{name}")).spawn(move || work(&signal)) {
        Ok(handle) => Some(Thread { instance: instance.clone(), stop, handle }),
        Err(error) => {
            log::error(format!("function {name}: cannot start its background thread: {error}\n"));
            None
        }
    }
}
