//! What follows a ClientHello of TLS 1.3 that is allowed.
//!
//! Theory of operation. The first bytes of the server tell whether it takes the ClientHello, and nothing
//! needs to wait for them. Until they have come, and behind a HelloRetryRequest, the records of the client
//! are passed over up to the one that decides ([`mmb_tls::retry`]): a second ClientHello, which waits and is
//! decided as the first one, or one that the server would refuse in front of it. So a server whose bytes are
//! not seen, or tell nothing, is dealt with as one that may ask.

use mmb_nf::{Context, StreamEdit, StreamVerdict};
use mmb_tls::retry::{SecondHello, read_second_hello, takes_hello};

use super::{Buffers, INVALID, Phase, Sni, State};

/// The first bytes of the server behind a ClientHello.
pub(super) fn read_answer(
    data: &StreamEdit<'_, '_>,
    state: &mut State,
    cx: &mut Context<'_, Buffers>,
) -> StreamVerdict {
    if takes_hello(data.joined(&mut cx.local.joined)) {
        state.phase = Phase::Passes as u8;
        return StreamVerdict::Detach;
    }
    state.phase = Phase::Retried as u8;
    StreamVerdict::Pass
}

impl Sni {
    /// Bytes of the client behind its first ClientHello.
    pub(super) fn follow(
        &self,
        data: &mut StreamEdit<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Buffers>,
    ) -> StreamVerdict {
        let Buffers { joined, message, .. } = &mut *cx.local;
        let records = (&mut state.skip, state.has_early_data != 0);
        let is_allowed = match read_second_hello(data.joined(joined), records, message) {
            Ok(SecondHello::NotYet) => {
                (state.held, state.needed) = (0, 0);
                return StreamVerdict::Pass;
            }
            Ok(SecondHello::Incomplete(at, needed)) => return self.hold((at, needed), data, state, cx),
            Ok(SecondHello::Complete(hello)) => self.allows_again(&hello, state.output(), cx.worker),
            Ok(SecondHello::None) => true,
            Err(_) => return self.refuse(INVALID, state, cx),
        };
        if !is_allowed {
            return self.deny(data, state, cx);
        }
        state.pass();
        StreamVerdict::Detach
    }
}
