/* envoy_certs.c - each list of each certificate of the page -> its entries. */
#include "envoy_certs.h"
#include "show.h"
#include <stdbool.h>
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

static bool is_there(const json_t *all, const json_t *one)
{
	const json_t *there;
	size_t i;

	json_array_foreach (all, i, there)
		if (json_equal(there, one))
			return true;
	return false;
}

static void add(json_t *all, const json_t *certs, const char *kind, time_t now)
{
	const json_t *cert;
	size_t i;

	json_array_foreach (certs, i, cert) {
		const json_t *names = json_object_get(cert, "subject_alt_names");
		json_t *one = json_pack("{s:s, s:s, s:s, s:s, s:s}", "kind", kind, "name",
		    ctl_string(json_array_get(names, 0), "uri"), "serial",
		    ctl_string(cert, "serial_number"), "not_after",
		    ctl_string(cert, "expiration_time"), "why_not", why_not(cert, now));

		if (!is_there(all, one))
			json_array_append(all, one);
		json_decref(one);
	}
}

json_t *envoy_certs_of(const json_t *page, time_t now)
{
	json_t *all = json_array();
	const json_t *one;
	size_t i;

	json_array_foreach (json_object_get(page, "certificates"), i, one) {
		add(all, json_object_get(one, "cert_chain"), "chain", now);
		add(all, json_object_get(one, "ca_cert"), "root", now);
	}
	return all;
}
