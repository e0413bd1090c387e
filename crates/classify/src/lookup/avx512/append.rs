//! Converts slots to hits with AVX-512.

use std::arch::x86_64::*;

use bytemuck::cast;

use crate::vector::Hit;

/// Number of hits that are written at once. Hardly any packet has more.
const STEP: usize = 16;

/// Appends the hits of a run of slots. It writes whole steps and truncates the excess, because the number of
/// hits is hard to predict. Whether there are any is easy to predict.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(crate) fn append(hits: &mut Vec<Hit>, pkt: u16, slots: &[u32], (from, to): (usize, usize)) {
    if from == to {
        return;
    }
    let end = hits.len() + (to - from);
    let packet: __m512i = cast([Hit::new(pkt, 0); 8]);
    let mut at = from;
    loop {
        let Some(some) = slots.get(at..).and_then(|slots| slots.first_chunk::<STEP>()) else {
            hits.extend(slots.get(at..to).into_iter().flatten().map(|&slot| Hit::new(pkt, slot)));
            break;
        };
        let halves: [__m256i; 2] = cast(*some);
        let eight = |slots| _mm512_or_si512(_mm512_slli_epi64::<32>(_mm512_cvtepu32_epi64(slots)), packet);
        let all: [Hit; STEP] = cast(halves.map(eight));
        hits.extend_from_slice(&all);
        at += STEP;
        if at >= to {
            break;
        }
    }
    hits.truncate(end);
}
