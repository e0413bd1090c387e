//! Network functions and service chains as part of the configuration.

use mmb_control::api::{ChainList, FunctionList};

use crate::functions::wait_for_threads;
use crate::harness::{Daemon, daemon};

const FILE: &str = "\
interface add a null
interface add b null
nat pool add home 192.0.2.1-192.0.2.4
nf add first probe takes \"ip-proto tcp\"
nf add second probe on b
nf add third probe pool home
nf add parts probe outputs left right
chain add web first | parts [left: second, right: drop] | third
chain add rest third
add-stateful in a chain web
add-stateful ip-proto udp chain rest
";

impl Daemon {
    fn functions(&self) -> FunctionList {
        self.client().get("/v1/functions").unwrap()
    }

    /// A value that an instance reports.
    fn reported(&self, name: &str, what: &str) -> String {
        let function = self.functions().functions.into_iter().find(|f| f.cost.name == name).unwrap();
        function.report[what].clone()
    }
}

#[test]
fn functions_and_chains_are_lines_of_a_file() {
    let daemon = daemon();
    daemon.control.apply(FILE.as_bytes()).unwrap();
    assert_eq!(daemon.control.config().config, FILE);
    // The order of lines of different kinds does not matter.
    let (one, other) = FILE.split_at(FILE.find("chain add").unwrap());
    daemon.control.apply(format!("{other}{one}").as_bytes()).unwrap();
    assert_eq!(daemon.control.config().config, FILE);
    for line in ["chain add rest third", "nf add second probe on b"] {
        let changed: Vec<&str> = FILE.lines().filter(|l| *l != line).collect();
        assert!(daemon.control.diff(changed.join("\n").as_bytes()).is_err(), "{line} is in use");
    }
    let more = FILE.replace("chain add rest third\n", "nf add more probe\nchain add rest more | third\n");
    let diff = daemon.control.diff(more.as_bytes()).unwrap();
    assert_eq!(diff.removed, ["chain add rest third"]);
    assert_eq!(diff.added, ["nf add more probe", "chain add rest more | third"]);
    daemon.control.apply(more.as_bytes()).unwrap();
    assert!(daemon.control.diff(more.as_bytes()).unwrap().added.is_empty());
    // What is not in a file is deleted, and then its interfaces can be deleted.
    daemon.control.apply(b"add ip-df drop\n").unwrap();
    let rest = "interface add a null\ninterface add b null\nadd ip-df drop\n";
    assert_eq!(daemon.control.config().config, rest);
    assert!(daemon.run("show chains").unwrap().starts_with("no chains; "));
    assert!(daemon.run("show functions").unwrap().starts_with("no functions; "));
    daemon.run("interface del b").unwrap();
}

#[test]
fn instances_keep_their_state_while_name_type_and_arguments_stay() {
    let daemon = daemon();
    daemon.control.apply(FILE.as_bytes()).unwrap();
    let numbers = || ["first", "second", "third"].map(|name| daemon.reported(name, "number"));
    let before = numbers();
    daemon.run("nf set second remember this").unwrap();
    for line in
        ["nf add x probe", "chain add y x", "chain set web first | third | x", "nf del parts", "flush"]
    {
        daemon.run(line).unwrap();
        assert_eq!(numbers(), before, "{line}");
    }
    daemon.control.apply(FILE.as_bytes()).unwrap();
    assert_eq!(numbers(), before);
    assert_eq!(daemon.reported("second", "last set"), "remember this");
    daemon.control.apply(FILE.replace("second probe on b", "second probe on a").as_bytes()).unwrap();
    let after = numbers();
    assert_eq!((&after[0], &after[2]), (&before[0], &before[2]));
    assert_ne!(after[1], before[1]);
    // A diff creates no instance that remains.
    daemon.control.diff(FILE.as_bytes()).unwrap();
    assert_eq!(numbers(), after);
}

