/* pages_internal.h - the content of each page, shared by the files of this folder. */
#pragma once
#include "pages.h"
#include <jansson.h>
#include <stdbool.h>

/* node.c */
json_t *pages_status(const struct pages_of *of);
json_t *pages_version(const struct pages_of *of);
json_t *pages_certs(const struct pages_of *of);

/* pods.c: all pods in full; or of all pods the services that are shown on `page` (pod_service). */
json_t *pages_pods(const struct pages_of *of);
json_t *pages_unserved(const struct pages_of *of); /* [{namespace, name, served, why}] */
json_t *pages_services(
    const struct pages_of *of, const char *page, bool by_label, const char *name);
json_t *pages_identities(const struct pages_of *of); /* of pods by certificate */

/* metrics.c: brings the gauges up to date; also makes them. */
void pages_measure(const struct pages_of *of);
