//! IPFIX messages (RFC 7011) of records.
//!
//! Theory of operation. There is one template for IPv4 and one for IPv6. A record is a bidirectional flow
//! (RFC 5103): the initiator is its source, and what comes back is counted by the reverse elements of private
//! enterprise 29305. All elements have fixed lengths, so that the most records that a message may hold are
//! known beforehand. A message is at most what every path carries that IPv6 may use (1280 bytes, RFC 8200,
//! 5), so that none is cut (RFC 7011, 10.3.3).
//!
//! ICMP queries have no ports; the request's type stands in the upper byte of the destination's, where
//! NetFlow has it.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use netflow_parser::variable_versions::field_value::{DataNumber, FieldValue};
use netflow_parser::variable_versions::ipfix::lookup::IPFixField;
use netflow_parser::variable_versions::ipfix::{
    Data, FlowSet, FlowSetBody, FlowSetHeader, Header, IPFix, Template, TemplateField,
};

use super::record::Flow;
use crate::shared::export_queue::ExportError;

/// Most records in a message.
pub(super) const PER_MESSAGE: usize = 12;

const MOST_BYTES: usize = 1280 - 40 - 8;
const MESSAGE_HEADER: usize = 16;
const SET_HEADER_AND_PADDING: usize = 4 + 3;
const _: () = assert!(MESSAGE_HEADER + 2 * SET_HEADER_AND_PADDING + PER_MESSAGE * bytes(&IP6) <= MOST_BYTES);

/// RFC 7011, 3.3.2.
const TEMPLATE_SET: u16 = 2;
/// RFC 5103, 6.1.
const REVERSE: Option<u32> = Some(29_305);

/// An information element: its number, length in bytes, enterprise.
type Element = (u16, u16, Option<u32>);

const FIELDS: usize = 15;

const fn template(source: u16, destination: u16, address: u16) -> [Element; FIELDS] {
    [
        (152, 8, None), // flowStartMilliseconds
        (153, 8, None), // flowEndMilliseconds
        (source, address, None),
        (destination, address, None),
        (7, 2, None),   // sourceTransportPort
        (11, 2, None),  // destinationTransportPort
        (4, 1, None),   // protocolIdentifier
        (136, 1, None), // flowEndReason
        (239, 1, None), // biflowDirection
        (2, 8, None),   // packetDeltaCount
        (1, 8, None),   // octetDeltaCount
        (6, 2, None),   // tcpControlBits
        (2, 8, REVERSE),
        (1, 8, REVERSE),
        (6, 2, REVERSE),
    ]
}

/// sourceIPv4Address, destinationIPv4Address.
const IP4: [Element; FIELDS] = template(8, 12, 4);
/// sourceIPv6Address, destinationIPv6Address.
const IP6: [Element; FIELDS] = template(27, 28, 16);
/// The templates and their numbers, which begin at 256 (RFC 7011, 3.4.1).
const TEMPLATES: [(u16, [Element; FIELDS]); 2] = [(256, IP4), (257, IP6)];

/// biflowDirection: the source is the initiator.
const INITIATOR: u8 = 1;

const fn bytes(template: &[Element; FIELDS]) -> usize {
    let (mut sum, mut i) = (0, 0);
    while i < FIELDS {
        sum += template[i].1 as usize;
        i += 1;
    }
    sum
}

/// Encodes messages of one transport session.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    /// Data records sent so far (RFC 7011, 3.1).
    sequence: u32,
}

impl Encoder {
    /// Encodes a message with the templates. `time` is in seconds since 1970.
    ///
    /// # Errors
    /// [`ExportError::Encode`].
    pub fn templates(&self, time: u32) -> Result<Vec<u8>, ExportError> {
        let templates = TEMPLATES.map(|(template_id, elements)| Template {
            template_id,
            field_count: FIELDS as u16,
            fields: elements
                .map(|(field_type_number, field_length, enterprise_number)| TemplateField {
                    field_type_number,
                    field_length,
                    enterprise_number,
                    field_type: IPFixField::new(field_type_number, enterprise_number),
                })
                .to_vec(),
        });
        self.message(time, vec![set(TEMPLATE_SET, FlowSetBody::Templates(templates.to_vec()))])
    }

    /// Encodes a message with at most [`PER_MESSAGE`] records.
    ///
    /// # Errors
    /// [`ExportError::Encode`].
    pub fn data(&mut self, time: u32, flows: &[Flow]) -> Result<Vec<u8>, ExportError> {
        let sets = TEMPLATES.into_iter().filter_map(|(number, elements)| {
            let is_ip6 = elements == IP6;
            let flows = flows.iter().filter(|flow| flow.ends.source.is_ipv6() == is_ip6);
            let records: Vec<_> = flows
                .map(|flow| {
                    let names = elements.map(|(element, _, enterprise)| IPFixField::new(element, enterprise));
                    names.into_iter().zip(values(flow)).collect()
                })
                .collect();
            (!records.is_empty()).then(|| set(number, FlowSetBody::Data(Data::new(records))))
        });
        let message = self.message(time, sets.collect())?;
        self.sequence = self.sequence.wrapping_add(flows.len() as u32);
        Ok(message)
    }

    fn message(&self, export_time: u32, flowsets: Vec<FlowSet>) -> Result<Vec<u8>, ExportError> {
        // The length is written when the message is.
        let header = Header {
            version: 10,
            length: 0,
            export_time,
            sequence_number: self.sequence,
            observation_domain_id: 0,
        };
        let message = IPFix { header, flowsets }.to_be_bytes();
        message.map_err(|error| ExportError::Encode { error: error.to_string() })
    }
}

fn set(header_id: u16, body: FlowSetBody) -> FlowSet {
    FlowSet { header: FlowSetHeader { header_id, length: 0 }, body }
}

/// Returns a flow's values, in the order of the template.
fn values(flow: &Flow) -> [FieldValue; FIELDS] {
    let (ends, record) = (&flow.ends, &flow.record);
    let (source_port, destination_port) = match (ends.ports, ends.query) {
        (Some(ports), _) => ports,
        (None, Some((kind, _))) => (0, u16::from(kind) << 8),
        (None, None) => (0, 0),
    };
    let [packets, reverse_packets] = record.packets.map(|n| DataNumber::U64(n.into()));
    let [bytes, reverse_bytes] = record.bytes.map(DataNumber::U64);
    let [flags, reverse_flags] = record.flags.map(|flags| DataNumber::U16(flags.into()));
    let number = FieldValue::DataNumber;
    [
        number(milliseconds(flow.start)),
        number(milliseconds(flow.end)),
        address(ends.source),
        address(ends.destination),
        number(DataNumber::U16(source_port)),
        number(DataNumber::U16(destination_port)),
        number(DataNumber::U8(ends.proto)),
        number(DataNumber::U8(record.ended as u8)),
        number(DataNumber::U8(INITIATOR)),
        number(packets),
        number(bytes),
        number(flags),
        number(reverse_packets),
        number(reverse_bytes),
        number(reverse_flags),
    ]
}

fn address(address: IpAddr) -> FieldValue {
    match address {
        IpAddr::V4(address) => FieldValue::Ip4Addr(address),
        IpAddr::V6(address) => FieldValue::Ip6Addr(address),
    }
}

/// dateTimeMilliseconds (RFC 7011, 6.1.8).
fn milliseconds(time: SystemTime) -> DataNumber {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    DataNumber::U64(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
