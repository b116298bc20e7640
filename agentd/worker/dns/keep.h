/* keep.h - each pod's last name table, beyond this process.
 *
 * The pod's own resolver denies istiod's names, and apps believe that.  So the next worker answers
 * from the table that the pod had, until istiod sends another.  It may be of yesterday.
 *
 * Tables are kept as istiod sent them, equal ones once, each under its digest.  The index says
 * which pod has which.  It is written once a second at most, and
 * before a table goes.  Beside it the eBPF programs are told all names, for the time without any
 * agentd (ebpf/names.h): when all pods are here, and then at each change.
 */
#pragma once
#include "base/loop.h"
#include "table.h"

struct dns_keep;
struct link;
struct uuid;

struct dns_keep *dns_keep_new(struct loop *l, struct link *p);
void dns_keep_free(struct dns_keep **k); /* what is kept stays */

/* Reads what an earlier worker kept, before there are pods.  `done` may free `k`. */
void dns_keep_restore(struct dns_keep *k, loop_cb done, void *ctx);
/* All pods are here: what others had goes. */
void dns_keep_settle(struct dns_keep *k);

/* The pod's table; NULL: none.  Both functions give a reference. */
struct dns_table *dns_keep_get(
    struct dns_keep *k, const struct uuid *pod, const struct dns_zone *z);
/* From the bytes of a NameTable, which become the pod's.  NULL: not usable, and `e` says why; the
 * pod keeps the one it had. */
struct dns_table *dns_keep_put(struct dns_keep *k, const struct uuid *pod, const struct dns_zone *z,
    struct pbwire names, struct err *e);
void dns_keep_forget(struct dns_keep *k, const struct uuid *pod); /* the pod is gone */
