//! Bytes that numbers and vectors are read from.

use crate::HelloError;

/// Bytes that a message is read from.
pub(crate) struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], HelloError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(HelloError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads a number of at most four bytes.
    pub fn number(&mut self, bytes: usize) -> Result<usize, HelloError> {
        Ok(self.take(bytes)?.iter().fold(0, |number, &byte| number << 8 | usize::from(byte)))
    }

    /// Reads a vector behind its length.
    pub fn vector(&mut self, length_bytes: usize) -> Result<Cursor<'a>, HelloError> {
        let len = self.number(length_bytes)?;
        self.take(len).map(Cursor)
    }

    /// Reads a vector that is the last one.
    pub fn last_vector(&mut self, length_bytes: usize) -> Result<Cursor<'a>, HelloError> {
        let vector = self.vector(length_bytes)?;
        if self.0.is_empty() { Ok(vector) } else { Err(HelloError::Malformed) }
    }

    /// Reads a number of variable length (RFC 9000, 16).
    pub fn variable(&mut self) -> Result<u64, HelloError> {
        let first = self.take(1)?.first().copied().unwrap_or(0);
        let rest = self.take((1 << (first >> 6)) - 1)?;
        Ok(rest.iter().fold(u64::from(first & 0x3f), |number, &byte| number << 8 | u64::from(byte)))
    }

    /// Reads bytes behind a length of variable length.
    pub fn variable_vector(&mut self) -> Result<&'a [u8], HelloError> {
        let len = self.variable()?;
        self.take(usize::try_from(len).map_err(|_| HelloError::Malformed)?)
    }
}
