//! A worker that panics outside a graph walk ends the daemon, with one sentence and an exit status.
//!
//! This program is the test, and with arguments it is mmb with a function that panics when a session ends:
//! the daemon, and the supervisor that the daemon starts of the same program.

#![allow(clippy::unwrap_used)]

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use mmb::nf::{ArgError, Context, Function, Packet, SessionInfo, Setup, Verdict};
use mmb_control::api::Runtime;
use mmb_control::{Client, ClientError};
use mmb_packet::build::{Frame, Ip4, Udp};

struct Failing;

impl Function for Failing {
    const TYPE: &'static str = "failing";
    const USAGE: &'static str = "";
    const HELP: &'static str = "panics when a session ends";
    type Pad = ();
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Failing)
    }

    fn packet(&self, _: &mut Packet<'_>, _: &mut (), _: &mut Context<'_, ()>) -> Verdict {
        Verdict::Pass
    }

    fn release(&self, _: &mut (), _: &SessionInfo, _: &mut Context<'_, ()>) {
        panic!("the function fails");
    }
}

/// Time for everything that the test waits for.
const DEADLINE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some() {
        let mut functions = mmb::registry();
        functions.add::<Failing>();
        return mmb::run(functions);
    }
    a_worker_that_panics_ends_the_daemon();
    println!("test a_worker_that_panics_ends_the_daemon ... ok");
    ExitCode::SUCCESS
}

fn a_worker_that_panics_ends_the_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let mut daemon = start(directory.path(), &socket);
    let mut client = Client::new(&socket).unwrap();
    let end = Instant::now() + DEADLINE;
    while client.get::<Runtime>("/v1/runtime").map_or(0, |runtime| runtime.sessions.sessions) == 0 {
        assert!(Instant::now() < end && daemon.try_wait().unwrap().is_none(), "no session");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Both return: the worker drops the task when it ends, and the publication notices its end.
    let cleared = client.print("clear connections", false, |_| true);
    let flushed = client.print("flush", false, |_| true);
    assert!(matches!(
        flushed,
        Err(ClientError::Refused(_) | ClientError::NoDaemon(_) | ClientError::Broken { .. })
    ));
    drop(cleared);
    let (status, errors) = wait(daemon, end);
    assert_eq!(status.code(), Some(1), "{errors}");
    assert!(errors.contains("the function fails"), "{errors}");
    assert!(errors.contains("error: worker 0 has ended unexpectedly"), "{errors}");
}

/// Starts the daemon with a chain of the function and one packet.
fn start(directory: &Path, socket: &Path) -> Child {
    let mut capture = Vec::new();
    [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 1]
        .iter()
        .for_each(|word: &u32| capture.extend(word.to_le_bytes()));
    let frame = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Udp::new(5000, 53)).build();
    let len = frame.len() as u32;
    [0, 0, len, len].iter().for_each(|word| capture.extend(word.to_le_bytes()));
    capture.extend(frame);
    let (input, output) = (directory.join("in"), directory.join("out"));
    std::fs::write(&input, capture).unwrap();
    let config = directory.join("conf");
    let lines = format!(
        "interface add a pcap {} {}\ninterface add b null\nwire a b\nnf add f failing\nchain add c f\n\
         add-stateful ip-proto udp chain c\n",
        input.display(),
        output.display()
    );
    std::fs::write(&config, lines).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["run", "--memory", "64"])
        .args([Path::new("--socket"), socket, Path::new("--state-dir"), &directory.join("state")])
        .args([Path::new("-c"), &config])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end. Returns the exit status and standard error.
fn wait(mut daemon: Child, end: Instant) -> (ExitStatus, String) {
    let status = loop {
        if let Some(status) = daemon.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            daemon.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut errors = String::new();
    daemon.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    (status, errors)
}
