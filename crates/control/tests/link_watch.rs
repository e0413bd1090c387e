//! The thread that watches the kernel's interfaces, in a process without free descriptors.
//!
//! A process of its own: the limit holds for all of its threads.

use std::io::{BufRead, BufReader, PipeReader, pipe};
use std::path::Path;
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};

use mmb_control::{Config, Control};
use mmb_dataplane::{Engine, EngineConfig};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::dup2_stderr;

/// Open sockets of the process.
fn sockets() -> usize {
    let paths = Path::new("/proc/self/fd").read_dir().expect("it works");
    let targets = paths.filter_map(|path| path.expect("it works").path().read_link().ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

fn start(control: &Arc<Control>) -> JoinHandle<()> {
    let control = control.clone();
    spawn(move || control.run_link_watch())
}

fn control() -> Arc<Control> {
    let size = EngineConfig { memory_mb: 64, sessions: 1_000, ..EngineConfig::default() };
    let (control, down) = Control::start(Engine::start(&size).expect("it works"), Config::default());
    assert!(down.is_empty());
    Arc::new(control)
}

/// Reads lines of the log up to one with this text.
fn await_line(log: &mut BufReader<PipeReader>, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert!(log.read_line(&mut line).expect("it works") > 0, "a line with `{text}`");
    }
}

#[test]
fn the_watch_begins_when_there_is_a_descriptor() {
    let control = control();
    let (read, write) = pipe().expect("it works");
    dup2_stderr(&write).expect("it works");
    let mut log = BufReader::new(read);
    let before = sockets();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("it works");
    let permit = |number| setrlimit(Resource::RLIMIT_NOFILE, number, hard).expect("it works");

    permit(0);
    let thread = start(&control);
    await_line(&mut log, "cannot watch the kernel's interfaces");
    permit(soft);
    await_line(&mut log, "watching the kernel's interfaces again");
    assert_eq!(sockets(), before + 1);
    control.stop_link_watch();
    thread.join().expect("it works");
    assert_eq!(sockets(), before);
}
