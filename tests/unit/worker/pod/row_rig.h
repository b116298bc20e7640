/* row_rig.h - one row of the table of pod services, without the others: what pod_services.c does
 * for it.
 */
#pragma once
#include "worker/pod/pod_services.h"

void *row_start(const struct pod_service *row, struct pod_context *c);
void row_stop(const struct pod_service *row, void **its); /* NULL: was not started */
/* Its object on its own page. */
json_t *row_show(const struct pod_service *row, void *its, const char *name);
