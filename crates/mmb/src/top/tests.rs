//! The views drawn on a terminal in memory.

use std::time::{Duration, Instant};

use mmb_control::api::{
    ConnectionEntry, CostEntry, FunctionEntry, InterfaceEntry, InterfaceState, NodeEntry, PoolEntry,
    RuleEntry, WorkerEntry,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;

/// A sample after `n` seconds of constant traffic.
fn sample(n: u64) -> Sample {
    let mut sample = Sample::default();
    let port = |name: &str, rate: u64| InterfaceEntry {
        name: name.into(),
        kind: "null".into(),
        state: InterfaceState::Up,
        link: true,
        rx_packets: rate * n,
        rx_bytes: 100 * rate * n,
        drops: [("rule".to_owned(), 7 * n)].into_iter().collect(),
        ..InterfaceEntry::default()
    };
    sample.interfaces.interfaces = vec![port("wan", 2000), port("lan", 30)];
    let rule = |index, rate: u64, text: &str| RuleEntry {
        index,
        packets: rate * n,
        decided: Some(rate * n),
        text: text.into(),
        ..RuleEntry::default()
    };
    sample.rules.rules = vec![rule(1, 5, "add udp-dport 9 drop"), rule(2, 900, "add all accept")];
    sample.drops.drops = [("rule".to_owned(), 14 * n), ("martian".to_owned(), 0)].into_iter().collect();
    sample.nat.pools = vec![PoolEntry {
        name: "home".into(),
        addresses: ["192.0.2.1".into(), "192.0.2.1".into()],
        ports_used: [("udp".to_owned(), 750)].into_iter().collect(),
        ports_total: 1000,
        ..PoolEntry::default()
    }];
    let cost = CostEntry { name: "limit".into(), packets: 10 * n, ticks: 500 * n, ..CostEntry::default() };
    sample.functions.functions =
        vec![FunctionEntry { cost, type_: "police".into(), ..FunctionEntry::default() }];
    let node =
        |rate: u64| NodeEntry { packets: rate * n, vectors: n, ticks: 40 * rate * n, ..NodeEntry::default() };
    let nodes = [("ip-input".to_owned(), node(30)), ("tx".to_owned(), node(10))].into_iter().collect();
    sample.runtime.workers = vec![WorkerEntry { worker: 0, nodes, sleeps: n, ..WorkerEntry::default() }];
    let mut session: ConnectionEntry = serde_json::from_str(SESSION).unwrap();
    session.forward.packets = 50 * n;
    sample.connections = vec![session];
    sample
}

const SESSION: &str = r#"{"protocol":"tcp","state":"open","forward":{"source":"10.0.0.1","source_port":4000,
    "destination":"192.0.2.9","destination_port":80,"packets":1,"bytes":2},"reverse":{"source":"192.0.2.9",
    "source_port":80,"destination":"10.0.0.1","destination_port":4000,"packets":0,"bytes":0},"translated":false,
    "age_seconds":1,"idle_seconds":0,"expires_seconds":9,"rules":[2],"worker":0}"#;

/// A view after two samples, one second apart.
fn state(view: View) -> State {
    let (mut state, start) = (State::new(view, String::new()), Instant::now());
    for n in [1, 2] {
        state.take(Ok(sample(n)), start + Duration::from_secs(n));
    }
    state
}

/// The picture as lines, on a terminal of 80 columns and 24 lines.
fn picture(state: &State) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw::draw(frame, state, true)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..24).map(line).collect()
}

fn press(state: &mut State, keys: &str) -> Step {
    let key = |c| match c {
        '\n' => KeyCode::Enter,
        '\x1b' => KeyCode::Esc,
        '\t' => KeyCode::Tab,
        'J' => KeyCode::Down,
        c => KeyCode::Char(c),
    };
    keys.chars().map(|c| state.press(KeyEvent::new(key(c), KeyModifiers::NONE))).last().unwrap()
}

#[test]
fn each_view_has_its_table() {
    for (view, rows) in [
        (View::Ports, vec!["lan up 30 24.0k 0 0 0 █", "wan up 2.0k 1.6M 0 0 0 █"]),
        (View::Rules, vec!["2 900 0 900 add all accept", "1 5 0 5 add udp-dport 9 drop"]),
        (View::Sessions, vec!["tcp open 10.0.0.1:4000 > 192.0.2.9:80 50 0 2"]),
        (View::Drops, vec!["rule 14 28 █"]),
        (View::Nat, vec!["home 75.0% 0 0 0.0% 0 0"]),
        (View::Functions, vec!["limit 10 0 50 police"]),
        (View::Nodes, vec!["ip-input 75.0% 30 40 30", "tx 25.0% 10 40 10"]),
        (View::Workers, vec!["0 - 30 30 1.6k 1 0 █"]),
    ] {
        let shown = picture(&state(view));
        assert!(shown[0].contains("2.0k pkt/s  1.6M bit/s  14 drops/s"), "{shown:#?}");
        assert!(shown[1].starts_with("1 ports  2 rules  3 sessions  4 drops  5 nat"), "{shown:#?}");
        for (line, row) in shown[3..].iter().zip(rows) {
            let words: Vec<_> = line.split_whitespace().collect();
            assert_eq!(words.join(" "), row, "{view:?}: {shown:#?}");
        }
        assert!(shown[23].starts_with("q quit"), "{shown:#?}");
        assert!(shown.iter().all(|line| line.chars().count() <= 80));
    }
}

