/* options.h - the broker's command line: everything it knows about the node. */
#pragma once
#include "border/protocol.h"
#include "common/err.h"
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

enum broker_mode {
	BROKER_RUN,
	BROKER_CHECK,
	BROKER_CHECK_STATE, /* a trial: upgrade.h */
	REDIRECT_UNINSTALL,
	REDIRECT_GATE,
	REDIRECT_AWAIT,
	BROKER_HELP,
	BROKER_SHOW_VERSION
};

/* Strings are those of argv. */
struct broker_options {
	enum broker_mode mode;
	bool bare;    /* nothing was given but a mode, --connect and --run */
	bool connect; /* BROKER_CHECK: to the control planes, too */
	const char *run, *config, *cgroup_root, *worker_user;
	const char *manifests, *kubelet_root; /* where pods come from; one may be NULL */
	const char *identity_dir;             /* of keys that outlive a reboot */
	bool config_named;                    /* --config was given, so the file must exist */
	bool take_over;              /* from the agentd that holds the run directory: handover.h */
	bool linger;                 /* having handed over, wait for SIGTERM */
	const char *alive;           /* where probes ask this very agentd; NULL: nowhere */
	unsigned take_over_s;        /* to become ready in, or all is given back */
	bool no_privsep;             /* the worker stays root and uncaged: for debugging */
	bool redirect;               /* traffic by eBPF: broker/redirect/traffic.h */
	const char *log_level;       /* until the worker has told its own */
	const char *redirect_cgroup; /* NULL: broker/redirect/traffic.h */
	const char *probes_cgroup;   /* above the kubelet, below the root; NULL: the root */
	const char *kubepods; /* the kubelet's cgroup, below the root; NULL: the usual ones */
	const char *redirect_allow, *bpffs;
	const char *await;   /* the pod's uid, as it was given; REDIRECT_AWAIT only */
	const char *metrics; /* ADDR:PORT, checked; NULL: none */
	const char *root_files[LINK_PLANES_MAX], *crl_files[LINK_PLANES_MAX]; /* NULL: none */
	unsigned max_pods;
	char **worker_argv; /* "agentd-worker" and arguments that are not ours; room for one more;
			       owned */
	int worker_argc;
};

int broker_options_parse(struct broker_options *o, int argc, char **argv, struct err *e);
void broker_options_clear(struct broker_options *o);
void broker_options_help(FILE *out);

/* The worker's user.  `known` is false when the name is not there and 1338 is taken. */
struct broker_user {
	uid_t uid;
	gid_t gid;
	bool known;
};
int broker_options_user(const struct broker_options *o, struct broker_user *u, struct err *e);
