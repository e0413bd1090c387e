//! Two stream functions: a checksum of each stream, and a search that crosses packets.

use std::sync::atomic::{AtomicU32, Ordering};

use mmb::nf::{ArgError, Context, Direction, DropReason, Setup, StreamData, StreamFunction, StreamVerdict};

/// Sums the bytes of each stream: `nf add NAME sum`. `show functions` prints the sum of the last one.
#[derive(Default)]
pub struct Sum {
    last: AtomicU32,
}

impl StreamFunction for Sum {
    const TYPE: &'static str = "sum";
    const USAGE: &'static str = "";
    const HELP: &'static str = "sums the bytes of streams";
    /// The sums of both directions.
    type State = [u32; 2];
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Sum::default())
    }

    fn data(&self, data: &StreamData<'_, '_>, sums: &mut [u32; 2], _: &mut Context<'_, ()>) -> StreamVerdict {
        let sum = &mut sums[data.direction() as usize];
        for chunk in data.chunks() {
            *sum = chunk.iter().fold(*sum, |sum, &byte| sum.wrapping_add(byte.into()));
        }
        StreamVerdict::Pass
    }

    fn end(&self, direction: Direction, sums: &mut [u32; 2], _: &mut Context<'_, ()>) -> StreamVerdict {
        self.last.store(sums[direction as usize], Ordering::Relaxed);
        StreamVerdict::Pass
    }

    fn report(&self) -> Vec<(String, String)> {
        vec![("sum of the last stream".into(), self.last.load(Ordering::Relaxed).to_string())]
    }
}

/// Resets connections in which a word occurs: `nf add NAME word WORD`.
pub struct Word {
    /// `next[state][byte]`: how many bytes of the word match behind the next byte.
    next: Vec<[u8; 256]>,
    reason: DropReason,
}

impl StreamFunction for Word {
    const TYPE: &'static str = "word";
    const USAGE: &'static str = "WORD";
    const HELP: &'static str = "resets connections in which a word occurs, wherever packets cut it";
    const DROP_REASONS: &'static [(&'static str, &'static str)] =
        &[("word-found", "a function `word` has found its word in the session")];
    /// The state of the search in both directions.
    type State = [u8; 2];
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        match setup.args {
            [word] if word.len() < 256 => {
                Ok(Word { next: automaton(word.as_bytes()), reason: setup.drop_reason("word-found") })
            }
            _ => Err(ArgError::missing("word", "a word of at most 255 bytes")),
        }
    }

    fn data(
        &self,
        data: &StreamData<'_, '_>,
        states: &mut [u8; 2],
        _: &mut Context<'_, ()>,
    ) -> StreamVerdict {
        let state = &mut states[data.direction() as usize];
        for byte in data.bytes() {
            *state = self.next[usize::from(*state)][usize::from(byte)];
            if usize::from(*state) == self.next.len() - 1 {
                return StreamVerdict::Reset(self.reason);
            }
        }
        StreamVerdict::Pass
    }
}

/// The automaton of Knuth, Morris and Pratt. The last state is a match.
fn automaton(word: &[u8]) -> Vec<[u8; 256]> {
    let longest = |seen: &[u8]| (0..=word.len().min(seen.len())).rev().find(|&n| seen.ends_with(&word[..n]));
    let next = |state: usize, byte: u8| longest(&[&word[..state], &[byte]].concat()).unwrap_or(0) as u8;
    (0..=word.len()).map(|state| std::array::from_fn(|byte| next(state, byte as u8))).collect()
}

#[cfg(test)]
mod tests {
    use mmb::testing::{Bench, Frame, Ip4, Outcome, Tcp};

    use super::{Sum, Word};

    fn bench(function: &str) -> Bench {
        let mut functions = mmb::registry();
        functions.add_stream::<Sum>().add_stream::<Word>();
        let lines = format!("nf add f {function}\nchain add c f\nadd-stateful all chain c");
        Bench::new(&functions, &lines).unwrap()
    }

    /// A segment of the client. Number 0 is its SYN.
    fn segment(seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let tcp = Tcp { seq, flags, ..Tcp::new(4000, 80) };
        Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), tcp).payload(payload).build()
    }

    #[test]
    fn a_word_is_found_across_segments_in_any_order() {
        let mut bench = bench("word attack");
        assert_eq!(bench.send(0, &segment(0, 2, b"")), Outcome::Out(1));
        assert_eq!(bench.send(0, &segment(1, 16, b"an att")), Outcome::Out(1));
        bench.send(0, &segment(9, 16, b"k"));
        assert_eq!(bench.frames().count(), 0, "it waits");
        assert_eq!(bench.send(0, &segment(7, 16, b"ac")), Outcome::Out(1));
        let outcomes: Vec<_> = bench.frames().map(|(outcome, _)| outcome).collect();
        let is_found =
            |one: &Outcome| matches!(one, Outcome::Dropped(reason) if reason.name() == "word-found");
        let resets = outcomes.iter().filter(|one| matches!(one, Outcome::Emitted(_))).count();
        assert_eq!((outcomes.iter().filter(|one| is_found(one)).count(), resets), (1, 2), "{outcomes:?}");
        let later = bench.send(0, &segment(10, 16, b"!"));
        assert!(is_found(&later), "{later:?}");
    }

    #[test]
    fn the_guide_has_this_code() {
        let indented = |line: &str| if line.is_empty() { String::new() } else { format!("    {line}") };
        let guide = include_str!("../../../docs/nf-guide.md");
        let blocks: Vec<_> = guide.split("```").filter(|text| text.contains("StreamData")).collect();
        assert_eq!(blocks.len(), 2);
        for block in blocks {
            let code: Vec<_> = block.lines().skip(1).map(indented).collect();
            assert!(include_str!("streams.rs").contains(code.join("\n").trim_end()), "{block}");
        }
    }

    #[test]
    fn a_sum_counts_each_byte_once() {
        let mut bench = bench("sum");
        for (seq, flags, payload) in
            [(0, 2, &b""[..]), (1, 16, b"\x01\x02"), (1, 16, b"\x01\x02\x03"), (4, 17, b"\x04")]
        {
            assert_eq!(bench.send(0, &segment(seq, flags, payload)), Outcome::Out(1));
        }
        assert_eq!(bench.report("f"), [("sum of the last stream".to_owned(), "10".to_owned())]);
    }
}
