/* link.h - the broker as a test sees it: calls wait until the test answers them.
 *
 * `pod` may be NULL where a function looks for a call or a follow: then the oldest one counts.
 * Nothing is answered by itself.  Looking for a call or a follow that is not there fails the test.
 */
#pragma once
#include "worker/link/link.h"

/* One for modules that are given a `struct link`; link_new() makes one as well.  Free with
 * link_free(); calls and follows that are still there then fail the test. */
struct link *fake_link(void);
struct link *fake_link_last(void);        /* what link_new() made last; NULL: none is alive */
void fake_link_fail_new(const char *why); /* the next link_new() fails */
void fake_link_node_listener(enum link_node_listener kind, int fd); /* for the next link_new() */
void fake_link_lose(struct link *p); /* the broker is gone: runs `lost` of link_new() */

/* Waiting calls: `op` is LINK_POD_ADD, LINK_LISTEN or LINK_PEER_OF.  why NULL: success. */
int fake_link_waiting(const struct link *p, enum link_op op);
/* The code of refusals from now on; EPERM before. */
void fake_link_refuse_with(struct link *p, int code);
void fake_link_added(struct link *p, const struct uuid *pod, const char *why);
/* A listener without a name: nobody connects to it. */
int fake_link_listener(void);
void fake_link_listening(
    struct link *p, const struct uuid *pod, enum link_listener kind, int fd, const char *why);
/* The family of the oldest call for such a socket; 0: there is none. */
int fake_link_dials(const struct link *p, enum link_dial kind);
unsigned fake_link_dials_port(const struct link *p); /* of the oldest for a loopback; 0: none */
void fake_link_dialled(
    struct link *p, enum link_dial kind, int fd, const char *why); /* the oldest */
void fake_link_peer(
    struct link *p, const struct uuid *pod, const struct link_peer *n, const char *why);
void fake_link_stranger(struct link *p, const struct uuid *pod, int code, const char *why);
bool fake_link_attests(const struct link *p); /* link_require_attestation() was called */

/* What was answered; 0: nothing. */
uint32_t fake_link_ping(struct link *p, const struct link_packet *g);

/* State.  A put is LINK_STATE_PUT, a list LINK_STATE_LIST, of waiting calls; what was put and
 * answered is kept until it is deleted or the link is freed. */
void fake_link_put(struct link *p, const char *why); /* answers the oldest */
/* From now on what is kept as LINK_STATE_SERVED waits for that, too; before, it is there at once.
 */
void fake_link_ask_served(struct link *p);
void fake_link_listed(struct link *p, enum link_state kind, const char *why); /* tells all, ends */
void fake_link_keep(struct link *p, const struct link_kept *k); /* it was there before */
int fake_link_kept(const struct link *p, enum link_state kind);
struct link_kept fake_link_kept_at(const struct link *p, enum link_state kind, int at);
void fake_link_forget(struct link *p); /* all of it */

/* What nobody waits for. */
int fake_link_removals(const struct link *p, const struct uuid *pod);
/* Answers the oldest write of it; one that was not is answered, well, before the pod listens. */
void fake_link_wrote(struct link *p, const struct uuid *pod, enum link_file file, const char *why);
int fake_link_writes(const struct link *p, const struct uuid *pod, enum link_file file);
/* The last content, NUL-terminated; NULL: never written. */
const char *fake_link_written(
    const struct link *p, const struct uuid *pod, enum link_file file, size_t *size);

/* The last text of link_identity_put(), and its answer; `why` NULL: done. */
const char *fake_link_identity(const struct link *p);
void fake_link_identity_done(struct link *p, const struct uuid *pod, int code, const char *why);

/* Follows.  `pod` and `plane` as given to link_follow(); both unused for the manifests. */
bool fake_link_follows(
    const struct link *p, enum link_followed what, const struct uuid *pod, unsigned plane);
void fake_link_push(struct link *p, enum link_followed what, const struct uuid *pod, unsigned plane,
    const struct link_content *c);
void fake_link_root(struct link *p, unsigned plane, const char *pem); /* NULL: it is gone */
void fake_link_crl(struct link *p, unsigned plane, const char *pem);  /* NULL: it is gone */
void fake_link_token(struct link *p, const struct uuid *pod, const char *jwt);
void fake_link_manifest(struct link *p, const char *name, const char *yaml);
/* The same of a pod that an earlier worker served. */
void fake_link_running(struct link *p, const char *name, const char *yaml);
void fake_link_synced(struct link *p);

int fake_link_ready(const struct link *p); /* how often it was said */
/* What link_served() said last; UINT32_MAX: nothing yet. */
unsigned fake_link_lost(const struct link *p, const char **why);
int fake_link_logs(const struct link *p); /* the same of link_log() */
void fake_link_relisten(
    struct link *p, const struct uuid *pod, enum link_listener kind, int fd); /* takes fd */

/* The broker notes something of a pod's directory. */
void fake_link_note_pod(struct link *p, const struct uuid *pod, const struct link_pod_note *n);

int fake_link_live(const struct link *p); /* waiting calls + follows: 0 when all was given back */
