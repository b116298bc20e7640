/* library_versions.c - one question to each library that is linked; no order of events.
 *
 * Asked while running: of a shared library it is the one that was loaded, whatever we were built
 * with.
 */
#include "library_versions.h"
#include <event2/event.h>
#include <gnu/libc-version.h>
#include <jansson.h>
#include <ldns/ldns.h>
#include <openssl/crypto.h>
#include <protobuf-c/protobuf-c.h>
#include <yaml.h>

static const char *openssl(void)
{
	return OpenSSL_version(OPENSSL_VERSION_STRING);
}

/* It counts its core's interface for itself; the release it is of is its package's, which is linked
 * in.
 */
static const char *grpc(void)
{
	return AGENTD_GRPC_VERSION;
}

void library_versions_each(library_versions_named named, void *ctx)
{
	static const struct {
		const char *library, *(*version)(void);
	} libraries[] = {{"grpc", grpc}, {"openssl", openssl}, {"libevent", event_get_version},
	    {"protobuf-c", protobuf_c_version}, {"jansson", jansson_version_str},
	    {"libyaml", yaml_get_version_string}, {"ldns", ldns_version},
	    {"libc", gnu_get_libc_version}};

	for (size_t i = 0; i < sizeof(libraries) / sizeof(*libraries); i++)
		named(ctx, libraries[i].library, libraries[i].version());
}
