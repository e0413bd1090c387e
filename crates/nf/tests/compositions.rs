//! Which chains compile, what they accept, and the layout of their scratchpads.

mod common;

use mmb_nf::harness::HarnessError;
use mmb_nf::{Harness, Order};

use common::registry;

/// Functions with the names that tests use.
const FUNCTIONS: &str = "\
nf add a probe 1
nf add b probe 2
nf add c probe 3
nf add d probe 4
nf add tcp1 probe 5 tcp
nf add tcp2 probe 6 tcp
nf add udp1 probe 7 udp
nf add split probe 8 split
nf add mix probe 9 mix
nf add routed probe 10 split routes
nf add snat probe 11 translates-source
nf add snat2 probe 12 translates-source
nf add dnat probe 13 translates-destination
nf add bysource probe 14 source
nf add bydest probe 15 destination
nf add bypair probe 16 pair
nf add f flow
nf add f2 flow
";

fn with(chains: &str) -> Result<Harness, HarnessError> {
    let mut harness = Harness::new(registry(), "")?;
    let lines: String = chains.lines().map(|body| format!("chain add {body}\n")).collect();
    harness.load(&format!("{FUNCTIONS}{lines}"))?;
    Ok(harness)
}

fn refused(body: &str) -> String {
    with(&format!("x {body}")).err().unwrap_or_else(|| panic!("`{body}` is accepted")).to_string()
}

#[test]
fn invalid_compositions_are_refused_with_the_reason() {
    let cases = [
        ("nowhere", "there is no function `nowhere`"),
        ("a | b | a", "`a` is used twice on one path"),
        ("split [a: c, b: d] | c", "`c` is used twice on one path"),
        (
            "tcp1 | udp1",
            "no packet reaches `udp1`: it accepts `ip-proto udp`, and `tcp1` in front of it accepts only `ip-proto tcp`",
        ),
        ("[tcp1, udp1] | a | tcp1", "`tcp1` is used twice"),
        ("[tcp1, else: pass] | a | split", "`split` has the outputs a, b"),
        ("split [a: b]", "the output `b` of `split` has no arm"),
        ("split [a: b, z: c]", "`split` has no output `z`"),
        ("split [a: b, b: c, else: d]", "every output of `split` has an arm"),
        ("a [x: b]", "`a` has no outputs"),
        ("f [x: b]", "`f` is of type flow"),
        ("[tcp1, x: udp1]", "`x"),
        ("[a, tcp1]", "accepts all traffic"),
        ("split [a: drop, b: drop] | c", "no packet reaches `c`"),
        (
            "snat | bysource",
            "`bysource` is keyed by the source address, which `snat` in front of it has replaced",
        ),
        ("snat | bypair", "is keyed by the address pair"),
        ("dnat | bypair", "is keyed by the address pair"),
        ("dnat | bydest", "is keyed by the destination address"),
        ("snat | snat2", "`snat2` and `snat` on one path both translate the source"),
        ("f | snat", "`snat` translates, which only sessions before `f` can do"),
        ("split [a: snat, b: pass]", "`split` cannot tell in advance which sessions get there"),
        ("dnat | routed [a: snat, b: pass]", "`routed` cannot tell in advance"),
        ("routed [a: snat, b: pass] | dnat", "`dnat` translates, and only some paths to it do"),
        ("mix [a: b | c, b: d | c]", "`c` is behind two outputs of `mix`"),
        ("f | a | f", "`f` is used twice"),
        ("udp1 | split [a: tcp1, b: pass]", "no packet reaches `tcp1`"),
    ];
    for (body, reason) in cases {
        let error = refused(body);
        assert!(error.contains(reason), "`{body}`: {error}");
        assert!(!error.ends_with('.'), "{error}");
    }
}

#[test]
fn valid_compositions_compile() {
    for body in [
        "a",
        "a | b | c",
        "tcp1 | tcp2",
        "[tcp1, udp1]",
        "[tcp1 | tcp2, udp1, else: drop] | a",
        "[tcp1, else: pass] | a",
        "split [a: b, b: c] | d",
        "split [a: b, b: b] | d",
        "mix [a: b, b: c] | d",
        "split [a: drop, b: pass] | c",
        "split [b: c, else: d] | a",
        "split [else: b]",
        "snat | bydest",
        "bysource | snat",
        "snat | dnat",
        "routed [a: snat, b: dnat]",
        "routed [a: snat, b: snat2] | dnat",
        "f | a | f2 | b",
        "a | split [a: f | b, b: c] | d",
        "split [a: tcp1, b: udp1] | f | tcp2",
    ] {
        assert!(with(&format!("x {body}")).is_ok(), "`{body}`: {:?}", with(&format!("x {body}")).err());
    }
}

