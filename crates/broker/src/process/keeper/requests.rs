//! Jobs of the daemon, as requests to the process.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use mmb_fabric::message;
use mmb_nf::Instance;
use rustix::net::RecvFlags;

use super::{End, Job, Keeper, PATIENCE, Running, id_of, messages};
use crate::process::message::{Function, Reply, Request, states_of};
use crate::settings::Settings;

/// Who waits for a reply.
enum Waiting {
    Nobody,
    Done(Sender<()>),
    Result(Sender<Result<(), String>>),
    Report(Sender<Vec<(String, String)>>),
}

/// Requests without a reply yet, in their order.
#[derive(Default)]
pub(super) struct Pending(VecDeque<(Waiting, Instant)>);

impl Pending {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the process has not replied in time.
    pub fn is_overdue(&self) -> bool {
        self.0.front().is_some_and(|(_, since)| since.elapsed() > PATIENCE)
    }
}

impl Keeper {
    /// Takes replies. Returns why the process has to end.
    pub(super) fn receive_replies(&self, running: &mut Running) -> Option<End> {
        loop {
            let reply = match message::receive::<Reply>(&running.socket, RecvFlags::DONTWAIT) {
                Ok(Some((reply, _))) => reply,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Ok(None) => return Some(End::Gone),
                Err(_) => return Some(End::Broken),
            };
            if let Reply::Failed(reason) = reply {
                running.last_words = Some(message::printable(&reason));
                return Some(End::Gone);
            }
            // Who answers what nobody has asked breaks the rules.
            let Some((waiting, _)) = running.pending.0.pop_front() else { return Some(End::Broken) };
            // The one who has asked may wait no longer.
            match (waiting, reply) {
                (Waiting::Done(sender), Reply::Done(_)) => drop(sender.send(())),
                (Waiting::Result(sender), Reply::Done(result)) => {
                    let _ = sender.send(result.map_err(|reason| message::printable(&reason)));
                }
                (Waiting::Report(sender), Reply::Report(lines)) => drop(sender.send(lines)),
                (Waiting::Nobody, Reply::Done(_)) => {}
                _ => return Some(End::Broken),
            }
        }
    }

    /// Passes jobs on to the process. Returns why it has to end.
    pub(super) fn do_jobs(&mut self, running: &mut Running) -> Option<End> {
        while let Ok(job) = self.jobs.try_recv() {
            if let Some(end) = self.pass_on(job, running) {
                return Some(end);
            }
        }
        None
    }

    fn pass_on(&mut self, job: Job, running: &mut Running) -> Option<End> {
        let mut send = |request: &Request, files: &[BorrowedFd<'_>], waiting| {
            running.pending.0.push_back((waiting, Instant::now()));
            message::send(&running.socket, request, files)
        };
        let sent = match job {
            Job::End => return Some(End::Stop),
            Job::Prepare(functions, sender) => {
                let new = missing(&functions, &running.copies);
                running.copies.extend(new.iter().map(|function| function.id));
                self.prepared = functions;
                send(&Request::Make(new), &[], Waiting::Result(sender))
            }
            Job::Update(functions, settings) => {
                // All were prepared, unless another process has taken the place of that one.
                let new = missing(&functions, &running.copies);
                running.copies = functions.iter().filter_map(id_of).collect();
                let update = Request::Update(running.copies.clone(), settings);
                let sent = send(&Request::Make(new), &[], Waiting::Nobody)
                    .and_then(|()| send(&update, &[], Waiting::Nobody));
                self.update(functions, settings);
                sent
            }
            Job::Pause(sender) => {
                self.wanted.listener = None;
                send(&Request::Pause, &[], Waiting::Done(sender))
            }
            Job::Drain(sender) => {
                (self.wanted.listener, self.is_draining) = (None, true);
                let sent = send(&Request::Drain, &[], Waiting::Done(sender));
                self.unregister(&[]);
                sent
            }
            Job::Resume(listener) => {
                let sent = send(&Request::Resume, &[listener.as_fd()], Waiting::Nobody);
                self.wanted.listener = Some(listener);
                sent
            }
            Job::Set(id, words, sender) => send(&Request::Set(id, words), &[], Waiting::Result(sender)),
            Job::Report(id, sender) => self
                .servers_request(id)
                .map_or(Ok(()), |request| send(&request, &[], Waiting::Nobody))
                .and_then(|()| send(&Request::Report(id), &[], Waiting::Report(sender))),
            Job::Servers(id) => {
                self.servers_request(id).map_or(Ok(()), |request| send(&request, &[], Waiting::Nobody))
            }
        };
        match sent {
            Ok(()) => None,
            // It has read nothing for a long time.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(End::Hangs),
            Err(_) => Some(End::Gone),
        }
    }

    /// Does jobs while there is no process, for a time. False: the broker ends.
    pub(super) fn serve_without_process(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            match self.jobs.recv_timeout(until.saturating_duration_since(Instant::now())) {
                // There is no connection to wait for.
                Ok(Job::Drain(_) | Job::End) => return false,
                Ok(Job::Prepare(_, sender)) => drop(sender.send(Ok(()))),
                Ok(Job::Update(functions, settings)) => self.update(functions, settings),
                Ok(Job::Pause(sender)) => {
                    self.wanted.listener = None;
                    let _ = sender.send(());
                }
                Ok(Job::Resume(listener)) => self.wanted.listener = Some(listener),
                // The next process gets settings and states.
                Ok(Job::Set(_, _, sender)) => drop(sender.send(Ok(()))),
                Ok(Job::Report(..) | Job::Servers(_)) => {}
                Err(_) => return true,
            }
        }
    }

    /// Notes what the next process gets.
    fn update(&mut self, functions: Vec<Arc<Instance>>, settings: Settings) {
        self.unregister(&functions);
        (self.wanted.functions, self.wanted.settings) = (functions, settings);
        self.servers.set(&self.wanted.functions);
        self.lines.set(&self.wanted.functions);
        self.prepared.clear();
        self.register();
    }

    /// Tells functions that nobody needs their copies any more, except for those that are still in use.
    fn unregister(&self, used: &[Arc<Instance>]) {
        let is_used = |former: &&Arc<Instance>| used.iter().any(|function| Arc::ptr_eq(function, former));
        let former = self.wanted.functions.iter().filter(|former| !is_used(former));
        former.filter_map(|former| former.copies()).for_each(|copies| copies.remove(&self.copy));
    }

    /// Returns the request that tells a copy the states of its servers. None: it has none.
    fn servers_request(&self, id: u64) -> Option<Request> {
        let is_it = |one: &&Arc<Instance>| id_of(one) == Some(id);
        let states = states_of(self.wanted.functions.iter().find(is_it)?);
        (!states.is_empty()).then_some(Request::Servers(id, states))
    }
}

/// Returns what a process needs to know of the functions of which it has no copy.
fn missing(functions: &[Arc<Instance>], copies: &[u64]) -> Vec<Function> {
    let mut all = messages(functions);
    all.retain(|function| !copies.contains(&function.id));
    all
}
