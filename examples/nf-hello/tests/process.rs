//! The function in a process of its own, in the daemon that this crate makes.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long the test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// The daemon, which ends with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_function_runs_in_a_process() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("process");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let config = folder.join("process.conf");
    let lines = "domain add apart private\nnf add two hello 2 process apart\nchain add polite two\n\
                 add-stateful all chain polite\n";
    std::fs::write(&config, lines).expect("a file for the lines");
    let (socket, state) = (folder.join("socket"), folder.join("state"));
    let program = || Command::new(env!("CARGO_BIN_EXE_nf-hello"));
    let mut command = program();
    command.arg("run").arg("-c").arg(config).arg("--socket").arg(&socket).arg("--state-dir").arg(state);
    let _daemon = Daemon(command.spawn().expect("the program runs"));
    let begin = Instant::now();
    loop {
        let shown = program().args(["show", "domains", "--socket"]).arg(&socket).output();
        let shown = String::from_utf8_lossy(&shown.expect("the program runs").stdout).into_owned();
        let line = shown.lines().find(|line| line.starts_with("two "));
        if line.is_some_and(|line| line.split_whitespace().nth(2) == Some("up")) {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{shown}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
