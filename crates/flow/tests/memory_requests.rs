//! Memory for sessions is requested before they are opened. This test is a program of its own, since all
//! arrays of a process have one queue.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::ptr::from_ref;

use mmb_flow::{Direction, Flow, FlowRef, Key, SessionId, SessionState, Table, memory_requests, parse_key};
use mmb_packet::build::{Frame, Ip4, Udp};
use mmb_packet::{Meta, parse};

const SESSIONS: u32 = 100_000;
const SCRATCH: usize = 48;
const HUGE: u32 = 2 << 20;
/// The memory of these sessions' flows is allocated with the table.
const FIRST: u32 = HUGE / size_of::<[Flow; 2]>() as u32;

fn key(number: u32) -> Key {
    let source = Ipv4Addr::from(0x0a00_0000 + number);
    let frame = Frame::new(Ip4::new(source, [192, 0, 2, 1]), Udp::new(1, 2)).build();
    let mut meta = Meta::default();
    parse(&frame, frame.len(), &mut meta).expect("headers");
    parse_key(&frame, &meta).expect("a key")
}

#[test]
fn memory_is_requested_before_sessions_need_it() {
    let requests = memory_requests().unwrap();
    assert!(memory_requests().is_none());
    let mut table = Table::new(2 * SESSIONS, SCRATCH, 1).unwrap();
    let mut requested: Vec<Range<usize>> = Vec::new();
    for number in 0..SESSIONS {
        requested.extend(requests.try_iter());
        let key = key(number);
        let id = table.insert(&key, &key.reversed(), 0).unwrap();
        assert!(table.reserve_scratch(id, SCRATCH));
        let is_requested = |place: usize| requested.iter().any(|range| range.contains(&place));
        let flow = from_ref(table.flow(FlowRef::new(id, Direction::Reverse))).addr();
        if number >= FIRST {
            assert!(is_requested(flow), "the flows of session {number}");
        }
        let state = from_ref(table.session(id)).addr();
        if number >= HUGE.div_ceil(size_of::<SessionState>() as u32) {
            assert!(is_requested(state), "the state of session {number}");
        }
        // The memory of the first scratchpads is requested with the first of them.
        if number > 0 {
            assert!(is_requested(table.scratch(id).as_ptr().addr()), "the scratchpad of session {number}");
        }
    }
    // Not much more than what the sessions need: flows, states, deadlines, scratchpads, and the index, whose
    // last doubling is not complete.
    let bytes: usize = requested.iter().map(Range::len).sum();
    let needed = SESSIONS as usize * (Table::SESSION_BYTES + SCRATCH);
    // At most a bucket of 64 bytes for two keys.
    let index = 64 * SESSIONS as usize;
    assert!(bytes < needed + index + 6 * HUGE as usize, "{bytes} {needed} {index}");
    for (number, range) in requested.iter().enumerate() {
        assert!(requested[..number].iter().all(|other| other.end <= range.start || range.end <= other.start));
    }
    // Nothing is requested for sessions before the first one that needs a scratchpad.
    let mut late = Table::new(2 * SESSIONS, SCRATCH, 1).expect("memory");
    assert!(late.reserve_scratch(SessionId(SESSIONS), SCRATCH));
    let requested: Vec<Range<usize>> = requests.try_iter().collect();
    assert_eq!(requested.len(), 1);
    let place = late.scratch(SessionId(SESSIONS)).as_ptr().addr();
    assert!(requested[0].contains(&place) && place - requested[0].start < 1024 * SCRATCH);
}
