//! The output of a command, as text or JSON.

use std::io::{self, Write};

use crate::api::*;
use crate::query::{CaptureListing, ConnectionListing, FibListing, TraceListing};
use crate::render;
use crate::transaction::Control;

/// The output of a command.
#[derive(Clone, Debug)]
pub enum Output {
    /// A blank line or a comment.
    Nothing,
    /// A change was made.
    Done(Done),
    /// `list`.
    Rules(RuleList),
    /// `show tables`, and whether verbose.
    Tables(TableList, bool),
    /// `show interfaces`, and whether verbose.
    Interfaces(InterfaceList, bool),
    /// `show runtime`, and whether verbose.
    Runtime(Box<Runtime>, bool),
    /// `show drops`, and whether verbose.
    Drops(DropList, bool),
    /// `show fields`.
    Fields(FieldList),
    /// `show connections`; sessions are read while they are written.
    Connections(Box<ConnectionListing>),
    /// `clear connections`.
    Cleared(ClearReply),
    /// `show nat`.
    Nat(NatReply),
    /// `show chains`, and whether verbose.
    Chains(Box<ChainList>, bool),
    /// `show functions`, and whether verbose.
    Functions(Box<FunctionList>, bool),
    /// `show domains`, and whether verbose.
    Domains(DomainList, bool),
    /// `show brokers`, and whether verbose.
    Brokers(BrokerList, bool),
    /// `show sets`.
    Sets(SetList),
    /// `show set NAME`.
    SetElements(SetElementList),
    /// `show fast-path`, and whether verbose.
    FastPath(Box<FastPathReply>, bool),
    /// `show fib`; routes are read while they are written.
    Fib(FibListing),
    /// `trace`; packets are written while they are processed.
    Trace(Box<TraceListing>),
    /// `capture`; packets are written while they are processed.
    Capture(Box<CaptureListing>),
    /// `show neighbors`.
    Neighbors(NeighborList),
    /// `show version`.
    Version(VersionEntry),
    /// `show config`.
    Config(ConfigEntry),
    /// `history`.
    History(HistoryList),
    /// `history N`.
    RevisionDiff(DiffReply),
}

impl Output {
    /// Writes the output as text, with a line feed at its end unless it is empty. Control characters, which
    /// users or packets may have supplied, are escaped. `control` is the one that ran the command.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_text(&self, control: &Control, out: &mut dyn Write) -> io::Result<()> {
        let out = &mut TerminalText { out, has_lead: false };
        let text = match self {
            Output::Nothing => String::new(),
            Output::Done(done) => render::done(done),
            Output::Rules(list) => render::rules(list),
            Output::Tables(list, verbose) => render::tables(list, *verbose),
            Output::Interfaces(list, verbose) => render::interfaces(list, *verbose),
            Output::Runtime(runtime, verbose) => render::runtime(runtime, *verbose),
            Output::Drops(list, verbose) => render::drops(list, *verbose),
            Output::Fields(list) => render::fields(list),
            Output::Connections(listing) => return control.write_connections(listing, out),
            Output::Cleared(reply) => format!("{}\n", reply.done),
            Output::Nat(reply) => render::nat(reply),
            Output::Chains(list, verbose) => render::chains(list, *verbose),
            Output::Functions(list, verbose) => render::functions(list, *verbose),
            Output::Domains(list, verbose) => render::domains(list, *verbose),
            Output::Brokers(list, verbose) => render::brokers(list, *verbose),
            Output::Sets(list) => render::sets(list),
            Output::SetElements(list) => render::set_elements(list),
            Output::FastPath(reply, verbose) => render::fast_path(reply, *verbose),
            Output::Fib(listing) => return control.write_fib(listing, out),
            Output::Trace(listing) => return listing.write_text(out),
            Output::Capture(listing) => return listing.write_text(out),
            Output::Neighbors(list) => render::neighbors(list),
            Output::Version(version) => render::version(version),
            Output::Config(entry) => entry.config.clone(),
            Output::History(list) => render::history(list),
            Output::RevisionDiff(diff) => render::diff(diff),
        };
        out.write_all(text.as_bytes())
    }

    /// Writes the output as one JSON document, which is complete with and without `verbose`.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_json(&self, control: &Control, out: &mut dyn Write) -> io::Result<()> {
        let written = match self {
            Output::Nothing => return out.write_all(b"{}"),
            Output::Done(done) => serde_json::to_writer(out, done),
            Output::Rules(list) => serde_json::to_writer(out, list),
            Output::Tables(list, _) => serde_json::to_writer(out, list),
            Output::Interfaces(list, _) => serde_json::to_writer(out, list),
            Output::Runtime(runtime, _) => serde_json::to_writer(out, runtime),
            Output::Drops(list, _) => serde_json::to_writer(out, list),
            Output::Fields(list) => serde_json::to_writer(out, list),
            Output::Connections(listing) => return control.write_connections_json(listing, out),
            Output::Cleared(reply) => serde_json::to_writer(out, reply),
            Output::Nat(reply) => serde_json::to_writer(out, reply),
            Output::Chains(list, _) => serde_json::to_writer(out, list),
            Output::Functions(list, _) => serde_json::to_writer(out, list),
            Output::Domains(list, _) => serde_json::to_writer(out, list),
            Output::Brokers(list, _) => serde_json::to_writer(out, list),
            Output::Sets(list) => serde_json::to_writer(out, list),
            Output::SetElements(list) => serde_json::to_writer(out, list),
            Output::FastPath(reply, _) => serde_json::to_writer(out, reply),
            Output::Fib(listing) => return control.write_fib_json(listing, out),
            Output::Trace(listing) => return listing.write_json(out),
            Output::Capture(listing) => return listing.write_json(out),
            Output::Neighbors(list) => serde_json::to_writer(out, list),
            Output::Version(version) => serde_json::to_writer(out, version),
            Output::Config(entry) => serde_json::to_writer(out, entry),
            Output::History(list) => serde_json::to_writer(out, list),
            Output::RevisionDiff(diff) => serde_json::to_writer(out, diff),
        };
        Ok(written?)
    }

    /// Writes a capture as a pcapng file.
    ///
    /// # Errors
    /// Those of the writer; and another output than a capture.
    pub fn write_pcapng(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Output::Capture(listing) => listing.write_pcapng(out),
            _ => Err(io::Error::other("only `capture` has packets")),
        }
    }

    /// Writes the output as a [`CommandReply`] with the parts of `format`.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_reply(&self, format: Format, control: &Control, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"{")?;
        if format != Format::Json {
            out.write_all(b"\"text\":\"")?;
            self.write_text(control, &mut JsonString(out))?;
            out.write_all(b"\"")?;
        }
        if format == Format::Both {
            out.write_all(b",")?;
        }
        if format != Format::Text {
            out.write_all(b"\"json\":")?;
            self.write_json(control, out)?;
        }
        out.write_all(b"}")
    }
}

