/* SPDX-License-Identifier: Apache-2.0
 *
 * What the shims of drivers that send by a ring of the kernel share, see tx.c.
 */
#ifndef MMB_TX_H
#define MMB_TX_H

#include <stdbool.h>
#include <sys/types.h>

/* The ring of a socket may still have frames. */
void mmb_tx_leave(int fd);

/* The kernel has taken so many bytes of frames, if it is not negative. */
void mmb_tx_count(ssize_t sent);

/* Whether a descriptor is that of an AF_XDP port. */
bool mmb_xsk_has(int fd);
/* In place of send(2) in the AF_XDP driver, see xsk.c. */
ssize_t mmb_xsk_send(int fd, const void *data, size_t len, int flags);

#endif
