/* SPDX-License-Identifier: Apache-2.0
 *
 * Constants that the XDP program of raw-socket ports (pass.c) and its loader
 * (crates/dpdk/src/port/frame_size.rs) share.
 */
#ifndef MMB_PASS_H
#define MMB_PASS_H

/* The ethertype of a service tag (IEEE 802.1ad), and the one that replaces it: 0xffff is reserved and
 * never on a wire. */
#define PASS_SERVICE_TAG 0x88a8
#define PASS_SERVICE_TAG_PLACEHOLDER 0xffff

#endif