/// Writes text for a terminal: control characters except line feeds become `\u{1b}`.
struct TerminalText<'a> {
    out: &'a mut dyn Write,
    /// Whether the last byte was the first one of U+0080 to U+00bf.
    has_lead: bool,
}

/// The first byte of U+0080 to U+00bf in UTF-8. The control characters U+0080 to U+009f are among them.
const LEAD: u8 = 0xc2;

impl Write for TerminalText<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            if std::mem::take(&mut self.has_lead) {
                rest = after;
                match byte {
                    0x80..0xa0 => write!(self.out, "\\u{{{byte:x}}}")?,
                    _ => self.out.write_all(&[LEAD, byte])?,
                }
                continue;
            }
            let is_special = |byte: &u8| *byte != b'\n' && matches!(*byte, 0..0x20 | 0x7f | LEAD);
            let plain = rest.iter().position(is_special).unwrap_or(rest.len());
            let (text, special) = rest.split_at(plain);
            self.out.write_all(text)?;
            rest = special;
            if let Some((&byte, after)) = special.split_first() {
                rest = after;
                self.has_lead = byte == LEAD;
                if !self.has_lead {
                    write!(self.out, "\\u{{{byte:x}}}")?;
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes text into a JSON string (RFC 8259 section 7).
struct JsonString<'a>(&'a mut dyn Write);

impl Write for JsonString<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|b| matches!(b, b'"' | b'\\' | 0..0x20)) {
            let Some((last, before)) = piece.split_last() else { continue };
            self.0.write_all(before)?;
            match last {
                b'\n' => self.0.write_all(b"\\n")?,
                b'"' | b'\\' => self.0.write_all(&[b'\\', *last])?,
                0..0x20 => write!(self.0, "\\u{last:04x}")?,
                _ => self.0.write_all(&[*last])?,
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_reach_no_terminal() {
        let text = "a\x1b[2J\u{9b}1m\x7f\r\t\u{a0}\u{bf}é…\u{1f600}\nb\n";
        let expected = "a\\u{1b}[2J\\u{9b}1m\\u{7f}\\u{d}\\u{9}\u{a0}\u{bf}é…\u{1f600}\nb\n";
        for len in [1, 2, 3, 100] {
            let mut out = Vec::new();
            let mut terminal = TerminalText { out: &mut out, has_lead: false };
            text.as_bytes().chunks(len).for_each(|piece| terminal.write_all(piece).unwrap());
            assert_eq!(std::str::from_utf8(&out), Ok(expected), "in pieces of {len}");
        }
    }

    #[test]
    fn text_in_a_json_string_reads_back() {
        let text: String =
            (0..0x250).filter_map(char::from_u32).chain("a\r\n\"b\"\\ \u{1f600}\n".chars()).collect();
        let mut json = b"\"".to_vec();
        // In pieces, as a writer gets them.
        for piece in text.as_bytes().chunks(7) {
            JsonString(&mut json).write_all(piece).unwrap();
        }
        json.push(b'"');
        assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), text);
    }
}
