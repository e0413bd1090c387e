//! Properties of the control API for any requests. The fuzz target `api` runs them on the fuzzer's bytes, a
//! test of the crate on the corpus.
//!
//! * Bytes of a client get answers of HTTP, or none.
//! * A client without a successful request other than `GET` changes nothing.
//! * The configuration stays one that a file can describe.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mmb_control::{ConnectionServer, Control, Limits, NetworkAccess, NetworkFiles, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

/// Size of the pipes between client and server in bytes.
const PIPE: usize = 1 << 16;
/// Time for the requests of an input.
const PATIENCE: Duration = Duration::from_secs(60);

/// Users whose tokens are `reader` and `operator`; the hashes are those of sha256sum.
const USERS: &str = "\
read    r token sha256:3d0941964aa3ebdcb00ccef58b1bb399f9f898465e9886d5aec7f31090a0fb30
operate o token sha256:06e55b633481f7bb072957eabcf110c972e86691c3cfedabe088024bffe42f23
";

/// A daemon without sockets.
pub struct Daemon {
    pub control: Arc<Control>,
    access: Arc<NetworkAccess>,
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
        let directory = tempfile::tempdir().expect("a directory");
        let users = directory.path().join("users");
        std::fs::write(&users, USERS).expect("a file");
        let files = NetworkFiles { users, certificate: None, client_authorities: None };
        let access = Arc::new(NetworkAccess::load(files).expect("valid users"));
        Daemon { control, access, server, runtime, turn: Mutex::default() }
    }

    /// Panics if a property does not hold. The first byte of an input selects the role of the client, or a
    /// client on the network; the rest are the bytes that it sends.
    pub fn check(&self, bytes: &[u8]) {
        let Some((&role, requests)) = bytes.split_first() else { return };
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let role = [Some(Role::Owner), Some(Role::Operator), Some(Role::Reader), None][usize::from(role) % 4];
        let before = self.control.config().config;
        let answers = self.exchange(requests, role);
        let after = self.control.config().config;
        assert!(
            answers.is_empty() || answers.starts_with(b"HTTP/1."),
            "{:?}",
            String::from_utf8_lossy(&answers)
        );
        let succeeded = answers.windows(11).any(|w| w.starts_with(b"HTTP/1.") && w.ends_with(b" 20"));
        let can_change = match role {
            Some(role) => role != Role::Reader,
            None => requests.windows(8).any(|word| word == b"operator"),
        };
        if !succeeded || !can_change {
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
    fn exchange(&self, requests: &[u8], role: Option<Role>) -> Vec<u8> {
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
            let serve = async {
                match role {
                    Some(role) => self.server.serve(server, role).await,
                    None => self.server.serve_stranger(server, &self.access).await,
                }
            };
            tokio::join!(send, receive, serve);
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
