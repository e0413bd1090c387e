//! What a command answers, before it is decided whether people or programs read it.

use std::io::{self, Write};

use crate::api::*;
use crate::connections::Listing;
use crate::control::Control;
use crate::fast;
use crate::fib::FibListing;
use crate::render;

/// A command's answer.
#[derive(Clone, Debug)]
pub enum Output {
    /// A blank line or a comment.
    Nothing,
    /// A change was carried out.
    Done(Done),
    /// `list`.
    Rules(RuleList),
    /// `show tables`, verbose or not.
    Tables(TableList, bool),
    /// `show interfaces`, verbose or not.
    Interfaces(InterfaceList, bool),
    /// `show runtime`, verbose or not.
    Runtime(Box<Runtime>, bool),
    /// `show drops`, verbose or not.
    Drops(DropList, bool),
    /// `show fields`.
    Fields(FieldList),
    /// `show connections`: found while it is written.
    Connections(Box<Listing>),
    /// `clear connections`.
    Cleared(ClearReply),
    /// `show nat`.
    Nat(NatReply),
    /// `show chains`, verbose or not.
    Chains(Box<ChainList>, bool),
    /// `show functions`, verbose or not.
    Functions(Box<FunctionList>, bool),
    /// `show fast-path`, verbose or not.
    FastPath(Box<FastPathReply>, bool),
    /// `show fib`: asked for while it is written.
    Fib(FibListing),
    /// `show neighbors`.
    Neighbors(NeighborList),
    /// `show version`.
    Version(VersionEntry),
    /// `show config`.
    Config(ConfigEntry),
}

impl Output {
    /// Writes it for people: ends with a line feed unless there is nothing to say. `control` is what answered.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write_text(&self, control: &Control, out: &mut dyn Write) -> io::Result<()> {
        let text = match self {
            Output::Nothing => String::new(),
            Output::Done(done) => format!("{}\n", done.done),
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
            Output::FastPath(reply, verbose) => fast::render(reply, *verbose),
            Output::Fib(listing) => return control.write_fib(listing, out),
            Output::Neighbors(list) => render::neighbors(list),
            Output::Version(version) => render::version(version),
            Output::Config(entry) => entry.config.clone(),
        };
        out.write_all(text.as_bytes())
    }

    /// Writes it for programs: one JSON document, always complete, whatever `verbose` says.
    ///
    /// # Errors
    /// What the writer says.
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
            Output::FastPath(reply, _) => serde_json::to_writer(out, reply),
            Output::Fib(listing) => return control.write_fib_json(listing, out),
            Output::Neighbors(list) => serde_json::to_writer(out, list),
            Output::Version(version) => serde_json::to_writer(out, version),
            Output::Config(entry) => serde_json::to_writer(out, entry),
        };
        Ok(written?)
    }

    /// Writes it as a [`CommandReply`] with the parts that are wanted.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write_reply(&self, format: Format, control: &Control, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"{")?;
        if format != Format::Json {
            out.write_all(b"\"text\":\"")?;
            self.write_text(control, &mut InString(out))?;
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

/// Writes text into a JSON string (RFC 8259 section 7).
struct InString<'a>(&'a mut dyn Write);

impl Write for InString<'_> {
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
    fn text_in_a_string_reads_back() {
        let text: String =
            (0..0x250).filter_map(char::from_u32).chain("a\r\n\"b\"\\ \u{1f600}\n".chars()).collect();
        let mut json = b"\"".to_vec();
        // In pieces, as text comes.
        for piece in text.as_bytes().chunks(7) {
            InString(&mut json).write_all(piece).unwrap();
        }
        json.push(b'"');
        assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), text);
    }
}
