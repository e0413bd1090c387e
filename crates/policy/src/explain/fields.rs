//! The values of a packet's fields, as text in the syntax of rules.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mmb_lang::{FieldDef, FieldId, Layer, Value, ValueKind};
use mmb_packet::window::CHUNKS;
use mmb_packet::{DropReason, Loc, Meta, PayloadLayer, Window, fill_window, parse, payload, tcp_options};

/// Bytes of a payload or of an option that are printed.
const MOST_BYTES: usize = 24;

/// The headers of a packet.
pub struct HeaderFields<'a> {
    pub(super) head: &'a [u8],
    pub(super) meta: Meta,
    pub(super) ports: [u16; 2],
    window: Window,
}

impl<'a> HeaderFields<'a> {
    /// Parses a packet. `head` is the frame or its contiguous beginning, `ports` are the input and the output
    /// port.
    ///
    /// # Errors
    /// The packet is malformed: no rule applies to it.
    pub fn parse(head: &'a [u8], frame_len: usize, ports: [u16; 2]) -> Result<Self, DropReason> {
        let mut meta = Meta::default();
        parse(head, frame_len, &mut meta)?;
        let mut window = Window::default();
        fill_window(head, &meta, ports[0], ports[1], (1 << CHUNKS) - 1, &mut window);
        Ok(HeaderFields { head, meta, ports, window })
    }

    /// The parsed metadata.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The value of a field. `names` returns the name of the interface with a port. None: the packet has no
    /// such field.
    pub fn text(&self, field: FieldId, names: &dyn Fn(u16) -> Option<String>) -> Option<String> {
        let def = field.def();
        let Some(loc) = def.loc else { return self.payload_text(field, def.proto) };
        if !self.has(loc.present()) {
            return None;
        }
        match loc {
            Loc::TcpOptionAny => {
                let kinds = tcp_options(self.head, &self.meta).map(|option| option.kind.to_string());
                Some(kinds.collect::<Vec<_>>().join(", "))
            }
            Loc::Ip6Ext(_) => Some("present".to_owned()),
            Loc::TcpOption(option) if def.width_bits == 0 || !self.has(loc.valued()) => {
                let data =
                    tcp_options(self.head, &self.meta).filter(|o| o.kind == option.kind()).last()?.data;
                Some(if data.is_empty() { "present".to_owned() } else { bytes_text(field, data) })
            }
            _ => Some(self.number_text(def, names)),
        }
    }

    fn has(&self, (at, mask, value): (usize, u8, u8)) -> bool {
        self.window.bytes()[at] & mask == value
    }

    fn number_text(&self, def: &FieldDef, names: &dyn Fn(u16) -> Option<String>) -> String {
        let first = def.loc.map_or(0, Loc::window_bit);
        let bit = |at: usize| u128::from(self.window.bytes()[at / 8] >> (7 - at % 8) & 1);
        let number = (first..first + usize::from(def.width_bits)).fold(0, |number, at| number << 1 | bit(at));
        let value = match def.kind {
            ValueKind::Interface => return names(number as u16).unwrap_or_else(|| "none".to_owned()),
            ValueKind::Ip4 => address(Ipv4Addr::from(number as u32).into(), 32),
            ValueKind::Ip6 => address(Ipv6Addr::from(number).into(), 128),
            _ => Value::Int(number as u64),
        };
        def.id.display(&value).to_string()
    }

    fn payload_text(&self, field: FieldId, layer: Layer) -> Option<String> {
        payload(self.head, &self.meta, payload_layer(layer)?).map(|bytes| bytes_text(field, bytes))
    }
}

/// The payload behind a header.
pub(super) fn payload_layer(layer: Layer) -> Option<PayloadLayer> {
    Some(match layer {
        Layer::Ip4 => PayloadLayer::Ip,
        Layer::Ip6 => PayloadLayer::Ip6,
        Layer::Icmp => PayloadLayer::Icmp,
        Layer::Icmp6 => PayloadLayer::Icmp6,
        Layer::Udp => PayloadLayer::Udp,
        Layer::Tcp => PayloadLayer::Tcp,
        Layer::Interface | Layer::Network => return None,
    })
}

fn address(addr: IpAddr, len: u8) -> Value {
    Value::Prefix { addr, len }
}

/// Bytes as a value of a field; of long ones the beginning and the number.
pub(super) fn bytes_text(field: FieldId, bytes: &[u8]) -> String {
    let shown = bytes.get(..MOST_BYTES).unwrap_or(bytes);
    let mut text = field.display(&Value::Bytes(shown.into())).to_string();
    if shown.len() < bytes.len() {
        // Writing to a string does not fail.
        let _ = write!(text, "\u{2026} ({} bytes)", bytes.len());
    }
    text
}