/// A line that does not fit would lose its end without a sign.
#[test]
fn totals_and_help_fit_80_columns() {
    let mut state = state(View::Ports);
    let head = |state: &State| picture(state)[0].clone();
    assert!(head(&state).contains(" sessions  ") && head(&state).ends_with(" new/s"), "{}", head(&state));
    // Rates of a busy machine: what does not fit is left out as a whole.
    state.totals.packets = 14.88e6;
    state.totals.bits = 99.9e9;
    state.totals.drops = 123.4e3;
    state.totals.opened = 99.9e3;
    state.sample.uptime = 9999 * 3600;
    let busy = head(&state);
    assert!(busy.ends_with(" sessions") || busy.ends_with(" new/s"), "{busy}");
    state.press(KeyEvent::new(KeyCode::Char('?'), KeyModifiers::NONE));
    let help = picture(&state);
    assert!(help.iter().any(|line| line.ends_with("matches of rules or sessions, then Enter")), "{help:#?}");
}

#[test]
fn bars_show_what_was() {
    let shown = picture(&state(View::Drops));
    assert!(shown[3].ends_with(" █"), "{shown:#?}");
}

#[test]
fn rows_are_ordered_by_the_next_column_or_reversed() {
    let mut state = state(View::Ports);
    let first = |state: &State| state.table.rows[0].key.clone();
    assert_eq!(first(&state), "lan");
    press(&mut state, "r");
    assert_eq!(first(&state), "wan");
    press(&mut state, "ss");
    assert_eq!((first(&state).as_str(), state.order()), ("wan", (2, false)));
    assert!(picture(&state)[2].contains("rx pkt/s*"));
    press(&mut state, "r");
    assert_eq!(first(&state), "lan");
}

#[test]
fn a_row_is_drilled_in_and_the_cursor_stays_on_it() {
    let mut state = state(View::Ports);
    press(&mut state, "J");
    assert_eq!(state.row().unwrap().key, "wan");
    press(&mut state, "r");
    assert_eq!(state.row().unwrap().key, "wan");
    press(&mut state, "\n");
    let shown = picture(&state);
    assert!(shown.iter().any(|line| line == "drop rule       14"), "{shown:#?}");
    press(&mut state, "\x1b");
    assert!(picture(&state)[2].starts_with("port"));
    press(&mut state, "?");
    assert!(picture(&state)[2].starts_with("1-8, Tab"));
}

#[test]
fn matches_are_typed_and_cleared() {
    let mut state = state(View::Rules);
    assert_eq!(press(&mut state, "/tcp-dport 80"), Step::Wait);
    assert_eq!(picture(&state)[23], "match: tcp-dport 80_");
    assert_eq!(press(&mut state, "\n"), Step::Sample);
    assert_eq!(state.filter, "tcp-dport 80");
    assert!(picture(&state)[23].starts_with("match: tcp-dport 80  q quit"));
    assert_eq!(press(&mut state, "/x\x1b"), Step::Wait);
    assert_eq!(state.filter, "tcp-dport 80");
    assert_eq!(press(&mut state, "\x1b"), Step::Sample);
    assert_eq!(state.filter, "");
}

#[test]
fn views_change_pause_and_quit() {
    let mut state = state(View::Ports);
    assert_eq!(press(&mut state, "p"), Step::Wait);
    assert!(picture(&state)[23].starts_with("PAUSED"));
    assert_eq!(press(&mut state, " "), Step::Sample);
    assert_eq!((press(&mut state, "\t"), state.view), (Step::Sample, View::Rules));
    assert_eq!((press(&mut state, "8"), state.view), (Step::Sample, View::Workers));
    assert_eq!((press(&mut state, "\t"), state.view), (Step::Sample, View::Ports));
    assert_eq!(press(&mut state, "q"), Step::Quit);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state.press(control_c), Step::Quit);
}

#[test]
fn a_lost_daemon_is_told_and_the_last_numbers_stay() {
    let mut state = state(View::Ports);
    state.take(Err("no mmb daemon answers at /run/x".into()), Instant::now());
    let shown = picture(&state);
    assert!(shown[3].starts_with("lan") && shown[23].starts_with("no mmb daemon answers"), "{shown:#?}");
}

#[test]
fn many_rows_scroll_and_small_terminals_do_not_fail() {
    let mut state = state(View::Rules);
    let row = state.table.rows[0].clone();
    state.table.rows = (0..100).map(|n| super::table::Row { key: n.to_string(), ..row.clone() }).collect();
    state.press(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
    assert_eq!(state.place(), 99);
    for (width, height) in [(1, 1), (5, 3), (80, 4), (200, 60)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw::draw(frame, &state, false)).unwrap();
    }
}

#[test]
fn the_locale_tells_the_character_set() {
    let with = |set: &[(&str, &str)]| {
        let set: Vec<_> = set.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        is_utf8(|name| set.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()))
    };
    assert!(with(&[("LANG", "en_US.UTF-8")]) && with(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")]));
    assert!(!with(&[]) && !with(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]));
}