/// Lines that are refused while [`FILE`] runs, and words that message or help must have.
const BAD: [(&str, &[&str]); 26] = [
    ("nf add first probe", &["`first` already", "`nf del first` first"]),
    ("nf add x prob", &["`prob`", "did you mean `probe`?"]),
    ("nf add x telescope", &["`telescope`", "probe"]),
    ("nf add x probe nonsense", &["unknown arguments of a probe: `nonsense`"]),
    ("nf add x probe on nowhere", &["nowhere"]),
    ("nf add x probe pool nowhere", &["nowhere"]),
    ("nf add x probe takes \"tcp-dport htpt\"", &["htpt"]),
    ("nf del nobody", &["`nobody`", "first"]),
    ("nf del frist", &["did you mean `first`?"]),
    ("nf del third", &["`third`", "chain `web`", "`chain set web …`"]),
    ("nf set nobody up", &["`nobody`"]),
    ("nf set first nonsense", &["a probe refuses nonsense"]),
    ("chain add web first", &["`web` already", "`chain set web …`"]),
    ("chain add x nobody", &["`nobody`"]),
    ("chain add x first | first", &["first"]),
    ("chain add x parts [left: third, middle: first]", &["middle"]),
    ("chain set nowhere first", &["`nowhere`", "web"]),
    ("chain set web first | nobody", &["`nobody`"]),
    ("chain del web", &["rule 1", "`del 1` first"]),
    ("chain del nowhere", &["`nowhere`"]),
    ("chain set rest first", &["rule 2", "`del 2` first"]),
    ("add-stateful all chain nowhere", &["`nowhere`", "web"]),
    ("add-stateful ip-proto udp chain web", &["web", "tcp"]),
    ("add ip-proto tcp chain web", &["stateful"]),
    ("interface del b", &["function `second`", "`nf del second` first"]),
    ("nat pool del home", &["function `third`", "`nf del third` first"]),
];

