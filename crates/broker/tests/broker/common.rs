//! Clients, servers and brokers for tests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mmb_broker::{Broker, Listener, Settings};
use mmb_lang::Command;
use mmb_nf::process::ProcessSetup;
use mmb_nf::{Instance, Order, Program, ProgramSpec};

use super::gate::Gate;

/// Longest time that a test waits for bytes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the functions of a chain. One of type `gate` is a [`Gate`].
pub fn functions(lines: &[&str], chain: &str) -> Vec<Arc<Instance>> {
    let mut registry = mmb_nf_builtin::registry();
    registry.add_l7::<Gate>();
    let functions: Vec<_> = lines
        .iter()
        .map(|line| match mmb_lang::parse_line(line) {
            Ok(Some(Command::NfAdd(function))) => function,
            other => panic!("{line}: {other:?}"),
        })
        .collect();
    let Ok(Some(Command::ChainAdd(chain))) = mmb_lang::parse_line(&format!("chain add c {chain}")) else {
        panic!("{chain}");
    };
    let program = Program::compile(&ProgramSpec {
        functions: &functions,
        chains: &[chain],
        registry: &registry,
        resolve_port: &|_| None,
        has_pool: &|_| false,
        workers: 1,
        seed: 0,
        files: &Arc::default(),
        previous: None,
        scratchpad_limit: 1024,
        processes: ProcessSetup::default(),
        order: Order::Maximal,
    })
    .expect("the test can go on");
    let id = program.chain("c").expect("the test can go on");
    program.l7_functions(id)
}

/// Starts a broker on a free port.
pub fn broker(lines: &[&str], chain: &str, settings: Settings) -> Broker {
    let listener =
        Listener::bind("127.0.0.1:0".parse().expect("the test can go on")).expect("the test can go on");
    Broker::start("test", listener, functions(lines, chain), settings).expect("the test can go on")
}

/// Returns an address on which nobody listens.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").expect("the test can go on").local_addr().expect("the test can go on")
}

/// A server, and the requests that it has got.
pub struct Server {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub fn requests(&self) -> Vec<String> {
        self.seen.lock().expect("the test can go on").clone()
    }
}

/// Starts a server that calls a closure for each request. False: the connection ends.
pub fn serve(answer: impl Fn(&str, &mut TcpStream) -> bool + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the test can go on");
    let (address, seen) =
        (listener.local_addr().expect("the test can go on"), Arc::new(Mutex::new(Vec::new())));
    let (answer, shared) = (Arc::new(answer), seen.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer, seen) =
                (stream.expect("the test can go on"), answer.clone(), shared.clone());
            std::thread::spawn(move || {
                loop {
                    let head = read_head(&mut stream);
                    if !head.ends_with("\r\n\r\n") {
                        return;
                    }
                    let waits = head.contains("Expect: ");
                    let request = if waits { head } else { head.clone() + &read_body(&head, &mut stream) };
                    seen.lock().expect("the test can go on").push(request.clone());
                    if !answer(&request, &mut stream) {
                        return;
                    }
                }
            });
        }
    });
    Server { address, seen }
}

/// Reads up to an empty line, or to the end.
pub fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Reads a line without its end.
fn read_line(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

fn read_body(head: &str, stream: &mut TcpStream) -> String {
    let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
    let mut body = Vec::new();
    if value("Transfer-Encoding: ").is_some() {
        loop {
            let len = usize::from_str_radix(&read_line(stream), 16).unwrap_or(0);
            let mut chunk = vec![0; len];
            if stream.read_exact(&mut chunk).is_err() {
                break;
            }
            body.extend(chunk);
            if len == 0 {
                while !read_line(stream).is_empty() {}
                break;
            }
            read_line(stream);
        }
    } else if let Some(len) = value("Content-Length: ").and_then(|len| len.parse().ok()) {
        body.resize(len, 0);
        // The rest of a body that breaks off stays zeros.
        let _ = stream.read_exact(&mut body);
    }
    String::from_utf8_lossy(&body).into_owned()
}

/// A response.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl PartialEq for Answer {
    fn eq(&self, other: &Answer) -> bool {
        (self.status, &self.body) == (other.status, &other.body)
    }
}

impl Answer {
    pub fn of(status: u16, body: &str) -> Answer {
        Answer { status, head: String::new(), body: body.to_owned() }
    }
}

/// Reads a response. None: the connection has ended.
fn read_answer(stream: &mut TcpStream, has_body: bool) -> Option<Answer> {
    let head = read_head(stream);
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = if has_body { read_body(&head, stream) } else { String::new() };
    Some(Answer { status, head, body })
}

/// A client.
pub struct Client(TcpStream);

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the test can go on");
        stream.set_read_timeout(Some(PATIENCE)).expect("the test can go on");
        Client(stream)
    }

    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.0
    }

    pub fn send(&mut self, text: &str) {
        // A broker that refuses a request may have closed the connection.
        let _ = self.0.write_all(text.as_bytes());
    }

    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        read_answer(&mut self.0, true).expect("an answer")
    }

    #[track_caller]
    pub fn answer_to_head(&mut self) -> Answer {
        read_answer(&mut self.0, false).expect("an answer")
    }

    /// Reads up to the end of the connection.
    pub fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        // A reset is an end, too.
        let _ = self.0.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for the end of the connection. False: there are bytes in front of it.
    pub fn is_closed(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(len) => len == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
