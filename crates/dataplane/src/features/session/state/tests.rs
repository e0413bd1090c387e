use std::sync::{Arc, PoisonError};

use mmb_dpdk::{HugePages, Mempool};
use mmb_packet::StageWord;

use super::*;
use crate::engine::config::{Forwarding, PortConfig};
use crate::engine::counters::RuleTable;
use crate::engine::detached::PacketMemory;
use crate::engine::pools::Pools;
use crate::engine::snapshot::Snapshot;
use crate::features::port::device::OpenPort;
use crate::features::port::open::open_generating_null;
use crate::lab::TURN;

fn hold(held: &mut HeldPackets, pool: &Mempool, ticket: u32, out_port: PortId) {
    let mut packet = pool.alloc_from(&[0; 60]).expect("a buffer");
    (packet.meta_mut().stage, packet.meta_mut().out_port) = (StageWord::from_ticket(ticket), out_port.0);
    held.hold(packet);
}

/// A snapshot whose ports have these devices.
fn snapshot(devices: &[Option<Arc<OpenPort>>]) -> Snapshot {
    let ports = (0..devices.len() as u16).map(|id| PortConfig::wire(PortId(id), PortId(id ^ 1))).collect();
    let forwarding = Forwarding { ports, ..Forwarding::default() };
    Snapshot::new(1, forwarding, |id| devices[usize::from(id.0)].clone(), vec![RuleTable::default()])
}

/// While packets are held, the device of port 1 goes, port 2 gets another device, and port 0 stays.
#[test]
fn held_packets_do_not_go_out_by_another_device() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let memory = PacketMemory::create(64, HugePages::Never).expect("memory");
    let pools = Pools::create(16).expect("memory");
    let open = || Some(Arc::new(open_generating_null(&pools, 60, 1).expect("a port")));
    let [a, b, c, d] = [open(), open(), open(), open()];
    let (old, new) = (snapshot(&[a.clone(), b, c]), snapshot(&[a, None, d]));
    assert_eq!((old.replaced_ports(&old), old.replaced_ports(&new)), (0, 0b110));

    let (mut held, pool) = (HeldPackets::default(), memory.pool(60).expect("memory"));
    held.reserve(8);
    (0..3).for_each(|n| hold(&mut held, &pool, n, PortId(n as u16)));
    hold(&mut held, &pool, 3, PortId::NONE);
    held.detach_ports(old.replaced_ports(&new));
    let out_ports = [0, 1, 2, 3].map(|ticket| PortId(held.release(ticket).expect("held").meta().out_port));
    assert_eq!(out_ports, [PortId(0), PortId::GONE, PortId::GONE, PortId::NONE]);
    assert!(new.port(PortId::GONE.0).is_none(), "port-tx drops these packets");
}
