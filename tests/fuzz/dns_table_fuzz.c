/* dns_table_fuzz.c - a NameTable of istiod's, and names that are looked up in it.
 *
 * The first byte says how long the names are that follow it, one after the other with a NUL between
 * them; the rest is the table, cut in two where the second byte says.  Whatever came: the same
 * bytes make the same table, and what is found are addresses of it.
 */
#include "common/err.h"
#include "worker/dns/table.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct dns_zone zone = {"ns1", "cluster.local"};

static void look_up(const struct dns_table *t, const char *name)
{
	struct dns_found f = {.alias = ""};
	unsigned sum = 0;

	if (!dns_table_find(t, name, &f))
		return;
	if (f.n4 + f.n6 == 0 || !memchr(f.alias, 0, sizeof(f.alias)))
		abort();
	for (size_t i = 0; i < f.n4; i++)
		sum += f.v4[i].bytes[3];
	for (size_t i = 0; i < f.n6; i++)
		sum += f.v6[i].bytes[15];
	(void)*(volatile unsigned *)&sum;
}

static struct dns_table *read_table(const struct iovec *iov)
{
	struct err e = {.code = 0};
	struct pbwire r;
	struct dns_table *t;

	pbwire_init(&r, iov, 2);
	t = dns_table_new(r, &zone, &e);
	if (!t && (!e.code || !*e.msg))
		abort();
	return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char names[256] = "";
	size_t n = size ? data[0] : 0, cut;

	if (size < 2 || size - 2 < n)
		return 0;
	memcpy(names, data + 2, n);
	cut = data[1] < size - 2 - n ? data[1] : size - 2 - n;
	const uint8_t *table = data + 2 + n;
	const struct iovec iov[2] = {
	    {(void *)table, cut}, {(void *)(table + cut), size - 2 - n - cut}};
	struct dns_table *t = read_table(iov), *same = read_table(iov);
	if (t != same)
		abort();
	for (size_t at = 0; t && at < n; at += strlen(names + at) + 1)
		look_up(t, names + at);
	dns_table_unref(&same);
	dns_table_unref(&t);
	return 0;
}
