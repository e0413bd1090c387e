//! Applies option edits to packets.

use mmb_packet::{DropReason, Meta, PacketBuf};

use super::commit::Header;
use super::list::{self, Area};
use super::writes::Writes;
use crate::apply::EditLimits;
use crate::program::EditProgram;

/// Applies the option edits of all programs to a packet. Does nothing to a packet without a readable TCP
/// header.
///
/// # Errors
/// The errors of [`crate::apply_programs`]; the packet is unchanged after an error.
#[inline(never)]
pub(crate) fn edit<'a>(
    programs: impl Iterator<Item = &'a EditProgram> + Clone,
    packet: &mut impl PacketBuf,
    meta: &mut Meta,
    limits: &EditLimits<impl Fn(u16) -> usize>,
) -> Result<(), DropReason> {
    let Some(header) = Header::of(packet.head(), meta) else { return Ok(()) };
    let edits = programs.clone().flat_map(|program| program.options.iter());
    let area = header.area(packet.head());
    let mut writes = Writes::default();
    if writes.collect(area, edits.clone()) {
        header.write(packet.head_mut(), &writes);
        return Ok(());
    }
    let mut new = Area::EMPTY;
    if !list::apply_edits(area, edits, &mut new)? {
        return Ok(());
    }
    let out_port = programs.filter_map(|program| program.out_port).last().unwrap_or(meta.out_port);
    header.replace(packet, meta, &new, || (limits.frame_max)(out_port))
}
