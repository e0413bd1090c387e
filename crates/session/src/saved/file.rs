//! The bytes in which saved sessions are stored, with the names of what they refer to.
//!
//! Theory of operation. A file has a head, the names of ports, rules and pools, the lists of rules, the
//! sessions, and a checksum of all that. Integers of the head, the names and the lists are little-endian.
//! Sessions are copies of memory: the head has their size, and a number by which a reader with another byte
//! order refuses them. [`VERSION`] changes with any change of meaning. Nothing is read before the checksum is
//! right, and nothing is trusted then: the checksum finds damage, not forgery.
//!
//! The checksum is SipHash-2-4 with a key of zeros.

use std::hash::Hasher;
use std::io::{self, Write};

use siphasher::sip::SipHasher24;

use super::{SavedRule, SavedSession, SavedSessions};

/// Version of the format.
pub const VERSION: u32 = 1;

/// The first bytes of a file.
const MAGIC: [u8; 8] = *b"mmb-sess";
/// Written in native byte order.
const BYTE_ORDER: u32 = 0x0102_0304;
/// Marks a rule that translates the session, in a list.
const TRANSLATES: u32 = 1 << 31;
/// Bytes of the checksum.
const CHECKSUM: usize = 8;

/// Why a file of sessions is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionFileError {
    /// It begins otherwise.
    #[error("it is not a file of sessions")]
    Foreign,
    /// The version is another one.
    #[error("its format is of version {0}, and this program reads version {VERSION}")]
    Version(u32),
    /// Byte order or sizes are others.
    #[error("it comes from a machine of another kind")]
    Machine,
    /// Bytes are missing or wrong.
    #[error("it is truncated or damaged")]
    Damaged,
}

/// The contents of a file.
#[derive(Clone, Debug, Default)]
pub struct SessionFile {
    /// The daemon that has written it.
    pub owner: String,
    /// When it was written, in milliseconds since 1970.
    pub saved_at: u64,
    /// Numbers and names of the ports.
    pub ports: Vec<(u16, String)>,
    /// Slots and texts of the rules.
    pub rules: Vec<(u32, String)>,
    /// Names of the pools, by their numbers.
    pub pools: Vec<String>,
    /// Interfaces that pools follow, and their addresses.
    pub followed: Vec<(String, [u8; 4])>,
    /// The sessions.
    pub saved: SavedSessions,
}

/// Passes bytes on and computes their checksum.
struct Output<'a, W> {
    inner: &'a mut W,
    checksum: SipHasher24,
}

impl<W: Write> Output<'_, W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum.write(bytes);
        self.inner.write_all(bytes)
    }

    fn number(&mut self, number: usize) -> io::Result<()> {
        let number = u32::try_from(number).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.put(&number.to_le_bytes())
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.number(text.len())?;
        self.put(text.as_bytes())
    }
}

