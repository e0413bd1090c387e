//! Brokers in processes: faults of their functions, and what they may not do. The processes are this program,
//! executed again.

#![allow(clippy::unwrap_used)]

mod probe;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mmb_broker::{Broker, Count, Listener, Settings};
use mmb_fabric::{Host, Supervisor};
use mmb_lang::Command;
use mmb_nf::process::ProcessSetup;
use mmb_nf::{Instance, Order, Program, ProgramSpec, Registry};

/// How long a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some(mmb_fabric::SUPERVISOR) => return ended(mmb_fabric::run_supervisor()),
        Some(mmb_fabric::FUNCTION) => {
            return ended(mmb_fabric::run_function(&registry(), mmb_broker::run_in_process));
        }
        _ => {}
    }
    let filter = std::env::args().nth(1).filter(|word| !word.starts_with('-')).unwrap_or_default();
    let tests: [(&str, fn()); 7] = [
        ("requests_are_answered", requests_are_answered),
        ("errors_are_printable", errors_are_printable),
        ("a_panic_ends_its_process_only", a_panic_ends_its_process_only),
        ("an_endless_loop_is_ended", an_endless_loop_is_ended),
        ("nothing_is_allowed", nothing_is_allowed),
        ("a_refused_request_gets_a_reset", a_refused_request_gets_a_reset),
        ("a_function_that_does_not_start", a_function_that_does_not_start),
    ];
    for (name, test) in tests.iter().filter(|(name, _)| name.contains(&filter)) {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn ended(result: Result<(), String>) -> ExitCode {
    result.map_or_else(
        |reason| {
            eprintln!("{reason}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn registry() -> Registry {
    let mut registry = mmb_nf_builtin::registry();
    registry.add_l7::<probe::Probe>();
    registry
}

/// A broker with the function `p` in a process, behind one that refuses requests with a word.
struct World {
    broker: Broker,
    function: Arc<Instance>,
    _host: Arc<Host>,
}

impl World {
    fn new(args: &str) -> Result<World, String> {
        let host = Arc::new(Host::new(Supervisor::start().unwrap(), 16));
        host.begin(None);
        let line = |line: &str| mmb_lang::parse_line(line).unwrap().unwrap();
        let Command::DomainAdd(domain) = line("domain add d private") else { panic!() };
        let nf = |text: &str| match line(text) {
            Command::NfAdd(function) => function,
            _ => panic!("{text}"),
        };
        let functions = [
            nf("nf add words match evil reset http-body process d"),
            nf(&format!("nf add p probe {args} process d")),
        ];
        let Command::ChainAdd(chain) = line("chain add c words then p") else { panic!() };
        let program = Program::compile(&ProgramSpec {
            functions: &functions,
            chains: &[chain],
            registry: &registry(),
            resolve_port: &|_| None,
            has_pool: &|_| false,
            workers: 1,
            seed: 0,
            files: &Arc::default(),
            previous: None,
            scratchpad_limit: 1024,
            processes: ProcessSetup { domains: &[domain], host: Some(&*host) },
            order: Order::Maximal,
        })
        .unwrap();
        let functions = program.l7_functions(program.chain("c").unwrap());
        let function = functions[1].clone();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let settings = Settings::default();
        let broker = Broker::start_in_process("test", listener, functions, settings, host.supervisor())?;
        Ok(World { broker, function, _host: host })
    }

    /// Returns what a new client gets for a request, up to the end of the connection.
    fn get(&self, path: &str) -> String {
        get(self.broker.address(), path)
    }

    fn restarts(&self) -> u32 {
        self.function.process_status().unwrap().restarts
    }

    fn until(&self, what: &str, condition: impl Fn(&World) -> bool) {
        let begin = Instant::now();
        while !condition(self) {
            assert!(begin.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    // The end of a process resets its connections.
    let _ = stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes())
        .and_then(|()| stream.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

fn is_answered(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 410 ")
}

fn requests_are_answered() {
    let world = World::new("").unwrap();
    assert!(is_answered(&world.get("/")));
    assert_eq!(world.broker.counters().get(Count::Requests), 1);
    assert_eq!(world.function.report().iter().find(|(name, _)| name == "requests").unwrap().1, "1");
    assert_ne!(world.function.process_status().unwrap().process, None);
    world.broker.drain();
    world.until("the process has ended", |world| world.broker.has_ended());
    assert!(TcpStream::connect(world.broker.address()).is_err());
}

/// What a terminal would execute is replaced.
fn errors_are_printable() {
    let world = World::new("").unwrap();
    assert_eq!(world.function.set(&["x"]).unwrap_err().to_string(), "no  ]0;title more");
}

fn a_panic_ends_its_process_only() {
    let world = World::new("").unwrap();
    for restarts in 1..4 {
        assert_eq!(world.get("/panic"), "");
        // The client waits in the queue of the socket until there is another process.
        assert!(is_answered(&world.get("/")));
        world.until("a restart is counted", |world| world.restarts() == restarts);
    }
    let failure = world.function.process_status().unwrap().last_failure.unwrap();
    assert!(failure.ends_with("the function panicked: a request too many"), "{failure}");
}

fn an_endless_loop_is_ended() {
    for path in ["/loop", "/wait"] {
        let world = World::new("").unwrap();
        assert_eq!(world.get(path), "");
        assert!(is_answered(&world.get("/")));
        world.until("a restart is counted", |world| world.restarts() == 1);
        let failure = world.function.process_status().unwrap().last_failure;
        assert_eq!(failure.as_deref(), Some("hangs, and was killed"), "{path}");
        // The connections have ended with the process.
        world.until("no client is left", |world| world.broker.counters().get(Count::Clients) == 0);
    }
}

fn nothing_is_allowed() {
    let world = World::new("").unwrap();
    assert!(is_answered(&world.get("/attack")));
    let report = world.function.report();
    assert_eq!(report.iter().find(|(name, _)| name == "allowed").unwrap().1, "tried");
    // What it writes to the standard error output is not in the log.
    let process = world.function.process_status().unwrap().process.unwrap();
    assert_eq!(std::fs::read_link(format!("/proc/{process}/fd/2")).unwrap().to_str(), Some("/dev/null"));
    // The next process has a socket that listens.
    assert_eq!(world.get("/panic"), "");
    assert!(is_answered(&world.get("/")));
}

/// The daemon sets what makes the end of a connection a reset (RFC 9293, 3.10.7): the process must not.
fn a_refused_request_gets_a_reset() {
    let world = World::new("").unwrap();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(world.broker.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nevil").unwrap();
        let end = stream.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    }
    assert!(is_answered(&world.get("/")));
    assert_eq!(world.restarts(), 0);
}

fn a_function_that_does_not_start() {
    let error = World::new("exit").err().unwrap();
    assert_eq!(error, "the process has ended (exit status 7)");
    let error = World::new("panic").err().unwrap();
    assert_eq!(error, "the function panicked: no more words");
}
