//! One daemon for all tests of the process (DPDK starts once in a process), used by one test at a time.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use mmb_control::api::{CommandReply, Format, TwinEntry};
use mmb_control::{BODY_LIMIT, Client, Config, Control, ControlSocket, Limits, SocketGroups, serve};
use mmb_dataplane::{Engine, EngineConfig};
use serde_json::Value;

use crate::functions::platform;

/// Maximum number of sessions.
pub const SESSIONS: usize = 50_000;

/// Limits of the server: short times, and few connections.
pub const LIMITS: Limits = Limits {
    head: Duration::from_secs(2),
    body: Duration::from_secs(1),
    connections: [0, 0, 24],
    body_bytes: [0, 0, BODY_LIMIT],
};

/// The daemon while one test uses it.
pub struct Daemon {
    pub control: Arc<Control>,
    path: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

/// The daemon with an empty configuration.
pub fn daemon() -> Daemon {
    static TURN: Mutex<()> = Mutex::new(());
    static SERVED: OnceLock<(Arc<Control>, PathBuf)> = OnceLock::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (control, path) = SERVED.get_or_init(start).clone();
    let daemon = Daemon { control, path, _turn: turn };
    daemon.reset();
    daemon
}

fn start() -> (Arc<Control>, PathBuf) {
    let size = EngineConfig { memory_mb: 64, sessions: SESSIONS, ..EngineConfig::default() };
    let engine = Engine::start(&size).unwrap();
    let (control, down) = Control::start(engine, Config::with_platform(platform()));
    assert!(down.is_empty());
    let control = Arc::new(control);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("daemon.sock");
    let (served, at) = (control.clone(), path.clone());
    let (ready, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut socket = ControlSocket::bind(&at, &SocketGroups::default()).unwrap();
        let listeners = socket.take_listeners().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        ready.send(()).unwrap();
        runtime.block_on(serve(served, listeners, LIMITS, std::future::pending())).unwrap();
    });
    wait.recv().unwrap();
    (control, path)
}

impl Daemon {
    /// Makes the configuration empty, with default settings, and ends all sessions.
    pub fn reset(&self) {
        // A file without interfaces keeps them, and deletes rules, settings, pools and forwards.
        self.control.apply_with(b"", true, None).unwrap();
        self.run("clear connections").unwrap();
        let interfaces = self.control.interfaces().interfaces;
        for i in interfaces.iter().filter(|i| i.wire.is_some()) {
            // The command for the second end of a wire fails.
            let _ = self.run(&format!("wire del {}", i.name));
        }
        for i in interfaces.iter().filter(|i| i.routed.is_some()) {
            self.run(&format!("route del {}", i.name)).unwrap();
        }
        for i in &interfaces {
            self.run(&format!("interface del {}", i.name)).unwrap();
        }
    }

    /// Runs a line without the socket. The error is the message of a refusal.
    pub fn run(&self, line: &str) -> Result<String, String> {
        let output = self.control.execute(line).map_err(|refusal| refusal.message)?;
        let mut text = Vec::new();
        output.write_text(&self.control, &mut text).unwrap();
        Ok(String::from_utf8(text).unwrap())
    }

    /// A connection to the socket.
    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.path).unwrap()
    }

    /// A client on the socket.
    pub fn client(&self) -> Client {
        Client::new(&self.path).unwrap()
    }

    /// Runs a line over the socket.
    pub fn send(&self, line: &str) -> CommandReply {
        self.client().command(line, Format::Both).unwrap()
    }

    /// All of the configuration that a user can see, without counters and MAC addresses: a device that was
    /// closed and opened again has another address.
    pub fn state(&self) -> String {
        let mut interfaces = self.control.interfaces();
        for i in &mut interfaces.interfaces {
            (i.rx_packets, i.tx_packets) = (0, 0);
            i.mac.clear();
            i.drops.clear();
            if let Some(twin) = i.routed.as_mut().and_then(|routed| routed.twin.as_mut()) {
                *twin = TwinEntry::default();
            }
        }
        let rules = self.control.rules().rules;
        let rules: Vec<_> = rules.iter().map(|r| (r.index, r.text.as_str())).collect();
        format!("{}\n{rules:?}\n{interfaces:?}", self.control.config().config)
    }

    /// A raw request on the socket, independent of the crate's client.
    pub fn http(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> Response {
        let mut stream = UnixStream::connect(&self.path).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: mmb\r\nConnection: close\r\nContent-Type: {content_type}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let split = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(bytes[..split].to_vec()).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, head, body: bytes[split + 4..].to_vec() }
    }
}

/// A response.
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}