impl SessionFile {
    /// Writes the file. `out` should have a buffer.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut out = Output { inner: out, checksum: SipHasher24::new() };
        out.put(&MAGIC)?;
        out.put(&VERSION.to_le_bytes())?;
        out.put(&BYTE_ORDER.to_ne_bytes())?;
        out.number(size_of::<SavedSession>())?;
        out.put(&self.saved_at.to_le_bytes())?;
        out.text(&self.owner)?;
        out.number(self.ports.len())?;
        for (number, name) in &self.ports {
            out.number(usize::from(*number))?;
            out.text(name)?;
        }
        out.number(self.rules.len())?;
        for (slot, text) in &self.rules {
            out.put(&slot.to_le_bytes())?;
            out.text(text)?;
        }
        out.number(self.pools.len())?;
        self.pools.iter().try_for_each(|name| out.text(name))?;
        out.number(self.followed.len())?;
        for (name, address) in &self.followed {
            out.text(name)?;
            out.put(address)?;
        }
        out.number(self.saved.lists.len())?;
        for list in &self.saved.lists {
            out.number(list.len())?;
            for rule in list {
                let word = rule.slot | if rule.translates { TRANSLATES } else { 0 };
                out.put(&word.to_le_bytes())?;
            }
        }
        out.number(self.saved.sessions.len())?;
        self.saved.sessions.chunks(1024).try_for_each(|chunk| out.put(bytemuck::cast_slice(chunk)))?;
        let checksum = out.checksum.finish();
        out.inner.write_all(&checksum.to_le_bytes())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`SessionFileError`].
    pub fn read(bytes: &[u8]) -> Result<SessionFile, SessionFileError> {
        let mut head = Input(bytes);
        if head.take().ok() != Some(MAGIC) {
            return Err(SessionFileError::Foreign);
        }
        match head.number()? {
            VERSION => {}
            other => return Err(SessionFileError::Version(other)),
        }
        if head.take()? != BYTE_ORDER.to_ne_bytes() || head.number()? as usize != size_of::<SavedSession>() {
            return Err(SessionFileError::Machine);
        }
        let (content, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(SessionFileError::Damaged)?;
        if SipHasher24::new().hash(content).to_le_bytes() != *checksum {
            return Err(SessionFileError::Damaged);
        }
        // The checksum may overlap the head of a file that is too short.
        let read = bytes.len() - head.0.len();
        Input(content.get(read..).ok_or(SessionFileError::Damaged)?).content()
    }
}

/// The bytes that are not read yet.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], SessionFileError> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(SessionFileError::Damaged)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], SessionFileError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(SessionFileError::Damaged)?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn number(&mut self) -> Result<u32, SessionFileError> {
        self.take().map(u32::from_le_bytes)
    }

    fn text(&mut self) -> Result<String, SessionFileError> {
        let length = self.number()? as usize;
        String::from_utf8(self.bytes(length)?.to_vec()).map_err(|_| SessionFileError::Damaged)
    }

    /// Reads a number and as many items. Memory grows with what is read, not with the number.
    fn list<T>(
        &mut self,
        item: impl Fn(&mut Self) -> Result<T, SessionFileError>,
    ) -> Result<Vec<T>, SessionFileError> {
        let count = self.number()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn port(&mut self) -> Result<(u16, String), SessionFileError> {
        let number = u16::try_from(self.number()?).map_err(|_| SessionFileError::Damaged)?;
        Ok((number, self.text()?))
    }

    fn rule(&mut self) -> Result<SavedRule, SessionFileError> {
        let word = self.number()?;
        Ok(SavedRule { slot: word & !TRANSLATES, translates: word & TRANSLATES != 0 })
    }

    /// Reads what follows the head.
    fn content(mut self) -> Result<SessionFile, SessionFileError> {
        let saved_at = self.take().map(u64::from_le_bytes)?;
        let owner = self.text()?;
        let ports = self.list(Input::port)?;
        let rules = self.list(|input| Ok((input.number()?, input.text()?)))?;
        let pools = self.list(Input::text)?;
        let followed = self.list(|input| Ok((input.text()?, input.take()?)))?;
        let lists = self.list(|input| input.list(Input::rule))?;
        let count = self.number()? as usize;
        let records = count.checked_mul(size_of::<SavedSession>()).ok_or(SessionFileError::Damaged)?;
        let records = self.bytes(records)?.chunks_exact(size_of::<SavedSession>());
        let sessions: Vec<SavedSession> = records.map(bytemuck::pod_read_unaligned).collect();
        let is_valid =
            |session: &SavedSession| session.is_valid() && (session.rule_list as usize) < lists.len();
        if !self.0.is_empty() || !sessions.iter().all(is_valid) {
            return Err(SessionFileError::Damaged);
        }
        let saved = SavedSessions { sessions, lists, left_out: 0 };
        Ok(SessionFile { owner, saved_at, ports, rules, pools, followed, saved })
    }
}

#[cfg(test)]
mod tests;
