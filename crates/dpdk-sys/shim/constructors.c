/* SPDX-License-Identifier: Apache-2.0
 *
 * DPDK's constructors, run when DPDK starts.
 *
 * Drivers, mempool handlers, log types and tail queues register themselves in constructors, and tables are
 * filled in others. Before `main`, they would take as long as the rest of a client's start. So the build
 * copies DPDK's libraries and renames the sections with the addresses of constructors. The linker gathers
 * each name in one section, with these symbols around it.
 */
#include "shim.h"

#include <stdbool.h>

typedef void (*constructor)(void);

/* The priorities that DPDK uses, in their order (RTE_PRIORITY_*). */
#define SECTIONS(S) S(mmb_init_101) S(mmb_init_110) S(mmb_init_120) S(mmb_init)

#define DECLARE(name)                                                                                   \
	extern constructor __start_##name[] __attribute__((visibility("hidden")));                      \
	extern constructor __stop_##name[] __attribute__((visibility("hidden")));
SECTIONS(DECLARE)

static void run(constructor *at, constructor *end)
{
	for (; at < end; at++)
		(*at)();
}

void mmb_constructors_run(void)
{
	static bool ran;

	if (__atomic_exchange_n(&ran, true, __ATOMIC_ACQ_REL))
		return;
#define RUN(name) run(__start_##name, __stop_##name);
	SECTIONS(RUN)
}
