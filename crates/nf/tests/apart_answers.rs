//! Functions in processes that answer clients in the place of their servers.

#![allow(clippy::unwrap_used)]

#[path = "common/apart.rs"]
mod common;
#[path = "common/memory.rs"]
mod memory;
#[path = "common/substitute.rs"]
mod substitute;

use mmb_nf::ChainVerdict;

use common::{ACK, Bench, FIN, Left, RST, SYN, frame, left};

/// A chain with `gate` in the worker, and in a process. `others`: functions in front of it and behind it.
fn benches(others: [&str; 2]) -> [Bench; 2] {
    ["", " process d"].map(|place| {
        let [front, behind] = others;
        Bench::with(&format!(
            "domain add d private\nnf add g gate{place}\nnf add s substitute evil harmless process d\n\
             nf add l substitute evil harmless\nchain add c {front}g{behind}"
        ))
    })
}

/// Sends a frame through both chains. What leaves is the same.
fn both(benches: &mut [Bench; 2], one: Vec<u8>) -> Vec<Left> {
    let [local, apart] = benches;
    let frames = [one];
    let expected = left(&local.send(&frames, 9));
    assert_eq!(left(&apart.send(&frames, 9)), expected);
    expected
}

/// Clients are answered from a process as from the worker, in each step of the connection.
#[test]
fn clients_are_answered() {
    for others in [["", ""], ["s | ", ""], ["", " | s"], ["l | ", " | s"]] {
        let mut benches = benches(others);
        assert_eq!(both(&mut benches, frame(0, 0, 0, ACK, b"yes\n"))[0].bytes, b"yes\n");
        assert_eq!(both(&mut benches, frame(1, 0, 4, ACK, b"word.")).len(), 1);
        both(&mut benches, frame(0, 4, 5, ACK, b""));
        assert!(both(&mut benches, frame(0, 4, 5, ACK, b"no, ")).iter().all(|one| one.bytes.is_empty()));
        let answered = both(&mut benches, frame(0, 8, 5, ACK, b"evil\n"));
        let shown: Vec<_> =
            answered.iter().map(|one| (one.direction, one.flags & (RST | FIN), &one.bytes[..])).collect();
        assert_eq!(shown, [(0, RST, &b""[..]), (1, FIN, b"denied")]);
        // The answer is lost, the client repeats its request, and acknowledges the answer at last.
        assert_eq!(both(&mut benches, frame(0, 4, 5, ACK, b"no, evil\n"))[0].bytes, b"denied");
        let at = answered[1].from + 7;
        both(&mut benches, frame(0, 13, at, ACK, b""));
        // The server is reset again if it goes on.
        assert_eq!(both(&mut benches, frame(1, 5, 4, ACK, b"late"))[0].flags & RST, RST);
        both(&mut benches, frame(0, 13, at, ACK | FIN, b""));
        // A new connection in the place of this one.
        let again = 100_000;
        for bench in &mut benches {
            bench.harness.wait(130_000);
        }
        both(&mut benches, frame(0, again - 1, 0, SYN, b""));
        both(&mut benches, frame(1, -1, again, SYN | ACK, b""));
        both(&mut benches, frame(0, again, 0, ACK, b""));
        assert_eq!(both(&mut benches, frame(0, again, 0, ACK, b"yes\n"))[0].bytes, b"yes\n");
    }
}

/// What a process returns beyond an answer of its function is none.
#[test]
fn forged_answers_send_nothing() {
    for number in [1, 7, u32::MAX] {
        let [_, mut bench] = benches(["", ""]);
        let mut forged = vec![2];
        forged.extend_from_slice(&number.to_le_bytes());
        bench.host.each(|memory| memory.forged = [forged.clone()].into());
        let sent = bench.send(&[frame(0, 0, 0, ACK, b"no\n")], 9);
        assert!(sent.iter().all(|one| one.verdict != ChainVerdict::Pass), "{sent:?}");
        assert!(left(&sent).iter().all(|one| one.bytes.is_empty()), "{sent:?}");
    }
}
