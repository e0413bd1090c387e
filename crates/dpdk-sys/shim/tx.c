/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames that the kernel has left in the send ring of an AF_XDP or AF_PACKET port. The kernel takes no more
 * than the socket's send buffer holds, and says nothing when there is room again. So the port's worker offers
 * the frames again, until the kernel has taken them. Of an AF_PACKET port, the kernel says how many bytes it
 * takes: if these are all, there is nothing to offer.
 */
#include "shim.h"
#include "tx.h"

#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>

/* The socket of the ring by which this thread has sent last and that may still have frames; or -1. */
static __thread int left = -1;
/* Bytes of frames that the kernel says it has taken since mmb_tx_take_left. */
static __thread size_t taken;

void mmb_tx_leave(int fd)
{
	left = fd;
}

void mmb_tx_count(ssize_t sent)
{
	if (sent > 0)
		taken += (size_t)sent;
}

int mmb_tx_take_left(size_t given)
{
	int fd = taken < given ? left : -1;

	left = -1;
	taken = 0;
	return fd;
}

int mmb_tx_offer(int fd)
{
	ssize_t sent;

	if (mmb_xsk_has(fd)) {
		mmb_xsk_send(fd, NULL, 0, MSG_DONTWAIT);
		return mmb_tx_take_left(SIZE_MAX) == fd;
	}
	/* Returns how many bytes the kernel has taken: 0 if the ring has no frames. */
	sent = sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
	return sent > 0 || (sent < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == EINTR));
}
