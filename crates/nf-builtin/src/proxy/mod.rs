//! `proxy`: the servers to which the requests of a broker go.
//!
//! Theory of operation. The function chooses nothing when a request passes it: the broker asks for a server
//! when the request has passed the whole chain, and for another one if that server does not answer. Choice
//! and health of the servers are those of `lb` ([`Backends`]); a request under way counts as a session.

mod config;
mod sticky;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mmb_http::MessageHead;
use mmb_nf::{
    ArgError, Background, ChosenServer, L7Function, L7Handler, L7Request, L7Response, L7Verdict, ProxyHeader,
    ServerState, ServersWatcher, Setup, Upstream,
};

use self::config::Config;
use self::sticky::Cookies;
use crate::lb::backends::Backends;
use crate::lb::choice::{Families, Method};
use crate::lb::config::BackendAddress;
use crate::lb::health::{Probe, background};

/// See the module's documentation.
pub(crate) struct Proxy {
    servers: Arc<Servers>,
    method: Method,
    probe: Option<Probe>,
    every: Duration,
}

/// The servers of an instance.
struct Servers {
    backends: Arc<Backends>,
    retries: usize,
    /// The cookies that name the servers.
    sticky: Option<Cookies>,
    proxy_header: Option<ProxyHeader>,
    turn: AtomicUsize,
    /// Requests that a server has not answered, by server.
    failures: Vec<AtomicU64>,
}

impl Servers {
    /// Chooses a server for a client that has none yet.
    fn choose_any(&self, client: IpAddr, tried: &[u16]) -> Option<u16> {
        let mut source = [0; 16];
        match client {
            IpAddr::V4(address) => source[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => source = address.octets(),
        }
        let turn = self.turn.fetch_add(1, Relaxed);
        self.backends.choose_untried(&source, client.is_ipv4(), turn, tried)
    }
}

impl Upstream for Servers {
    fn preferred(&self, request: &MessageHead) -> Option<u16> {
        self.sticky.as_ref()?.find(request)
    }

    fn choose(&self, client: IpAddr, preferred: Option<u16>, tried: &[u16]) -> Option<ChosenServer> {
        let known = preferred.filter(|number| !tried.contains(number) && self.backends.keeps(*number));
        let number = known.or_else(|| self.choose_any(client, tried))?;
        let BackendAddress { address, port } = self.backends.get(number)?.place;
        Some(ChosenServer { number, address: SocketAddr::new(address, port?) })
    }

    fn proxy_header(&self) -> Option<ProxyHeader> {
        self.proxy_header
    }

    fn retries(&self) -> usize {
        self.retries
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        let address = |BackendAddress { address, port }| Some(SocketAddr::new(address, port?));
        self.backends.all().iter().filter_map(|backend| address(backend.place)).collect()
    }

    fn states(&self) -> Vec<ServerState> {
        self.backends.export_states()
    }

    fn set_states(&self, states: &[ServerState]) {
        self.backends.import_states(states);
    }

    fn watch(&self, watcher: Weak<dyn ServersWatcher>) {
        self.backends.watch(watcher);
    }

    fn begin(&self, server: u16) {
        if let Some(backend) = self.backends.get(server) {
            backend.counts.sessions.fetch_add(1, Relaxed);
            backend.counts.opened.fetch_add(1, Relaxed);
        }
    }

    fn end(&self, server: u16, failed: bool) {
        if let Some(backend) = self.backends.get(server) {
            backend.counts.sessions.fetch_sub(1, Relaxed);
        }
        if let Some(failures) = self.failures.get(usize::from(server)).filter(|_| failed) {
            failures.fetch_add(1, Relaxed);
        }
    }
}

impl L7Handler for Proxy {
    type Local = ();

    fn local(&self) {}

    fn request(&self, _: &mut L7Request<'_>, (): &mut ()) -> L7Verdict {
        L7Verdict::Pass
    }

    /// A client learns its server from the first response of it.
    fn response(&self, response: &mut L7Response<'_>, (): &mut ()) -> L7Verdict {
        if let Some(cookies) = &self.servers.sticky
            && let Some(server) = response.server.filter(|_| response.server != response.preferred)
            && let Some(value) = cookies.header(server)
        {
            response.message.add(b"Set-Cookie", value);
        }
        L7Verdict::Pass
    }

    fn upstream(&self) -> Option<Arc<dyn Upstream>> {
        Some(self.servers.clone())
    }
}

impl L7Function for Proxy {
    const TYPE: &'static str = "proxy";
    const USAGE: &'static str = config::USAGE;
    const HELP: &'static str = "sends the requests of a broker to servers";

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let Config { servers, probe, retries, sticky, proxy_header } = Config::parse(setup.args)?;
        let backends = Arc::new(Backends::new(&servers, Families::Any));
        let failures = servers.backends.iter().map(|_| AtomicU64::new(0)).collect();
        let (method, every) = (servers.method, servers.every);
        let places = servers.backends.iter().map(|(place, _)| *place);
        let sticky = sticky.map(|name| Cookies::new(&name, places));
        let turn = AtomicUsize::new(0);
        let servers = Arc::new(Servers { backends, retries, sticky, proxy_header, turn, failures });
        Ok(Proxy { servers, method, probe, every })
    }

    fn set(&self, words: &[&str]) -> Result<(), ArgError> {
        let backends = &self.servers.backends;
        let &[what @ ("drain" | "undrain"), word] = words else {
            return Err("settings of `proxy` are `drain ADDRESS[:PORT]` and `undrain ADDRESS[:PORT]`".into());
        };
        let place =
            BackendAddress::parse(word).filter(|&place| backends.set_draining(place, what == "drain"));
        place.map(|_| ()).ok_or_else(|| {
            let all: Vec<_> = backends.all().iter().map(|one| one.place.to_string()).collect();
            ArgError::invalid("server", word, format!("must be one of {}", all.join(", ")))
        })
    }

    fn report(&self) -> Vec<(String, String)> {
        let Servers { backends, retries, failures, .. } = &*self.servers;
        let mut lines = vec![("by".to_owned(), self.method.name().to_owned())];
        let seconds = self.every.as_secs_f64();
        match &self.probe {
            Some(Probe::Http(path, _)) => {
                lines.push(("check".to_owned(), format!("http {path} every {seconds} s")))
            }
            Some(Probe::Tcp(_)) => lines.push(("check".to_owned(), format!("tcp every {seconds} s"))),
            None => {}
        }
        lines.push(("retries".to_owned(), retries.to_string()));
        for ((number, backend), failed) in (0..).zip(backends.all()).zip(failures) {
            let counts = &backend.counts;
            let [now, ever, passed, not_passed] =
                [&counts.sessions, &counts.opened, &counts.passed, &counts.failed]
                    .map(|count| count.load(Relaxed));
            let state = backends.state_name(number);
            let mut line =
                format!("{state}, {now} requests now, {ever} ever, {} not answered", failed.load(Relaxed));
            if self.probe.is_some() {
                line.push_str(&format!(", checks {passed} passed, {not_passed} failed"));
            }
            lines.push((backend.place.to_string(), line));
        }
        lines
    }

    fn background(&self) -> Option<Background> {
        let probe = self.probe.clone()?;
        Some(background(vec![Arc::clone(&self.servers.backends)], (Self::TYPE, probe), self.every))
    }
}

#[cfg(test)]
mod tests;