/// A chain accepts what all of its paths accept.
#[test]
fn classes() {
    let class = |body: &str| {
        let harness = with(&format!("x {body}")).unwrap();
        let program = harness.program();
        program.class_text(program.chain("x").unwrap())
    };
    assert_eq!(class("a | b"), "");
    assert_eq!(class("a | tcp1 | tcp2"), "ip-proto tcp");
    assert_eq!(class("[tcp1, udp1]"), "");
    assert_eq!(class("[tcp1, else: tcp2]"), "ip-proto tcp");
    assert_eq!(class("split [a: tcp1, b: pass]"), "");
    assert_eq!(class("split [a: tcp1, b: tcp2]"), "ip-proto tcp");
    assert_eq!(class("f | tcp1"), "", "sessions behind `f` are others");
}

#[test]
fn properties_of_chains() {
    let harness = Harness::new(
        registry(),
        "nf add n probe 1 translates-source slow\nnf add c probe 2\nchain add x n | c\nchain add y c",
    )
    .unwrap();
    let program = harness.program();
    let (x, y) = (program.chain("x").unwrap(), program.chain("y").unwrap());
    assert_eq!((program.translates(x), program.translates(y)), (true, false));
    assert_eq!((program.timeout(x), program.timeout(y)), (Some(1_000_000), None));
    assert_eq!(program.text(x), "n | c");
    assert_eq!(program.chain("z"), None);
}

/// The chain of MiddleClick's Figures 2 and 3, with all functions of 16 bytes: functions on parallel paths
/// share bytes.
#[test]
fn parallel_paths_share_bytes() {
    let harness = with("x [tcp1, udp1] | c").unwrap();
    let program = harness.program();
    let offset = |name: &str| {
        let at = program.instances().iter().position(|one| one.name() == name).unwrap();
        program.scratchpads().iter().find(|place| place.instance == at).map(|place| place.offset)
    };
    assert_eq!(
        (offset("tcp1"), offset("udp1"), offset("c"), offset("a")),
        (Some(8), Some(8), Some(24), None)
    );
    assert_eq!(program.bytes(), 40);
    let paths = program.paths(program.chain("x").unwrap());
    assert_eq!(paths.len(), 2);
    assert!(paths.iter().all(|path| (path.bytes, path.used, path.drops) == (40, 40, false)));
    let diagram = program.layout_diagram();
    assert!(diagram.lines().any(|line| line.contains("udp1") && line.contains("..####")), "{diagram}");
}

#[test]
fn outputs_of_one_session_do_not_share_bytes() {
    let bytes = |body: &str| with(&format!("x {body}")).unwrap().program().bytes();
    assert_eq!(bytes("split [a: b, b: c]"), 8 + 32);
    assert_eq!(bytes("mix [a: b, b: c]"), 8 + 48);
    assert_eq!(bytes("bysource | bydest"), 8 + 8);
}

#[test]
fn chains_with_the_same_functions_in_another_order() {
    let harness = with("x a | b | c\ny c | a\nz b | d").unwrap();
    let program = harness.program();
    let places = program.scratchpads();
    for one in &places {
        for other in places.iter().filter(|other| other.instance != one.instance) {
            let names = [one, other].map(|place| program.instances()[place.instance].name());
            let apart = one.offset + one.bytes <= other.offset || other.offset + other.bytes <= one.offset;
            assert!(apart || names.contains(&"d"), "{names:?}");
        }
    }
}

#[test]
fn the_scratchpad_limit_is_kept() {
    let functions: String = (0..40).map(|n| format!("nf add p{n} probe {n}\n")).collect();
    let chain: Vec<_> = (0..40).map(|n| format!("p{n}")).collect();
    let mut harness = Harness::new(registry(), "").unwrap();
    for order in [Order::Maximal, Order::Compact] {
        let error = harness
            .load_with(&format!("{functions}chain add x {}", chain.join(" | ")), order)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("chain `x` needs 648 bytes") && error.contains("`--scratchpad 648`"),
            "{error}"
        );
    }
}

#[test]
fn invalid_functions_are_refused() {
    let error = |line: &str| Harness::new(registry(), line).err().unwrap().to_string();
    assert!(error("nf add x prob 1").contains("there is no type of function `prob`"));
    assert!(error("nf add x probe").contains("a mark"));
    assert!(error("nf add x flow 0").contains("invalid capacity `0`"));
    assert!(error("nf add x probe 1\nnf add x probe 2").contains("a function `x` exists already"));
    assert!(error("nf add x probe 1\nchain add y x\nchain add y x").contains("a chain `y` exists already"));
}
