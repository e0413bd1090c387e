//! `capture`: packets as they come in and leave, as lines of text or as a pcapng file.

mod pcapng;
mod session;

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use mmb_dataplane::{LiveTrace, PacketTrace, PortId, TraceDetail, TraceEnd, TraceSelection, TraceStep};
use mmb_lang::{CaptureSelection, Match};
use mmb_policy::explain::HeaderFields;

use self::pcapng::{Direction, PcapngWriter};
use self::session::CapturedSession;
use super::ports::PortNames;
use super::trace::{for_each_packet, packet_filter, summary};
use crate::api::CapturedEntry;
use crate::config::Config;
use crate::error::CommandError;
use crate::render;
use crate::transaction::Control;

/// Packets of `capture`, written while they are processed.
#[derive(Clone)]
pub struct CaptureListing {
    trace: Arc<LiveTrace>,
    config: Arc<Config>,
    names: PortNames,
    /// Number of packets, and time in seconds.
    limits: (u32, Option<u32>),
    session: Option<Arc<CapturedSession>>,
}

impl fmt::Debug for CaptureListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureListing").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Control {
    /// `capture`. Checks the matches and begins.
    pub(crate) fn capture(
        &self,
        matches: &[Match],
        selection: &CaptureSelection,
    ) -> Result<CaptureListing, CommandError> {
        let config = self.state().config;
        let mut filter = packet_filter(matches, &config)?;
        let rule = selection.rule.as_ref().map(|rule| config.rule_index(rule)).transpose()?;
        let session = selection.session.map(|name| CapturedSession::find(self.engine(), name)).transpose()?;
        let session = session.map(Arc::new);
        if let (Some(session), None) = (&session, &filter) {
            filter = Some(session.filter(&config)?);
        }
        let (wanted, drops) = (session.clone(), selection.drops);
        let wants = Arc::new(move |trace: &PacketTrace| {
            is_wanted(trace, drops, rule) && wanted.as_ref().is_none_or(|session| session.has(trace))
        });
        let traced = TraceSelection { filter, wants, count: selection.count, detail: TraceDetail::Ends };
        let (trace, names) = (Arc::new(self.begin_trace(&traced)?), PortNames::of(&config));
        let limits = (selection.count, selection.seconds);
        Ok(CaptureListing { trace, config: Arc::new(config), names, limits, session })
    }
}

/// Whether a packet is dropped, if only those are wanted, and the rule with this index applies, if any.
fn is_wanted(trace: &PacketTrace, drops: bool, rule: Option<u32>) -> bool {
    let applies = |index: u32| {
        let matches = trace.rules.as_ref().is_some_and(|rules| rules.matched.contains(&index));
        matches || trace.session.as_ref().is_some_and(|session| session.view.rules.contains(&index))
    };
    let is_dropped = matches!(trace.end, TraceEnd::Dropped(_));
    (is_dropped || !drops) && rule.is_none_or(applies)
}

impl CaptureListing {
    /// Writes a line for each packet, as soon as it has left the graph.
    pub(crate) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        self.for_each(out, |out, trace| out.write_all(render::captured(&self.entry(trace)).as_bytes()))?;
        match self.trace.missed() {
            0 => {}
            missed => writeln!(out, "{missed} more were not captured: they came too fast")?,
        }
        self.session_end().map_or(Ok(()), |sentence| writeln!(out, "{sentence}"))
    }

    /// A sentence, if the session that is captured has ended.
    fn session_end(&self) -> Option<String> {
        self.session.as_ref()?.end()
    }

    /// Writes a [`crate::api::CaptureList`], one packet per line.
    pub(crate) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut separator = "\n";
        out.write_all(b"{\"packets\":[")?;
        self.for_each(out, |mut out, trace| {
            out.write_all(separator.as_bytes())?;
            separator = ",\n";
            Ok(serde_json::to_writer(&mut out, &self.entry(trace))?)
        })?;
        write!(out, "],\"missed\":{}", self.trace.missed())?;
        if let Some(sentence) = self.session_end() {
            write!(out, ",\"session_end\":{}", serde_json::Value::String(sentence))?;
        }
        out.write_all(b"}")
    }

    /// Writes a pcapng file: each packet as it came in, with a comment if it was dropped, and as it left.
    pub(crate) fn write_pcapng(&self, out: &mut dyn Write) -> io::Result<()> {
        let interfaces: Vec<_> = self.config.interfaces().iter().map(|i| (i.id, i.name.clone())).collect();
        let writer = PcapngWriter::new(interfaces);
        writer.begin(out)?;
        out.flush()?;
        self.for_each(out, |out, trace| self.write_packet(&writer, out, trace))?;
        writer.end(out, self.trace.missed(), &self.session_end().unwrap_or_default())
    }

    fn write_packet(
        &self,
        writer: &PcapngWriter,
        out: &mut dyn Write,
        trace: &PacketTrace,
    ) -> io::Result<()> {
        let comment = render::capture_comment(&self.entry(trace));
        if let Some(first) = trace.steps.first() {
            writer.packet(
                out,
                (trace.in_port, Direction::In),
                trace.time_ns,
                (&first.head, first.len),
                &comment,
            )?;
        }
        match (trace.end, trace.steps.last()) {
            (TraceEnd::Sent(port), Some(last)) if trace.steps.len() > 1 => {
                writer.packet(out, (port, Direction::Out), trace.time_ns, (&last.head, last.len), "")
            }
            _ => Ok(()),
        }
    }

    fn entry(&self, trace: &PacketTrace) -> CapturedEntry {
        let first = trace.steps.first();
        let describe = |step: &TraceStep| match HeaderFields::parse(
            &step.head,
            step.len,
            [trace.in_port.0, PortId::NONE.0],
        ) {
            Ok(fields) => summary(&fields),
            Err(reason) => format!("malformed: {reason}"),
        };
        let summary = first.map(describe).unwrap_or_default();
        let last = trace.steps.last().filter(|_| matches!(trace.end, TraceEnd::Sent(_)));
        let summary_out = last.map(describe).filter(|out| *out != summary);
        let (out, reason) = match trace.end {
            TraceEnd::Sent(port) => (self.names.get(port), None),
            TraceEnd::Dropped(reason) => (None, Some(reason.name().to_owned())),
            TraceEnd::HandedOver | TraceEnd::Consumed | TraceEnd::Kept => (None, None),
        };
        let decider = trace.rules.as_ref().and_then(|rules| rules.decider);
        let rule = decider.and_then(|index| self.config.policy().rule(index));
        CapturedEntry {
            time_ns: trace.time_ns,
            in_: self.names.get(trace.in_port),
            out,
            length: first.map_or(0, |step| step.len as u64),
            summary,
            summary_out,
            reason,
            rule: rule.map(|rule| rule.index),
            rule_text: rule.map(|rule| rule.text.to_owned()),
        }
    }

    fn for_each(
        &self,
        out: &mut dyn Write,
        write: impl FnMut(&mut dyn Write, &PacketTrace) -> io::Result<()>,
    ) -> io::Result<()> {
        let is_over = || self.session.as_ref().is_some_and(|session| session.has_ended());
        for_each_packet(&self.trace, self.limits, is_over, out, write)
    }
}
