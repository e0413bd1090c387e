/* SPDX-License-Identifier: Apache-2.0
 *
 * The gate of routed ports: which frames are addressed to the interface.
 */
#ifndef MMB_GATE_H
#define MMB_GATE_H

#include "steer.h"

/* Whether a frame has the Ethernet destination of the gate. Read two bytes at a time: struct ethhdr is packed
 * and would be read byte by byte. */
static __always_inline int gate_admits(__u64 gate, const __u16 *ether)
{
	return (STEER_ON | (__u64)ether[2] << 32 | (__u64)ether[1] << 16 | ether[0]) == gate;
}

#endif
