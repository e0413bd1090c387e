#![no_main]

use std::sync::{Arc, LazyLock};

use mmb_control::{Config, Control, Platform};
use mmb_dataplane::{Engine, EngineConfig};
use mmb_system::FileAccess;

#[path = "../src/control/api.rs"]
mod api;

/// A daemon in a network namespace of its own, with an empty directory for files.
static DAEMON: LazyLock<api::Daemon> = LazyLock::new(|| {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("root, for a network namespace");
    let directory = tempfile::tempdir().expect("a directory").keep();
    let files = Arc::new(FileAccess::within(&directory).expect("a directory"));
    files.seal();
    let size = EngineConfig { memory_mb: 16, sessions: 1000, ..EngineConfig::default() };
    let engine = Engine::start(&size).expect("an engine");
    let functions = Arc::new(mmb_nf_builtin::registry());
    let platform = Platform { functions, files, ..Platform::default() };
    let (control, _) = Control::start(engine, Config::with_platform(platform));
    api::Daemon::new(Arc::new(control))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| DAEMON.check(bytes));
