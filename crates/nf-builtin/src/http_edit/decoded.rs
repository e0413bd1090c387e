//! Bodies that are decoded: texts are replaced in what the encoded bytes mean.
//!
//! Theory of operation. All encoded bytes that have come are decoded. What may be the beginning of a text
//! stays in the decoder. Then the last encoded byte waits, although it was decoded: so the function gets it
//! again when the stream ends, and lets out what is left.

use super::body::{Content, Decided, LAST_CHUNK, Treatment, size_line};
use super::config::BodyEdits;
use super::plan::Plan;
use crate::shared::content_coding::{DecodeError, Decoder, MOST_DECODED};

/// Most bytes of the decoded bodies of a call, with their edits.
const MOST_OUTPUT: usize = MOST_DECODED + (64 << 10);

impl Content {
    /// Plans what becomes of encoded content up to a position. `is_first_known`: the first byte was decoded
    /// before. `is_last` and `has_end`: see [`Content::decide`].
    ///
    /// # Errors
    /// The content cannot be decoded.
    pub fn decode(
        &mut self,
        (bytes, to): (&[u8], usize),
        (decoder, is_first_known): (&mut Decoder, bool),
        (edits, treatment): (&BodyEdits, Treatment),
        (is_last, has_end): (bool, bool),
        plan: &mut Plan,
    ) -> Result<Decided, DecodeError> {
        let Content { pieces, joined, output, from, .. } = self;
        joined.clear();
        joined.extend_from_slice(&decoder.kept);
        let most = MOST_DECODED.saturating_sub(plan.body_bytes());
        let mut encoded = pieces.iter().map(|piece| bytes.get(piece.clone()).unwrap_or(&[]));
        let encoded = if pieces.len() == 1 {
            encoded.next().unwrap_or(&[])
        } else {
            // Each call of a decoder costs as much as many bytes.
            output.clear();
            encoded.for_each(|piece| output.extend_from_slice(piece));
            output.as_slice()
        };
        let encoded = encoded.get(usize::from(is_first_known)..).unwrap_or(&[]);
        if !encoded.is_empty() {
            decoder.decode(encoded, joined, most)?;
        }
        output.clear();
        let (mut refused, mut replaced, mut at) = (0, 0, 0);
        let most = MOST_OUTPUT.saturating_sub(plan.body_bytes() + joined.len());
        let mut grown = 0;
        let open = edits.literals.scan(joined, is_last, |range| {
            let text = edits.text(joined.get(range.clone()).unwrap_or(&[]));
            let growth = text.len().saturating_sub(range.len());
            if grown + growth > most {
                refused += 1;
                return;
            }
            (grown, replaced) = (grown + growth, replaced + 1);
            output.extend_from_slice(joined.get(at..range.start).unwrap_or(&[]));
            output.extend_from_slice(text);
            at = range.end;
        });
        output.extend_from_slice(joined.get(at..open).unwrap_or(&[]));
        decoder.kept.clear();
        decoder.kept.extend_from_slice(joined.get(open..).unwrap_or(&[]));
        let last = pieces.last().map(|piece| piece.end - 1);
        let hold = last.filter(|_| !decoder.kept.is_empty());
        plan.replace_body(*from..hold.unwrap_or(to), |text| {
            let is_framed = treatment.has_chunks() && !output.is_empty();
            if is_framed {
                size_line(output.len(), text);
            }
            text.extend_from_slice(output);
            if is_framed {
                text.extend_from_slice(b"\r\n");
            }
            if treatment == Treatment::Rechunk && has_end {
                text.extend_from_slice(LAST_CHUNK);
            }
        });
        self.begin(to);
        Ok(Decided { hold, replaced, refused })
    }
}
