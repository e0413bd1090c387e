//! `nat`: source NAT from a pool.
//!
//! Theory of operation. The function only names the pool. The engine finds address, port, limits and the
//! worker of the return path when the session opens, and translates packets at the function's place.

use std::sync::Arc;

use mmb_nf::{
    Admission, ArgError, ConstantRewrite, Context, Function, OpeningPacket, Packet, Properties, Setup,
    Translates, Vector, Verdict,
};

/// Translates the source of sessions to an address and port of a NAT pool.
pub(crate) struct Nat {
    pool: Arc<str>,
}

impl Function for Nat {
    const TYPE: &'static str = "nat";
    const USAGE: &'static str = "POOL";
    const HELP: &'static str = "gives sessions a source address and port of a NAT pool";

    type Pad = ();
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        match setup.args {
            [pool] if (setup.has_pool)(pool) => Ok(Nat { pool: Arc::from(*pool) }),
            [pool] => {
                Err(format!("there is no NAT pool `{pool}`; `nat pool add {pool} ADDRESS-ADDRESS` makes it")
                    .into())
            }
            _ => Err("`nat` takes the name of one NAT pool: `nat POOL`".into()),
        }
    }

    fn properties(&self) -> Properties {
        Properties {
            accepts: "net-proto ip4".to_owned(),
            translates: Translates { source: true, ..Translates::default() },
            pools: vec![self.pool.to_string()],
            takes_large_frames: true,
            ..Properties::default()
        }
    }

    fn admit(&self, first: &mut OpeningPacket<'_>, (): &mut ()) -> Admission {
        first.translation.pool = Some(Arc::clone(&self.pool));
        Admission::Open
    }

    fn packet(&self, _: &mut Packet<'_>, (): &mut (), _: &mut Context<'_, ()>) -> Verdict {
        Verdict::Pass
    }

    fn constant_rewrite(&self, (): &()) -> Option<ConstantRewrite> {
        Some(ConstantRewrite::default())
    }

    /// All of them pass.
    fn vector(&self, _: &mut Vector<'_, '_, Self>) {}
}

#[cfg(test)]
mod tests {
    use mmb_packet::build::{Frame, Ip4, Udp};

    use super::*;
    use mmb_nf::testing::{Bench, Forward, refused};

    #[test]
    fn a_translation_by_the_pool_is_requested() {
        let mut bench = Bench::<Nat>::new("wan");
        let frame = Frame::new(Ip4::new([10, 0, 0, 1], [192, 0, 2, 1]), Udp::new(5, 53)).build();
        let (admission, same, translation) = bench.admit(&frame);
        assert_eq!(
            (admission, same, translation.pool.as_deref()),
            (Admission::Open, frame.clone(), Some("wan"))
        );
        let session = bench.open(&frame);
        assert_eq!(bench.packet(session, Forward, &frame).verdict, Verdict::Pass);
        let traits = bench.function.properties();
        assert!(traits.translates.source && !traits.translates.destination && traits.pools == ["wan"]);
        assert!(mmb_lang::parse_matches(&traits.accepts).is_ok());
    }

    #[test]
    fn pools_must_exist() {
        assert!(refused::<Nat>("lan").contains("`nat pool add lan"));
        assert!(refused::<Nat>("").contains("`nat POOL`"));
        assert!(refused::<Nat>("wan wan").contains("`nat POOL`"));
    }
}
