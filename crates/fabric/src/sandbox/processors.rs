//! The processors on which processes may run.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The calling thread.
const THIS: Pid = Pid::from_raw(0);

/// Processors that the engine may use, and those that the machine has.
#[derive(Debug)]
pub struct Processors {
    allowed: Vec<u16>,
    /// As the kernel writes it: `0-3,8`. None: it does not say.
    online: Option<String>,
}

impl Processors {
    /// Reads both. To be called before the thread is pinned.
    pub fn allowed() -> Processors {
        let set = sched_getaffinity(THIS).unwrap_or_default();
        let is_allowed = |cpu: &u16| set.is_set(usize::from(*cpu)).unwrap_or(false);
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
        Processors { allowed: (0..CpuSet::count() as u16).filter(is_allowed).collect(), online }
    }

    /// Checks that a process may run on a processor.
    ///
    /// # Errors
    /// The machine does not have it, or the engine may not use it, in one sentence.
    pub fn check(&self, cpu: u16) -> Result<(), String> {
        if self.allowed.contains(&cpu) {
            return Ok(());
        }
        let online = self.online.as_deref().map_or("", str::trim);
        if !online.is_empty() && !is_in(online, cpu) {
            return Err(format!("the machine has no processor {cpu}; it has {online}"));
        }
        let allowed = ranges(&self.allowed);
        Err(format!(
            "the daemon may not use processor {cpu}; it may use {allowed} (taskset(1), AllowedCPUs=)"
        ))
    }
}

/// Pins this thread to a processor.
///
/// # Errors
/// The kernel refuses, in one sentence.
pub fn pin(cpu: u16) -> Result<(), String> {
    let mut set = CpuSet::new();
    let pinned = set.set(cpu.into()).and_then(|()| sched_setaffinity(THIS, &set));
    pinned.map_err(|error| format!("cannot run on processor {cpu}: {error}"))
}

/// Whether a list like `0-3,8` has a number.
fn is_in(list: &str, number: u16) -> bool {
    let is_between =
        |first: &str, last: &str| Some((first.parse().ok()?..=last.parse().ok()?).contains(&number));
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        is_between(first, last).unwrap_or(false)
    })
}

/// Returns sorted numbers as the kernel writes them: `0-3,8`.
fn ranges(numbers: &[u16]) -> String {
    let text = |chunk: &[u16]| match chunk {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    let chunks = numbers.chunk_by(|one, next| one + 1 == *next);
    chunks.map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_those_of_the_kernel() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[]), "");
        for number in 0..10 {
            assert_eq!(is_in("0-2,5,7-8", number), [0, 1, 2, 5, 7, 8].contains(&number), "{number}");
        }
        assert!(!is_in("", 0) && !is_in("x", 0));
    }

    #[test]
    fn a_processor_that_cannot_be_used_has_a_reason() {
        let processors = Processors { allowed: vec![1, 2, 3], online: Some("0-3\n".into()) };
        assert_eq!(processors.check(2), Ok(()));
        let missing = processors.check(4).unwrap_err();
        assert_eq!(missing, "the machine has no processor 4; it has 0-3");
        let other = processors.check(0).unwrap_err();
        assert_eq!(other, "the daemon may not use processor 0; it may use 1-3 (taskset(1), AllowedCPUs=)");
        assert_eq!(Processors { online: None, ..processors }.check(0).unwrap_err(), other);
    }

    #[test]
    fn a_pinned_thread_stays_on_its_processor() {
        let pinned = std::thread::spawn(|| {
            let first = Processors::allowed().allowed[0];
            pin(first).unwrap();
            (first, Processors::allowed().allowed)
        });
        let (first, allowed) = pinned.join().unwrap();
        assert_eq!(allowed, [first]);
        // No machine of the tests has it.
        assert!(pin(1023).is_err());
    }
}
