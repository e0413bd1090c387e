//! A network function: each session has so many packets, and no more.

use mmb::nf::{ArgError, Context, DropReason, Function, Packet, Setup, Verdict};

/// An instance: `nf add NAME hello PACKETS`.
pub struct Hello {
    most: u64,
}

impl Function for Hello {
    const TYPE: &'static str = "hello";
    const USAGE: &'static str = "PACKETS";
    const HELP: &'static str = "lets so many packets of a session pass, both directions together";
    /// What is kept of a session: the packets so far.
    type Pad = u64;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let [most] = setup.args else {
            return Err("hello wants a number of packets: `hello 100`".to_owned());
        };
        let most = most.parse().map_err(|_| format!("`{most}` is no number of packets"))?;
        Ok(Hello { most })
    }

    fn packet(&self, _: &mut Packet<'_>, packets: &mut u64, _: &mut Context<'_, ()>) -> Verdict {
        *packets += 1;
        if *packets > self.most { Verdict::Drop(DropReason::ChainError) } else { Verdict::Pass }
    }
}

#[cfg(test)]
mod tests {
    use mmb::nf::{DropReason, Registry};
    use mmb::testing::{Bench, BenchError, Frame, Ip4, Outcome, Udp};

    use super::Hello;

    fn bench(lines: &str) -> Result<Bench, BenchError> {
        let mut functions = mmb::registry();
        functions.add::<Hello>();
        Bench::new(&functions, lines)
    }

    /// A datagram from one port of the client's to the server.
    fn query(port: u16) -> Vec<u8> {
        Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Udp::new(port, 53)).build()
    }

    #[test]
    fn a_session_has_so_many_packets() {
        let mut bench = bench("nf add h hello 2\nchain add c h\nadd-stateful all chain c").unwrap();
        let outcomes = [4000, 4000, 4000, 4001].map(|port| bench.send(0, &query(port)));
        let too_many = Outcome::Dropped(DropReason::ChainError);
        assert_eq!(outcomes, [Outcome::Out(1), Outcome::Out(1), too_many, Outcome::Out(1)]);
    }

    #[test]
    fn it_wants_a_number() {
        let refused = |lines| bench(lines).err().unwrap_or_default();
        assert!(refused("nf add h hello").contains("wants a number"));
        assert!(refused("nf add h hello many").contains("`many`"));
    }
}
