/* SPDX-License-Identifier: Apache-2.0
 *
 * What steer.c and who loads it (crates/dpdk/src/steer.rs) must agree on.
 */
#ifndef MMB_STEER_H
#define MMB_STEER_H

/* Addresses of one family that can be the kernel's, at most. */
#define STEER_LOCAL_MAX 16384

/* In `gate`, above the six bytes of the interface's address: steering is on. */
#define STEER_ON (1ULL << 48)

#endif
