//! Choosing the numbers besides addresses and ports that a session replaces.

use mmb_flow::{Key, Mangle, TcpSegment, TrackInput};
use mmb_policy::Choice;
use rand::Rng;
use rand::rngs::StdRng;

use super::plan::TranslationPlan;
use crate::SessionConfig;
use crate::hash::{Purpose, generator, hash_key, scale, sequence_number};
use crate::translation::record::NumberTranslation;

/// Chooses values for new sessions, at random or by their keys.
#[derive(Debug)]
pub(crate) struct ValueChooser {
    /// The secret that all workers have.
    seed: u64,
    /// Random numbers that nobody can predict.
    pub random: StdRng,
}

impl ValueChooser {
    pub fn new(config: &SessionConfig) -> ValueChooser {
        ValueChooser { seed: config.seed, random: generator(config.seed, config.worker) }
    }

    /// Chooses the numbers besides addresses and ports that the session replaces. `header`: the first packet
    /// from its IP header on; `input`: what the tracker sees of it; `now`: milliseconds.
    pub fn choose_numbers(
        &mut self,
        header: &[u8],
        key: &Key,
        plan: &TranslationPlan<'_>,
        input: &TrackInput,
        now: u32,
    ) -> Option<NumberTranslation> {
        let syn = match input {
            TrackInput::Tcp(segment)
                if segment.flags & (TcpSegment::SYN | TcpSegment::ACK) == TcpSegment::SYN =>
            {
                Some(segment)
            }
            _ => None,
        };
        let sequence = plan
            .sequence
            .zip(syn)
            .and_then(|(choice, syn)| Some((self.choose_sequence(choice, key, now)?, syn)));
        let chosen_isn = plan
            .acknowledgment
            .filter(|_| syn.is_some())
            .and_then(|choice| self.choose_sequence(choice, &key.reversed(), now));
        // A number that the originator already knows overrides the choice.
        let new_isn = plan.proxied_isn.or(chosen_isn.map(|value| value as u32));
        let ip_id =
            plan.ip_id.and_then(|choice| Some((self.choose_value(choice, key)? as u16, choice.random)));
        let label = plan.label.and_then(|choice| self.choose_value(choice, key));
        if sequence.is_none() && new_isn.is_none() && ip_id.is_none() && label.is_none() {
            return None;
        }
        let mut mangle = Mangle::default();
        if let Some((value, syn)) = sequence {
            mangle.sequence = (value as u32).wrapping_sub(syn.seq);
        }
        if let (Some((value, random)), Some(&[.., high, low])) = (ip_id, header.first_chunk::<6>()) {
            let old = u16::from_be_bytes([high, low]);
            mangle.ip_id = if random { value.wrapping_sub(old) } else { value };
            mangle.fixed_id = u8::from(!random);
        }
        if let (Some(value), Some(&[_, high, middle, low])) = (label, header.first_chunk::<4>()) {
            mangle.old_label = u32::from_be_bytes([0, high & 0x0f, middle, low]);
            mangle.new_label = value as u32;
        }
        Some((mangle, new_isn))
    }

    /// Chooses one of the values: at random, or by the key.
    fn choose_value(&mut self, choice: &Choice, key: &Key) -> Option<u128> {
        let draw = match choice.random {
            true => self.random.random(),
            false => hash_key(key, self.seed, Purpose::Choice),
        };
        choice.values.nth(scale(draw, choice.values.len()))
    }

    /// Chooses one of the values as an initial sequence number: as RFC 6528 describes, or by the key.
    fn choose_sequence(&mut self, choice: &Choice, key: &Key, now: u32) -> Option<u128> {
        if !choice.random {
            return self.choose_value(choice, key);
        }
        let number = sequence_number(key, self.seed, now);
        let all = choice.values.len();
        // Of fewer values than there are numbers, the position goes forward with the clock.
        choice.values.nth(if all > u128::from(u32::MAX) {
            number.into()
        } else {
            u128::from(number) % all.max(1)
        })
    }
}

#[cfg(test)]
mod tests;
