/* shown.c - see shown.h. */
#include "shown.h"
#include "envoy/extensions/transport_sockets/tls/v3/secret.pb-c.h"
#include "envoy/service/discovery/v3/discovery.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void show_source(char *out, const Envoy__Config__Core__V3__DataSource *d)
{
	if (d->specifier_case == ENVOY__CONFIG__CORE__V3__DATA_SOURCE__SPECIFIER_FILENAME)
		sprintf(out + strlen(out), "file:%s", d->filename);
	else
		sprintf(out + strlen(out), "%.*s", (int)d->inline_bytes.len, d->inline_bytes.data);
}

static void show_secret(char *out, const Google__Protobuf__Any *any)
{
	Envoy__Extensions__TransportSockets__Tls__V3__Secret *s =
	    envoy__extensions__transport_sockets__tls__v3__secret__unpack(
		NULL, any->value.len, any->value.data);

	assert_non_null(s);
	assert_string_equal(any->type_url, TYPE_SECRET);
	sprintf(out + strlen(out), " %s=", s->name);
	if (s->type_case ==
	    ENVOY__EXTENSIONS__TRANSPORT_SOCKETS__TLS__V3__SECRET__TYPE_VALIDATION_CONTEXT) {
		show_source(out, s->validation_context->trusted_ca);
		if (s->validation_context->crl) {
			strcat(out, "-");
			show_source(out, s->validation_context->crl);
		}
	} else {
		show_source(out, s->tls_certificate->certificate_chain);
		strcat(out, "+");
		show_source(out, s->tls_certificate->private_key);
	}
	envoy__extensions__transport_sockets__tls__v3__secret__free_unpacked(s, NULL);
}

static void show_sotw(struct shown *s, const void *bytes, size_t len)
{
	Envoy__Service__Discovery__V3__DiscoveryResponse *r =
	    envoy__service__discovery__v3__discovery_response__unpack(NULL, len, bytes);

	assert_non_null(r);
	assert_string_equal(r->type_url, TYPE_SECRET);
	strcpy(s->nonce, r->nonce);
	strcpy(s->version, r->version_info);
	for (size_t i = 0; i < r->n_resources; i++)
		show_secret(s->text, r->resources[i]);
	envoy__service__discovery__v3__discovery_response__free_unpacked(r, NULL);
}

static void show_delta(struct shown *s, const void *bytes, size_t len)
{
	Envoy__Service__Discovery__V3__DeltaDiscoveryResponse *r =
	    envoy__service__discovery__v3__delta_discovery_response__unpack(NULL, len, bytes);

	assert_non_null(r);
	assert_string_equal(r->type_url, TYPE_SECRET);
	assert_int_equal(r->base.n_unknown_fields, 0); /* removed_resources are never sent */
	strcpy(s->nonce, r->nonce);
	strcpy(s->version, r->system_version_info);
	for (size_t i = 0; i < r->n_resources; i++) {
		show_secret(s->text, r->resources[i]->resource);
		assert_non_null(strstr(s->text, r->resources[i]->name));
		sprintf(s->text + strlen(s->text), "@%s", r->resources[i]->version);
	}
	envoy__service__discovery__v3__delta_discovery_response__free_unpacked(r, NULL);
}

const struct shown *shown_response(const void *bytes, size_t len, enum discovery_flavour f)
{
	static struct shown s;

	s = (struct shown){0};
	assert_non_null(bytes);
	if (f == DISCOVERY_SOTW)
		show_sotw(&s, bytes, len);
	else
		show_delta(&s, bytes, len);
	return &s;
}
