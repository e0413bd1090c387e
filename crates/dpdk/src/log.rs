//! DPDK's log: quiet by default, and captured per thread while something is opened, so that errors can name
//! the reason.
//!
//! Drivers return -1 and write the reason to the log; libbpf and libxdp do the same. The shim sends all
//! messages here, on the thread that logs.

use std::cell::RefCell;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU32, Ordering};

use mmb_dpdk_sys as sys;

/// The level of DPDK's log on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Errors only.
    Error = 4,
    /// Errors and warnings.
    #[default]
    Warning = 5,
    /// Also normal but significant messages.
    Notice = 6,
    /// Also progress.
    Info = 7,
    /// Everything.
    Debug = 8,
}

static LEVEL: AtomicU32 = AtomicU32::new(LogLevel::Warning as u32);

thread_local! {
    /// The lines since [`capture`] began, oldest first, with their levels; None: not capturing.
    static CAUGHT: RefCell<Option<Vec<(u32, String)>>> = const { RefCell::new(None) };
}

/// Redirects the messages of DPDK, libbpf and libxdp to this module. To be called once, before other
/// functions of DPDK.
pub(crate) fn install(level: LogLevel) {
    LEVEL.store(level as u32, Ordering::Relaxed);
    // SAFETY: `sink` has the type that the shim expects and lives as long as the process.
    unsafe {
        sys::mmb_log_install(Some(sink));
        sys::rte_log_set_global_level(sys::RTE_LOG_DEBUG);
    }
}

/// The level for EAL's --log-level: that of standard error, but at least what the reasons of failures need.
pub(crate) fn dpdk_level() -> u32 {
    LEVEL.load(Ordering::Relaxed).max(LogLevel::Notice as u32)
}

/// Runs `f` with this thread's messages captured instead of printed. Returns the first line of the worst
/// level as the reason; later lines are mostly consequences.
pub(crate) fn capture<T>(f: impl FnOnce() -> T) -> (T, Option<String>) {
    let outer = CAUGHT.with(|caught| caught.replace(Some(Vec::new())));
    let result = f();
    let lines = CAUGHT.with(|caught| caught.replace(outer)).unwrap_or_default();
    let worst =
        lines.iter().map(|(level, _)| *level).min().filter(|level| *level <= LogLevel::Warning as u32);
    let reason = lines.into_iter().find(|(level, _)| Some(*level) == worst).map(|(_, line)| line);
    (result, reason)
}

/// Receives a message, which may be a part of a line and invalid UTF-8.
unsafe extern "C" fn sink(level: u32, text: *const c_char, len: usize) {
    // SAFETY: the shim passes `len` readable bytes, which do not change during the call.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len) };
    let text = String::from_utf8_lossy(bytes);
    // A thread that ends has no thread-local data any more; then the message is printed.
    let kept = CAUGHT.try_with(|caught| match &mut *caught.borrow_mut() {
        Some(lines) => {
            lines.extend(text.lines().map(tidy).filter(|line| !line.is_empty()).map(|line| (level, line)));
            true
        }
        None => false,
    });
    let limit = LEVEL.load(Ordering::Relaxed);
    let verbose = limit > LogLevel::Warning as u32;
    if level <= limit && (verbose || kept != Ok(true)) {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            mmb_system::log::error(format!("dpdk: {}\n", line.trim_end()));
        }
    }
}

/// A driver's line without its function name, trailing blanks and full stop.
fn tidy(line: &str) -> String {
    let line = line.trim();
    let rest = match line.split_once("(): ") {
        Some((function, rest)) if !function.contains(' ') => rest,
        _ => line,
    };
    rest.trim().trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tidy_drops_the_function() {
        assert_eq!(tidy("xsk_configure(): Failed to create xsk socket.\n"), "Failed to create xsk socket");
        assert_eq!(tidy("EAL: no free() memory: none "), "EAL: no free() memory: none");
    }

    #[test]
    fn the_first_of_the_worst_lines_is_the_reason() {
        let say = |level, text: &str| {
            // SAFETY: pointer and length of a live string.
            unsafe { sink(level, text.as_ptr().cast(), text.len()) }
        };
        let ((), reason) = capture(|| {
            say(5, "before\n");
            say(4, "first(): one\n");
            say(4, "second(): two\nthird(): three.\n");
            say(5, "a warning\n");
            say(7, "info\n");
        });
        assert_eq!(reason.as_deref(), Some("one"));
        let ((), reason) = capture(|| say(7, "info\n"));
        assert_eq!(reason, None);
    }
}
