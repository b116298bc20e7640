/* rig.h - a broker core in this process and the worker's end of its pair in the test's hand.
 *
 * Everything it does is real: directories below a fresh /tmp/brXXXXXX, sockets, inotify.  A
 * question is answered within a few turns of the broker's loop, so nothing waits and nothing
 * sleeps.
 */
#pragma once
#include "border/protocol.h"
#include "broker/base/fdstore.h"
#include "broker/base/io.h"
#include "broker/requests/broker.h"
#include "common/err.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RIG_TURNS = 64, RIG_PATH = 128 };

struct rig {
	char top[32], run[RIG_PATH], manifests[RIG_PATH], root[RIG_PATH], identities[RIG_PATH];
	struct broker_options o;
	struct broker_fdstore *kept;
	struct broker *b;
	int fd;     /* the worker's end */
	int sndbuf; /* of the broker's; 0: as it is */
	uint32_t id;
	const char *volume; /* of the next requests; NULL: none */
};

extern const struct uuid rig_pod, rig_other;
extern const char rig_pod_text[];

int rig_attach(struct rig *r);
/* The one before ends; the next has been told of the node. */
void rig_next_worker(struct rig *r);

/* False: nothing is there (or, without MSG_DONTWAIT, nobody). */
bool rig_receive(struct rig *r, int flags, struct link_packet *p, int *fd);

/* One packet within a few turns of the loop; false: there is none. */
bool rig_next(struct rig *r, struct link_packet *p, int *fd);

/* What arrives must be a packet of this kind. */
struct link_packet rig_expect(struct rig *r, enum link_what what, int *fd);
void rig_quiet(struct rig *r);
/* Nothing waits for a turn of the broker, but the audit, whose time may have come just now. */
bool rig_is_idle(struct rig *r);
void rig_drain(struct rig *r); /* what comes is closed, and forgotten */
void rig_send(struct rig *r, const void *bytes, size_t size, const int *fds, int nfds);

struct rig_ask {
	enum link_op op;
	unsigned kind, arg;
	const struct uuid *pod;
	int fd; /* 0: none */
};

/* Sends; returns the id. */
uint32_t rig_request(struct rig *r, struct rig_ask a);
struct link_packet rig_ask(struct rig *r, struct rig_ask a, int *fd);

/* Success, without an fd. */
void rig_do(struct rig *r, struct rig_ask a);

/* A refusal whose text contains `text`. */
void rig_refused(struct rig *r, struct rig_ask a, int code, const char *text);
int rig_listen(struct rig *r, const struct uuid *pod, enum link_listener kind);

/* "<top>/<rest>"; one of four buffers in turn. */
__attribute__((format(printf, 2, 3))) const char *rig_at(const struct rig *r, const char *fmt, ...);
const char *rig_mount(const struct rig *r, const char *name);

/* --- files --- */

void rig_file(const char *path, const char *text);
struct stat rig_stat(const char *path); /* of the link itself, if it is one */
mode_t rig_mode(const char *path);      /* its permissions */
__attribute__((format(printf, 1, 2))) void rig_shell(const char *fmt, ...);
int rig_memfd(const void *data, size_t size, int seals);
enum { RIG_SEALS = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };

/* The next LINK_FILE of a follow, with its content (or "" without). */
struct link_packet rig_next_file(struct rig *r, uint32_t id, char *text, size_t size);
void rig_expect_content(struct rig *r, uint32_t id, const char *name, const char *text);
void rig_expect_state(
    struct rig *r, uint32_t id, const char *name, enum link_file_state state, const char *why);

/* --- life --- */

/* Another one on what the last one kept. */
struct broker *rig_broker(struct rig *r, struct err *e);
void rig_start(struct rig *r);
void rig_stop(struct rig *r);

/* Mounts of the test are its own and go with its process. */
void rig_own_mounts(void);
int rig_setup(void **state);
int rig_teardown(void **state);
int rig_connect(const char *path);
bool rig_reaches(const char *path, int l); /* a connection there reaches the listener */
void rig_add(struct rig *r);
