//! Health checks: a background thread for each back end.

use std::fmt::Display;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use mmb_system::log;

use super::backends::Backends;
use mmb_nf::{Background, ProxyHeader, StopSignal};

/// Checks in a row with another result that change a back end's state.
const IN_A_ROW: u32 = 2;
/// Longest time for a connection to be established.
const PATIENCE: Duration = Duration::from_secs(2);
/// Least time between two lines about a back end.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// The health of a back end according to its checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// None: it has not been checked.
    up: Option<bool>,
    /// Checks in a row with another result.
    otherwise: u32,
}

impl Health {
    /// Records a check. Returns the new state if it changes. The first check counts at once.
    pub fn note(&mut self, passed: bool) -> Option<bool> {
        if self.up == Some(passed) {
            self.otherwise = 0;
            return None;
        }
        self.otherwise += 1;
        if self.up.is_some() && self.otherwise < IN_A_ROW {
            return None;
        }
        *self = Health { up: Some(passed), otherwise: 0 };
        self.up
    }
}

/// The lines about a back end in the log of the daemon.
#[derive(Debug, Default)]
pub(crate) struct HealthLog {
    /// The last line says that it is down. Without a line it is taken to be up.
    is_down: bool,
    /// When that line was written.
    at: Option<Duration>,
}

impl HealthLog {
    /// Returns the line to write if the state is another one than that of the last line, and that line is
    /// old enough. Called at each check, so that the last state of a series is always written.
    pub fn line(
        &mut self,
        is_down: bool,
        now: Duration,
        (function, backend): (&str, &dyn Display),
    ) -> Option<String> {
        let is_early = self.at.is_some_and(|at| now.saturating_sub(at) < BETWEEN_LINES);
        if self.is_down == is_down || is_early {
            return None;
        }
        *self = HealthLog { is_down, at: Some(now) };
        let state = if is_down { "down: its checks fail" } else { "up" };
        Some(format!("{function}: back end {backend} is {state}\n"))
    }
}

/// How a back end is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// By a TCP connection to a port, or to its own port.
    Tcp(Option<u16>),
    /// By the status of the response to a request for a path, behind a header of the PROXY protocol.
    Http(Box<str>, Option<ProxyHeader>),
}

impl Probe {
    fn passes(&self, to: SocketAddr, patience: Duration) -> bool {
        match self {
            Probe::Tcp(_) => is_there(to, patience),
            Probe::Http(path, header) => has_page(to, (path, *header), patience).unwrap_or(false),
        }
    }
}

/// Checks every back end of groups. `function`: the type of function that the log names.
pub(crate) fn background(
    groups: Vec<Arc<Backends>>,
    (function, probe): (&'static str, Probe),
    every: Duration,
) -> Background {
    Box::new(move |stop| {
        thread::scope(|scope| {
            for backends in &groups {
                for (number, backend) in (0..).zip(backends.all()) {
                    let place = backend.place;
                    let port = if let Probe::Tcp(port) = probe { port.or(place.port) } else { place.port };
                    let Some(port) = port else { continue };
                    let (to, probe) = (SocketAddr::new(place.address, port), &probe);
                    scope.spawn(move || watch((backends, number), (to, function, probe), every, stop));
                }
            }
        });
    })
}

fn watch(
    (backends, number): (&Backends, u16),
    (to, function, probe): (SocketAddr, &str, &Probe),
    every: Duration,
    stop: &StopSignal,
) {
    let (mut health, mut lines, start) = (Health::default(), HealthLog::default(), Instant::now());
    loop {
        let passed = probe.passes(to, every.min(PATIENCE));
        if let Some(backend) = backends.get(number) {
            let counts = &backend.counts;
            if passed { &counts.passed } else { &counts.failed }.fetch_add(1, Relaxed);
        }
        if let Some(up) = health.note(passed) {
            backends.set_down(number, !up);
        }
        let place = backends.get(number).map(|backend| backend.place);
        if let Some(line) =
            place.and_then(|place| lines.line(backends.is_down(number), start.elapsed(), (function, &place)))
        {
            log::error(line);
        }
        if stop.wait(every) {
            return;
        }
    }
}

/// Whether a TCP connection can be established.
pub(crate) fn is_there(to: SocketAddr, patience: Duration) -> bool {
    TcpStream::connect_timeout(&to, patience).is_ok()
}

/// Whether a server answers a request for a path with a status from 200 to 399.
fn has_page(
    to: SocketAddr,
    (path, header): (&str, Option<ProxyHeader>),
    patience: Duration,
) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&to, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut request = Vec::new();
    if let Some(header) = header {
        header.write(None, &mut request);
    }
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {to}\r\nUser-Agent: mmb\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    request.extend_from_slice(head.as_bytes());
    stream.write_all(&request)?;
    let mut line = *b"HTTP/1.1 200";
    stream.read_exact(&mut line)?;
    Ok(line.starts_with(b"HTTP/1.") && matches!(line.get(8..10), Some(b" 2" | b" 3")))
}