#[test]
fn conflicts_are_refused_with_help() {
    let daemon = daemon();
    daemon.control.apply(FILE.as_bytes()).unwrap();
    let before = daemon.state();
    let mut wrong = Vec::new();
    for (line, words) in BAD {
        let Err(error) = daemon.control.execute(line) else {
            wrong.push(format!("{line} is accepted"));
            continue;
        };
        let entry = &error.diagnostics[0];
        let text = format!("{}; {}", entry.message, entry.help.as_deref().unwrap_or_default());
        let missing = words.iter().filter(|word| !text.contains(**word));
        wrong.extend(missing.map(|word| format!("no {word} in: {line}: {text}")));
        assert!(entry.end > entry.start && entry.end <= line.len() as u64, "{line}: {entry:?}");
        assert_eq!(daemon.state(), before, "{line}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn errors_have_the_place_of_their_word() {
    let daemon = daemon();
    let mut wrong = Vec::new();
    for (from, to, line, column) in [
        ("second probe on b", "second probe on c", 5, 15),
        ("add third probe pool home", "add third prob pool home", 6, 14),
        ("right: drop] | third", "right: drop] | fourth", 8, 59),
        ("right: drop] | third", "right: drop] | second", 8, 59),
        ("chain web\n", "chain wep\n", 10, 25),
        ("ip-proto udp chain rest", "ip-proto udp chain web", 11, 27),
        ("nf add parts probe outputs left right", "nf add third probe", 7, 8),
        ("chain add rest third", "chain add web third", 9, 11),
        ("chain add rest third", "chain set rest third", 9, 1),
        ("chain add rest third", "nf set third x", 9, 1),
    ] {
        let file = FILE.replace(from, to);
        assert_ne!(file, FILE);
        let error = daemon.control.apply(file.as_bytes()).unwrap_err();
        let first = &error.diagnostics[0];
        if (first.line, first.column) != (line, column) {
            wrong.push(format!("{to}: not {line}:{column}: {first:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // The interfaces and pools of an instance that stays must exist too.
    daemon.control.apply(FILE.as_bytes()).unwrap();
    for (gone, line) in [("interface add b null\n", 4), ("nat pool add home 192.0.2.1-192.0.2.4\n", 5)] {
        let error = daemon.control.apply(FILE.replace(gone, "").as_bytes()).unwrap_err();
        assert_eq!(error.diagnostics[0].line, line, "{error:?}");
    }
    assert_eq!(daemon.control.config().config, FILE);
}

#[test]
fn the_size_of_scratchpads_is_limited() {
    let daemon = daemon();
    for line in ["nf add a wide", "nf add b wide", "nf add parts probe outputs left right"] {
        daemon.run(line).unwrap();
    }
    let error = daemon.run("chain add c a | b").unwrap_err();
    assert!(error.contains("--scratchpad") && error.contains("256"), "{error}");
    // On different paths they share bytes.
    daemon.run("chain add c parts [left: a, right: b]").unwrap();
    let error = daemon.control.apply(b"nf add a wide\nnf add b wide\nchain add c a | b\n").unwrap_err();
    assert_eq!(error.diagnostics[0].line, 3, "{error:?}");
}

#[test]
fn background_threads_run_as_long_as_their_instance() {
    let daemon = daemon();
    wait_for_threads(0);
    daemon.run("nf add a probe").unwrap();
    wait_for_threads(1);
    daemon.run("nf add b probe").unwrap();
    wait_for_threads(2);
    daemon.control.diff(b"nf add c probe\nnf add d probe\n").unwrap();
    assert!(daemon.run("nf add c probe nonsense").is_err());
    daemon.run("chain add c a | b").unwrap();
    daemon.run("nf set a something").unwrap();
    wait_for_threads(2);
    daemon.control.apply(b"nf add a probe\nnf add c probe\nnf add d probe takes ip-df\n").unwrap();
    wait_for_threads(3);
    daemon.run("nf del a").unwrap();
    wait_for_threads(2);
    daemon.control.apply_with(b"", true, None).unwrap();
    wait_for_threads(0);
}

#[test]
fn chains_are_shown() {
    let daemon = daemon();
    daemon.control.apply(FILE.as_bytes()).unwrap();
    let text = daemon.run("show chains").unwrap();
    let row = |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap().to_owned();
    assert!(row("web").ends_with("first | parts [left: second, right: drop] | third"), "{text}");
    assert!(row("web").contains(" ip-proto tcp ") && row("rest").contains(" all "), "{text}");
    let verbose = daemon.run("show chains verbose").unwrap();
    assert!(verbose.starts_with(&text) && verbose.contains("of 256 bytes"), "{verbose}");
    assert!(verbose.contains("first | parts | second | third"), "{verbose}");
    assert!(verbose.contains("first | parts | drop"), "{verbose}");
    let list: ChainList = daemon.client().get("/v1/chains").unwrap();
    assert_eq!((list.chains[0].rules.as_slice(), list.chains[1].rules.as_slice()), (&[1][..], &[2][..]));
    assert_eq!((list.scratchpad.limit, list.scratchpad.header), (256, 8));
    let regions: Vec<_> = list.scratchpad.regions.iter().map(|p| (p.function.as_str(), p.bytes)).collect();
    assert_eq!(regions.len(), 4, "{regions:?}");
    assert!(regions.iter().all(|(_, bytes)| *bytes == 8));
    // Functions of a path share no byte, and use no byte beyond the path's.
    for path in list.chains.iter().flat_map(|chain| &chain.paths) {
        let mut ends = list.scratchpad.header;
        for region in list.scratchpad.regions.iter().filter(|r| path.functions.contains(&r.function)) {
            assert!(region.offset >= ends, "{path:?}");
            ends = region.offset + region.bytes;
        }
        assert_eq!(ends, path.bytes);
        assert_eq!(path.used, 8 + 8 * path.functions.len() as u64);
    }
    let costs: Vec<_> = list.functions.iter().map(|cost| cost.name.as_str()).collect();
    assert_eq!(costs, ["first", "second", "third", "parts"]);
}

#[test]
fn functions_are_shown() {
    let daemon = daemon();
    daemon.control.apply(FILE.as_bytes()).unwrap();
    daemon.run("nf set first the news").unwrap();
    let text = daemon.run("show functions").unwrap();
    let second = text.lines().find(|line| line.starts_with("second ")).unwrap();
    assert!(second.contains(" probe ") && second.contains(" web ") && second.ends_with(" on b"), "{text}");
    assert!(text.lines().any(|line| line == "first: last set: the news"), "{text}");
    let verbose = daemon.run("show functions verbose").unwrap();
    assert!(verbose.starts_with(&text) && verbose.contains("does nothing and reports it"), "{verbose}");
    let list = daemon.functions();
    let names: Vec<_> = list.functions.iter().map(|f| f.cost.name.as_str()).collect();
    assert_eq!(names, ["first", "second", "third", "parts"]);
    assert_eq!(list.functions[2].chains, ["web", "rest"]);
    assert_eq!(list.functions[0].traffic, "ip-proto tcp");
    let probe = list.types.iter().find(|kind| kind.name == "probe").unwrap();
    assert_eq!((probe.bytes, probe.usage.split(' ').next()), (8, Some("[on")));
    let metrics = daemon.http("GET", "/metrics", "text/plain", b"").body;
    let metrics = String::from_utf8(metrics).unwrap();
    for line in ["mmb_function_packets_total", "mmb_function_ticks_total"] {
        let line = format!("{line}{{function=\"third\",type=\"probe\"}} 0");
        assert!(metrics.lines().any(|l| l == line), "{line} in {metrics}");
    }
}
