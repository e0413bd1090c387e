//! Properties of the control API for any requests. The fuzz target `api` runs them on the fuzzer's bytes, a
//! test of the crate on the corpus.
//!
//! * Bytes of a client get answers of HTTP, or none.
//! * A client without a successful request other than `GET` changes nothing.
//! * The configuration stays one that a file can describe.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mmb_control::{ConnectionServer, Control, Limits, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

/// Size of the pipes between client and server in bytes.
const PIPE: usize = 1 << 16;
/// Time for the requests of an input.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon without sockets.
pub struct Daemon {
    pub control: Arc<Control>,
    server: ConnectionServer,
    runtime: Runtime,
    turn: Mutex<()>,
}

impl Daemon {
    /// A daemon with this control. Its network namespace must be a new one: requests may open interfaces.
    pub fn new(control: Arc<Control>) -> Daemon {
        let limits =
            Limits { head: Duration::from_secs(2), body: Duration::from_secs(2), ..Limits::default() };
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        let server = ConnectionServer::new(&control, limits);
        Daemon { control, server, runtime, turn: Mutex::default() }
    }

    /// Panics if a property does not hold. The first byte of an input selects the role of the client; the
    /// rest are the bytes that it sends.
    pub fn check(&self, bytes: &[u8]) {
        let Some((&role, requests)) = bytes.split_first() else { return };
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let role = [Role::Owner, Role::Operator, Role::Reader][usize::from(role) % 3];
        let before = self.control.config().config;
        let answers = self.exchange(requests, role);
        let after = self.control.config().config;
        assert!(
            answers.is_empty() || answers.starts_with(b"HTTP/1."),
            "{:?}",
            String::from_utf8_lossy(&answers)
        );
        let succeeded = answers.windows(11).any(|w| w.starts_with(b"HTTP/1.") && w.ends_with(b" 20"));
        if !succeeded || role == Role::Reader {
            assert_eq!(before, after, "{:?}", String::from_utf8_lossy(&answers));
        }
        if before != after {
            if let Err(refusal) = self.control.check(after.as_bytes()) {
                panic!("{after}: {refusal}");
            }
            self.reset();
        }
    }

    /// What the server answers to a client that sends these bytes and closes its side.
    fn exchange(&self, requests: &[u8], role: Role) -> Vec<u8> {
        let (client, server) = tokio::io::duplex(PIPE);
        let (mut from_server, mut to_server) = tokio::io::split(client);
        let talk = async {
            let send = async {
                // The server may close its side first.
                let _ = to_server.write_all(requests).await;
                let _ = to_server.shutdown().await;
            };
            let mut answers = Vec::new();
            let receive = async {
                let _ = from_server.read_to_end(&mut answers).await;
            };
            tokio::join!(send, receive, self.server.serve(server, role));
            answers
        };
        let talk = async { tokio::time::timeout(PATIENCE, talk).await };
        self.runtime.block_on(talk).expect("the server answers in time")
    }

    /// Makes the configuration empty.
    fn reset(&self) {
        self.control.apply_with(b"", true, None).expect("an empty file");
        let interfaces = self.control.interfaces().interfaces;
        for interface in &interfaces {
            // The command for the second end of a wire fails.
            let _ = self.control.execute(&format!("wire del {}", interface.name));
            let _ = self.control.execute(&format!("route del {}", interface.name));
        }
        for interface in &interfaces {
            self.control.execute(&format!("interface del {}", interface.name)).expect("an unused interface");
        }
        assert_eq!(self.control.config().config, "");
    }
}
