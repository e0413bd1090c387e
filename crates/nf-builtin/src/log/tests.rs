//! Tests of the parent module.

use std::time::Duration;

use mmb_packet::build::{Frame, Ip4, Udp};

use super::*;
use mmb_nf::StopSignal;
use mmb_nf::testing::{Bench, Forward, key_of_frame, refused};

fn frame(source: u8) -> Vec<u8> {
    Frame::new(Ip4::new([10, 0, 0, source], [10, 0, 0, 2]), Udp::new(5000, 53)).build()
}

/// Returns the lines without their times.
fn lines(bench: &Bench<Log>) -> Vec<String> {
    let (background, stop) = (bench.function.background().expect("there is some"), StopSignal::default());
    stop.stop();
    background(&stop);
    let path = bench.function.file.path().expect("to a file");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| line.split_once(' ').expect("a time").1.to_string()).collect()
}

#[test]
fn each_event_has_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let mut bench = Bench::<Log>::new(&format!("file {}", path.display()));
    let a = bench.open(&frame(1));
    assert_eq!(bench.packet(a, Forward, &frame(1)).verdict, Verdict::Pass);
    let mut inside = key_of_frame(&frame(7));
    bench.now += 70_000;
    let b = bench.open_key(inside, inside);
    inside.source_port = [0, 9];
    bench.info(b).egress_key = inside;
    *bench.info(a) = SessionInfo { packets: [3, 1], bytes: [180, 1500], ..*bench.info(a) };
    bench.now += 34;
    bench.release(a);
    bench.release(b);
    assert_eq!(
        lines(&bench),
        [
            "session: begin udp 10.0.0.1:5000 -> 10.0.0.2:53",
            "session: begin udp 10.0.0.7:5000 -> 10.0.0.2:53",
            "session: end udp 10.0.0.1:5000 -> 10.0.0.2:53 packets 3 + 1 bytes 180 + 1500 seconds 70.034",
            "session: end udp 10.0.0.7:5000 -> 10.0.0.2:53 as 10.0.0.7:9 -> 10.0.0.2:53 packets 0 + 0 bytes 0 + 0 \
             seconds 0.034",
        ]
    );
    let report = bench.function.report();
    assert_eq!(report[0], ("written".into(), "4".to_string()));
}

#[test]
fn one_kind_of_event_can_be_selected() {
    for (words, word) in [("begin prefix web", "web: begin"), ("end", "session: end")] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut bench = Bench::<Log>::new(&format!("{words} file {}", folder.path().join("log").display()));
        let session = bench.open(&frame(1));
        bench.release(session);
        let lines = lines(&bench);
        assert!(lines.len() == 1 && lines[0].starts_with(word), "{lines:?}");
    }
}

#[test]
fn lost_lines_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bench = Bench::<Log>::new(&format!("begin file {}", folder.path().join("log").display()));
    for _ in 0..16_384 + 5 {
        bench.open(&frame(1));
    }
    let lines = lines(&bench);
    assert_eq!((lines.len(), lines[16_384].as_str()), (16_385, "session: 5 lines lost: too many at once"));
}

#[test]
fn the_time_is_that_of_the_event() {
    let key = key_of_frame(&frame(1));
    let times = ClockReading::at(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400), 5_000);
    let mut text = String::new();
    line(&mut text, "x", &times, &Event { what: What::Join, at: 3_750, key, onward: key });
    assert_eq!(text, "1970-01-01T23:59:58.750Z x: join udp 10.0.0.1:5000 -> 10.0.0.2:53\n");
}

#[test]
fn invalid_arguments_are_refused() {
    assert_eq!(refused::<Log>("file"), "`file` needs a path");
    assert_eq!(refused::<Log>("prefix"), "`prefix` needs a text");
    assert!(refused::<Log>("prefix x\u{1b}[2J").contains("must not have control characters"));
    assert!(refused::<Log>("file /tmp/x\u{7f}").contains("control characters"));
    assert!(refused::<Log>("loud").contains("unknown argument `loud`"));
}
