//! A function for tests that notes requests and their bytes, and stops the broker at the request for `/hold`.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Condvar, Mutex};

use mmb_broker::{Broker, Listener, Settings};
use mmb_nf::{ArgError, Instance, L7Answer, L7Finished, L7Function, L7Handler, L7Request, L7Verdict, Setup};

use super::common;

#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    paths: Vec<String>,
    bytes: Vec<String>,
    is_held: bool,
    is_open: bool,
}

impl L7Handler for Gate {
    type Local = ();

    fn local(&self) {}

    fn request(&self, request: &mut L7Request<'_>, (): &mut ()) -> L7Verdict {
        let path = String::from_utf8_lossy(request.message.target()).into_owned();
        let mut state = self.state.lock().unwrap();
        if path == "/hold" {
            state.is_held = true;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |state| !state.is_open).unwrap());
            return L7Verdict::Answer(L7Answer::of_status(204));
        }
        state.paths.push(path);
        L7Verdict::Pass
    }

    fn finished(&self, exchange: &L7Finished, (): &mut ()) {
        let bytes = format!("{}/{}", exchange.request_bytes, exchange.response_bytes);
        self.state.lock().unwrap().bytes.push(bytes);
    }
}

impl L7Function for Gate {
    const TYPE: &'static str = "gate";
    const USAGE: &'static str = "";
    const HELP: &'static str = "stops the broker";

    fn new(_: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Gate::default())
    }

    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        let mut state = self.state.lock().unwrap();
        match args {
            ["open"] => {
                state.is_open = true;
                self.changed.notify_all();
            }
            _ => drop(self.changed.wait_while(state, |state| !state.is_held).unwrap()),
        }
        Ok(())
    }

    fn report(&self) -> Vec<(String, String)> {
        let state = self.state.lock().unwrap();
        vec![("paths".to_owned(), state.paths.join(" ")), ("bytes".to_owned(), state.bytes.join(" "))]
    }
}

/// Starts a broker on a free port, with a gate in front of its chain.
pub fn broker(lines: &[&str], chain: &str) -> (Arc<Instance>, Broker) {
    let functions = common::functions(&[&["nf add gate gate"], lines].concat(), &format!("gate | {chain}"));
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gate = functions[0].clone();
    (gate, Broker::start("test", listener, functions, Settings::default()).unwrap())
}

/// Waits until the broker has stopped.
pub fn wait(gate: &Instance) {
    gate.set(&["wait"]).unwrap();
}

/// Lets the broker go on, for good.
pub fn open(gate: &Instance) {
    gate.set(&["open"]).unwrap();
}

/// Returns the paths of the requests so far, except for `/hold`.
pub fn paths(gate: &Instance) -> Vec<String> {
    gate.report()[0].1.split(' ').map(str::to_owned).collect()
}

/// Returns the bytes of the bodies of all exchanges that have ended, `REQUEST/RESPONSE` each.
pub fn bytes(gate: &Instance) -> String {
    gate.report()[1].1.clone()
}
