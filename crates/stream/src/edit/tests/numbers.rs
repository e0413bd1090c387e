//! The number map against a model that lists the bytes of the receiver, each with the byte or the edit that
//! it comes from.

use proptest::prelude::*;

use crate::edit::log::{Edit, EditLog, EditPool};

/// Where a byte of the receiver comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    /// The sender's byte at this place.
    Sender(usize),
    /// An edit, by its position.
    Edit(usize),
}

/// Both streams, counted from 0.
struct Model {
    /// Places and lengths of edits: the first byte that is replaced, bytes replaced, bytes in their place.
    edits: Vec<(usize, usize, usize)>,
    output: Vec<Tag>,
    /// How many bytes the receiver gets for those in front of a place of the sender. None inside of an edit.
    lengths: Vec<Option<usize>>,
}

impl Model {
    /// `raw`: bytes that stay in front of an edit, bytes that are replaced, and bytes in their place.
    fn new(raw: &[(usize, usize, usize)], rest: usize) -> Model {
        let mut model = Model { edits: Vec::new(), output: Vec::new(), lengths: vec![Some(0)] };
        for &(stay, removed, inserted) in raw {
            model.pass(stay);
            model.edits.push((model.lengths.len() - 1, removed, inserted));
            model.lengths.resize(model.lengths.len() + removed - 1, None);
            model.output.resize(model.output.len() + inserted, Tag::Edit(model.edits.len() - 1));
            model.lengths.push(Some(model.output.len()));
        }
        model.pass(rest);
        model
    }

    fn pass(&mut self, bytes: usize) {
        for _ in 0..bytes {
            self.output.push(Tag::Sender(self.lengths.len() - 1));
            self.lengths.push(Some(self.output.len()));
        }
    }

    /// The edit that a place of the sender is inside of.
    fn edit_around(&self, seq: usize) -> (usize, usize, usize) {
        *self.edits.iter().rfind(|edit| edit.0 < seq).expect("an edit")
    }

    /// The receiver's numbers of a place of the sender.
    fn receiver_numbers(&self, seq: usize) -> (usize, usize) {
        match self.lengths[seq] {
            Some(number) => (number, number),
            None => {
                let (from, _, inserted) = self.edit_around(seq);
                let to = self.lengths[from].expect("the beginning of an edit");
                (to, to + inserted)
            }
        }
    }

    /// The sender's numbers of a place of the receiver: the last place for whose bytes the receiver has got
    /// as many. Inside of an insertion there is none.
    fn sender_numbers(&self, number: usize) -> (usize, usize) {
        match (self.lengths.iter().rposition(|&length| length == Some(number)), self.output.get(number)) {
            (Some(seq), _) => (seq, seq),
            (None, Some(&Tag::Edit(at))) => {
                let (from, removed, _) = self.edits[at];
                (from, from + removed)
            }
            (None, other) => panic!("no place: {other:?}"),
        }
    }
}

/// A log with the edits of a model.
struct Log {
    pool: EditPool,
    log: EditLog,
    initial: u32,
}

impl Log {
    fn new(model: &Model, initial: u32) -> Log {
        let (mut pool, mut log) = (EditPool::new(1 << 10), EditLog::EMPTY);
        for &(from, removed, inserted) in &model.edits {
            let to = initial.wrapping_add(model.receiver_numbers(from).0 as u32);
            let (from, removed, inserted) =
                (initial.wrapping_add(from as u32), removed as u32, inserted as u32);
            assert!(log.push(&mut pool, Edit { from, removed, to, inserted }));
        }
        Log { pool, log, initial }
    }

    fn number(&self, at: usize) -> u32 {
        self.initial.wrapping_add(at as u32)
    }

    fn places(&self, (first, last): (u32, u32)) -> (usize, usize) {
        (first.wrapping_sub(self.initial) as usize, last.wrapping_sub(self.initial) as usize)
    }

    fn sender_numbers(&self, number: usize) -> (usize, usize) {
        self.places(self.log.sender_numbers(&self.pool, self.number(number)))
    }

    fn receiver_numbers(&self, seq: usize) -> (usize, usize) {
        self.places(self.log.receiver_numbers(&self.pool, self.number(seq)))
    }

    /// Compares all places that are not in front of what the receiver has acknowledged.
    fn verify(&self, model: &Model, acked: usize) -> Result<(), TestCaseError> {
        for number in acked..=model.output.len() {
            prop_assert_eq!(self.sender_numbers(number), model.sender_numbers(number), "number {}", number);
        }
        for seq in model.sender_numbers(acked).1..model.lengths.len() {
            prop_assert_eq!(self.receiver_numbers(seq), model.receiver_numbers(seq), "place {}", seq);
        }
        Ok(())
    }
}

fn edits() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    // More than the blocks of edits have room for; insertions and edits often follow each other.
    prop::collection::vec((0usize..4, 1usize..5, prop_oneof![Just(0), 0usize..6]), 0..80)
}

fn initial() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), (u32::MAX - 300)..u32::MAX]
}

proptest! {
    /// Each place of both streams is translated as the tags say, before and behind acknowledgements.
    #[test]
    fn numbers_are_those_of_the_model(
        raw in edits(),
        rest in 0usize..9,
        initial in initial(),
        mut acks in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let model = Model::new(&raw, rest);
        let mut log = Log::new(&model, initial);
        log.verify(&model, 0)?;
        let mut acked = 0;
        for ack in acks.drain(..) {
            acked = acked.max(ack.index(model.output.len() + 1));
            let number = log.number(acked);
            log.log.fold(&mut log.pool, number);
            log.verify(&model, acked)?;
            let is_behind = |edit: &&(usize, usize, usize)| model.receiver_numbers(edit.0).0 + edit.2 > acked;
            prop_assert_eq!(log.log.len as usize, model.edits.iter().filter(is_behind).count());
        }
        // Without edits, the numbers behind the last one keep their distance.
        log.log.clear(&mut log.pool);
        let (seq, number) = (model.lengths.len() - 1, model.output.len());
        prop_assert_eq!((log.receiver_numbers(seq), log.sender_numbers(number)), ((number, number), (seq, seq)));
    }

    /// RFC 2018: a sender may take the bytes of a block to have arrived. So the receiver has got all bytes in
    /// their place, and none of those that it has got whole is left out.
    #[test]
    fn blocks_tell_of_no_more_than_has_arrived(
        raw in edits(),
        rest in 0usize..9,
        initial in initial(),
        ends in prop::array::uniform2(any::<prop::sample::Index>()),
    ) {
        let model = Model::new(&raw, rest);
        let log = Log::new(&model, initial);
        let [one, other] = ends.map(|end| end.index(model.output.len() + 1));
        let block = one.min(other)..one.max(other);
        let told = log.sender_numbers(block.start).1..log.sender_numbers(block.end).0;
        for (number, tag) in model.output.iter().enumerate() {
            let (from, to) = match *tag {
                Tag::Sender(seq) => (seq, seq + 1),
                Tag::Edit(at) => (model.edits[at].0, model.edits[at].0 + model.edits[at].1),
            };
            if from < told.end && to > told.start {
                prop_assert!(block.contains(&number), "{:?} of {:?} tells of {}", told, block, number);
            } else if block.contains(&number) {
                prop_assert!(matches!(tag, Tag::Edit(_)), "{:?} of {:?} leaves out {}", told, block, number);
            }
        }
    }
}
