//! Network functions for tests.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use mmb_control::Platform;
use mmb_nf::{Background, Context, Function, Packet, Properties, Setup, StopSignal, Verdict};

/// The built-in functions and those for tests.
pub fn platform() -> Platform {
    let mut functions = mmb_nf_builtin::registry();
    functions.add::<Probe>().add::<Wide>();
    Platform { functions: Arc::new(functions), ..Platform::default() }
}

/// Number of background threads of probes.
static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// Waits until there are `n` background threads of probes.
pub fn wait_for_threads(n: usize) {
    let (count, changed) = &RUNNING;
    let waited = changed.wait_timeout_while(count.lock().unwrap(), Duration::from_secs(30), |now| *now != n);
    assert_eq!(*waited.unwrap().0, n, "background threads");
}

/// Does nothing, and reports its number and the words of the last `nf set`.
pub struct Probe {
    /// Number of probes created before.
    number: u32,
    traits: Properties,
    last_set: Mutex<String>,
}

impl Function for Probe {
    const TYPE: &'static str = "probe";
    const USAGE: &'static str = "[on INTERFACE] [pool POOL] [takes MATCHES] [outputs LABEL LABEL]";
    const HELP: &'static str = "does nothing and reports it";
    type Pad = u64;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let mut traits = Properties::default();
        match setup.args {
            [] => {}
            ["on", name] if (setup.resolve_port)(name).is_some() => {
                traits.interfaces.push((*name).to_owned())
            }
            ["pool", name] if (setup.has_pool)(name) => traits.pools.push((*name).to_owned()),
            ["takes", matches] => traits.accepts = (*matches).to_owned(),
            ["outputs", a, b] => traits.outputs = vec![(*a).to_owned(), (*b).to_owned()],
            words => return Err(format!("unknown arguments of a probe: `{}`", words.join(" ")).into()),
        }
        Ok(Probe { number: CREATED.fetch_add(1, Relaxed), traits, last_set: Mutex::default() })
    }

    fn properties(&self) -> Properties {
        self.traits.clone()
    }

    fn packet(&self, _: &mut Packet<'_>, packets: &mut u64, _: &mut Context<'_, ()>) -> Verdict {
        *packets += 1;
        Verdict::Pass
    }

    fn set(&self, words: &[&str]) -> Result<(), mmb_nf::ArgError> {
        if words == ["nonsense"] {
            return Err("a probe refuses nonsense".into());
        }
        *self.last_set.lock().unwrap() = words.join(" ");
        Ok(())
    }

    fn report(&self) -> Vec<(String, String)> {
        let last_set = self.last_set.lock().unwrap().clone();
        vec![("number".to_owned(), self.number.to_string()), ("last set".to_owned(), last_set)]
    }

    fn background(&self) -> Option<Background> {
        Some(Box::new(|stop: &StopSignal| {
            let count = |change: fn(&mut usize)| {
                change(&mut RUNNING.0.lock().unwrap());
                RUNNING.1.notify_all();
            };
            count(|n| *n += 1);
            while !stop.wait(Duration::from_secs(3600)) {}
            count(|n| *n -= 1);
        }))
    }
}

/// Has so much state that two of it do not fit the default scratchpad.
pub struct Wide;

impl Function for Wide {
    const TYPE: &'static str = "wide";
    const USAGE: &'static str = "";
    const HELP: &'static str = "has much state";
    type Pad = [u64; 20];
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        Ok(Wide)
    }

    fn packet(&self, _: &mut Packet<'_>, _: &mut [u64; 20], _: &mut Context<'_, ()>) -> Verdict {
        Verdict::Pass
    }
}
