//! Why bytes are not accepted as HTTP/1.x.

/// Why a message is not accepted, or why a connection is not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// Nothing is wrong.
    #[default]
    None,
    /// Anything but a request line or a status line where one has to begin.
    StartLine,
    /// A character in a target that it must not have, or a target that does not fit the method.
    Target,
    /// A request line without a version (HTTP/0.9).
    Http09,
    /// A version other than 1.0 and 1.1.
    Version,
    /// A status that is not a number from 100 on.
    Status,
    /// A line that ends with LF alone.
    BareLf,
    /// CR without LF behind it.
    BareCr,
    /// A byte with the value 0.
    Nul,
    /// A line that continues the one before (obsolete line folding).
    ObsFold,
    /// White space between a name and its colon.
    SpaceBeforeColon,
    /// A character in the name of a header that it must not have, or an empty name.
    Name,
    /// A control character in the value of a header.
    Value,
    /// A Content-Length that is not one number.
    Length,
    /// A Content-Length above 2^60.
    LengthOverflow,
    /// Two Content-Length headers.
    TwoLengths,
    /// Content-Length and Transfer-Encoding in one message.
    LengthAndChunked,
    /// A Transfer-Encoding other than `chunked` alone, or two of them.
    TransferEncoding,
    /// Transfer-Encoding in HTTP/1.0.
    ChunkedInHttp10,
    /// A request of HTTP/1.1 without Host.
    MissingHost,
    /// Two Host headers.
    TwoHosts,
    /// A Host that is not the name of a host.
    Host,
    /// A target with another host than the Host header.
    HostMismatch,
    /// A chunk size that is not a hexadecimal number.
    ChunkSize,
    /// A chunk size above 2^60.
    ChunkSizeOverflow,
    /// An extension of a chunk that is not a name, or a name and a value.
    ChunkExtension,
    /// The line of a chunk size is too long.
    ChunkLine,
    /// Something other than CR LF behind a chunk.
    ChunkEnd,
    /// A header among trailers that says where the message ends, or for whom it is.
    TrailerField,
    /// A line is too long.
    LineTooLong,
    /// The headers of a message are too long.
    HeadTooLong,
    /// A message has too many headers.
    TooManyFields,
    /// More requests wait for responses than are remembered.
    TooManyRequests,
    /// CONNECT with a body.
    ConnectBody,
    /// Bytes behind CONNECT before its response.
    EarlyTunnel,
    /// A response with status 101 that no request has asked for, or with further requests behind the one that
    /// did.
    UnexpectedSwitch,
    /// The connection ends within a message.
    Truncated,
    /// Not read: HTTP/2.
    Http2,
    /// Not read: the protocol was switched, by status 101 or by CONNECT.
    Switched,
    /// Not read: the beginning of the connection was not seen.
    Joined,
}

impl Cause {
    /// All causes. A cause has the position of its value.
    pub const ALL: [Cause; 40] = [
        Cause::None,
        Cause::StartLine,
        Cause::Target,
        Cause::Http09,
        Cause::Version,
        Cause::Status,
        Cause::BareLf,
        Cause::BareCr,
        Cause::Nul,
        Cause::ObsFold,
        Cause::SpaceBeforeColon,
        Cause::Name,
        Cause::Value,
        Cause::Length,
        Cause::LengthOverflow,
        Cause::TwoLengths,
        Cause::LengthAndChunked,
        Cause::TransferEncoding,
        Cause::ChunkedInHttp10,
        Cause::MissingHost,
        Cause::TwoHosts,
        Cause::Host,
        Cause::HostMismatch,
        Cause::ChunkSize,
        Cause::ChunkSizeOverflow,
        Cause::ChunkExtension,
        Cause::ChunkLine,
        Cause::ChunkEnd,
        Cause::TrailerField,
        Cause::LineTooLong,
        Cause::HeadTooLong,
        Cause::TooManyFields,
        Cause::TooManyRequests,
        Cause::ConnectBody,
        Cause::EarlyTunnel,
        Cause::UnexpectedSwitch,
        Cause::Truncated,
        Cause::Http2,
        Cause::Switched,
        Cause::Joined,
    ];

    pub(crate) fn of(number: u8) -> Cause {
        Self::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// Whether the connection is not read although nothing is wrong with it.
    pub fn is_opaque(self) -> bool {
        matches!(self, Cause::Http2 | Cause::Switched | Cause::Joined)
    }

    /// Returns a name for counters and logs.
    pub fn name(self) -> &'static str {
        match self {
            Cause::None => "",
            Cause::StartLine => "malformed first line",
            Cause::Target => "invalid target",
            Cause::Http09 => "HTTP/0.9",
            Cause::Version => "unknown version",
            Cause::Status => "invalid status",
            Cause::BareLf => "line ends with LF alone",
            Cause::BareCr => "CR without LF",
            Cause::Nul => "byte 0",
            Cause::ObsFold => "folded header",
            Cause::SpaceBeforeColon => "space before the colon",
            Cause::Name => "invalid header name",
            Cause::Value => "invalid header value",
            Cause::Length => "invalid Content-Length",
            Cause::LengthOverflow => "Content-Length too large",
            Cause::TwoLengths => "two Content-Lengths",
            Cause::LengthAndChunked => "Content-Length with Transfer-Encoding",
            Cause::TransferEncoding => "unknown Transfer-Encoding",
            Cause::ChunkedInHttp10 => "Transfer-Encoding in HTTP/1.0",
            Cause::MissingHost => "no Host",
            Cause::TwoHosts => "two Hosts",
            Cause::Host => "invalid Host",
            Cause::HostMismatch => "target and Host differ",
            Cause::ChunkSize => "invalid chunk size",
            Cause::ChunkSizeOverflow => "chunk size too large",
            Cause::ChunkExtension => "invalid chunk extension",
            Cause::ChunkLine => "chunk line too long",
            Cause::ChunkEnd => "chunk without end",
            Cause::TrailerField => "header not permitted in trailers",
            Cause::LineTooLong => "line too long",
            Cause::HeadTooLong => "headers too long",
            Cause::TooManyFields => "too many headers",
            Cause::TooManyRequests => "too many pipelined requests",
            Cause::ConnectBody => "CONNECT with body",
            Cause::EarlyTunnel => "data before the response to CONNECT",
            Cause::UnexpectedSwitch => "unexpected status 101",
            Cause::Truncated => "message without end",
            Cause::Http2 => "HTTP/2",
            Cause::Switched => "protocol switched",
            Cause::Joined => "beginning not seen",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions() {
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!((cause as usize, Cause::of(number as u8)), (number, cause));
            assert_eq!(cause.name().is_empty(), cause == Cause::None);
        }
        assert_eq!(Cause::of(200), Cause::None);
    }
}
