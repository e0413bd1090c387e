//! Functions of brokers with `process` in their lines.
//!
//! # Theory of operation
//! The event loop of such a broker runs in a process with copies of the functions of its chain, so that no
//! request needs a hop. The instance of the program is their shadow: it checks arguments and settings, and
//! checks the health of servers, for which a process has no sockets. [`FunctionCopies`] knows the processes
//! that have a copy, sends settings and states of servers to all of them, and adds up what they report.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mmb_system::FileAccess;

use super::{HostedSpec, ProcessStatus};
use crate::{LineSource, ServersWatcher};

/// A process with copies of functions.
pub trait CopyProcess: Send + Sync {
    /// Returns the name of the broker, for reports.
    fn broker(&self) -> &str;
    /// See [`crate::Function::set`]. `function`: as in [`FunctionCopies::id`].
    ///
    /// # Errors
    /// The error of the function, or the process does not answer.
    fn set(&self, function: u64, args: &[&str]) -> Result<(), String>;
    /// See [`crate::Function::report`]. None: the process does not answer.
    fn report(&self, function: u64) -> Option<Vec<(String, String)>>;
    /// Returns what is known of the process, without asking it.
    fn status(&self) -> ProcessStatus;
    /// The states of a function's servers have changed.
    fn servers_changed(&self, function: u64);
}

/// The copies of a function.
pub struct FunctionCopies {
    id: u64,
    spec: HostedSpec,
    /// The files that the shadow has read.
    files: Arc<FileAccess>,
    processes: Mutex<Vec<Weak<dyn CopyProcess>>>,
    /// Settings for later copies, in the order in which they were made.
    settings: Mutex<Vec<Vec<String>>>,
}

impl FunctionCopies {
    /// Makes the list of the copies of an instance. `id`: distinguishes it from all others of the daemon.
    /// `files`: keep those that the instance reads.
    pub(crate) fn new(id: u64, spec: HostedSpec, files: Arc<FileAccess>) -> FunctionCopies {
        FunctionCopies { id, spec, files, processes: Mutex::default(), settings: Mutex::default() }
    }

    /// Distinguishes the function from all others of the daemon.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns what a copy is made of.
    pub fn spec(&self) -> &HostedSpec {
        &self.spec
    }

    /// Returns a file that the shadow has read, as it was then. Its position is that of all others.
    pub fn file(&self, path: &Path) -> Option<File> {
        self.files.kept_input(path)
    }

    /// Returns the settings that a new copy needs, in their order.
    pub fn settings(&self) -> Vec<Vec<String>> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a process has a copy.
    pub(crate) fn is_used(&self) -> bool {
        !self.processes().is_empty()
    }

    /// A process has a copy, until it is dropped.
    pub fn add(&self, process: &Weak<dyn CopyProcess>) {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.retain(|known| known.strong_count() > 0);
        if !processes.iter().any(|known| known.ptr_eq(process)) {
            processes.push(process.clone());
        }
    }

    /// A process has no copy any more.
    pub fn remove(&self, process: &Weak<dyn CopyProcess>) {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.retain(|known| !known.ptr_eq(process));
    }

    fn processes(&self) -> Vec<Arc<dyn CopyProcess>> {
        let processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.iter().filter_map(Weak::upgrade).collect()
    }

    /// Passes on a setting that the shadow has accepted.
    ///
    /// # Errors
    /// The error of a copy, or a process does not answer.
    pub(crate) fn set(&self, args: &[&str]) -> Result<(), String> {
        let words: Vec<String> = args.iter().map(|&word| word.to_owned()).collect();
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        // The last of equal settings counts, so that the list does not grow with their number.
        settings.retain(|known| *known != words);
        settings.push(words);
        drop(settings);
        self.processes().iter().try_for_each(|process| process.set(self.id, args))
    }

