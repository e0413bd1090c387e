//! A network function: each session may send a number of packets, and no more.

pub mod streams;

use mmb::nf::{ArgError, Context, DropReason, Function, Packet, Setup, Verdict};

/// An instance: `nf add NAME hello PACKETS`.
pub struct Hello {
    limit: u64,
    reason: DropReason,
}

impl Function for Hello {
    const TYPE: &'static str = "hello";
    const USAGE: &'static str = "PACKETS";
    const HELP: &'static str = "passes a number of packets of each session, both directions together";
    const DROP_REASONS: &'static [(&'static str, &'static str)] =
        &[("hello-limit", "a function `hello` has passed as many packets of the session as it may")];
    /// The state of a session: the packets so far.
    type Pad = u64;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let [limit] = setup.args else {
            return Err(ArgError::missing("hello", "a number of packets: `hello 100`"));
        };
        let limit =
            limit.parse().map_err(|_| ArgError::invalid("limit", limit, "must be a number of packets"))?;
        Ok(Hello { limit, reason: setup.drop_reason("hello-limit") })
    }

    fn packet(&self, _: &mut Packet<'_>, packets: &mut u64, _: &mut Context<'_, ()>) -> Verdict {
        *packets += 1;
        if *packets > self.limit { Verdict::Drop(self.reason) } else { Verdict::Pass }
    }
}

#[cfg(test)]
mod tests {
    use mmb::testing::{Bench, BenchError, Frame, Ip4, Outcome, Udp};

    use super::Hello;

    fn bench(lines: &str) -> Result<Bench, BenchError> {
        let mut functions = mmb::registry();
        functions.add::<Hello>();
        Bench::new(&functions, lines)
    }

    /// A datagram from a port of the client to the server.
    fn query(port: u16) -> Vec<u8> {
        Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Udp::new(port, 53)).build()
    }

    #[test]
    fn a_session_has_a_limit() {
        let mut bench = bench("nf add h hello 2\nchain add c h\nadd-stateful all chain c").unwrap();
        let outcomes = [4000, 4000, 4000, 4001].map(|port| bench.send(0, &query(port)));
        assert_eq!([&outcomes[0], &outcomes[1], &outcomes[3]], [&Outcome::Out(1); 3]);
        assert!(matches!(&outcomes[2], Outcome::Dropped(reason) if reason.name() == "hello-limit"));
    }

    #[test]
    fn the_argument_is_a_number() {
        let error = |lines| bench(lines).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error("nf add h hello").contains("needs a number"));
        assert!(error("nf add h hello many").contains("`many`"));
    }
}
