//! Functions in processes, with chains and without packet buffers: the processes are this program, executed
//! again. The tests run one after the other, since each one looks at its processes.

#![allow(clippy::unwrap_used)]

mod builtin;
mod faults;
mod hostile;
mod modes;
mod probe;
mod streams;
mod world;
mod zero_copy;

use std::process::ExitCode;

use mmb_nf::{ChainVerdict, DropReason};
use world::{World, frame, payload};

const TESTS: &[(&str, fn())] = &[
    (
        "every_function_does_in_a_process_what_it_does_in_the_worker",
        builtin::every_function_does_in_a_process_what_it_does_in_the_worker,
    ),
    (
        "every_function_runs_in_a_process_or_is_refused",
        builtin::every_function_runs_in_a_process_or_is_refused,
    ),
    ("packets_come_back_with_verdicts_and_changes", packets_come_back_with_verdicts_and_changes),
    ("order_is_kept_in_each_session", order_is_kept_in_each_session),
    ("sessions_begin_and_end", sessions_begin_and_end),
    ("long_frames_and_segments", long_frames_and_segments),
    ("two_processes_of_a_domain", two_processes_of_a_domain),
    ("settings_and_reports", settings_and_reports),
    ("broken_headers_are_dropped", broken_headers_are_dropped),
    ("a_full_pool_drops", a_full_pool_drops),
    ("functions_that_do_not_start", functions_that_do_not_start),
    ("nothing_is_allowed", nothing_is_allowed),
    ("killed_processes_lose_no_buffer", faults::killed_processes_lose_no_buffer),
    ("stopped_and_looping_processes_are_replaced", faults::stopped_and_looping_processes_are_replaced),
    ("a_stopped_process_is_replaced_at_once", faults::a_stopped_process_is_replaced_at_once),
    ("spare_processes_follow_the_functions", faults::spare_processes_follow_the_functions),
    ("last_words_are_shown", faults::last_words_are_shown),
    ("more_processes_than_processors", modes::more_processes_than_processors),
    ("a_chain_that_changes_under_load", zero_copy::a_chain_that_changes_under_load),
    ("functions_of_a_domain_share_buffers", functions_of_a_domain_share_buffers),
    ("functions_move_with_their_scratchpads", functions_move_with_their_scratchpads),
    ("random_faults", faults::random_faults),
    ("forged_descriptors", hostile::forged_descriptors),
    ("replayed_descriptors", hostile::replayed_descriptors),
    ("exhausted_credits", hostile::exhausted_credits),
    ("kept_packets_and_other_domains", hostile::kept_packets_and_other_domains),
    ("floods_of_the_doorbell", hostile::floods_of_the_doorbell),
    ("changes_after_validation", hostile::changes_after_validation),
    ("memory_of_other_domains", hostile::memory_of_other_domains),
    ("unasked_messages", hostile::unasked_messages),
    ("lines_instead_of_answers", hostile::lines_instead_of_answers),
    ("idle_processes_sleep", modes::idle_processes_sleep),
    ("a_polling_process_does_not_sleep", modes::a_polling_process_does_not_sleep),
    ("a_process_runs_on_its_processor", modes::a_process_runs_on_its_processor),
    ("a_working_process_is_shown", modes::a_working_process_is_shown),
    ("a_vector_wakes_a_process_once", modes::a_vector_wakes_a_process_once),
    ("zero_copy_packets_are_read_where_they_are", zero_copy::zero_copy_packets_are_read_where_they_are),
    ("zero_copy_processes_cannot_write", zero_copy::zero_copy_processes_cannot_write),
    ("zero_copy_domains_mix_with_copies", zero_copy::zero_copy_domains_mix_with_copies),
    ("zero_copy_faults_lose_no_packet", zero_copy::zero_copy_faults_lose_no_packet),
    ("zero_copy_needs_packets_that_can_be_mapped", zero_copy::zero_copy_needs_packets_that_can_be_mapped),
    ("streams_are_read_in_order", streams::streams_are_read_in_order),
    ("a_process_closes_connections", streams::a_process_closes_connections),
    ("a_process_edits_streams", streams::a_process_edits_streams),
    ("datagrams_are_read", streams::datagrams_are_read),
    ("lines_of_processes_are_written", streams::lines_of_processes_are_written),
    ("what_has_no_room_is_read_when_it_comes_again", streams::what_has_no_room_is_read_when_it_comes_again),
    ("killed_processes_and_streams", streams::killed_processes_and_streams),
    ("state_of_a_killed_process_is_not_used", streams::state_of_a_killed_process_is_not_used),
    ("floods_of_lines", streams::floods_of_lines),
    ("stream_functions_move", streams::stream_functions_move),
    ("stream_functions_that_are_refused", streams::stream_functions_that_are_refused),
    ("nothing_is_left", faults::nothing_is_left),
];

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some(mmb_fabric::SUPERVISOR) => return ended(mmb_fabric::run_supervisor()),
        Some(mmb_fabric::FUNCTION) => {
            return ended(mmb_fabric::run_function(&world::registry(), |_, _| {
                Err("there are no brokers here".into())
            }));
        }
        _ => {}
    }
    let filter = std::env::args().nth(1).filter(|word| !word.starts_with('-')).unwrap_or_default();
    for (name, test) in TESTS.iter().filter(|(name, _)| name.contains(&filter)) {
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

const ONE: &str = "domain add d private buffers 256\nnf add p probe process d\nchain add c p";

fn packets_come_back_with_verdicts_and_changes() {
    let mut world = World::new(ONE);
    let sent = world.send(&[frame(1, "N."), frame(1, "D."), frame(2, "N."), frame(1, "N.")]);
    let shown: Vec<_> = sent.iter().map(|one| (one.verdict, payload(&one.frame))).collect();
    let pass = |text: &str| (ChainVerdict::Pass, text.to_owned());
    // The function numbers the packets of a session, dropped ones included.
    let expected =
        [pass("N1"), (ChainVerdict::Drop(DropReason::Acl), "D.".to_owned()), pass("N1"), pass("N3")];
    assert_eq!(shown, expected);
    // Checksums are right: the parser of the tests has verified them.
    assert!(
        sent.iter()
            .filter(|one| one.verdict == ChainVerdict::Pass)
            .all(|one| world::has_checksums(&one.frame))
    );
    let refused = world.send(&[frame(3, "R.")]);
    assert_eq!(refused[0].verdict, ChainVerdict::Refuse(DropReason::Acl));
}

fn order_is_kept_in_each_session() {
    let mut world = World::new(ONE);
    for round in 0..50 {
        let frames: Vec<_> = (0..60).map(|n| frame(n % 5, &format!("N.{round}-{n:02}"))).collect();
        let sent = world.send(&frames);
        for session in 0..5 {
            let of: Vec<_> = sent.iter().filter(|one| world::port(&one.frame) == session).collect();
            let numbers: Vec<_> = of.iter().map(|one| payload(&one.frame)[2..].to_owned()).collect();
            let expected: Vec<_> =
                (0..60).filter(|n| n % 5 == session).map(|n| format!("{round}-{n:02}")).collect();
            assert_eq!(numbers, expected);
        }
    }
    assert_eq!(world.value("p", "lost") + world.value("p", "rejected") + world.value("p", "no room"), 0);
}

fn sessions_begin_and_end() {
    let mut world = World::new(ONE);
    world.send(&[frame(1, "."), frame(2, ".")]);
    assert_eq!((world.value("p", "opened"), world.value("p", "released")), (2, 0));
    // The chain is replaced by one without the function.
    let lines = format!("{ONE}\nnf add m monitor");
    world.load(
        &lines.replace("chain add c p", "chain add c m").replace("nf add p probe process d", &lines_order()),
    );
    world.send(&[frame(1, ".")]);
    world.until("a session has left", |world| world.value("p", "released") == 1);
}

/// The instance stays, so its process does.
fn lines_order() -> String {
    "nf add p probe process d".to_owned()
}

fn long_frames_and_segments() {
    let mut world = World::new(ONE);
    for (bytes, expected) in [(9000, ChainVerdict::Pass), (65_000, ChainVerdict::Pass)] {
        let long = format!("L.{}", "x".repeat(bytes));
        let sent = world.send(&[frame(1, &long)]);
        assert_eq!(sent[0].verdict, expected);
        assert_eq!(usize::from(sent[0].frame[43]), sent[0].frame.len() % 251);
    }
    // The longest packet of IPv4, and the Ethernet header. Ports receive it in segments.
    let too_long = frame(1, &"x".repeat(65_507));
    assert_eq!(world.send(&[too_long])[0].verdict, ChainVerdict::Drop(DropReason::ProcessFull));
    assert_eq!(world.value("p", "no room"), 1);
}

fn two_processes_of_a_domain() {
    let lines = "domain add d private buffers 256\nnf add p probe process d\nnf add q probe process d\n\
                 nf add m monitor\nchain add c p | m | q";
    let mut world = World::new(lines);
    let sent = world.send(&[frame(1, "N."), frame(1, "N."), frame(1, "D."), frame(1, "N.")]);
    // The second function has not seen the dropped packet.
    let passed: Vec<_> = sent.iter().filter(|one| one.verdict == ChainVerdict::Pass).collect();
    assert_eq!(passed.iter().map(|one| payload(&one.frame)).collect::<Vec<_>>(), ["N1", "N2", "N3"]);
    assert_ne!(world.value("p", "pid"), world.value("q", "pid"));
    assert_ne!(world.value("p", "pid"), u64::from(std::process::id()));
}

/// A packet is copied into one buffer for all adjacent functions of a domain.
fn functions_of_a_domain_share_buffers() {
    for on_failure in ["drop", "pass"] {
        let mut world = World::new(&format!(
            "domain add d private buffers 256 on-failure {on_failure}\n\
             nf add p probe process d\nnf add q probe process d poll\nnf add r probe process d event\n\
             chain add c p | q | r"
        ));
        for _ in 0..10 {
            let sent = world.send(&(0..40).map(|n| frame(n % 5, "O..")).collect::<Vec<_>>());
            for one in sent {
                let payload = payload(&one.frame).into_bytes();
                assert_eq!(one.verdict, ChainVerdict::Pass);
                // The third function has overwritten the letter of the second one.
                assert_eq!(payload[1], payload[2], "{on_failure}: {payload:?}");
                assert!(world::has_checksums(&one.frame));
            }
        }
        let numbers = world.send(&[frame(1, "N."), frame(1, "D."), frame(1, "B"), frame(1, "N.")]);
        let verdicts: Vec<_> = numbers.iter().map(|one| one.verdict).collect();
        assert!(verdicts.contains(&ChainVerdict::Drop(DropReason::ProcessInvalid)), "{verdicts:?}");
        world.until("no buffer is in use", |world| {
            ["p", "q", "r"].iter().all(|name| world.value(name, "buffers") == 0)
        });
        // Each of the three ledgers caches at most a sixteenth.
        world.until("all buffers are free", |world| {
            let text = world.text("p", "free buffers");
            text.split(' ').next().is_some_and(|free| free.parse().is_ok_and(|free: u64| free >= 256 - 48))
        });
        assert_eq!(world.value("p", "rejected") + world.value("q", "rejected"), 0);
    }
}

/// A function moves into a process, to another mode, to another domain and back; its sessions go on.
fn functions_move_with_their_scratchpads() {
    let lines = |place: &str| {
        format!(
            "domain add d private buffers 256\ndomain add e private buffers 256\n\
             nf add p probe {place}\nchain add c p"
        )
    };
    let mut world = World::new(&lines(""));
    let mut expected = 0;
    for place in ["", "process d", "process d event", "process e poll", "", "process e", ""] {
        world.load(&lines(place));
        for _ in 0..2 {
            expected += 1;
            let sent = world.send(&[frame(1, "N."), frame(2, ".")]);
            let numbered = sent.iter().find(|one| world::port(&one.frame) == 1).unwrap();
            assert_eq!(numbered.verdict, ChainVerdict::Pass);
            assert_eq!(payload(&numbered.frame), format!("N{}", expected % 10), "{place}");
        }
        // The function knows both sessions where it runs now.
        assert_eq!(world.value("p", "opened"), 2, "{place}");
    }
}

fn settings_and_reports() {
    let world = World::new(ONE);
    let instance = world.instance("p");
    instance.set(&["blue", "green"]).unwrap();
    assert_eq!(world.text("p", "setting"), "blue green");
    assert_eq!(instance.set(&["wrong"]).unwrap_err().to_string(), "`wrong` is wrong");
    // What a terminal would execute.
    assert_eq!(instance.set(&["escape"]).unwrap_err().to_string(), "no  ]0;title more");
    assert_eq!(world.value("p", "restarts"), 0);
    assert!(world.text("p", "process").starts_with(&world.text("p", "pid")));
}

fn broken_headers_are_dropped() {
    let mut world = World::new(ONE);
    let sent = world.send(&[frame(1, "B"), frame(1, "N.")]);
    assert_eq!(sent[0].verdict, ChainVerdict::Drop(DropReason::ProcessInvalid));
    assert_eq!((sent[1].verdict, payload(&sent[1].frame).as_str()), (ChainVerdict::Pass, "N2"));
}

fn a_full_pool_drops() {
    let mut world = World::new("domain add d private buffers 64\nnf add p probe process d\nchain add c p");
    // The beginning of a session needs a buffer as well.
    let frames: Vec<_> = (0..100).map(|n| frame(n % 20, ".")).collect();
    let sent = world.send(&frames);
    let is_full = ChainVerdict::Drop(DropReason::ProcessFull);
    let dropped = sent.iter().filter(|one| one.verdict == is_full).count();
    assert_eq!((sent.len(), dropped), (100, 100 - (64 - 20)));
    world.until("all buffers are free", |world| world.free_buffers("p") == 64);
    assert_eq!(world.send(&[frame(1, ".")])[0].verdict, ChainVerdict::Pass);
}

fn functions_that_do_not_start() {
    let refused = |lines: &str| World::refused(lines);
    let domain = "domain add d private\n";
    assert_eq!(
        refused(&format!("{domain}nf add p probe process e")),
        "there is no domain `e`; `domain add e private` makes one"
    );
    assert_eq!(
        refused(&format!("{domain}nf add p probe exit process d")),
        "the process of `p` has not started: the process has ended (exit status 7)"
    );
    assert_eq!(
        refused(&format!("{domain}nf add p probe panic process d")),
        "the process of `p` has not started: the function panicked: no more words"
    );
    let chain = "chain add c p";
    let folder = tempfile::tempdir().unwrap();
    let file = |number: u8| {
        let path = folder.path().join(number.to_string());
        std::fs::write(&path, "a.example").unwrap();
        format!(" file {}", path.display())
    };
    let files: String = (0..33).map(file).collect();
    assert_eq!(
        refused(&format!("{domain}nf add p sni deny{files} process d")),
        "the process of `p` has not started: it reads more than 32 files: join some of them, or leave `process` out"
    );
    let polls = refused(&format!("{domain}nf add p proxy 192.0.2.10:80 process d poll"));
    assert_eq!(polls, "`p` works in brokers, whose processes sleep while nothing comes: leave `poll` out");
    let both = refused(&format!(
        "{domain}nf add u url-rewrite /a /b process d\nnf add p proxy 192.0.2.10:80\nchain add c u | p"
    ));
    assert_eq!(
        both,
        "`u` runs in domain `d` and `p` in the daemon: the functions of a chain of brokers run all in the daemon, \
         or in the same domain and on the same `cpu`"
    );
    let sends = refused(&format!("{domain}nf add p mirror near process d\n{chain}"));
    assert_eq!(sends, "`p` sends frames, which a function in a process cannot do: leave `process` out");
    let behind = refused(&format!("{domain}nf add f flow\nnf add p probe process d\nchain add c f | p"));
    assert_eq!(behind, "`p` runs in a process and cannot be behind `f`: put it before `f`");
    assert_eq!(refused(&format!("{domain}nf add p probe refuse process d")), "`refuse` is refused");
}

fn nothing_is_allowed() {
    let mut world = World::new(ONE);
    world.send(&[frame(1, "S")]);
    assert_eq!(world.text("p", "allowed"), "tried");
    let pid = world.value("p", "pid");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line =
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{status}"));
        line.trim().to_owned()
    };
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1".into(), "2".into()));
    assert_eq!((field("CapEff:"), field("CapBnd:")), ("0000000000000000".into(), "0000000000000000".into()));
    // What it writes to the standard error output is not in the log.
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/fd/2")).unwrap().to_str(), Some("/dev/null"));
    // Another network, and other name spaces.
    for space in ["net", "ipc", "uts"] {
        let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/{space}")).unwrap();
        assert_ne!(of(&pid.to_string()), of("self"), "{space}");
    }
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    assert!(limits.lines().any(|line| line.starts_with("Max open files            16")), "{limits}");
    // Standard input and outputs, and what the memory and the bell need.
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert!(files <= 8, "{files}");
}
