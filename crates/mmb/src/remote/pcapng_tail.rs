//! The comment on the last block of a pcapng file (draft-ietf-opsawg-pcapng): why a capture has ended.

/// Bytes that are kept: more than the last block of a capture has.
const KEPT: usize = 4096;
/// Type of a block of statistics, its fixed bytes, and the option with a comment.
const STATISTICS: u32 = 5;
const FIXED: usize = 20;
const COMMENT: u16 = 1;

/// The end of a file that passes in pieces.
#[derive(Debug, Default)]
pub struct Tail(Vec<u8>);

impl Tail {
    /// Adds the next piece of the file.
    pub fn push(&mut self, piece: &[u8]) {
        self.0.extend_from_slice(piece);
        let surplus = self.0.len().saturating_sub(KEPT);
        self.0.drain(..surplus);
    }

    /// The comment on the last block, if it has statistics and a comment.
    pub fn comment(&self) -> Option<String> {
        let bytes = &*self.0;
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let length = word(bytes.len().checked_sub(4)?)? as usize;
        let start = bytes.len().checked_sub(length)?;
        if word(start)? != STATISTICS {
            return None;
        }
        let option = bytes.get(start + FIXED..)?;
        let [code, size] = [option.get(..2)?, option.get(2..4)?].map(|b| u16::from_le_bytes([b[0], b[1]]));
        let text = option.get(4..4 + usize::from(size))?;
        (code == COMMENT).then(|| String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of statistics as the document describes it.
    fn statistics(options: &[u8]) -> Vec<u8> {
        let length = (24 + options.len()) as u32;
        let mut block = [5u32, length, 0, 0, 0].map(u32::to_le_bytes).concat();
        block.extend_from_slice(options);
        block.extend_from_slice(&length.to_le_bytes());
        block
    }

    #[test]
    fn the_comment_is_that_of_the_last_block() {
        let options = [&[1, 0, 5, 0][..], b"ended\0\0\0", &[0; 4]].concat();
        let mut tail = Tail::default();
        assert_eq!(tail.comment(), None);
        tail.push(&[7; 3 * KEPT]);
        for piece in statistics(&options).chunks(7) {
            tail.push(piece);
        }
        assert_eq!(tail.comment().as_deref(), Some("ended"));
        assert!(tail.0.len() <= KEPT);
        let mut other = Tail::default();
        other.push(&statistics(&[5, 0, 8, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(other.comment(), None);
        for length in 0..statistics(&options).len() {
            let mut cut = Tail::default();
            cut.push(&statistics(&options)[..length]);
            assert_eq!(cut.comment(), None, "{length}");
        }
    }
}
