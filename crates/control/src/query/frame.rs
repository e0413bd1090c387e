//! What the rules say about a frame that was not received.
//!
//! The rules are asked as about the first packet of a flow: no session, translation or route is looked up.
//! The classifier of the packet path finds the rules that match.

use mmb_dataplane::PortId;
use mmb_packet::OUT_ROUTED;
use mmb_policy::explain::{HeaderFields, matching_slots};

use super::ports::PortNames;
use super::trace::{summary, why};
use crate::api::FrameReply;
use crate::config::{Config, Interface};
use crate::error::Refusal;
use crate::transaction::Control;

/// Rules that do not match and are explained.
const UNMATCHED: usize = 200;
/// Longest frame in bytes.
const MAX_FRAME: usize = 65_535;

impl Control {
    /// What the rules say about a frame that comes in by an interface, and leaves by another one: by that at
    /// the other end of the wire if `output` is none.
    ///
    /// # Errors
    /// An interface does not exist, or the frame is empty or too long.
    pub(crate) fn explain_frame(
        &self,
        frame: &[u8],
        input: &str,
        output: Option<&str>,
    ) -> Result<FrameReply, Refusal> {
        if frame.is_empty() || frame.len() > MAX_FRAME {
            return Err(Refusal::invalid(format!(
                "invalid frame of {} bytes: a frame has 1 to {MAX_FRAME}",
                frame.len()
            )));
        }
        let config = self.state().config;
        let input = interface(&config, input)?;
        let output = output.map(|name| interface(&config, name)).transpose()?.map(|output| output.id);
        let is_routed = input.routed.is_some();
        let out = output.or(input.peer.filter(|_| !is_routed));
        let out_port = out.map_or(if is_routed { OUT_ROUTED } else { PortId::NONE.0 }, |port| port.0);
        Ok(reply(frame, &config, [input.id.0, out_port]))
    }
}

fn interface<'a>(config: &'a Config, name: &str) -> Result<&'a Interface, Refusal> {
    config.interface(name).ok_or_else(|| Refusal::not_found(format!("there is no interface `{name}`")))
}

fn reply(frame: &[u8], config: &Config, ports: [u16; 2]) -> FrameReply {
    let names = PortNames::of(config);
    let name = |port: u16| names.get(PortId(port));
    let known = FrameReply { length: frame.len() as u64, out: name(ports[1]), ..FrameReply::default() };
    let fields = match HeaderFields::parse(frame, frame.len(), ports) {
        Ok(fields) => fields,
        Err(reason) => {
            let parse_error = Some(reason.name().to_owned());
            return FrameReply { summary: "not readable".to_owned(), parse_error, ..known };
        }
    };
    let policy = config.policy();
    let slots = matching_slots(policy, &fields);
    let (matched, others): (Vec<_>, Vec<_>) = policy.rules().partition(|view| slots.contains(&view.slot));
    let explained = others.iter().take(UNMATCHED).map(|view| (view, false));
    let rules = matched.iter().map(|view| (view, true)).chain(explained);
    FrameReply {
        summary: summary(&fields),
        decider: policy.decider(slots.iter().copied(), false),
        rules: rules.filter_map(|(view, matches)| why(view, config, &fields, &name, matches)).collect(),
        more_rules: others.len().saturating_sub(UNMATCHED) as u64,
        ..known
    }
}
