/* server.h - SecretDiscoveryService of one pod: StreamSecrets, DeltaSecrets, FetchSecrets.
 *
 * It is told the certificate and never asks for it; a request for one that is not there yet waits
 * inside (never an empty secret), and so does one for a certificate that has expired.  Files are
 * answered as file names that Envoy reads and watches itself, as far as it can; a name that means
 * nothing here ends the stream with an error (names.h).  ACK, NACK, stale nonces and added names as
 * istio-agent.md 2.4.  At most one response is under way per stream: pushes that come meanwhile are
 * merged into one.  Limits: 64 names per stream, 4,096 bytes a name.
 *
 * Envoy keeps a secret that it refused, and then refuses each listener and cluster that names it.
 * So the last one that it took is sent again, until there is another.
 */
#pragma once
#include "worker/pods/served.h"
#include <jansson.h>
#include <stdbool.h>

struct cert;
struct err;
struct loop;
struct revocation;
struct rpc_stream;
struct sds_server;

struct sds_server *sds_server_new(struct loop *l, const char *subject); /* "ns/pod", copied */
void sds_server_free(struct sds_server **s);                            /* ends its streams */
/* Files in these directories (files.h) are looked at every 2 s, and named anew when they changed
 * and are at rest; call it before the first stream.  The text outlives the server. */
void sds_server_follow(struct sds_server *s, const char *directories);
/* Takes a reference on `c`; pushes what changed.  NULL `c`: there is none (yet), and Envoy keeps
 * the last one.  `why_not` is for the dump and may be NULL. */
void sds_server_set_cert(struct sds_server *s, struct cert *c, const char *why_not);
/* Sets the content of ROOTCA: `roots` instead of the certificate's own, borrowed until the next
 * call, and a revocation list, of which it takes a reference; NULL: none.  Pushes what changed. */
void sds_server_set_trust(struct sds_server *s, const char *roots, struct revocation *crl);
/* Takes the stream if the method is one of ours. */
bool sds_server_incoming(struct sds_server *s, struct rpc_stream *st, const char *method);
/* NO if Envoy refused the last secrets of a stream, or has not answered them for a minute. */
enum served sds_server_served(const struct sds_server *s, struct err *why);
unsigned sds_server_streams(const struct sds_server *s);
/* streams[{method, names[{name, version}]}], pushes, acks, nacks, refused: the newest secret is,
 * refusal: and what that means, last_nack, last_refusal, why_not
 */
json_t *sds_server_dump(const struct sds_server *s);
