//! DPDK's nodes `ip4_lookup` and `ip4_rewrite` beside those of `mmb bench --mode routed`: the same routes and
//! flows, processes in turn.

use std::cell::RefCell;
use std::process::Command;

use serde_json::Value;

use crate::prefixes::{HOPS, Prefixes};
use crate::traffic::{Generated, Generator};
use crate::{checked, median};

/// Bytes of a frame, as of `mmb bench`.
const SIZE: usize = 64;
const WARM_UP_MS: u32 = 200;
/// Most routes that `ip4_lookup` has room for.
pub const MOST: usize = 1_024;

/// A frame on its way to the C side.
#[repr(C)]
struct Frame {
    length: u32,
    bytes: [u8; 128],
}

// SAFETY: the functions take and return numbers only and keep their data themselves; what `nodes_walk` calls
// takes nothing and returns a value, and `Frame` is laid out as on the other side.
unsafe extern "C" {
    safe fn nodes_open() -> i32;
    safe fn nodes_hop(hop: u32) -> i32;
    safe fn nodes_route(address: u32, length: u32, hop: u32) -> i32;
    safe fn nodes_walk(milliseconds: u32, next: extern "C" fn() -> Frame);
    safe fn nodes_packets(which: u32) -> u64;
    safe fn nodes_ticks(which: u32) -> u64;
}

const LOOKUP: u32 = 1;
const REWRITE: u32 = 2;
const TX: u32 = 3;

thread_local! {
    static GENERATOR: RefCell<Option<Generator>> = const { RefCell::new(None) };
}

extern "C" fn next_frame() -> Frame {
    let mut frame = Frame { length: 0, bytes: [0; 128] };
    GENERATOR.with_borrow_mut(|generator| {
        if let Some(generator) = generator {
            frame.length = generator.write_next(&mut frame.bytes) as u32;
        }
    });
    frame
}

/// Runs DPDK's graph and prints ticks a packet of both nodes.
pub fn peer(routes: usize, flows: u32, seconds: f64, seed: u64) -> Result<(), String> {
    if routes > MOST {
        return Err(format!("{routes} routes do not go; ip4_lookup has room for {MOST}"));
    }
    let prefixes = Prefixes::new(routes, false, seed);
    checked("the graph cannot be made", nodes_open())?;
    for hop in 0..u32::from(HOPS) {
        checked("a next hop cannot be added", nodes_hop(hop))?;
    }
    for prefix @ (network, length) in prefixes.each() {
        let hop = Prefixes::hop(prefix).into();
        checked("a route cannot be added", nodes_route(network as u32, length.into(), hop))?;
    }
    let traffic = Generated { flows, size: SIZE, seed, destinations: Some(prefixes), ..Generated::default() };
    GENERATOR.set(Some(Generator::new(&traffic, 0)));
    nodes_walk(WARM_UP_MS, next_frame);
    nodes_walk((seconds * 1e3) as u32, next_frame);
    let packets = nodes_packets(LOOKUP);
    if packets == 0 || nodes_packets(TX) != packets {
        return Err(format!("of {packets} packets {} were sent", nodes_packets(TX)));
    }
    let ticks = |which| nodes_ticks(which) as f64 / packets as f64;
    println!(
        "{}",
        serde_json::json!({ "packets": packets, "lookup": ticks(LOOKUP), "rewrite": ticks(REWRITE) })
    );
    Ok(())
}

/// Figures of one run, or their medians.
struct Ticks {
    lookup: f64,
    rewrite: f64,
    /// mmb's `ip4-input`; DPDK has nothing like it in this graph.
    input: f64,
}

/// A figure with its name.
type Row = (&'static str, fn(&Ticks) -> f64);

/// Runs both in turn and prints medians and ratios.
pub fn compare(mmb: &str, routes: usize, flows: u32, seconds: f64, repeat: usize) -> Result<(), String> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..repeat.max(1) {
        if routes <= MOST {
            theirs.push(run_peer(routes, flows, seconds)?);
        }
        ours.push(run_mmb(mmb, routes, flows, seconds)?);
    }
    let of = |runs: &[Ticks], figure: fn(&Ticks) -> f64| median(runs.iter().map(figure).collect());
    println!(
        "{routes} routes, {flows} flows, {SIZE} bytes: ticks a packet (medians of {repeat} runs in turn)"
    );
    let mmb_input = of(&ours, |t| t.input);
    let rows: [Row; 3] =
        [("lookup", |t| t.lookup), ("rewrite", |t| t.rewrite), ("both", |t| t.lookup + t.rewrite)];
    for (name, figure) in rows {
        let mmb = of(&ours, figure);
        if theirs.is_empty() {
            println!("  ip4-{name:<8} mmb {mmb:5.1}");
            continue;
        }
        let dpdk = of(&theirs, figure);
        println!("  ip4-{name:<8} mmb {mmb:5.1}   DPDK {dpdk:5.1}   ratio {:.2}", mmb / dpdk);
    }
    println!(
        "  ip4-input    mmb {mmb_input:5.1}   plain path {:.1}",
        of(&ours, |t| t.lookup + t.rewrite + t.input)
    );
    Ok(())
}

fn run_peer(routes: usize, flows: u32, seconds: f64) -> Result<Ticks, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let arguments = ["peer".into(), routes.to_string(), flows.to_string(), seconds.to_string()];
    let report = output(Command::new(program).args(arguments))?;
    let of = |name: &str| report[name].as_f64().ok_or(format!("the peer does not report {name}"));
    Ok(Ticks { lookup: of("lookup")?, rewrite: of("rewrite")?, input: 0.0 })
}

fn run_mmb(mmb: &str, routes: usize, flows: u32, seconds: f64) -> Result<Ticks, String> {
    let mut command = Command::new(mmb);
    command.args(["bench", "--mode", "routed", "--json", "--size", &SIZE.to_string()]);
    command.args(["--routes", &routes.to_string(), "--flows", &flows.to_string()]);
    let report = output(command.args(["--seconds", &seconds.to_string()]))?;
    let of = |node: &str| {
        let ticks = report["nodes"][node]["ticks_per_packet"].as_f64();
        ticks.ok_or(format!("mmb bench does not report {node}"))
    };
    Ok(Ticks { lookup: of("ip4-lookup")?, rewrite: of("ip4-rewrite")?, input: of("ip4-input")? })
}

/// What a command prints, as JSON.
fn output(command: &mut Command) -> Result<Value, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program} cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{program}: {error}"))
}
