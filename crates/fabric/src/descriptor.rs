//! Descriptors: what a ring carries of a buffer.

/// A buffer on its way to a function, or back. 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Number of the buffer in the pool.
    pub buffer: u32,
    /// Bytes of the frame in the buffer.
    pub len: u16,
    /// On the way there: what the buffer holds. On the way back: the verdict.
    pub tag: u16,
    /// The session, which is the number of its scratchpad.
    pub session: u32,
    /// How often the buffer has been issued. A descriptor of an earlier issue is recognised by it.
    pub generation: u32,
}

impl Descriptor {
    /// Returns the two words of a ring.
    #[inline(always)]
    pub fn to_words(self) -> [u64; 2] {
        let Descriptor { buffer, len, tag, session, generation } = self;
        [
            u64::from(buffer) | u64::from(len) << 32 | u64::from(tag) << 48,
            u64::from(session) | u64::from(generation) << 32,
        ]
    }

    /// Reads the two words of a ring. Any words are a descriptor.
    #[inline(always)]
    pub fn from_words([first, second]: [u64; 2]) -> Descriptor {
        Descriptor {
            buffer: first as u32,
            len: (first >> 32) as u16,
            tag: (first >> 48) as u16,
            session: second as u32,
            generation: (second >> 32) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_keep_all_fields(first: u64, second: u64) {
            prop_assert_eq!(Descriptor::from_words([first, second]).to_words(), [first, second]);
        }
    }

    #[test]
    fn fields_have_their_places() {
        let descriptor =
            Descriptor { buffer: 0x1122_3344, len: 0x5566, tag: 0x7788, session: 0x99aa, generation: 0xbb };
        assert_eq!(descriptor.to_words(), [0x7788_5566_1122_3344, 0xbb_0000_99aa]);
    }
}
