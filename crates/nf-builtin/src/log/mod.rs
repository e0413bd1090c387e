//! `log`: a line when a session begins, and one when it ends.
//!
//! Lines go to the standard error output of the daemon (under systemd: the journal), or to a file. A thread
//! of the instance writes them. Events that do not fit its queues are lost, and a line tells how many.

use std::fmt::Write;
use std::sync::Arc;
use std::time::SystemTime;

use crate::shared::endpoints::Endpoints;
use crate::shared::export_queue::{ClockReading, ExportQueue};
use crate::shared::log_file::LogFile;
use mmb_nf::{ArgError, Background, Context, Function, Key, Packet, SessionInfo, Setup, Verdict};

/// See the module's documentation.
pub(crate) struct Log {
    begin: bool,
    end: bool,
    file: LogFile,
    prefix: Arc<str>,
    outbox: Arc<ExportQueue<Event>>,
}

/// The event of a line.
#[derive(Clone, Copy, Debug)]
struct Event {
    what: What,
    at: u32,
    key: Key,
    onward: Key,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Begin,
    /// The instance has joined the chain of an existing session.
    Join,
    End {
        milliseconds: u32,
        packets: [u64; 2],
        bytes: [u64; 2],
    },
}

impl Function for Log {
    const TYPE: &'static str = "log";
    const USAGE: &'static str = "[begin|end] [file PATH] [prefix TEXT]";
    const HELP: &'static str = "writes a line when a session begins and when it ends";

    type Pad = ();
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let outbox = Arc::new(ExportQueue::new(setup.workers));
        let mut log =
            Log { begin: true, end: true, file: LogFile::default(), prefix: "session".into(), outbox };
        let mut words = setup.args;
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("begin", rest) => {
                    (log.begin, log.end) = (true, false);
                    rest
                }
                ("end", rest) => {
                    (log.begin, log.end) = (false, true);
                    rest
                }
                ("file", [path, rest @ ..]) => {
                    log.file = LogFile::at(path, setup.files)?;
                    rest
                }
                ("prefix", [text, ..]) if text.contains(char::is_control) => {
                    return Err(ArgError::invalid("prefix", text, "must not have control characters"));
                }
                ("prefix", [text, rest @ ..]) => {
                    log.prefix = (*text).into();
                    rest
                }
                ("file", []) => return Err("`file` needs a path".into()),
                ("prefix", []) => return Err("`prefix` needs a text".into()),
                _ => return Err(ArgError::unknown::<Self>(word)),
            };
        }
        Ok(log)
    }

    fn open(&self, _: &mut (), session: &SessionInfo, cx: &mut Context<'_, ()>) {
        if self.begin {
            let what = if session.created == cx.now { What::Begin } else { What::Join };
            self.put(what, session, cx);
        }
    }

    #[inline(always)]
    fn packet(&self, _: &mut Packet<'_>, _: &mut (), _: &mut Context<'_, ()>) -> Verdict {
        Verdict::Pass
    }

    fn vector(&self, _: &mut mmb_nf::Vector<'_, '_, Self>) {}

    fn release(&self, _: &mut (), session: &SessionInfo, cx: &mut Context<'_, ()>) {
        if self.end {
            let milliseconds = cx.now.wrapping_sub(session.created);
            self.put(What::End { milliseconds, packets: session.packets, bytes: session.bytes }, session, cx);
        }
    }

    fn report(&self) -> Vec<(String, String)> {
        self.outbox.report()
    }

    fn background(&self) -> Option<Background> {
        let (outbox, prefix) = (Arc::clone(&self.outbox), Arc::clone(&self.prefix));
        let lines = self.file.clone();
        Some(Box::new(move |stop| {
            let mut lost = 0;
            outbox.serve(stop, |events| {
                let mut text = String::new();
                events.iter().for_each(|(times, event)| line(&mut text, &prefix, times, event));
                let (before, now) = (lost, outbox.lost());
                if now > before {
                    let day = humantime::format_rfc3339_millis(SystemTime::now());
                    let _ = writeln!(text, "{day} {prefix}: {} lines lost: too many at once", now - before);
                    lost = now;
                }
                outbox.record(events.len(), lines.append(&text));
            });
        }))
    }
}

impl Log {
    fn put(&self, what: What, session: &SessionInfo, cx: &Context<'_, ()>) {
        let event = Event { what, at: cx.now, key: session.key, onward: session.egress_key };
        self.outbox.put(cx.worker, cx.now, event);
    }
}

/// Appends a line about an event. Writing to a string does not fail.
fn line(text: &mut String, prefix: &str, times: &ClockReading, event: &Event) {
    let day = humantime::format_rfc3339_millis(times.of(event.at));
    let word = match event.what {
        What::Begin => "begin",
        What::Join => "join",
        What::End { .. } => "end",
    };
    let ends = Endpoints::of(&event.key);
    let _ = write!(text, "{day} {prefix}: {word} {} {ends}", ends.protocol());
    if event.onward != event.key {
        let _ = write!(text, " as {}", Endpoints::of(&event.onward));
    }
    if let What::End { milliseconds, packets: [to, back], bytes: [bytes_to, bytes_back] } = event.what {
        let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
        let _ = write!(
            text,
            " packets {to} + {back} bytes {bytes_to} + {bytes_back} seconds {seconds}.{rest:03}"
        );
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
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
    fn a_line_each() {
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
    fn only_one_of_them() {
        for (words, word) in [("begin prefix web", "web: begin"), ("end", "session: end")] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut bench =
                Bench::<Log>::new(&format!("{words} file {}", folder.path().join("log").display()));
            let session = bench.open(&frame(1));
            bench.release(session);
            let lines = lines(&bench);
            assert!(lines.len() == 1 && lines[0].starts_with(word), "{lines:?}");
        }
    }

    #[test]
    fn what_is_lost_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut bench = Bench::<Log>::new(&format!("begin file {}", folder.path().join("log").display()));
        for _ in 0..16_384 + 5 {
            bench.open(&frame(1));
        }
        let lines = lines(&bench);
        assert_eq!(
            (lines.len(), lines[16_384].as_str()),
            (16_385, "session: 5 lines lost: too many at once")
        );
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
    fn what_is_refused() {
        assert_eq!(refused::<Log>("file"), "`file` needs a path");
        assert_eq!(refused::<Log>("prefix"), "`prefix` needs a text");
        assert!(refused::<Log>("prefix x\u{1b}[2J").contains("must not have control characters"));
        assert!(refused::<Log>("file /tmp/x\u{7f}").contains("control characters"));
        assert!(refused::<Log>("loud").contains("unknown argument `loud`"));
    }
}
