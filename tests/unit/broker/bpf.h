/* bpf.h - a place for eBPF programs of the test's own: a bpffs, a tree of cgroups, network
 * namespaces.  Real ones; all of it goes with the test.
 */
#pragma once
#include "border/protocol.h"
#include "broker/pods/cgroup.h"
#include "broker/redirect/redirect.h"
#include "common/err.h"
#include "rig.h"
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <dirent.h>
#include <endian.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>

enum { PLACE_PATIENCE_MS = 60 * 1000 }; /* a test that waits longer has failed */

struct place {
	char top[32], bpffs[64], root[PATH_MAX / 2], cgroup[PATH_MAX];
	struct redirect_place at;
	struct redirect *r;
	struct err e;
};

/* "<the tree>/<name>" */
const char *place_path(const struct place *p, const char *name);

/* An open directory of a cgroup that is made if it is not there. */
int place_cgroup(const struct place *p, const char *name);
void place_setup(struct place *p);
void place_start(struct place *p);
void place_restart(struct place *p);

/* Whatever a test that failed has left: its processes end, all its cgroups go.  A process that was
 * waited for may be in its cgroup a little longer; the kernel tells when the tree is empty. */
void place_empty(const struct place *p);
void place_teardown(struct place *p);

/* Set-up and tear-down of a test that needs no more than programs that run. */
int place_begin(void **state);
int place_end(void **state);

/* --- what is there --- */

int place_pin(const struct place *p, const char *name);

/* Keys of a pinned map. */
int place_rows(const struct place *p, const char *map);

/* Names in a directory below the pins; -1: there is none. */
int place_names(const struct place *p, const char *below);
int place_attached(int target, enum bpf_attach_type type, uint32_t ids[8]);

/* What the programs know of the pod; false: nothing. */
bool place_entry(const struct place *p, int cgroup, struct redirect_pod *out);

/* --- network namespaces --- */

/* A new one, where `commands` have run. */
int place_netns(const char *commands);

/* --- rules --- */

struct redirect_rules good_rules(void);

/* --- one pod --- */

void place_set(
    struct place *p, const struct uuid *pod, int cgroup, const struct redirect_rules *rules);

/* Of a network namespace whose address is 10.9.0.`last`. */
struct netns_watch_seen place_seen(uint8_t last);
void place_live(struct place *p, const struct uuid *pod, int netns, uint8_t last);

/* --- a dial --- */

/* One process of the pod, in a network namespace where nothing leads anywhere. */
void place_dial(int cgroup);

/* --- an audit that knows of no pod's cgroup or network namespace --- */

int place_no_fd(void *ctx, const struct uuid *pod);
void place_no_directory(void *ctx, const char *path);
extern const struct redirect_targets place_nowhere;