    /// Returns names and values for `show functions`. `shadow`: those of a function without a process.
    /// `log`: where the lines of all copies go.
    pub(crate) fn report(
        &self,
        shadow: impl FnOnce() -> Vec<(String, String)>,
        log: Option<&dyn LineSource>,
    ) -> Vec<(String, String)> {
        let processes = self.processes();
        if processes.is_empty() {
            let mut lines = vec![("process".to_owned(), "none: no broker uses the function".to_owned())];
            lines.extend(shadow());
            return lines;
        }
        let mut all = Vec::new();
        for process in &processes {
            let mut lines = self.report_of(&**process);
            if processes.len() > 1 {
                lines.iter_mut().for_each(|(name, _)| *name = format!("{}: {name}", process.broker()));
            }
            all.extend(lines);
        }
        all.extend(log.into_iter().flat_map(LineSource::report));
        all
    }

    fn report_of(&self, process: &dyn CopyProcess) -> Vec<(String, String)> {
        let status = process.status();
        let number = status.process.map_or_else(
            || "none".to_owned(),
            |number| format!("{number}, {:.2} s of CPU", status.cpu.as_secs_f64()),
        );
        let mut lines = vec![
            ("process".to_owned(), number),
            ("restarts".to_owned(), status.restarts.to_string()),
            ("last failure".to_owned(), status.last_failure.unwrap_or_else(|| "none".to_owned())),
        ];
        match process.report(self.id) {
            Some(report) => lines.extend(report),
            None => lines[0].1.push_str(", does not answer"),
        }
        lines
    }

    /// Returns what is known of all processes: the number of the first one, and sums.
    pub(crate) fn status(&self) -> ProcessStatus {
        self.processes().iter().map(|process| process.status()).fold(ProcessStatus::default(), |sum, one| {
            ProcessStatus {
                process: sum.process.or(one.process),
                restarts: sum.restarts + one.restarts,
                last_failure: sum.last_failure.or(one.last_failure),
                cpu: sum.cpu + one.cpu,
                ..sum
            }
        })
    }
}

impl ServersWatcher for FunctionCopies {
    fn servers_changed(&self) {
        self.processes().iter().for_each(|process| process.servers_changed(self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Recorder(Mutex<Vec<String>>, &'static str);

    impl CopyProcess for Recorder {
        fn broker(&self) -> &str {
            self.1
        }

        fn set(&self, function: u64, args: &[&str]) -> Result<(), String> {
            self.0.lock().unwrap().push(format!("{function}: {}", args.join(" ")));
            Ok(())
        }

        fn report(&self, _: u64) -> Option<Vec<(String, String)>> {
            Some(vec![("requests".into(), "7".into())])
        }

        fn status(&self) -> ProcessStatus {
            ProcessStatus { process: Some(42), restarts: 2, ..ProcessStatus::default() }
        }

        fn servers_changed(&self, function: u64) {
            self.0.lock().unwrap().push(format!("{function} changed"));
        }
    }

    #[test]
    fn all_copies_are_told_and_asked() {
        let copies = FunctionCopies::new(5, HostedSpec::default(), Arc::default());
        assert_eq!(copies.report(|| vec![("own".into(), "1".into())], None)[1], ("own".into(), "1".into()));
        let made: Vec<Arc<Recorder>> =
            ["a", "b"].map(|name| Arc::new(Recorder(Mutex::default(), name))).into();
        let weak = |at: usize| {
            let process: Arc<dyn CopyProcess> = made[at].clone();
            Arc::downgrade(&process)
        };
        let (first, second) = (weak(0), weak(1));
        copies.add(&first);
        copies.add(&first);
        let alone = copies.report(Vec::new, None);
        assert!(alone.contains(&("requests".into(), "7".into())) && alone.len() == 4, "{alone:?}");
        copies.add(&second);
        assert!(copies.report(Vec::new, None).contains(&("b: requests".into(), "7".into())));
        assert_eq!((copies.status().restarts, copies.status().process), (4, Some(42)));
        for words in [&["drain", "x"][..], &["undrain", "x"], &["drain", "x"]] {
            copies.set(words).unwrap();
        }
        assert_eq!(copies.settings(), [["undrain", "x"], ["drain", "x"]]);
        copies.remove(&second);
        copies.servers_changed();
        assert_eq!(made[0].0.lock().unwrap().len(), 4);
        assert_eq!(made[1].0.lock().unwrap().len(), 3);
    }
}
