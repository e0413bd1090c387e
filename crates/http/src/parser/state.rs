//! Where in a message a parser is.

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// A message.
    Start,
    /// LF of an empty line in front of a message.
    StartLf,
    Method,
    Target,
    Version,
    Status,
    Reason,
    /// LF of the first line.
    LineLf,
    /// A header, or the empty line.
    FieldStart,
    Name,
    /// Blanks in front of a value.
    ValueStart,
    Value,
    /// LF of a header.
    ValueLf,
    /// LF of the empty line.
    HeadLf,
    /// A body with a known length.
    Length,
    UntilClose,
    ChunkSize,
    /// Blanks behind a chunk size.
    ChunkBlank,
    ChunkExtension,
    /// LF of the line of a chunk size.
    ChunkLf,
    ChunkData,
    /// CR behind a chunk.
    ChunkCr,
    /// LF behind a chunk.
    ChunkDataLf,
    /// Nothing more of the message.
    Finish,
    /// The response to CONNECT, in the other direction.
    Wait,
    /// Bytes that are not read.
    Opaque,
    /// Nothing that is accepted.
    Failed,
}

impl State {
    const ALL: [State; 27] = [
        State::Start,
        State::StartLf,
        State::Method,
        State::Target,
        State::Version,
        State::Status,
        State::Reason,
        State::LineLf,
        State::FieldStart,
        State::Name,
        State::ValueStart,
        State::Value,
        State::ValueLf,
        State::HeadLf,
        State::Length,
        State::UntilClose,
        State::ChunkSize,
        State::ChunkBlank,
        State::ChunkExtension,
        State::ChunkLf,
        State::ChunkData,
        State::ChunkCr,
        State::ChunkDataLf,
        State::Finish,
        State::Wait,
        State::Opaque,
        State::Failed,
    ];

    pub fn of(number: u8) -> State {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(State::Failed)
    }

    /// Whether the state reports an event without a further byte.
    pub fn needs_no_byte(self) -> bool {
        matches!(self, State::Finish | State::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions() {
        assert!(State::ALL.into_iter().enumerate().all(|(number, state)| state as usize == number));
        assert_eq!(State::of(255), State::Failed);
    }
}
