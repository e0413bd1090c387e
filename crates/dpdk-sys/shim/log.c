/* SPDX-License-Identifier: Apache-2.0
 *
 * One sink for the messages of DPDK (a stdio stream) and of libbpf and libxdp (printf-like callbacks).
 */
#define _GNU_SOURCE
#include "shim.h"

#include <stdarg.h>
#include <stdio.h>

#include <bpf/libbpf.h>
#include <xdp/libxdp.h>

static mmb_log_sink sink;

static ssize_t dpdk_write(void *cookie, const char *text, size_t len)
{
	(void)cookie;
	sink(rte_log_cur_msg_loglevel(), text, len);
	return len;
}

static void print(uint32_t level, const char *format, va_list args)
{
	char text[512];
	int len = vsnprintf(text, sizeof(text), format, args);

	if (len > 0)
		sink(level, text, RTE_MIN((size_t)len, sizeof(text) - 1));
}

static int bpf_print(enum libbpf_print_level level, const char *format, va_list args)
{
	/* DPDK's driver reports a failure itself, or tolerates it, after libbpf's warning. */
	print(level == LIBBPF_WARN ? RTE_LOG_NOTICE : RTE_LOG_DEBUG, format, args);
	return 0;
}

static int xdp_print(enum libxdp_print_level level, const char *format, va_list args)
{
	print(level == LIBXDP_WARN ? RTE_LOG_NOTICE : RTE_LOG_DEBUG, format, args);
	return 0;
}

void mmb_log_install(mmb_log_sink to)
{
	cookie_io_functions_t io = { .write = dpdk_write };
	FILE *stream;

	mmb_constructors_run();
	mmb_libraries_load();
	sink = to;
	stream = fopencookie(NULL, "w", io);
	if (stream != NULL)
		rte_openlog_stream(stream);
	libbpf_set_print(bpf_print);
	libxdp_set_print(xdp_print);
	mmb_xsk_install();
}
