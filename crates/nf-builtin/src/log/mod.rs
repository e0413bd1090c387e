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
use mmb_nf::{
    ArgError, Background, ConstantRewrite, Context, Function, Key, Packet, Properties, SessionInfo, Setup,
    Verdict,
};

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

    fn properties(&self) -> Properties {
        Properties { takes_large_frames: true, ..Properties::default() }
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

    fn constant_rewrite(&self, (): &()) -> Option<ConstantRewrite> {
        Some(ConstantRewrite::default())
    }

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
mod tests;
