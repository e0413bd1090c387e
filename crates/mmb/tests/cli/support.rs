//! Runs the program.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// The result of a run of the program.
#[derive(Debug)]
pub struct Run {
    pub status: i32,
    pub out: String,
    pub err: String,
}

/// Runs the program with these arguments and this standard input.
pub fn mmb_with_input(args: &[&str], input: &[u8]) -> Run {
    let mut command = assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("mmb"));
    let output = command.env_remove("MMB_SOCKET").args(args).write_stdin(input).output().unwrap();
    Run {
        status: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs the program with these arguments.
pub fn mmb(args: &[&str]) -> Run {
    mmb_with_input(args, b"")
}

impl Run {
    /// Asserts that the run failed, and that standard error has these words.
    pub fn refused(&self, words: &[&str]) -> &Run {
        assert_eq!(self.status, 1, "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "no {word} in {self:?}");
        }
        self
    }

    /// Asserts that the run succeeded with an empty standard error; returns its output.
    pub fn good(self) -> String {
        assert_eq!((self.status, self.err.as_str()), (0, ""), "{self:?}");
        self.out
    }
}

/// A directory for the files of a test.
pub struct Files(TempDir);

impl Files {
    pub fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// A daemon that runs until it is dropped.
pub struct Daemon {
    child: Child,
    pub socket: String,
    /// Its output up to `listening on`.
    pub banner: String,
}

impl Daemon {
    /// Starts a daemon and waits until it listens.
    pub fn start(socket: &Path, args: &[&str]) -> Daemon {
        Daemon::start_with(socket, args, &[])
    }

    /// Starts a daemon with these variables in its environment, and waits until it listens.
    pub fn start_with(socket: &Path, args: &[&str], env: &[(&str, &Path)]) -> Daemon {
        let socket = socket.to_str().unwrap().to_owned();
        let mut child = Command::new(assert_cmd::cargo::cargo_bin!("mmb"))
            .args(["run", "--memory", "64", "--socket", &socket])
            .env("STATE_DIRECTORY", env!("CARGO_TARGET_TMPDIR"))
            .args(args)
            .envs(env.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut banner = String::new();
        while !banner.contains("listening on") {
            assert_ne!(out.read_line(&mut banner).unwrap(), 0, "the daemon ended: {banner}");
        }
        child.stdout = Some(out.into_inner());
        Daemon { child, socket, banner }
    }

    /// Runs a command against this daemon.
    pub fn mmb(&self, args: &[&str]) -> Run {
        mmb(&[&["--socket", self.socket.as_str()], args].concat())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: &str) {
        let kill = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(kill.success());
    }

    /// Sends a signal, waits for the end, and returns exit status and standard error.
    pub fn stop(mut self, signal: &str) -> (Option<i32>, String) {
        self.signal(signal);
        let mut err = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut err).unwrap();
        (self.child.wait().unwrap().code(), err)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Errors are ignored: the test may have stopped the daemon already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
