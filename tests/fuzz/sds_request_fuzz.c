/* sds_request_fuzz.c - what a pod may say to its SDS server.
 *
 * First byte: which method, and whether the certificate is there from the start.  Then messages,
 * each behind its length in two bytes; a length of 0xffff is a new certificate, 0xfffe stalls the
 * client, 0xfffd lets it go on.  Nothing may be left afterwards.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c
 */
#include "common/log.h"
#include "common/mem.h"
#include "common/secret.h"
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include "worker/crypto/cert.h"
#include "worker/sds/server.h"

#include <stdio.h>
#include <string.h>

#define SERVICE "/envoy.service.secret.v3.SecretDiscoveryService/"

enum { NEW_CERT = 0xffff, STALL = 0xfffe, GO_ON = 0xfffd };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void set_cert(struct sds_server *sds, unsigned serial)
{
	struct cert *c = mem_zalloc(sizeof(*c));

	c->refs = 1;
	snprintf(c->leaf.serial, sizeof(c->leaf.serial), "%u", serial);
	c->leaf.not_after = INT64_MAX;
	c->key_pem = secret_dup("key");
	c->chain_pem = mem_strdup("chain");
	c->root_pem = mem_printf("root %u", serial / 2);
	sds_server_set_cert(sds, c, NULL);
	cert_unref(&c);
}

static void on_incoming(void *ctx, struct rpc_stream *s, const char *method)
{
	sds_server_incoming(ctx, s, method);
}

static void play(
    struct loop *l, struct rpc_stream *s, struct sds_server *sds, const uint8_t *data, size_t size)
{
	unsigned serial = 1;

	while (size >= 2 && !fake_rpc_ended(s)) {
		size_t len = data[0] | data[1] << 8;

		data += 2, size -= 2;
		if (len == NEW_CERT) {
			set_cert(sds, ++serial);
		} else if (len == STALL || len == GO_ON) {
			fake_rpc_stall(s, len == STALL);
		} else {
			len = len < size ? len : size;
			fake_rpc_push(s, data, len);
			data += len, size -= len;
		}
		fake_loop_advance(l, 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const methods[] = {
	    SERVICE "StreamSecrets", SERVICE "DeltaSecrets", SERVICE "FetchSecrets"};
	static const struct rpc_server_options options = {.max_message = 1, .max_streams = 1};
	struct loop *l = fake_loop();
	struct sds_server *sds = sds_server_new(l, "fuzz");
	struct rpc *rpc = rpc_new(l);
	struct rpc_server *server = rpc_server_new(rpc, &options, on_incoming, sds);
	struct rpc_stream *s = fake_rpc_call(server, methods[size > 0 ? data[0] % 3 : 0]);

	log_set_levels("sds:error", NULL);
	fake_loop_advance(l, 0);
	if (size > 0 && data[0] & 0x80)
		set_cert(sds, 1);
	if (size > 0)
		play(l, s, sds, data + 1, size - 1);
	json_decref(sds_server_dump(sds));
	sds_server_free(&sds);
	rpc_server_free(&server);
	if (fake_rpc_live(rpc) != 0)
		abort();
	rpc_free(&rpc);
	fake_loop_end(&l);
	return 0;
}
