//! Digests that are known.

use std::collections::HashSet;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use mmb_nf::{ArgError, FileAccess};

/// Most bytes of a file.
const MOST_BYTES: u64 = 256 << 20;

/// A set of digests.
pub(super) struct KnownDigests(HashSet<Box<[u8]>>);

impl KnownDigests {
    /// Reads a file with a digest on each line, as hexadecimal digits. What follows behind a blank is not
    /// read, so that the output of `sha256sum` can be used. Lines that begin with `#` are comments.
    pub fn read(path: &str, files: &Arc<FileAccess>, len: usize) -> Result<KnownDigests, ArgError> {
        let text = read_text(path, files, MOST_BYTES)?;
        Self::parse(&text, len).map_err(|line| {
            format!("line {line} of `{path}` does not begin with {} hexadecimal digits", 2 * len).into()
        })
    }

    /// Parses the text of a file. The error is the number of the line that is wrong.
    pub fn parse(text: &str, len: usize) -> Result<KnownDigests, usize> {
        let mut known = HashSet::new();
        for (n, line) in text.lines().enumerate() {
            let Some(word) = line.split_whitespace().next().filter(|word| !word.starts_with('#')) else {
                continue;
            };
            known.insert(bytes(word).filter(|bytes| bytes.len() == len).ok_or(n + 1)?);
        }
        Ok(KnownDigests(known))
    }

    pub fn contains(&self, digest: &[u8]) -> bool {
        self.0.contains(digest)
    }
}

/// Returns the text of a file of at most `most` bytes.
pub(super) fn read_text(path: &str, files: &Arc<FileAccess>, most: u64) -> Result<String, ArgError> {
    let mut text = String::new();
    let file = files.open_input(Path::new(path))?;
    let unreadable = |error: std::io::Error| format!("cannot read `{path}`: {error}");
    file.take(most + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > most {
        return Err(format!("`{path}` is larger than {} MiB: split it", most >> 20).into());
    }
    Ok(text)
}

/// Returns the bytes of hexadecimal digits.
fn bytes(word: &str) -> Option<Box<[u8]>> {
    let digit = |&digit: &u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let pairs = word.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?)).collect()
}
