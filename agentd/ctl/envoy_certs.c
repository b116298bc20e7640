/* envoy_certs.c - each list of each certificate of the page -> its entries. */
#include "envoy_certs.h"
#include "common/mem.h"
#include "envoy_lists.h"
#include "show.h"
#include <string.h>

enum { NEAR = 5 }; /* one part in so many of its life */

/* -1: it is no time. */
static time_t time_of(const json_t *cert, const char *key)
{
	struct tm tm = {.tm_sec = 0};
	const char *end = strptime(ctl_string(cert, key), "%Y-%m-%dT%H:%M:%SZ", &tm);

	return end && !*end ? timegm(&tm) : -1;
}

static const char *why_not(const json_t *cert, time_t now)
{
	const time_t from = time_of(cert, "valid_from"), to = time_of(cert, "expiration_time");

	if (to < 0)
		return "";
	if (to <= now)
		return "it has ended: Envoy has not seen a new one";
	if (from >= 0 && from < to && to - now < (to - from) / NEAR)
		return "it ends soon: Envoy has not seen a new one";
	return "";
}

struct found {
	json_t *all, *seen; /* a set */
	time_t now;
	size_t left; /* so many more may come */
};

static void take_cert(void *ctx, const char *list, const json_t *cert)
{
	struct found *f = ctx;
	const json_t *names = json_object_get(cert, "subject_alt_names");
	const char *kind = strcmp(list, "ca_cert") ? "chain" : "root";
	const char *name = ctl_string(json_array_get(names, 0), "uri");
	const char *serial = ctl_string(cert, "serial_number");
	const char *end = ctl_string(cert, "expiration_time"), *why = why_not(cert, f->now);
	auto_free char *key = mem_printf("%s\n%s\n%s\n%s\n%s", kind, name, serial, end, why);

	if (!f->left || json_object_get(f->seen, key))
		return;
	f->left--;
	json_object_set_new(f->seen, key, json_true());
	json_array_append_new(
	    f->all, json_pack("{s:s, s:o, s:o, s:o, s:s}", "kind", kind, "name",
			ctl_printable_string(name), "serial", ctl_printable_string(serial),
			"not_after", ctl_printable_string(end), "why_not", why));
}

json_t *envoy_certs_of(const char *page, size_t len, time_t now)
{
	static const char *const lists[] = {"cert_chain", "ca_cert", NULL};
	static const char *const keep[] = {
	    "subject_alt_names", "uri", "serial_number", "valid_from", "expiration_time", NULL};
	struct found f = {json_array(), json_object(), now, envoy_lists_most(len)};

	envoy_lists_read(
	    &(struct envoy_lists){"certificates", keep, take_cert, lists}, page, len, &f);
	json_decref(f.seen);
	return f.all;
}
