/* cluster_env.h - cluster.env of `istioctl x workload entry configure` (bare-metal-identity.md 1).
 *
 * Lines KEY='VALUE', as a shell reads them, but without anything that a shell would do: a value is
 * of quoted parts, bare words and \' between them.  At most 256 keys of A-Z a-z 0-9 _, of 128
 * characters; values are UTF-8 without control characters, at most 64 KiB.  A key comes once.
 */
#pragma once
#include <jansson.h>
#include <stddef.h>

struct err;

/* An object of strings.  NULL: refused, "cluster.env: line N: ...". */
json_t *cluster_env_parse(const char *text, size_t len, struct err *e);
