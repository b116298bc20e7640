/* override.h - ISTIO_BOOTSTRAP_OVERRIDE: what a pod's owner adds to Envoy's bootstrap.  Pure.
 *
 * Merged as Envoy merges a second document (protobuf's MergeFrom): messages field by field, lists
 * are appended, everything else takes the place of what was there, `@type` and all; `null` is
 * nothing.  A field may be written in either of proto JSON's spellings.  MergeFrom alone keeps a
 * number, text or switch against 0, "" and false: here they replace, too.
 *
 * Not the pod's to say, since agentd, istiod, the kubelet or agentctl rely on it: `node`, `admin`,
 * `dynamic_resources`; a cluster with a name of ours; a listener with a port of ours; a pipe in
 * a directory of agentd's sockets.  Envoy judges the rest when it starts.
 */
#pragma once
#include <jansson.h>
#include <stddef.h>

struct err;

/* `own`: Envoy's own ports, 0 is none.  NULL: refused; `key` is where the document came from. */
json_t *override_read(
    const char *key, const json_t *document, const unsigned *own, size_t n, struct err *e);
/* $(HOST_IP) in the document's text, an IPv6 address in brackets; `host_ip` NULL: it stays.  The
 * caller frees it. */
char *override_text(const char *text, const char *host_ip);

void override_merge(json_t *bootstrap, const json_t *override);
