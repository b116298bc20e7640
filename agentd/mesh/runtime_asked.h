/* runtime_asked.h - what a pod asks of Envoy's runtime, read once when it comes.  Pure. */
#pragma once
#include <jansson.h>
#include <stdint.h>

struct err;

enum { RUNTIME_ASKED_VALUES_MAX = 64, RUNTIME_ASKED_TEXT_MAX = 256 };
enum { RUNTIME_ASKED_NO_LIMIT = 2147483647 };

/* {key: text} of PROXY_CONFIG.runtimeValues, empty where nothing is asked.  NULL: refused. */
json_t *runtime_asked_values(const json_t *proxy_config, struct err *e);
/* How many connections Envoy takes in all: connectionSettings, else the metadata
 * GLOBAL_DOWNSTREAM_MAX_CONNECTIONS, else the runtime value of that name, else no limit
 * (istio-agent.md 8.4).  -1: refused. */
int64_t runtime_asked_connections(
    const json_t *proxy_config, const json_t *metadata, struct err *e);
